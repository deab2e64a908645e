"""Accounting of block requests by where they land: pure functions on text.

The input is what tracefs prints for block:block_rq_issue and block:block_rq_complete, and what
dumpe2fs and debugfs say of a file system.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fastsync_lab.host.errors import FastsyncError

TRACE_SH = Path(__file__).with_suffix(".sh")  # functions of the guest that trace
SECTOR_BYTES = 512
BURST_SECTORS = 128  # a longer run of adjacent sectors counts as sequential

DATA = "data"
JOURNAL = "journal"
METADATA = "metadata"
UNSORTED = "unsorted"  # on a file system whose layout nobody has read
CLASSES = (DATA, JOURNAL, METADATA, UNSORTED)

MARK_BEGIN = "fastsync begin"
MARK_END = "fastsync end"

# By the clock "mono" seconds and six digits, by "x86-tsc" a number: in virtual time ns.
_LINE = re.compile(r"^.*?-\d+ +\[\d+\] +\S+ +(\d+)(?:\.(\d{6}))?: (\w+): (.*)$")
_REQUEST = re.compile(
    r"^\d+,\d+ (?P<rwbs>\w+) (?:\d+ )?\(.*?\) (?P<sector>\d+) \+ (?P<sectors>\d+) "
)
_LOST = re.compile(r"LOST (\d+) EVENTS")


@dataclass(frozen=True)
class Request:
    """One block request as the device saw it.

    `time_ns`: when it was issued; `service_ns`: until it was complete, None when the trace ends
    before; `rwbs`: the kernel's letters for the kind of request; sizes in sectors of 512 bytes.
    """

    time_ns: int
    rwbs: str
    sector: int
    sectors: int
    service_ns: int | None = None

    @property
    def is_flush(self) -> bool:
        """A flush of the device's volatile cache that carries no data."""
        return self.rwbs.startswith("F") and self.sectors == 0

    @property
    def is_write(self) -> bool:
        """A write of data."""
        return self.rwbs.lstrip("F").startswith("W") and self.sectors > 0

    @property
    def is_fua(self) -> bool:
        """A write that must be on the medium when it is complete (the F after the W)."""
        return self.is_write and "F" in self.rwbs.lstrip("F")

    @property
    def is_read(self) -> bool:
        """A read."""
        return self.rwbs.startswith("R")

    @property
    def is_discard(self) -> bool:
        """A discard."""
        return self.rwbs.startswith("D")


@dataclass(frozen=True)
class Trace:
    """The requests of a trace in the order of their issue, and its marks (time in ns, text)."""

    requests: tuple[Request, ...]
    marks: tuple[tuple[int, str], ...]

    def phase(self, name: str) -> tuple[Request, ...]:
        """The requests issued between `fastsync begin NAME` and `fastsync end NAME`.

        Raises FastsyncError when the trace lacks either mark.
        """
        begin, end = (
            next((t for t, text in self.marks if text == f"{mark} {name}".strip()), None)
            for mark in (MARK_BEGIN, MARK_END)
        )
        if begin is None or end is None:
            raise FastsyncError(f"the block trace has no begin and end of phase {name!r}")
        return tuple(r for r in self.requests if begin <= r.time_ns <= end)


def parse_trace(text: str) -> Trace:
    """Requests and marks from tracefs text.

    A request that is issued again before it completed (the driver was busy) counts once.
    Raises FastsyncError when the ring buffer overran or a line cannot be read.
    """
    issued: list[Request | None] = []
    completed: dict[int, int] = {}
    open_requests: dict[tuple[int, int, bool], list[int]] = defaultdict(list)
    marks: list[tuple[int, str]] = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        if lost := _LOST.search(line):
            raise FastsyncError(f"the trace buffer overran: {lost[1]} events lost")
        match = _LINE.match(line)
        if match is None:
            raise FastsyncError(f"cannot read this line of the block trace: {line!r}")
        time_ns = nanoseconds(match[1], match[2])
        event, rest = match[3], match[4]
        if event == "tracing_mark_write":
            marks.append((time_ns, rest.strip()))
            continue
        if event not in ("block_rq_issue", "block_rq_complete"):
            continue
        fields = _REQUEST.match(rest)
        if fields is None:
            raise FastsyncError(f"cannot read this request of the block trace: {rest!r}")
        rwbs, sectors = fields["rwbs"], int(fields["sectors"])
        sector = int(fields["sector"]) if sectors else 0
        key = (sector, sectors, rwbs.startswith("F") and not sectors)
        if event == "block_rq_issue":
            if open_requests[key] and sectors:
                issued[open_requests[key].pop(0)] = None
            open_requests[key].append(len(issued))
            issued.append(Request(time_ns, rwbs, sector, sectors))
        elif open_requests[key]:
            completed[open_requests[key].pop(0)] = time_ns
    requests = tuple(
        replace(r, service_ns=completed[index] - r.time_ns) if index in completed else r
        for index, r in enumerate(issued)
        if r is not None
    )
    return Trace(requests, tuple(marks))


