"""Tables and sentences that the documents, the report and studies have in common."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.table import Table

WIDTH = 220  # of a terminal, at least: no row is broken


@dataclass(frozen=True)
class Grid:
    """A table of texts; its first `texts` columns are words, the others are numbers."""

    head: Sequence[str]
    lines: Sequence[Sequence[str]]
    texts: int


# A paragraph in Markdown (of which the report knows `code`, **bold**, links and lists), or a table.
Part = str | Grid


def markdown(grid: Grid) -> str:
    """A table in Markdown."""
    rule = ["---"] * grid.texts + ["---:"] * (len(grid.head) - grid.texts)
    return "\n".join("| " + " | ".join(line) + " |" for line in [grid.head, rule, *grid.lines])


def in_markdown(parts: Iterable[Part]) -> str:
    """Paragraphs and tables, one beneath the other."""
    return "\n\n".join(markdown(part) if isinstance(part, Grid) else part for part in parts)


def drawn(grid: Grid) -> "Table":
    """A table as a terminal shows it."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for index, head in enumerate(grid.head):
        justify: Literal["left", "right"] = "left" if index < grid.texts else "right"
        table.add_column(head.replace("`", ""), justify=justify, no_wrap=True)
    for line in grid.lines:
        table.add_row(*(text.replace("`", "") for text in line))
    return table


def print_parts(parts: Iterable[Part]) -> None:
    """Show paragraphs and tables on the terminal."""
    from rich.console import Console

    out = Console(highlight=False, markup=False, soft_wrap=True, width=WIDTH)
    for part in parts:
        out.print(drawn(part) if isinstance(part, Grid) else part.replace("`", ""))
