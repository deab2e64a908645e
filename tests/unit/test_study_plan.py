"""Studies as what a run does: cells, keys, the bash that goes to the guest."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.glue import glue_patches
from fastsync_lab.host.kernels import load_series
from fastsync_lab.host.workload import pristine_amalgamation, sqlbench_command
from fastsync_lab.machine.device import load_profile, profile_names
from fastsync_lab.studies import neighbour, qasio, studies
from fastsync_lab.study import fio
from fastsync_lab.study.contract import AS_IT_IS, Cell, Study
from fastsync_lab.study.filesystems import (
    DEFER,
    FOUR,
    IDEAL,
    MODES,
    PEERS,
    STOCK,
    in_mode,
)
from fastsync_lab.study.plan import (
    SECTION,
    Job,
    bash_of,
    plan,
    queue_script,
    sections,
)
from tests.unit.bash import complaints

EVERY = list(studies())
# Files that are read, and variables and functions that other scripts use.
ELSEWHERE = "SC1090,SC1091,SC2034,SC2317"


def study(name: str) -> Study[Any]:
    return studies()[name]


def cells() -> Iterator[tuple[Study[Any], Cell[Any]]]:
    """All cells of all studies."""
    for one in studies().values():
        for quick in (True, False):
            yield from ((one, cell) for cell in one.cells("emmc", quick=quick))


# --- what is run ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("quick", [True, False])
def test_every_study_can_be_planned(name: str, quick: bool) -> None:
    one = study(name)
    axes = one.axes(quick=quick)
    found = list(one.cells("emmc", quick=quick))
    assert found and len(set(found)) == len(found)
    assert set(axes.devices) <= set(profile_names())
    assert len({(cell.name, cell.system.kind, cell.system.options) for cell in found}) == len(found)
    names = [
        (x.workload.name, x.system.name, x.system.interval_ms, x.scheduler.name) for x in found
    ]
    assert len(set(names)) == len(names)  # each has a place of its own in the results
    assert one.name == name and one.says and axes.title


def test_full_runs_cover_every_device_and_quick_runs_one() -> None:
    real = ("emmc", "ufs", "sata-ssd", "nvme", "nvme-plp")
    wanted = {"fstat": ("uniform-100us",), "qasio": ("emmc", "ufs"), "sqlite": real,
              "interval": real, "overwrite": (*real, "uniform-100us"),
              "neighbour": (*real, "uniform-100us")}  # fmt: skip
    assert {name: study(name).full.devices for name in wanted} == wanted
    assert all(len(one.quick.devices) == 1 for one in studies().values())


def test_cells_are_run_with_as_few_module_swaps_as_can_be() -> None:
    for one in studies().values():
        order = [cell.system.modules for cell in one.cells("emmc", quick=False)]
        assert order == sorted(order, key=list(dict.fromkeys(order)).index)


def test_peers_stand_beside_ours_on_the_axis_and_only_one_is_not_durable() -> None:
    for name in ("overwrite", "sqlite"):
        systems = study(name).full.systems
        assert set(FOUR) | set(PEERS) <= set(systems)
    assert {one.kind for one in PEERS} == {"ext4", "xfs", "btrfs", "f2fs"}
    not_durable = [one.name for one in PEERS if not one.durable]
    assert not_durable == ["f2fs not durable"]
    assert not_durable == [one.name for one in PEERS if "not durable" in one.name]
    assert all(one.modules == "stock" for one in PEERS)


def test_mount_options_of_ours() -> None:
    assert (STOCK.options, IDEAL.options) == ("defaults", "defaults")
    assert (STOCK.sync_call, IDEAL.sync_call) == ("fsync", "fdatasync")
    assert {mode: in_mode(mode).options for mode in MODES} == {
        "truncate": "mtime_update=100,mtime_mode=truncate",
        "defer": "mtime_update=100,mtime_mode=defer",
    }
    assert in_mode("defer", 5).options == "mtime_update=5,mtime_mode=defer"
    assert (DEFER.modules, STOCK.modules) == ("fastsync", "stock")


def test_a_file_system_is_measured_on_the_kernels_that_have_it() -> None:
    found = {
        job.series: {cell.system.name for cell in job.cells}
        for series in load_series()
        for job in plan([study("files")], series=series, quick=False, devices=["emmc"])
    }
    has = {one: any("one-write-and-one" in x.name for x in glue_patches(one)) for one in found}
    assert {one: "eager" in names for one, names in found.items()} == has
    assert has["6.12"] and not has["6.1"]
    assert all({"stock", "defer", "xfs"} <= names for names in found.values())


def test_result_files_are_named_by_kernel_so_that_none_takes_anothers_place() -> None:
    some = [study("overwrite"), study("sqlite")]
    names = [
        job.name
        for series in ("6.12", "7.2")
        for quick in (True, False)
        for job in plan(some, series=series, quick=quick, devices=["ufs"])
    ]
    assert "overwrite-full-7.2-ufs" in names
    assert len(set(names)) == len(names) == 8


# --- bash ----------------------------------------------------------------------------------------


def test_guest_scripts_are_what_shellcheck_accepts() -> None:
    """The same text once: a study has hundreds of cells, and few scripts."""
    whole: set[str] = set()
    for one, cell in cells():
        script = one.script(cell, str)
        whole.update((script.prepare, script.run, one.setup, queue_script(one, cell)))
    assert complaints(sorted(whole), exclude=ELSEWHERE) == ""


@pytest.mark.parametrize("name", EVERY)
def test_the_bash_of_a_run_says_what_is_to_be_done(name: str) -> None:
    job = Job(study(name), "6.12", load_profile("emmc"), quick=True)
    cell = job.cells[0]
    script = job.study.script(cell, lambda program: f"/staged/{program}")
    bash = bash_of(job, cell, script, "/cell.sh", run=2, runs=5)
    subprocess.run(["bash", "-n"], input=bash, text=True, check=True)
    lines = bash.splitlines()
    assert {"PHASE=2", "PHASES=5", f"TRACED={int(job.study.traced)}", ". /cell.sh"} <= {*lines}
    assert f"FS_OPTIONS={cell.system.options}" in lines and script.run in bash


def test_fio_syncs_after_each_write() -> None:
    workload = fio.Overwrites("w", pattern="write", file_mib=100, seconds=7)
    assert "--fsync=1" in fio.arguments(workload, "fsync")
    arguments = fio.arguments(workload, "fdatasync")
    assert {"--fdatasync=1", "--rw=write", "--filesize=100M", "--runtime=7s"} <= set(arguments)
    assert "--ioengine=psync" in arguments and "--fsync=1" not in arguments


def test_the_shim_is_loaded_only_where_asked_for() -> None:
    plain, first = fio.workloads(("random", "sequential, fstat first"), file_mib=3)
    assert (plain.pattern, first.pattern) == ("randwrite", "write")
    scripts = [
        fio.script(Cell(STOCK, one, AS_IT_IS, "ufs"), lambda name: f"/run/{name}")
        for one in (plain, first)
    ]
    assert "LD_PRELOAD" not in scripts[0].run
    assert "env LD_PRELOAD=/run/statwrite.so fio " in scripts[1].run
    assert "count=3" in scripts[0].prepare


def test_a_neighbour_and_its_control_differ_only_in_what_they_ask_about() -> None:
    workloads = {one.name: one for one in study("neighbour").full.workloads}
    stat, write = (workloads[f"beside {x}writes"] for x in ("stat + ", ""))
    assert stat.files[0] == stat.files[1] == write.files[0] != write.files[1]
    script = neighbour.script(Cell(STOCK, stat, AS_IT_IS, "ufs"), str)
    assert script.run.startswith(f"neighbour {stat.files[0]} {stat.files[1]} 1000 >/run/")
    assert "kill $! && wait $!" in script.run
    assert workloads["beside stat + writes on tmpfs"].files[0].startswith("/run/fastsync/")
    prepared = neighbour.script(Cell(STOCK, write, AS_IT_IS, "ufs"), str).prepare
    assert all(f"of={file} " in prepared for file in write.files)
    alone = neighbour.script(Cell(STOCK, workloads["alone"], AS_IT_IS, "ufs"), str)
    assert "neighbour" not in alone.run + alone.prepare


def test_sqlbench_is_called_by_its_sync_call() -> None:
    one = study("sqlite")
    found = {cell.system.name: one.script(cell, str).run for cell in one.cells("ufs", quick=True)
             if cell.workload.name == "WAL"}  # fmt: skip
    assert found["ideal"] == 'sqlbench-fdatasync item.db WAL 100 2000 "$MARKER"'
    assert found["defer"] == found["stock"] == 'sqlbench-fsync item.db WAL 100 2000 "$MARKER"'


def test_only_one_sqlbench_is_compiled_with_fdatasync() -> None:
    folder = Path("sqlite")
    assert "-DHAVE_FDATASYNC=1" in sqlbench_command("fdatasync", folder, Path("out"))
    plain = sqlbench_command("fsync", folder, Path("out"))
    assert not any("FDATASYNC" in word for word in plain)


def test_another_sqlite_source_is_refused() -> None:
    with pytest.raises(FastsyncError, match="is not SQLite"):
        pristine_amalgamation(b"int main;\n")


def test_sections_of_a_scripts_output() -> None:
    text = f"noise\n{SECTION}a\n1\n2\n{SECTION}b\n"
    assert sections(text) == {"a": "1\n2\n", "b": ""}


# --- schedulers ----------------------------------------------------------------------------------


def queue(name: str, device: str = "ufs") -> list[str]:
    (scheduler,) = (one for one in qasio.SCHEDULERS if one.name == name)
    cell = Cell(STOCK, qasio.M1, scheduler, device)
    text = queue_script(study("qasio"), cell)
    return [line.removesuffix(" &&") for line in text.splitlines()]


def test_a_scheduler_is_set_with_all_that_belongs_to_it() -> None:
    assert queue("qasio, boost off") == [
        'echo none >"$QUEUE/scheduler"',
        'echo qasio >"$QUEUE/scheduler"',
        'echo 0 >"$QUEUE/wbt_lat_usec"',
        'echo 0 >"$QUEUE/max_sectors_kb"',
        'echo 2048 >"$QUEUE/nr_requests"',
        'echo 0 >"$QUEUE/iosched/boost"',
    ]
    assert 'echo 128 >"$QUEUE/max_sectors_kb"' in queue("qasio, 128 KiB a request")
    assert 'echo 2000 >"$QUEUE/wbt_lat_usec"' in queue("kyber, wbt")


def test_a_device_may_hold_what_its_driver_would() -> None:
    assert 'echo 128 >"$QUEUE/nr_requests"' in queue("mq-deadline", "emmc")
    assert not any("nr_requests" in line for line in queue("mq-deadline"))
    assert not any("nr_requests" in line for line in queue("none", "emmc"))
    assert 'echo 2048 >"$QUEUE/nr_requests"' in queue("qasio", "emmc")


def test_a_study_without_schedulers_leaves_the_queue_as_it_is() -> None:
    one = study("overwrite")
    assert {queue_script(one, cell) for cell in one.cells("emmc", quick=False)} == {":"}
