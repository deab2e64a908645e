"""What is said of a recovered state: by e2fsck, by the promises, by the other recovery."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fastsync_lab.crash import judge
from fastsync_lab.crash.case import Case
from fastsync_lab.crash.extfs import File, Tree
from fastsync_lab.crash.guest import built_program
from fastsync_lab.crash.judge import (
    Judge,
    Verdict,
    before_completion,
    differences,
    without_completion,
)
from fastsync_lab.crash.kinds import Kind
from fastsync_lab.crash.mariadb import FOLDER, read_table
from fastsync_lab.crash.recording import PAGE
from fastsync_lab.crash.recover import Found
from fastsync_lab.crash.script import Script
from fastsync_lab.crash.sql import SQLITE
from tests.unit.crashes import trace

START = 10**18
FILE = File(12, 0o100644, 0, 0, 1, 1, START, START, {}, (7,))
IMAGE = bytearray(b"a" * PAGE + b"b" * PAGE)

# --- one recovery beside the other ---------------------------------------------------------------


def test_recoveries_must_agree_on_the_names() -> None:
    assert differences({"f": FILE}, {"f": FILE}) == []
    assert differences({"b": FILE, "a": FILE}, {"c": FILE}) == [
        "a: there only after recovery by the kernel",
        "b: there only after recovery by the kernel",
        "c: there only after recovery by e2fsck",
    ]


def test_recoveries_must_agree_on_all_of_a_file() -> None:
    changed = replace(FILE, uid=1, sectors=(8,))
    assert differences({"f": changed, "e": FILE}, {"f": FILE, "e": changed}) == [
        "e: the kernel and e2fsck disagree: uid 0 and 1, sectors (7,) and (8,)",
        "f: the kernel and e2fsck disagree: uid 1 and 0, sectors (8,) and (7,)",
    ]
    long = replace(FILE, sectors=tuple(range(1000)))
    (told,) = differences({"f": long}, {"f": FILE})
    what = f"sectors {long.sectors} and (7,)"
    assert told == f"f: the kernel and e2fsck disagree: {what[:120]}"


def test_the_kernel_stamps_what_it_has_truncated() -> None:
    """That is as e2fsck says then; the stamps of others, and all else, are as they were."""
    late = replace(FILE, uid=1, mtime_ns=START + 1, ctime_ns=START + 2)
    other = replace(late, ino=13)
    by_kernel = {"f": late, "g": other, "h": late}
    by_fsck = {"f": FILE, "g": FILE}
    assert without_completion(by_kernel, by_fsck, frozenset({12})) == {
        "f": replace(FILE, uid=1),
        "g": other,
        "h": late,  # e2fsck has none
    }
    assert without_completion(by_kernel, by_fsck, frozenset()) == by_kernel


def test_what_a_recovery_that_was_cut_has_truncated_has_its_stamps() -> None:
    """It stamps both alike; other stamps, and other files, are held against the promises."""
    now = START + 10**9
    stamped = replace(FILE, size=0, mtime_ns=now, ctime_ns=now)
    unlike = replace(stamped, ctime_ns=now + 1)
    older = replace(stamped, mtime_ns=START - 1, ctime_ns=START - 1)
    for file in (unlike, older, FILE, replace(stamped, ino=13)):
        assert before_completion({"f": file}, {12: FILE}) == {"f": file}
    assert before_completion({"f": stamped}, {12: FILE}) == {"f": replace(FILE, size=0)}
    assert before_completion({"f": stamped}, {}) == {"f": stamped}


# --- a verdict -----------------------------------------------------------------------------------


class Fsck:
    """It says what it is told to, and keeps what was done with it."""

    def __init__(self, work: Path, kind: Kind) -> None:
        self.about = (work, kind)
        self.done: list[Any] = []
        self.says: dict[str, list[str]] = {}
        self.contents = "the image as it is now"
        self.truncated = frozenset[int]()

    def put(self, image: bytearray) -> None:
        self.done.append(bytes(image))

    def put_pages(self, pages: Mapping[int, bytes]) -> None:
        self.done.append(dict(pages))

    def clean(self, whose: str) -> list[str]:
        self.done.append(f"clean after {whose}")
        return self.says.get(whose, [])

    def repair(self) -> list[str]:
        self.done.append("repair")
        return self.says.get("repair", [])


class Promises:
    """An oracle that misses what is not there."""

    def __init__(self, *about: Any) -> None:
        self.about = about

    def problems(self, tree: Any, returned: frozenset[int]) -> list[str]:
        if "unreadable" in tree:
            raise ValueError("bad block")
        return [] if "f" in tree else [f"{sorted(tree)} after {sorted(returned)}"]


class Contents:
    """What e2fsck has left; of a database the same, as text."""

    tree_now: Tree | None = None

    def __init__(self, contents: str) -> None:
        assert contents == "the image as it is now"

    def __iter__(self) -> Any:
        return iter(["d"])

    def tree(self) -> Tree:
        if self.tree_now is None:
            raise IndexError("no inode 12")
        return self.tree_now


CASE = Case("append", "defer", "ordered")
Make = Callable[..., tuple[Judge, Any]]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes a judge, and the e2fsck that it asks."""
    for name, fake in (("E2fsck", Fsck), ("Oracle", Promises), ("SqlOracle", Promises),
                       ("Image", Contents)):  # fmt: skip
        monkeypatch.setattr(judge, name, fake)
    monkeypatch.setattr(Contents, "tree_now", {"f": FILE})

    def made(case: Case = CASE, script: Script | None = None) -> tuple[Judge, Any]:
        one = Judge(case, script or Script(["0 create f"]), trace("create f", "sync"), tmp_path)
        assert one._fsck.about == (tmp_path, case.kind)  # type: ignore[attr-defined]
        return one, one._fsck

    return made


