"""The bars that figures are held against, and the verdicts, figure by figure."""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest

from fastsync_lab import figures
from fastsync_lab.errors import FastsyncError
from fastsync_lab.experiment import experiment_names, load_experiment
from fastsync_lab.figures import Row
from fastsync_lab.required import Requirement, Verdict, judge, sweep_verdicts, within, worst_step
from fastsync_lab.waits.rows import load_rows

# What the issues ask for, written down a second time: whoever moves a bar has to say so here.
# Experiment, figure, variants, base, least, most; then where it holds.
BARS = [
    ("fstat", "speed", ["truncate", "defer"], "ideal", 0.985, None, {}),
    ("fstat", "speed", ["truncate", "defer"], "stock", 2.0, None,
     {"kernels": ["7.2"], "workloads": ["random, fstat first"]}),
    ("fstat", "speed", ["off"], "stock", 0.99, 1.01, {}),
    ("interval", "worst step of speed", ["truncate", "defer"], None, 0.998, None, {}),
    ("interval", "worst step of volume", ["truncate", "defer"], None, 0.998, None, {}),
    ("neighbour", "speed", ["truncate", "defer"], None, 0.97, None,
     {"workloads": ["beside stat + writes"], "base_workload": "beside writes"}),
    ("neighbour", "speed", ["truncate", "defer"], None, 0.97, None,
     {"workloads": ["beside stat + writes on tmpfs"], "base_workload": "beside writes on tmpfs"}),
    ("overwrite", "speed", ["truncate", "defer"], "ideal", 0.985, None, {}),
    ("overwrite", "journal bytes saved", ["truncate", "defer"], "stock", 0.97, None,
     {"base_kib": 6.0}),
    ("overwrite", "speed", ["truncate", "defer"], "stock", 0.995, None, {}),
    ("overwrite", "speed", ["off"], "stock", 0.99, 1.01, {}),
    ("sqlite", "speed", ["truncate", "defer"], "ideal", 0.97, None,
     {"kernels": ["6.1", "6.12"], "workloads": ["PERSIST"], "phases": ["update"]}),
    ("sqlite", "speed", ["truncate", "defer"], "ideal", 0.97, None,
     {"kernels": ["7.2"], "workloads": ["PERSIST", "TRUNCATE", "DELETE"]}),
    ("sqlite", "speed", ["truncate", "defer"], "stock", 0.995, None, {}),
    ("sqlite", "speed", ["off"], "stock", 0.99, 1.01, {}),
]  # fmt: skip
M1_TO_M5 = ["M1", "M2", "M3", "M4", "M5"]
# Figure, base, least, most; then where it holds.
QASIO_BARS = [
    ("max", "mq-deadline", 0.0, 0.03, {"devices": ["emmc"], "benchmarks": M1_TO_M5}),
    ("p99", "others", 0.0, 1.0, {"benchmarks": M1_TO_M5}),
    ("max", "others", 0.0, 1.0, {"benchmarks": M1_TO_M5}),
    ("elapsed", "mq-deadline", 0.0, 0.169, {"benchmarks": ["M1"]}),
    ("writer", "mq-deadline", 0.95, None, {}),
    ("speed", "mq-deadline", 0.98, None, {}),
    ("cpu", "mq-deadline", 0.0, 1.02, {}),
]


