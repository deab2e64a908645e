"""Experiments as data, resuming, and the scripts that run in the guest."""

import json
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab import experiment as lab
from fastsync_lab.build import ModuleSet
from fastsync_lab.device import load_profile, profile_names
from fastsync_lab.errors import FastsyncError
from fastsync_lab.image import RootImage
from fastsync_lab.kernels import KernelTree, load_series
from fastsync_lab.progress import Tally, silent
from fastsync_lab.workload import (
    GuestPaths,
    Programs,
    Workload,
    fio_arguments,
    neighbour_files,
    prepare_script,
    pristine_amalgamation,
    run_command,
    sqlbench_command,
)

GUEST = GuestPaths(
    fio="/run/fio",
    sqlbench={"fsync": "/run/a", "fdatasync": "/run/b"},
    statwrite="/run/s.so",
    neighbour="/run/n",
)
TOML = """
title = "t"
devices = ["nvme"]
variants = ["stock", "ideal"]
sweep_variants = ["defer"]
sweep_ms = [1, 10]
repetitions = 3
[quick]
devices = ["ufs"]
repetitions = 1
seconds = 2
[[workload]]
name = "w"
kind = "fio"
[[workload]]
name = "s"
kind = "sqlite"
[[required]]
figure = "speed"
variants = ["defer"]
base = "stock"
least = 0.9
"""


@pytest.mark.parametrize("name", lab.experiment_names())
@pytest.mark.parametrize("quick", [True, False])
def test_every_experiment_can_be_planned(name: str, quick: bool) -> None:
    experiment = lab.load_experiment(name, quick=quick)
    assert set(experiment.devices) <= set(profile_names())
    assert {"stock", "ideal"} <= {variant.name for variant in experiment.variants}
    assert experiment.workloads and experiment.repetitions >= 1
    keys = [lab.cell_key({}, w, v) for w in experiment.workloads for v in experiment.variants]
    assert len(set(keys)) == len(keys)


def test_full_runs_cover_every_device_and_quick_runs_one() -> None:
    real = ("emmc", "ufs", "sata-ssd", "nvme", "nvme-plp")
    for name in lab.experiment_names():
        full = lab.load_experiment(name, quick=False).devices
        uniform = ("uniform-100us",) if name in ("overwrite", "neighbour") else ()
        assert full == (("uniform-100us",) if name == "fstat" else real + uniform)
        assert len(lab.load_experiment(name, quick=True).devices) == 1


def test_result_files_are_named_by_kernel_so_that_none_takes_anothers_place() -> None:
    jobs = [
        job
        for series in ("6.12", "7.2")
        for quick in (True, False)
        for job in lab.plan(["overwrite", "sqlite"], series=series, quick=quick, devices=["ufs"])
    ]
    names = [job.name for job in jobs]
    assert "overwrite-full-7.2-ufs" in names
    assert len(set(names)) == len(names) == 8


def test_quick_rows_replace_the_others_and_a_sweep_is_unfolded() -> None:
    full = lab.parse_experiment("x", TOML, quick=False)
    quick = lab.parse_experiment("x", TOML, quick=True)
    assert (full.devices, full.repetitions, full.workloads[0].seconds) == (("nvme",), 3, 5)
    assert (quick.devices, quick.repetitions, quick.workloads[0].seconds) == (("ufs",), 1, 2)
    assert [(v.name, v.interval_ms) for v in full.variants] == [
        ("stock", None),
        ("ideal", None),
        ("defer", 1),
        ("defer", 10),
    ]
    assert (full.file_stem, quick.file_stem) == ("x-full", "x-quick")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"ideal"', '"idle"', "no variant 'idle'"),
        ("repetitions = 3", "repetition = 3", "x.toml"),
        ('kind = "fio"', 'kind = "fio"\ncolour = 1', "x.toml: .*colour"),
        ('kind = "fio"', 'kind = "fio"\nneighbour = "read"', "'w': a neighbour is one of stat, "),
        ('kind = "sqlite"', 'kind = "sqlite"\nneighbour = "stat"', "beside fio"),
        ("least = 0.9", "atleast = 0.9", "x.toml: .*atleast"),
        ('figure = "speed"', 'figure = "haste"', "no figure 'haste': there are speed, "),
        ('base = "stock"', 'base = "stick"', "no variant 'stick': there are stock, "),
    ],
)
def test_a_wrong_row_is_an_error_that_names_it(old: str, new: str, message: str) -> None:
    with pytest.raises(FastsyncError, match=message):
        lab.parse_experiment("x", TOML.replace(old, new), quick=False)


def test_an_unknown_experiment_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(FastsyncError, match="no experiment 'sqllite'; there are fstat, interval, "):
        lab.load_experiment("sqllite", quick=True)


def test_mount_options_of_the_variants() -> None:
    options = {name: variant.mount_options for name, variant in lab.VARIANTS.items()}
    assert options == {
        "stock": "defaults",
        "ideal": "defaults",
        "off": "defaults",
        "truncate": "mtime_update=100,mtime_mode=truncate",
        "defer": "mtime_update=100,mtime_mode=defer",
    }
    modules = {name: variant.modules for name, variant in lab.VARIANTS.items()}
    assert modules["stock"] == modules["ideal"] == "stock"
    assert modules["off"] == modules["truncate"] == modules["defer"] == "fastsync"


