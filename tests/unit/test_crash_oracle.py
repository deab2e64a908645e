"""The oracle: what a trace promises of the files after a crash."""

import json
import zlib
from collections.abc import Sequence
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastsync_lab.crash.extfs import File
from fastsync_lab.crash.junk import junk
from fastsync_lab.crash.oracle import Oracle, Promise, junk_problems
from fastsync_lab.crash.trace import begun, parse_trace
from fastsync_lab.host.errors import FastsyncError
from tests.unit.crashes import MS, START, at, file, judge, trace, written

BASIC = ("create f", "write f 0 4096", "fsync f", "write f 0 4096")
AT = START + 50 * MS  # when operation 1 wrote


def test_synced_write_is_there() -> None:
    assert judge(trace(*BASIC), {"f": file(12, written(1, 4096), stamp=AT)}, 3) == []


@pytest.mark.parametrize("contents", [b"", bytes(4096), written(1, 4095), written(0, 4096)])
def test_synced_write_is_lost(contents: bytes) -> None:
    assert judge(trace(*BASIC), {"f": file(12, contents, stamp=AT)}, 3) != []


def test_unsynced_write_may_be_lost_or_there_or_torn() -> None:
    ops = trace(*BASIC)
    new = START + 150 * MS
    torn = written(3, 512) + written(1, 3584, 1)
    for contents in (written(1, 4096), written(3, 4096), torn):
        for stamp in (AT, new):
            assert judge(ops, {"f": file(12, contents, stamp=stamp)}, 4) == []


def test_write_that_has_not_begun_is_not_there() -> None:
    ops = trace(*BASIC)
    assert judge(ops, {"f": file(12, written(3, 4096), stamp=AT)}, 2) != []


def test_before_the_sync_returned_nothing_is_promised() -> None:
    ops = trace(*BASIC)
    assert judge(ops, {}, 2) == []
    assert judge(ops, {"f": file(12)}, 2) == []
    assert judge(ops, {}, 3) != []


def test_file_under_another_inode_is_another_file() -> None:
    assert judge(trace(*BASIC), {"f": file(13, written(1, 4096), stamp=AT)}, 3) != []


def test_unknown_file() -> None:
    tree = {"f": file(12, written(1, 4096), stamp=AT), "g": file(13)}
    (problem,) = judge(trace(*BASIC), tree, 3)
    assert "too many: ['g']" in problem


def test_what_it_has_judged_before_does_not_count() -> None:
    """It remembers contents: of the same cut, file and size, and of nothing else."""
    ops = trace("create f", "create g", "write f 0 512", "fsync f", "write g 0 512", "fsync g")
    empty, mine, other = b"", written(2, 512), written(4, 512)
    oracle = Oracle(ops, Promise())
    looks = [
        (one, another, returned)
        for returned in (6, 2, 4, 6, 2)
        for one in (mine, other, empty, mine)
        for another in (other, mine, empty)
    ]
    verdicts = set()
    for one, another, returned in looks:
        tree = {"f": file(12, one), "g": file(13, another)}
        said = oracle.problems(tree, frozenset(range(returned)))
        assert said == Oracle(ops, Promise()).problems(tree, frozenset(range(returned)))
        verdicts.add(tuple(said))
    assert len(verdicts) > 3


def test_nothing_of_a_file_is_remembered_that_has_changed() -> None:
    """Each property is judged anew, after the sound one of the same cut."""
    ops = trace("create f", "symlink f g", "setxattr f user.k precious", "write f 0 512", "sync")
    other = {"xattrs": {"user.k": "00"}, "sectors": (7,), "target": "x", "junk": ((1, 2),)}
    for name in ("f", "g"):
        f = file(12, written(3, 512), stamp=at(3))
        whole = {
            "f": replace(f, xattrs={"user.k": b"precious".hex()}),
            "g": replace(file(13, mode=0o120777), target="f"),
        }
        oracle = Oracle(ops, Promise())
        assert oracle.problems(whole, frozenset(range(6))) == []
        for field in fields(File):
            new = other.get(field.name, 0o777)
            tree = {**whole, name: replace(whole[name], **{field.name: new})}  # type: ignore[arg-type]
            said = oracle.problems(tree, frozenset(range(6)))
            assert said == Oracle(ops, Promise()).problems(tree, frozenset(range(6))), field.name


