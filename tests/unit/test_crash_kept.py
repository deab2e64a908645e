"""What runs of the explorer leave for later ones, and what none sees of another."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fastsync_lab.crash import explore, kept
from fastsync_lab.crash.case import Case, Outcome, Request
from fastsync_lab.crash.explore import Explorer
from fastsync_lab.crash.kept import crash_dir, folder_of_run, keep_recording, take_recording
from fastsync_lab.crash.script import Script
from fastsync_lab.host.progress import silent

CASE = "append-defer-ordered-100-1"


@pytest.fixture(autouse=True)
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "build_dir", lambda: tmp_path)


def record(run: Path, script: str) -> Path:
    folder = run / CASE
    folder.mkdir()
    (folder / "script").write_text(script)
    return folder


def test_two_runs_of_a_case_do_not_meet() -> None:
    with folder_of_run() as one, folder_of_run() as other:
        first, second = record(one, "first"), record(other, "second")
        assert (first / "script").read_text() == "first"
        assert (second / "script").read_text() == "second"
    assert not first.exists() and not second.exists()


def test_the_last_recording_is_kept_and_is_copied() -> None:
    with folder_of_run() as run:
        assert not take_recording(run / CASE, {})
        for script in ("first", "second"):
            keep_recording(record(run, script))
        assert take_recording(run / CASE, {"script": "second"})
        (run / CASE / "script").write_text("changed")
    assert (crash_dir() / CASE / "script").read_text() == "second"
    assert [path.name for path in crash_dir().iterdir()] == [CASE]


@pytest.mark.parametrize("wanted", [{"script": "first"}, {"script": "second", "modules": "a"}])
def test_of_other_contents_nothing_is_copied(
    wanted: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with folder_of_run() as run:
        keep_recording(record(run, "second"))
        monkeypatch.setattr("shutil.copytree", lambda *_: pytest.fail("it is copied"))
        assert not take_recording(run / CASE, wanted)
        assert not (run / CASE).exists()


def test_another_run_may_replace_what_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = shutil.copytree

    def late(kept: Path, folder: Path) -> None:
        (kept / "script").write_text("second")
        copy(kept, folder)

    def fails(kept: Path, folder: Path) -> None:
        copy(kept, folder)
        raise shutil.Error("a file is gone")

    with folder_of_run() as run:
        keep_recording(record(run, "first"))
        for copying in (fails, late):
            monkeypatch.setattr("shutil.copytree", copying)
            assert not take_recording(run / CASE, {"script": "first"})
            assert not (run / CASE).exists()


def test_another_run_may_keep_its_own_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    with folder_of_run() as run, folder_of_run() as other:
        keep_recording(record(run, "first"))
        with monkeypatch.context() as late:  # it is kept between the other's two steps
            late.setattr("shutil.rmtree", lambda *_args, **_options: None)
            keep_recording(record(other, "second"))
    assert (crash_dir() / CASE / "script").read_text() == "first"


@pytest.mark.parametrize(("modules", "is_ours"), [("digest", True), ("another", False)])
def test_a_state_is_looked_at_in_a_copy_or_else_in_a_new_recording(
    modules: str, is_ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case("append", "defer", "ordered")
    request = Request((case,), state="0.none")
    script = request.script(case)

    def new(self: Explorer, case: Case, _script: Script) -> Path:
        folder = self._folder(case)
        folder.mkdir()
        (folder / "new").touch()
        return folder

    def look(_self: Explorer, case: Case, _script: Script, folder: Path, state: str) -> Outcome:
        assert state == "0.none"
        assert ("new" in [path.name for path in folder.iterdir()]) is not is_ours
        return Outcome(case)

    monkeypatch.setattr(explore, "module_digest", lambda _modules: "digest")
    monkeypatch.setattr(Explorer, "record", new)
    monkeypatch.setattr(Explorer, "look_at", look)
    kept_one = crash_dir() / case.name
    with folder_of_run() as run:
        kept_one.mkdir()
        (kept_one / "script").write_text(script.text)
        (kept_one / "modules").write_text(modules)
        (kept_one / "stays").touch()
        recoverer: Any = SimpleNamespace(vm=SimpleNamespace(out_dir=run))
        builds: Any = SimpleNamespace(subject=None)
        pool: Any = None
        explorer = Explorer(lambda: pytest.fail("booted"), recoverer, builds, run, pool, silent)
        assert explorer.run(request) == [Outcome(case)]
        assert (run / case.name).exists() is is_ours
    assert (kept_one / "stays").exists() is is_ours
