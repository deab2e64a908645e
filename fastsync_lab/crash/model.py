"""What a trace says of each file: the versions of its properties, and the calls that promise them.

A version of a property (a sector, the size, the mode, a stamp, ...) is what an operation made it. A
sync says of which versions it promises that they, or later ones, outlast a crash.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Self

from fastsync_lab.crash.extfs import ACL, NO_ID, acl
from fastsync_lab.crash.nodes import (
    ZEROS,
    Names,
    Node,
    Sync,
    Version,
    exchange,
    fallocate,
    fill,
    resize,
)
from fastsync_lab.crash.trace import Op
from fastsync_lab.host.errors import FastsyncError

PAGE = 4096
ACL_USER = 1234
FOREVER = 1 << 62
NEW = {"create": "file", "mkdir": "folder", "symlink": "link"}  # operations, and what they make
RENAMES = ("rename", "renamenew")
LINKS = ("link", "linkfd")
NAMING = (*NEW, *RENAMES, *LINKS, "exchange", "unlink", "rmdir")
WITHOUT_EFFECT = ("sleep", "align", "put", "hold", "close", "writeback", "mkeep")
# Writes as write(2) makes them, with AIO (a) or io_uring (r), with O_DIRECT (d) or a sync (o, s).
WRITES = (
    *("write", "dwrite", "owrite", "odwrite", "mstore", "kstore"),
    *("awrite", "adwrite", "rwrite", "rdwrite", "rswrite", "rsdwrite"),
)
FSYNCS = ("fsync", "afsync", "rfsync")
FDATASYNCS = ("fdatasync", "afdatasync", "rfdatasync")


@dataclass(frozen=True)
class Promise:
    """What fsync promises of stamps: they may be less than `defer_ms` old; 0: they are exact.

    `coarse_ms` is the step in which writes are stamped, 0 for the clock's; `grain_ns` the step in
    which the file system has stamps at all.
    """

    defer_ms: int = 0
    coarse_ms: int = 0
    grain_ns: int = 1

    @classmethod
    def of(cls, mode: str, interval_ms: int, grain_ns: int = 1) -> Self:
        """What a mode promises."""
        return cls(
            defer_ms=interval_ms if mode == "defer" else 0,
            coarse_ms=interval_ms if mode == "truncate" else 0,
            grain_ns=grain_ns,
        )

    def remounted(self, options: str) -> Self:
        """The promise after a remount with these options, which name no mode or a whole one."""
        words = dict(word.partition("=")[::2] for word in options.split(","))
        mode = words.get("mtime_mode", "off" if "un_mtime_update" in words else "")
        if not mode:
            return self
        return self.of(mode, int(words.get("mtime_update", 0)), self.grain_ns)

    def weaker(self, other: Self) -> Self:
        """What both keep."""
        return replace(
            self,
            defer_ms=max(self.defer_ms, other.defer_ms),
            coarse_ms=max(self.coarse_ms, other.coarse_ms),
        )


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

    def __init__(self, ops: Iterable[Op], promise: Promise) -> None:
        self.ops = sorted(ops, key=lambda op: op.end)
        self._promises = [(-1, FOREVER, promise)]  # from when, until when, which
        self.all_syncs: list[Sync] = []
        self.nodes: list[Node] = []
        self._names: Names = {}
        self._nameless: Names = {}  # what tmpfile has made, by its number: @3
        self._removed: dict[str, tuple[Op, Node]] = {}  # who had a name last, and what took it
        self._boot = Node(-1, "file", 0)  # what EXT4_IOC_SWAP_BOOT exchanges a file for
        self._boot.versions["size"] = [Version(-1, -1, -1, (0, 0))]
        threads = sorted({op.thread for op in self.ops} - {0})
        prefixes = [f"t{thread}/" for thread in threads] + [""]
        self.groups = [Group(prefix, [Epoch(None, {})]) for prefix in prefixes]
        for op in self.ops:
            self._apply(op)

    # --- promises --------------------------------------------------------------------------------

    def weakest(self, begin: int, end: int) -> Promise:
        """The weakest promise in force between two points of the order."""
        first = self._promises[0][2]
        mine = [one for since, until, one in self._promises if since <= end and until >= begin]
        return reduce(Promise.weaker, mine, replace(first, defer_ms=0, coarse_ms=0))

    def _remount(self, op: Op) -> None:
        since, _, promise = self._promises[-1]
        self._promises[-1] = (since, op.end, promise)
        self._promises.append((op.begin, FOREVER, promise.remounted(op.words[1])))

    # --- names -----------------------------------------------------------------------------------

    def group_of(self, path: str) -> Group:
        """The group whose folder has the path in it."""
        return next(group for group in self.groups if path.startswith(group.prefix))

    def _node(self, path: str) -> Node:
        try:
            return (self._nameless if path.startswith("@") else self._names)[path]
        except KeyError:
            raise FastsyncError(f"the trace has no file {path} at this point") from None

    def _node_of(self, op: Op) -> Node:
        """The file that the operation is about; its name may be removed while it is under way."""
        removal, node = self._removed.get(op.path, (op, None))
        if op.path not in self._names and node and op.begin < removal.end:
            return node
        return self._node(op.path)

    def _new_epoch(self, op: Op, path: str, nodes: Iterable[Node]) -> None:
        group = self.group_of(path)
        mine = {name: node for name, node in self._names.items() if self.group_of(name) is group}
        group.epochs.append(Epoch(op, mine))
        for node in nodes:
            node.name_ops.append(op)

    def _new_node(self, op: Op, kind: str) -> Node:
        node = Node(op.number, kind, op.ino)
        self.nodes.append(node)
        node.add("mode", op, {"file": 0o644, "folder": 0o755, "link": 0o777}[kind])
        node.add("owner", op, (0, 0))
        node.add("size", op, (0, 0))
        self._stamp(op, node)
        return node

    def _create(self, op: Op, kind: str, path: str) -> None:
        node = self._names[path] = self._new_node(op, kind)
        if kind == "link":
            node.add("target", op, op.words[1])
        self._new_epoch(op, path, [node])

    def _create_nameless(self, op: Op) -> None:
        """A file with O_TMPFILE. No name leads to it, and its syncs promise none.

        But they promise that it has been made, and so all names from before that.
        """
        node = self._nameless[op.words[2]] = self._new_node(op, "file")
        node.name_ops.append(op)

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

    def _exchange(self, op: Op) -> None:
        """Two names change places, each with what is below it. Stamps are told of the first."""
        first, second = op.words[1:3]
        nodes = self._node(first), self._node(second)
        self._names = {_exchanged(name, first, second): one for name, one in self._names.items()}
        self._stamp(op, nodes[0])
        self._unknown_stamp(op, nodes[1])
        self._new_epoch(op, second, nodes)

    def _change_names(self, op: Op) -> None:
        if op.name in NEW:
            self._create(op, NEW[op.name], op.words[2] if op.name == "symlink" else op.path)
        elif op.name in RENAMES:
            self._rename(op)
        elif op.name == "exchange":
            self._exchange(op)
        elif op.name in LINKS:
            node = self._names[op.words[2]] = self._node(op.path)
            self._stamp(op, node)
            self._new_epoch(op, op.words[2], [node])
        else:  # unlink, rmdir
            node = self._names.pop(op.path)
            self._removed[op.path] = op, node
            self._unknown_stamp(op, node)
            self._new_epoch(op, op.path, [node])

    # --- everything else -------------------------------------------------------------------------

    def _stamp(self, op: Op, node: Node) -> None:
        node.add("mtime", op, op.mtime_ns)
        node.add("ctime", op, op.ctime_ns)

    def _unknown_stamp(self, op: Op, node: Node) -> None:
        node.add("ctime", op, None)

    def _apply(self, op: Op) -> None:
        if op.name in NAMING:
            self._change_names(op)
        elif op.name == "tmpfile":
            self._create_nameless(op)
        elif op.name in ("sync", "syncfs"):
            self._sync_all(op, data=True)
        elif op.name == "remount":
            self._remount(op)
        elif op.name == "moveext":
            fill(op, self._node(op.words[2]), op.integer(3), op.integer(3) + op.integer(4), ZEROS)
        elif op.name not in WITHOUT_EFFECT:
            self._apply_to(op, self._node_of(op))

    def _apply_to(self, op: Op, node: Node) -> None:
        if node.kind == "link":
            raise FastsyncError(f"{op.name} goes where the symlink {op.path} leads to")
        if op.name in WRITES:
            self._write(op, node)
        elif op.name == "truncate":
            resize(op, node, op.integer(2))
        elif op.name == "falloc":
            fallocate(op, node)
        elif op.name == "swapboot":
            exchange(op, node, self._boot)
        elif op.name == "chmod":
            node.add("mode", op, op.integer(2))
        elif op.name == "chown":
            node.add("owner", op, (op.integer(2), op.integer(3)))
        elif op.name == "setxattr":
            node.add(op.words[2], op, op.words[3].encode().hex())
        elif op.name == "rmxattr":
            node.add(op.words[2], op, None)
        elif op.name == "setacl":
            self._set_acl(op, node)
        elif op.name in (*FSYNCS, *FDATASYNCS, "msync"):
            self._sync(op, node)
            return
        elif op.name not in ("utimens", "mspill", "fill"):
            raise FastsyncError(f"the oracle does not know operation {op.name}")
        self._stamp(op, node)

    def _set_acl(self, op: Op, node: Node) -> None:
        """Another user gets the permissions. They are the most that any may have: the group's."""
        allowed = op.integer(2)
        others = ((0x02, allowed, ACL_USER), (0x04, 4, NO_ID), (0x10, allowed, NO_ID))
        node.add(ACL, op, acl(((0x01, 6, NO_ID), *others, (0x20, 4, NO_ID))).hex())
        node.add("mode", op, 0o604 | allowed << 3)

    def _write(self, op: Op, node: Node) -> None:
        offset, length = op.integer(2), op.integer(3)
        fill(op, node, offset, offset + length)
        old = node.size
        if offset + length > old:
            node.add("size", op, (old, offset + length))
        span = (offset, offset + length)
        if op.name == "owrite":
            node.syncs.append(Sync(op.number, op.begin, True, True, "promised", span, op.end))
        elif op.name == "odwrite":
            node.syncs.append(Sync(op.number, op.begin, True, False, "", span, op.end))
        elif op.name in ("rswrite", "rsdwrite"):  # an fsync of the whole file comes after it
            node.syncs.append(Sync(op.number, op.begin, True, True, "promised", None, op.end))

    def _sync_all(self, op: Op, *, data: bool) -> None:
        self.all_syncs.append(Sync(op.number, op.begin, data, True, "exact", None, op.end))

    def _sync(self, op: Op, node: Node) -> None:
        if node.kind == "folder":  # commits the running transaction
            self._sync_all(op, data=False)
        elif op.name in FSYNCS:
            node.syncs.append(Sync(op.number, op.begin, True, True, "promised", None, op.end))
        elif op.name in FDATASYNCS:
            node.syncs.append(Sync(op.number, op.begin, True, False, "", None, op.end))
        else:
            first = op.integer(2) // PAGE * PAGE
            last = -(-(op.integer(2) + op.integer(3)) // PAGE) * PAGE
            node.syncs.append(Sync(op.number, op.begin, True, False, "", (first, last), op.end))


def _exchanged(name: str, first: str, second: str) -> str:
    """The name after two have changed places, of which it may be one, or below it."""
    for old, new in ((first, second), (second, first)):
        if name == old or name.startswith(f"{old}/"):
            return new + name[len(old) :]
    return name
