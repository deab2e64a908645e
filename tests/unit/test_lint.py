"""lint.py on logs that the compiler and sparse could have written."""

import runpy
import warnings
from pathlib import Path

import pytest

from fastsync_lab.host import interrupt, kernels, lint
from fastsync_lab.host.build import Kbuild
from fastsync_lab.host.chroot import HERE
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.kernels import find_series, tree_at
from fastsync_lab.host.shell import Completed

OURS = "mtime.c:12:3: warning: symbol 'x' was not declared. Should it be static?"
THEIRS = "/cache/include/linux/list.h:4:5: warning: something about the kernel"
UNREADABLE = "/cache/include/linux/list.h:4:5: error: Expected ) at end of cast operator"


def check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: str, status: int = 0) -> list[str]:
    """What compile_strictly() makes of a log."""
    monkeypatch.setattr(Kbuild, "make", lambda *_: Completed(status, "  CC [M] mtime.o\n", log))
    tree = tree_at(tmp_path, find_series("6.12"), "6.12.117-1~deb12u1", "6.12.117+deb12-amd64")
    return lint.compile_strictly(Kbuild(tree, HERE), tmp_path, [Path("mtime.c"), Path("mtime.h")])


def test_only_what_is_about_our_files_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert check(monkeypatch, tmp_path, f"{THEIRS}\n{OURS}\n") == [OURS]
    assert check(monkeypatch, tmp_path, THEIRS) == []


@pytest.mark.parametrize(("log", "status"), [(UNREADABLE, 0), ("make: *** Error 2", 2)])
def test_what_cannot_be_checked_is_no_clean_bill(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: str, status: int
) -> None:
    with pytest.raises(FastsyncError, match=r"^6\.12: cannot check .*: "):
        check(monkeypatch, tmp_path, log, status)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mtime.c", ["--file"]),
        ("compat.h", ["LINUX_VERSION_CODE,CONSTANT_COMPARISON", "--file"]),
        ("mtime_compat.h", ["LINUX_VERSION_CODE,CONSTANT_COMPARISON", "--file"]),
        ("qasio_trace.h", ["OPEN_ENDED_LINE,PARENTHESIS_ALIGNMENT", "--file"]),
        ("0001-x.patch", ["--no-signoff", "CAMELCASE"]),
    ],
)
def test_only_compat_headers_may_ask_for_the_kernels_version(name: str, words: list[str]) -> None:
    options = lint.checkpatch_options(Path(name))
    assert [word for word in options if word not in ("--ignore", name)] == words


def test_a_signal_ends_it_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """As interrupt.guarded() does; it is not run here."""
    ran: list[str] = []
    monkeypatch.setattr(interrupt, "guarded", lambda main: ran.append(main.__name__))
    monkeypatch.setattr(kernels, "load_series", dict)
    with warnings.catch_warnings(action="ignore"):  # it is imported already
        runpy.run_module(lint.__name__, run_name="__main__")
    assert ran == ["main"]


@pytest.mark.parametrize("complaints", [[], ["mtime.c:1: x", "mtime.c:2: y"]])
def test_a_complaint_is_told_by_the_status(
    complaints: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lint, "kernel_complaints", lambda: complaints)
    with pytest.raises(SystemExit) as ended:
        lint.main()
    assert ended.value.code == bool(complaints)
    said = capsys.readouterr().out.splitlines()
    assert said == complaints if complaints else "have nothing to say" in said[0]
