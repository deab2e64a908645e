"""A guest: how it is booted, reached and traced.

vm                boots a kernel and runs scripts in it
config            what a guest is to be like, and what its machine is started with
qemu, uml         the two machines
processor         which processor QEMU's guests have, and how fast it is
image, initramfs  what it boots from
guest             the scripts inside
channel, streams  the ports to its agent, and this process's streams
console, kernel_log
                  what it prints, and what of that is a complaint
device            the modelled flash devices; profiles/
trace             block traces
"""
