"""Tables, the README's figures, pages and plots from result files."""

import io
import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fastsync_lab.device import profile_names
from fastsync_lab.documents import marks, replace_block
from fastsync_lab.errors import FastsyncError
from fastsync_lab.paths import repo_root
from fastsync_lab.studies import studies
from fastsync_lab.study import pages, plot, show, store
from fastsync_lab.study.judge import Verdict
from fastsync_lab.study.store import Result, parse_result

RESULTS, QASIO = pages.PAGES
BEGIN_MARK, END_MARK = marks(RESULTS.block)
ENVIRONMENT: dict[str, Any] = {
    "models_cpu": "500 million instructions a second, one core",
    "versions": ["fio-3.33", "SQLite 3.50.4"],
    "sha256": {"stock/ext4.ko": "1", "fastsync/ext4.ko": "2", "statwrite.so": "3"},
}
Cell = dict[str, Any]


def cell(
    system: str,
    speeds: Sequence[float],
    journal_kib: float = 1.0,
    interval_ms: int | None = None,
    subject: str = "",
    workload: str = "random",
    **other: float,
) -> Cell:
    """Runs at these speeds."""
    values = {
        "p50_ns": 1_500_000,
        "p99_ns": 4_000_000,
        "kib": 4.0 + journal_kib,
        "kib_data": 4.0,
        "kib_journal": journal_kib,
        "kib_metadata": 0.0,
        "flushes": 1.0,
        **other,
    }
    return {
        "workload": workload,
        "system": system,
        "interval_ms": interval_ms,
        "scheduler": "default",
        "runs": [{"subjects": {subject: {"ops_per_s": speed, **values}}} for speed in speeds],
    }


def data(
    cells: Sequence[Cell],
    study: str = "overwrite",
    kernel: str = "6.12.1",
    device: str = "sata-ssd",
    **environment: Any,
) -> dict[str, Any]:
    """A result file."""
    release = {"kernel_release": f"{kernel}+deb-amd64", "debian_version": f"{kernel}-1"}
    return {
        "format": 2,
        "study": study,
        "title": "4 KiB overwrite + fsync",
        "device": device,
        "complete": True,
        "environment": ENVIRONMENT | release | environment,
        "cells": list(cells),
    }


def result(*args: Any, **kwargs: Any) -> Result:
    return parse_result(data(*args, **kwargs))


FOUR = {"stock": None, "ideal": None, "truncate": 100, "defer": 100}


def four(
    speeds: tuple[float, float, float, float], workload: str = "random", subject: str = ""
) -> list[Cell]:
    """Cells of stock, Ideal and both modes."""
    return [
        cell(system, [speed], 1, interval_ms, subject, workload)
        for (system, interval_ms), speed in zip(FOUR.items(), speeds, strict=True)
    ]


def overwrite(truncate: float = 530, **environment: Any) -> dict[str, Any]:
    """Cells in the order in which a run takes them."""
    return data(
        [
            cell("stock", [230, 231, 100], 12),
            cell("ideal", [535], 0),
            cell("stock", [200], 12, workload="sequential"),
            cell("ideal", [500], 0, workload="sequential"),
            cell("truncate", [truncate], 0.24, 100),
            cell("defer", [532], 0.24, 100),
            cell("truncate", [495], 0.24, 100, workload="sequential"),
            cell("defer", [496], 0.24, 100, workload="sequential"),
        ],
        **environment,
    )


def neighbour(kernel: str, stock: float) -> Result:
    """Stock runs at `stock` beside a process that stats and writes; all else at 1000 or 999."""
    cells = [
        cell(
            system,
            [stock if (system, stat) == ("stock", True) else 999 if stat else 1000],
            workload=f"beside {'stat + ' if stat else ''}writes",
            neighbour_per_s=5000,
        )
        for stat, system in product((False, True), FOUR)
    ]
    return result(cells, "neighbour", kernel)


def sweep(speeds: Sequence[float]) -> Result:
    points = [
        cell("truncate", [speed], 12 / (index + 1), ms)
        for index, (ms, speed) in enumerate(zip([1, 10, 100, 1000], speeds, strict=True))
    ]
    return result([cell("stock", [230], 12), cell("ideal", [535], 0), *points], "interval")


def verdicts(*results: Result) -> list[Verdict]:
    return show.verdicts(studies(), pages.lines_in(results))


# --- the bars of the studies, on results ---------------------------------------------------------


