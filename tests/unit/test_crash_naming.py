"""What the oracle knows of symlinks, exchanged names, files that have none at first, and ACLs."""

import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.crash.extfs import ACL, NO_ID, File, Image, _acl, acl
from fastsync_lab.crash.kinds import make_base
from fastsync_lab.crash.logged_blocks import names as logged_names
from fastsync_lab.crash.model import Model, Promise
from fastsync_lab.crash.naming import FAST, TARGETS, names, target, tmpfile
from fastsync_lab.crash.script import Script
from fastsync_lab.crash.trace import Op
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.shell import run
from tests.unit.crashes import at, file, judge, trace, written

FOLDER = 0o040755


def symlink(ino: int, leads_to: str) -> File:
    return replace(file(ino, mode=0o120777), target=leads_to, size=len(leads_to))


def folder(ino: int) -> File:
    return file(ino, mode=FOLDER)


def missing_and_extra(after: int, missing: object, extra: object) -> list[str]:
    return [f"of the names after operation {after}, missing: {missing}, too many: {extra}"]


OTHER_FILES = "names lead to other files than after operation {}"

# --- symlinks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [5, FAST, FAST + 1, 190])
def test_a_symlink_leads_where_it_was_said_to(length: int) -> None:
    leads_to = target(7, length)
    ops = trace("mkdir d", f"symlink {leads_to} d/s", "fsync d")
    good = {"d": folder(12), "d/s": symlink(13, leads_to)}
    assert judge(ops, good, 3) == []
    for wrong in ("", leads_to[:-1], target(8, length), "\0" * length):
        told = [f"d/s: target is {wrong}, not {leads_to}"]
        assert judge(ops, good | {"d/s": symlink(13, wrong)}, 3) == told
        assert judge(ops, good | {"d/s": symlink(13, wrong)}, 2) == told  # not synced either


def test_a_symlink_is_there_after_fsync_of_its_folder() -> None:
    ops = trace("mkdir d", "sync", "symlink x d/s", "fsync d")
    without = {"d": folder(12)}
    assert judge(ops, without, 3) == []
    assert judge(ops, without, 4) == missing_and_extra(2, ["d/s"], "none")
    assert judge(ops, {**without, "d/s": file(13)}, 4) == [OTHER_FILES.format(2)]


def test_a_symlink_takes_the_place_of_another_as_a_whole() -> None:
    """Of the old and the new one: the old target under the new inode is of neither."""
    ops = trace(
        "mkdir d", "symlink old d/s", "sync", "symlink new d/n", "rename d/n d/s", "fsync d"
    )
    old, new = symlink(13, "old"), symlink(14, "new")
    before = {"d": folder(12), "d/s": old}
    after = {"d": folder(12), "d/s": new}
    assert judge(ops, before, 5) == [] == judge(ops, after, 5) == judge(ops, after, 6)
    assert judge(ops, {**before, "d/n": new}, 5) == []
    assert judge(ops, before, 6) == [OTHER_FILES.format(4)]
    assert judge(ops, {"d": folder(12)}, 5) == missing_and_extra(1, ["d/s"], "none")
    assert judge(ops, {**after, "d/s": replace(old, ino=14)}, 6) == ["d/s: target is old, not new"]


def test_a_removed_symlink_is_gone_for_good() -> None:
    ops = trace("mkdir d", "symlink x d/s", "fsync d", "unlink d/s", "fsync d")
    there = {"d": folder(12), "d/s": symlink(13, "x")}
    assert judge(ops, there, 4) == [] == judge(ops, {"d": folder(12)}, 4)
    assert judge(ops, there, 5) == missing_and_extra(3, "none", ["d/s"])


@pytest.mark.parametrize("line", ["fsync s", "chmod s 0600", "write s 0 100"])
def test_what_would_go_where_a_symlink_leads_to_is_refused(line: str) -> None:
    with pytest.raises(FastsyncError, match=f"^{line.split()[0]} goes where the symlink s leads"):
        Model(trace("symlink x s", line), Promise())


def test_targets_differ_and_are_short_and_long() -> None:
    assert {len(target(10, length)) for length in (1, 20, 59, 60)} == {2, 20, 59, 60}
    assert len({target(number, length) for number in range(50) for length in (1, 60)}) == 90 + 10
    assert min(TARGETS) < FAST in TARGETS and FAST + 1 in TARGETS


# --- exchanges ----------------------------------------------------------------------------------

EXCHANGE = ("create a", "create b", "sync", "exchange a b")


