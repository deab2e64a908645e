"""The initramfs of a guest: all that stands between its kernel and the root image."""

import lzma
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.host.shell import run
from fastsync_lab.machine.config import GUEST_HOME, Machine, VmConfig
from fastsync_lab.machine.image import RootImage

GUEST = Path(__file__).with_name("guest")
MODULES_FOR_IMAGES = ("erofs", "overlay")
# Where a kernel has them compressed; Debian 12 has them as they are.
COMPRESSED_MODULE = ".ko.xz"
EXECUTABLE = stat.S_IFREG | 0o755
FOLDER = stat.S_IFDIR | 0o755


def modules_for(tree: KernelTree, names: Iterable[str]) -> list[Path]:
    """The files of modules and of all that they need, in the order to load them."""
    argv = ["/sbin/modprobe", "--config=/dev/null", f"--dirname={tree.modules_dir.parents[2]}"]
    argv += [f"--set-version={tree.release}", "--show-depends"]
    files: dict[Path, None] = {}
    for name in names:
        files |= dict.fromkeys(parse_show_depends(run([*argv, name]).stdout))
    return list(files)


def parse_show_depends(text: str) -> list[Path]:
    """The files that `modprobe --show-depends` names, in the order to load them."""
    return [Path(file) for file in re.findall(r"^insmod (.+?\.ko\S*)", text, re.MULTILINE)]


def module_bytes(file: Path) -> bytes:
    """A module as the kernel takes it from a busybox."""
    data = file.read_bytes()
    return lzma.decompress(data) if file.name.endswith(COMPRESSED_MODULE) else data


def cpio_entry(name: str, mode: int, data: bytes, number: int) -> bytes:
    """A file or folder as an archive of the format "newc" has it."""
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name.encode()) + 1, 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
    return b"".join(part + bytes(-len(part) % 4) for part in (head, data))


def cpio(files: Mapping[str, bytes]) -> bytes:
    """An archive of programs by their paths, and of the folders that they are in."""
    folders = {str(parent) for name in files for parent in Path(name).parents} - {"."}
    entries = [(folder, FOLDER, b"") for folder in sorted(folders)]
    entries += [(name, EXECUTABLE, data) for name, data in files.items()]
    entries.append(("TRAILER!!!", 0, b""))
    return b"".join(cpio_entry(*entry, number) for number, entry in enumerate(entries, 1))


def shares_text(config: VmConfig) -> str:
    """What the agent mounts: tag, access and folder, a line each."""
    lines = [f"out rw {GUEST_HOME}/out"]
    for number, share in enumerate(config.shares):
        lines.append(f"share{number} {'rw' if share.writable else 'ro'} {share.folder}")
    return "".join(f"{line}\n" for line in lines)


def guest_scripts(machine_script: str) -> dict[str, Path]:
    """The scripts that a guest of such a machine runs before ours, by their paths in it."""
    names = {"init": "init.sh", "guest/agent.sh": "agent.sh", "guest/machine.sh": machine_script}
    return {path: GUEST / name for path, name in names.items()}


def initramfs(config: VmConfig, image: RootImage, machine: Machine) -> bytes:
    """An archive with the first program, what the machine's images take, and the agent."""
    scripts = guest_scripts(machine.script)
    files = {
        **{path: script.read_bytes() for path, script in scripts.items()},
        "bin/busybox": image.busybox.read_bytes(),
        "guest/config": (config.tree.headers_dir / ".config").read_bytes(),
        "guest/shares": shares_text(config).encode(),
        "guest/clock": b"virtual\n" if config.virtual_time else b"real\n",
    }
    names = (*machine.modules, *MODULES_FOR_IMAGES)
    for number, file in enumerate(modules_for(config.tree, names)):
        files[f"modules/{number:02}-{file.name.split('.')[0]}.ko"] = module_bytes(file)
    return cpio(files)


def write_initramfs(path: Path, config: VmConfig, image: RootImage, machine: Machine) -> None:
    """Write it to a file; FastsyncError when something of it is not there."""
    try:
        path.write_bytes(initramfs(config, image, machine))
    except OSError as error:
        raise FastsyncError(f"cannot make an initramfs: {error}") from error