def test_figures_that_are_reached() -> None:
    found = verdicts(parse_result(overwrite()))
    assert len(found) == 12
    assert all(verdict.passed for verdict in found)
    saved = [verdict.figure for verdict in found if "journal" in verdict.what]
    assert saved == [pytest.approx(0.98)] * 4


def test_figures_that_fall_short_say_by_how_much() -> None:
    short = [v for v in verdicts(parse_result(overwrite(truncate=220))) if not v.passed]
    assert [str(verdict) for verdict in short] == [
        "SHORT 0.4112 (at least 0.985) 6.12.1, sata-ssd, random: truncate, speed over Ideal",
        "SHORT 0.9565 (at least 0.995) 6.12.1, sata-ssd, random: truncate, speed over stock",
    ]


@pytest.mark.parametrize(
    ("speed", "passed"), [(227, False), (228, True), (232, True), (233, False)]
)
def test_off_is_held_against_stock_from_both_sides(speed: float, passed: bool) -> None:
    found = verdicts(result([cell("stock", [230], 12), cell("off", [speed], 12)]))
    assert [(v.what, v.passed) for v in found] == [("off, speed over stock", passed)]
    assert "at least 0.99, at most 1.01" in str(found[0])


def test_journal_bytes_count_only_where_stock_journals_on_most_calls() -> None:
    cells = [cell("stock", [230], 2), cell("defer", [235], 1, 100)]
    assert not any("journal" in v.what for v in verdicts(result(cells)))


def test_what_sqlite_is_held_against_depends_on_the_kernel() -> None:
    def judged(kernel: str) -> list[tuple[str, str]]:
        cells = [
            cell
            for workload, phase in product(("PERSIST", "DELETE", "WAL"), ("insert", "update"))
            for cell in four((90, 100, 96, 98), workload, phase)
        ]
        short = [v for v in verdicts(result(cells, "sqlite", kernel)) if not v.passed]
        assert all(v.what == "truncate, speed over Ideal" for v in short)
        return [(v.kernel, v.name) for v in short]

    assert judged("6.12.1") == [("6.12.1", "PERSIST update")]
    rollback = ["PERSIST insert", "PERSIST update", "DELETE insert", "DELETE update"]
    assert judged("7.2.3") == [("7.2.3", name) for name in rollback]


@pytest.mark.parametrize(
    ("kernel", "study", "workload", "asked"),
    [
        ("7.2.3", "fstat", "random, fstat first", True),
        ("7.2.3", "fstat", "random", False),
        ("7.2.3", "overwrite", "random, fstat first", False),
        ("6.12.1", "fstat", "random, fstat first", False),
    ],
)
def test_twice_stock_is_asked_for_where_the_issue_says_so(
    kernel: str, study: str, workload: str, asked: bool
) -> None:
    cells = four((100, 200, 199, 201), workload)
    found = verdicts(result(cells, study, kernel, "uniform-100us"))
    short = [v for v in found if not v.passed]
    assert [(v.what, v.figure) for v in short] == (
        [("truncate, speed over stock", 1.99)] if asked else []
    )


def test_a_neighbour_is_held_against_its_control_on_one_file_system() -> None:
    found = verdicts(neighbour("7.2.3", 500))
    assert [(v.name, v.what, v.figure) for v in found] == [
        ("beside stat + writes", "truncate, speed over truncate beside writes", 0.999),
        ("beside stat + writes", "defer, speed over defer beside writes", 0.999),
    ]


def test_a_sweep_must_be_monotonic() -> None:
    assert all(v.passed for v in verdicts(sweep([230, 400, 520, 519.5])))
    short = [v for v in verdicts(sweep([230, 400, 390, 530])) if not v.passed]
    assert [v.what for v in short] == ["truncate, worst step of speed"]
    assert short[0].figure == pytest.approx(390 / 400)
    assert short[0].name == "interval 1 to 1000 ms"


# --- reading -------------------------------------------------------------------------------------


def test_a_result_knows_its_kernel_and_its_rows() -> None:
    found = parse_result(overwrite())
    assert (found.kernel, found.series, found.device) == ("6.12.1", "6.12", "sata-ssd")
    assert [row.run for row in found.rows[:4]] == [0, 1, 2, 0]
    line = found.lines[0]
    assert (line.value("ops_per_s"), line.stats["ops_per_s"].spread, line.runs) == (230, 130, 3)
    flat = store.tidy([found])
    assert len(flat) == 10
    assert flat[2] | {"kernel": "6.12.1", "study": "overwrite", "system": "stock", "run": 2,
                      "ops_per_s": 100, "subject": "", "workload": "random"} == flat[2]  # fmt: skip


