"""Tables and sentences that the documents, the report and studies have in common."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


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
