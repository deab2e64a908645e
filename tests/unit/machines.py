"""Machines that nobody boots: what they would be told."""

from contextlib import ExitStack
from pathlib import Path

from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine.config import PORTS, Setting, VmConfig
from fastsync_lab.machine.image import RootImage
from fastsync_lab.machine.qemu import qemu_machine

RELEASE = "6.12.1+deb12-amd64"


def packed_tree(folder: Path) -> KernelTree:
    """A kernel that is not there, with its modules packed."""
    (folder / f"modules-{RELEASE}.erofs").write_bytes(bytes(2 << 20))
    modules = folder / "lib" / "modules" / RELEASE
    names = ("6.12", RELEASE, "6.12.1-1~deb12u1")
    return KernelTree(*names, folder / "vmlinuz", modules, folder, folder)


def setting_in(folder: Path) -> Setting:
    (folder / "root.erofs").write_bytes(bytes(4 << 20))
    image = RootImage(folder / "root.erofs", folder / "busybox", "", {})
    ports = {name: 10 + number for number, name in enumerate(PORTS)}
    return Setting(image, folder, folder / "a,b", folder / "console.log", ports, ExitStack())


def argv_of(config: VmConfig, folder: Path) -> list[str]:
    return qemu_machine(config, setting_in(folder)).argv


def values(argv: list[str], option: str) -> list[str]:
    return [argv[place + 1] for place, word in enumerate(argv) if word == option]
