"""A recording of the explorer, in a guest that is played: the kernel must be content with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fastsync_lab.crash import explore
from fastsync_lab.crash.case import Case, Failure, Outcome, Request
from fastsync_lab.crash.explore import DELAY_SEED, Explorer
from fastsync_lab.crash.guest import UnsoundRecordingError, check_moved
from fastsync_lab.crash.script import Script
from fastsync_lab.host.progress import silent
from fastsync_lab.machine.kernel_log import said_by_kernel
from tests.unit.kernel_logs import BAD_LINES, CLEAN_LOG

CASE = Case("append", "defer", "ordered", delays=7)
SCRIPT = Script(["0 create f"], 1)


@dataclass
class PlayedRecorder:
    """Remembers what it was asked for, in order; its kernel says `before` and then `log`."""

    log: str
    before: str = ""
    asked: list[Any] = field(default_factory=list)

    @property
    def vm(self) -> Any:
        """The machine that it runs in."""
        return self

    def use_filesystem(self, modules: str) -> None:
        self.asked.append(modules)

    def set_parameters(self, parameters: Mapping[str, str]) -> None:
        self.asked.append(parameters)

    def kernel_log(self) -> str:
        """What was said since the last call."""
        said = self.log if "recorded" in self.asked else self.before
        self.asked.append("log")
        return said

    def said(self, log: str) -> str:
        return said_by_kernel(log)

    def record(self, folder: Path, options: str, script: Script, _kind: object) -> None:
        assert (folder / "base.img").exists() and (folder / "script").read_text() == script.text
        assert options == CASE.mount_options or "mtime" not in options
        self.asked.append("recorded")


def record(
    recorder: PlayedRecorder, folder: Path, monkeypatch: pytest.MonkeyPatch, case: Case = CASE
) -> Path:
    def make_base(path: Path, _device_mib: int, **_how: object) -> None:
        path.touch()

    monkeypatch.setattr(explore, "make_base", make_base)
    monkeypatch.setattr(explore, "module_digest", lambda modules: f"digest of {modules}")
    recoverer: Any = SimpleNamespace(
        vm=SimpleNamespace(out_dir=folder),
        forget=lambda one: recorder.asked.append(("forget", one)),
    )
    builds: Any = SimpleNamespace(subject="ours", stock="stock")
    pool: Any = None
    played: Any = recorder
    parameters = {"ext4.a": "1"}
    one = Explorer(lambda: played, recoverer, builds, folder, pool, silent, parameters)
    return one.record(case, SCRIPT)


def test_a_recording_of_which_the_kernel_complains_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has said before is not about the recording."""
    recorder = PlayedRecorder(f"{CLEAN_LOG}{BAD_LINES[0]}\n", before=BAD_LINES[1])
    with pytest.raises(UnsoundRecordingError) as error:
        record(recorder, tmp_path, monkeypatch)
    assert str(error.value) == f"the kernel complained: \n    {BAD_LINES[0]}"
    assert recorder.asked[0] == ("forget", tmp_path / CASE.name)  # of a run that had failed
    assert not (tmp_path / CASE.name / "modules").exists()  # so that no later run takes it


@pytest.mark.parametrize(
    ("mode", "modules", "seed"), [("defer", "ours", {DELAY_SEED: "7"}), ("stock", "stock", {})]
)
def test_a_recording_has_the_modules_of_its_mode_and_delays_meanwhile(
    mode: str, modules: str, seed: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case("append", mode, "ordered", delays=7)
    recorder = PlayedRecorder(CLEAN_LOG, before=BAD_LINES[1])
    folder = record(recorder, tmp_path, monkeypatch, case)
    assert recorder.asked == [
        ("forget", folder), modules, {"ext4.a": "1", **seed}, "log", "recorded",
        dict.fromkeys(seed, "0"), "log",
    ]  # fmt: skip
    assert folder == tmp_path / case.name
    assert (folder / "modules").read_text() == "digest of ours"


def test_a_recording_in_which_nothing_of_its_subject_happened_is_none() -> None:
    stats = "in_force yes\nbursts 23\nblocks_ahead 0\nrevokes 0\n"
    check_moved(("bursts",), stats)
    with pytest.raises(UnsoundRecordingError, match="did not happen: blocks_ahead, revokes"):
        check_moved(("bursts", "blocks_ahead", "revokes"), stats)


def test_a_case_whose_recording_shows_nothing_has_failed_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = (Case(name, "defer", "ordered") for name in ("append", "create"))

    def record_it(_self: Explorer, case: Case, _script: Script) -> Path:
        if case == bad:
            raise UnsoundRecordingError("the kernel complained: of all")
        return tmp_path / case.name

    def explored(_self: Explorer, case: Case, _script: Script, folder: Path, _most: int) -> Outcome:
        assert folder == tmp_path / good.name
        return Outcome(case, states=3)

    kept: list[Path] = []
    monkeypatch.setattr(Explorer, "record", record_it)
    monkeypatch.setattr(Explorer, "explore", explored)
    monkeypatch.setattr(explore, "keep_recording", kept.append)
    nothing: Any = None
    one = Explorer(nothing, nothing, nothing, tmp_path, nothing, silent)
    told: list[Outcome] = []
    request = Request((bad, good))
    operations = len(request.script(bad).lines)
    assert one.run(request, told.append) == told
    failure = Failure("", 0, ("the kernel complained: of all",), bad.command(), "")
    assert told == [Outcome(bad, operations, failures=[failure]), Outcome(good, states=3)]
    assert bad.command() == "./fastsync crash append --mode defer --journal ordered --seed 1"
    assert kept == [tmp_path / good.name]
