"""What has to end in time, tried on a host that may be busy with something else.

A try that is late fails, unless the host's processes have had to wait for so long that it would
have been in time without. Then it is tried again.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PRESSURE = Path("/proc/pressure")
TRIES = 10


@dataclass(frozen=True)
class Took:
    """How long something took, and for how much of that some process of the host's had to wait."""

    seconds: float
    stalled_s: float = 0.0


class StopWatch:
    """Runs from when it is made on."""

    def __init__(self) -> None:
        self._stalled_s = stalled_s()
        self._start = time.monotonic()

    def took(self) -> Took:
        """Until now."""
        return Took(time.monotonic() - self._start, stalled_s() - self._stalled_s)


def stalled_s() -> float:
    """Seconds in which some process waited for a processor, memory or a disk, since some moment.

    All of them, where the kernel does not tell.
    """
    if not PRESSURE.exists():
        return time.monotonic()
    lines = [(PRESSURE / what).read_text().split("\n")[0] for what in ("cpu", "memory", "io")]
    return sum(int(line.rpartition("total=")[2]) for line in lines) / 1e6


def check_in_time(attempt: Callable[[], Took], limit_s: float) -> None:
    """One of TRIES takes less than that, and none before it is late by its own fault."""
    late: list[Took] = []
    while (took := attempt()).seconds >= limit_s:
        late.append(took)
        assert took.seconds - took.stalled_s < limit_s, took
        assert len(late) < TRIES, late
