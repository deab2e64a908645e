"""When the writes and flushes of a log were sent and ended, from a trace of the block layer.

dm-log-writes says what a flush covers, and not what was sent while the flush was under way. A
device may have any of that on the medium, and not what the flush covers. With one processor the
lines of a trace are in the order of time, so their numbers are points in time.
"""

import re
from collections import defaultdict, deque
from dataclasses import dataclass, field

from fastsync_lab.crash.log import Flight, Write
from fastsync_lab.host.errors import FastsyncError

# A bio is sent; a request, which has one or several, is complete: kind, sector, sectors. That of an
# empty flush has none. The block layer's own flush, for several of them, has FF for its kind.
_LINE = re.compile(
    r": block_(bio_queue|rq_complete): \d+,\d+ (\w+) (?:\(\) )?(\d+) \+ (\d+) ", re.ASCII
)
FLUSH_OF_MANY = "FF"
_COUNTS = re.compile(r"^# entries-in-buffer/entries-written: (\d+)/(\d+) ", re.MULTILINE)

# Bash for the recording guest, in which $device is the name of a disk.
START_TRACE = """\
(cd /sys/kernel/tracing && echo 0 >tracing_on && echo 65536 >buffer_size_kb && echo >trace || exit
IFS=: read -r major minor </sys/block/$device/dev
for event in bio_queue rq_complete; do
    echo "dev == $((major << 20 | minor))" >events/block/block_$event/filter || exit
    echo 1 >events/block/block_$event/enable || exit
done
echo 1 >tracing_on) || exit
"""
STOP_TRACE = """\
(cd /sys/kernel/tracing && echo 0 >tracing_on && echo 0 >events/block/enable) || exit
"""
KEEP_TRACE = (
    "cat /sys/kernel/tracing/trace >{} && echo 4 >/sys/kernel/tracing/buffer_size_kb || exit\n"
)


@dataclass
class Traced:
    """What nobody has asked for yet: flushes in the order of their ends, writes as sent."""

    flushes: deque[Flight] = field(default_factory=deque)
    writes: dict[tuple[int, int], deque[Flight]] = field(default_factory=lambda: defaultdict(deque))

    def flush(self) -> Flight:
        """The next flush. Raises FastsyncError when the trace has no more."""
        if not self.flushes:
            raise FastsyncError("the trace of a recording lacks a flush that its log has")
        return self.flushes.popleft()

    def write(self, write: Write) -> Flight:
        """The next write of these sectors. Raises FastsyncError when the trace has no more."""
        flights = self.writes[write.sector, write.count]
        if not flights:
            raise FastsyncError(
                f"the trace of a recording lacks a write that its log has: {write.count} sectors "
                f"at {write.sector}"
            )
        return flights.popleft()


def parse_flights(text: str) -> Traced:
    """The flights of a trace. Raises FastsyncError when it is not whole."""
    counts = _COUNTS.search(text)
    if not counts or counts[1] != counts[2]:
        raise FastsyncError("the trace of a recording is not whole")
    flushing: deque[int] = deque()
    begun: dict[int, list[tuple[int, int]]] = defaultdict(list)
    flushes: deque[Flight] = deque()
    writes: list[tuple[tuple[int, int], Flight]] = []
    for now, found in enumerate(_LINE.finditer(text)):
        what, kind = found[1], found[2]
        sector, count = int(found[3]), int(found[4])
        if kind == FLUSH_OF_MANY or "W" not in kind:
            continue
        if what == "bio_queue":
            if count:
                begun[sector].append((now, count))
            else:
                flushing.append(now)
        elif not count:
            flushes.append(Flight(flushing.popleft() if flushing else 0, now))
        else:
            for first in [one for one in begun if sector <= one < sector + count]:
                sent = begun.pop(first)
                writes += [((first, length), Flight(at, now)) for at, length in sent]
    traced = Traced(flushes)
    for key, flight in sorted(writes, key=lambda one: one[1].sent):
        traced.writes[key].append(flight)
    return traced