STAMPED = replace(FILE, mtime_ns=START + 10**9, ctime_ns=START + 10**9)


class Stamps(Promises):
    """Is broken by a stamp of now."""

    def problems(self, tree: Any, returned: frozenset[int]) -> list[str]:
        return [path for path, file in tree.items() if file.mtime_ns != START]


def test_a_second_recovery_is_judged_knowing_what_the_first_one_completed(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "Oracle", Stamps)
    one, fsck = make()
    fsck.truncated = frozenset({12})
    completed = one.completed_in(bytes(IMAGE))
    assert completed == {12: FILE}
    assert fsck.done == [bytes(IMAGE), "repair"]
    fsck.truncated = frozenset()
    monkeypatch.setattr(Contents, "tree_now", {"f": STAMPED})
    second = found(tree={"f": STAMPED})
    assert one.verdict(IMAGE, second, RETURNED, completed) == Verdict((), (), ())
    assert one.verdict(IMAGE, second, RETURNED).kernel == ("after recovery by the kernel: f",)
    assert one.completed_in(bytes(IMAGE)) == {}


def test_an_image_that_cannot_be_read_has_nothing_completed(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, fsck = make()
    fsck.truncated = frozenset({12})
    monkeypatch.setattr(Contents, "tree_now", None)
    assert one.completed_in(bytes(IMAGE)) == {}


def found(*errors: str, tree: Tree | None = None, log: Sequence[str] = ()) -> Found:
    tree = {"f": FILE} if tree is None else tree
    return Found("1.none", errors, tuple(log), tree, {1: b"c" * PAGE})


RETURNED = frozenset({0, 1})


def test_a_sound_state(make: Make) -> None:
    one, fsck = make()
    assert one.verdict(IMAGE, found(log=["all is well"]), RETURNED) == Verdict((), (), ())
    assert fsck.done == [
        bytes(IMAGE), {1: b"c" * PAGE}, "clean after the kernel",
        {1: b"b" * PAGE}, "repair", "clean after e2fsck",
    ]  # fmt: skip
    assert one._files.about[1] == CASE.promise  # type: ignore[union-attr]
    assert [op.number for op in one._files.about[0]] == [0, 1]  # type: ignore[union-attr]


def test_all_that_is_wrong_with_a_state_is_said(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, fsck = make()
    fsck.says = {"the kernel": ["k1", "k2"], "repair": ["r1"], "e2fsck": ["e1"]}
    monkeypatch.setattr(Contents, "tree_now", {"g": FILE})
    log = ["[ 1.0] x", "[ 2.0] WARNING: y", "[ 3.0] I/O error"]
    state = found("mount failed with errno 5", "x", tree={"h": FILE}, log=log)
    assert one.verdict(IMAGE, state, RETURNED) == Verdict(
        (
            *("mount failed with errno 5", "x"),
            *("kernel: [ 2.0] WARNING: y", "kernel: [ 3.0] I/O error"),
            "after recovery by the kernel: ['h'] after [0, 1]",
        ),
        ("k1", "k2"),
        (
            *("r1", "e1"),
            "g: there only after recovery by e2fsck",
            "h: there only after recovery by the kernel",
            "after recovery by e2fsck: ['g'] after [0, 1]",
        ),
    )


def test_a_promise_that_both_recoveries_break_is_said_once(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = make()
    monkeypatch.setattr(Contents, "tree_now", {"g": FILE})
    assert one.verdict(IMAGE, found(tree={"g": FILE}), RETURNED) == Verdict(
        ("after recovery by the kernel: ['g'] after [0, 1]",), (), ()
    )


def test_junk_is_said_beside_broken_promises(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "junk_problems", lambda tree: [f"junk in {sorted(tree)}"])
    junk = "after recovery by the kernel: junk in ['h']"
    one, _ = make()
    assert one.verdict(IMAGE, found(tree={"h": FILE}), RETURNED).kernel == (
        junk, "after recovery by the kernel: ['h'] after [0, 1]",
    )  # fmt: skip
    one, _ = make(script=Script(["0 BEGIN"], sql=True))
    monkeypatch.setattr(Contents, "__contains__", lambda _self, _name: False, raising=False)
    assert one.verdict(IMAGE, found(tree={"h": FILE}), RETURNED).kernel == (
        "after recovery by the kernel: ['d'] after [0, 1]", junk,
    )  # fmt: skip


def test_what_cannot_be_read_is_said(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one, fsck = make()
    fsck.says = {"e2fsck": ["e1"], "the kernel": ["k1"]}
    monkeypatch.setattr(Contents, "tree_now", None)
    state = found(tree={"unreadable": FILE})
    assert one.verdict(IMAGE, state, RETURNED) == Verdict(
        ("after recovery by the kernel: the image cannot be read: bad block",),
        ("k1",),
        ("e1", "after e2fsck the image cannot be read: no inode 12"),
    )


def test_of_a_database_the_table_counts_once_something_has_returned(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = make(script=Script(["0 BEGIN"], sql=True))
    assert one._files is None
    assert one._sql.about == (["0 BEGIN"], SQLITE)  # type: ignore[union-attr]
    monkeypatch.setattr(Contents, "__contains__", lambda _self, _name: False, raising=False)
    assert one.verdict(IMAGE, found(), frozenset()) == Verdict((), (), ())
    assert one.verdict(IMAGE, found(), RETURNED).kernel == (
        "after recovery by the kernel: ['d'] after [0, 1]",
    )


def test_a_database_is_looked_at_again_where_e2fsck_recovers_something_else(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = make(script=Script(["0 BEGIN"], sql=True))
    monkeypatch.setattr(Contents, "tree_now", {})
    monkeypatch.setattr(Contents, "__contains__", lambda _self, _name: False, raising=False)
    assert one.verdict(IMAGE, found(), RETURNED).e2fsck[-1] == (
        "after recovery by e2fsck: ['d'] after [0, 1]"
    )


def test_a_server_is_asked_for_its_table_by_its_own_client(make: Make) -> None:
    one, _ = make(script=Script(["0 BEGIN"], sql=True, flushing="fsync"))
    _, how = one._sql.about  # type: ignore[union-attr]
    assert isinstance(how.rows, partial) and how.rows.func is read_table
    assert how.rows.keywords == {"client": built_program("crashmaria")}
    belonging = [FOLDER, f"{FOLDER}/f", f"{FOLDER}2/f", f"d/{FOLDER}"]
    assert list(map(how.belongs, belonging)) == [True, True, False, False]


def test_stamps_of_the_recovery_count_where_nothing_was_truncated(make: Make) -> None:
    late = {"f": replace(FILE, mtime_ns=START + 1)}
    for truncated, problems in (((), 1), ((13,), 1), ((12, 13), 0)):
        one, fsck = make()
        fsck.truncated = frozenset(truncated)
        assert len(one.verdict(IMAGE, found(tree=late), RETURNED).e2fsck) == problems


def test_promises_are_judged_without_the_stamps_of_the_recovery(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, fsck = make()
    fsck.truncated = frozenset({12})
    monkeypatch.setattr(one._files, "problems", lambda tree, _returned: [str(tree["f"].mtime_ns)])
    late = {"f": replace(FILE, mtime_ns=START + 1)}
    said = one.verdict(IMAGE, found(tree=late), RETURNED).kernel
    assert said == (f"after recovery by the kernel: {START}",)


def test_wrong_numbers_of_blocks_are_told_from_all_else() -> None:
    blocks = (
        "after recovery by the kernel, e2fsck -fn: Inode 13, i_blocks is 32, should be 40.  Fix? no"
    )
    warning = (
        "after recovery by the kernel, e2fsck -fn: x: *** WARNING: Filesystem still has errors ***"
    )
    assert Verdict((), (blocks, warning), ()).blocks_wrong
    assert not Verdict((), (), ()).blocks_wrong
    assert not Verdict((), (warning,), ()).blocks_wrong
    assert not Verdict((), (blocks, "Inode 14 has illegal blocks"), ()).blocks_wrong
