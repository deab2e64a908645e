"""What must be there after a crash, and what may be.

For each property of a file (a sector, the size, the mode, a stamp, ...) the trace gives versions.
A sync that returned covers the operations that had ended when it began, and what a covered one
replaced is gone for good. Anything else that had begun may have happened.

Names are stricter: jbd2 commits all folders together, so the names are those after some operation,
not before the last one that a sync has covered. (Threads: for each thread's own folder.) An fsync
of a file covers what gave or took its names: a link, a rename, an exchange. It cannot be called on
a symlink: that is safe after fsync of a folder, or of what it was exchanged with.

Stamps, if they are neither those of the last synced operation nor later: mtime_mode=defer allows
what lies less than the interval before them. Where the mode changes, the weakest counts that was in
force between the operation and the end of the sync.
"""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from fastsync_lab.crash.cut import Concern, Cut, Floor, names_floors
from fastsync_lab.crash.extfs import DIRECTORY, FORMAT_MASK, File, Tree
from fastsync_lab.crash.junk import OF_SECTOR
from fastsync_lab.crash.model import Epoch, Group, Model, Promise
from fastsync_lab.crash.nodes import ZEROS, Names, Node, Sync, Value, Version
from fastsync_lab.crash.trace import SECTOR, Op, begun

__all__ = ["Oracle", "Promise", "junk_problems"]

TICK_NS = 10_000_000  # at least the kernel's tick: how far its stamp clock is behind
NS_PER_MS = 1_000_000
LOST_AND_FOUND = "lost+found"
CUTS_REMEMBERED = 1000


