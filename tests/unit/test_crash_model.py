"""What the oracle knows of changes that move contents about, and of modes that change."""

from collections.abc import Sequence

import pytest

from fastsync_lab.crash.extfs import Tree
from fastsync_lab.crash.model import Promise
from fastsync_lab.crash.nodes import Node, Shift, Version, resize
from fastsync_lab.crash.oracle import Oracle
from fastsync_lab.crash.trace import Op
from tests.unit.crashes import (
    BLOCK,
    SHIFTED,
    at,
    blocks,
    file,
    judge,
    trace,
    written,
)


def contents_problems(ops: Sequence[Op], contents: bytes, returned: int, stamp: int) -> list[str]:
    return judge(ops, {"f": file(12, contents, stamp=stamp)}, returned)


OLD = blocks((1, 0), (1, 1), (1, 2), (1, 3))


@pytest.mark.parametrize(("call", "new"), SHIFTED, ids=["collapse", "insert"])
def test_shifted_range(call: str, new: bytes) -> None:
    ops = trace("create f", f"write f 0 {4 * BLOCK}", "sync", call, "fsync f")
    for returned, contents, stamp, is_good in (
        (3, OLD, at(1), True),
        (4, OLD, at(1), True),  # not synced
        (4, new, at(3), True),
        (5, new, at(3), True),
        (5, OLD, at(3), False),
        (5, new[:BLOCK] + OLD[BLOCK : len(new)] + new[len(OLD) :], at(3), False),
    ):
        assert (contents_problems(ops, contents, returned, stamp) == []) is is_good


@pytest.mark.parametrize("synced", [False, True])
def test_write_to_a_shifted_block_may_be_seen_where_that_was(synced: bool) -> None:
    """The block is written in place; a crash undoes the shift that is not committed."""
    call, new = SHIFTED[0]
    sync = ["fsync f"] if synced else []
    lines = ["create f", f"write f 0 {4 * BLOCK}", "sync", call, *sync, f"write f {BLOCK} {BLOCK}"]
    ops = trace(*lines)
    number = len(lines) - 1
    here = blocks((1, 0), (number, 1), (1, 3))
    there = blocks((1, 0), (1, 1), (number, 1), (1, 3))
    elsewhere = blocks((1, 0), (1, 1), (1, 2), (number, 1))
    assert contents_problems(ops, here, len(lines), at(number)) == []
    assert contents_problems(ops, new, len(lines), at(3)) == []
    assert (contents_problems(ops, there, len(lines), at(1)) == []) is not synced
    assert contents_problems(ops, elsewhere, len(lines), at(1)) != []
    assert contents_problems(ops, there, number - 1, at(1)) != []  # not written yet


def test_where_a_sector_was_before_a_shift() -> None:
    version = Version(3, 6, 7, None)
    assert [Shift(version, 8, 8).before(one) for one in (7, 8, 15, 16)] == [7, None, None, 8]
    assert [Shift(version, 8, -8).before(one) for one in (7, 8, 15)] == [7, 16, 23]


def test_exchange_with_the_boot_loader() -> None:
    lines = (
        "create f", f"write f 0 {2 * BLOCK}", "sync", "swapboot f", "fsync f",
        "write f 0 100", "swapboot f", "fsync f",
    )  # fmt: skip
    ops = trace(*lines)
    old = blocks((1, 0), (1, 1))
    assert contents_problems(ops, old, 4, at(1)) == []
    assert contents_problems(ops, b"", 5, at(3)) == []
    assert contents_problems(ops, old, 5, at(1)) != []
    assert contents_problems(ops, old, 8, at(6)) == []
    assert contents_problems(ops, written(5, 100), 8, at(6)) != []


def test_moved_blocks_hold_what_they_held() -> None:
    lines = (
        "create f", f"write f 0 {2 * BLOCK}", "create g", f"falloc g 0 0 {2 * BLOCK}", "sync",
        f"moveext f g 0 {BLOCK}", f"write f 0 {BLOCK}", "fsync f", "fsync g",
    )  # fmt: skip
    ops = trace(*lines)

    def problems(f: bytes, g: bytes, returned: int) -> list[str]:
        stamp = at(6) if returned > 7 else at(1)
        tree = {"f": file(12, f, stamp=stamp), "g": file(13, g, stamp=at(3))}
        return judge(ops, tree, returned)

    old, new, zeros = blocks((1, 0), (1, 1)), blocks((6, 0), (1, 1)), bytes(2 * BLOCK)
    assert problems(old, zeros, 7) == []
    assert problems(new, zeros, 9) == []
    assert problems(old, zeros, 9) != []
    assert problems(new, old, 9) != []


def test_a_file_that_gave_its_blocks_away_has_new_contents() -> None:
    ops = trace(
        "create f", "create g", "write f 0 512", "write g 0 512", "sync",
        "moveext f g 0 512", "sync",
    )  # fmt: skip
    f, g = file(12, written(2, 512), stamp=at(2)), file(13, written(3, 512), stamp=at(3))
    old = {"f": f, "g": g}
    assert judge(ops, old, 5) == []
    assert [line for line in judge(ops, old, 7) if line.startswith("g: bytes 0 to 511")]


@pytest.mark.parametrize("call", ["awrite", "adwrite", "rwrite", "rdwrite"])
@pytest.mark.parametrize("sync", ["afsync", "afdatasync", "rfsync", "rfdatasync"])
def test_writes_and_syncs_by_other_calls(call: str, sync: str) -> None:
    ops = trace("create f", "sync", f"{call} f 0 {BLOCK}", f"{sync} f")
    assert contents_problems(ops, blocks((2, 0)), 4, at(2)) == []
    assert contents_problems(ops, b"", 3, at(0)) == []
    assert contents_problems(ops, b"", 4, at(0)) != []
    stale = contents_problems(ops, blocks((2, 0)), 4, at(0))
    assert (stale == []) is ("data" in sync)


