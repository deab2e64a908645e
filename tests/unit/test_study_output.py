"""Figures from what the programs of the studies print."""

import json
from pathlib import Path
from typing import Any

import pytest

from fastsync_lab.host import shell
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.studies import dpkg, neighbour, sustained
from fastsync_lab.study import fio
from fastsync_lab.study.contract import AS_IT_IS, Cell, Output, Workload
from fastsync_lab.study.filesystems import STOCK
from fastsync_lab.study.output import phases_of, read_timed


def fio_job(**changes: Any) -> str:
    percentile = {"50.000000": 1712128, "99.000000": 4014080}
    sync = {"lat_ns": {"mean": 1758000.5, "max": 4100000, "percentile": percentile}}
    job = {"error": 0, "write": {"total_ios": 1044, "iops": 521.48}, "sync": sync}
    return "fio: some note\n" + json.dumps({"jobs": [job | changes]})


def test_fio_json() -> None:
    assert fio.values_of(fio_job()) == {
        "operations": 1044,
        "ops_per_s": 521.48,
        "mean_ns": 1758000,
        "p50_ns": 1712128,
        "p99_ns": 4014080,
        "max_ns": 4100000,
    }


def test_a_sustained_run_names_the_longest_settling() -> None:
    cell = Cell(STOCK, sustained.FULL.workloads[0], AS_IT_IS, "sata-ssd")
    for counters, longest in [("bursts 3\nsettle_max_us 1500", 1_500_000), ("bursts 3", None)]:
        values = sustained.read(cell, Output(fio_job(), {"counters": counters}))[""]
        assert values.get("settle_max_ns") == longest
        assert values["ops_per_s"] == fio.values_of(fio_job())["ops_per_s"]


@pytest.mark.parametrize("text", ["", "{}", '{"jobs": []}', fio_job(sync={}), "fio: died"])
def test_what_is_no_fio_json_is_an_error(text: str) -> None:
    with pytest.raises(FastsyncError, match="no result"):
        fio.values_of(text)


def test_a_failed_fio_job_is_an_error() -> None:
    with pytest.raises(FastsyncError, match="error 28"):
        fio.values_of(fio_job(error=28))


CALL = {"operations": 200, "mean_ns": 9, "p50_ns": 8, "p99_ns": 20, "max_ns": 21}


def test_phases_of_a_benchmark() -> None:
    text = json.dumps({"phases": {"update": {**CALL, "elapsed_ns": 2_000_000_000}}})
    assert phases_of("sqlbench", text) == {"update": {**CALL, "ops_per_s": 100.0}}
    with pytest.raises(FastsyncError, match="sqlbench printed no result"):
        phases_of("sqlbench", "sqlbench: cannot open")


TIMED = Cell(STOCK, Workload("w"), AS_IT_IS, "ufs")


def test_timed_operations() -> None:
    found = read_timed(TIMED, Output("note\n100 2000000\n"))
    assert found == {"": {"operations": 100, "ops_per_s": 50.0}}


@pytest.mark.parametrize("text", ["", "100\n", "100 0\n", "git: fatal\n"])
def test_what_was_not_timed_is_an_error(text: str) -> None:
    with pytest.raises(FastsyncError, match="what was timed printed no result"):
        read_timed(TIMED, Output(text))


def test_neighbour_json() -> None:
    assert neighbour.rounds_per_s('{"rounds": 10000, "elapsed_ns": 2000000000}') == 5000.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"rounds": 1, "elapsed_ns": 0}',
        '{"rounds": 0, "elapsed_ns": 9}',
        "neighbour: died",
    ],
)
def test_a_neighbour_without_a_result_is_an_error(text: str) -> None:
    with pytest.raises(FastsyncError, match="neighbour printed no result"):
        neighbour.rounds_per_s(text)


def test_packages_with_hard_links_are_packed_anew(tmp_path: Path) -> None:
    """perl-base has one: perl is perl5.36.0."""
    prepare = dpkg.PREPARE.format(names="perl-base").replace("/run/fastsync", str(tmp_path))
    script = f"prepare() {{\n{prepare}\n}}\nprepare"
    done = shell.run(["bash", "-c", script], cwd=tmp_path, check=False)
    assert done.status == 0, done.stderr
    packed = tmp_path / "debs" / "perl-base"
    (one, *_), (other, *_) = (list(packed.glob(f"usr/bin/perl{v}")) for v in ("", "5.*"))
    assert one.stat().st_ino == other.stat().st_ino
    assert int((tmp_path / "debs" / "files").read_text()) > 100
