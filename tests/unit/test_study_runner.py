"""The runner without a guest: what is kept, what is checked after each cell."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.progress import Tally, silent
from fastsync_lab.machine.device import load_profile
from fastsync_lab.machine.kernel_log import said_by_kernel
from fastsync_lab.machine.trace import DATA, UNSORTED
from fastsync_lab.machine.vm import GuestResult
from fastsync_lab.studies import qasio, studies
from fastsync_lab.study import plan, runner, store
from fastsync_lab.study.contract import (
    Axes,
    Cell,
    Output,
    Paths,
    Script,
    Study,
    Workload,
)
from fastsync_lab.study.filesystems import STOCK, in_mode
from fastsync_lab.study.rows import Subjects
from tests.unit.block_traces import DUMPE2FS, TRACE
from tests.unit.settings import make_setting

OOPS = "[    9.1] Oops: 0000 [#1] PREEMPT SMP"
RUN: dict[str, Any] = {"subjects": {"": {"operations": 3, "ops_per_s": 1.0}}}


def script(cell: Cell[Workload], _paths: Paths) -> Script:
    return Script(f"run {cell.workload.name}")


def read(_cell: Cell[Workload], _output: Output) -> Subjects:
    return {"overwrite": {"operations": 2, "ops_per_s": 7.0}}


SYSTEMS = (STOCK, in_mode("defer", 1), in_mode("defer", 10))
FULL = Axes("t", ("nvme",), SYSTEMS, tuple(map(Workload, "abcd")), runs=2)
STUDY = Study("x", "s", FULL, FULL, script, read)


class FakeVm:
    """Stands for a guest that need not boot."""

    def __init__(self, config: object) -> None:
        self.config = config

    def __enter__(self) -> "FakeVm":
        return self

    def __exit__(self, *_: object) -> None:
        pass


class FakeGuest:
    """Counts the cells that are run and fails at one."""

    ran: list[str]
    fail_at = 0

    def __init__(self, *_: object) -> None:
        pass

    def run_cell(self, cell: Cell[Any], run: int) -> dict[str, Any]:
        FakeGuest.ran.append(f"{cell.name} {run}")
        if len(FakeGuest.ran) == FakeGuest.fail_at:
            raise FastsyncError("the guest ended by itself")
        return RUN


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> plan.Job:
    """A job of 24 runs that needs no guest; results lie in tmp_path/results."""
    monkeypatch.setattr(runner, "Vm", FakeVm)
    monkeypatch.setattr(runner, "Guest", FakeGuest)
    monkeypatch.setattr(runner, "VmConfig", lambda tree, **_: None)
    monkeypatch.setattr(store, "results_dir", lambda: tmp_path / "results")
    monkeypatch.setattr(FakeGuest, "ran", [], raising=False)
    monkeypatch.setattr(FakeGuest, "fail_at", 0)
    return plan.Job(STUDY, "6.12", load_profile("nvme"), quick=False)


def run(
    job: plan.Job,
    setting: plan.Setting,
    *,
    stop: bool = False,
    say: Callable[[str], None] = silent,
    tally: Callable[[str], None] = silent,
) -> dict[str, Any]:
    stopped = threading.Event()
    if stop:
        stopped.set()
    path = runner.run_job(job, setting, stopped, say, Tally(job.runs, "runs", tally))
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def there(folder: Path) -> list[str]:
    """The files of a folder, without locks."""
    return [path.name for path in folder.iterdir() if path.suffix != ".lock"]


def test_an_interrupted_run_goes_on_where_it_stopped(
    job: plan.Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = make_setting(tmp_path)
    monkeypatch.setattr(FakeGuest, "fail_at", 4)
    said: list[str] = []
    with pytest.raises(FastsyncError, match="ended by itself"):
        run(job, setting)
    partial = tmp_path / "results" / "x-full-6.12-nvme.partial.json"
    assert there(partial.parent) == [partial.name]
    assert len(json.loads(partial.read_text())["cells"]) == 12
    with pytest.raises(FastsyncError, match="stopped after 3 of 24 runs"):
        run(job, setting, stop=True)
    result = run(job, setting, say=said.append, tally=said.append)
    assert len(FakeGuest.ran) == 4 + 21 and len(set(FakeGuest.ran)) == 24
    assert there(partial.parent) == ["x-full-6.12-nvme.json"]
    assert result["complete"] is True
    assert result["source_sha256"] == {"fastsync": "sources of fastsync"}
    assert all(cell["runs"] == [RUN, RUN] for cell in result["cells"])
    assert "x-full-6.12-nvme: 3 of 24 runs are there from an earlier run" in said
    assert said[2] == "x-full-6.12-nvme 4/24: b, stock: 1 ops/s"
    assert said[3] == "4 of 24 runs done, less than a minute left"
    assert said[-1] == "24 of 24 runs done"


@pytest.mark.parametrize(
    ("change", "runs"),
    [
        ({"stock_ext4": "rebuilt"}, 24),
        ({"fastsync_jbd2": "rebuilt"}, 21),  # those before it was interrupted are stock's
        ({"release": "6.12.2"}, 24),
        ({"root": "b"}, 24),
    ],
)
def test_an_interrupted_run_of_other_modules_kernel_or_root_is_not_taken_up(
    job: plan.Job,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, str],
    runs: int,
) -> None:
    monkeypatch.setattr(FakeGuest, "fail_at", 4)
    with pytest.raises(FastsyncError, match="ended by itself"):
        run(job, make_setting(tmp_path))
    setting = make_setting(tmp_path, **change)
    result = run(job, setting)
    assert len(FakeGuest.ran) == 4 + runs
    assert result["environment"]["kernel_release"] == setting.tree.release


def test_a_changed_early_cell_drops_no_later_one(
    job: plan.Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted twice, with the first cell changed in between: what came after is still there."""
    setting = make_setting(tmp_path)
    monkeypatch.setattr(FakeGuest, "fail_at", 24)
    with pytest.raises(FastsyncError):
        run(job, setting)
    stock = replace(STOCK, mkfs="mkfs.ext4 -b 1024")
    axes = replace(FULL, systems=(stock, *SYSTEMS[1:]))
    changed = replace(job, study=replace(STUDY, full=axes))
    monkeypatch.setattr(FakeGuest, "ran", [])
    monkeypatch.setattr(FakeGuest, "fail_at", 2)
    with pytest.raises(FastsyncError):
        run(changed, setting)
    monkeypatch.setattr(FakeGuest, "fail_at", 0)
    run(changed, setting)
    assert all("stock" in name for name in FakeGuest.ran[:-1])
    assert FakeGuest.ran[-1].startswith("d, defer 10 ms") and len(FakeGuest.ran) == 1 + 8 + 1


