"""Results of studies, made up: for what reads, judges and shows them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from fastsync_lab.host.build import source_digest
from fastsync_lab.machine.processor import DEFAULT_MIPS, SPEEDS, load_processor
from fastsync_lab.studies.qasio import OTHERS
from fastsync_lab.study.rows import Line, Place, Stat, series_name
from fastsync_lab.study.store import Result, modules_of, parse_result

ENVIRONMENT: dict[str, Any] = {
    "models_cpu": "500 million instructions a second, one core",
    "processor": load_processor().record,
    "icount_shift": SPEEDS[DEFAULT_MIPS],
    "versions": ["fio-3.33", "SQLite 3.50.4"],
    "sha256": {"stock/ext4.ko": "1", "fastsync/ext4.ko": "2", "statwrite.so": "3"},
}
Cell = dict[str, Any]
RECIPE: Cell = {
    "filesystem": {"mkfs": "", "options": ""},
    "queue": "",
    "prepare": "",
    "command": "",
}


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
        **RECIPE,
        "runs": [{"subjects": {subject: {"ops_per_s": speed, **values}}} for speed in speeds],
    }


def data(
    cells: Sequence[Cell],
    study: str = "overwrite",
    kernel: str = "6.12.1",
    device: str = "sata-ssd",
    **environment: Any,
) -> dict[str, Any]:
    """A result file, of the modules that this tree makes now."""
    series = series_name(kernel)
    of_now = {name: source_digest(series, name) for name in modules_of(ENVIRONMENT | environment)}
    release = {"kernel_release": f"{kernel}+deb-amd64", "debian_version": f"{kernel}-1"}
    return {
        "format": 2,
        "study": study,
        "title": "4 KiB overwrite + fsync",
        "device": device,
        "date": "",
        "complete": True,
        "source_sha256": of_now,
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


def with_ours(values: Sequence[float], *, runs: int = 1, **env: Any) -> Result:
    """Overwrites on stock and on ours, each run a little faster than the one before."""
    cells = [
        cell(system, [one + number / 10 for number in range(runs)])
        for system, one in zip(("stock", "defer+eager"), values, strict=True)
    ]
    return result(cells, **env)


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


def waits(scheduler: str, p99_ms: float, writer: float) -> Cell:
    call = dict.fromkeys(("mean_ns", "p50_ns", "p99_ns", "max_ns"), p99_ms * 1000000.0)
    seen = {"waits": 10, "boosted": 2, "late": 0, "other": 1, "handle": 2, "commit": 3}
    whole = {"elapsed_s": 1.0, "writer_mib_s": writer}
    subjects: Mapping[str, Any] = {"fsync": call, "": whole, "wait: meta": seen}
    return {"workload": "M1", "system": "stock", "interval_ms": None, "scheduler": scheduler,
            **RECIPE, "runs": [{"subjects": subjects}]}  # fmt: skip


def scheduled(own_ms: float, base_ms: float = 9.0) -> Result:
    cells = [waits("no writer", 0.1, 0.0)]
    cells += [waits(name, base_ms - 0.4 * (name == "bfq"), 50.0) for name in OTHERS]
    cells.append(waits("qasio, boost off", 1.0, 50.0))
    return result([*cells, waits("qasio", own_ms, 49.0)], "qasio", device="emmc")


PLACE = Place("6.12.1", "e", "ufs", "w", "", "default", "defer")
VALUES = {"ops_per_s": 100.0, "kib": 16.0, "kib_journal": 12.0}


def line(system: str = "defer", values: Mapping[str, float] | None = None, **axes: Any) -> Line:
    """A line: 100 operations a second, 4 KiB of data and 12 of journal for each."""
    stats = {name: Stat(value) for name, value in {**VALUES, **(values or {})}.items()}
    return Line(replace(PLACE, system=system, **axes), stats)
