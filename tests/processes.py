"""Processes of the host, for tests."""

import time
from pathlib import Path

LIMIT_S = 120.0


def children(pid: int) -> list[int]:
    """The processes that a process's main thread started."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def is_running(pid: int) -> bool:
    """Whether there is such a process that is no zombie."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def still_running(*pids: int, limit_s: float = LIMIT_S) -> list[int]:
    """Those that have not ended by themselves in time: one that was killed takes a moment."""
    deadline = time.monotonic() + limit_s
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return [pid for pid in pids if is_running(pid)]