def test_fdatasync_promises_size_but_no_mode() -> None:
    ops = trace("create f", "sync", "chmod f 0600", "write f 0 5000", "fdatasync f")
    good = file(12, written(3, 5000), stamp=START)
    assert judge(ops, {"f": good}, 5) == []
    assert judge(ops, {"f": replace(good, size=4096, sectors=good.sectors[:8])}, 5) != []


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("chmod f 0600", {"mode": 0o100600}),
        ("chown f 7 8", {"uid": 7, "gid": 8}),
        ("setxattr f user.k precious", {"xattrs": {"user.k": b"precious".hex()}}),
    ],
)
def test_fsync_promises_attributes(line: str, changed: dict[str, object]) -> None:
    ops = trace("create f", "sync", line, "fsync f")
    old = file(12)
    new = replace(old, mtime_ns=ops[2].mtime_ns, ctime_ns=ops[2].ctime_ns, **changed)  # type: ignore[arg-type]
    assert judge(ops, {"f": new}, 4) == []
    assert judge(ops, {"f": new}, 3) == []
    assert judge(ops, {"f": old}, 3) == []
    assert judge(ops, {"f": replace(new, **{key: getattr(old, key) for key in changed})}, 4) != []


def test_removed_xattr_stays_removed() -> None:
    ops = trace("create f", "setxattr f user.k v", "sync", "rmxattr f user.k", "fsync f")
    left = replace(file(12, stamp=ops[3].mtime_ns), xattrs={"user.k": b"v".hex()})
    assert judge(ops, {"f": left}, 5) != []
    assert judge(ops, {"f": replace(left, xattrs={})}, 5) == []


# --- stamps --------------------------------------------------------------------------------------

OLD, NEW = START, START + 100 * MS
STAMPS = ("create f", "sync", "write f 0 100", "fsync f")


@pytest.mark.parametrize(
    ("promise", "stamp", "is_good"),
    [
        (Promise(), NEW, True),
        (Promise(), OLD, False),
        (Promise(defer_ms=101), OLD, True),
        (Promise(defer_ms=100), OLD, False),  # "less than"
        (Promise(defer_ms=101), NEW, True),
        (Promise(defer_ms=101), OLD + 1, False),  # never had that stamp
        (Promise(defer_ms=101), NEW + 60 * MS, False),  # from the future
        (Promise(coarse_ms=100), OLD, False),
    ],
)
def test_stamps(promise: Promise, stamp: int, is_good: bool) -> None:
    ops = trace(*STAMPS)
    tree = {"f": file(12, written(2, 100), stamp=stamp)}
    assert (judge(ops, tree, 4, promise) == []) == is_good


def test_sync_makes_stamps_exact_in_defer() -> None:
    ops = trace("create f", "sync", "write f 0 100", "sync")
    tree = {"f": file(12, written(2, 100), stamp=OLD)}
    assert judge(ops, tree, 4, Promise(defer_ms=500)) != []


def test_a_later_utimens_may_go_back_far() -> None:
    ops = trace("create f", "sync", "write f 0 100", "fsync f", "utimens f 1")
    ops[4] = replace(ops[4], mtime_ns=1)
    tree = {"f": replace(file(12, written(2, 100), stamp=ops[4].ctime_ns), mtime_ns=1)}
    assert judge(ops, tree, 4, Promise(defer_ms=100)) == []
    assert judge(ops, tree, 4) == []
    assert judge(ops, tree, 3, Promise(defer_ms=100)) != []


def test_fdatasync_promises_no_stamp() -> None:
    ops = trace("create f", "sync", "write f 0 100", "fdatasync f")
    assert judge(ops, {"f": file(12, written(2, 100), stamp=OLD)}, 4) == []


# --- names ---------------------------------------------------------------------------------------

NAMES = ("create a", "sync", "rename a b", "create c", "fsync b")


@pytest.mark.parametrize(
    ("names", "returned", "is_good"),
    [
        ({"a": 12}, 4, True),
        ({"b": 12}, 4, True),
        ({}, 4, False),  # both names lost
        ({"a": 12, "b": 12}, 4, False),
        ({"a": 12, "c": 13}, 4, False),  # c came after the rename
        ({"b": 12, "c": 13}, 5, True),
        ({"b": 12}, 5, True),
        ({"a": 12}, 5, False),  # fsync covers the rename
    ],
)
def test_names(names: dict[str, int], returned: int, is_good: bool) -> None:
    ops = trace(*NAMES)
    stamps = {12: ops[2].mtime_ns if "b" in names else START, 13: ops[3].mtime_ns}
    tree = {name: file(ino, stamp=stamps[ino]) for name, ino in names.items()}
    assert (judge(ops, tree, returned) == []) == is_good


def test_fsync_of_the_folder_covers_all_names() -> None:
    ops = trace("mkdir d", "create d/a", "fsync d")
    folder = file(12, mode=0o040755)
    assert judge(ops, {"d": folder}, 3) != []
    assert judge(ops, {"d": folder, "d/a": file(13, stamp=ops[1].mtime_ns)}, 3) == []