def nanoseconds(first: str, microseconds: str | None) -> int:
    """The time of an event: seconds and microseconds, or ns."""
    return int(first) * 1_000_000_000 + int(microseconds) * 1000 if microseconds else int(first)


# --- where things lie on the device ------------------------------------------------------------


@dataclass(frozen=True)
class Extent:
    """Sectors `start` (included) to `end` (excluded) belong to class `name`."""

    start: int
    end: int
    name: str


class Layout:
    """Which class each sector of a device belongs to; what no extent covers is of class `rest`."""

    def __init__(self, extents: Iterable[Extent], rest: str = DATA) -> None:
        """Where extents overlap, the one that starts first wins."""
        self.rest = rest
        merged: list[Extent] = []
        for extent in sorted(extents, key=lambda e: (e.start, e.end)):
            start = max(extent.start, merged[-1].end) if merged else extent.start
            if start >= extent.end:
                continue
            if merged and merged[-1].end == start and merged[-1].name == extent.name:
                merged[-1] = Extent(merged[-1].start, extent.end, extent.name)
            else:
                merged.append(Extent(start, extent.end, extent.name))
        self.extents = tuple(merged)
        self._starts = [e.start for e in merged]

    def split(self, sector: int, sectors: int) -> list[tuple[str, int]]:
        """A request cut by class: (class, sectors) pieces in order, their sum is `sectors`."""
        pieces: list[tuple[str, int]] = []
        position, end = sector, sector + sectors
        index = max(bisect_right(self._starts, position) - 1, 0)
        while position < end:
            while index < len(self.extents) and self.extents[index].end <= position:
                index += 1
            if index == len(self.extents) or self.extents[index].start >= end:
                name, stop = self.rest, end
            elif self.extents[index].start > position:
                name, stop = self.rest, self.extents[index].start
            else:
                name, stop = self.extents[index].name, min(end, self.extents[index].end)
            pieces.append((name, stop - position))
            position = stop
        return pieces


def _sectors_per_block(dumpe2fs: str) -> int:
    match = re.search(r"^Block size:\s+(\d+)$", dumpe2fs, re.MULTILINE)
    if match is None:
        raise FastsyncError("dumpe2fs printed no block size")
    return int(match[1]) // SECTOR_BYTES


_METADATA_BLOCKS = re.compile(
    r"(?:superblock|Group descriptors|Reserved GDT blocks|Block bitmap|Inode bitmap|Inode table)"
    r" at (\d+)(?:-(\d+))?"
)


def parse_layout(dumpe2fs: str, journal_blocks: str, directory_blocks: str) -> Layout:
    """The layout of an ext4 file system on a whole device.

    `dumpe2fs`: output of `dumpe2fs DEVICE`; `journal_blocks` and `directory_blocks`: numbers as
    printed by debugfs `blocks <8>` for the journal and `blocks <N>` for directories.
    Raises FastsyncError when there is no journal in it or the block size is missing.
    """
    per_block = _sectors_per_block(dumpe2fs)
    extents = [
        Extent(int(first) * per_block, (int(last or first) + 1) * per_block, METADATA)
        for first, last in _METADATA_BLOCKS.findall(dumpe2fs)
    ]
    for text, name in ((journal_blocks, JOURNAL), (directory_blocks, METADATA)):
        numbers = [int(word) for word in text.split() if word.isdigit()]
        if name == JOURNAL and not numbers:
            raise FastsyncError("debugfs printed no blocks of the journal (inode 8)")
        extents += [Extent(n * per_block, (n + 1) * per_block, name) for n in numbers]
    return Layout(extents)