def of_exchange(ops: list[Op], *, happened: bool) -> dict[str, File]:
    a, b = file(12, stamp=at(0)), file(13, stamp=at(1))
    if not happened:
        return {"a": a, "b": b}
    seen, unseen = replace(a, mtime_ns=at(3), ctime_ns=at(3)), replace(b, ctime_ns=ops[3].start_ns)
    return {"a": unseen, "b": seen}


@pytest.mark.parametrize(
    ("sync", "covers"),
    [
        ("fsync a", True),
        ("fsync b", True),
        ("sync", True),
        ("fdatasync a", False),
        ("sleep 1", False),
    ],
)
def test_an_exchange_is_there_after_fsync_of_either_file(sync: str, covers: bool) -> None:
    ops = trace(*EXCHANGE, sync)
    old, new = of_exchange(ops, happened=False), of_exchange(ops, happened=True)
    for returned in (3, 4):
        assert judge(ops, old, returned) == [] == judge(ops, new, returned)
    assert judge(ops, new, 5) == []
    assert judge(ops, old, 5) == ([OTHER_FILES.format(3)] if covers else [])
    assert judge(ops, new, 2) != []  # it has not begun


def test_half_an_exchange_is_found() -> None:
    ops = trace(*EXCHANGE)
    old, new = of_exchange(ops, happened=False), of_exchange(ops, happened=True)
    both = {"a": replace(new["a"], links=2), "b": replace(new["a"], links=2)}
    for half in ({"a": old["a"], "b": new["b"]}, {"a": new["a"], "b": old["b"]}, both):
        assert judge(ops, half, 4) == [OTHER_FILES.format(1)]  # that is as near
    for name in "ab":
        assert judge(ops, {name: new[name]}, 4) == missing_and_extra(
            1, ["b" if name == "a" else "a"], "none"
        )


def test_stamps_after_an_exchange() -> None:
    ops = trace(*EXCHANGE, "sync")
    good = of_exchange(ops, happened=True)
    assert judge(ops, good, 5) == []
    for name in "ab":
        stale = replace(good[name], ctime_ns=at(1) - 10**9)
        assert [text[:11] for text in judge(ops, good | {name: stale}, 5)] == [f"{name}: ctime is"]


def test_folders_are_exchanged_with_what_is_in_them() -> None:
    lines = ("mkdir p", "mkdir pp", "mkdir q", "create p/x", "create pp/x", "create q/y", "sync")
    ops = trace(*lines, "exchange p q", "fsync q")
    inodes = {"p": 12, "pp": 13, "q": 14, "p/x": 15, "pp/x": 16, "q/y": 17}

    def tree(names: Mapping[str, str]) -> dict[str, File]:
        files = {15: file(15, stamp=at(3)), 16: file(16, stamp=at(4)), 17: file(17, stamp=at(5))}
        return {
            name: files.get(inodes[was], folder(inodes[was]))
            for name, was in {"pp": "pp", "pp/x": "pp/x", **names}.items()
        }

    old = tree({"p": "p", "q": "q", "p/x": "p/x", "q/y": "q/y"})
    new = tree({"p": "q", "q": "p", "q/x": "p/x", "p/y": "q/y"})
    half = tree({"p": "q", "q": "p", "p/x": "p/x", "q/y": "q/y"})
    assert judge(ops, old, 8) == [] == judge(ops, new, 8) == judge(ops, new, 9)
    assert judge(ops, half, 8) != []
    assert judge(ops, old, 9) == missing_and_extra(7, ["p/y", "q/x"], ["p/x", "q/y"])


def test_fsync_of_what_is_in_an_exchanged_folder_promises_no_exchange() -> None:
    ops = trace("mkdir p", "mkdir q", "create p/x", "sync", "exchange p q", "fsync q/x")
    old = {"p": folder(12), "q": folder(13), "p/x": file(14, stamp=at(2))}
    assert judge(ops, old, 6) == []


def test_a_file_is_exchanged_with_a_symlink_and_synced() -> None:
    ops = trace("create f", "symlink x s", "sync", "exchange f s", "fsync s")
    assert judge(ops, {"s": file(12, stamp=at(3)), "f": symlink(13, "x")}, 5) == []
    assert judge(ops, {"f": file(12), "s": symlink(13, "x")}, 5) == [OTHER_FILES.format(3)]
    assert judge(ops, {"f": file(12), "s": symlink(13, "x")}, 4) == []
    assert judge(ops, {"s": file(12, stamp=at(3)), "f": symlink(13, "y")}, 5) == [
        "f: target is y, not x"
    ]


