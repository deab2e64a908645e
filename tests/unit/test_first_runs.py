"""The first run of a stranger: how it is tried, and what is said of it."""

import time
from pathlib import Path

import pytest

from fastsync_lab.cli import first_runs
from fastsync_lab.cli.first_runs import installing, timed_demo
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.paths import write_json
from fastsync_lab.study import first_runs as kept
from fastsync_lab.study.first_runs import FirstRun, failures, load, parts, sentence
from fastsync_lab.study.grid import in_markdown

DEAD_S = 120.0  # for what takes a moment
APT = """#!/bin/sh
echo "$@"
[ ! -e {fails} ] || exit 100
sleep 0.05
"""


@pytest.fixture
def fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An apt-get that fails once this file is there."""
    apt = tmp_path / "bin" / "apt-get"
    apt.parent.mkdir()
    apt.write_text(APT.format(fails=tmp_path / "fails"))
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", f"{apt.parent}:/usr/bin:/bin")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    return tmp_path / "fails"


def await_text(file: Path, text: str) -> None:
    """Wait until a file has a text."""
    end_s = time.monotonic() + DEAD_S
    while text not in file.read_text():
        assert time.monotonic() < end_s, file
        time.sleep(0.01)


@pytest.mark.usefixtures("fails")
def test_packages_are_installed_until_the_call_ends(tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    with installing(tmp_path):
        await_text(installed, "done\n" * 3)
    turns = installed.read_text().splitlines()
    assert turns == ["done"] * len(turns)
    assert "install --reinstall bc flex" in (tmp_path / "apt.log").read_text()


def test_packages_that_cannot_be_installed_are_no_first_run(tmp_path: Path, fails: Path) -> None:
    fails.touch()
    with pytest.raises(FastsyncError, match="apt-get failed: -q -y install"), installing(tmp_path):
        await_text(tmp_path / "apt.log", "\n")


def test_packages_are_whole_before_their_folder_goes(tmp_path: Path, fails: Path) -> None:
    apt = fails.parent / "bin" / "apt-get"
    apt.write_text(f"#!/bin/sh\ntouch {tmp_path}/begun\nsleep 0.5\ntouch {tmp_path}/ended\n")
    with pytest.raises(KeyError), installing(tmp_path):
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        raise KeyError
    assert (tmp_path / "ended").exists()


def test_a_demo_has_its_own_cache_and_a_log(tmp_path: Path) -> None:
    makefile = tmp_path / "Makefile"
    makefile.write_text("demo:\n\t@echo cache: $$FASTSYNC_CACHE; echo well >&2\n")
    taken = timed_demo(tmp_path, tmp_path / "cache", tmp_path / "logs" / "1")
    assert taken is not None and 0 < taken < first_runs.LIMIT_S
    said = (tmp_path / "logs" / "1").read_text().splitlines()
    assert f"cache: {tmp_path}/cache" in said and said[-1] == "well"
    makefile.write_text("demo:\n\t@false\n")
    assert timed_demo(tmp_path, tmp_path / "cache", tmp_path / "logs" / "2") is None
    assert "Error 1" in (tmp_path / "logs" / "2").read_text()


def test_a_demo_that_hangs_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has what it said until then."""
    monkeypatch.setattr(first_runs, "LIMIT_S", 0.5)
    (tmp_path / "Makefile").write_text("demo:\n\t@echo begun; sleep 100\n")
    log = tmp_path / "logs" / "1"
    assert timed_demo(tmp_path, tmp_path / "cache", log) is None
    said = log.read_text().splitlines()
    assert said[0] == "begun" and said[-1] == "sh took longer than 0.5 s and was killed"


def test_what_is_said_of_runs() -> None:
    runs = [FirstRun(0, 300.0, 90.0, 610), FirstRun(7, None, 96.0, 612), FirstRun(3, 330.0, 60, 1)]
    assert failures(runs) == 1
    result = {"processors": 2, "runs": [vars(one) for one in runs], "commit": "0123456789abcdef"}
    assert sentence(result) == (
        "The first `make demo` of a fresh clone takes 5.2 minutes, at most 5.5; a second one "
        "1.5 minutes, at most 1.6. Its cache has 612 MiB. Of 6 calls 1 failed; packages were "
        "installed on the host during 2 of the 3 first ones. The host had 2 processors; the "
        "commit was 0123456789ab."
    )
    assert "| 2 | 7 | failed | 96 | 612 |" in in_markdown(parts(result))


def test_a_whole_series_is_written_into_its_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("results_dir", "repo_root"):
        monkeypatch.setattr(kept, name, lambda: tmp_path)
    document = tmp_path / kept.DOCUMENT
    document.parent.mkdir()
    nothing = "<!-- first-runs:begin -->\nnot yet\n<!-- first-runs:end -->\n"
    document.write_text(nothing)
    kept.write_first_runs()
    assert load() == [] and document.read_text() == nothing
    runs = [vars(FirstRun(0, 300.0, 90.0, 610))]
    result = {"format": 1, "processors": 2, "runs": runs, "commit": "0123456789abcdef"}
    write_json(kept.path(), result)
    kept.write_first_runs()
    assert "| 1 | 0 | 300 | 90 | 610 |" in document.read_text()