# --- accounting --------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassCount:
    """What was written to one class. A request belongs to the class where it begins."""

    bytes: int
    requests: int


@dataclass(frozen=True)
class Accounting:
    """What a run asked of the device.

    `sequential_ratio`: share (0…1) of the written sectors in bursts longer than 128 adjacent
    sectors; mean times in microseconds over the requests whose end is in the trace.
    """

    by_class: Mapping[str, ClassCount]
    flushes: int
    fua: int
    reads: int
    discards: int
    mean_request_kib: float
    sequential_ratio: float
    mean_write_us: float
    mean_flush_us: float

    @property
    def bytes(self) -> int:
        """Bytes written, all classes."""
        return sum(count.bytes for count in self.by_class.values())

    @property
    def requests(self) -> int:
        """Write requests, all classes."""
        return sum(count.requests for count in self.by_class.values())

    def for_each(self, operations: float) -> dict[str, float]:
        """The metrics of study/rows.py that it has, for each of so many operations."""
        return {
            "kib": self.bytes / operations / 1024,
            **{f"kib_{name}": one.bytes / operations / 1024 for name, one in self.by_class.items()},
            "flushes": self.flushes / operations,
            "fua": self.fua / operations,
            "requests": self.requests / operations,
            "reads": self.reads / operations,
            "discards": self.discards / operations,
            "request_kib": self.mean_request_kib,
            "sequential": self.sequential_ratio,
            "write_us": self.mean_write_us,
            "flush_us": self.mean_flush_us,
        }


def sequential_ratio(writes: Sequence[tuple[int, int]]) -> float:
    """Share of sectors written in bursts longer than BURST_SECTORS.

    `writes` are (first sector, sectors) in the order of issue; a write that begins where the one
    before it ended goes on with its burst.
    """
    total = in_bursts = burst = 0
    expected: int | None = None
    for sector, sectors in writes:
        if sector != expected:
            in_bursts += burst if burst > BURST_SECTORS else 0
            burst = 0
        burst += sectors
        total += sectors
        expected = sector + sectors
    in_bursts += burst if burst > BURST_SECTORS else 0
    return in_bursts / total if total else 0.0


def _mean_us(requests: Iterable[Request]) -> float:
    times_ns = [r.service_ns for r in requests if r.service_ns is not None]
    return sum(times_ns) / len(times_ns) / 1000 if times_ns else 0.0


def account(requests: Sequence[Request], layout: Layout) -> Accounting:
    """Add up the requests of a run."""
    size: dict[str, int] = dict.fromkeys(CLASSES, 0)
    count: dict[str, int] = dict.fromkeys(CLASSES, 0)
    writes = [r for r in requests if r.is_write]
    for request in writes:
        pieces = layout.split(request.sector, request.sectors)
        count[pieces[0][0]] += 1
        for name, sectors in pieces:
            size[name] += sectors * SECTOR_BYTES
    flushes = [r for r in requests if r.is_flush]
    total = sum(size.values())
    return Accounting(
        by_class={name: ClassCount(size[name], count[name]) for name in CLASSES},
        flushes=len(flushes),
        fua=sum(r.is_fua for r in writes),
        reads=sum(r.is_read for r in requests),
        discards=sum(r.is_discard for r in requests),
        mean_request_kib=total / len(writes) / 1024 if writes else 0.0,
        sequential_ratio=sequential_ratio([(r.sector, r.sectors) for r in writes]),
        mean_write_us=_mean_us(writes),
        mean_flush_us=_mean_us(flushes),
    )


def lost_events(per_cpu_stats: str) -> int:
    """Events that a ring buffer lost, from one or more tracefs per_cpu/cpu*/stats files."""
    counts = re.findall(r"^(?:overrun|commit overrun|dropped events): (\d+)$", per_cpu_stats, re.M)
    if not counts:
        raise FastsyncError("tracefs printed no statistics of its buffer")
    return sum(int(number) for number in counts)


def check_no_loss(per_cpu_stats: str) -> None:
    """Raise FastsyncError if a ring buffer lost events, by the same files."""
    if lost := lost_events(per_cpu_stats):
        raise FastsyncError(f"the trace buffer overran: {lost} events lost")
