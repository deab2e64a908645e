"""limits.py and console.py."""

import math
import os
from pathlib import Path

import pytest

from fastsync_lab.host import shell
from fastsync_lab.host.limits import LEAST_WALL_S, WALL_FACTOR, Limit, processor_seconds
from fastsync_lab.machine import console
from fastsync_lab.machine.console import Console, forget_oldest


class Meter:
    """What a limit reads."""

    def __init__(self) -> None:
        self.value = 1000.0

    def __call__(self) -> float:
        return self.value


@pytest.mark.parametrize("seconds", [10.0, 1000.0])
def test_limit_counts_processor_time_and_the_wall_very_patiently(seconds: float) -> None:
    used, clock = Meter(), Meter()
    limit = Limit(seconds, used, clock)
    clock.value += max(LEAST_WALL_S, WALL_FACTOR * seconds)
    assert not limit.passed()
    used.value += seconds
    assert not limit.passed()
    used.value += 0.1
    assert limit.passed()
    used.value -= 1
    clock.value += 0.1
    assert limit.passed()


def test_no_limit_never_passes() -> None:
    used, clock = Meter(), Meter()
    limit = Limit(math.inf, used, clock)
    used.value = clock.value = 1e12
    assert not limit.passed()


@pytest.mark.parametrize(
    "script",
    [
        "while :; do :; done",
        "sh -c 'while :; do :; done' & wait",
        "sh -c 'x=0; while [ $x -lt 2000000 ]; do x=$((x + 1)); done'; sleep 100",
    ],
    ids=["leader", "member", "member that has ended"],
)
def test_processor_time_is_of_the_process_group_alone(script: str) -> None:
    sleeping = shell.spawn(["sleep", "100"])
    working = shell.spawn(["sh", "-c", script])
    try:
        while processor_seconds(working.pid) < 0.2:
            assert working.poll() is None
        assert processor_seconds(sleeping.pid) < 0.1
    finally:
        shell.kill_group(sleeping)
        shell.kill_group(working)
    assert processor_seconds(working.pid) == math.inf


def test_console_keeps_all_and_knows_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "build_dir", lambda: tmp_path)
    one, other = Console(), Console()
    assert one.path != other.path
    with one.path.open("ab") as file:
        file.write(b"boot\r\n")
        file.flush()
        start = one.size()
        file.write(b"later\xff\r\n")
    assert one.text() == "boot\nlater\ufffd\n"
    assert one.text(start) == "later\ufffd\n"
    other.path.unlink()
    assert (other.size(), other.text()) == (0, "")


def test_oldest_logs_are_forgotten(tmp_path: Path) -> None:
    for number in range(5):
        file = tmp_path / f"console-{number}.log"
        file.write_text("")
        os.utime(file, (number, number))
    (tmp_path / "other").write_text("")
    (tmp_path / "console-gone.log").symlink_to(tmp_path / "nothing")  # another removed it meanwhile
    forget_oldest(tmp_path, 2)
    left = {file.name for file in tmp_path.iterdir() if file.is_file()}
    assert left == {"console-3.log", "console-4.log", "other"}


def test_the_log_of_a_guest_is_kept_while_it_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "build_dir", lambda: tmp_path)
    monkeypatch.setattr(console, "KEPT_LOGS", 2)
    quiet = Console()
    log = quiet.path
    os.utime(log, (0, 0))
    later = []
    for number in range(1, 5):  # guests that have ended
        later.append(Console().path)
        os.utime(later[-1], (number, number))
    assert log.exists() and [one.exists() for one in later] == [False, False, True, True]
    del quiet
    forget_oldest(log.parent, 1)
    assert not log.exists() and [one.exists() for one in later] == [False, False, False, True]