def test_a_rename_that_replaces_nothing_is_a_rename() -> None:
    ops = trace("create a", "sync", "renamenew a b", "fsync b")
    assert judge(ops, {"b": file(12, stamp=at(2))}, 4) == []
    assert judge(ops, {"a": file(12)}, 4) == missing_and_extra(2, ["b"], ["a"])


# --- files without a name -----------------------------------------------------------------------

TMPFILE = ("mkdir d", "sync", "tmpfile d @3", "write @3 0 700")


def of_tmpfile(op: int, contents: bytes = written(3, 700), links: int = 1) -> dict[str, File]:
    return {"d": folder(12), "d/f": replace(file(13, contents, stamp=at(op)), links=links)}


@pytest.mark.parametrize("call", ["link", "linkfd"])
@pytest.mark.parametrize(
    ("sync", "covers"),
    [("fsync @3", True), ("fsync d/f", True), ("fsync d", True), ("fdatasync @3", False)],
)
def test_a_file_has_its_name_after_a_sync(call: str, sync: str, covers: bool) -> None:
    ops = trace(*TMPFILE, f"{call} @3 d/f", sync)
    nameless = {"d": folder(12)}
    assert judge(ops, nameless, 5) == [] == judge(ops, of_tmpfile(4), 5)
    assert judge(ops, of_tmpfile(4), 6) == []
    assert judge(ops, nameless, 6) == (missing_and_extra(4, ["d/f"], "none") if covers else [])


@pytest.mark.parametrize("sync", ["fsync @3", "fdatasync @3"])
def test_what_was_synced_without_a_name_is_there_with_it(sync: str) -> None:
    """The name may be lost; it never leads to less than what was safe before."""
    ops = trace(*TMPFILE, sync, "link @3 d/f")
    assert judge(ops, of_tmpfile(5), 6) == []
    assert judge(ops, {"d": folder(12)}, 6) == []
    for lost in (b"", bytes(700), written(3, 512)):
        assert judge(ops, of_tmpfile(5, lost), 6) != []


def test_what_was_not_synced_may_be_lost_though_the_name_is_safe() -> None:
    ops = trace(*TMPFILE, "link @3 d/f", "fsync d")
    assert judge(ops, of_tmpfile(4, b""), 6) == []
    assert judge(ops, of_tmpfile(4, bytes(700)), 6) == []
    assert judge(ops, of_tmpfile(4, b"x" * 700), 6) != []


@pytest.mark.parametrize("sync", ["fsync @3", "fsync d", "sync", "sleep 1"])
def test_a_file_that_gets_no_name_is_not_there(sync: str) -> None:
    ops = trace(*TMPFILE, sync, "close @3")
    there = of_tmpfile(3)["d/f"]
    for returned in (4, 5, 6):
        assert judge(ops, {"d": folder(12)}, returned) == []
        for path in ("d/f", "d/#13", "lost+found/#13"):
            assert judge(ops, {"d": folder(12), path: there}, returned) == missing_and_extra(
                0, "none", [path]
            )


@pytest.mark.parametrize("sync", ["fsync @3", "fdatasync @3"])
def test_a_sync_without_a_name_promises_the_names_from_before(sync: str) -> None:
    ops = trace("create a", "tmpfile d @3", "create b", sync)
    assert judge(ops, {}, 3) == []
    assert judge(ops, {}, 4) == missing_and_extra(0, ["a"], "none")
    assert judge(ops, {"a": file(12)}, 4) == []  # b came later


def test_the_links_of_a_file_that_had_no_name_are_counted() -> None:
    ops = trace(*TMPFILE, "link @3 d/f", "link d/f d/g", "sync")
    good = of_tmpfile(5, links=2)
    assert judge(ops, {**good, "d/g": good["d/f"]}, 7) == []
    one = of_tmpfile(5)
    assert judge(ops, {**one, "d/g": one["d/f"]}, 7) == [
        "d/f: 1 links, not 2", "d/g: 1 links, not 2",
    ]  # fmt: skip
    assert judge(ops, of_tmpfile(5), 7) == missing_and_extra(5, ["d/g"], "none")


def test_a_file_without_a_name_is_to_be_made_first() -> None:
    with pytest.raises(FastsyncError, match="no file @3 at this point"):
        Model(trace("write @3 0 700"), Promise())
    with pytest.raises(FastsyncError, match="no file @4 at this point"):
        Model(trace("create @4", "tmpfile d @3", "fsync @4"), Promise())


