"""The command `xfstests`."""

from pathlib import Path
from typing import Annotated

import typer

from fastsync_lab.cli.options import DEFAULT_KERNEL, KernelOption, check_kernel
from fastsync_lab.host import needs
from fastsync_lab.host.progress import progress
from fastsync_lab.xfstests.command import LIMIT_S, request, run
from fastsync_lab.xfstests.summary import print_results


def xfstests(
    tree: Annotated[
        Path, typer.Option(metavar="FOLDER", help="A checkout of xfstests; it is only read.")
    ],
    tests: Annotated[
        list[str] | None,
        typer.Argument(help="Tests (generic/001) and groups (quick, ext4/quick); default: quick."),
    ] = None,
    mode: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODE",
            help="off, truncate, defer, eager or defer+eager, beside stock; may be repeated "
            "(default: truncate, defer and, if the kernel's modules have it, defer+eager).",
        ),
    ] = None,
    kernel: KernelOption = DEFAULT_KERNEL,
    time_limit: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="Of a test, in seconds of the host's processor; one that takes longer hangs.",
            min=1,
        ),
    ] = LIMIT_S,
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT", help="How many guests at a time (default: one a processor).", min=1
        ),
    ] = None,
) -> None:
    """Run xfstests, the file systems' own test suite, and tell what ours does worse than stock.

    The suite is compiled from a copy, and its tests run on flash devices. What differs from stock
    is run again on both; the exit status is 1 if ours fails otherwise than stock. An interrupted
    run goes on where it stopped; results of other modules, or from another setting, do not count.
    docs/xfstests.md has the details.
    """
    check_kernel(kernel, stock=False)
    asked = request(tree, tests or [], mode, kernel)
    needs.check_programs(needs.BUILD, needs.GUEST, needs.DEBUG_KERNEL)
    with progress() as report:
        store, failed = run(asked, kernel, limit_s=time_limit, report=report, jobs=jobs)
    for one_mode, test, left in failed:
        print(f"{one_mode} {test} did not pass; what it left is in {left}")
    if print_results(store.runs, asked.tests):
        raise typer.Exit(1)