def test_more_runs_than_are_wanted_are_left_out(job: plan.Job, tmp_path: Path) -> None:
    setting = make_setting(tmp_path)
    run(job, setting)
    (tmp_path / "results" / "x-full-6.12-nvme.json").rename(store.partial_path(job.name))
    once = replace(job, study=replace(STUDY, full=replace(FULL, runs=1)))
    FakeGuest.ran.clear()
    assert [len(cell["runs"]) for cell in run(once, setting)["cells"]] == [1] * 12
    assert FakeGuest.ran == []


def test_a_partial_file_that_cannot_be_read_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "results_dir", lambda: tmp_path)
    assert store.kept_runs("x", whole=True) == {}
    store.partial_path("x").write_text("{ not json")
    assert store.kept_runs("x", whole=True) == {}
    store.partial_path("x").write_text(json.dumps({"cells": [{"key": "k", "runs": [RUN]}]}))
    assert store.kept_runs("x", whole=False) == {"k": [RUN]}


def test_a_result_keeps_its_date_until_something_is_measured(
    job: plan.Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dates = iter(["first", *["last"] * 99])
    monkeypatch.setattr(runner, "now", lambda: next(dates))
    setting = make_setting(tmp_path)
    assert run(job, setting)["date"] == "last"
    monkeypatch.setattr(runner, "now", lambda: "now")
    assert run(job, setting)["date"] == "last"
    more = replace(job, study=replace(STUDY, full=replace(FULL, runs=3)))
    assert run(more, setting)["date"] == "now"


def test_a_full_run_measures_what_has_changed_since_the_last(job: plan.Job, tmp_path: Path) -> None:
    run(job, make_setting(tmp_path))
    FakeGuest.ran.clear()
    result = run(job, make_setting(tmp_path, fastsync_ext4="rebuilt"))
    assert len(FakeGuest.ran) == len(set(FakeGuest.ran)) == 16
    assert not any("stock" in name for name in FakeGuest.ran)
    assert all(cell["runs"] == [RUN, RUN] for cell in result["cells"])


def test_a_quick_run_measures_all_anew(job: plan.Job, tmp_path: Path) -> None:
    quick = replace(job, quick=True)
    run(quick, make_setting(tmp_path))
    first = FakeGuest.ran.copy()
    FakeGuest.ran.clear()
    run(quick, make_setting(tmp_path))
    assert FakeGuest.ran == first


# --- one run -------------------------------------------------------------------------------------

STATS = "overrun: 0\ncommit overrun: 0\ndropped events: 0\n"
PARTS = {
    "result": "",
    "stats": STATS,
    "mounted": "/dev/flash0 /mnt ext4 rw\n",
    "counters": "mtime_updates_done 7\n",
    "dumpe2fs": DUMPE2FS.replace("72-583", "72-99"),
    "journal": "100 101 102 103\n",
    "folders": "9200\n",
}
CELL = Cell(STOCK, Workload("w"), FULL.schedulers[0], "nvme")


def test_a_run_has_its_figures_and_its_requests() -> None:
    found = runner.measure(STUDY, CELL, PARTS, TRACE)
    values = found["subjects"]["overwrite"]
    assert (values["ops_per_s"], values["kib"], values["flushes"]) == (7.0, 8.0, 0.5)
    assert (values[f"kib_{DATA}"], values[f"kib_{UNSORTED}"]) == (2.0, 0.0)
    assert found["mounted"] == "/dev/flash0 /mnt ext4 rw"
    assert found["counters"] == {"mtime_updates_done": 7}


def test_what_is_not_ext4_is_not_sorted() -> None:
    parts = {name: text for name, text in PARTS.items() if name not in ("dumpe2fs", "journal")}
    values = runner.measure(STUDY, CELL, parts, TRACE)["subjects"]["overwrite"]
    assert values[f"kib_{UNSORTED}"] == values["kib"] == 8.0


def test_a_trace_that_lost_events_is_no_result() -> None:
    parts = {**PARTS, "stats": STATS.replace("overrun: 0", "overrun: 3", 1)}
    with pytest.raises(FastsyncError, match="the trace buffer overran: 3 events lost"):
        runner.measure(STUDY, CELL, parts, TRACE)


def test_a_figure_that_there_is_not_is_an_error() -> None:
    study = replace(STUDY, read=lambda *_: {"overwrite": {"operations": 1, "haste": 1.0}})
    with pytest.raises(FastsyncError, match="no metric 'haste'"):
        runner.measure(study, CELL, PARTS, TRACE)


class LoggingVm:
    """A guest whose kernel says something while a script runs."""

    def __init__(self, log: str, out_dir: Path) -> None:
        self._log = log
        self.out_dir = out_dir
        self.scripts: list[str] = []
        self.pairs: list[object] = []

    def run(self, script: str, *, timeout_s: float = 1) -> GuestResult:
        self.scripts.append(script)
        (self.out_dir / "trace").write_text(TRACE)
        said = "".join(f"{plan.SECTION}{name}\n{text}" for name, text in PARTS.items())
        return GuestResult(0, said, "")

    def use_filesystem(self, modules: object) -> None:
        self.pairs.append(modules)

    def stage(self, file: Path) -> str:
        return f"/{Path(file).name}"

    def load_device(self, *_: object, **__: object) -> None:
        pass

    def kernel_log(self) -> str:
        return self._log

    def said(self, log: str) -> str:
        return said_by_kernel(log) + "\n    (its log)"


def booted(vm: LoggingVm, study: Study[Any], folder: Path) -> runner.Guest:
    job = plan.Job(study, "6.12", load_profile("emmc"), quick=True)
    return runner.Guest(vm, job, make_setting(folder))  # type: ignore[arg-type]


@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize(
    ("log", "complaint"),
    [("EXT4-fs (flash0): mounted\n", None), (f"fine\n{OOPS}\n", OOPS)],
    ids=["sound", "oops"],
)
def test_a_cell_after_which_the_kernel_complains_is_no_result(
    log: str, complaint: str | None, traced: bool, tmp_path: Path
) -> None:
    vm = LoggingVm(log, tmp_path)
    guest = booted(vm, replace(STUDY, traced=traced), tmp_path)
    if complaint is None:
        assert guest.run_cell(CELL, 0)["subjects"]["overwrite"]["ops_per_s"] == 7.0
        assert not (tmp_path / "trace").exists()
        return
    with pytest.raises(FastsyncError, match="the kernel complained in w, stock: ") as error:
        guest.run_cell(CELL, 0)
    assert str(error.value).endswith(f": \n    {complaint}\n    (its log)")


def test_a_guest_has_the_modules_of_its_study_and_of_its_cell(tmp_path: Path) -> None:
    vm = LoggingVm("", tmp_path)
    guest = booted(vm, studies()["qasio"], tmp_path)
    assert vm.scripts == ["insmod /qasio", "modprobe -a bfq kyber-iosched"]
    with pytest.raises(FastsyncError, match="waitbench printed no result"):
        guest.run_cell(Cell(STOCK, qasio.M1, qasio.OWN, "emmc"), 0)
    assert '\n/waitbench "$FASTSYNC_DEV" M1 160 10' in vm.scripts[-1]
    assert "PHASE=0\nPHASES=1\n" in vm.scripts[-1]
    ours = booted(vm, STUDY, tmp_path)
    ours.run_cell(replace(CELL, system=in_mode("defer", 1)), 1)
    assert [getattr(pair, "name", "") for pair in vm.pairs] == ["stock", "fastsync"]
    assert "PHASE=1\nPHASES=2\n" in vm.scripts[-1]


@pytest.mark.parametrize(
    ("subjects", "text"),
    [
        ({"": {"operations": 3, "ops_per_s": 253.04}}, "253 ops/s"),
        ({"insert": {"ops_per_s": 90.04}, "update": {"ops_per_s": 7.0}},
         "insert 90.04 ops/s, update 7 ops/s"),
        ({"fsync": {"operations": 9, "mean_ns": 8_840_000}}, "fsync 8.84 ms"),
        ({"": {"elapsed_s": 8.5}, "wait: meta": {"waits": 3}}, "8.5 s"),
        ({"": {"requests_per_s": 3521.7}}, "3,522 requests/s"),
    ],
)  # fmt: skip
def test_a_run_in_a_few_words(subjects: Any, text: str) -> None:
    assert runner.summary({"subjects": subjects}) == text
