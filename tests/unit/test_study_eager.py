"""The studies of eager syncing: beside a neighbour, and on a phone."""

import json
from typing import Any

import pytest

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.studies import beside, mobile
from fastsync_lab.study.contract import AS_IT_IS, Cell, FileSystem, Output
from fastsync_lab.study.eager_bars import NEAREST_PEERS
from fastsync_lab.study.filesystems import DEFER, DEFER_EAGER, EAGER, STOCK
from fastsync_lab.study.grid import Grid
from fastsync_lab.study.judge import judge
from fastsync_lab.study.rows import Line, Place, Stat

CALL = {"operations": 200, "mean_ns": 9, "p50_ns": 8, "p99_ns": 20, "max_ns": 21}
PHASES = {"phases": {"": {**CALL, "elapsed_ns": 4_000_000_000}}}


def cell(work: Any, system: FileSystem = STOCK) -> Cell[Any]:
    return Cell(system, work, AS_IT_IS, "emmc")


def line(study: str, workload: str, system: str, *subjects: str, **values: float) -> Line:
    subject = "".join(subjects)
    place = Place("6.12.1", study, "emmc", workload, subject, "default", system)
    return Line(place, {name: Stat(value) for name, value in values.items()})


# --- beside --------------------------------------------------------------------------------------


def test_a_neighbour_is_part_of_the_figures() -> None:
    work = beside.beside("create", 200, "untar")
    text = json.dumps({**PHASES, "neighbour_per_s": 1999.5})
    found = beside.read(cell(work), Output(text))
    assert found == {"": {**CALL, "ops_per_s": 50.0, "neighbour_per_s": 1999.5}}
    counted = {"counters": "bursts 4\nburst_blocks 30\n"}
    assert beside.read(cell(work), Output(text, counted))[""]["burst_blocks"] == 7.5
    with pytest.raises(FastsyncError, match="beside printed no neighbour: KeyError"):
        beside.read(cell(work), Output(json.dumps(PHASES)))
    with pytest.raises(FastsyncError, match="beside printed no result"):
        beside.read(cell(work), Output("beside: mkdir: no space"))


@pytest.mark.parametrize(
    ("qasio", "scheduler", "requests"), [(False, "mq-deadline", 128), (True, "qasio", 2048)]
)
def test_each_run_sets_its_scheduler(qasio: bool, scheduler: str, requests: int) -> None:
    work = beside.beside("append", 10, "stream", qasio=qasio)
    script = beside.script(cell(work), "/staged/{}".format)
    assert script.run == '/staged/beside fsync append 10 20 stream "$MARKER"'
    assert script.prepare == (
        f'echo none >"$QUEUE/scheduler" && echo {scheduler} >"$QUEUE/scheduler" &&\n'
        f'echo {requests} >"$QUEUE/nr_requests"'
    )


def test_the_other_scheduler_is_for_what_we_have() -> None:
    cells = list(beside.STUDY.cells("emmc", quick=False))
    assert {x.system.name for x in cells if x.workload.qasio} == {"stock", "eager", "defer+eager"}
    assert DEFER in {x.system for x in cells if not x.workload.qasio}


def judged(**p99_by_system: tuple[float, float]) -> dict[str, bool]:
    """Verdicts on p99 alone and beside untar, by what they are about."""
    lines = [
        line("beside", f"append 10/s {where}", system, p99_ns=value)
        for system, values in p99_by_system.items()
        for where, value in zip(("alone", "beside creates"), values, strict=True)
    ]
    found = judge({"beside": beside.STUDY.required}, lines)
    return {f"{one.name}: {one.what}": one.passed for one in found}


def test_what_is_required_beside_a_neighbour() -> None:
    assert judged(stock=(4, 9), eager=(2, 4), xfs=(4, 3)) == {
        "append 10/s beside creates: eager, p99 over eager append 10/s alone": True,
        "append 10/s alone: eager, p99 over stock": True,
        "append 10/s beside creates: eager, p99 over stock": True,
    }
    assert list(judged(stock=(4, 4), eager=(2, 5)).values()) == [False, True, False]
    p99_ns = {**{one.name: 6 for one in NEAREST_PEERS}, "xfs": 4, "eager": 5}
    lines = [
        line("beside", "create 1/s beside untar", system, "sync", p99_ns=value)
        for system, value in p99_ns.items()
    ]
    (only,) = judge({"beside": beside.STUDY.required}, lines)
    assert only.what == "eager, p99 over the best peer" and only.figure == 1.25


# --- mobile --------------------------------------------------------------------------------------


def test_the_programs_of_a_phone() -> None:
    runs = {work.name: mobile.script(cell(work, EAGER), str).run for work in mobile.FULL.workloads}
    assert runs["DELETE"] == 'sqlbench-fsync item.db DELETE 300 10000 "$MARKER"'
    assert runs["gmail"] == 'mobilebench fsync gmail 1 "$MARKER"'
    assert {workload for workload, _ in mobile.THESIS} == set(runs)
    found = mobile.read(cell(mobile.Mobile("gmail")), Output(json.dumps(PHASES)))
    assert found[""]["ops_per_s"] == 50.0
    with pytest.raises(FastsyncError, match="mobilebench printed no result"):
        mobile.read(cell(mobile.Mobile("gmail")), Output(""))


def test_the_thesis_and_ours_stand_in_one_table() -> None:
    values = {"operations": 1000, "kib": 10, "sequential": 0.1, "request_kib": 12}
    lines = [
        line("mobile", "gmail", STOCK.name, ops_per_s=100, **values),
        line("mobile", "gmail", DEFER_EAGER.name, ops_per_s=150, **{**values, "sequential": 0.5}),
        line("mobile", "chrome", STOCK.name, ops_per_s=100, **values),
    ]
    (grid,) = mobile.beside_thesis(lines)
    assert isinstance(grid, Grid)
    (only,) = grid.lines
    assert only[:6] == ["emmc", "gmail", "1.23", "1.50", "0.00 to 0.17", "0.10 to 0.50"]
    assert only[6:] == ["12.9 to 35.5", "12.0 to 12.0", "306.2 to 292.2", "10.2 to 10.2"]
    assert mobile.beside_thesis([]) == []


def test_required_is_what_the_thesis_has() -> None:
    bars = {(*one.where.workloads, *one.where.subjects): one for one in mobile.STUDY.required}
    least = [round(bars[key].least, 2) for key in mobile.THESIS]
    assert least == [1.73, 1.73, 1.67, 1.31, 1.23, 1.33]
    assert all(one.where.devices == ("emmc",) for one in bars.values())
    lines = [
        line("mobile", "chrome", system, ops_per_s=speed)
        for system, speed in (("stock", 100), ("defer+eager", 132))
    ]
    (only,) = judge({"mobile": mobile.STUDY.required}, lines)
    assert not only.passed and only.figure == 1.32
