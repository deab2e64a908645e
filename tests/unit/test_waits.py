"""The experiment qasio without a guest: rows, scripts, figures, verdicts."""

import json
from typing import Any

import pytest

from fastsync_lab.errors import FastsyncError
from fastsync_lab.waits.cells import cell_script, cells_of, measure_cell, measure_fio, parse_waits
from fastsync_lab.waits.figures import judge
from fastsync_lab.waits.rows import load_rows, parse_rows
from fastsync_lab.waits.summary import readme_text, results_text

ROWS = """
title = "t"
devices = ["emmc"]
repetitions = 1
[quick]
devices = ["emmc"]
schedulers = ["qasio"]
benchmarks = ["M1"]
patterns = []
[matrix]
schedulers = ["mq-deadline", "qasio"]
patterns = ["randread"]
depths = [1, 4]
seconds = 1
[nr_requests]
emmc = 128
[[scheduler]]
name = "mq-deadline"
scheduler = "mq-deadline"
wbt = true
[[scheduler]]
name = "qasio, boost off"
scheduler = "qasio"
nr_requests = 2048
max_sectors_kb = 64
tunables = { boost = 0 }
[[scheduler]]
name = "qasio"
scheduler = "qasio"
[[scheduler]]
name = "no writer"
scheduler = "mq-deadline"
writer = false
[[benchmark]]
name = "M1"
rounds = 2
window_s = 1
[[benchmark]]
name = "BULK"
rounds = 1
window_s = 1
[[required]]
figure = "max"
base = "others"
most = 0.5
[[required]]
figure = "writer"
base = "mq-deadline"
least = 0.95
[[required]]
figure = "speed"
base = "mq-deadline"
least = 0.98
"""
COUNTERS = "meta waits 5 boosted {} late 0 other 1 handle 2 commit 3 saved_us 9\nsame_file 4\n"


def call(max_ns: int) -> dict[str, int]:
    return {
        "mean_ns": 1,
        "p50_ns": 1,
        "p99_ns": max_ns * 9 // 10,
        "max_ns": max_ns,
        "operations": 2,
    }


def cell(scheduler: str, benchmark: str, max_ns: int, writer: float) -> dict[str, Any]:
    repetition = {
        "calls": {"fsync": call(max_ns)} if benchmark == "M1" else {},
        "elapsed_ns": 10**9,
        "writer_mib_s": writer,
        "waits": parse_waits(COUNTERS.format(1)),
    }
    return {"scheduler": scheduler, "benchmark": benchmark, "repetitions": [repetition]}


def matrix_cell(scheduler: str, speed: float) -> dict[str, Any]:
    repetition = {"requests_per_s": speed, "cpu_ns_per_request": 20_000.0}
    return {"scheduler": scheduler, "matrix": "randread, depth 1", "repetitions": [repetition]}


def result(qasio_max_ns: int, qasio_writer: float) -> dict[str, Any]:
    return {
        "device": "emmc",
        "environment": {"debian_version": "6.12.117-1~deb12u1"},
        "cells": [
            cell("no writer", "M1", 100_000, 0.0),
            cell("mq-deadline", "M1", 10_000_000, 50.0),
            cell("qasio, boost off", "M1", 1_000_000, 50.0),
            cell("qasio", "M1", qasio_max_ns, qasio_writer),
            cell("mq-deadline", "BULK", 0, 50.0),
            cell("qasio", "BULK", 0, qasio_writer),
            matrix_cell("mq-deadline", 1000.0),
            matrix_cell("qasio", 990.0 if qasio_writer > 45 else 900.0),
        ],
    }


def test_the_rows_of_the_experiment_are_sound() -> None:
    full, quick = load_rows(quick=False), load_rows(quick=True)
    assert {benchmark.name for benchmark in full.benchmarks} >= {"M1", "M2", "M3", "M4", "M5"}
    assert [scheduler.name for scheduler in quick.schedulers] == ["mq-deadline", "bfq", "qasio"]
    assert len(quick.benchmarks) == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('figure = "max"', 'figure = "min"', "no figure 'min': there are max, p99"),
        ('base = "others"', 'base = "bfq"', "no scheduler 'bfq'"),
        ("wbt = true", "throttle = true", "throttle"),
        ("wbt = true", 'benchmarks = ["M6"]', "no benchmark 'M6'"),
    ],
)
def test_unknown_names_are_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(FastsyncError, match=message):
        parse_rows(ROWS.replace(old, new), quick=False)


def test_a_cells_script_sets_what_its_row_says() -> None:
    rows = parse_rows(ROWS, quick=False)
    deadline, off, _, alone = rows.schedulers
    script = cell_script(deadline, rows.benchmarks[0], 128, "/waitbench")
    assert "echo mq-deadline >/sys/block" in script
    assert "echo 2000 >/sys/block/${FASTSYNC_DEV##*/}/queue/wbt_lat_usec" in script
    assert "echo 128 >/sys/block/${FASTSYNC_DEV##*/}/queue/nr_requests" in script
    assert "/waitbench $FASTSYNC_DEV M1 2 1 || exit" in script
    assert "echo 0 >/sys/block/${FASTSYNC_DEV##*/}/queue/max_sectors_kb" in script  # the default
    script = cell_script(off, rows.benchmarks[0], None, "/waitbench")
    assert "echo 64 >/sys/block/${FASTSYNC_DEV##*/}/queue/max_sectors_kb" in script
    assert "echo 0 >/sys/block/${FASTSYNC_DEV##*/}/queue/iosched/boost || exit" in script
    assert "echo 0 >/sys/block/${FASTSYNC_DEV##*/}/queue/wbt_lat_usec" in script
    assert "echo 2048 >/sys/block/${FASTSYNC_DEV##*/}/queue/nr_requests" in script
    script = cell_script(alone, rows.benchmarks[0], None, "/waitbench")
    assert "/waitbench $FASTSYNC_DEV M1 2 1 alone || exit" in script