def test_an_interrupted_run_is_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(overwrite() | {"complete": False}))
    with pytest.raises(FastsyncError, match="interrupted run"):
        store.load_result(path)
    path.write_text("{")
    with pytest.raises(FastsyncError, match="cannot read"):
        store.load_result(path)
    path.write_text(json.dumps(overwrite() | {"format": 3}))
    with pytest.raises(FastsyncError, match=r"is no result as this version writes it: .*format 3"):
        store.load_result(path)


@pytest.mark.parametrize(
    "name", ["overwrite-full-6.12-emmc", "sqlite-full-7.2-ufs", "qasio-full-6.12-ufs"]
)
def test_committed_results_of_any_format_are_read(name: str) -> None:
    found = store.load_result(repo_root() / "results" / f"{name}.json")
    assert found.lines and show.environments([found])[0].startswith(f"Linux {found.kernel}+deb")
    assert len(verdicts(found)) > 20


# --- what is shown -------------------------------------------------------------------------------


def printed(*results: Result) -> list[str]:
    out = io.StringIO()
    show.print_results(results, studies(), console=Console(file=out, width=70))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_the_table_has_every_file_system_beside_those_it_is_compared_with() -> None:
    lines = printed(parse_result(overwrite()), sweep([230, 400, 520, 530]))
    assert lines[0] == "overwrite, sata-ssd, 6.12.1: 4 KiB overwrite + fsync"
    assert lines[1].split() == ["workload", "system", "ops/s", "÷", "stock", "÷", "Ideal", "data",
                                "journal", "flushes", "p50,", "ms", "p99,", "ms"]  # fmt: skip
    assert lines[2].split()[:10] == ["random", "stock", "230", "±", "130", "1", "0.4", "±", "0.2",
                                     "4.00"]  # fmt: skip
    assert [line.split()[0] for line in lines[3:6]] == ["Ideal", "truncate", "defer"]
    assert lines[6].split()[:3] == ["sequential", "stock", "200"]
    text = "\n".join(lines)
    assert "truncate 1000 ms" in text and "metadata  " not in text
    assert "not stable: sata-ssd, random, stock: 230 ± 130 ops/s" in lines
    assert "14 of 14 required figures are reached." in lines


def test_a_study_that_asks_for_nothing_has_no_verdicts() -> None:
    lines = printed(result(four((1, 2, 3, 4), "append"), "files"))
    assert lines[0].startswith("files, ") and not any("required" in line for line in lines)


def test_the_readme_has_the_headline_of_each_kernel() -> None:
    fstat = "random, fstat first"
    results = [
        result(four((118, 244, 233, 240), fstat), kernel="7.2.3"),
        result(four((20, 40, 43, 46), "PERSIST", "update"), "sqlite"),
        parse_result(overwrite()),
        neighbour("7.2.3", 500),
    ]
    text = pages.readme_text(RESULTS, results, studies())
    row = "| 6.12.1 | sata-ssd | random | 230 ± 130 | 535 | 530 | 532 | 0.991 | 0.994 |"
    assert row in text
    assert f"| 7.2.3 | sata-ssd | {fstat} | 118 | 244 | 233 | 240 | 0.955 | 0.984 | 2.03 |" in text
    assert "| 6.12.1 | sata-ssd | PERSIST update | 20.0 | 40.0 | 43.0 | 46.0 |" in text
    assert "sequential" not in text and "SHORT" not in text
    assert "lowest: stock 0.500, truncate 0.999, defer 0.999." in text
    assert "Linux 6.12.1+deb-amd64" in text and "Linux 7.2.3+deb-amd64" in text
    assert "required figures are reached." in text and "(docs/results.md)" in text
    order = ("(medians of 1 to 3 runs)", "PERSIST", "lowest:", "SQLite 3.50.4")
    assert sorted(order, key=text.index) == list(order)


def test_a_kernel_without_results_is_named_and_no_failure() -> None:
    text = pages.readme_text(RESULTS, [parse_result(overwrite())], studies())
    assert "- Linux 7.2: no figures yet." in text
    only = pages.readme_text(RESULTS, [neighbour("7.2.3", 500)], studies())
    assert "- Linux 6.12: no figures yet." in only and "Linux 7.2:" not in only


