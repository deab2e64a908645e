# shellcheck shell=dash disable=SC2034 # init.sh uses the variables
# What QEMU's devices are called in the guest, for init.sh and agent.sh.

# They are memory: a program is mapped from there.
images='/dev/pmem0 /dev/pmem1'
image_options=ro,dax=always

# mount_share TAG ro|rw FOLDER: a folder of the host.
mount_share() {
	mount -t 9p -o "$2,trans=virtio,version=9p2000.L,msize=512000" "$1" "$3"
}

# Prints the device node of the port named $1, once it is there.
port_device() {
	for entry in /sys/class/virtio-ports/*; do
		read -r name 2>/dev/null <"$entry/name" || continue
		[ "$name" != "$1" ] || echo "/dev/${entry##*/}"
	done
}

# open_control DEVICE: to be read as 3 and written as 7; it can be open only once.
open_control() {
	exec 3<>"$1" 7>&3
}

# open_input DEVICE: to be read as 4 and written as 8.
open_input() {
	exec 4<>"$1" 8>&4
}

# body LENGTH FD NAME: writes to stdout what follows a request. A static busybox starts at a fraction
# of the instructions that others take.
body() {
	busybox head -c "$1" <&"$2"
}
