"""The machine of a guest: QEMU's command line, and the initramfs that starts the root image."""

import lzma
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastsync_lab.errors import FastsyncError, UsageError
from fastsync_lab.image import DEFAULT, RootImage, modules_image
from fastsync_lab.kernels import KernelTree
from fastsync_lab.shell import run

DEBUG_KERNEL_SLOWNESS = 8.0  # what its time limits are multiplied by
GUEST_HOME = "/run/fastsync"
CONTROL_PORT = "fastsync"
ATTACHED_STREAMS = ("fastsync.in", "fastsync.out", "fastsync.err")
MODULES_OF_INITRAMFS = (
    "virtio_pci",
    "virtio_console",
    "virtio_pmem",
    "nd_pmem",
    "erofs",
    "overlay",
)
# Where a kernel has them compressed; Debian 12 has them as they are.
COMPRESSED_MODULE = ".ko.xz"
# A panic ends QEMU, by -no-reboot. Of what is written to /dev/kmsg nothing is left out.
KERNEL_PARAMETERS = ("console=ttyS0", "panic=-1", "printk.devkmsg=on")
EXECUTABLE = stat.S_IFREG | 0o755
FOLDER = stat.S_IFDIR | 0o755


@dataclass(frozen=True)
class Share:
    """A folder of the host that the guest sees at the same path."""

    folder: Path
    writable: bool = False

    def __post_init__(self) -> None:
        """Raises UsageError for what cannot be shared."""
        if not self.folder.is_absolute() or self.folder == Path("/") or "\n" in str(self.folder):
            raise UsageError(
                f"cannot share {str(self.folder)!r}: allowed is a folder, but not the root"
            )


def parse_share(text: str) -> Share:
    """The share that FOLDER or FOLDER:rw means; UsageError unless it is a folder."""
    name, writable = (text[:-3], True) if text.endswith(":rw") else (text, False)
    folder = Path(name).absolute()
    if not name or not folder.is_dir():
        raise UsageError(f"cannot share {name!r}: there is no such folder (FOLDER or FOLDER:rw)")
    return Share(folder.resolve(), writable)


def check_machine(cpus: int, parameters: Sequence[str], *, real_time: bool) -> None:
    """Raise UsageError for processors that there cannot be, and for what is no parameter."""
    if cpus > 1 and not real_time:
        raise UsageError(f"{cpus} processors take real time: virtual time has one")
    if wrong := [word for word in parameters if not re.fullmatch(r"[!-~]+", word)]:
        raise UsageError(f"{wrong[0]!r} is not one kernel parameter, like NAME or NAME=VALUE")


@dataclass(frozen=True)
class VmConfig:
    """A machine. `icount_shift` n: one guest instruction takes 2^n ns (1: 500 million a second).

    `root` names a table of images.toml; `parameters` are added to the kernel's command line.
    Raises UsageError for a machine that there cannot be.
    """

    tree: KernelTree
    memory_mib: int = 2048
    cpus: int = 1
    real_time: bool = False
    icount_shift: int = 1
    root: str = DEFAULT
    parameters: tuple[str, ...] = ()
    shares: tuple[Share, ...] = ()

    def __post_init__(self) -> None:
        """Raises UsageError, see above."""
        check_machine(self.cpus, self.parameters, real_time=self.real_time)

    @property
    def slowness(self) -> float:
        """What every time limit is multiplied by."""
        return DEBUG_KERNEL_SLOWNESS if self.tree.variant else 1.0


def models_cpu(icount_shift: int) -> str:
    """The processor in virtual time, in words."""
    return f"{1000 / 2**icount_shift:g} million instructions a second, one core"


# --- the initramfs -----------------------------------------------------------------------------


def modules_for(tree: KernelTree, names: Iterable[str]) -> list[Path]:
    """The files of modules and of all that they need, in the order to load them."""
    argv = ["/sbin/modprobe", "--dirname", str(tree.modules_dir.parents[2])]
    argv += ["--set-version", tree.release, "--show-depends"]
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


def initramfs(config: VmConfig, image: RootImage) -> bytes:
    """All that stands between the kernel and the root image; the agent comes with it."""
    guest = Path(__file__).with_name("guest")
    files = {
        "init": (guest / "init.sh").read_bytes(),
        "bin/busybox": image.busybox.read_bytes(),
        "guest/agent.sh": (guest / "agent.sh").read_bytes(),
        "guest/config": (config.tree.headers_dir / ".config").read_bytes(),
        "guest/shares": shares_text(config).encode(),
    }
    for number, file in enumerate(modules_for(config.tree, MODULES_OF_INITRAMFS)):
        files[f"modules/{number:02}-{file.name.split('.')[0]}.ko"] = module_bytes(file)
    return cpio(files)


# --- the command line --------------------------------------------------------------------------


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


def port_arguments(sockets: Path) -> list[str]:
    """The ports of the agent; QEMU connects each to a socket of the same name."""
    argv = ["-device", "virtio-serial-pci,id=fastsync,max_ports=8"]
    for number, port in enumerate((CONTROL_PORT, *ATTACHED_STREAMS)):
        argv += ["-chardev", f"socket,id=fs{number},path={quoted(sockets / port)}"]
        argv += ["-device", f"virtserialport,bus=fastsync.0,chardev=fs{number},name={port}"]
    return argv


def qemu_command(
    config: VmConfig, image: RootImage, *, out_dir: Path, folder: Path, console: Path
) -> list[str]:
    """The command that boots `config`; what it takes at the start is in `folder`.

    It dies with the thread that starts it.
    """
    tree = config.tree
    argv = ["setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", "-name", "fastsync"]
    argv += ["-no-user-config", "-nodefaults", "-no-reboot", "-display", "none"]
    argv += ["-machine", "q35,accel=tcg", "-cpu", "max", "-smp", str(config.cpus)]
    argv += memory_arguments(config, [image.path, modules_image(tree)])
    if not config.real_time:
        argv += ["-icount", f"shift={config.icount_shift},sleep=off"]
    argv += [
        "-chardev",
        f"file,id=console,append=on,path={quoted(console)}",
        "-serial",
        "chardev:console",
    ]
    argv += port_arguments(folder)
    argv += share_arguments("out", Share(out_dir, writable=True))
    for number, share in enumerate(config.shares):
        argv += share_arguments(f"share{number}", share)
    argv += ["-kernel", str(tree.vmlinuz), "-initrd", str(folder / "initramfs")]
    return [*argv, "-append", " ".join((*KERNEL_PARAMETERS, *config.parameters))]


def write_initramfs(config: VmConfig, image: RootImage, folder: Path) -> None:
    """Put into `folder` what qemu_command() expects there; FastsyncError without the files."""
    try:
        (folder / "initramfs").write_bytes(initramfs(config, image))
    except OSError as error:
        raise FastsyncError(f"cannot make an initramfs: {error}") from error
