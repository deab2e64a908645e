"""The command `vm`."""

import math
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from fastsync_lab import needs
from fastsync_lab.build import build_flashdev, build_modules
from fastsync_lab.cli_options import KernelOption, StockOption, check_kernel
from fastsync_lab.debug.kernel import DEBUG
from fastsync_lab.debug.kernel import debug_kernel as build_debug_kernel
from fastsync_lab.device import DEVICES_RANGE, load_profile, profile_names
from fastsync_lab.errors import UsageError, check_names
from fastsync_lab.image import DEFAULT, image_names, root_image
from fastsync_lab.kernels import fetch_kernel
from fastsync_lab.machine import VmConfig, check_machine, parse_share
from fastsync_lab.paths import build_dir
from fastsync_lab.progress import progress
from fastsync_lab.vm import Vm


def vm(
    command: Annotated[
        list[str], typer.Argument(help="The command, after --; for a shell's: -- sh -c '…'.")
    ],
    kernel: KernelOption = "6.12",
    stock: StockOption = False,
    device: Annotated[
        str | None,
        typer.Option(
            help=f"Load a device profile ({', '.join(profile_names())}) as $FASTSYNC_DEV."
        ),
    ] = None,
    device_mib: Annotated[int, typer.Option(help="Its capacity in MiB.", min=16)] = 512,
    devices: Annotated[
        int,
        typer.Option(
            help="How many of them; $FASTSYNC_DEVS has all.",
            min=DEVICES_RANGE[0],
            max=DEVICES_RANGE[1],
        ),
    ] = 1,
    real_time: Annotated[
        bool,
        typer.Option("--real-time", help="The host's clock (emulated all the same, without KVM)."),
    ] = False,
    debug_kernel: Annotated[
        str | None,
        typer.Option(
            help=f"Boot the kernel that looks for bugs, one of {', '.join(DEBUG)}, in place of "
            "Debian's."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The host's folder behind $FASTSYNC_OUT (default: build/vm-out)."),
    ] = None,
    share: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FOLDER[:rw]",
            help="A folder of the host that the guest sees at the same path, to read, or with :rw "
            "to write; may be repeated.",
        ),
    ] = None,
    memory: Annotated[
        int, typer.Option(help="The guest's memory in MiB.", min=256, max=65536)
    ] = 2048,
    processors: Annotated[
        int, typer.Option(help="How many it has; more than one take --real-time.", min=1, max=8)
    ] = 1,
    parameter: Annotated[
        list[str] | None,
        typer.Option(help="A parameter for the kernel, like NAME=VALUE; may be repeated."),
    ] = None,
    root: Annotated[
        str, typer.Option(help=f"The root image, one of {', '.join(image_names())}.")
    ] = DEFAULT,
    time_limit: Annotated[
        float,
        typer.Option(
            help="End the guest when COMMAND has taken so many seconds of the host's processors "
            "(default: never).",
            min=1,
            show_default=False,
        ),
    ] = math.inf,
) -> None:
    """Boot the kernel with these modules and run COMMAND in it, as root, in virtual time.

    The guest is a Debian system of its own: a root image under a layer of memory. It sees none of
    the host's files but what --share names and the folder behind $FASTSYNC_OUT. stdin, stdout,
    stderr and the exit status pass through.

    Virtual time counts instructions, 500 million a second, and jumps while the guest idles:
    `sleep 60` is over at once, and a run does not depend on what else the host does.
    """
    check_kernel(kernel, stock=stock)
    if device is not None:
        check_names("device profile", [device], profile_names())
    elif devices != 1:
        raise UsageError("--devices needs --device PROFILE")
    if debug_kernel is not None:
        check_names("debug kernel", [debug_kernel], DEBUG)
    check_names("root image", [root], image_names())
    shares = tuple(parse_share(text) for text in share or ())
    parameters = tuple(parameter or ())
    check_machine(processors, parameters, real_time=real_time)
    needs.check_programs(needs.BUILD, needs.GUEST, needs.DEBUG_KERNEL if debug_kernel else ())
    out_dir = out or build_dir() / "vm-out"
    with ExitStack() as stack:
        with progress() as report:
            tree = fetch_kernel(kernel, report=report)
            if debug_kernel is not None:
                tree = build_debug_kernel(tree, debug_kernel, report=report)
            modules = build_modules(tree, stock=stock, report=report)
            flashdev = build_flashdev(tree, report=report) if device else None
            config = VmConfig(
                tree, memory, processors, real_time, root=root, parameters=parameters, shares=shares
            )
            root_image(root, report=report)
            if sys.stderr.isatty():  # elsewhere stderr is the command's alone
                report(f"booting {tree.release}")
            guest = stack.enter_context(Vm(config, out_dir=out_dir))
            guest.load_filesystem(modules)
            if device and flashdev:
                guest.load_device(
                    load_profile(device), flashdev, capacity_mib=device_mib, devices=devices
                )
        status = guest.run_attached(command, timeout_s=time_limit)
    raise typer.Exit(status)