class Oracle:
    """Judges the files of a crash state by the trace of the run."""

    def __init__(self, ops: Iterable[Op], promise: Promise) -> None:
        self.model = model = Model(ops, promise)
        meta = [sync for sync in model.all_syncs if sync.meta]
        self._floors = {
            group.prefix: Floor.of((epoch.op for epoch in group.epochs if epoch.op), meta)
            for group in model.groups
        }
        self._names_floors = [floor for node in model.nodes for floor in names_floors(node)]
        self._concerns = {node.id: Concern.of(node, model.all_syncs) for node in model.nodes}
        self._cut = lru_cache(maxsize=1)(self._new_cut)
        self._same = lru_cache(maxsize=CUTS_REMEMBERED)(Cut)

    def problems(
        self, tree: Tree, acknowledged: frozenset[int], started: frozenset[int] | None = None
    ) -> list[str]:
        """What is wrong with the files of a state in which these operations had returned.

        `started` are those that may have begun; without it the next one of each thread.
        """
        cut, epochs = self._cut(acknowledged, started)
        found: list[str] = []
        for group in self.model.groups:
            inside = {
                path: file
                for path, file in tree.items()
                if path != LOST_AND_FOUND and self.model.group_of(path) is group
            }
            found += self._group_problems(epochs[group.prefix], inside, cut)
        return found

    def _new_cut(
        self, acknowledged: frozenset[int], started: frozenset[int] | None
    ) -> tuple[Cut, dict[str, list[Epoch]]]:
        """A cut, and the epochs that it may leave, by the prefix of the group."""
        if started is None:
            started = begun(sorted(self.model.ops, key=_number), acknowledged)
        cut = Cut(acknowledged, started)
        names = max((floor.at(cut) for floor in self._names_floors), default=-1)
        return cut, {
            group.prefix: _not_before(group, max(names, self._floors[group.prefix].at(cut)), cut)
            for group in self.model.groups
        }

    def _group_problems(self, epochs: list[Epoch], tree: Tree, cut: Cut) -> list[str]:
        matching = [epoch for epoch in epochs if _same_names(epoch.names, tree)]
        if not matching:
            return [_names_problem(epochs, tree)]
        best: list[str] = []
        for epoch in reversed(matching):
            best = list(self._epoch_problems(epoch, tree, cut))
            if not best:
                break
        return best

    def _as_seen_by(self, node: Node, cut: Cut) -> Cut:
        """What a file sees of a cut; that of many cuts is one."""
        concern = self._concerns[node.id]
        return self._same(cut.acknowledged & concern.syncs, cut.begun & concern.ops)

    def _epoch_problems(self, epoch: Epoch, tree: Tree, cut: Cut) -> Iterator[str]:
        ids = [node.id for node in epoch.names.values()]
        for path, node in epoch.names.items():
            file = tree[path]
            seen, look = self._as_seen_by(node, cut), (node.id, file)
            if look not in seen.files:
                seen.files[look] = list(self._node_problems(node, file, seen))
            yield from (f"{path}: {text}" for text in seen.files[look])
            if node.kind == "file" and file.links != ids.count(node.id):
                yield f"{path}: {file.links} links, not {ids.count(node.id)}"

    def _node_problems(self, node: Node, file: File, cut: Cut) -> Iterator[str]:
        syncs = cut.syncs([*node.syncs, *self.model.all_syncs])
        yield from self._attribute_problems(node, file, cut, [s for s in syncs if s.meta])
        if node.kind == "file":
            data_syncs = [sync for sync in syncs if sync.data]
            yield from _size_problems(node, file, cut, data_syncs)
            look = node.id, file.size, file.sectors
            if look not in cut.contents:
                cut.contents[look] = list(_contents_problems(node, file, cut, data_syncs))
            yield from cut.contents[look]
            for key, stamp in (("mtime", file.mtime_ns), ("ctime", file.ctime_ns)):
                yield from self._stamp_problems(node, key, stamp, cut, syncs)

    def _attribute_problems(
        self, node: Node, file: File, cut: Cut, syncs: list[Sync]
    ) -> Iterator[str]:
        names = {key for key in (*node.versions, *file.xattrs) if "." in key}
        shown: dict[str, Value] = {"mode": file.mode & 0o7777, "owner": (file.uid, file.gid)}
        shown |= {name: file.xattrs.get(name) for name in sorted(names)}
        if node.kind == "link":
            shown["target"] = file.target
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
        if not self._is_within_interval(versions, stamp, cut, promised):
            yield f"{key} is {stamp}, not {_either(version.value for version in possible)}"

    def _is_within_interval(
        self, versions: list[Version], stamp: int, cut: Cut, promised: list[Sync]
    ) -> bool:
        """Is it an older stamp, so little older as the weakest mode since the last one allows?"""
        synced = [v for v in versions if any(sync.covers(v) for sync in promised)]
        latest = next((v for v in reversed(synced) if isinstance(v.value, int)), None)
        if latest is not None:
            assert isinstance(latest.value, int)
            end = max(sync.end for sync in promised if sync.covers(latest))
            allowed_ns = self.model.weakest(latest.begin, end).defer_ms * NS_PER_MS
            if latest.value - stamp >= allowed_ns:
                return False
        exact = [sync for sync in promised if sync.stamps == "exact"]
        floor = max((v.begin for v in synced if self._is_exact(v, promised)), default=-1)
        earlier = [v for v in cut.possible(versions, exact) if v.end >= floor]
        return any(self._is_stamp_of(version, stamp, exact) for version in earlier)

    def _is_exact(self, version: Version, syncs: list[Sync]) -> bool:
        """Did a sync make it durable while no mode in force let stamps wait?"""
        covering = [sync for sync in syncs if sync.covers(version)]
        return any(not self.model.weakest(version.begin, sync.end).defer_ms for sync in covering)

    def _is_stamp_of(self, version: Version, stamp: int, exact: list[Sync]) -> bool:
        """Is it what stat() showed, or else a time at which the operation was under way?"""
        if version.value == stamp:
            return True
        if version.value is not None and any(sync.covers(version) for sync in exact):
            return False
        op = next((op for op in self.model.ops if op.number == version.op), None)
        if op is None:
            return False
        promise = self.model.weakest(op.begin, op.end)
        slack_ns = TICK_NS + promise.coarse_ms * NS_PER_MS + promise.grain_ns - 1
        return op.start_ns - slack_ns <= stamp <= op.stop_ns


def junk_problems(tree: Tree) -> list[str]:
    """The files that show a block which nobody has written, whatever else may be in them."""
    return [f"{path}: {problem}" for path, file in tree.items() for problem in _junk_in(file)]


