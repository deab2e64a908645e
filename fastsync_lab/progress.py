"""How long work tells what it is doing."""

from collections.abc import Callable

Report = Callable[[str], None]


def silent(_message: str) -> None:
    """Report progress to nobody."""
