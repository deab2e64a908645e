"""The commands `vm` and `shell`."""

import inspect
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Concatenate

import typer

from fastsync_lab.cli.options import (
    COMPLETE_DEVICE,
    DEFAULT_KERNEL,
    KernelOption,
    StockOption,
    check_kernel,
    starting,
)
from fastsync_lab.cli.output import check_writable
from fastsync_lab.host import needs, terminal
from fastsync_lab.host.build import build_flashdev, build_modules
from fastsync_lab.host.debug.kernel import DEBUG
from fastsync_lab.host.debug.kernel import debug_kernel as build_debug_kernel
from fastsync_lab.host.errors import FastsyncError, UsageError, check_names
from fastsync_lab.host.fetch import fetch_kernel
from fastsync_lab.host.paths import build_dir
from fastsync_lab.host.progress import progress
from fastsync_lab.machine.config import VmConfig, check_machine, parse_share
from fastsync_lab.machine.device import (
    CAPACITY_MIB_RANGE,
    DEVICES_RANGE,
    load_profile,
    profile_names,
)
from fastsync_lab.machine.image import DEFAULT, image_names, root_image
from fastsync_lab.machine.vm import Vm

VM_STATUS = "Exit status: that of COMMAND; 1 when the guest fails, 2 for bad usage."
SHELL_STATUS = "Exit status: that of the shell; 1 when the guest fails, 2 for bad usage."

DeviceOption = Annotated[
    str | None,
    typer.Option(
        metavar="PROFILE",
        help=f"Load a device profile ({', '.join(profile_names())}) as $FASTSYNC_DEV.",
        autocompletion=COMPLETE_DEVICE,
    ),
]
CapacityOption = Annotated[
    int,
    typer.Option(metavar="MIB", help="Its capacity in MiB.", min=16, max=CAPACITY_MIB_RANGE[1]),
]
DevicesOption = Annotated[
    int,
    typer.Option(
        metavar="COUNT",
        help="How many of them; $FASTSYNC_DEVS has all.",
        min=DEVICES_RANGE[0],
        max=DEVICES_RANGE[1],
    ),
]
RealTimeOption = Annotated[
    bool,
    typer.Option("--real-time", help="The host's clock (emulated all the same, without KVM)."),
]
DebugKernelOption = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help=f"Boot the kernel that looks for bugs, one of {', '.join(DEBUG)}, in place of "
        "Debian's.",
        autocompletion=starting(DEBUG),
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="The host's folder behind $FASTSYNC_OUT (default: build/vm-out).",
        file_okay=False,
    ),
]
ShareOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FOLDER[:rw]",
        help="A folder of the host that the guest sees at the same path, to read, or with :rw "
        "to write; may be repeated.",
    ),
]
MemoryOption = Annotated[
    int, typer.Option(metavar="MIB", help="The guest's memory in MiB.", min=256, max=65536)
]
ProcessorsOption = Annotated[
    int,
    typer.Option(
        metavar="COUNT", help="How many it has; more than one take --real-time.", min=1, max=8
    ),
]
ParameterOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[=VALUE]", help="A parameter for the kernel, like NAME=VALUE; may be repeated."
    ),
]
RootOption = Annotated[
    str,
    typer.Option(
        metavar="IMAGE",
        help=f"The root image, one of {', '.join(image_names())}.",
        autocompletion=starting(image_names()),
    ),
]
LimitOption = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        help="End the guest when COMMAND has taken so many seconds of the host's processors "
        "(default: never).",
        min=1,
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Asked:
    """A guest that somebody wants: each field is an option, of `vm` and of `shell`.

    Raises UsageError for what there is not, or cannot be.
    """

    kernel: KernelOption = DEFAULT_KERNEL
    stock: StockOption = False
    device: DeviceOption = None
    device_mib: CapacityOption = 512
    devices: DevicesOption = 1
    real_time: RealTimeOption = False
    debug_kernel: DebugKernelOption = None
    out: OutOption = None
    share: ShareOption = None
    memory: MemoryOption = 2048
    processors: ProcessorsOption = 1
    parameter: ParameterOption = None
    root: RootOption = DEFAULT

    def __post_init__(self) -> None:
        check_kernel(self.kernel, stock=self.stock)
        if self.device is not None:
            check_names("device profile", [self.device], profile_names())
        elif self.devices != 1:
            raise UsageError("--devices needs --device PROFILE")
        if self.debug_kernel is not None:
            check_names("debug kernel", [self.debug_kernel], DEBUG)
        check_names("root image", [self.root], image_names())
        check_machine(self.processors, tuple(self.parameter or ()), real_time=self.real_time)


