"""The command `series`."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from fastsync_lab.cli.options import DEFAULT_KERNEL, KernelOption, check_kernel, shown
from fastsync_lab.host import needs
from fastsync_lab.host.fetch import fetch_kernel
from fastsync_lab.host.progress import progress
from fastsync_lab.host.series import check_output, default_output, git_person, write_series


def series(
    kernel: KernelOption = DEFAULT_KERNEL,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="A folder that is new or empty (default: build/SERIES-patches/)."
        ),
    ] = None,
    signoff: Annotated[
        bool,
        typer.Option(
            "--signoff", help="Make the patches yours, and sign them off, as git's user.name."
        ),
    ] = False,
) -> None:
    """Write ext4's and jbd2's changes as patches with a cover letter, for a kernel's source tree.

    `git am --empty=drop FOLDER/*.patch` applies them, without the cover letter.
    """
    check_kernel(kernel, stock=False)
    if output is not None:
        check_output(output)
    needs.check_programs(needs.BUILD, needs.SERIES)
    person = git_person() if signoff else None
    with progress() as report:
        tree = fetch_kernel(kernel, report=report)
        if output is None:
            shutil.rmtree(default_output(tree), ignore_errors=True)
        written = write_series(tree, output or default_output(tree), person=person)
    for file in written:
        print(shown(file))
    if not signoff:
        print("no Signed-off-by: that is for whoever sends them (--signoff)")
