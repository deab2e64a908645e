"""The command `faults`."""

from typing import Annotated

import typer

from fastsync_lab.cli.options import DEFAULT_KERNEL, KernelOption, check_kernel, starting
from fastsync_lab.faults import command
from fastsync_lab.faults.summary import print_results
from fastsync_lab.faults.workloads import workload_names
from fastsync_lab.host import needs
from fastsync_lab.host.options import MODES
from fastsync_lab.host.progress import progress


def faults(
    workload: Annotated[
        str,
        typer.Argument(
            help=f"all, or one of {', '.join(workload_names())}.",
            autocompletion=starting([command.ALL, *workload_names()]),
        ),
    ] = command.ALL,
    mode: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODE",
            help=f"One of {', '.join(MODES)}; may be repeated (default: all that the kernel's "
            "modules have).",
            autocompletion=starting(MODES),
        ),
    ] = None,
    kernel: KernelOption = DEFAULT_KERNEL,
) -> None:
    """Fail each request of WORKLOAD, and compare what comes of it with the stock modules.

    Once, and as a device that stays dead; with errors=remount-ro and with errors=continue. The same
    error has to reach the same call, the file system to become read-only where stock's does, and
    what had been promised before to be there after recovery. docs/io-errors.md has the details.
    """
    check_kernel(kernel, stock=False)
    cases = command.cases_of(workload, mode, kernel)
    needs.check_programs(needs.BUILD, needs.GUEST, needs.IMAGES)
    with progress() as report:
        results = command.run(cases, kernel, report=report)
    if print_results(results):
        raise typer.Exit(1)