# --- ACLs ---------------------------------------------------------------------------------------

# As getxattr(2) gives it: version 2; tag, permissions, id of each entry.
ACL_5 = (
    "02000000" "01000600ffffffff" "02000500d2040000" "04000400ffffffff" "10000500ffffffff"
    "20000400ffffffff"
)  # fmt: skip


def test_fsync_promises_an_acl_and_the_mode_that_goes_with_it() -> None:
    ops = trace("create f", "sync", "setacl f 5", "fsync f")
    old = file(12)
    new = replace(file(12, stamp=at(2), mode=0o100654), xattrs={ACL: ACL_5})
    assert judge(ops, {"f": old}, 3) == [] == judge(ops, {"f": new}, 3) == judge(ops, {"f": new}, 4)
    other = ACL_5.replace("0500", "0700")
    for wrong, told in (
        ({"xattrs": {}}, f"{ACL} is none, not {ACL_5}"),
        ({"xattrs": {ACL: other}}, f"{ACL} is {other}, not {ACL_5}"),
        ({"mode": 0o100644}, f"mode is {0o644}, not {0o654}"),
    ):
        assert judge(ops, {"f": replace(new, **wrong)}, 4) == [f"f: {told}"]


def test_an_acl_is_read_from_an_image_as_the_kernel_gives_it(tmp_path: Path) -> None:
    """In the image it is of another form, which debugfs makes of the same."""
    (tmp_path / "acl").write_bytes(bytes.fromhex(ACL_5))
    make_base(tmp_path / "image", 12)
    commands = f"mkdir d\nea_set -f {tmp_path}/acl d {ACL}\nea_set d user.k v\n"
    run(["/sbin/debugfs", "-w", "-f", "-", f"{tmp_path}/image"], input_text=commands)
    image = (tmp_path / "image").read_bytes()
    assert Image(image).tree()["d"].xattrs == {ACL: ACL_5, "user.k": b"v".hex()}
    small = "01000000" "01000600" "02000500d2040000" "04000400" "10000500" "20000400"  # fmt: skip
    assert bytes.fromhex(small) in image and bytes.fromhex(ACL_5) not in image


def test_an_acl_may_be_of_a_group() -> None:
    entries = ((0x01, 6, NO_ID), (0x08, 3, 77), (0x20, 0, NO_ID))
    assert _acl(struct.pack("<IHHHHIHH", 1, 1, 6, 8, 3, 77, 0x20, 0)) == acl(entries)
    assert acl(entries)[:4] == struct.pack("<I", 2) and len(acl(entries)) == 28


# --- the workloads ------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", [names, tmpfile, logged_names])
@pytest.mark.parametrize("seed", range(8))
def test_in_a_workload_each_name_is_of_what_is_there(
    workload: Callable[[random.Random], Script], seed: int
) -> None:
    """Nothing is renamed, exchanged or removed that has no name, and no link over itself."""
    lines = [line.split(" ", 1)[1] for line in workload(random.Random(seed)).lines]
    there: dict[str, int] = {}
    for number, line in enumerate(lines):
        call, *paths = line.split()
        if call in ("create", "mkdir", "symlink", "tmpfile"):
            there[paths[-1]] = number
        elif call in ("link", "linkfd"):
            assert paths[1] not in there
            there[paths[1]] = there[paths[0]]
        elif call in ("rename", "renamenew"):
            assert there[paths[0]] != there.get(paths[1])
            assert call == "rename" or paths[1] not in there
            there[paths[1]] = there.pop(paths[0])
        elif call == "exchange":
            assert there[paths[0]] != there[paths[1]]
            there[paths[0]], there[paths[1]] = there[paths[1]], there[paths[0]]
        elif call == "unlink":
            del there[paths[0]]


@pytest.mark.parametrize(
    ("workload", "calls"),
    [
        (names, {"symlink", "rename", "renamenew", "exchange", "unlink"}),
        (tmpfile, {"tmpfile", "link", "linkfd", "rename", "unlink", "close"}),
        (logged_names, {"symlink", "rename", "exchange", "tmpfile", "link", "linkfd", "unlink"}),
    ],
)
def test_a_workload_does_all_that_it_is_for(
    workload: Callable[[random.Random], Script], calls: set[str]
) -> None:
    for seed in (1, 2, 3, 4):
        assert calls <= {line.split()[1] for line in workload(random.Random(seed)).lines}
