"""Tables, verdicts, the README's figures and plots from result files."""

import io
import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fastsync_lab import figures, report
from fastsync_lab.device import profile_names
from fastsync_lab.documents import marks, replace_block
from fastsync_lab.errors import FastsyncError
from fastsync_lab.experiment import experiment_names, load_experiment

BEGIN_MARK, END_MARK = marks(report.FIGURES)
ENVIRONMENT: dict[str, Any] = {
    "kernel_release": "6.12.1",
    "debian_version": "6.12.1-1",
    "models_cpu": "500 million instructions a second, one core",
    "fio": "fio-3.33",
    "sqlite": "3.50.4",
    "modules_sha256": {"stock/ext4.ko": "1", "fastsync/ext4.ko": "2"},
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
    rounds_per_s: float | None = None,
) -> dict[str, Any]:
    beside = {"neighbour": {"rounds_per_s": rounds_per_s}} if rounds_per_s else {}
    return {
        "key": variant,
        "workload": workload,
        "variant": variant,
        "interval_ms": interval_ms,
        "mount_options": "defaults",
        "repetitions": [{"phases": {phase: run(speed, journal_kib)}} | beside for speed in speeds],
    }


def result(
    cells: list[dict[str, Any]],
    experiment: str = "overwrite",
    kernel: str = "6.12.1",
    device: str = "sata-ssd",
) -> dict[str, Any]:
    release = {"kernel_release": f"{kernel}+deb-amd64", "debian_version": f"{kernel}-1"}
    return {
        "format": 1,
        "experiment": experiment,
        "title": "4 KiB overwrite + fsync",
        "mode": "quick",
        "device": device,
        "complete": True,
        "environment": ENVIRONMENT | release,
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


FOUR = {"stock": None, "ideal": None, "truncate": 100, "defer": 100}


def four(
    speeds: tuple[float, float, float, float], workload: str = "random", phase: str = "overwrite"
) -> list[dict[str, Any]]:
    """Cells of stock, Ideal and both modes."""
    return [
        cell(variant, [speed], 1, interval_ms, phase, workload)
        for (variant, interval_ms), speed in zip(FOUR.items(), speeds, strict=True)
    ]


def neighbour(kernel: str, stock: float) -> dict[str, Any]:
    """Stock runs at `stock` beside a process that stats and writes; all else at 1000 or 999."""
    cells = [
        cell(
            variant,
            [stock if (variant, stat) == ("stock", True) else 999 if stat else 1000],
            1,
            workload=f"beside {'stat + ' if stat else ''}writes",
            rounds_per_s=5000,
        )
        for stat, variant in product((False, True), FOUR)
    ]
    return result(cells, "neighbour", kernel)


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
    row = figures.rows_of([overwrite()])[0]
    assert row.ops_per_s == 230
    assert row.kib_per_op == {"data": 4.0, "journal": 12.0, "metadata": 0.0}
    assert (row.total_kib, row.flushes_per_op, row.requests_per_op) == (16.0, 1.0, 1.5)
    assert row.neighbour_per_s is None


@pytest.mark.parametrize(
    ("version", "kernel", "series"),
    [
        ("6.12.117-1~deb12u1", "6.12.117", "6.12"),
        ("6.1.192-2", "6.1.192", "6.1"),
        ("7.2.12-1~bpo13+1", "7.2.12", "7.2"),
    ],
)
def test_the_series_comes_from_the_environment(version: str, kernel: str, series: str) -> None:
    of = {"environment": {"debian_version": version}}
    assert (figures.kernel_of(of), figures.series_of(of)) == (kernel, series)


def test_results_are_ordered_by_kernel_experiment_and_device() -> None:
    kernels, names, devices = ("6.1.9", "6.12.1", "7.2.3"), ("overwrite", "sqlite"), ("ufs", "nvme")
    wanted = list(product(kernels, names, devices))
    results = [
        result([], name, kernel, device) for kernel, name, device in sorted(wanted, reverse=True)
    ]
    found = figures.in_order(results)
    assert [(figures.kernel_of(r), r["experiment"], r["device"]) for r in found] == wanted


def test_every_device_and_experiment_has_its_place() -> None:
    assert set(figures.DEVICES) == set(profile_names())
    assert set(figures.EXPERIMENTS) == set(experiment_names())


# --- verdicts ----------------------------------------------------------------------------------


def test_figures_that_are_reached() -> None:
    found = report.verdicts([overwrite()])
    assert len(found) == 6
    assert all(verdict.passed for verdict in found)
    saved = [verdict.figure for verdict in found if "journal" in verdict.what]
    assert saved == [pytest.approx(0.98), pytest.approx(0.98)]


def test_figures_that_fall_short_say_by_how_much() -> None:
    short = [v for v in report.verdicts([overwrite(truncate=220)]) if not v.passed]
    assert [str(verdict) for verdict in short] == [
        "SHORT 0.4112 (at least 0.985) 6.12.1, sata-ssd, random: truncate, speed over Ideal",
        "SHORT 0.9565 (at least 0.995) 6.12.1, sata-ssd, random: truncate, speed over stock",
    ]


@pytest.mark.parametrize(
    ("speed", "passed"), [(227, False), (228, True), (232, True), (233, False)]
)
def test_off_is_held_against_stock_from_both_sides(speed: float, passed: bool) -> None:
    found = report.verdicts([result([cell("stock", [230], 12), cell("off", [speed], 12)])])
    assert [(v.what, v.passed) for v in found] == [("off, speed over stock", passed)]
    assert "at least 0.99, at most 1.01" in str(found[0])


def test_journal_bytes_count_only_where_stock_journals_on_most_calls() -> None:
    cells = [cell("stock", [230], 2), cell("defer", [235], 1, 100)]
    assert not any("journal" in v.what for v in report.verdicts([result(cells)]))


def test_what_sqlite_is_held_against_depends_on_the_kernel() -> None:
    def judged(kernel: str) -> list[tuple[str, str]]:
        cells = [
            cell
            for workload, phase in product(("PERSIST", "DELETE", "WAL"), ("insert", "update"))
            for cell in four((90, 100, 96, 98), workload, phase)
        ]
        found = report.verdicts([result(cells, "sqlite", kernel)])
        short = [v for v in found if not v.passed]
        assert all(v.what == "truncate, speed over Ideal" for v in short)
        return [(v.kernel, v.name) for v in short]

    assert judged("6.12.1") == [("6.12.1", "PERSIST update")]
    rollback = ["PERSIST insert", "PERSIST update", "DELETE insert", "DELETE update"]
    assert judged("7.2.3") == [("7.2.3", name) for name in rollback]


@pytest.mark.parametrize(
    ("kernel", "experiment", "workload", "asked"),
    [
        ("7.2.3", "fstat", "random, fstat first", True),
        ("7.2.3", "fstat", "random", False),
        ("7.2.3", "overwrite", "random, fstat first", False),
        ("6.12.1", "fstat", "random, fstat first", False),
    ],
)
def test_twice_stock_is_asked_for_where_the_issue_says_so(
    kernel: str, experiment: str, workload: str, asked: bool
) -> None:
    cells = four((100, 200, 199, 201), workload)
    found = report.verdicts([result(cells, experiment, kernel, "uniform-100us")])
    short = [v for v in found if not v.passed]
    assert [(v.what, v.figure) for v in short] == (
        [("truncate, speed over stock", 1.99)] if asked else []
    )


def test_a_neighbour_is_held_against_its_control_within_one_variant() -> None:
    found = report.verdicts([neighbour("7.2.3", 500)])
    assert [(v.name, v.what, v.figure) for v in found] == [
        ("beside stat + writes", "truncate, speed over truncate beside writes", 0.999),
        ("beside stat + writes", "defer, speed over defer beside writes", 0.999),
    ]


def test_kernels_are_judged_apart() -> None:
    both = [neighbour("6.12.1", 999), neighbour("7.2.3", 500)]
    assert [v.kernel for v in report.verdicts(both)] == ["6.12.1"] * 2 + ["7.2.3"] * 2


def test_a_sweep_must_be_monotonic() -> None:
    assert all(v.passed for v in report.verdicts([sweep([230, 400, 520, 519.5])]))
    short = [v for v in report.verdicts([sweep([230, 400, 390, 530])]) if not v.passed]
    assert [v.what for v in short] == ["truncate, worst step of speed"]
    assert short[0].figure == pytest.approx(390 / 400)
    assert short[0].name == "interval 1 to 1000 ms"


# --- what is shown -----------------------------------------------------------------------------


def test_the_table_has_every_variant_and_ratio(paths: list[Path]) -> None:
    out = io.StringIO()
    report.print_table(paths, console=Console(file=out, width=70))
    text = out.getvalue()
    for part in (
        "overwrite, sata-ssd, 6.12.1",
        "Ideal",
        "truncate 1000 ms",
        "2.304",
        "0.991",
        "12.00",
    ):
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


def test_the_readme_has_the_headline_of_each_kernel() -> None:
    fstat = "random, fstat first"
    results = [
        result(four((118, 244, 233, 240), fstat), kernel="7.2.3"),
        result(four((20, 40, 43, 46), "PERSIST", "update"), "sqlite"),
        overwrite(),
        result(four((230, 535, 530, 532), "sequential")),
        neighbour("7.2.3", 500),
    ]
    text = report.readme_text(results)
    assert "| 6.12.1 | sata-ssd | random | 230 | 535 | 530 | 532 | 0.991 | 0.994 | 2.313 |" in text
    assert f"| 7.2.3 | sata-ssd | {fstat} | 118 | 244 | 233 | 240 | 0.955 | 0.984 |" in text
    assert "| 6.12.1 | sata-ssd | PERSIST update | 20 | 40 | 43 | 46 |" in text
    assert "sequential" not in text and "SHORT" not in text
    assert "lowest: stock 0.500, truncate 0.999, defer 0.999." in text
    assert "Linux 6.12.1+deb-amd64" in text and "Linux 7.2.3+deb-amd64" in text
    assert "required figures are reached." in text and "(docs/results.md)" in text


def test_the_headline_is_of_rows_that_there_are() -> None:
    for experiment, names in report.HEADLINE.items():
        workloads = load_experiment(experiment, quick=False).workloads
        there = {
            workload.name if phase == "overwrite" else f"{workload.name} {phase}"
            for workload in workloads
            for phase in workload.phases()
        }
        assert set(names) <= there


def test_a_kernel_without_results_is_named_and_no_failure() -> None:
    assert "- Linux 7.2: no figures yet." in report.readme_text([overwrite()])
    only = report.readme_text([neighbour("7.2.3", 500)])
    assert "- Linux 6.12: no figures yet." in only and "Linux 7.2:" not in only


def test_the_results_page_has_all_figures_and_names_those_that_are_missed() -> None:
    results = [sweep([230, 400, 390, 530]), overwrite(), neighbour("7.2.3", 500)]
    text = report.results_text(results)
    assert text.index("## Linux 6.12\n") < text.index("## Linux 7.2\n")
    assert "| sata-ssd | random | 230 | 535 | 530 | 532 | 0.991 | 0.994 | 2.313 | 12.00 |" in text
    assert "| sata-ssd | truncate | 230; 16.00 | 230; 16.00 | 400; 10.00 |" in text
    assert (
        "| sata-ssd | beside stat + writes | beside writes | 5,000 | 5,000 | 500 | 1,000 "
        "| 0.500 | 0.999 | 0.999 | 0.999 |" in text
    )
    assert "### Linux 6.12: 7 of 8 required figures are reached\n\n- SHORT 0.9750" in text
    assert "### Linux 7.2: 2 of 2 required figures are reached\n" in text
    assert "[interval-6.12.png](../results/interval-6.12.png)" in text


def test_results_of_several_builds_are_told_apart() -> None:
    one, other = overwrite(), neighbour("6.12.1", 999)
    assert "All with one build of the modules" in report.describe_builds([one, other])
    other["environment"] |= {"modules_sha256": {"stock/ext4.ko": "1", "fastsync/ext4.ko": "3"}}
    text = report.describe_builds([one, other])
    assert text.startswith("With 2 builds of the modules: ")
    assert text.endswith(": neighbour on sata-ssd")


def test_the_report_is_made_of_whole_full_runs_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "results"
    monkeypatch.setattr(report, "results_dir", lambda: folder)
    monkeypatch.setattr(report, "repo_root", lambda: tmp_path)
    with pytest.raises(FastsyncError, match="no full result"):
        report.write_report()
    (tmp_path / "docs").mkdir()
    folder.mkdir()
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN_MARK}\nold\n{END_MARK}\nafter\n")
    files = {
        "overwrite-full-6.12-sata-ssd": overwrite(),
        "overwrite-full-7.2-sata-ssd.partial": {"complete": False},
        "neighbour-quick-7.2-sata-ssd": neighbour("7.2.3", 500),
    }
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    report.write_report()
    first = readme.read_text()
    report.write_report()
    assert readme.read_text() == first
    assert first.startswith("before\n") and first.endswith("\nafter\n") and "old" not in first
    assert "7.2.3" not in first + (tmp_path / "docs" / "results.md").read_text()
    assert [path.name for path in folder.glob("*.png")] == ["overwrite-6.12.png"]


@pytest.mark.parametrize(
    "text",
    ["", BEGIN_MARK, f"{END_MARK} {BEGIN_MARK}", BEGIN_MARK * 2],
)
def test_a_readme_without_its_marks_is_an_error(text: str) -> None:
    with pytest.raises(FastsyncError):
        replace_block(text, report.FIGURES, "x")


def test_the_plot_is_a_png(paths: list[Path], tmp_path: Path) -> None:
    png = tmp_path / "folder" / "demo.png"
    report.plot(paths, png)
    assert png.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(FastsyncError, match="no results"):
        report.plot([], png)
