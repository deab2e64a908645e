"""The modes in which our ext4 is looked at, and the mount options of each."""

DEFAULT_INTERVAL_MS = 100

MTIME_MODES = ("off", "truncate", "defer")
EAGER_MODES = ("eager", "defer+eager")
MODES = (*MTIME_MODES, *EAGER_MODES)
CONTROL = "stock"  # the kernel's own modules, to tell whose a failure is


def mtime_mode(mode: str) -> str:
    """What a mode says of stamps: "off" for eager alone, and for stock."""
    first = mode.partition("+")[0]
    return first if first in MTIME_MODES else "off"


def mode_options(
    mode: str, interval_ms: int = DEFAULT_INTERVAL_MS, eager: str = "eager_sync"
) -> list[str]:
    """What a mode is mounted with, `eager` being how eager_sync is asked for."""
    mtime = mtime_mode(mode)
    words = [] if mtime == "off" else [f"mtime_update={interval_ms},mtime_mode={mtime}"]
    return [*words, eager] if mode in EAGER_MODES else words