def test_figures_of_a_cell() -> None:
    bench = {
        "calls": {"fsync": call(7)},
        "elapsed_ns": 5,
        "window_ns": 2 * 10**9,
        "written_bytes": 6 << 20,
    }
    parts = {
        "before": COUNTERS.format(1),
        "after": COUNTERS.format(4),
        "result": json.dumps(bench),
        "queue": "nr_requests 128 wbt_lat_usec 0\n",
    }
    measured = measure_cell(parts)
    assert measured["writer_mib_s"] == 3.0
    assert measured["waits"]["meta"]["boosted"] == 3
    assert measured["waits"]["meta"]["handle"] == 0
    assert (measured["nr_requests"], measured["wbt_lat_usec"]) == (128, 0)
    with pytest.raises(FastsyncError, match="waitbench printed no result"):
        measure_cell({**parts, "result": "waitbench: fsync: No space left on device\n"})


def test_the_matrix_is_run_under_the_schedulers_it_names() -> None:
    rows = parse_rows(ROWS, quick=False)
    cells = cells_of(rows, 128, "/waitbench", "/fio")
    assert [cell.names["scheduler"] for cell in cells if "matrix" in cell.names] == [
        "mq-deadline",
        "qasio",
    ] * 2
    assert {"benchmark": "BULK", "scheduler": "qasio"} in [cell.names for cell in cells]
    assert {"benchmark": "BULK", "scheduler": "no writer"} not in [cell.names for cell in cells]
    assert "/fio --name=matrix --filename=$FASTSYNC_DEV --rw=randread" in cells[-1].script
    assert "--iodepth=4" in cells[-1].script
    some = parse_rows(ROWS.replace("wbt = true", 'benchmarks = ["BULK"]'), quick=False)
    assert "mq-deadline" not in [
        cell.names["scheduler"]
        for cell in cells_of(some, 128, "/waitbench", "/fio")
        if cell.names.get("benchmark") == "M1"
    ]
    quick = parse_rows(ROWS, quick=True)
    assert [cell.names for cell in cells_of(quick, 128, "/waitbench", "/fio")] == [
        {"benchmark": "M1", "scheduler": "qasio"}
    ]


def test_figures_of_the_matrix() -> None:
    job = {
        "error": 0,
        "read": {"total_ios": 30, "iops": 15.0},
        "write": {"total_ios": 10, "iops": 5.0},
    }
    parts = {
        "before": "1795300000.250000 cpu 10 0 20 500 3 1 2 0 0 0\n",
        "after": "1795300004.500000 cpu 14 0 30 900 12 1 4 0 0 0\n",
        "result": "note: x\n" + json.dumps({"jobs": [job]}),
    }
    busy_ns = 4_250_000_000 - 409 * 10**7  # what is not idle or waits
    assert measure_fio(parts) == {"requests_per_s": 20.0, "cpu_ns_per_request": busy_ns / 40}
    with pytest.raises(FastsyncError, match="fio printed no result"):
        measure_fio({**parts, "result": "fio: no such device\n"})


def test_verdicts_compare_with_the_best_of_the_others_and_not_with_itself() -> None:
    rows = parse_rows(ROWS, quick=False)
    found = judge(rows, [result(4_000_000, 49.0)])
    assert [(v.name, round(v.figure, 3), v.passed) for v in found] == [
        ("M1 fsync", 0.4, True),
        ("M1", 0.98, True),
        ("BULK", 0.98, True),
        ("randread, depth 1", 0.99, True),
    ]
    found = judge(rows, [result(6_000_000, 40.0)])
    assert not any(verdict.passed for verdict in found)
    assert "(at most 0.5)" in str(found[0])
    assert "(at least 0.95)" in str(found[1])


def test_the_results_show_every_line_and_what_is_short() -> None:
    rows = parse_rows(ROWS, quick=False)
    text = results_text([result(6_000_000, 49.0)], rows)
    assert "## Linux 6.12.117, emmc (one run each)" in text
    assert "| M1 | fsync | qasio | 0.00 | 0.00 | 5.40 | 6.00 | 1.00 | 49.0 |" in text
    assert "| randread, depth 1 | qasio | 990 | 20.00 |" in text
    assert "3 of 4 required figures are reached." in text
    assert "- SHORT 0.6000 (at most 0.5) 6.12.117, emmc, M1 fsync: max over that of others" in text
    assert "meta: 10 waits, 2 boosted in the queue" in text


def test_the_readme_shows_the_calls_that_wait_beside_the_least_of_all_others() -> None:
    rows = parse_rows(ROWS, quick=False)
    text = readme_text([result(4_000_000, 49.0)], rows)
    row = "| emmc | M1 | fsync | 0.1 / 0.1 | 9.0 / 10.0 | 9.0 / 10.0 | 3.6 / 4.0 | 0.98 |"
    assert row in text
    assert "BULK" not in text
    assert "4 of 4 required figures are reached." in text
    quick = result(4_000_000, 49.0)
    quick["cells"][1]["repetitions"][0]["calls"]["fsync"]["p99_ns"] = 900_000
    assert "M1" not in readme_text([quick], rows)
