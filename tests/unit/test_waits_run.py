"""The runner of the experiment qasio without a guest: what is kept, what a figure depends on."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fastsync_lab import experiment as lab
from fastsync_lab.build import ModuleSet
from fastsync_lab.device import load_profile
from fastsync_lab.errors import FastsyncError
from fastsync_lab.image import RootImage
from fastsync_lab.kernels import KernelTree
from fastsync_lab.progress import Tally, silent
from fastsync_lab.vm import GuestResult
from fastsync_lab.waits import run as waits
from fastsync_lab.waits.cells import Cell
from fastsync_lab.waits.rows import Rows, parse_rows
from fastsync_lab.workload import GuestPaths, Workload
from tests.unit.test_experiment import FakeVm
from tests.unit.test_waits import ROWS

OOPS = "[    9.1] Oops: 0000 [#1] PREEMPT SMP"


def make_setup(folder: Path, **contents: str) -> waits.Setup:
    """What guests share; each file holds its name, or what `contents` says."""
    names = ("jbd2", "ext4", "flashdev", "qasio", "waitbench")
    files = {name: folder / name for name in names}
    for name, file in files.items():
        file.write_text(contents.get(name, name))
    tree = KernelTree("6.12", "6.12.1-amd64", "6.12.1-1", folder, folder, folder, folder)
    stock = ModuleSet("stock", files["jbd2"], files["ext4"])
    programs = (files["flashdev"], files["qasio"], files["waitbench"])
    return waits.Setup(tree, stock, *programs, RootImage(folder, folder, "a", {"fio": "3.33-3"}))


# --- what a figure depends on -------------------------------------------------------------------


def test_a_key_depends_on_the_kernel_the_modules_the_programs_and_the_device(
    tmp_path: Path,
) -> None:
    def key(setup: waits.Setup, device: str = "emmc") -> str:
        return lab.key_of(waits.describe(setup, load_profile(device)), {"scheduler": "s"}, "script")

    setup = make_setup(tmp_path)
    first = key(setup)
    assert key(setup) == first
    others = [key(setup, "ufs")]
    others.append(key(replace(setup, tree=replace(setup.tree, release="6.12.2-amd64"))))
    others.append(key(replace(setup, tree=replace(setup.tree, debian_version="6.12.1-2"))))
    others.append(key(replace(setup, image=replace(setup.image, digest="b"))))
    for name in ("jbd2", "ext4", "flashdev", "qasio", "waitbench"):
        others.append(key(make_setup(tmp_path, **{name: "rebuilt"})))
    assert len({first, *others}) == 1 + len(others)
    assert key(make_setup(tmp_path)) == first


def cell(scheduler: str, script: str = "") -> Cell:
    return Cell({"scheduler": scheduler}, script or f"run {scheduler}", lambda parts: {})


def test_kept_cells_are_taken_up_by_their_key_and_in_place() -> None:
    old = [cell("a"), cell("b"), cell("c")]
    kept = {
        row["key"]: [{"figure": number}, {"figure": -number}]
        for number, row in enumerate(waits.rows_of_cells(old, {}, {}, 2), 1)
    }
    new = [cell("a", "changed"), cell("b"), cell("c")]
    rows = waits.rows_of_cells(new, {}, kept, 1)
    assert [row["scheduler"] for row in rows] == ["a", "b", "c"]
    assert [row["repetitions"] for row in rows] == [[], [{"figure": 2}], [{"figure": 3}]]
    others = waits.rows_of_cells(new, {"kernel": "other"}, kept, 1)
    assert [row["repetitions"] for row in others] == [[]] * 3


# --- a run --------------------------------------------------------------------------------------


class StagingVm(FakeVm):
    """Stands for a guest that need not boot."""

    def stage(self, program: str) -> str:
        return f"/{program}"


class Runs:
    """Runs cells; fails at the one of a number, counting from 1."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.fail_at = 0

    def __call__(self, _vm: object, cell: Cell) -> dict[str, Any]:
        if len(self.names) + 1 == self.fail_at:
            raise FastsyncError("the guest ended by itself")
        self.names.append(", ".join(cell.names.values()))
        return {"number": len(self.names)}


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Runs that need no guest; results lie in tmp_path/results."""
    fake = Runs()
    monkeypatch.setattr(waits, "Vm", StagingVm)
    monkeypatch.setattr(waits, "run_cell", fake)
    monkeypatch.setattr(waits, "prepare_guest", lambda *_: "/waitbench")
    monkeypatch.setattr(waits, "results_dir", lambda: tmp_path / "results")
    return fake


def rows(text: str = ROWS) -> Rows:
    return parse_rows(text, quick=False)


def run(
    setup: waits.Setup, table: Rows, say: Callable[[str], None] = silent, total: int = 0
) -> dict[str, Any]:
    path = waits.run_device(table, "emmc", setup, silent, Tally(total, "runs", say))
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def test_a_run_that_was_interrupted_goes_on_where_it_stopped(tmp_path: Path, runs: Runs) -> None:
    setup = make_setup(tmp_path)
    said: list[str] = []
    total = waits.runs_of(rows(), "emmc")
    runs.fail_at = 4
    with pytest.raises(FastsyncError, match="ended by itself"):
        run(setup, rows())
    partial = tmp_path / "results" / "qasio-full-6.12-emmc.partial.json"
    assert [path.name for path in partial.parent.iterdir()] == [partial.name]
    assert len(json.loads(partial.read_text())["cells"]) == total
    runs.fail_at = 0
    result = run(setup, rows(), said.append, total)
    assert len(runs.names) == len(set(runs.names)) == total
    assert result["complete"] is True
    assert [cell["repetitions"] for cell in result["cells"]] == [
        [{"number": number}] for number in range(1, total + 1)
    ]
    assert said[1] == f"4 of {total} runs done, less than a minute left"
    assert said[-1] == f"{total} of {total} runs done"
    assert not partial.exists()


def test_a_changed_early_row_drops_no_later_cell(tmp_path: Path, runs: Runs) -> None:
    """Interrupted twice, with the first row changed in between: what came after is still there."""
    setup = make_setup(tmp_path)
    total = waits.runs_of(rows(), "emmc")
    runs.fail_at = total
    with pytest.raises(FastsyncError):
        run(setup, rows())
    assert len(runs.names) == total - 1
    changed = rows(ROWS.replace("wbt = true", "wbt = false", 1))
    runs.names, runs.fail_at = [], 2
    with pytest.raises(FastsyncError):
        run(setup, changed)
    partial = json.loads((tmp_path / "results" / "qasio-full-6.12-emmc.partial.json").read_text())
    missing = [cell for cell in partial["cells"] if not cell["repetitions"]]
    first = [names for names in runs.names if names.endswith("mq-deadline")]
    assert len(first) == 1
    assert 1 <= len(missing) < total - 1
    assert all(cell["scheduler"] == "mq-deadline" or "matrix" in cell for cell in missing)


def test_another_module_is_another_run(tmp_path: Path, runs: Runs) -> None:
    runs.fail_at = 4
    with pytest.raises(FastsyncError):
        run(make_setup(tmp_path), rows())
    runs.names, runs.fail_at = [], 0
    run(make_setup(tmp_path, qasio="rebuilt"), rows())
    assert len(runs.names) == waits.runs_of(rows(), "emmc")


# --- the kernel log -----------------------------------------------------------------------------


class LoggingVm:
    """A guest whose kernel says something while a script runs."""

    def __init__(self, log: str, out_dir: Path) -> None:
        self._log = log
        self.out_dir = out_dir

    def run(self, script: str, *, timeout_s: float = 1) -> GuestResult:
        (self.out_dir / "trace").write_text("")
        return GuestResult(0, f"{script} done", "")

    def kernel_log(self) -> str:
        return self._log


@pytest.mark.parametrize(
    ("log", "complaint"),
    [("EXT4-fs (flash0): mounted\n", None), (f"fine\n{OOPS}\n", OOPS)],
    ids=["sound", "oops"],
)
def test_a_cell_after_which_the_kernel_complains_is_no_result(
    log: str, complaint: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vm = LoggingVm(log, tmp_path)
    monkeypatch.setattr(waits, "sections", lambda text: {"text": text})
    monkeypatch.setattr(lab, "measure_cell", lambda *_: {"figure": 1})
    mine = Cell({"scheduler": "s"}, "script", lambda parts: {"read": parts["text"]})
    guest = object.__new__(lab.Guest)
    guest.__dict__ |= {"_vm": vm, "_layout": None, "_paths": GuestPaths("/f", {}, "/s")}
    attempts: list[Callable[[], dict[str, Any]]] = [
        lambda: waits.run_cell(vm, mine),  # type: ignore[arg-type]
        lambda: guest.run_cell(Workload("w", "fio"), lab.VARIANTS["stock"]),
    ]
    if complaint is None:
        assert [attempt() for attempt in attempts] == [{"read": "script done"}, {"figure": 1}]
        return
    for attempt in attempts:
        with pytest.raises(FastsyncError, match="the kernel complained") as error:
            attempt()
        assert str(error.value).endswith(f": {complaint}")
