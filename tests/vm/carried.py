"""Carried commits, and what the trace says of how they fare."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tests.vm.guestfs import NO_PERIODIC_COMMIT, GuestFs
from tests.vm.tracing import start_tracing, stop_tracing

EVENTS = "jbd2_carrier"
# The stamps are 920 ms old at the last fsync, which therefore starts a commit and does not wait,
# if they may be a second old.
START_A_CARRIED_COMMIT = ("open", "write", "fsync", "sleep:920", "write", "fsync")
# It waits for a flush by the end of this, which does not come.
STARTED = (*START_A_CARRIED_COMMIT, "sleep:2")

INTERVAL_MS = 40
OPTIONS = f"mtime_update={INTERVAL_MS},mtime_mode=defer,{NO_PERIODIC_COMMIT}"
# 0.3 ms each on the uniform 100 us device: 300 of them are more than two intervals.
LOOP = ["write", "fsync"] * 300
# The stamps are 32 ms old at the last fsync, which therefore starts a commit and does not wait.
PATIENT = ["sleep:100", "align:4", "write", "fsync", "sleep:32", "write", "fsync"]


@contextmanager
def carrying(fs: GuestFs, commits: int) -> Iterator[list[str]]:
    """So many commits are started that nobody waits for; how they have waited, once it is over.

    Each wait for a flush is "blocks" or "record" and its end: flushed, hurried, alone or lost.
    """
    waits: list[str] = []
    number = fs.vm.run(f"cat /sys/block/{fs.node}/dev").stdout.strip()
    event = rf"jbd2_carrier_{{}}: dev {number.replace(':', ',')} tid \d+ {{}}"
    start_tracing(fs.vm, EVENTS)
    try:
        yield waits
    finally:
        trace = stop_tracing(fs.vm, EVENTS)
    started = re.findall(event.format("start", "patience"), trace)
    waits += re.findall(event.format("wait", r"(\w+ \w+) in"), trace)
    assert len(started) == commits and len(waits) >= commits, trace
