"""Tables, verdicts and plots from result files."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fastsync_lab import report
from fastsync_lab.errors import FastsyncError

ENVIRONMENT = {
    "kernel_release": "6.12.1",
    "debian_version": "6.12.1-1",
    "models_cpu": "500 million instructions a second, one core",
    "fio": "fio-3.33",
    "sqlite": "3.50.4",
}


def run(ops_per_s: float, journal_kib: float) -> dict[str, Any]:
    """One repetition's phase of 1000 operations."""
    return {
        "operations": 1000,
        "ops_per_s": ops_per_s,
        "mean_ns": 10,
        "p50_ns": 1_500_000,
        "p99_ns": 4_000_000,
        "max_ns": 10,
        "blocks": {
            "bytes": {
                "data": 4096_000,
                "journal": round(journal_kib * 1024_000),
                "metadata": 0,
            },
            "requests": {"data": 1000, "journal": 500, "metadata": 0},
            "flushes": 1000,
            "fua": 500,
            "mean_request_kib": 4.0,
            "sequential_ratio": 0.0,
        },
    }


def cell(
    variant: str,
    speeds: list[float],
    journal_kib: float,
    interval_ms: int | None = None,
    phase: str = "overwrite",
    workload: str = "random",
) -> dict[str, Any]:
    return {
        "key": variant,
        "workload": workload,
        "variant": variant,
        "interval_ms": interval_ms,
        "mount_options": "defaults",
        "repetitions": [{"phases": {phase: run(speed, journal_kib)}} for speed in speeds],
    }


def result(cells: list[dict[str, Any]], experiment: str = "overwrite") -> dict[str, Any]:
    return {
        "format": 1,
        "experiment": experiment,
        "title": "4 KiB overwrite + fsync",
        "mode": "quick",
        "device": "sata-ssd",
        "complete": True,
        "environment": ENVIRONMENT,
        "cells": cells,
    }


def overwrite(truncate: float = 530, defer: float = 532) -> dict[str, Any]:
    return result(
        [
            cell("stock", [230, 231, 100], 12),
            cell("ideal", [535], 0),
            cell("truncate", [truncate], 0.24, 100),
            cell("defer", [defer], 0.24, 100),
        ]
    )


def sweep(speeds: list[float]) -> dict[str, Any]:
    intervals = [1, 10, 100, 1000]
    points = [
        cell("truncate", [speed], 12 / (index + 1), ms)
        for index, (ms, speed) in enumerate(zip(intervals, speeds, strict=True))
    ]
    return result([cell("stock", [230], 12), cell("ideal", [535], 0), *points], "interval")


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    files = [tmp_path / "overwrite.json", tmp_path / "interval.json"]
    for path, value in zip(files, [overwrite(), sweep([230, 400, 520, 530])], strict=True):
        path.write_text(json.dumps(value))
    return files


def test_a_row_is_the_median_of_the_repetitions() -> None:
    row = report.rows_of([overwrite()])[0]
    assert row.ops_per_s == 230
    assert row.kib_per_op == {"data": 4.0, "journal": 12.0, "metadata": 0.0}
    assert (row.total_kib, row.flushes_per_op, row.requests_per_op) == (16.0, 1.0, 1.5)


def test_figures_that_are_reached() -> None:
    found = report.verdicts([overwrite()])
    assert len(found) == 6
    assert all(verdict.passed for verdict in found)
    saved = [verdict.figure for verdict in found if "journal" in verdict.what]
    assert saved == [pytest.approx(0.98), pytest.approx(0.98)]


def test_figures_that_fall_short_say_by_how_much() -> None:
    short = [v for v in report.verdicts([overwrite(truncate=220)]) if not v.passed]
    assert [str(verdict) for verdict in short] == [
        "SHORT 0.957 (at least 0.995) sata-ssd, random: truncate, speed over stock",
        "SHORT 0.411 (at least 0.985) sata-ssd, random: truncate, speed over Ideal",
    ]


def test_off_is_held_against_stock_only() -> None:
    found = report.verdicts([result([cell("stock", [230], 12), cell("off", [230], 12)])])
    assert [verdict.what for verdict in found] == ["off, speed over stock"]


def test_journal_bytes_count_only_where_stock_journals_on_most_calls() -> None:
    cells = [cell("stock", [230], 2), cell("defer", [235], 1, 100)]
    assert not any("journal" in v.what for v in report.verdicts([result(cells)]))


def test_sqlite_is_held_against_fdatasync_where_the_issue_says_so() -> None:
    cells = [
        cell(variant, [speed], 1, phase=phase, workload="PERSIST")
        for phase in ("insert", "update")
        for variant, speed in (("ideal", 100.0), ("defer", 96.0))
    ]
    found = report.verdicts([result(cells, "sqlite")])
    assert [(v.name, v.passed) for v in found] == [("PERSIST update", False)]


def test_a_sweep_must_be_monotonic() -> None:
    assert all(v.passed for v in report.verdicts([sweep([230, 400, 520, 519.5])]))
    short = [v for v in report.verdicts([sweep([230, 400, 390, 530])]) if not v.passed]
    assert [v.what for v in short] == ["truncate, worst step of speed"]
    assert short[0].figure == pytest.approx(390 / 400)


def test_the_table_has_every_variant_and_ratio(paths: list[Path]) -> None:
    out = io.StringIO()
    report.print_table(paths, console=Console(file=out, width=70))
    text = out.getvalue()
    for part in ("overwrite, sata-ssd", "Ideal", "truncate 1000 ms", "2.304", "0.991", "12.00"):
        assert part in text
    assert "Required figures: 8 of 8 reached." in text


def test_an_interrupted_run_is_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(overwrite() | {"complete": False}))
    with pytest.raises(FastsyncError, match="interrupted run"):
        report.print_table([path])
    path.write_text("{")
    with pytest.raises(FastsyncError, match="cannot read"):
        report.print_table([path])


def test_the_readme_gets_the_figures_between_its_marks(paths: list[Path], tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{report.BEGIN_MARK}\nold\n{report.END_MARK}\nafter\n")
    report.write_readme(paths, readme)
    first = readme.read_text()
    report.write_readme(paths, readme)
    assert readme.read_text() == first
    assert first.startswith("before\n") and first.endswith("\nafter\n") and "old" not in first
    assert "| sata-ssd | random | 230 | 535 | 530 | 532 | 0.991 | 0.994 | 2.313 | 12.00 |" in first
    assert "| sata-ssd | truncate | 230; 16.00 | 230; 16.00 | 400; 10.00 |" in first


@pytest.mark.parametrize(
    "text",
    ["", report.BEGIN_MARK, f"{report.END_MARK} {report.BEGIN_MARK}", report.BEGIN_MARK * 2],
)
def test_a_readme_without_its_marks_is_an_error(text: str) -> None:
    with pytest.raises(FastsyncError):
        report.replace_figures(text, "x")


def test_the_plot_is_a_png(paths: list[Path], tmp_path: Path) -> None:
    png = tmp_path / "folder" / "demo.png"
    report.plot(paths, png)
    assert png.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(FastsyncError, match="no results"):
        report.plot([], png)
