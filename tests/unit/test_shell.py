"""shell.py: child processes."""

import os
from pathlib import Path

import pytest

from fastsync_lab.host import shell
from fastsync_lab.host.errors import FastsyncError
from tests.processes import still_running


def test_run_returns_status_and_both_streams() -> None:
    done = shell.run(["sh", "-c", "cat; echo e >&2; exit 3"], input_text="hi", check=False)
    assert (done.status, done.stdout, done.stderr) == (3, "hi", "e\n")


def test_run_raises_with_the_last_lines_of_stderr() -> None:
    with pytest.raises(FastsyncError, match=r"sh failed with status 3: what \| why"):
        shell.run(["sh", "-c", "echo what >&2; echo why >&2; exit 3"])


def test_run_of_a_program_that_is_not_there() -> None:
    with pytest.raises(FastsyncError, match="cannot run no-such-program"):
        shell.run(["no-such-program"])


def test_time_out_kills_the_whole_group(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    pid_file.write_text("")
    script = f"sleep 1000 & echo $! >{pid_file}; wait"
    for limit_s in (0.5, 5, 50):  # a busy host may take a while to start anything
        with pytest.raises(FastsyncError, match=f"longer than {limit_s} s"):
            shell.run(["sh", "-c", script], timeout_s=limit_s)
        if pid_file.read_text():
            break
    assert still_running(int(pid_file.read_text())) == []


def test_environment_is_added_to() -> None:
    done = shell.run(["sh", "-c", "echo $FASTSYNC_X $HOME"], env={"FASTSYNC_X": "1"})
    assert done.stdout == f"1 {os.environ.get('HOME', '')}\n"


def test_programs_speak_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("LANGUAGE", "de")
    assert shell.run(["sh", "-c", "echo $LC_ALL-$LANGUAGE"]).stdout == "C.UTF-8-\n"
