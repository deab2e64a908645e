"""Ctrl-C during a real run: it ends at once, keeps what is finished, and goes on from there.

A host that is busy makes it late now and then: tests/in_time.py.
"""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from fastsync_lab.host import shell
from fastsync_lab.host.build import ModuleSet
from fastsync_lab.host.interrupt import EXIT_STATUS, MESSAGE
from fastsync_lab.host.kernels import find_series
from fastsync_lab.host.paths import repo_root
from fastsync_lab.study.store import partial_path, stem
from tests.in_time import StopWatch, Took, check_in_time

DEVICE = "nvme"
LIMIT_S = 2.0
DEAD_S = 120.0
NOT_IGNORED = ("env", "--default-signal=INT")


def name_of(kernel: str) -> str:
    """What the run is called."""
    return stem("overwrite", find_series(kernel).name, DEVICE, quick=True)


@pytest.fixture
def partial(kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where an interrupted run is kept: in a folder of the test's own."""
    monkeypatch.setenv("FASTSYNC_RESULTS", str(tmp_path))
    return partial_path(name_of(kernel))


def interrupted_in_time(kernel: str, until: str, partial: Path) -> list[str]:
    """What a run says until Ctrl-C, which ends it in time; each try begins on what is kept."""
    kept = partial.read_bytes() if partial.exists() else None
    lines: list[str] = []

    def attempt() -> Took:
        partial.unlink(missing_ok=True)
        if kept is not None:
            partial.write_bytes(kept)
        lines[:], took = interrupted_run(kernel, until)
        return took

    check_in_time(attempt, LIMIT_S)
    return lines


def interrupted_run(kernel: str, until: str) -> tuple[list[str], Took]:
    """What a run says on stderr until it gets Ctrl-C, which it does once a line has `until` in it.

    And how long it took to end.
    """
    argv = [*NOT_IGNORED, str(repo_root() / "fastsync"), "run", "overwrite", "--kernel", kernel]
    process = shell.spawn([*argv, "--device", DEVICE], stderr=subprocess.PIPE)
    assert process.stderr is not None
    lines = []
    try:
        for line in process.stderr:
            lines.append(line.decode().rstrip("\n"))
            if until in lines[-1]:
                break
        watch = StopWatch()
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read().decode().splitlines()
        assert process.wait(timeout=DEAD_S) == EXIT_STATUS, rest
        took = watch.took()
    finally:
        shell.kill_group(process)
    assert rest[-1:] == [MESSAGE]
    return lines, took


@pytest.mark.debian("./fastsync run boots Debian's kernel")
def test_ctrl_c_keeps_the_runs_that_are_finished(
    kernel: str, partial: Path, modules: ModuleSet, stock_modules: ModuleSet, flashdev: Path
) -> None:
    name = name_of(kernel)
    interrupted_in_time(kernel, f"{name}: booting", partial)
    assert not partial.exists()
    interrupted_in_time(kernel, f"{name} 1/20: ", partial)
    whole = [cell for cell in json.loads(partial.read_text())["cells"] if cell["runs"]]
    assert len(whole) == 1
    lines = interrupted_in_time(kernel, f"{name} 2/20: ", partial)
    assert f"fastsync: {name}: 1 of 20 runs are there from an earlier run" in lines
    assert not any(f"{name} 1/20: " in line for line in lines)
