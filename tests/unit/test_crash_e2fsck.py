"""What the judge has e2fsck do, and takes from it."""

import os
from pathlib import Path
from typing import Any

import pytest

from fastsync_lab.crash import judge
from fastsync_lab.crash.judge import E2fsck
from fastsync_lab.crash.kinds import EXTERNAL_MIB, KINDS
from fastsync_lab.crash.recording import PAGE
from fastsync_lab.host.shell import Completed


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
