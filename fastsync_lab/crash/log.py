"""The log of the kernel's dm-log-writes (drivers/md/dm-log-writes.c).

The log is in the order in which writes became durable, not in that of their submission: a write
stands in it right before the flush that came after its completion, a FUA write where it completed,
a mark where it was made. What was never flushed stands at the end.
"""

import struct
from dataclasses import dataclass

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

    Until it ends, each of `writes` may be on the medium or not; all events before it are.
    `acknowledged` has the numbers of the marks that stand before it.
    """

    kind: str  # "flush", "fua", or "end" for what was never flushed
    writes: tuple[Write, ...]
    acknowledged: frozenset[int]


@dataclass(frozen=True)
class _Entry:
    flags: int
    write: Write
    text: bytes


def parse_log(data: bytes) -> list[Event]:
    """The events of a log, from its device's first byte on.

    Raises FastsyncError for a log that is not whole, or that has discards.
    """
    events: list[Event] = []
    marks: set[int] = set()
    cached: list[Write] = []
    for entry in _entries(data):
        if entry.flags & MARK:
            if entry.text.isdigit():
                marks.add(int(entry.text))
        elif entry.flags & DISCARD:
            raise FastsyncError("the log has a discard: what it leaves behind is not known")
        elif entry.flags & FLUSH:
            if cached:
                events.append(Event("flush", tuple(cached), frozenset(marks)))
            cached = []
            if entry.write.count:
                raise FastsyncError("the log has a flush with data, which the kernel splits")
        elif entry.flags & FUA:
            events.append(Event("fua", (entry.write,), frozenset(marks)))
        else:
            cached.append(entry.write)
    events.append(Event("end", tuple(cached), frozenset(marks)))
    return events


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
