"""Blocks of documents that a command writes, between marks that name them."""

from pathlib import Path

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.paths import write_whole


def marks(name: str) -> tuple[str, str]:
    """The lines before and after the block of that name."""
    return f"<!-- {name}:begin -->", f"<!-- {name}:end -->"


def replace_block(text: str, name: str, block: str) -> str:
    """A document with a new block between the marks of that name.

    Raises FastsyncError when it does not hold both, once each and in order.
    """
    begin, end = marks(name)
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    if text.count(begin) != 1 or text.count(end) != 1 or end not in rest:
        raise FastsyncError(f"the document lacks {begin} and {end}, once each and in this order")
    return f"{head}{begin}\n\n{block}\n\n{end}{tail}"


def write_block(document: Path, name: str, block: str) -> None:
    """Put a new block into a document. Raises FastsyncError when it lacks the marks."""
    write_whole(document, replace_block(document.read_text(), name, block))
