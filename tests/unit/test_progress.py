"""What long work shows on a terminal and in a log."""

from pathlib import Path

import pytest

from fastsync_lab.host import fetch, shell
from fastsync_lab.host.build import follow_compiler
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.progress import (
    PASSING_EACH_S,
    Finished,
    OnScreen,
    Passing,
    Tally,
    in_words,
    plain_lines,
)


class FakeScreen:
    """What was shown: lines that stay, and the status with "*" where a step began."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.shown: list[str] = []

    def keep(self, line: str) -> None:
        self.lines.append(line)

    def status(self, text: str, *, new_step: bool) -> None:
        self.shown.append(f"*{text}" if new_step else text)


class Clock:
    """A time that passes when it is told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_on_a_terminal_steps_and_results_stay_in_their_order() -> None:
    screen = FakeScreen()
    report = OnScreen(screen)
    report("fetching")
    report(Passing("fetching: 3 MB"))
    report("building")
    report(Finished("cell 1"))
    report(Finished("cell 2"))
    report("booting")
    assert screen.lines == ["fetching", "building", "cell 1", "cell 2"]
    assert screen.shown == ["*fetching", "fetching: 3 MB", "*building", "*booting"]
    report.close()
    report.close()
    assert screen.lines[4:] == ["booting"]


def test_a_log_gets_every_step_and_result_and_few_of_the_rest() -> None:
    lines: list[str] = []
    clock = Clock()
    report = plain_lines(lines.append, clock)
    report("fetching")
    for number in range(5):
        report(Passing(f"{number} MB"))
        clock.now_s += PASSING_EACH_S / 2
    report(Finished("cell 1"))
    report(Passing("1 of 2"))
    assert lines == [
        "fastsync: fetching",
        "fastsync: 2 MB",
        "fastsync: 4 MB",
        "fastsync: cell 1",
    ]


def test_a_tally_says_how_many_are_done_and_how_long_the_rest_takes() -> None:
    clock = Clock()
    said: list[str] = []
    tally = Tally(10, "runs", said.append, clock)
    tally.keep(4)
    assert str(tally) == "4 of 10 runs done"
    clock.now_s += 240
    tally.add("cell 5")
    tally.add("cell 6")
    assert said == [
        "cell 5",
        "5 of 10 runs done, about 20 min left",
        "cell 6",
        "6 of 10 runs done, about 8 min left",  # what was there from before took no time
    ]
    assert [type(one) for one in said] == [Finished, Passing] * 2
    for number in range(7, 11):
        tally.add(f"cell {number}")
    assert said[-1] == "10 of 10 runs done"


def test_a_time_that_is_left_is_told_as_roughly_as_it_is_known() -> None:
    times = [in_words(seconds) for seconds in (0, 59, 61, 89, 91, 7100, 7200, 9000)]
    assert times == [
        "less than a minute",
        "less than a minute",
        "about 1 min",
        "about 1 min",
        "about 2 min",
        "about 118 min",
        "about 2.0 h",
        "about 2.5 h",
    ]


def test_a_download_tells_how_much_has_come(tmp_path: Path) -> None:
    said: list[str] = []
    look = fetch.sizer("linux-image", tmp_path, said.append)
    look()
    (tmp_path / "partial").mkdir()
    (tmp_path / "partial" / "linux-image_1_amd64.deb").write_bytes(bytes(3_400_000))
    (tmp_path / "linux-headers_1_amd64.deb").write_bytes(bytes(5_000_000))
    look()
    assert said == ["fetching linux-image: 0 MB", "fetching linux-image: 3 MB"]
    assert all(isinstance(one, Passing) for one in said)


def test_a_file_that_is_renamed_meanwhile_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    (tmp_path / "linux-image_1_amd64.deb").symlink_to(tmp_path / "renamed")
    (tmp_path / "linux-image_2_amd64.deb").write_bytes(bytes(2_000_000))
    monkeypatch.setattr(Path, "is_file", lambda _: True)  # it was there a moment ago
    fetch.sizer("linux-image", tmp_path, said.append)()
    assert said == ["fetching linux-image: 2 MB"]


def test_a_build_tells_how_many_files_are_compiled(tmp_path: Path) -> None:
    said: list[str] = []
    log = tmp_path / "log"
    script = "echo '  CC [M]  fs/ext4/a.o'; echo '  LD x.o'; echo ' CC  b.o'; exit $1"
    argv = ["sh", "-c", script, "sh"]
    text = follow_compiler([*argv, "0"], log, "ext4", said.append)
    assert said == [
        "building ext4: 1 files compiled, now a.o",
        "building ext4: 2 files compiled, now b.o",
    ]
    assert all(isinstance(one, Passing) for one in said)
    assert log.read_text() == text == "  CC [M]  fs/ext4/a.o\n  LD x.o\n CC  b.o\n"
    with pytest.raises(FastsyncError, match=r"ext4 does not compile \(see .*log\): "):
        follow_compiler([*argv, "3"], log, "ext4", said.append)


def test_a_command_is_looked_at_while_it_runs() -> None:
    looks: list[None] = []
    done = shell.run(
        ["sh", "-c", "cat; sleep 0.7"], input_text="x", look=lambda: looks.append(None)
    )
    assert done.stdout == "x"
    assert len(looks) >= 2
    with pytest.raises(FastsyncError, match=r"longer than 0\.1 s"):
        shell.run(["sleep", "100"], timeout_s=0.1, look=lambda: None)