def test_link_count() -> None:
    ops = trace("create a", "link a b", "sync")
    one = file(12, stamp=ops[1].mtime_ns)
    assert judge(ops, {"a": one, "b": one}, 3) != []
    two = replace(one, links=2)
    assert judge(ops, {"a": two, "b": two}, 3) == []


# --- contents ------------------------------------------------------------------------------------


def test_hole_is_punched_or_not_but_nothing_else() -> None:
    ops = trace("create f", "write f 0 8192", "sync", "falloc f 3 0 4096", "fsync f")
    old, stamp = written(1, 8192), ops[3].mtime_ns
    holed = bytes(4096) + old[4096:]
    assert judge(ops, {"f": file(12, holed, stamp=stamp)}, 5) == []
    assert judge(ops, {"f": file(12, old, stamp=stamp)}, 5) != []
    assert judge(ops, {"f": file(12, old, stamp=stamp)}, 4) == []
    assert judge(ops, {"f": file(12, bytes(8192), stamp=stamp)}, 5) != []


def test_msync_promises_its_range_alone() -> None:
    ops = trace("create f", "write f 0 8192", "sync", "mstore f 0 8192", "msync f 0 4096")
    half = written(3, 4096) + written(1, 4096, 8)
    assert judge(ops, {"f": file(12, half, stamp=ops[1].mtime_ns)}, 5) == []
    other = written(1, 4096) + written(3, 4096, 8)
    assert judge(ops, {"f": file(12, other, stamp=ops[1].mtime_ns)}, 5) != []


def test_o_sync_write_promises_itself() -> None:
    ops = trace("create f", "sync", "owrite f 0 4096")
    assert judge(ops, {"f": file(12, written(2, 4096), stamp=ops[2].mtime_ns)}, 3) == []
    assert judge(ops, {"f": file(12)}, 3) != []
    assert judge(ops, {"f": file(12)}, 2) == []


def test_stale_blocks_are_not_shown() -> None:
    """A file that grows shows what was written or zeros, nothing else."""
    ops = trace("create f", "sync", "write f 0 4096")
    assert judge(ops, {"f": file(12, b"secret".ljust(4096, b"x"), stamp=START)}, 3) != []
    assert judge(ops, {"f": file(12, bytes(4096), stamp=START)}, 3) == []


@pytest.mark.parametrize(
    ("lines", "contents"),
    [
        (("truncate f 8192",), bytes(8192)),  # a hole
        (("falloc f 0 0 8192",), bytes(8192)),  # unwritten
        (("write f 4000 1000",), bytes(4000) + written(2, 5000)[4000:]),
        (("write f 0 4096", "falloc f 3 0 4096"), bytes(4096)),  # punched
        (("write f 0 4096", "falloc f 16 0 4096"), bytes(4096)),
        (("write f 0 700", "truncate f 600", "truncate f 2000"), written(2, 600) + bytes(1400)),
    ],
)
def test_junk_is_never_what_was_written(lines: Sequence[str], contents: bytes) -> None:
    """In no sector, not of what should be zeros either, synced or not."""
    ops = trace("create f", "sync", *lines, "fsync f")
    good = file(12, contents, stamp=ops[-2].mtime_ns)
    for returned in (len(ops) - 1, len(ops)):
        assert judge(ops, {"f": good}, returned) == []
        for sector in range(len(good.sectors)):
            stale = contents[: sector * 512] + junk(77, 1) + contents[(sector + 1) * 512 :]
            bad = file(12, stale[: len(contents)], stamp=ops[-2].mtime_ns)
            (problem,) = judge(ops, {"f": bad}, returned)
            assert problem.startswith(f"f: bytes {sector * 512} to ")


def test_junk_is_told_of_every_file() -> None:
    one = written(1, 512) + junk(1000, 2) + written(1, 512) + junk(5, 1)[:100]
    tree = {
        "f": file(12, one),
        "g": file(13, junk(9, 1)[:511]),
        "h": file(14, junk(9, 3)),
        "lost+found": file(11, mode=0o040755),
        "lost+found/#15": file(15, bytes(512) + junk(4095, 1)),
        "sound": file(16, written(1, 4096)),
        "two": file(17, junk(9, 2)),
    }
    assert junk_problems(tree) == [
        "f: bytes 512 to 1023 show junk of sector 1000, which nobody has written "
        "(and 2 more sectors)",
        "g: bytes 0 to 510 show junk of sector 9, which nobody has written",
        "h: bytes 0 to 511 show junk of sector 9, which nobody has written (and 2 more sectors)",
        "lost+found/#15: bytes 512 to 1023 show junk of sector 4095, which nobody has written",
        "two: bytes 0 to 511 show junk of sector 9, which nobody has written (and 1 more sectors)",
    ]


