"""What must be there after a crash, and what may be.

For each property of a file (a sector, the size, the mode, a stamp, ...) the trace gives versions.
A sync that returned covers the operations that had ended when it began, and what a covered one
replaced is gone for good. Anything else that had begun may have happened.

Names are stricter: jbd2 commits all folders together, so the names are those after some operation,
not before the last one that a sync has covered. (Threads: for each thread's own folder.)

Stamps, if they are neither those of the last synced operation nor later: mtime_mode=defer allows
what lies less than the interval before them.
"""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Self

from fastsync_lab.crash.extfs import DIRECTORY, FORMAT_MASK, File, Tree
from fastsync_lab.crash.trace import SECTOR, Op, begun, sector_contents
from fastsync_lab.errors import FastsyncError

PAGE = 4096
TICK_NS = 10_000_000  # at least the kernel's tick: how far its stamp clock is behind
NS_PER_MS = 1_000_000
LOST_AND_FOUND = "lost+found"
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


# --- judging -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cut:
    """A crash as the trace sees it: which operations had returned, which may have begun."""

    acknowledged: frozenset[int]
    begun: frozenset[int]

    def syncs(self, syncs: Iterable[Sync]) -> list[Sync]:
        """Those that had returned."""
        return [sync for sync in syncs if sync.op in self.acknowledged]

    def possible(self, versions: Iterable[Version], syncs: Iterable[Sync]) -> list[Version]:
        """The versions that no covered one has replaced, and that may have come about."""
        syncs = list(syncs)
        known = [version for version in versions if version.op in self.begun or version.op < 0]
        covered = [v.begin for v in known if any(sync.covers(v) for sync in syncs)]
        oldest = max(covered, default=-1)
        return [version for version in known if version.end >= oldest]


class Oracle:
    """Judges the files of a crash state by the trace of the run."""

    def __init__(self, ops: Iterable[Op], promise: Promise) -> None:
        self.model = Model(ops)
        self.promise = promise

    def problems(
        self, tree: Tree, acknowledged: frozenset[int], started: frozenset[int] | None = None
    ) -> list[str]:
        """What is wrong with the files of a state in which these operations had returned.

        `started` are those that may have begun; without it the next one of each thread.
        """
        if started is None:
            started = begun(sorted(self.model.ops, key=_number), acknowledged)
        cut = Cut(acknowledged, started)
        found: list[str] = []
        for group in self.model.groups:
            inside = {
                path: file
                for path, file in tree.items()
                if path != LOST_AND_FOUND and self.model.group_of(path) is group
            }
            found += self._group_problems(group, inside, cut)
        return found

    def _group_problems(self, group: Group, tree: Tree, cut: Cut) -> list[str]:
        epochs = self._possible_epochs(group, cut)
        matching = [epoch for epoch in epochs if _same_names(epoch.names, tree)]
        if not matching:
            return [_names_problem(epochs, tree)]
        best: list[str] = []
        for epoch in reversed(matching):
            best = list(self._epoch_problems(epoch, tree, cut))
            if not best:
                break
        return best

    def _possible_epochs(self, group: Group, cut: Cut) -> list[Epoch]:
        floor = -1
        for sync in cut.syncs(self.model.all_syncs):
            for epoch in group.epochs:
                if sync.meta and epoch.op and epoch.op.end < sync.begin:
                    floor = max(floor, epoch.op.end)
        for node in self.model.nodes:
            for sync in cut.syncs(node.syncs):
                ops = node.name_ops if sync.meta else node.name_ops[:1]
                floor = max([floor, *(op.end for op in ops if op.end < sync.begin)])
        return _not_before(group, floor, cut)

    def _epoch_problems(self, epoch: Epoch, tree: Tree, cut: Cut) -> Iterator[str]:
        ids = [node.id for node in epoch.names.values()]
        for path, node in epoch.names.items():
            file = tree[path]
            yield from (f"{path}: {text}" for text in self._node_problems(node, file, cut))
            if node.kind == "file" and file.links != ids.count(node.id):
                yield f"{path}: {file.links} links, not {ids.count(node.id)}"

    def _node_problems(self, node: Node, file: File, cut: Cut) -> Iterator[str]:
        syncs = cut.syncs([*node.syncs, *self.model.all_syncs])
        yield from self._attribute_problems(node, file, cut, [s for s in syncs if s.meta])
        if node.kind == "file":
            data_syncs = [sync for sync in syncs if sync.data]
            yield from _size_problems(node, file, cut, data_syncs)
            yield from _contents_problems(node, file, cut, data_syncs)
            for key, stamp in (("mtime", file.mtime_ns), ("ctime", file.ctime_ns)):
                yield from self._stamp_problems(node, key, stamp, cut, syncs)

    def _attribute_problems(
        self, node: Node, file: File, cut: Cut, syncs: list[Sync]
    ) -> Iterator[str]:
        names = {key for key in (*node.versions, *file.xattrs) if "." in key}
        shown: dict[str, Value] = {"mode": file.mode & 0o7777, "owner": (file.uid, file.gid)}
        shown |= {name: file.xattrs.get(name) for name in sorted(names)}
        for key, value in shown.items():
            versions = list(node.versions.get(key, []))
            if key in names:  # there was none before
                versions.insert(0, Version(-1, -1, -1, None))
            allowed = {version.value for version in cut.possible(versions, syncs)}
            if value not in allowed:
                yield f"{key} is {_text(value)}, not {_either(allowed)}"

    def _stamp_problems(
        self, node: Node, key: str, stamp: int, cut: Cut, syncs: list[Sync]
    ) -> Iterator[str]:
        versions = node.versions[key]
        promised = [sync for sync in syncs if sync.stamps]
        possible = cut.possible(versions, promised)
        if any(self._is_stamp_of(version, stamp, promised) for version in possible):
            return
        synced = [v.value for v in versions if any(sync.covers(v) for sync in promised)]
        latest_ns = next((value for value in reversed(synced) if isinstance(value, int)), stamp)
        if latest_ns - stamp < self.promise.defer_ms * NS_PER_MS:
            exact = [sync for sync in promised if sync.stamps == "exact"]
            earlier = cut.possible(versions, exact)
            if any(self._is_stamp_of(version, stamp, exact) for version in earlier):
                return
        yield f"{key} is {stamp}, not {_either(version.value for version in possible)}"

    def _is_stamp_of(self, version: Version, stamp: int, exact: list[Sync]) -> bool:
        """Is it what stat() showed, or else a time at which the operation was under way?"""
        if version.value == stamp:
            return True
        if version.value is not None and any(sync.covers(version) for sync in exact):
            return False
        op = next((op for op in self.model.ops if op.number == version.op), None)
        if op is None:
            return False
        slack_ns = TICK_NS + self.promise.coarse_ms * NS_PER_MS
        return op.start_ns - slack_ns <= stamp <= op.stop_ns


