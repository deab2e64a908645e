"""The log of the kernel's dm-log-writes (drivers/md/dm-log-writes.c).

The log is in the order in which writes became durable, not in that of their submission: a write
stands in it right before the flush that came after its completion, a FUA write and a flush where
they completed, a mark where it was made. What was never flushed stands at the end. What was sent
while a flush was under way, a trace of the block layer tells (flight.py).
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from fastsync_lab.host.errors import FastsyncError

MAGIC = 0x6A736677736872
VERSION = 1
SUPER = struct.Struct("<QQQI")
ENTRY = struct.Struct("<QQQQ")
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8
KERNEL_SECTOR = 512


@dataclass(frozen=True)
class Write:
    """A write of `count` sectors of 512 bytes to `sector`; its data are at `offset` of the log."""

    sector: int
    count: int
    offset: int

    @property
    def start(self) -> int:
        """The first byte of the device that it writes."""
        return self.sector * KERNEL_SECTOR

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return (self.sector + self.count) * KERNEL_SECTOR


@dataclass(frozen=True)
class Event:
    """Something became durable: the writes of a flush, or one FUA write.

    Until it ends, each of `writes` may be on the medium or not; all events before it are. So may
    those of `beside`, which were sent before it ended, and become durable with later ones.
    `acknowledged` has the numbers of the marks that stand before it.
    """

    kind: str  # "flush", "fua", or "end" for what was never flushed
    writes: tuple[Write, ...]
    acknowledged: frozenset[int]
    beside: tuple[Write, ...] = ()


@dataclass(frozen=True)
class Flight:
    """When a write was sent, and a flush or FUA write ended: points in time, later ones larger."""

    sent: int
    ended: int


class Flights(Protocol):
    """What a trace tells of the entries of a log, asked for in the log's order."""

    def flush(self) -> Flight:
        """The next flush."""

    def write(self, write: Write) -> Flight:
        """The next write of these sectors."""


@dataclass(frozen=True)
class _Entry:
    flags: int
    write: Write
    text: bytes


def parse_log(data: bytes, flights: Flights | None = None) -> list[Event]:
    """The events of a log, from its device's first byte on.

    Without `flights` nothing is known to have been under way beside an event. Raises FastsyncError
    for a log that is not whole, that has discards, or that `flights` is not of.
    """
    events: list[Event] = []
    ended: list[int] = []
    sent: dict[Write, int] = {}
    marks: set[int] = set()
    cached: list[Write] = []
    for entry in _entries(data):
        if entry.flags & MARK:
            if entry.text.isdigit():
                marks.add(int(entry.text))
            continue
        if entry.flags & DISCARD:
            raise FastsyncError("the log has a discard: what it leaves behind is not known")
        is_flush = bool(entry.flags & FLUSH)
        if is_flush and entry.write.count:
            raise FastsyncError("the log has a flush with data, which the kernel splits")
        flight = Flight(0, 0)
        if flights:
            flight = flights.flush() if is_flush else flights.write(entry.write)
        if not is_flush:
            sent[entry.write] = flight.sent
        if not is_flush and not entry.flags & FUA:
            cached.append(entry.write)
        elif cached or not is_flush:
            writes = tuple(cached) if is_flush else (entry.write,)
            events.append(Event("flush" if is_flush else "fua", writes, frozenset(marks)))
            ended.append(flight.ended)
            cached = [] if is_flush else cached
    events.append(Event("end", tuple(cached), frozenset(marks)))
    return list(_with_beside(events, ended, sent)) if flights else events


def _with_beside(
    events: Sequence[Event], ended: Sequence[int], sent: Mapping[Write, int]
) -> Iterator[Event]:
    """The events, each with what was sent before it ended, and is durable after it.

    The last one is what no flush has covered, and ends never: nothing is beside it.
    """
    order = [(number, write) for number, event in enumerate(events) for write in event.writes]
    by_time = sorted(range(len(order)), key=lambda index: sent[order[index][1]])
    outstanding: list[int] = []
    next_sent = 0
    for number, event in enumerate(events[:-1]):
        while next_sent < len(by_time) and sent[order[by_time[next_sent]][1]] < ended[number]:
            outstanding.append(by_time[next_sent])
            next_sent += 1
        outstanding = sorted(index for index in outstanding if order[index][0] > number)
        yield replace(event, beside=tuple(order[index][1] for index in outstanding))
    yield events[-1]


def _entries(data: bytes) -> list[_Entry]:
    magic, version, count, sector_size = SUPER.unpack_from(data)
    if (magic, version) != (MAGIC, VERSION) or sector_size < KERNEL_SECTOR:
        raise FastsyncError("this is not a log of dm-log-writes")
    entries = []
    position = sector_size
    for number in range(count):
        if position + sector_size > len(data):
            raise FastsyncError(f"the log ends in entry {number} of {count}")
        sector, sectors, flags, size = ENTRY.unpack_from(data, position)
        start = position + ENTRY.size
        text = bytes(data[start : start + size])
        position += sector_size
        scale = sector_size // KERNEL_SECTOR
        write = Write(sector * scale, sectors * scale, position)
        if not flags & DISCARD:
            position += sectors * sector_size
        if position > len(data):
            raise FastsyncError(f"the log ends in entry {number} of {count}")
        entries.append(_Entry(flags, write, text))
    if not entries or entries[-1].text != b"dm-log-writes-end":
        raise FastsyncError("the log has no end: its device was too small, or is in use")
    return entries