def test_threads_may_be_one_operation_further_each() -> None:
    ops = trace("create f", "write f 0 512", "write f 512 512")
    ops = [ops[0], replace(ops[1], thread=1), replace(ops[2], thread=2)]
    assert begun(ops, frozenset([0])) == {0, 1, 2}
    assert begun(trace("create f", "write f 0 512", "fsync f"), frozenset([0])) == {0, 1}


def test_sync_of_a_file_that_is_removed_meanwhile() -> None:
    """It has opened the file; its name goes before it ends."""
    ops = trace("create f", "write f 0 512", "unlink f", "fsync f", "create f", "sync")
    ops[2] = replace(ops[2], thread=1, begin=5, end=6)
    ops[3] = replace(ops[3], thread=2, begin=4, end=7)
    ops = [*ops[:4], *(replace(op, begin=op.begin + 2, end=op.end + 2) for op in ops[4:])]
    old, new = file(12, written(1, 512), stamp=AT), file(13, stamp=ops[4].mtime_ns)
    assert judge(ops, {"f": old}, 4) == []
    assert judge(ops, {}, 4) == []
    assert judge(ops, {"f": new}, 6) == []
    assert judge(ops, {"f": old}, 6) != []
    ops[3] = replace(ops[3], begin=7)
    with pytest.raises(FastsyncError, match="no file f at this point"):
        judge(ops, {}, 4)


def test_overlapping_writes_may_be_either() -> None:
    """Two threads, one sector: the order in which they ended says nothing."""
    ops = trace("create f", "write f 0 512", "write f 0 512", "fsync f")
    ops[1] = replace(ops[1], thread=1, begin=2, end=5)
    ops[2] = replace(ops[2], thread=2, begin=3, end=4)
    stamps = {ops[1].mtime_ns, ops[2].mtime_ns}
    for op in (1, 2):
        tree = {"f": file(12, written(op, 512), stamp=max(stamps))}
        assert not [text for text in judge(ops, tree, 4) if "bytes" in text]


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 3000)), min_size=1, max_size=8))
def test_model_follows_any_writes(writes: list[tuple[int, int]]) -> None:
    """After a sync the contents of a plain file are the only ones allowed."""
    lines = [f"write f {offset} {length}" for offset, length in writes]
    ops = trace("create f", *lines, "sync")
    contents = bytearray(max(offset + length for offset, length in writes))
    for number, (offset, length) in enumerate(writes, 1):
        source = written(number, offset % 512 + length, offset // 512)
        contents[offset : offset + length] = source[offset % 512 :]
    good = file(12, bytes(contents), stamp=ops[-2].mtime_ns)
    assert judge(ops, {"f": good}, len(ops)) == []
    for sector in range(len(good.sectors)):
        bad = (*good.sectors[:sector], zlib.crc32(b"?"), *good.sectors[sector + 1 :])
        assert judge(ops, {"f": replace(good, sectors=bad)}, len(ops)) != []


# --- the rest ------------------------------------------------------------------------------------


def test_parse_trace() -> None:
    line = {
        "op": 0, "thread": 0, "line": "chmod f 0640", "begin": 0, "end": 1, "errno": 0,
        "start_ns": 1, "stop_ns": 2, "ino": 12, "size": 0, "mtime_ns": 3, "ctime_ns": 4,
    }  # fmt: skip
    (op,) = parse_trace(json.dumps(line))
    assert (op.name, op.path, op.integer(2)) == ("chmod", "f", 0o640)
    with pytest.raises(FastsyncError, match=r"operation 0 \(chmod f 0640\) failed with errno 2"):
        parse_trace(json.dumps(line | {"errno": 2}))


@pytest.mark.parametrize(("size", "rest", "wrong"), [
    (4096, 0, 0), (4096, 1, 0), (1000, 0, 0), (3000, 1, 0), (3000, 0, 1),
])  # fmt: skip
def test_what_a_truncation_has_cut_off_does_not_come_back(size: int, rest: int, wrong: int) -> None:
    """The truncations are not synced; that the file has the last one's size shows that they are."""
    ops = trace("create f", "write f 0 4096", "fsync f", "truncate f 1000", "truncate f 3000")
    old, cut = written(1, 4096), written(1, 1000) + bytes(3096)
    tree = {"f": file(12, (cut if rest else old)[:size], stamp=ops[-1].mtime_ns)}
    assert len([line for line in judge(ops, tree, len(ops)) if "bytes" in line]) == wrong