def _number(op: Op) -> int:
    return op.number


def _not_before(group: Group, floor: int, cut: Cut) -> list[Epoch]:
    """The epochs from the last that ended by `floor` on, as far as they may have begun."""
    first = 0
    last = 0
    for index, epoch in enumerate(group.epochs):
        if epoch.op and epoch.op.end <= floor:
            first = index
        if epoch.op and epoch.op.number in cut.begun:
            last = index
    return group.epochs[first : max(first, last) + 1]


KINDS = {0o040000: "folder", 0o100000: "file", 0o120000: "link"}
assert DIRECTORY in KINDS


def _same_names(names: Names, tree: Tree) -> bool:
    return {path: (node.ino, node.kind) for path, node in names.items()} == {
        path: (file.ino, KINDS.get(file.mode & FORMAT_MASK)) for path, file in tree.items()
    }


def _names_problem(epochs: list[Epoch], tree: Tree) -> str:
    """How the names differ from those that are nearest."""

    def distance(epoch: Epoch) -> int:
        return len(epoch.names.keys() ^ tree.keys())

    nearest = min(epochs, key=distance)
    missing = sorted(nearest.names.keys() - tree.keys())
    extra = sorted(tree.keys() - nearest.names.keys())
    after = f"operation {nearest.op.number}" if nearest.op else "the start"
    if not missing and not extra:
        return f"names lead to other files than after {after}"
    return f"of the names after {after}, missing: {missing or 'none'}, too many: {extra or 'none'}"


def _size_problems(node: Node, file: File, cut: Cut, syncs: list[Sync]) -> Iterator[str]:
    """A write that grows the file may have done so in part, unless it is covered."""
    relevant = [sync for sync in syncs if sync.range is None]
    own = [sync for sync in syncs if sync.range is not None]
    ranges: list[tuple[int, int]] = []
    own_covers = [replace(sync, begin=-1) for sync in own]  # of the size: itself alone
    for version in cut.possible(node.versions["size"], [*relevant, *own_covers]):
        assert isinstance(version.value, tuple)
        low, high = version.value
        covered = any(sync.covers(version) for sync in (*relevant, *own_covers))
        ranges.append((high, high) if covered else (low, high))
    if not any(low <= file.size <= high for low, high in ranges):
        yield f"size is {file.size}, not {_either({high for _, high in ranges})}"


def _contents_problems(node: Node, file: File, cut: Cut, syncs: list[Sync]) -> Iterator[str]:
    bad = []
    for sector, found in enumerate(file.sectors):
        start = sector * SECTOR
        length = min(SECTOR, file.size - start)
        versions = node.sectors.get(sector, [Version(-1, -1, -1, ZEROS)])
        relevant = [
            sync
            for sync in syncs
            if sync.range is None or (sync.range[0] < start + SECTOR and start < sync.range[1])
        ]
        possible = cut.possible(versions, relevant)
        if not any(_checksum(version, length) == found for version in possible):
            writers = {"nobody" if one.op < 0 else f"operation {one.op}" for one in possible}
            what = f"bytes {start} to {start + length - 1}"
            bad.append(f"{what} are not what was written by {_either(writers)}")
    if bad:
        more = f" (and {len(bad) - 1} more sectors)" if len(bad) > 1 else ""
        yield f"{bad[0]}{more}"


def _checksum(version: Version, length: int) -> int:
    assert isinstance(version.value, bytes)
    return zlib.crc32(version.value[:length])


def _text(value: Value) -> str:
    return "none" if value is None else str(value)


def _either(values: Iterable[Value]) -> str:
    texts = sorted({_text(value) for value in values})
    return " or ".join(texts[-4:]) + (" or ..." if len(texts) > 4 else "")