def test_a_cell_key_depends_on_everything_that_goes_in() -> None:
    workload, variant = Workload("w", "fio"), lab.VARIANTS["defer"]
    keys = {
        lab.cell_key({"a": 1}, workload, variant),
        lab.cell_key({"a": 2}, workload, variant),
        lab.cell_key({"a": 1}, replace(workload, seconds=9), variant),
        lab.cell_key({"a": 1}, workload, replace(variant, interval_ms=5)),
    }
    assert len(keys) == 4
    assert lab.cell_key({"a": 1}, workload, variant) in keys


def test_cells_are_run_with_as_few_module_swaps_as_can_be() -> None:
    experiment = lab.load_experiment("overwrite", quick=False)
    order = [modules for modules, _ in lab.by_modules(experiment)]
    assert order == ["stock", "fastsync"]
    cells = [pair for _, pairs in lab.by_modules(experiment) for pair in pairs]
    assert len(cells) == len(experiment.workloads) * len(experiment.variants)


def test_what_an_interrupted_run_left_is_kept_by_key(tmp_path: Path) -> None:
    path = tmp_path / "x.partial.json"
    assert lab.kept_repetitions(path) == {}
    path.write_text("{ not json")
    assert lab.kept_repetitions(path) == {}
    path.write_text(json.dumps({"cells": [{"key": "k", "repetitions": [{"phases": {}}]}]}))
    assert lab.kept_repetitions(path) == {"k": [{"phases": {}}]}


def test_writing_is_atomic_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "new" / "result.json"
    lab.write_atomically(path, {"a": 1})
    lab.write_atomically(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 2}
    assert list(path.parent.iterdir()) == [path]


def test_sections_of_a_scripts_output() -> None:
    text = f"noise\n{lab.SECTION}a\n1\n2\n{lab.SECTION}b\n"
    assert lab.sections(text) == {"a": "1\n2\n", "b": ""}


@pytest.mark.parametrize("variant", list(lab.VARIANTS.values()), ids=list(lab.VARIANTS))
@pytest.mark.parametrize(
    "workload",
    [
        Workload("w", "fio", stat_first=True),
        Workload("n", "fio", neighbour="stat"),
        Workload("s", "sqlite"),
    ],
)
def test_guest_scripts_are_sound_bash(workload: Workload, variant: lab.Variant) -> None:
    for script in (lab.cell_script(workload, variant, GUEST), lab.layout_script()):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert f"-o {variant.mount_options} " in lab.cell_script(workload, variant, GUEST)


def test_fio_syncs_after_each_write() -> None:
    workload = Workload("w", "fio", pattern="write", file_mib=100, seconds=7)
    assert "--fsync=1" in fio_arguments(workload, "fsync")
    arguments = fio_arguments(workload, "fdatasync")
    assert {"--fdatasync=1", "--rw=write", "--filesize=100M", "--runtime=7s"} <= set(arguments)
    assert "--ioengine=psync" in arguments and "--fsync=1" not in arguments


def test_every_requirement_is_about_something_that_is_run() -> None:
    for name in lab.experiment_names():
        experiment = lab.load_experiment(name, quick=False)
        workloads = {workload.name for workload in experiment.workloads}
        phases = {phase for workload in experiment.workloads for phase in workload.phases()}
        variants = {variant.name for variant in experiment.variants}
        assert experiment.required
        for required in experiment.required:
            asked = {*required.workloads, required.base_workload} - {None}
            assert asked <= workloads and set(required.phases) <= phases
            assert {*required.variants, required.base} - {None} <= variants
            assert set(required.devices) <= set(experiment.devices)
            assert set(required.kernels) <= set(load_series())


def test_a_neighbour_and_its_control_differ_only_in_what_they_ask_about() -> None:
    stat, write = (Workload("w", "fio", neighbour=kind) for kind in ("stat", "write"))
    files, control = neighbour_files(stat, GUEST), neighbour_files(write, GUEST)
    assert files[0] == files[1] == control[0] != control[1]
    script = run_command(stat, "fsync", GUEST)
    assert script.startswith(f"/run/n {files[0]} {files[1]} 1000 >{GUEST.neighbour_log} &\n")
    assert "kill $! && wait $!" in script
    elsewhere = replace(stat, neighbour_on_tmpfs=True)
    assert neighbour_files(elsewhere, GUEST)[0].startswith(GUEST.tmpfs)
    prepared = prepare_script(write, GUEST)
    assert all(f"of={file} " in prepared for file in control)
    alone = Workload("w", "fio")
    assert "neighbour" not in run_command(alone, "fsync", GUEST) + prepare_script(alone, GUEST)


def test_the_shim_is_loaded_only_where_asked_for() -> None:
    assert "LD_PRELOAD" not in run_command(Workload("w", "fio"), "fsync", GUEST)
    script = run_command(Workload("w", "fio", stat_first=True), "fsync", GUEST)
    assert "LD_PRELOAD=/run/s.so /run/fio " in script
    assert "count=100" in prepare_script(Workload("w", "fio"), GUEST)


