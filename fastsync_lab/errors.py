"""The one exception that the lab shows to a user without a traceback."""


class FastsyncError(Exception):
    """Something a user can cause or mend: one line, what was wrong and what is allowed."""


class UsageError(FastsyncError):
    """A name or value that is not allowed: ./fastsync ends with status 2 instead of 1."""
