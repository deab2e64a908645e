"""What runs of the explorer leave for later ones, and what none sees of another."""

from pathlib import Path

import pytest

from fastsync_lab.crash import kept
from fastsync_lab.crash.kept import crash_dir, folder_of_run, keep_recording, take_recording

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
        assert not take_recording(run / CASE)
        for script in ("first", "second"):
            keep_recording(record(run, script))
        assert take_recording(run / CASE)
        (run / CASE / "script").write_text("changed")
    assert (crash_dir() / CASE / "script").read_text() == "second"
    assert [path.name for path in crash_dir().iterdir()] == [CASE]


def test_another_run_may_keep_its_own_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    with folder_of_run() as run, folder_of_run() as other:
        keep_recording(record(run, "first"))
        with monkeypatch.context() as late:  # it is kept between the other's two steps
            late.setattr("shutil.rmtree", lambda *_args, **_options: None)
            keep_recording(record(other, "second"))
    assert (crash_dir() / CASE / "script").read_text() == "first"
