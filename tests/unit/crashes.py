"""Crashes, made up: what a workload has done, what is left of its files, what is said of it."""

from collections.abc import Sequence

from fastsync_lab.crash.case import Case, Failure
from fastsync_lab.crash.extfs import File, Tree, checksums
from fastsync_lab.crash.junk import shown
from fastsync_lab.crash.oracle import Oracle, Promise
from fastsync_lab.crash.trace import Op, sector_contents

MS = 10**6
START = 10**18
REGULAR = 0o100644
BLOCK = 4096
SECTORS = 8  # in a block
COLLAPSE, INSERT = 0x08, 0x20
CASE = Case("overwrite", "defer", "ordered")
FAILURE = Failure("17.drop2", 9, ("f: mode is 0",), CASE.command("17.drop2"), "build/x.img")


# Operations of which stat() is told of the second path.
SECOND = ("rename", "renamenew", "link", "linkfd", "exchange", "symlink", "tmpfile")


def trace(*lines: str, step_ms: int = 50) -> list[Op]:
    """Operations of one thread, each after the one before; files get inodes 12, 13, ..."""
    inodes: dict[str, int] = {}
    ops: list[Op] = []
    for number, line in enumerate(lines):
        words = tuple(line.split())
        name = words[0]
        target = words[2 if name in SECOND else -1 if len(words) < 2 else 1]
        if name in ("create", "mkdir", "symlink", "tmpfile"):
            inodes[target] = 12 + len(set(inodes.values()))
        elif name == "exchange":
            inodes[words[1]], inodes[words[2]] = inodes[words[2]], inodes[words[1]]
        elif name in SECOND:
            inodes[words[2]] = inodes[words[1]]
        now = START + number * step_ms * MS
        changes = name not in ("fsync", "fdatasync", "msync", "sync", "sleep")
        stamp = now if changes or not ops else ops[-1].mtime_ns
        ops.append(Op(number, 0, words, 2 * number, 2 * number + 1, now, now + MS,
                      inodes.get(target, 0), 0, stamp, stamp))  # fmt: skip
    return ops


def file(ino: int, contents: bytes = b"", *, stamp: int = START, mode: int = REGULAR) -> File:
    sectors, stale = checksums(contents), shown(contents)
    return File(ino, mode, 0, 0, 1, len(contents), stamp, stamp, {}, sectors=sectors, junk=stale)


def written(op: int, size: int, first: int = 0) -> bytes:
    """What operation `op` writes from sector `first` on."""
    sectors = range(first, first + -(-size // 512))
    return b"".join(sector_contents(op, sector) for sector in sectors)[:size]


EXACT = Promise()


def judge(ops: Sequence[Op], tree: Tree, returned: int, promise: Promise = EXACT) -> list[str]:
    """Problems when the first `returned` operations had returned."""
    return Oracle(ops, promise).problems(tree, frozenset(range(returned)))


def at(op: int) -> int:
    """When an operation of trace() ran."""
    return START + op * 50 * MS


def blocks(*contents: tuple[int, int] | None) -> bytes:
    """Blocks as (operation, block that it wrote to), or None for a hole."""
    return b"".join(
        written(one[0], BLOCK, one[1] * SECTORS) if one else bytes(BLOCK) for one in contents
    )


# What is called on a file of four blocks, and its contents then.
SHIFTED = (
    (f"falloc f {COLLAPSE} {BLOCK} {BLOCK}", blocks((1, 0), (1, 2), (1, 3))),
    (f"falloc f {INSERT} {BLOCK} {BLOCK}", blocks((1, 0), None, (1, 1), (1, 2), (1, 3))),
)
