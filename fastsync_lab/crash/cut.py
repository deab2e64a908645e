"""A crash as a trace sees it, what of it matters to a file, what it leaves of names for sure."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from fastsync_lab.crash.extfs import File
from fastsync_lab.crash.nodes import Node, Sync, Version
from fastsync_lab.crash.trace import Op


@dataclass(frozen=True)
class Cut:
    """A crash as the trace sees it: which operations had returned, which may have begun.

    Many states are of one cut, and most files are alike in them. So it remembers what was wrong
    with those that were looked at: in `files`, and in `contents` by size and sectors alone. Both
    have the node's id.
    """

    acknowledged: frozenset[int]
    begun: frozenset[int]
    files: dict[tuple[int, File], list[str]] = field(default_factory=dict)
    contents: dict[tuple[int, int, tuple[int, ...]], list[str]] = field(default_factory=dict)

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


@dataclass(frozen=True)
class Floor:
    """When the last of some operations ended that had before one of some syncs began.

    `ends` is in order; `syncs` have when each began, and its operation, the last one first.
    """

    ends: tuple[int, ...]
    syncs: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, ops: Iterable[Op], syncs: Iterable[Sync]) -> Self:
        """That of these."""
        begins = sorted(((sync.begin, sync.op) for sync in syncs), reverse=True)
        return cls(tuple(sorted(op.end for op in ops)), tuple(begins))

    def at(self, cut: Cut) -> int:
        """That of the syncs that had returned; -1 if no operation had ended by then."""
        begin = next((begin for begin, op in self.syncs if op in cut.acknowledged), -1)
        before = bisect_left(self.ends, begin)
        return self.ends[before - 1] if before else -1


@dataclass(frozen=True)
class Concern:
    """What of a cut matters to a file: syncs that had returned, operations that may have begun."""

    syncs: frozenset[int]
    ops: frozenset[int]

    @classmethod
    def of(cls, node: Node, syncs: Iterable[Sync]) -> Self:
        """That of a file; `syncs` are those of all files."""
        lists = [*node.versions.values(), *node.sectors.values()]
        lists += [[stray.version for stray in strays] for strays in node.strays.values()]
        return cls(
            frozenset(sync.op for sync in (*node.syncs, *syncs)),
            frozenset(version.op for versions in lists for version in versions),
        )


def names_floors(node: Node) -> tuple[Floor, Floor]:
    """What covers the names of a file: all of them, and the one that it was made with."""
    meta = [sync for sync in node.syncs if sync.meta]
    return Floor.of(node.name_ops, meta), Floor.of(node.name_ops[:1], node.syncs)
