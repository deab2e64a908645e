"""The study of I/O schedulers: what is run, what is read of it, what is required and said."""

import json
from dataclasses import replace
from typing import Any

import pytest

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.studies import qasio
from fastsync_lab.study import fio
from fastsync_lab.study.contract import Cell, Output, Scheduler, Script
from fastsync_lab.study.filesystems import RAW, STOCK
from fastsync_lab.study.grid import Grid
from fastsync_lab.study.judge import Requirement, Where
from fastsync_lab.study.rows import Line, Place, Stat

CALL = {"operations": 200, "mean_ns": 9, "p50_ns": 8, "p99_ns": 20, "max_ns": 21}

# --- what is run ---------------------------------------------------------------------------------


def test_what_of_qasio_is_run() -> None:
    found = {
        (cell.workload.name, cell.scheduler.name): cell.system.name
        for cell in qasio.STUDY.cells("emmc", quick=False)
    }
    assert len(found) == 150
    assert found["M5", "bfq"] == "discard" and found["M1", "bfq"] == "stock"
    assert {found[f"read, depth {depth}", "qasio"] for depth in (1, 4, 32, 128)} == {"raw"}
    assert ("BULK", "no writer") not in found and ("BULK", "qasio") in found
    assert ("LAUNCH", "qasio, boost off") not in found and ("M2", "qasio, boost off") in found
    assert ("M1", "bfq, 2048 requests") in found and ("M2", "bfq, 2048 requests") not in found
    quick = list(qasio.STUDY.cells("emmc", quick=True))
    assert [cell.name for cell in quick] == ["M1, mq-deadline", "M1, bfq", "M1, qasio"]


def script(work: qasio.Work, scheduler: Scheduler) -> Script:
    return qasio.script(Cell(STOCK, work, scheduler, "emmc"), lambda name: f"/staged/{name}")


@pytest.mark.parametrize(
    ("scheduler", "more"), [(qasio.OWN, ""), (qasio.ALONE, " alone"), (qasio.BOOST_OFF, "")]
)
def test_a_benchmark_runs_between_two_looks_at_the_counters(
    scheduler: Scheduler, more: str
) -> None:
    assert script(qasio.M1, scheduler) == Script(
        "before=$(</sys/kernel/debug/qasio/waits)\n"
        f'/staged/waitbench "$FASTSYNC_DEV" M1 160 10{more} || return\n'
        'section before; echo "$before"; section after; cat /sys/kernel/debug/qasio/waits',
        prepare="sync; echo 3 >/proc/sys/vm/drop_caches",
    )


def test_direct_requests_are_between_two_looks_at_the_time_of_the_cpu() -> None:
    look = '$(read -r stat </proc/stat; echo "$EPOCHREALTIME $stat")'
    assert script(qasio.Direct("x", "randrw", 32, seconds=5), qasio.OWN) == Script(
        f"before={look}\n"
        'fio --name=matrix --filename="$FASTSYNC_DEV" --rw=randrw --bs=4k --direct=1 '
        f"--ioengine=libaio --iodepth=32 --runtime=5s {' '.join(fio.TIMED)} || return\n"
        f"after={look}\n"
        'section before; echo "$before"; section after; echo "$after"'
    )


# --- what is read of it --------------------------------------------------------------------------

COUNTERS = "meta waits 5 boosted {} late 0 other 1 handle 2 commit 3 saved_us 9\nsame_file 4\n"


def read(workload: qasio.Work, result: str, **sections: str) -> Any:
    system = RAW if isinstance(workload, qasio.Direct) else STOCK
    return qasio.read(Cell(system, workload, qasio.OWN, "emmc"), Output(result, sections))


def test_a_benchmark_has_its_calls_the_whole_and_what_was_seen_of_waits() -> None:
    result = {
        "elapsed_ns": 1_500_000_000,
        "window_ns": 2_000_000_000,
        "written_bytes": 100 << 20,
        "calls": {"fsync": {**CALL, "elapsed_ns": 7}},
    }
    before, after = COUNTERS.format(1), COUNTERS.format(4)
    assert read(qasio.M1, json.dumps(result), before=before, after=after) == {
        "fsync": CALL,
        "": {"elapsed_s": 1.5, "writer_mib_s": 50.0},
        "wait: meta": {"waits": 0, "boosted": 3, "late": 0, "other": 0, "handle": 0, "commit": 0,
                       "saved_us": 0},
    }  # fmt: skip
    with pytest.raises(FastsyncError, match=r"^waitbench printed no result: JSON"):
        read(qasio.M1, "waitbench: no space", before=before, after=after)
    with pytest.raises(FastsyncError, match=r"^waitbench printed no result: ValueError\("):
        read(qasio.M1, json.dumps(result), before="meta waits 5 boosted\n", after=after)


def test_direct_requests_and_what_they_cost_the_cpu() -> None:
    job = {"error": 0, **{way: {"total_ios": 50, "iops": 25.0} for way in ("read", "write")}}
    stats = [f"{second}.5 cpu 1 0 2 {idle} 5 0 0" for second, idle in ((10, 7), (12, 107))]
    work = qasio.MATRIX[0]
    text = json.dumps({"jobs": [job]})
    found = read(work, text, before=stats[0], after=stats[1])
    assert found == {"": {"requests_per_s": 50.0, "cpu_ns": 10_000_000.0}}
    with pytest.raises(FastsyncError, match="fio printed no result"):
        read(work, "fio: no such device\n", before=stats[0], after=stats[1])