@contextmanager
def booted(asked: Asked) -> Iterator[Vm]:
    """The guest, with its modules and its device."""
    shares = tuple(map(parse_share, asked.share or ()))
    if asked.out is not None:
        check_writable(asked.out)
    debug = asked.debug_kernel
    needs.check_programs(needs.BUILD, needs.GUEST, needs.DEBUG_KERNEL if debug else ())
    with ExitStack() as stack:
        with progress() as report:
            tree = fetch_kernel(asked.kernel, report=report)
            if debug is not None:
                tree = build_debug_kernel(tree, debug, report=report)
            modules = build_modules(tree, stock=asked.stock, report=report)
            flashdev = build_flashdev(tree, report=report) if asked.device else None
            config = VmConfig(
                *(tree, asked.memory, asked.processors, asked.real_time),
                root=asked.root,
                parameters=tuple(asked.parameter or ()),
                shares=shares,
            )
            root_image(asked.root, report=report)
            if sys.stderr.isatty():  # elsewhere stderr is the command's alone
                report(f"booting {tree.release}")
            guest = stack.enter_context(Vm(config, out_dir=asked.out or build_dir() / "vm-out"))
            guest.load_filesystem(modules)
            if asked.device and flashdev:
                guest.load_device(
                    load_profile(asked.device),
                    flashdev,
                    capacity_mib=asked.device_mib,
                    devices=asked.devices,
                )
        yield guest


def of_guest(command: Callable[Concatenate[Asked, ...], None]) -> Callable[..., None]:
    """A command whose options are the fields of Asked and its own parameters but for that one.

    typer reads them from the signature.
    """
    _, *own = inspect.signature(command).parameters.values()
    shared = inspect.signature(Asked).parameters.values()

    @wraps(command)
    def run(**values: Any) -> None:
        asked = Asked(**{option.name: values.pop(option.name) for option in shared})
        command(asked, **values)

    everything = sorted([*shared, *own], key=lambda one: one.default is not one.empty)
    run.__signature__ = inspect.Signature(everything)  # type: ignore[attr-defined]
    return run


def complaint_of(guest: Vm) -> str:
    """What the kernel complained of during the last command, or why the guest does not say."""
    try:
        return guest.complaint()
    except FastsyncError as error:
        return str(error)


@of_guest
def vm(
    asked: Asked,
    command: Annotated[
        list[str], typer.Argument(help="The command, after --; for a shell's: -- sh -c '…'.")
    ],
    time_limit: LimitOption = math.inf,
) -> None:
    """Boot the kernel with these modules and run COMMAND in it, as root, in virtual time.

    The guest is a Debian system of its own: a root image under a layer of memory. It sees none of
    the host's files but what --share names and the folder behind $FASTSYNC_OUT. stdin, stdout,
    stderr and the exit status pass through. If COMMAND fails, and the kernel has complained
    meanwhile, stderr ends with what it said.

    Virtual time counts instructions, 500 million a second, and jumps while the guest idles:
    `sleep 60` is over at once, and a run does not depend on what else the host does.
    """
    with booted(asked) as guest:
        status = guest.run_attached(command, timeout_s=time_limit)
        if status != 0 and (said := complaint_of(guest)):
            print(f"fastsync: {said}", file=sys.stderr)
    raise typer.Exit(status)


@of_guest
def shell(asked: Asked) -> None:
    """Boot the kernel with these modules and open a shell in it, as root, on a terminal of its own.

    The guest is that of `vm`. Ctrl-C goes to the program inside; `exit` or Ctrl-D ends the shell,
    and the guest with it. The terminal has the size that this one has now; `stty rows 50 cols 120`
    in the guest gives it another.
    """
    if not terminal.is_there():
        raise UsageError("`shell` needs a terminal; for a command there is `vm -- COMMAND`")
    with booted(asked) as guest, terminal.raw():
        status = guest.run_attached(terminal.on_terminal(["bash"]))
    raise typer.Exit(status)
