"""What a guest is: what is asked for, and how the program that is its machine is started.

There are two machines. qemu.py has QEMU, for Debian's kernels and those that look for bugs, in
virtual time or in real time; uml.py has User-Mode Linux, a kernel that is a program of the host, in
real time. All else of a guest is one: the images (image.py), the initramfs (initramfs.py), the
agent (guest/agent.sh) and the host's end of the channel (vm.py).
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from fastsync_lab.host.errors import UsageError
from fastsync_lab.host.kernels import UML, KernelTree
from fastsync_lab.machine.image import DEFAULT, RootImage
from fastsync_lab.machine.processor import (
    DEFAULT_MIPS,
    SPEEDS,
    Processor,
    check_mips,
    untimed_processor,
)

DEBUG_KERNEL_SLOWNESS = 8.0  # what its time limits are multiplied by
GUEST_HOME = "/run/fastsync"
CONTROL_PORT = "fastsync"
ATTACHED_STREAMS = ("fastsync.in", "fastsync.out", "fastsync.err")
PORTS = (CONTROL_PORT, *ATTACHED_STREAMS)


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
    """A machine. `mips` are the millions of instructions of a second of virtual time.

    `root` names a table of images.toml; `parameters` are added to the kernel's command line.
    Raises UsageError for a machine that there cannot be.
    """

    tree: KernelTree
    memory_mib: int = 2048
    cpus: int = 1
    real_time: bool = False
    mips: int = DEFAULT_MIPS
    processor: Processor = field(default_factory=untimed_processor)
    root: str = DEFAULT
    parameters: tuple[str, ...] = ()
    shares: tuple[Share, ...] = ()

    def __post_init__(self) -> None:
        """Raises UsageError, see above."""
        check_mips(self.mips)
        check_machine(self.cpus, self.parameters, real_time=not self.virtual_time)
        if self.is_uml and self.cpus > 1:
            raise UsageError(f"User-Mode Linux has one processor, not {self.cpus}")

    @property
    def is_uml(self) -> bool:
        """Whether the kernel is a program of the host; else it takes QEMU."""
        return self.tree.variant == UML

    @property
    def virtual_time(self) -> bool:
        """Whether the guest's clock counts instructions."""
        return not (self.real_time or self.is_uml)

    @property
    def icount_shift(self) -> int:
        """One guest instruction takes 2^n ns."""
        return SPEEDS[self.mips]

    @property
    def slowness(self) -> float:
        """What every time limit is multiplied by."""
        return DEBUG_KERNEL_SLOWNESS if self.tree.variant and not self.is_uml else 1.0


# --- how it is started -------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """What a machine is started with: its folder, and what of the host it gets.

    `folder` is its own, temporary, and where its program starts; `initramfs` is there by then.
    `ports` are the file descriptors of PORTS' sockets, which the program inherits; `held` is closed
    once it has started.
    """

    image: RootImage
    folder: Path
    out_dir: Path
    console: Path
    ports: Mapping[str, int]
    held: ExitStack

    @property
    def initramfs(self) -> Path:
        """What the kernel starts from."""
        return self.folder / "initramfs"


@dataclass(frozen=True)
class Machine:
    """A program that is a guest's machine: its command, and what is added to its environment.

    `modules` go into the initramfs beside those that the images take; `script` is a file of guest/
    that says how this machine's devices are called. `mail`, if any, is a folder that the guest
    reads what follows a request from: there its ports carry lines only. `keeps` are file
    descriptors that it inherits beside the ports, and has open for as long as it runs.
    """

    argv: list[str]
    script: str
    modules: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    mail: Path | None = None
    keeps: tuple[int, ...] = ()


def die_with_us(argv: Sequence[str]) -> list[str]:
    """A command that is killed when the thread ends that starts it."""
    return ["setpriv", "--pdeathsig", "KILL", *argv]


def shared(config: VmConfig, out_dir: Path) -> dict[str, Share]:
    """What the guest sees of the host, by the tags of shares_text(): its out_dir, and shares."""
    shares = {f"share{number}": share for number, share in enumerate(config.shares)}
    return {"out": Share(out_dir, writable=True), **shares}