def test_the_results_page_has_all_figures_and_names_those_that_are_missed() -> None:
    results = [sweep([230, 400, 390, 530]), parse_result(overwrite()), neighbour("7.2.3", 500)]
    text = pages.results_text(RESULTS, results, studies())
    assert text.index("## Linux 6.12\n") < text.index("## Linux 7.2\n")
    row = "| sata-ssd | sequential | 200 | 500 | 495 | 496 | 0.990 | 0.992 | 2.48 | 12.0 | 0.240 |"
    assert row in text
    assert "| sata-ssd | truncate | 230; 16.0 | 230; 16.0 | 400; 10.0 |" in text
    assert (
        "| sata-ssd | beside stat + writes | beside writes | 5,000 | 5,000 | 500 | 1,000 "
        "| 0.500 | 0.999 | 0.999 | 0.999 |" in text
    )
    assert "### Linux 6.12: 13 of 14 required figures are reached\n\n- SHORT 0.9750" in text
    assert "### Linux 7.2: 2 of 2 required figures are reached\n" in text
    assert "[interval-6.12.png](../results/interval-6.12.png)" in text
    assert "- not stable: sata-ssd, random, stock: 230 ± 130 ops/s" in text


def test_peers_have_a_table_of_their_own() -> None:
    cells = [*four((118, 244, 233, 240)), cell("xfs", [150], kib_unsorted=9.0)]
    cells.append(cell("off", [118]))
    text = pages.results_text(RESULTS, [result(cells)], studies())
    table = text[text.index("Beside other file systems") :].splitlines()
    assert table[2].startswith("| device | workload | system | ops/s | ÷ stock | data | journal |")
    assert [line.split(" | ")[2] for line in table[4:7]] == ["stock", "defer", "xfs"]
    assert "| xfs | 150 | 1.27 |" in text and "| 9.00 |" in text


def test_what_lacks_one_that_is_compared_is_no_result() -> None:
    with pytest.raises(FastsyncError, match="overwrite, sata-ssd, random: the result lacks defer"):
        pages.results_text(RESULTS, [result(four((1, 2, 3, 4))[:3])], studies())


def test_results_of_several_builds_are_told_apart() -> None:
    one, other = parse_result(overwrite()), neighbour("6.12.1", 999)
    assert "All with one build of the modules" in pages.describe_builds([one, other])
    rebuilt = parse_result(overwrite(sha256={"stock/ext4.ko": "1", "fastsync/ext4.ko": "3"}))
    text = pages.describe_builds([other, rebuilt])
    assert text.startswith("With 2 builds of the modules: ")
    assert text.endswith(": overwrite on sata-ssd")


def test_environments_are_named_once_with_all_that_ran() -> None:
    one = parse_result(overwrite(versions=["fio-3.33"]))
    both = parse_result(overwrite(versions=["fio-3.33", "git-2.39"]))
    assert show.environments([one, both, one]) == [
        "Linux 6.12.1+deb-amd64 (6.12.1-1), virtual time, 500 million instructions a second, one "
        "core; fio-3.33, git-2.39."
    ]
    none = parse_result(overwrite(versions=[]))
    assert show.environments([none])[0].endswith("one core.")


def test_results_are_ordered_by_kernel_study_and_device() -> None:
    kernels, names, devices = ("6.1.9", "6.12.1", "7.2.3"), ("overwrite", "sqlite"), ("ufs", "nvme")
    wanted = list(product(kernels, names, devices))
    results = [
        result([], name, kernel, device) for kernel, name, device in sorted(wanted, reverse=True)
    ]
    found = pages.in_order(results, studies())
    assert [(r.kernel, r.study, r.device) for r in found] == wanted


def test_every_device_has_its_place() -> None:
    assert set(pages.DEVICES) == set(profile_names())


# --- qasio ---------------------------------------------------------------------------------------


def waits(scheduler: str, p99_ms: float, writer: float) -> Cell:
    call = dict.fromkeys(("mean_ns", "p50_ns", "p99_ns", "max_ns"), p99_ms * 1000000.0)
    seen = {"waits": 10, "boosted": 2, "late": 0, "other": 1, "handle": 2, "commit": 3}
    whole = {"elapsed_s": 1.0, "writer_mib_s": writer}
    subjects: Mapping[str, Any] = {"fsync": call, "": whole, "wait: meta": seen}
    return {"workload": "M1", "system": "stock", "interval_ms": None, "scheduler": scheduler,
            "runs": [{"subjects": subjects}]}  # fmt: skip


