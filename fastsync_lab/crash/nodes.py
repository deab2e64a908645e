"""A file as a trace tells of it: the versions of its properties and sectors, and its syncs."""

from dataclasses import dataclass, field

from fastsync_lab.crash.trace import SECTOR, Op, sector_contents

ZEROS = bytes(SECTOR)
KEEP_SIZE, PUNCH, COLLAPSE, ZERO_RANGE, INSERT = 0x01, 0x02, 0x08, 0x10, 0x20

Value = int | str | bytes | tuple[int, int] | None


@dataclass(frozen=True)
class Version:
    """A value that a property had from operation `op` on; -1 is before the trace."""

    op: int
    begin: int
    end: int
    value: Value


@dataclass(frozen=True)
class Sync:
    """A call that promises something, with its range in bytes if it has one.

    `data`: contents and size; `meta`: all else; `stamps`: "" (no), "exact", or "promised" (by the
    mode). It covers what had ended when it began, and, being a write, itself.
    """

    op: int
    begin: int
    data: bool
    meta: bool
    stamps: str
    range: tuple[int, int] | None = None
    end: int = 0

    def covers(self, version: Version) -> bool:
        """Had the operation that made the version ended when this began, or are they one?"""
        return version.end < self.begin or version.op == self.op


@dataclass(frozen=True)
class Shift:
    """Sectors from `first` on moved by `step`: up, and a hole came in, or down, over others."""

    version: Version
    first: int
    step: int

    def before(self, sector: int) -> int | None:
        """Where a sector was before; None: nowhere, it is of the hole."""
        if sector < self.first:
            return sector
        return None if sector < self.first + self.step else sector - self.step


@dataclass(frozen=True)
class Stray:
    """A write to a shifted block, seen where the block was: the shift has been undone by a crash.

    ext4 writes a block in place before the commit that says where in the file it is.
    """

    version: Version
    shift: Version


@dataclass
class Node:
    """A file or folder and the versions of its properties, in the order in which they ended."""

    id: int
    kind: str  # "file", "folder" or "link"
    ino: int
    versions: dict[str, list[Version]] = field(default_factory=dict)
    sectors: dict[int, list[Version]] = field(default_factory=dict)
    shifts: list[Shift] = field(default_factory=list)
    strays: dict[int, list[Stray]] = field(default_factory=dict)
    shrinks: list[tuple[Version, int]] = field(default_factory=list)  # by truncation, to what size
    syncs: list[Sync] = field(default_factory=list)
    name_ops: list[Op] = field(default_factory=list)

    def add(self, key: str, op: Op, value: Value) -> None:
        """A property got a value."""
        self.versions.setdefault(key, []).append(Version(op.number, op.begin, op.end, value))

    def last(self, key: str) -> Value:
        """The value at the end of the trace so far."""
        return self.versions[key][-1].value

    @property
    def size(self) -> int:
        """The size at the end of the trace so far."""
        value = self.last("size")
        assert isinstance(value, tuple)
        return value[1]

    def last_sector(self, sector: int) -> bytes:
        """What a sector holds at the end of the trace so far."""
        versions = self.sectors.get(sector)
        value = versions[-1].value if versions else ZEROS
        assert isinstance(value, bytes)
        return value


Names = dict[str, Node]


# --- what operations do to one ------------------------------------------------------------------


def put(op: Op, node: Node, sector: int, contents: bytes) -> None:
    """A sector got these contents."""
    versions = node.sectors.setdefault(sector, [Version(-1, -1, -1, ZEROS)])
    versions.append(Version(op.number, op.begin, op.end, contents))


def fill(op: Op, node: Node, start: int, end: int, contents: bytes | None = None) -> None:
    """Bytes `start` to `end` get what the operation writes, or else `contents`, a sector's."""
    for sector in range(start // SECTOR, -(-end // SECTOR)):
        low = max(start - sector * SECTOR, 0)
        high = min(end - sector * SECTOR, SECTOR)
        old = node.last_sector(sector)
        new = sector_contents(op.number, sector) if contents is None else contents
        put(op, node, sector, old[:low] + new[low:high] + old[high:])
        stray(node, sector)


def stray(node: Node, sector: int) -> None:
    """What was last put into a sector may be seen where that was before each shift."""
    version = node.sectors[sector][-1]
    place: int | None = sector
    for shift in reversed(node.shifts):
        if place is None:
            return
        place = shift.before(place)
        if place is not None and place != sector:
            node.strays.setdefault(place, []).append(Stray(version, shift.version))


def resize(op: Op, node: Node, size: int) -> None:
    old = node.size
    if size < old:
        fill(op, node, size, -(-old // SECTOR) * SECTOR, ZEROS)
    node.add("size", op, (size, size))
    if size < old:
        node.shrinks.append((node.versions["size"][-1], size))


def fallocate(op: Op, node: Node) -> None:
    mode, offset, length = (op.integer(index) for index in (2, 3, 4))
    old = node.size
    if mode & (COLLAPSE | INSERT):
        shift(op, node, offset, length if mode & INSERT else -length)
        return
    if mode & (PUNCH | ZERO_RANGE):
        fill(op, node, offset, min(offset + length, max(old, offset)), ZEROS)
    if not mode & KEEP_SIZE and offset + length > old:
        node.add("size", op, (old, offset + length))


def shift(op: Op, node: Node, offset: int, by: int) -> None:
    """A range of whole blocks is taken out of the file, or a hole comes in."""
    size = node.size
    first, step = offset // SECTOR, by // SECTOR
    end = -(-max(size, size + by) // SECTOR)
    source = range(first - min(step, 0), end)
    old = {sector + step: node.last_sector(sector) for sector in source}
    for sector in range(first, end):
        put(op, node, sector, old.get(sector, ZEROS))
    node.add("size", op, (size + by, size + by))
    node.shifts.append(Shift(Version(op.number, op.begin, op.end, None), first, step))


def exchange(op: Op, node: Node, other: Node) -> None:
    """Two files exchange contents and size."""
    node.shrinks, other.shrinks = [], []
    sizes = node.size, other.size
    for sector in node.sectors.keys() | other.sectors.keys():
        mine, others = node.last_sector(sector), other.last_sector(sector)
        put(op, node, sector, others)
        put(op, other, sector, mine)
    node.add("size", op, (sizes[1], sizes[1]))
    other.add("size", op, (sizes[0], sizes[0]))