def test_sqlbench_is_called_by_its_sync_call() -> None:
    workload = Workload("s", "sqlite", journal_mode="WAL", operations=5, rows=10)
    assert run_command(workload, "fdatasync", GUEST).startswith("/run/b item.db WAL 5 10 /sys/")


def test_only_one_sqlbench_is_compiled_with_fdatasync() -> None:
    folder = Path("sqlite")
    assert "-DHAVE_FDATASYNC=1" in sqlbench_command("fdatasync", folder, Path("out"))
    plain = sqlbench_command("fsync", folder, Path("out"))
    assert not any("FDATASYNC" in word for word in plain)


def test_another_sqlite_source_is_refused() -> None:
    with pytest.raises(FastsyncError, match="is not SQLite"):
        pristine_amalgamation(b"int main;\n")


TALLY = Tally(24, "runs", silent)


class FakeVm:
    """Stands for a guest that need not boot."""

    def __init__(self, config: object) -> None:
        self.config = config

    def __enter__(self) -> "FakeVm":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def load_filesystem(self, modules: object) -> None:
        pass


class FakeGuest:
    """Counts the cells that are run and fails at one."""

    ran = 0
    fail_at = 0

    def __init__(self, *_: object) -> None:
        pass

    def run_cell(self, workload: Workload, variant: lab.Variant) -> dict[str, object]:
        FakeGuest.ran += 1
        if FakeGuest.ran == FakeGuest.fail_at:
            raise FastsyncError("the guest ended by itself")
        return {"phases": {"overwrite": {"ops_per_s": 1.0}}}


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> lab.Job:
    """A job of 24 runs that needs no guest."""
    monkeypatch.setattr(lab, "Vm", FakeVm)
    monkeypatch.setattr(lab, "Guest", FakeGuest)
    monkeypatch.setattr(lab, "results_dir", lambda: tmp_path / "results")
    monkeypatch.setattr(lab, "VmConfig", lambda tree, **_: None)
    monkeypatch.setattr(FakeGuest, "ran", 0)
    monkeypatch.setattr(FakeGuest, "fail_at", 0)
    experiment = lab.parse_experiment("x", TOML, quick=False)
    return lab.Job(experiment, "6.12", load_profile("nvme"))


def make_setting(
    folder: Path, modules: bytes, release: str = "6.12.1", root: str = "a"
) -> lab.Setting:
    """What a guest would need; `modules` is what all modules and programs hold."""
    image = RootImage(folder, folder, root, {"fio": "3.33-3"})
    file = folder / "file"
    file.write_bytes(modules)
    pair = ModuleSet("any", file, file)
    programs = Programs(dict.fromkeys(("fsync", "fdatasync"), file), file, file)
    tree = KernelTree("6.12", release, f"{release}-1", folder, folder, folder, folder)
    return lab.Setting(tree, {"stock": pair, "fastsync": pair}, file, programs, image)


def test_an_interrupted_run_goes_on_where_it_stopped(
    job: lab.Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeGuest, "fail_at", 4)
    setting = make_setting(tmp_path, b"modules")
    messages: list[str] = []
    stop = threading.Event()

    with pytest.raises(FastsyncError, match="ended by itself"):
        lab.run_job(job, setting, stop, messages.append, TALLY)
    results = tmp_path / "results"
    assert [path.name for path in results.iterdir()] == ["x-full-6.12-nvme.partial.json"]
    stop.set()
    with pytest.raises(FastsyncError, match="stopped after 3 of 24 runs"):
        lab.run_job(job, setting, stop, messages.append, TALLY)
    stop.clear()
    path = lab.run_job(job, setting, stop, messages.append, TALLY)

    assert FakeGuest.ran == 4 + 21
    assert [file.name for file in results.iterdir()] == ["x-full-6.12-nvme.json"]
    whole = json.loads(path.read_text())
    assert whole["complete"] is True
    assert [len(cell["repetitions"]) for cell in whole["cells"]] == [3] * 8
    assert any("3 of 24 runs are there" in message for message in messages)


@pytest.mark.parametrize(
    ("modules", "release", "root"),
    [(b"rebuilt", "6.12.1", "a"), (b"built", "6.12.2", "a"), (b"built", "6.12.1", "b")],
)
def test_an_interrupted_run_of_other_modules_kernel_or_root_is_not_taken_up(
    job: lab.Job,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    modules: bytes,
    release: str,
    root: str,
) -> None:
    monkeypatch.setattr(FakeGuest, "fail_at", 4)
    stop = threading.Event()
    with pytest.raises(FastsyncError, match="ended by itself"):
        lab.run_job(job, make_setting(tmp_path, b"built"), stop, silent, TALLY)
    setting = make_setting(tmp_path, modules, release, root)
    path = lab.run_job(job, setting, stop, silent, TALLY)
    assert FakeGuest.ran == 4 + 24
    assert json.loads(path.read_text())["environment"]["kernel_release"] == release
