"""What several commands of ./fastsync share."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer

from fastsync_lab.host.glue import check_glue
from fastsync_lab.host.kernels import default_series, find_series, load_series
from fastsync_lab.host.paths import repo_root
from fastsync_lab.machine.device import profile_names
from fastsync_lab.machine.processor import SPEEDS

EXIT_CODES = "Exit status: 0 success, 1 failure, 2 bad usage, 130 interrupted."


def starting(names: Iterable[str]) -> Callable[[str], list[str]]:
    """What the Tab key completes a word to."""
    there = list(names)

    def complete(incomplete: str) -> list[str]:
        return [name for name in there if name.startswith(incomplete)]

    return complete


DEFAULT_KERNEL = default_series()
KernelOption = Annotated[
    str,
    typer.Option(
        metavar="SERIES",
        help=f"A series ({', '.join(load_series())}: newest cached, else newest served) "
        "or a version of one, like 6.12.N.",
        autocompletion=starting(load_series()),
    ),
]
StockOption = Annotated[bool, typer.Option("--stock", help="The unpatched pair of modules.")]
MipsOption = Annotated[
    int,
    typer.Option(
        metavar="MIPS",
        help="Millions of instructions in a second of the guest's time: "
        f"{', '.join(map(str, sorted(SPEEDS)))}.",
    ),
]
COMPLETE_DEVICE = starting(profile_names())


def told(*examples: str, status: str = EXIT_CODES) -> str:
    """What a command's help ends with: examples, each a line, and its exit statuses."""
    lines = "\n".join(f"  ./fastsync {example}" for example in examples)
    return f"\b\nExamples:\n{lines}\n\n{status}"


def check_kernel(kernel: str, *, stock: bool) -> None:
    """Raise UsageError for an unknown kernel, and for one that has no modules but the stock's."""
    series = find_series(kernel)
    if not stock:
        check_glue(series.name)


def shown(path: Path) -> Path:
    """A path as a message shows it: relative to the repository where it lies inside."""
    return path.relative_to(repo_root()) if path.is_relative_to(repo_root()) else path
