"""The mount options of our ext4."""

DEFAULT_INTERVAL_MS = 100


def mtime_options(mode: str, interval_ms: int | None) -> str:
    """The mount options of a mode."""
    return f"mtime_update={interval_ms},mtime_mode={mode}"
