"""The figures of qasio's results, and what they are held against, one by one."""

from typing import Any

import pytest

from fastsync_lab.required import Verdict
from fastsync_lab.waits.figures import Figure, Line, figures_of, judge, lines_of
from fastsync_lab.waits.rows import parse_rows
from tests.unit.test_waits import ROWS


def call(first_ns: int) -> dict[str, int]:
    return {
        f"{name}_ns": first_ns * (n + 1) for n, name in enumerate(("mean", "p50", "p99", "max"))
    }


def bench(scheduler: str, benchmark: str, *times: int, call_names: str = "") -> dict[str, Any]:
    """A cell with a repetition for each time: its calls' figures, and of the whole."""
    return {
        "benchmark": benchmark,
        "scheduler": scheduler,
        "repetitions": [
            {
                "calls": {name: call(time * 10**6) for name in call_names.split()},
                "elapsed_ns": time * 2 * 10**9,
                "writer_mib_s": time * 3.0,
            }
            for time in times
        ],
    }


def matrix(scheduler: str, name: str, *speeds: float) -> dict[str, Any]:
    runs = [{"requests_per_s": speed, "cpu_ns_per_request": speed * 2} for speed in speeds]
    return {"scheduler": scheduler, "matrix": name, "repetitions": runs}


def result(*cells: dict[str, Any], device: str = "emmc") -> dict[str, Any]:
    return {
        "device": device,
        "environment": {"debian_version": "6.12.117-1"},
        "cells": list(cells),
    }


RESULT = result(
    matrix("qasio", "read, depth 1", 1.0, 5.0, 2.0),
    bench("qasio", "M1", 1, 8, 4, call_names="fsync creat"),
    bench("qasio", "BULK", 7),
)


def test_a_line_is_made_of_medians_in_ms_and_s() -> None:
    assert lines_of(RESULT) == [
        Line("emmc", "M1", "qasio", name, 4.0, 8.0, 12.0, 16.0, 8.0, 12.0)
        for name in ("fsync", "creat")
    ] + [Line("emmc", "BULK", "qasio", "", 0.0, 0.0, 0.0, 0.0, 14.0, 21.0)]


@pytest.mark.parametrize(
    ("figure", "values"),
    [
        ("max", [("M1 fsync", "M1", 16.0), ("M1 creat", "M1", 16.0)]),
        ("p99", [("M1 fsync", "M1", 12.0), ("M1 creat", "M1", 12.0)]),
        ("elapsed", [("M1", "M1", 8.0), ("BULK", "BULK", 14.0)]),
        ("writer", [("M1", "M1", 12.0), ("BULK", "BULK", 21.0)]),
        ("speed", [("read, depth 1", "read, depth 1", 2.0)]),
        ("cpu", [("read, depth 1", "read, depth 1", 4.0)]),
    ],
)
def test_the_values_that_a_requirement_is_about(
    figure: str, values: list[tuple[str, str, float]]
) -> None:
    assert figures_of(RESULT, figure) == [Figure("qasio", *value) for value in values]


def test_a_figure_that_no_line_has_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        lines_of(RESULT)[0].figure("mean")


def rows(required: str) -> Any:
    head = ROWS.index("[[required]]")
    return parse_rows(ROWS[:head] + required, quick=False)


MAX = '[[required]]\nfigure = "max"\nbase = "others"\nmost = 0.5\n'
CELLS = (
    bench("no writer", "M1", 1, call_names="fsync"),
    bench("mq-deadline", "M1", 20, call_names="fsync"),
    bench("qasio, boost off", "M1", 2, call_names="fsync"),
    bench("qasio", "M1", 5, call_names="fsync"),
)


def test_others_are_those_that_write_and_are_not_qasio() -> None:
    assert judge(rows(MAX), [result(*CELLS)]) == [
        Verdict("6.12.117", "emmc", "M1 fsync", "max over that of others", 0.25, 0.0, 0.5)
    ]


@pytest.mark.parametrize(
    ("scope", "asked"),
    [
        ('devices = ["emmc"]', True),
        ('devices = ["ufs"]', False),
        ('benchmarks = ["M1"]', True),
        ('benchmarks = ["BULK"]', False),
    ],
)
def test_a_requirement_holds_where_it_says(scope: str, asked: bool) -> None:
    """The next one holds all the same."""
    found = judge(rows(f"{MAX}{scope}\n{MAX}"), [result(*CELLS)])
    assert len(found) == 1 + asked


def test_without_anything_to_compare_with_there_is_no_verdict() -> None:
    assert judge(rows(MAX), [result(CELLS[0], CELLS[3])]) == []
    assert judge(rows(MAX), [result(*CELLS[:3])]) == []
    nothing = bench("mq-deadline", "M1", 0, call_names="fsync")
    assert judge(rows(MAX), [result(nothing, CELLS[3])]) == []