def test_time_that_counts_as_idle() -> None:
    """Idle and waiting for I/O, and nothing else."""
    before = "10.0 cpu 1 2 3 4 5 6 7 8"
    after = "11.0 cpu 11 12 13 14 25 16 17 18"
    assert qasio.busy_ns(before, after) == 1_000_000_000 - 300_000_000


# --- what is required, and said ------------------------------------------------------------------


def test_a_bar_is_about_qasio_and_what_it_is_held_beside() -> None:
    assert qasio.bar("max_ns", ("bfq", "none"), most=0.5, workloads=("M1",), devices=("ufs",)) == (
        Requirement(
            "max_ns",
            where=Where(schedulers=("qasio",), workloads=("M1",), devices=("ufs",)),
            over=Where(schedulers=("bfq", "none")),
            most=0.5,
            others="that of bfq",
        )
    )
    assert qasio.bar("p99_ns", qasio.OTHERS, least=0.5) == Requirement(
        "p99_ns",
        where=Where(schedulers=("qasio",)),
        over=Where(schedulers=qasio.OTHERS),
        least=0.5,
        others="that of others",
    )
    assert qasio.bar("p99_ns", ("bfq",)).least == 0.0


def line(scheduler: str, subject: str = "fsync", workload: str = "M1", **values: float) -> Line:
    place = Place("6.12.1", "qasio", "emmc", workload, subject, scheduler, "stock")
    return Line(place, {name: Stat(value) for name, value in values.items()})


def waits(scheduler: str, kind: str, count: float) -> Line:
    names = ("waits", "boosted", "late", "handle", "commit")
    seen = {name: Stat(count + number) for number, name in enumerate(names)}
    return Line(replace(line(scheduler).place, subject=f"wait: {kind}"), seen)


def test_what_was_seen_is_that_of_all_cells_of_qasio() -> None:
    lines = [
        *(waits("qasio", "meta", 10), waits("qasio", "meta", 20), waits("qasio", "data", 1)),
        *(waits("bfq", "meta", 100), line("qasio", p99_ns=5.0)),
    ]
    assert qasio.seen(lines) == [
        "What qasio saw: "
        "meta: 30 waits, 32 boosted in the queue, 34 at insertion, 36 by the holder of a journal "
        "handle, 38 by a commit; "
        "data: 1 waits, 2 boosted in the queue, 3 at insertion, 4 by the holder of a journal "
        "handle, 5 by a commit."
    ]
    assert qasio.seen(lines[3:]) == []


def call(scheduler: str, p99_ms: float, max_ms: float, subject: str = "fsync") -> Line:
    return line(scheduler, subject, p99_ns=p99_ms * 1e6, max_ns=max_ms * 1e6)


CALLS = [
    call("no writer", 0.1, 0.2),
    call("mq-deadline", 9.0, 20.0),
    call("bfq", 5.0, 30.0),
    call("none", 6.0, 25.0),
    call("qasio, boost off", 0.4, 0.5),
    call("qasio", 0.6, 0.7),
]
WRITER = [line(name, "", writer_mib_s=rate) for name, rate in
          (("no writer", 0.0), ("mq-deadline", 50.0), ("qasio", 48.0))]  # fmt: skip
HEAD = ("device", "benchmark", "call", "no writer", "mq-deadline", "best of the others", "qasio",
        "writer")  # fmt: skip
SAYS = (
    "Linux 6.12.1: p99 / max latency in ms; *writer* is the throughput of the process that writes, "
    "divided by that under mq-deadline:"
)


def test_the_headline_has_the_calls_that_wait_under_the_base() -> None:
    row = ["emmc", "M1", "fsync", "0.1 / 0.2", "9.0 / 20.0", "5.0 / 20.0", "0.6 / 0.7", "0.96"]
    short = [call(name, 0.999, 9.0, "stat") for name in ("no writer", "mq-deadline", "qasio")]
    # 9.75 and no less: what is a little less would be shown as 9.7
    just = [call(name, 1.0, 9.75, "read") for name in ("no writer", "mq-deadline", "qasio")]
    of_read = ["emmc", "M1", "read", *["1.0 / 9.8"] * 4, "0.96"]
    assert qasio.headline([*short, *CALLS, *just, *WRITER]) == [
        SAYS, Grid(HEAD, [row, of_read], texts=3)
    ]  # fmt: skip


@pytest.mark.parametrize("missing", ["no writer", "mq-deadline", "qasio"])
def test_a_call_is_in_the_headline_where_all_three_have_it(missing: str) -> None:
    calls = [one for one in CALLS if one.place.scheduler != missing]
    assert qasio.headline([*calls, *WRITER]) == []
    read = [call(name, 2.0, 3.0, "read") for name in ("no writer", "mq-deadline", "qasio")]
    of_read = ["emmc", "M1", "read", *["2.0 / 3.0"] * 4, "0.96"]
    assert qasio.headline([*WRITER, *calls, *read]) == [SAYS, Grid(HEAD, [of_read], texts=3)]
