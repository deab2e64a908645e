"""What a trace says of each file: the versions of its properties, and the calls that promise them.

A version of a property (a sector, the size, the mode, a stamp, ...) is what an operation made it. A
sync says of which versions it promises that they, or later ones, outlast a crash.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from fastsync_lab.crash.trace import SECTOR, Op, sector_contents
from fastsync_lab.errors import FastsyncError

PAGE = 4096
ZEROS = bytes(SECTOR)
PUNCH, ZERO_RANGE, KEEP_SIZE = 0x02, 0x10, 0x01

Value = int | str | bytes | tuple[int, int] | None


@dataclass(frozen=True)
class Promise:
    """What fsync promises of stamps: they may be less than `defer_ms` old; 0: they are exact.

    `coarse_ms` is the step in which writes are stamped, 0 for the clock's.
    """

    defer_ms: int = 0
    coarse_ms: int = 0

    @classmethod
    def of(cls, mode: str, interval_ms: int) -> Self:
        """What a mode promises."""
        return cls(
            defer_ms=interval_ms if mode == "defer" else 0,
            coarse_ms=interval_ms if mode == "truncate" else 0,
        )


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

    def covers(self, version: Version) -> bool:
        """Had the operation that made the version ended when this began, or are they one?"""
        return version.end < self.begin or version.op == self.op


@dataclass
class Node:
    """A file or folder and the versions of its properties, in the order in which they ended."""

    id: int
    kind: str  # "file", "folder" or "link"
    ino: int
    versions: dict[str, list[Version]] = field(default_factory=dict)
    sectors: dict[int, list[Version]] = field(default_factory=dict)
    syncs: list[Sync] = field(default_factory=list)
    name_ops: list[Op] = field(default_factory=list)

    def add(self, key: str, op: Op, value: Value) -> None:
        """A property got a value."""
        self.versions.setdefault(key, []).append(Version(op.number, op.begin, op.end, value))

    def last(self, key: str) -> Value:
        """The value at the end of the trace so far."""
        return self.versions[key][-1].value

    def last_sector(self, sector: int) -> bytes:
        """What a sector holds at the end of the trace so far."""
        versions = self.sectors.get(sector)
        value = versions[-1].value if versions else ZEROS
        assert isinstance(value, bytes)
        return value


Names = dict[str, Node]


@dataclass(frozen=True)
class Epoch:
    """The names after operation `op` and before the next one that changes any."""

    op: Op | None
    names: Names


@dataclass(frozen=True)
class Group:
    """Names that one thread changes, with their epochs."""

    prefix: str
    epochs: list[Epoch]


class Model:
    """All that the trace says."""

    def __init__(self, ops: Iterable[Op]) -> None:
        self.ops = sorted(ops, key=lambda op: op.end)
        self.all_syncs: list[Sync] = []
        self.nodes: list[Node] = []
        self._names: Names = {}
        threads = sorted({op.thread for op in self.ops} - {0})
        prefixes = [f"t{thread}/" for thread in threads] + [""]
        self.groups = [Group(prefix, [Epoch(None, {})]) for prefix in prefixes]
        for op in self.ops:
            self._apply(op)

    # --- names -----------------------------------------------------------------------------------

    def group_of(self, path: str) -> Group:
        """The group whose folder has the path in it."""
        return next(group for group in self.groups if path.startswith(group.prefix))

    def _node(self, path: str) -> Node:
        try:
            return self._names[path]
        except KeyError:
            raise FastsyncError(f"the trace has no file {path} at this point") from None

    def _new_epoch(self, op: Op, path: str, nodes: Iterable[Node]) -> None:
        group = self.group_of(path)
        mine = {name: node for name, node in self._names.items() if self.group_of(name) is group}
        group.epochs.append(Epoch(op, mine))
        for node in nodes:
            node.name_ops.append(op)

    def _create(self, op: Op, kind: str, path: str) -> None:
        node = Node(op.number, kind, op.ino)
        self.nodes.append(node)
        self._names[path] = node
        node.add("mode", op, {"file": 0o644, "folder": 0o755, "link": 0o777}[kind])
        node.add("owner", op, (0, 0))
        node.add("size", op, (0, 0))
        self._stamp(op, node)
        self._new_epoch(op, path, [node])

    def _rename(self, op: Op) -> None:
        old, new = op.words[1:3]
        victim = self._names.get(new)
        node = self._names.pop(old)
        inside = [name for name in self._names if name.startswith(old + "/")]
        for name in inside:
            self._names[new + name[len(old) :]] = self._names.pop(name)
        self._names[new] = node
        self._stamp(op, node)
        self._new_epoch(op, new, [node, *([victim] if victim else [])])
        if victim:
            self._unknown_stamp(op, victim)

    def _change_names(self, op: Op) -> None:
        if op.name in ("create", "mkdir", "symlink"):
            path = op.words[2] if op.name == "symlink" else op.path
            kind = {"create": "file", "mkdir": "folder", "symlink": "link"}[op.name]
            self._create(op, kind, path)
        elif op.name == "rename":
            self._rename(op)
        elif op.name == "link":
            node = self._names[op.words[2]] = self._node(op.path)
            self._stamp(op, node)
            self._new_epoch(op, op.words[2], [node])
        else:  # unlink, rmdir
            node = self._names.pop(op.path)
            self._unknown_stamp(op, node)
            self._new_epoch(op, op.path, [node])

    # --- everything else -------------------------------------------------------------------------

    def _stamp(self, op: Op, node: Node) -> None:
        node.add("mtime", op, op.mtime_ns)
        node.add("ctime", op, op.ctime_ns)

    def _unknown_stamp(self, op: Op, node: Node) -> None:
        node.add("ctime", op, None)

    def _apply(self, op: Op) -> None:
        if op.name in ("create", "mkdir", "symlink", "rename", "link", "unlink", "rmdir"):
            self._change_names(op)
        elif op.name in ("sync", "syncfs"):
            self.all_syncs.append(Sync(op.number, op.begin, True, True, "exact"))
        elif op.name not in ("sleep", "align", "put", "hold"):
            self._apply_to(op, self._node(op.path))

    def _apply_to(self, op: Op, node: Node) -> None:
        if op.name in ("write", "dwrite", "owrite", "odwrite", "mstore"):
            self._write(op, node)
        elif op.name == "truncate":
            _resize(op, node, op.integer(2))
        elif op.name == "falloc":
            _fallocate(op, node)
        elif op.name == "chmod":
            node.add("mode", op, op.integer(2))
        elif op.name == "chown":
            node.add("owner", op, (op.integer(2), op.integer(3)))
        elif op.name == "setxattr":
            node.add(op.words[2], op, op.words[3].encode().hex())
        elif op.name == "rmxattr":
            node.add(op.words[2], op, None)
        elif op.name in ("fsync", "fdatasync", "msync"):
            self._sync(op, node)
            return
        elif op.name != "utimens":
            raise FastsyncError(f"the oracle does not know operation {op.name}")
        self._stamp(op, node)

    def _write(self, op: Op, node: Node) -> None:
        offset, length = op.integer(2), op.integer(3)
        _fill(op, node, offset, offset + length)
        old = node.last("size")
        assert isinstance(old, tuple)
        if offset + length > old[1]:
            node.add("size", op, (old[1], offset + length))
        span = (offset, offset + length)
        if op.name == "owrite":
            node.syncs.append(Sync(op.number, op.begin, True, True, "promised", span))
        elif op.name == "odwrite":
            node.syncs.append(Sync(op.number, op.begin, True, False, "", span))

    def _sync(self, op: Op, node: Node) -> None:
        if node.kind == "folder":  # commits the running transaction
            self.all_syncs.append(Sync(op.number, op.begin, False, True, "exact"))
        elif op.name == "fsync":
            node.syncs.append(Sync(op.number, op.begin, True, True, "promised"))
        elif op.name == "fdatasync":
            node.syncs.append(Sync(op.number, op.begin, True, False, ""))
        else:
            first = op.integer(2) // PAGE * PAGE
            last = -(-(op.integer(2) + op.integer(3)) // PAGE) * PAGE
            node.syncs.append(Sync(op.number, op.begin, True, False, "", (first, last)))


def _fill(op: Op, node: Node, start: int, end: int, *, zero: bool = False) -> None:
    """Bytes `start` to `end` get what the operation writes, or zeros."""
    for sector in range(start // SECTOR, -(-end // SECTOR)):
        low = max(start - sector * SECTOR, 0)
        high = min(end - sector * SECTOR, SECTOR)
        old = node.last_sector(sector)
        new = ZEROS if zero else sector_contents(op.number, sector)
        versions = node.sectors.setdefault(sector, [Version(-1, -1, -1, ZEROS)])
        contents = old[:low] + new[low:high] + old[high:]
        versions.append(Version(op.number, op.begin, op.end, contents))


def _resize(op: Op, node: Node, size: int) -> None:
    old = node.last("size")
    assert isinstance(old, tuple)
    if size < old[1]:
        _fill(op, node, size, -(-old[1] // SECTOR) * SECTOR, zero=True)
    node.add("size", op, (size, size))


def _fallocate(op: Op, node: Node) -> None:
    mode, offset, length = (op.integer(index) for index in (2, 3, 4))
    old = node.last("size")
    assert isinstance(old, tuple)
    if mode & (PUNCH | ZERO_RANGE):
        _fill(op, node, offset, min(offset + length, max(old[1], offset)), zero=True)
    if not mode & KEEP_SIZE and offset + length > old[1]:
        node.add("size", op, (old[1], offset + length))