def scheduled(own_ms: float, base_ms: float = 9.0) -> Result:
    cells = [waits("no writer", 0.1, 0.0), waits("mq-deadline", base_ms, 50.0)]
    cells += [waits("bfq", base_ms - 0.4, 50.0), waits("qasio, boost off", 1.0, 50.0)]
    return result([*cells, waits("qasio", own_ms, 49.0)], "qasio", device="emmc")


def test_schedulers_are_compared_with_the_best_of_the_others_and_not_with_themselves() -> None:
    found = [v for v in verdicts(scheduled(4.3)) if "others" in v.what]
    assert [(v.name, v.what, round(v.figure, 6)) for v in found] == [
        ("M1 fsync", "qasio, p99 over that of others", 0.5),
        ("M1 fsync", "qasio, max over that of others", 0.5),
    ]
    whole = [(v.name, v.what, v.passed) for v in verdicts(scheduled(4.3)) if v.name == "M1"]
    assert whole == [
        ("M1", "qasio, elapsed over that of mq-deadline", False),
        ("M1", "qasio, writer over that of mq-deadline", True),
    ]


def test_the_page_of_schedulers_shows_every_line_and_what_was_seen() -> None:
    text = pages.results_text(QASIO, [scheduled(4.3)], studies())
    assert "| device | workload | scheduler | mean, ms | p50, ms | p99, ms | max, ms |" in text
    assert "| emmc | M1 fsync | qasio, boost off | 1.00 | 1.00 | 1.00 | 1.00 |" in text
    assert "| emmc | M1 | qasio | 1.00 | 49.0 |" in text
    assert "What qasio saw: meta: 10 waits, 2 boosted in the queue" in text
    assert "Drawn" not in text and "not stable" not in text


def test_the_readme_shows_the_calls_that_wait_beside_the_least_of_all_others() -> None:
    mine = {"qasio": studies()["qasio"]}
    text = pages.readme_text(QASIO, [scheduled(4.3)], mine)
    row = "| emmc | M1 | fsync | 0.1 / 0.1 | 9.0 / 9.0 | 8.6 / 8.6 | 4.3 / 4.3 | 0.98 |"
    assert row in text
    assert "no figures yet" not in text
    assert "M1" not in pages.readme_text(QASIO, [scheduled(0.5, base_ms=0.9)], mine)


# --- files ---------------------------------------------------------------------------------------


def test_the_report_is_made_of_whole_full_runs_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "results"
    monkeypatch.setattr(store, "results_dir", lambda: folder)
    monkeypatch.setattr(pages, "results_dir", lambda: folder)
    monkeypatch.setattr(pages, "repo_root", lambda: tmp_path)
    with pytest.raises(FastsyncError, match="no full result"):
        pages.write_report(studies())
    (tmp_path / "docs").mkdir()
    folder.mkdir()
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN_MARK}\nold\n{END_MARK}\nafter\n")
    files = {
        "overwrite-full-6.12-sata-ssd": overwrite(),
        "overwrite-full-7.2-sata-ssd.partial": {"complete": False},
        "overwrite-quick-7.2-sata-ssd": data(four((1, 2, 3, 4)), kernel="7.2.3"),
    }
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    pages.write_report(studies())
    first = readme.read_text()
    pages.write_report(studies())
    assert readme.read_text() == first
    assert first.startswith("before\n") and first.endswith("\nafter\n") and "old" not in first
    assert "7.2.3" not in first + (tmp_path / "docs" / "results.md").read_text()
    assert [path.name for path in folder.glob("*.png")] == ["overwrite-6.12.png"]


@pytest.mark.parametrize("text", ["", BEGIN_MARK, f"{END_MARK} {BEGIN_MARK}", BEGIN_MARK * 2])
def test_a_readme_without_its_marks_is_an_error(text: str) -> None:
    with pytest.raises(FastsyncError):
        replace_block(text, RESULTS.block, "x")


def test_the_plot_is_a_png(tmp_path: Path) -> None:
    png = tmp_path / "folder" / "demo.png"
    plot.draw([parse_result(overwrite()), sweep([230, 400, 520, 530])], studies(), png)
    assert png.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(FastsyncError, match="no results to plot"):
        plot.draw([scheduled(4.0)], studies(), png)
