"""The command `crash`."""

from typing import Annotated

import typer

from fastsync_lab.cli.options import DEFAULT_KERNEL, KernelOption, check_kernel, starting
from fastsync_lab.crash import command
from fastsync_lab.crash.kinds import KINDS
from fastsync_lab.crash.summary import print_outcomes
from fastsync_lab.crash.workloads import workload_names
from fastsync_lab.host import needs
from fastsync_lab.host.kernels import UML
from fastsync_lab.host.options import CONTROL, DEFAULT_INTERVAL_MS, MODES
from fastsync_lab.host.progress import progress


def crash(
    workload: Annotated[
        str,
        typer.Argument(
            help=f"all, or one of {', '.join(workload_names())}.",
            autocompletion=starting(["all", *workload_names()]),
        ),
    ],
    mode: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODE",
            help=f"{', '.join(MODES)}, or {CONTROL} (the kernel's own modules); may be repeated "
            "(default: defer; with `all`: those of the table).",
            autocompletion=starting([*MODES, CONTROL]),
        ),
    ] = None,
    journal: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help=f"A kind of file system: {', '.join(KINDS)}; may be repeated (default: ordered; "
            "with `all`: each, with the workloads of the table).",
            autocompletion=starting(KINDS),
        ),
    ] = None,
    states: Annotated[
        int,
        typer.Option(
            metavar="COUNT", help="How many crash states of each; boundaries are all taken.", min=1
        ),
    ] = 200,
    seed: Annotated[
        int,
        typer.Option(
            metavar="NUMBER", help="Of the random numbers that choose operations and states."
        ),
    ] = 1,
    interval: Annotated[
        int, typer.Option(metavar="MS", help="mtime_update, in ms.", min=1, max=1000)
    ] = DEFAULT_INTERVAL_MS,
    state: Annotated[
        str | None,
        typer.Option(metavar="STATE", help="Check only this state of the last recording."),
    ] = None,
    delays: Annotated[
        int,
        typer.Option(
            metavar="SEED",
            help="Test modules with random delays between a decision and its use, from this seed; "
            "0: no delays.",
            min=0,
        ),
    ] = 0,
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT", help="How many guests at a time (default: one a processor).", min=1
        ),
    ] = None,
    recover_in: Annotated[
        str,
        typer.Option(
            metavar="MACHINE",
            help="Where states are recovered: uml (User-Mode Linux, of the same source) or qemu "
            "(where they are recorded, ten times as slow).",
        ),
    ] = UML,
    kernel: KernelOption = DEFAULT_KERNEL,
) -> None:
    """Cut the power everywhere: record WORKLOAD, recover what may be left, check every promise.

    Each write, flush and FUA write is logged. At each flush, and between, the states that a
    volatile cache allows are recovered by the stock kernel and by e2fsck, which have to agree; what
    a returned fsync has promised must be there. docs/power-cuts.md has the details.
    """
    check_kernel(kernel, stock=False)
    asked = command.request(
        workload,
        modes=mode,
        journals=journal,
        states=states,
        seed=seed,
        interval_ms=interval,
        delays=delays,
        kernel=kernel,
        state=state,
        recover_in=recover_in,
    )
    built = needs.DEBUG_KERNEL if recover_in == UML else ()
    needs.check_programs(needs.BUILD, needs.GUEST, needs.IMAGES, built)
    if any(asked.script(case).flushing for case in asked.cases):
        needs.check_programs(needs.DATABASE)
    with progress() as report:
        outcomes = command.run(asked, report=report, jobs=jobs)
    print_outcomes(outcomes)
    if any(outcome.own_failures for outcome in outcomes):
        raise typer.Exit(1)
