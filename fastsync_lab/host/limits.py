"""Time limits that tell a guest that is dead from one on a busy host."""

import math
import os
import time
from collections.abc import Callable
from pathlib import Path

# A guest that does nothing at all uses no processor either: then the clock on the wall decides.
WALL_FACTOR = 20.0
LEAST_WALL_S = 1800.0


def processor_seconds(leader: int) -> float:
    """What a process group has used of the processors, in s; infinite once its leader is gone.

    User-Mode Linux has a process for each of the guest's; QEMU is one.
    """
    if not Path(f"/proc/{leader}").is_dir():
        return math.inf
    ticks = sum(_ticks(Path(entry.path), leader) for entry in os.scandir("/proc"))
    return ticks / os.sysconf("SC_CLK_TCK")


def _ticks(process: Path, group: int) -> int:
    """What a process of the group has used, and those of its children that have ended."""
    if not process.name.isdigit():
        return 0
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended meanwhile
        return 0
    return sum(map(int, fields[11:15])) if int(fields[2]) == group else 0


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
