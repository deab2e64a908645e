"""Time limits that tell a guest that is dead from one on a busy host."""

import math
import os
import time
from collections.abc import Callable
from pathlib import Path

# A guest that does nothing at all uses no processor either: then the clock on the wall decides.
WALL_FACTOR = 20.0
LEAST_WALL_S = 1800.0


def processor_seconds(pid: int) -> float:
    """What a process has used of the processors, in seconds; infinite once it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return math.inf
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Limit:
    """Counts seconds of a process's own processor time, and very patiently those on the wall.

    A host that is busy with something else makes neither run out.
    """

    def __init__(
        self,
        seconds: float,
        used: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._used, self._clock = used, clock
        self._last_used = used() + seconds
        self._last_clock = clock() + max(seconds * WALL_FACTOR, LEAST_WALL_S)

    def passed(self) -> bool:
        """Whether the process has had its time."""
        return self._used() > self._last_used or self._clock() > self._last_clock
