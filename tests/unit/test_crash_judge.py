"""What is said of a recovered state: by e2fsck, by the promises, by the other recovery."""

import os
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
from fastsync_lab.crash.judge import E2fsck, Judge, Verdict, differences, without_completion
from fastsync_lab.crash.kinds import EXTERNAL_MIB, KINDS, Kind
from fastsync_lab.crash.mariadb import read_table
from fastsync_lab.crash.recording import PAGE
from fastsync_lab.crash.recover import Found
from fastsync_lab.crash.script import Script
from fastsync_lab.crash.sql import read_sqlite
from fastsync_lab.host.shell import Completed
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
    assert one._sql.about == (["0 BEGIN"], read_sqlite)  # type: ignore[union-attr]
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
    _, read = one._sql.about  # type: ignore[union-attr]
    assert isinstance(read, partial) and read.func is read_table
    assert read.keywords == {"client": built_program("crashmaria")}


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


# --- e2fsck --------------------------------------------------------------------------------------


class Program:
    """In place of run(): it says what it is told to."""

    def __init__(self, status: int, said: str) -> None:
        self.answer, self.calls = Completed(status, said, "not looked at"), list[Any]()

    def __call__(self, argv: list[str], **options: Any) -> Completed:
        self.calls.append((argv, options))
        return self.answer


def asked(monkeypatch: pytest.MonkeyPatch, status: int, said: str = "") -> Program:
    program = Program(status, said)
    monkeypatch.setattr(judge, "run", program)
    return program


def test_e2fsck_says_whose_truncation_it_has_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsck = E2fsck(tmp_path, KINDS["ordered"])
    orphans = "Truncating orphaned inode 24 (uid=0, gid=0, mode=0100644, size=0)\n"
    for said, truncated in ((orphans, {24}), (orphans + orphans.replace("24", "5"), {24, 5}),
                            ("Clearing orphaned inode 24\n", set())):  # fmt: skip
        asked(monkeypatch, 1, said)
        assert fsck.repair() == [] and fsck.truncated == truncated


OPTIONS = {
    "env": {"E2FSCK_TIME": "4102444800", "LC_ALL": "C.UTF-8"},
    "check": False,
    "timeout_s": 1800,
}


@pytest.mark.parametrize(("kind", "journal"), [("ordered", False), ("external", True)])
def test_how_e2fsck_is_run(
    kind: str, journal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsck = E2fsck(tmp_path, KINDS[kind])
    program = asked(monkeypatch, 0)
    assert fsck.clean("x") == fsck.repair() == []
    more = ["-j", f"{tmp_path}/journal"] if journal else []
    assert program.calls == [
        (["/sbin/e2fsck", option, *more, f"{tmp_path}/image"], OPTIONS) for option in ("-fn", "-fy")
    ]


@pytest.mark.parametrize(
    ("status", "said", "problems"),
    [
        (0, "Inode 13 is wrong\n", []),
        (4, "Pass 1: x\n\n  Inode 13 is wrong  \nInode 14\n", ["Inode 13 is wrong", "Inode 14"]),
        (4, "Pass 1: x\n", ["status 4"]),
        (-9, "", ["status -9"]),
    ],
)
def test_what_e2fsck_says_of_a_recovery(
    status: int, said: str, problems: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(monkeypatch, status, said)
    assert E2fsck(tmp_path, KINDS["ordered"]).clean("the kernel") == [
        f"after recovery by the kernel, e2fsck -fn: {problem}" for problem in problems
    ]


QUIET = "x: recovering journal\nPass 1: y\nz: ***** FILE SYSTEM WAS MODIFIED *****\n"


@pytest.mark.parametrize(
    ("status", "said", "problem"),
    [
        (0, QUIET, None),
        (1, QUIET, None),
        (1, f"{QUIET}A\nB\nC\nD\n", "e2fsck -fy ended with 1: A | B | C"),
        (0, "A\n", "e2fsck -fy ended with 0: A"),
        (2, "A\n", "e2fsck -fy ended with 2: A"),
        (2, f"{'0' * 400} Fix? yes", f"e2fsck -fy ended with 2: {'0' * 291} Fix? yes"),
    ],
)
def test_what_e2fsck_says_of_its_own_recovery(
    status: int, said: str, problem: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(monkeypatch, status, said)
    found = E2fsck(tmp_path, KINDS["ordered"]).repair()
    assert found == ([problem] if problem else [])


@pytest.mark.parametrize("kind", ["ordered", "external"])
def test_pages_are_put_where_they_belong(tmp_path: Path, kind: str) -> None:
    """Behind the file system is the external journal, in a file of its own."""
    data = bytearray(os.urandom((EXTERNAL_MIB + 1) << 20))
    fsck = E2fsck(tmp_path, KINDS[kind])
    fsck.put(data)
    numbers = [0, 255, 256, (len(data) // PAGE) - 1]
    fsck.put_pages({number: bytes([number & 0x7F]) * PAGE for number in numbers})
    for number in numbers:
        data[number * PAGE : (number + 1) * PAGE] = bytes([number & 0x7F]) * PAGE
    files = ["image", "journal"] if kind == "external" else ["image"]
    assert b"".join((tmp_path / name).read_bytes() for name in files) == data