def said(requirement: object, names: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of a requirement: those named, and of the rest those that are not left out."""
    fields = asdict(requirement)  # type: ignore[call-overload]
    return (
        {name: fields.pop(name) for name in names},
        {name: value for name, value in fields.items() if value},
    )


def test_the_bars_are_those_that_were_asked_for() -> None:
    names = ("figure", "variants", "base", "least", "most")
    there = [
        (experiment, *said(requirement, names))
        for experiment in experiment_names()
        for requirement in load_experiment(experiment, quick=False).required
    ]
    assert there == [
        (experiment, dict(zip(names, bar[:5], strict=True)), bar[5]) for experiment, *bar in BARS
    ]


def test_quick_runs_are_held_against_the_same_bars() -> None:
    for name in experiment_names():
        quick, full = (load_experiment(name, quick=quick) for quick in (True, False))
        assert quick.required == full.required
    assert load_rows(quick=True).required == load_rows(quick=False).required


def test_qasios_bars_are_those_that_were_asked_for() -> None:
    names = ("figure", "base", "least", "most")
    there = [said(requirement, names) for requirement in load_rows(quick=False).required]
    assert there == [(dict(zip(names, bar[:4], strict=True)), bar[4]) for bar in QASIO_BARS]


# --- one figure ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figure", "least", "most", "passed"),
    [
        (0.985, 0.985, None, True),
        (0.9849, 0.985, None, False),
        (9.0, 0.985, None, True),
        (1.01, 0.99, 1.01, True),
        (1.0101, 0.99, 1.01, False),
        (0.98, 0.99, 1.01, False),
        (0.0, 0.0, 0.0, True),
        (0.1, 0.0, 0.0, False),
    ],
)
def test_a_bar_is_reached_when_it_is_met(
    figure: float, least: float, most: float | None, passed: bool
) -> None:
    assert within(figure, least, most) is passed
    assert Verdict("6.12.1", "ufs", "random", "w", figure, least, most).passed is passed


@pytest.mark.parametrize(
    ("figure", "least", "most", "text"),
    [
        (0.99, 0.985, None, "pass  0.9900 (at least 0.985) 6.12.1, ufs, random: what"),
        (0.9, 0.985, None, "SHORT 0.9000 (at least 0.985) 6.12.1, ufs, random: what"),
        (1.0, 0.99, 1.01, "pass  1.0000 (at least 0.99, at most 1.01) 6.12.1, ufs, random: what"),
        (0.02, 0.0, 0.03, "pass  0.0200 (at most 0.03) 6.12.1, ufs, random: what"),
        (0.5, 0.0, None, "pass  0.5000 (at least 0) 6.12.1, ufs, random: what"),
    ],
)
def test_a_verdict_in_words(figure: float, least: float, most: float | None, text: str) -> None:
    assert str(Verdict("6.12.1", "ufs", "random", "what", figure, least, most)) == text


def row(variant: str = "defer", **other: Any) -> Row:
    """A row: 100 operations a second, 4 KiB of data and 12 of journal for each."""
    fields: dict[str, Any] = {
        "kernel": "6.12.1", "experiment": "e", "device": "ufs", "workload": "w", "phase":
        "overwrite", "variant": variant, "interval_ms": None, "ops_per_s": 100.0, "p50_ns": 1.0,
        "p99_ns": 2.0, "kib_per_op": {"data": 4.0, "journal": 12.0, "metadata": 0.0},
        "flushes_per_op": 1.0, "requests_per_op": 1.0, "mean_request_kib": 4.0,
        "sequential_ratio": 0.0, "neighbour_per_s": None, "repetitions": 1,
    }  # fmt: skip
    return Row(**(fields | other))


SPEED = Requirement("speed", ["defer"], 0.9, base="stock")
SAVED = Requirement("journal bytes saved", ["defer"], 0.97, base="stock", base_kib=6.0)
STEP = Requirement("worst step of speed", ["defer"], 0.998, most=5.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"figure": "haste"}, "no figure 'haste': there are speed, journal bytes saved, worst step "
         "of speed, worst step of volume"),
        ({"variants": ["stick"]}, "no variant 'stick': there are stock, ideal, truncate, defer, "
         "off"),
        ({"base": "stick"}, "no variant 'stick': there are stock, ideal, truncate, defer, off"),
    ],
)  # fmt: skip
def test_a_requirement_of_what_there_is_not_is_an_error(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(FastsyncError) as error:
        replace(SPEED, **change)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("requirement", "text"),
    [
        (SPEED, "defer, speed over stock"),
        (replace(SPEED, base="ideal"), "defer, speed over Ideal"),
        (replace(SPEED, base=None, base_workload="x"), "defer, speed over defer x"),
        (replace(SAVED, base="off"), "defer, share of option off's journal bytes saved"),
        (STEP, "defer, worst step of speed"),
        (replace(STEP, figure="worst step of volume"), "defer, worst step of volume (inverse)"),
    ],
)
def test_a_requirement_in_words(requirement: Requirement, text: str) -> None:
    assert requirement.describe("defer") == text


def test_a_requirement_is_for_the_rows_that_it_names() -> None:
    everywhere = replace(SPEED, variants=["defer", "off"])
    assert everywhere.is_for(row("off")) and not everywhere.is_for(row("stock"))
    scopes: list[Callable[[list[str]], Requirement]] = [
        lambda names: replace(SPEED, kernels=names),
        lambda names: replace(SPEED, devices=names),
        lambda names: replace(SPEED, workloads=names),
        lambda names: replace(SPEED, phases=names),
    ]
    for scope, name in zip(scopes, ("6.12", "ufs", "w", "overwrite"), strict=True):
        assert scope(["x", name]).is_for(row())
        assert not scope(["x"]).is_for(row())


# --- over a base --------------------------------------------------------------------------------


def test_speed_is_over_the_base_of_the_same_place() -> None:
    rows = [row("stock", ops_per_s=50.0), row("stock", device="emmc", ops_per_s=10.0), row()]
    assert judge({"e": [SPEED]}, rows) == [
        Verdict("6.12.1", "ufs", "w", "defer, speed over stock", 2.0, 0.9, None)
    ]
    (found,) = judge({"e": [replace(SPEED, most=1.5)]}, rows)
    assert not found.passed


def test_without_a_base_there_is_no_verdict() -> None:
    assert judge({"e": [SPEED]}, [row(), row("stock", workload="other")]) == []
    assert judge({"other": [SPEED]}, [row(), row("stock")]) == []


@pytest.mark.parametrize(("base_kib", "asked"), [(5.99, False), (6.0, True), (12.0, True)])
def test_saved_bytes_are_asked_for_where_the_base_writes_enough(
    base_kib: float, asked: bool
) -> None:
    base = row("stock", kib_per_op={"data": 4.0, "journal": base_kib, "metadata": 0.0})
    mine = row(kib_per_op={"data": 4.0, "journal": base_kib / 4, "metadata": 0.0})
    found = judge({"e": [SAVED]}, [base, mine])
    assert [(v.figure, v.passed) for v in found] == ([(0.75, False)] if asked else [])


def test_saved_bytes_are_not_asked_for_where_there_are_none() -> None:
    base = row("stock", kib_per_op={"data": 4.0, "journal": 0.0, "metadata": 0.0})
    assert judge({"e": [replace(SAVED, base_kib=0.0)]}, [base, row()]) == []


# --- over an interval ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ([], 1.0),
        ([5.0], 1.0),
        ([1.0, 2.0, 8.0], 2.0),
        ([4.0, 2.0, 8.0], 0.5),
        ([0.0, 2.0, 6.0], 3.0),
    ],
)
def test_the_worst_step_is_the_smallest_ratio(values: list[float], step: float) -> None:
    assert worst_step(values) == step


def swept(speeds: list[float], data_kib: list[float], device: str = "ufs") -> list[Row]:
    """A sweep of defer at 1, 10, ... ms, its longest interval first."""
    return [
        row(
            interval_ms=10**index,
            ops_per_s=speed,
            device=device,
            kib_per_op={"data": kib, "journal": 0.0, "metadata": 0.0},
        )
        for index, (speed, kib) in enumerate(zip(speeds, data_kib, strict=True))
    ][::-1]


def test_a_sweep_is_judged_in_the_order_of_its_intervals() -> None:
    rows = [*swept([100, 200, 150], [16, 8, 10]), row("truncate", interval_ms=5), row("stock")]
    name = "interval 1 to 100 ms"
    assert sweep_verdicts(STEP, rows) == [
        Verdict("6.12.1", "ufs", name, "defer, worst step of speed", 0.75, 0.998, 5.0)
    ]
    volume = replace(STEP, figure="worst step of volume")
    assert sweep_verdicts(volume, rows) == [
        Verdict("6.12.1", "ufs", name, "defer, worst step of volume (inverse)", 0.8, 0.998, 5.0)
    ]
    assert judge({"e": [STEP, volume]}, rows) == [
        *sweep_verdicts(STEP, rows),
        *sweep_verdicts(volume, rows),
    ]


def test_each_device_has_a_sweep_of_its_own() -> None:
    rows = swept([1, 2], [1, 1]) + swept([2, 1], [1, 0], device="emmc")
    found = [(v.device, v.figure) for v in sweep_verdicts(STEP, rows)]
    assert found == [("ufs", 2.0), ("emmc", 0.5)]
    volume = sweep_verdicts(replace(STEP, figure="worst step of volume"), rows)
    assert [v.figure for v in volume] == [1.0, 1.0]  # what was not written is no step


def test_a_sweep_of_one_interval_never_falls() -> None:
    (found,) = sweep_verdicts(STEP, swept([7], [1]))
    assert (found.kernel, found.name, found.figure) == ("6.12.1", "interval 1 to 1 ms", 1.0)


# --- rows ---------------------------------------------------------------------------------------


def test_names_are_in_the_readers_order_and_the_rest_by_the_alphabet() -> None:
    order = ("emmc", "ufs")
    assert sorted(["b", "ufs", "a", "emmc"], key=lambda name: figures.place(name, order)) == [
        "emmc", "ufs", "a", "b",
    ]  # fmt: skip
    devices = ["nvme", "zz", "uniform-100us", "sata-ssd", "nvme-plp", "ufs", "emmc", "aa"]
    assert sorted(devices, key=figures.device_place) == [
        "emmc", "ufs", "sata-ssd", "nvme", "nvme-plp", "uniform-100us", "aa", "zz",
    ]  # fmt: skip


def test_results_of_one_experiment_are_in_the_devices_order() -> None:
    results = [
        {"environment": {"debian_version": "6.12.1-1"}, "experiment": "sqlite", "device": device}
        for device in ("nvme", "ufs", "emmc")
    ]
    assert [one["device"] for one in figures.in_order(results)] == ["emmc", "ufs", "nvme"]


def test_a_row_is_made_of_medians() -> None:
    def run(value: int) -> dict[str, Any]:
        return {
            "operations": 10, "ops_per_s": value, "p50_ns": value + 1, "p99_ns": value + 2,
            "blocks": {
                "bytes": {"data": value * 10240, "journal": value * 20480, "metadata": 0},
                "requests": {"data": value * 10, "journal": value * 20, "metadata": 0},
                "flushes": value * 50, "mean_request_kib": value + 3, "sequential_ratio": value / 8,
            },
        }  # fmt: skip

    cell = {
        "workload": "w", "variant": "defer", "interval_ms": 100,
        "repetitions": [
            {"phases": {"update": run(value)}, "neighbour": {"rounds_per_s": value * 7}}
            for value in (1, 4, 2)
        ],
    }  # fmt: skip
    result = {
        "environment": {"debian_version": "7.2.3-1"}, "experiment": "e", "device": "ufs",
        "cells": [cell],
    }  # fmt: skip
    assert figures.rows_of([result]) == [
        Row(kernel="7.2.3", experiment="e", device="ufs", workload="w", phase="update",
            variant="defer", interval_ms=100, ops_per_s=2.0, p50_ns=3.0, p99_ns=4.0,
            kib_per_op={"data": 2.0, "journal": 4.0, "metadata": 0.0}, flushes_per_op=10.0,
            requests_per_op=6.0, mean_request_kib=5.0, sequential_ratio=0.25,
            neighbour_per_s=14.0, repetitions=3)
    ]  # fmt: skip
    (made,) = figures.rows_of([result])
    assert (made.series, made.name, made.total_kib) == ("7.2", "w update", 6.0)
    assert figures.group_of(made) == ("7.2.3", "e", "ufs", "w update")


def test_a_sweep_has_a_variant_at_several_intervals() -> None:
    def of(*cells: tuple[str, int | None]) -> dict[str, Any]:
        return {"cells": [{"variant": name, "interval_ms": ms} for name, ms in cells]}

    assert figures.is_sweep(of(("stock", None), ("defer", 1), ("defer", 2)))
    assert not figures.is_sweep(of(("stock", None), ("defer", 1), ("defer", 1), ("truncate", 1)))


def test_sweeps_leave_out_what_has_no_interval_and_keep_zero_first() -> None:
    rows = [row(interval_ms=1), row(interval_ms=0), row("stock")]
    found = figures.sweeps(rows)
    assert {key: [one.interval_ms for one in series] for key, series in found.items()} == {
        ("ufs", "defer"): [0, 1]
    }
