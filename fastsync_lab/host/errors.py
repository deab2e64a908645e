"""The one exception that the lab shows to a user without a traceback."""

from collections.abc import Iterable, Sequence


class FastsyncError(Exception):
    """Something a user can cause or mend: one line, what was wrong and what is allowed."""


class TimeLimitError(FastsyncError):
    """A guest did not answer in the time that it had, and was killed."""


class UsageError(FastsyncError):
    """A name or value that is not allowed: ./fastsync ends with status 2 instead of 1."""


def check_names(kind: str, names: Iterable[str], allowed: Sequence[str], where: str = "") -> None:
    """Raise UsageError for a name that is not allowed."""
    for name in names:
        if name not in allowed:
            raise UsageError(f"no {kind} {name!r}{where}: allowed are {', '.join(allowed)}")
