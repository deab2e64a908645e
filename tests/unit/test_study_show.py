"""Verdicts of the studies on results, the store, the tables of the terminal."""

import io
import json
from itertools import product
from pathlib import Path

import pytest
from rich.console import Console

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.paths import repo_root
from fastsync_lab.studies import studies
from fastsync_lab.study import pages, show, store
from fastsync_lab.study.judge import Verdict
from fastsync_lab.study.store import Result, parse_result
from tests.unit.study_results import cell, four, neighbour, overwrite, result, scheduled, sweep


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
        "MISS  0.4112 (at least 0.985) 6.12.1, sata-ssd, random: truncate, speed over Ideal",
        "MISS  0.9565 (at least 0.995) 6.12.1, sata-ssd, random: truncate, speed over stock",
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
    with pytest.raises(FastsyncError, match=r"another version \(format 3, this one reads 2\)"):
        store.load_result(path)


@pytest.mark.parametrize(
    "name", ["overwrite-full-6.12-emmc", "sqlite-full-6.12-ufs", "qasio-full-6.12-ufs"]
)
def test_committed_results_are_read(name: str) -> None:
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
    stock = ["random", "stock", "230", "±", "130", "1", "0.430", "4.00"]  # Ideal is of one run
    assert lines[2].split()[:8] == stock
    assert [line.split()[0] for line in lines[3:6]] == ["Ideal", "truncate", "defer"]
    assert lines[6].split()[:3] == ["sequential", "stock", "200"]
    text = "\n".join(lines)
    assert "truncate 1000 ms" in text and "metadata  " not in text
    assert "not stable: sata-ssd, random, stock: 230 ± 130 ops/s" in lines
    assert "14 of 14 targets are met." in lines


def test_a_study_that_asks_for_nothing_has_no_verdicts() -> None:
    lines = printed(result(four((1, 2, 3, 4), "append"), "files"))
    assert lines[0].startswith("files, ") and not any("required" in line for line in lines)


def test_environments_are_named_once_with_all_that_ran() -> None:
    one = parse_result(overwrite(versions=["fio-3.33"]))
    both = parse_result(overwrite(versions=["fio-3.33", "git-2.39"], tools=["QEMU 7.2.1"]))
    assert show.environments([one, both, one]) == [
        "Linux 6.12.1+deb-amd64 (6.12.1-1), virtual time, 500 million instructions a second, one "
        "core; fio-3.33, git-2.39, QEMU 7.2.1."
    ]
    none = parse_result(overwrite(versions=[]))
    assert show.environments([none])[0].endswith("one core.")


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
