"""What several commands of ./fastsync share."""

from pathlib import Path
from typing import Annotated

import typer

from fastsync_lab.build import check_glue
from fastsync_lab.kernels import find_series, load_series
from fastsync_lab.paths import repo_root

KernelOption = Annotated[
    str,
    typer.Option(
        help=f"A series ({', '.join(load_series())}: newest cached, else newest served) "
        "or a version of one, like 6.12.N."
    ),
]
StockOption = Annotated[bool, typer.Option("--stock", help="The unpatched pair of modules.")]


def check_kernel(kernel: str, *, stock: bool) -> None:
    """Raise UsageError for an unknown kernel, and for one that has no modules but the stock's."""
    series = find_series(kernel)
    if not stock:
        check_glue(series.name)


def shown(path: Path) -> Path:
    """A path as a message shows it: relative to the repository where it lies inside."""
    return path.relative_to(repo_root()) if path.is_relative_to(repo_root()) else path