@pytest.mark.parametrize("call", ["rswrite", "rsdwrite"])
def test_write_that_is_linked_to_an_fsync_promises_itself_and_all_before(call: str) -> None:
    ops = trace("create f", "write f 0 4096", "chmod f 0600", f"{call} f 4096 4096")
    both = blocks((1, 0), (3, 1))
    assert judge(ops, {"f": file(12, both, stamp=at(3), mode=0o100600)}, 4) == []
    assert judge(ops, {"f": file(12, both, stamp=at(3))}, 4) != []
    assert judge(ops, {"f": file(12, both[:BLOCK], stamp=at(3), mode=0o100600)}, 4) != []


def test_what_a_truncation_has_cut_off_does_not_come_back() -> None:
    """The file's size is one that a later write gave it; what is before the cut may be old."""
    lines = ["write f 0 1024", "write f 0 1024", "truncate f 512", "write f 1024 512"]
    ops = trace("create f", *lines)
    kept, behind = written(1, 512), written(4, 512, 2)
    assert contents_problems(ops, kept + bytes(512) + behind, 5, at(4)) == []
    assert contents_problems(ops, kept + written(2, 512, 1) + behind, 5, at(4)) != []


def test_truncation_to_the_same_size_cuts_nothing_off() -> None:
    op, node = trace("create f", "truncate f 700")[1], Node(12, "file", 0)
    node.add("size", op, (700, 700))
    before = dict(node.sectors)
    resize(op, node, 700)
    assert (node.sectors, node.shrinks) == (before, [])
    resize(op, node, 600)
    assert [size for _, size in node.shrinks] == [600]


def test_what_changes_stamps_alone_to_the_oracle() -> None:
    ops = trace("create f", "mspill f 700 3000", "fill f 512", "fsync f")
    assert contents_problems(ops, b"", 4, at(2)) == []
    assert contents_problems(ops, b"", 4, at(0)) != []


# --- promises ------------------------------------------------------------------------------------

DEFER = "remount mtime_update=200,mtime_mode=defer"
LONGER = "remount mtime_update=900,mtime_mode=defer"
OFF = "remount un_mtime_update"


def stale_is_good(promise: Promise, *lines: str) -> bool:
    """Whether the stamp of operation 1 will do after the last line, which is a sync."""
    ops = trace("create f", f"write f 0 {BLOCK}", "sync", *lines)
    last = max(op.number for op in ops if op.name == "write")
    tree: Tree = {"f": file(12, blocks((last, 0)), stamp=at(1))}
    return Oracle(ops, promise).problems(tree, frozenset(range(len(ops)))) == []


WRITE = f"write f 0 {BLOCK}"


@pytest.mark.parametrize(
    ("promise", "lines", "is_good"),
    [
        (Promise(), (WRITE, "fsync f"), False),
        (Promise(defer_ms=200), (WRITE, "fsync f"), True),
        (Promise(), (DEFER, WRITE, "fsync f"), True),
        (Promise(defer_ms=200), (OFF, WRITE, "fsync f"), False),
        (Promise(defer_ms=200), (WRITE, OFF, "fsync f"), True),  # the weakest since the write
        (Promise(), (WRITE, DEFER, "fsync f"), True),
        (Promise(defer_ms=20), (WRITE, "fsync f"), False),  # 100 ms old
        (Promise(defer_ms=20), (LONGER, WRITE, "fsync f"), True),
        (Promise(defer_ms=900), (DEFER, WRITE, "fsync f"), True),
        (Promise(defer_ms=900), (DEFER, WRITE, "sleep 1", "sleep 1", WRITE, "fsync f"), False),
        (Promise(defer_ms=900), (WRITE, "fsync f", OFF, WRITE, "fsync f"), False),
        (Promise(), (WRITE, "fsync f", DEFER, WRITE, "fsync f"), False),  # the first is durable
        (Promise(), (DEFER, WRITE, "fsync f", "remount noatime", WRITE, "fsync f"), False),
    ],
)
def test_weakest_promise_since_the_write(
    promise: Promise, lines: tuple[str, ...], is_good: bool
) -> None:
    assert stale_is_good(promise, *lines) is is_good


def test_remount_without_a_mode_changes_no_promise() -> None:
    assert Promise(defer_ms=5).remounted("noatime") == Promise(defer_ms=5)
    assert Promise(grain_ns=9).remounted("mtime_update=7,mtime_mode=truncate") == Promise(
        coarse_ms=7, grain_ns=9
    )


@pytest.mark.parametrize(
    ("grain_ns", "early_ns", "is_good"),
    [(1, 0, True), (1, 5 * 10**8, False), (10**9, 5 * 10**8, True), (10**9, 2 * 10**9, False)],
)
def test_stamps_of_small_inodes_are_whole_seconds(
    grain_ns: int, early_ns: int, is_good: bool
) -> None:
    """A write that stat() has not seen may have stamped the file with the second that it is in."""
    ops = trace("create f", f"write f 0 {BLOCK}", step_ms=10_000)
    ran_ns = ops[1].start_ns
    tree: Tree = {"f": file(12, blocks((1, 0)), stamp=ran_ns - early_ns)}
    oracle = Oracle(ops, Promise(grain_ns=grain_ns))
    assert (oracle.problems(tree, frozenset({0, 1})) == []) is is_good
