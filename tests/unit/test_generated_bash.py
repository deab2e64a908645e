"""The bash that the explorer and the sweep of I/O errors make for guests, read by shellcheck."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fastsync_lab.crash import mariadb
from fastsync_lab.crash.guest import Recorder
from fastsync_lab.crash.kinds import KINDS, Kind
from fastsync_lab.crash.mariadb import FLUSHING
from fastsync_lab.crash.recover import Recoverer
from fastsync_lab.crash.script import Script
from fastsync_lab.faults.guest import Guest, Injection
from fastsync_lab.host.errors import FastsyncError
from tests.unit import bash

# Two things are not quoted: $FASTSYNC_OUT, as it has no blanks, and what dmsetup prints, as
# its words are wanted.
UNQUOTED = "SC2086,SC2046"
LOCAL = KINDS["ordered"]
EXTERNAL = KINDS["external"]
CRASHED = KINDS["crashed"]


class Written:
    """A machine that keeps the bash which it is to run, and answers nothing."""

    def __init__(self, out_dir: Path) -> None:
        self.out_dir, self.scripts = out_dir, list[str]()

    def stage(self, program: Path) -> str:
        return f"/run/fastsync/{program.name}"

    def load_device(self, *_args: Any, **_options: Any) -> None:
        pass

    def run(self, script: str, **_options: Any) -> Any:
        self.scripts.append(script)
        return SimpleNamespace(stdout="")


@pytest.fixture
def vm(tmp_path: Path) -> Any:
    (tmp_path / "case").mkdir()
    for name in ("delta", "found", "second", "out"):
        (tmp_path / "case" / name).write_bytes(b"")
    return Written(tmp_path)


complaints = partial(bash.complaints, exclude=UNQUOTED)


def test_shellcheck_sees_what_is_wrong() -> None:
    assert "SC2154" in complaints(['echo "$nobody_set_it"'])
    assert "SC2320" in complaints(["false\necho part; echo $?"])  # the sweep did so
    assert complaints(["echo x", "cd /tmp || exit"]) == ""


@pytest.mark.parametrize("kind", [LOCAL, EXTERNAL, CRASHED], ids=["local", "external", "crashed"])
@pytest.mark.parametrize(
    "script",
    [Script(), Script(sql=True), *(Script(flushing=one) for one in FLUSHING)],
    ids=["operations", "sqlite", *FLUSHING],
)
def test_what_records_is_bash_that_shellcheck_accepts(
    vm: Any, kind: Kind, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mariadb, "initialize", lambda *_: None)
    recorder = Recorder(vm, Path("flashdev.ko"))
    recorder.set_parameters({"ext4.mtime": "a b"})
    recorder.parameter("ext4.mtime")
    recorder.record(vm.out_dir / "case", "mtime_update=100,mtime_mode=defer", script, kind)
    assert len(vm.scripts) == 4 and complaints(vm.scripts) == ""


@pytest.mark.parametrize("kind", [LOCAL, EXTERNAL], ids=["local", "external"])
def test_what_recovers_is_bash_that_shellcheck_accepts(vm: Any, kind: Kind) -> None:
    recoverer = Recoverer(vm)
    assert recoverer.recover(vm.out_dir / "case", "plan", kind, ["eager_sync=8"]) == []
    assert recoverer.log_recoveries(vm.out_dir / "case", "plan", kind) == b""
    recoverer.forget(vm.out_dir / "case")
    assert len(vm.scripts) == 5 and complaints(vm.scripts) == ""


def test_what_fails_requests_is_bash_that_shellcheck_accepts(vm: Any) -> None:
    sweep = Guest(vm, Path("flashdev.ko"))
    with pytest.raises(FastsyncError, match=r"^case: the guest answered for 0 of 1 runs$"):
        sweep.record(vm.out_dir / "case", "errors=remount-ro")
    with pytest.raises(FastsyncError, match=r"^case: the guest answered for 0 of 2 runs$"):
        sweep.inject(vm.out_dir / "case", "errors=continue", [Injection(1, 2), Injection(2, 2)])
    assert len(vm.scripts) == 3 and complaints(vm.scripts) == ""
