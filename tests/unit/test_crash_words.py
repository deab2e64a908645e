"""What the oracle says of a state, word by word, and what a mode promises."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fastsync_lab.crash.extfs import File, Tree
from fastsync_lab.crash.model import Promise
from fastsync_lab.crash.oracle import Oracle
from fastsync_lab.crash.trace import Op
from tests.unit.crashes import BLOCK, MS, SHIFTED, START, blocks, file, judge, trace, written

AT = START + 50 * MS


def of_names(tree: Tree, returned: int, *lines: str) -> list[str]:
    return judge(trace(*lines), tree, returned)


def test_missing_and_unknown_names_are_told() -> None:
    lines = ("create a", "sync", "create b", "sync")
    a, b = file(12), file(13, stamp=START + 100 * MS)
    assert of_names({"b": b, "c": file(14)}, 4, *lines) == [
        "of the names after operation 2, missing: ['a'], too many: ['c']"
    ]
    assert of_names({"a": a}, 4, *lines) == [
        "of the names after operation 2, missing: ['b'], too many: none"
    ]
    assert of_names({"a": a, "b": b, "d": b, "c": b}, 4, *lines) == [
        "of the names after operation 2, missing: none, too many: ['c', 'd']"
    ]
    assert of_names({"a": a, "c": b}, 2, "sync", "sync", "create x") == [
        "of the names after the start, missing: none, too many: ['a', 'c']"
    ]
    assert of_names({"a": file(77), "b": b}, 4, *lines) == [
        "names lead to other files than after operation 2"
    ]


def test_of_several_moments_the_nearest_is_told() -> None:
    lines = ("create a", "sync", "create b", "create c", "create d")
    files = {name: file(12 + number) for number, name in enumerate("abcd")}
    tree = {name: files[name] for name in "acd"}
    assert of_names(tree, 4, *lines) == [
        "of the names after operation 4, missing: ['b'], too many: none"
    ]


@pytest.mark.parametrize(
    ("line", "changed", "text"),
    [
        ("chmod f 0600", {}, "mode is 420, not 384"),
        ("chown f 7 8", {"uid": 7}, "owner is (7, 0), not (7, 8)"),
        ("setxattr f user.k v", {}, "user.k is none, not 76"),
        ("setxattr f user.k v", {"xattrs": {"user.k": "77"}}, "user.k is 77, not 76"),
    ],
)
def test_a_lost_attribute_is_told(line: str, changed: dict[str, object], text: str) -> None:
    ops = trace("create f", "sync", line, "fsync f")
    left = replace(file(12, stamp=ops[2].ctime_ns), **changed)  # type: ignore[arg-type]
    assert judge(ops, {"f": left}, 4) == [f"f: {text}"]


def test_what_may_be_there_instead_is_told_shortened() -> None:
    ops = trace("create f", "sync", "chmod f 0600", "chmod f 0601", "fsync f", *["chmod f 0700"])
    assert judge(ops, {"f": file(12, mode=0o100777, stamp=ops[5].ctime_ns)}, 6) == [
        "f: mode is 511, not 385 or 448"
    ]
    lines = [f"chmod f 060{digit}" for digit in range(6)]
    ops = trace("create f", "sync", *lines)
    (told,) = judge(ops, {"f": file(12, mode=0o100777)}, 8)
    assert told == "f: mode is 511, not 387 or 388 or 389 or 420 or ..."
    ops = trace("create f", "sync", *lines[:4])
    (told,) = judge(ops, {"f": file(12, mode=0o100777)}, 6)
    assert told == "f: mode is 511, not 385 or 386 or 387 or 420 or ..."
    ops = trace("create f", "sync", *lines[:3])
    (told,) = judge(ops, {"f": file(12, mode=0o100777)}, 5)
    assert told == "f: mode is 511, not 384 or 385 or 386 or 420"


def test_an_xattr_that_nobody_set_is_told() -> None:
    stray = replace(file(12), xattrs={"user.x": "01"})
    assert judge(trace("create f", "sync"), {"f": stray}, 2) == ["f: user.x is 01, not none"]


@pytest.mark.parametrize("returned", [0, 1, 2])
def test_an_xattr_that_nobody_synced_may_not_be_there_yet(returned: int) -> None:
    assert judge(trace("create f", "setxattr f user.k v"), {"f": file(12)}, returned) == []


def test_a_write_is_not_where_its_block_was_before_a_shift_that_is_durable() -> None:
    lines = ["create f", f"write f 0 {4 * BLOCK}", "sync", SHIFTED[0][0], "fsync f"]
    ops = trace(*lines, f"write f {BLOCK} {BLOCK}")
    stray = file(12, blocks((1, 0), (1, 2), (5, 1)), stamp=ops[5].mtime_ns)
    assert judge(ops, {"f": stray}, 6) == [
        "f: bytes 8192 to 8703 are not what was written by operation 3 (and 7 more sectors)"
    ]


def test_a_name_whose_operation_has_not_begun_is_not_there() -> None:
    ops = trace("create a", "create b", "create c")
    files = {"a": file(12), "b": file(13, stamp=AT)}
    assert judge(ops, {"a": files["a"]}, 0) == []
    assert judge(ops, files, 0) == [
        "of the names after operation 0, missing: none, too many: ['b']"
    ]
    nothing: frozenset[int] = frozenset()
    assert Oracle(ops, Promise()).problems({"a": files["a"]}, nothing, nothing) == [
        "of the names after the start, missing: none, too many: ['a']"
    ]


def test_an_unsynced_write_may_have_grown_the_file_in_part() -> None:
    ops = trace("create f", "sync", "write f 0 4096")
    assert judge(ops, {"f": file(12, written(2, 4096)[:2048], stamp=START)}, 3) == []


def test_a_synchronous_write_promises_its_own_size_and_contents_and_no_others() -> None:
    ops = trace("create f", "sync", "owrite f 0 4096")
    assert judge(ops, {"f": file(12, written(2, 4096)[:2048], stamp=ops[2].mtime_ns)}, 3) == [
        "f: size is 2048, not 4096"
    ]
    ops = trace("create f", "sync", "write f 4096 4096", "owrite f 0 512")
    stamp = ops[3].mtime_ns
    grown = file(12, written(3, 512) + bytes(3584), stamp=stamp)
    assert judge(ops, {"f": grown}, 4) == []
    ops = trace("create f", "write f 0 1024", "sync", "owrite f 0 512")
    lost = file(12, written(1, 1024), stamp=stamp)
    assert judge(ops, {"f": lost}, 4) == [
        "f: bytes 0 to 511 are not what was written by operation 3"
    ]


def test_a_wrong_size_is_told() -> None:
    ops = trace("create f", "write f 0 5000", "fsync f")
    short = file(12, written(1, 4096), stamp=AT)
    assert "f: size is 4096, not 5000" in judge(ops, {"f": short}, 3)
    grown = file(12, written(1, 5000) + bytes(1000), stamp=AT)
    assert "f: size is 6000, not 5000" in judge(ops, {"f": grown}, 3)


def test_wrong_contents_are_told_with_their_writers() -> None:
    ops = trace("create f", "write f 0 1300", "fsync f")
    data = written(1, 1300)
    bad = file(12, data[:512] + bytes(512) + data[1024:], stamp=AT)
    assert judge(ops, {"f": bad}, 3) == [
        "f: bytes 512 to 1023 are not what was written by operation 1"
    ]
    bad = file(12, data[:1024] + bytes(276), stamp=AT)
    assert judge(ops, {"f": bad}, 3) == [
        "f: bytes 1024 to 1299 are not what was written by operation 1"
    ]
    bad = file(12, data[:512] + bytes(788), stamp=AT)
    assert judge(ops, {"f": bad}, 3) == [
        "f: bytes 512 to 1023 are not what was written by operation 1 (and 1 more sectors)"
    ]
    bad = file(12, bytes(1300), stamp=AT)
    assert judge(ops, {"f": bad}, 3) == [
        "f: bytes 0 to 511 are not what was written by operation 1 (and 2 more sectors)"
    ]
    ops = trace("create f", "sync", "write f 0 512")
    assert judge(ops, {"f": file(12, b"x" * 512, stamp=START)}, 3) == [
        "f: bytes 0 to 511 are not what was written by nobody or operation 2"
    ]


def test_wrong_stamps_and_links_are_told() -> None:
    ops = trace("create f", "write f 0 100", "fsync f")
    wrong = replace(file(12, written(1, 100), stamp=AT), ctime_ns=START, links=2)
    assert judge(ops, {"f": wrong}, 3) == [
        f"f: ctime is {START}, not {AT}",
        "f: 2 links, not 1",
    ]


def test_lost_and_found_is_nobodys() -> None:
    tree = {"f": file(12), "lost+found": file(11, mode=0o040700)}
    assert judge(trace("create f", "sync"), tree, 2) == []


# --- changes of size and names -------------------------------------------------------------------


def test_what_a_truncation_cut_off_is_zeros_when_the_file_grows_again() -> None:
    ops = trace("create f", "write f 0 1000", "sync", "truncate f 700", "truncate f 1000", "sync")
    data, stamp = written(1, 1000), ops[4].mtime_ns
    assert judge(ops, {"f": file(12, data[:700] + bytes(300), stamp=stamp)}, 6) == []
    assert judge(ops, {"f": file(12, data, stamp=stamp)}, 6) != []
    assert judge(ops, {"f": file(12, data[:700], stamp=stamp)}, 6) == ["f: size is 700, not 1000"]
    short = file(12, data[:700], stamp=ops[3].mtime_ns)
    assert judge(ops, {"f": short}, 5) == []
    assert judge(ops, {"f": short}, 3) == judge(ops, {"f": short}, 4) == []
    assert judge(ops[:4], {"f": short}, 2) != []


@pytest.mark.parametrize(("mode", "size"), [(0, 5000), (1, 700)])
def test_room_for_a_file_changes_its_size_unless_told_not_to(mode: int, size: int) -> None:
    ops = trace("create f", "write f 0 700", "sync", f"falloc f {mode} 0 5000", "sync")
    data = written(1, 700).ljust(size, b"\0")
    assert judge(ops, {"f": file(12, data, stamp=ops[3].mtime_ns)}, 5) == []
    other = written(1, 700).ljust(5700 - size, b"\0")
    assert judge(ops, {"f": file(12, other, stamp=ops[3].mtime_ns)}, 5) == [
        f"f: size is {5700 - size}, not {size}"
    ]


def test_fsync_covers_a_rename_and_fdatasync_does_not() -> None:
    lines = ("create a", "sync", "rename a b")
    stamp = trace(*lines)[2].mtime_ns
    assert judge(trace(*lines, "fsync b"), {"a": file(12, stamp=stamp)}, 4) == [
        "of the names after operation 2, missing: ['b'], too many: ['a']"
    ]
    assert judge(trace(*lines, "fdatasync b"), {"a": file(12)}, 4) == []


def test_fdatasync_promises_that_a_new_file_is_there() -> None:
    assert judge(trace("create f", "fdatasync f"), {}, 2) == [
        "of the names after operation 0, missing: ['f'], too many: none"
    ]
    assert judge(trace("create f", "write f 0 512"), {}, 2) == []


def test_of_two_files_in_turn_under_one_name_and_inode_either_may_be_there() -> None:
    ops = trace("create f", "unlink f", "create f")
    ops[2] = replace(ops[2], ino=12)
    for op in (0, 2):
        assert judge(ops, {"f": file(12, stamp=ops[op].mtime_ns)}, 3) == []
    assert judge(ops, {"f": file(12, stamp=START - MS * 100)}, 3) != []


def test_a_synchronous_write_promises_nothing_of_the_sector_before() -> None:
    ops = trace("create f", "write f 0 1024", "sync", "write f 0 512", "owrite f 512 512")
    kept = written(1, 512) + written(4, 512, 1)
    assert judge(ops, {"f": file(12, kept, stamp=ops[4].mtime_ns)}, 5) == []


def test_a_folder_is_renamed_with_what_is_in_it() -> None:
    ops = trace("mkdir d", "create d/x", "create dd", "sync", "rename d e", "sync")
    folder, x, dd = file(12, mode=0o040755), file(13, stamp=AT), file(14, stamp=ops[2].mtime_ns)
    assert judge(ops, {"e": folder, "e/x": x, "dd": dd}, 6) == []
    assert judge(ops, {"d": folder, "d/x": x, "dd": dd}, 6) != []


def test_a_file_that_another_takes_the_place_of_lives_on_by_its_other_name() -> None:
    ops = trace("create a", "create b", "link b c", "sync", "rename a b", "sync")
    a = file(12, stamp=ops[4].mtime_ns)
    linked = replace(file(13, stamp=ops[2].mtime_ns), links=2)
    left = replace(linked, links=1, ctime_ns=ops[4].start_ns)  # not seen by anybody
    assert judge(ops, {"b": a, "c": left}, 6) == []
    never = replace(left, ctime_ns=ops[5].stop_ns + 1)
    assert judge(ops, {"b": a, "c": never}, 6) != []
    assert judge(ops, {"a": file(12), "b": linked, "c": linked}, 6) != []
    assert judge(ops, {"a": file(12), "b": linked, "c": linked}, 5) == []


# --- threads ------------------------------------------------------------------------------------


def of_two_threads() -> list[Op]:
    ops = trace("mkdir t1", "mkdir t2", "create t1/a", "create t2/b", "sync")
    return [*ops[:2], replace(ops[2], thread=1), replace(ops[3], thread=2), ops[4]]


def test_each_threads_folder_is_judged_by_itself() -> None:
    ops = of_two_threads()
    folders: dict[str, File] = {
        "t1": file(12, mode=0o040755),
        "t2": file(13, mode=0o040755, stamp=AT),
    }
    a = file(14, stamp=START + 100 * MS)
    b = file(15, stamp=START + 150 * MS)
    for tree, returned, told in (
        ({**folders, "t1/a": a, "t2/b": b}, 5, []),
        ({**folders, "t2/b": b}, 4, []),
        ({**folders, "t1/a": a}, 4, []),
        (
            {**folders, "t1/a": a},
            5,
            ["of the names after operation 3, missing: ['t2/b'], too many: none"],
        ),
    ):
        assert judge(ops, tree, returned) == told


# --- stamps -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "promise"),
    [
        ("defer", Promise(defer_ms=30, coarse_ms=0, grain_ns=7)),
        ("truncate", Promise(defer_ms=0, coarse_ms=30, grain_ns=7)),
        ("off", Promise(defer_ms=0, coarse_ms=0, grain_ns=7)),
        ("stock", Promise(defer_ms=0, coarse_ms=0, grain_ns=7)),
    ],
)
def test_what_a_mode_promises(mode: str, promise: Promise) -> None:
    assert Promise.of(mode, 30, 7) == promise
    assert Promise.of(mode, 30) == replace(promise, grain_ns=1)
    assert Promise() == Promise(0, 0, 1)


@pytest.mark.parametrize(
    ("options", "promise"),
    [
        ("mtime_update=40,mtime_mode=defer", Promise(40, 0, 7)),
        ("mtime_mode=truncate,mtime_update=50", Promise(0, 50, 7)),
        ("un_mtime_update", Promise(0, 0, 7)),
        ("noatime,barrier=1", Promise(30, 0, 7)),
    ],
)
def test_what_a_remount_promises(options: str, promise: Promise) -> None:
    assert Promise(30, 0, 7).remounted(options) == promise


def test_of_two_modes_the_weaker_counts_in_each_way() -> None:
    assert Promise(30, 5, 7).weaker(Promise(10, 50, 9)) == Promise(30, 50, 7)
    assert Promise(10, 50, 7).weaker(Promise(30, 5, 9)) == Promise(30, 50, 7)


TICK = 10 * MS


@pytest.mark.parametrize(
    ("promise", "stamp", "is_good"),
    [
        (Promise(), -TICK, True),
        (Promise(), -TICK - 1, False),
        (Promise(), MS, True),
        (Promise(), MS + 1, False),
        (Promise(coarse_ms=20), -TICK - 20 * MS, True),
        (Promise(coarse_ms=20), -TICK - 20 * MS - 1, False),
        (Promise(grain_ns=1000), -TICK - 999, True),
        (Promise(grain_ns=1000), -TICK - 1000, False),
    ],
)
def test_a_stamp_that_nobody_saw_lies_within_its_operation(
    promise: Promise, stamp: int, is_good: bool
) -> None:
    """An unsynced write of 1 ms, whose stamp is known by its time alone: relative to its start."""
    ops: Sequence[Op] = trace("create f", "sync", "write f 0 100", step_ms=500)
    when = ops[2].start_ns + stamp
    tree = {"f": file(12, written(2, 100), stamp=when)}
    assert (Oracle(ops, promise).problems(tree, frozenset(range(3))) == []) is is_good
