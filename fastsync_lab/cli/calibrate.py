"""The command `calibrate`."""

from typing import Annotated

import typer

from fastsync_lab.cli.options import (
    DEFAULT_KERNEL,
    KernelOption,
    MipsOption,
    check_kernel,
    shown,
    starting,
)
from fastsync_lab.host import needs
from fastsync_lab.host.errors import UsageError, check_names
from fastsync_lab.host.progress import progress
from fastsync_lab.machine.processor import DEFAULT_MIPS, check_mips, processor_names
from fastsync_lab.study import calibration, latencies
from fastsync_lab.study.grid import print_parts


def calibrate(
    processor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROW",
            help=f"A row of processors.toml ({', '.join(processor_names())}), may be repeated; "
            "then nothing is kept (default: each, for the document).",
            autocompletion=starting(processor_names()),
        ),
    ] = None,
    devices: Annotated[
        bool,
        typer.Option("--devices", help="Each device against its model, not the processor."),
    ] = False,
    kernel: KernelOption = DEFAULT_KERNEL,
    mips: MipsOption = DEFAULT_MIPS,
) -> None:
    """Hold the guest's processor against the host's: copies, checksums, switches, in system calls.

    The same program runs on the host and in a guest for each processor. The command names the
    nearest one: least root mean square of the logarithms of the ratios. If all processors were
    measured at the guests' own speed, the figures are kept in results/ and written into
    docs/device-model.md, which has the details. An interrupted run goes on where it stopped.

    With --devices, each kind of request to each modelled device is held against its model, at the
    guests' own speed; it takes half a minute, and goes into the same document.
    """
    check_kernel(kernel, stock=True)
    check_mips(mips)
    names = list(dict.fromkeys(processor or processor_names()))
    check_names("processor", names, processor_names())
    if devices and (processor or mips != DEFAULT_MIPS):
        raise UsageError("--devices is at the guests' own speed: without --processor and --mips")
    needs.check_programs(needs.BUILD, needs.GUEST)
    if devices:
        with progress() as report:
            measured = latencies.measure(kernel, report)
        print_parts(latencies.parts(measured))
        print(f"kept in {shown(latencies.path())}")
        return
    with progress() as report:
        result = calibration.calibrate(kernel, mips, names, report)
    print_parts(calibration.parts(result))
    if names == processor_names() and mips == DEFAULT_MIPS:
        print(f"kept in {shown(calibration.path())}")
