"""QEMU: the machine of Debian's kernels and of those that look for bugs.

It emulates the processor (TCG). In virtual time (-icount) the guest's clock counts instructions.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.shell import last_lines, run
from fastsync_lab.machine.config import Machine, Setting, Share, VmConfig, die_with_us, shared
from fastsync_lab.machine.image import modules_image

PROGRAM = "qemu-system-x86_64"
SCRIPT = "qemu.sh"  # in machine/guest/
MODULES = ("virtio_pci", "virtio_console", "virtio_pmem", "nd_pmem")
# A panic ends QEMU, by -no-reboot. Of what is written to /dev/kmsg nothing is left out.
KERNEL_PARAMETERS = ("console=ttyS0", "panic=-1", "printk.devkmsg=on")


@cache
def qemu_version() -> str:
    """The version of the machine. Raises FastsyncError when it is not there or names none."""
    said = run([PROGRAM, "--version"]).stdout
    if not (found := re.search(r"version (\S+)", said)):
        raise FastsyncError(f"{PROGRAM} --version names none: {last_lines(said)}")
    return found[1]


def quoted(path: Path) -> str:
    """A path as a value among QEMU's options."""
    return str(path).replace(",", ",,")


def memory_arguments(config: VmConfig, images: Sequence[Path]) -> list[str]:
    """The guest's memory, and images as persistent memory that it can only read."""
    sizes = [image.stat().st_size for image in images]
    # Each is aligned to at most 1 GiB in the space of the addresses.
    room_mib = sum(-(-size >> 20) + 1024 for size in sizes)
    argv = ["-m", f"{config.memory_mib}M,maxmem={config.memory_mib + room_mib}M"]
    for number, (image, size) in enumerate(zip(images, sizes, strict=True)):
        backend = f"id=image{number},mem-path={quoted(image)},size={size}"
        argv += ["-object", f"memory-backend-file,{backend},share=on,readonly=on"]
        argv += ["-device", f"virtio-pmem-pci,memdev=image{number}"]
    return argv


def share_arguments(tag: str, share: Share) -> list[str]:
    """A folder of the host, by the tag that the guest mounts it by."""
    access = "" if share.writable else ",readonly=on"
    where = f"id={tag},path={quoted(share.folder)},security_model=none,multidevs=remap{access}"
    return ["-fsdev", f"local,{where}", "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]


def port_arguments(ports: Mapping[str, int]) -> list[str]:
    """The ports of the agent, each connected to a socket that QEMU inherits."""
    argv = ["-device", "virtio-serial-pci,id=fastsync,max_ports=8"]
    for number, (port, descriptor) in enumerate(ports.items()):
        argv += ["-chardev", f"socket,id=fs{number},fd={descriptor}"]
        argv += ["-device", f"virtserialport,bus=fastsync.0,chardev=fs{number},name={port}"]
    return argv


def qemu_machine(config: VmConfig, setting: Setting) -> Machine:
    """The machine for a kernel of x86."""
    tree = config.tree
    argv = [PROGRAM, "-name", "fastsync"]
    argv += ["-no-user-config", "-nodefaults", "-no-reboot", "-display", "none"]
    argv += ["-machine", "q35,accel=tcg", "-cpu", config.processor.cpu, "-smp", str(config.cpus)]
    argv += memory_arguments(config, [setting.image.path, modules_image(tree)])
    if config.virtual_time:
        argv += ["-icount", f"shift={config.icount_shift},sleep=off"]
    argv += [
        "-chardev",
        f"file,id=console,append=on,path={quoted(setting.console)}",
        "-serial",
        "chardev:console",
    ]
    argv += port_arguments(setting.ports)
    for tag, share in shared(config, setting.out_dir).items():
        argv += share_arguments(tag, share)
    argv += ["-kernel", str(tree.vmlinuz), "-initrd", str(setting.initramfs)]
    parameters = (*KERNEL_PARAMETERS, *config.processor.parameters, *config.parameters)
    argv += ["-append", " ".join(parameters)]
    return Machine(die_with_us(argv), SCRIPT, MODULES)
