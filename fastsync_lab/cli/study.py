"""The commands `run` and `list`."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from fastsync_lab.cli.options import (
    COMPLETE_DEVICE,
    DEFAULT_KERNEL,
    KernelOption,
    MipsOption,
    check_kernel,
    shown,
    starting,
)
from fastsync_lab.cli.output import output_file
from fastsync_lab.host import needs
from fastsync_lab.host.errors import check_names
from fastsync_lab.host.glue import glue_patches
from fastsync_lab.host.kernels import load_series
from fastsync_lab.host.progress import progress
from fastsync_lab.machine.device import load_profile, profile_names
from fastsync_lab.machine.processor import (
    DEFAULT_MIPS,
    check_mips,
    load_processor,
    processor_names,
)
from fastsync_lab.studies import studies
from fastsync_lab.study.plot import draw
from fastsync_lab.study.runner import run_studies
from fastsync_lab.study.show import print_results
from fastsync_lab.study.store import load_result, write_rows


def run(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="STUDY...",
            help=f"Out of: {', '.join(studies())}.",
            autocompletion=starting(studies()),
        ),
    ],
    quick: Annotated[
        bool, typer.Option("--quick/--full", help="Few runs, or all that the documents show.")
    ] = True,
    kernel: KernelOption = DEFAULT_KERNEL,
    device: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROFILE",
            help="A device profile, may be repeated (default: the study's own).",
            autocompletion=COMPLETE_DEVICE,
        ),
    ] = None,
    mips: MipsOption = DEFAULT_MIPS,
    json: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write all rows to this file, too: an object for each.",
            dir_okay=False,
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the results into this PNG.", dir_okay=False),
    ] = None,
) -> None:
    """Run studies in the virtual machine, print tables, keep JSON under results/.

    An interrupted run goes on where it stopped. A full one (--full) measures what has changed since
    its last result; remove that to have all measured anew. `./fastsync list` says what each study
    measures.
    """
    known = studies()
    check_kernel(kernel, stock=False)
    check_mips(mips)
    check_names("study", names, list(known))
    check_names("device profile", device or [], profile_names())
    json, plot = (file and output_file(file) for file in (json, plot))
    needs.check_programs(needs.BUILD, needs.GUEST)
    with progress() as report:
        paths = run_studies(
            [known[name] for name in dict.fromkeys(names)],
            quick=quick,
            kernel=kernel,
            devices=device or None,
            mips=mips,
            report=report,
        )
    results = [load_result(path) for path in paths]
    if json is not None:
        write_rows(json, results)
    print_results(results, known)
    if plot is not None:
        draw(results, known, plot)
        print(f"drew {shown(plot)}")


def list_all() -> None:
    """Say what there is: studies, kernels, devices, file systems, processors, a line each."""
    known = studies()
    systems = {
        system.name: system.says + (f" ({', '.join(system.kernels)})" if system.kernels else "")
        for study in known.values()
        for system in chain(study.full.systems, study.quick.systems)
    }
    kernels = {
        name: f"Linux {name} of Debian"
        f"{'' if glue_patches(name) else ', stock modules only'}"
        f"{'' if series.qasio else ', without qasio'}"
        for name, series in load_series().items()
    }
    show_names("studies", ((name, study.says) for name, study in known.items()))
    show_names("kernels", kernels.items())
    show_names("devices", ((name, load_profile(name).description) for name in profile_names()))
    show_names("file systems", systems.items())
    show_names("processors", ((name, load_processor(name).says) for name in processor_names()))


def show_names(kind: str, names: Iterable[tuple[str, str]]) -> None:
    """Print names and what they are."""
    print(f"{kind}:")
    for name, says in names:
        print(f"  {name:16} {says}")