def _junk_in(file: File) -> Iterator[str]:
    bad = []
    for sector, origin in file.junk:
        start, length = _place(file, sector)
        what = f"bytes {start} to {start + length - 1}"
        bad.append(f"{what} show junk{OF_SECTOR}{origin}, which nobody has written")
    yield from _in_one_line(bad)


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


def _possible_sizes(node: Node, cut: Cut, syncs: list[Sync]) -> Iterator[tuple[Version, int, int]]:
    """The versions of the size that the file may have, and from where to where it may be.

    A write that grows the file may have done so in part, unless it is covered.
    """
    relevant = [sync for sync in syncs if sync.range is None]
    own = [sync for sync in syncs if sync.range is not None]
    own_covers = [replace(sync, begin=-1) for sync in own]  # of the size: itself alone
    for version in cut.possible(node.versions["size"], [*relevant, *own_covers]):
        assert isinstance(version.value, tuple)
        low, high = version.value
        covered = any(sync.covers(version) for sync in (*relevant, *own_covers))
        yield version, high if covered else low, high


def _size_problems(node: Node, file: File, cut: Cut, syncs: list[Sync]) -> Iterator[str]:
    ranges = [(low, high) for _, low, high in _possible_sizes(node, cut, syncs)]
    if not any(low <= file.size <= high for low, high in ranges):
        yield f"size is {file.size}, not {_either({high for _, high in ranges})}"


def _shrinks(node: Node, file: File, cut: Cut, syncs: list[Sync]) -> list[tuple[Version, int]]:
    """The truncations that have happened, for the file has a size that only later ones gave it.

    What they have cut off is zeroed before: where a larger file shows it again it is so for good.
    """
    for version, low, high in _possible_sizes(node, cut, syncs):
        if low <= file.size <= high:
            return [(shrink, size) for shrink, size in node.shrinks if shrink.end < version.begin]
    return []


def _contents_problems(node: Node, file: File, cut: Cut, syncs: list[Sync]) -> Iterator[str]:
    bad = []
    shrinks = _shrinks(node, file, cut, syncs)
    for sector, found in enumerate(file.sectors):
        start, length = _place(file, sector)
        versions = node.sectors.get(sector, [Version(-1, -1, -1, ZEROS)])
        gone = max((one.end for one, size in shrinks if size < start + SECTOR), default=-1)
        replaced = [number for number, one in enumerate(versions) if one.end <= gone]
        versions = versions[replaced[-1] if replaced else 0 :]
        relevant = [
            sync
            for sync in syncs
            if sync.range is None or (sync.range[0] < start + SECTOR and start < sync.range[1])
        ]
        possible = cut.possible(versions, relevant)
        strays = _possible_strays(node, sector, cut, syncs)
        if not any(_checksum(version, length) == found for version in (*possible, *strays)):
            writers = {"nobody" if one.op < 0 else f"operation {one.op}" for one in possible}
            what = f"bytes {start} to {start + length - 1}"
            bad.append(f"{what} are not what was written by {_either(writers)}")
    yield from _in_one_line(bad)


def _place(file: File, sector: int) -> tuple[int, int]:
    """Where in a file its sector is, and how much of it there is."""
    start = sector * SECTOR
    return start, min(SECTOR, file.size - start)


def _in_one_line(bad: list[str]) -> Iterator[str]:
    """What is wrong with the first of some sectors, and how many more there are."""
    if bad:
        yield bad[0] + (f" (and {len(bad) - 1} more sectors)" if len(bad) > 1 else "")


def _possible_strays(node: Node, sector: int, cut: Cut, syncs: Iterable[Sync]) -> Iterator[Version]:
    """Writes to a block that was in this place until a shift that may have been undone."""
    whole = [sync for sync in syncs if sync.range is None]
    for stray in node.strays.get(sector, []):
        undone = not any(sync.covers(stray.shift) for sync in whole)
        if undone and stray.version.op in cut.begun:
            yield stray.version


def _checksum(version: Version, length: int) -> int:
    assert isinstance(version.value, bytes)
    return zlib.crc32(version.value[:length])


def _text(value: Value) -> str:
    return "none" if value is None else str(value)


def _either(values: Iterable[Value]) -> str:
    texts = sorted({_text(value) for value in values})
    return " or ".join(texts[-4:]) + (" or ..." if len(texts) > 4 else "")
