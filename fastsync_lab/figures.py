"""Result files (JSON) as rows of figures: one variant on one workload, kernel and device each.

Every figure is the median of a cell's repetitions. "Ideal" is fdatasync() on stock ext4.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from fastsync_lab.errors import FastsyncError
from fastsync_lab.kernels import upstream_version, version_key
from fastsync_lab.measure import CLASSES

MODES = ("truncate", "defer")
COMPARED = ("stock", "ideal", *MODES, "off")
LABELS = {"ideal": "Ideal", "off": "option off"}

# In a reader's order; others come after them.
DEVICES = ("emmc", "ufs", "sata-ssd", "nvme", "nvme-plp", "uniform-100us")
EXPERIMENTS = ("overwrite", "fstat", "sqlite", "neighbour", "interval")

Result = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One variant on one workload's phase on one kernel and device; sizes in KiB, times in ns.

    `kernel`: its upstream version; `neighbour_per_s`: rounds of the process beside, if there was
    one.
    """

    kernel: str
    experiment: str
    device: str
    workload: str
    phase: str
    variant: str
    interval_ms: int | None
    ops_per_s: float
    p50_ns: float
    p99_ns: float
    kib_per_op: Mapping[str, float]
    flushes_per_op: float
    requests_per_op: float
    mean_request_kib: float
    sequential_ratio: float
    neighbour_per_s: float | None
    repetitions: int

    @property
    def series(self) -> str:
        """The kernel's series."""
        return series_name(self.kernel)

    @property
    def name(self) -> str:
        """Workload and, where there are several, phase."""
        return self.workload if self.phase == "overwrite" else f"{self.workload} {self.phase}"

    @property
    def total_kib(self) -> float:
        """KiB written for each operation, all classes."""
        return sum(self.kib_per_op.values())


Cells = dict[str, Row]  # by variant
Group = tuple[str, str, str, str]  # kernel, experiment, device, name


def load_result(path: Path) -> dict[str, Any]:
    """A whole result. Raises FastsyncError when it cannot be read or is not whole."""
    try:
        result: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise FastsyncError(f"cannot read the results in {path}: {error}") from error
    if not result.get("complete"):
        raise FastsyncError(f"{path} is of an interrupted run; run it again to complete it")
    return result


def series_name(kernel: str) -> str:
    """The series of an upstream version: "6.12" of "6.12.117"."""
    return ".".join(kernel.split(".")[:2])


def kernel_of(result: Result) -> str:
    """The upstream version of the kernel that a result is of."""
    return upstream_version(result["environment"]["debian_version"])


def series_of(result: Result) -> str:
    """The kernel series that a result is of."""
    return series_name(kernel_of(result))


def place(name: str, order: tuple[str, ...]) -> tuple[int, str]:
    """Sorts the names in `order` as they stand there, others after them by the alphabet."""
    return (order.index(name) if name in order else len(order), name)


def device_place(device: str) -> tuple[int, str]:
    """Sorts devices."""
    return place(device, DEVICES)


def in_order(results: Iterable[Result]) -> list[Result]:
    """Results by kernel, the oldest first, then by experiment, then by device."""

    def key(result: Result) -> Any:
        series = version_key(series_of(result))
        return series, place(result["experiment"], EXPERIMENTS), device_place(result["device"])

    return sorted(results, key=key)


def make_row(result: Result, cell: Mapping[str, Any], phase: str) -> Row:
    """A cell's medians."""
    runs = [repetition["phases"][phase] for repetition in cell["repetitions"]]
    rounds = [r["neighbour"]["rounds_per_s"] for r in cell["repetitions"] if "neighbour" in r]

    def mid(pick: Any) -> float:
        return float(median(pick(run) for run in runs))

    return Row(
        kernel=kernel_of(result),
        experiment=result["experiment"],
        device=result["device"],
        workload=cell["workload"],
        phase=phase,
        variant=cell["variant"],
        interval_ms=cell["interval_ms"],
        ops_per_s=mid(lambda run: run["ops_per_s"]),
        p50_ns=mid(lambda run: run["p50_ns"]),
        p99_ns=mid(lambda run: run["p99_ns"]),
        kib_per_op={
            name: mid(lambda run, name=name: run["blocks"]["bytes"][name] / run["operations"])
            / 1024
            for name in CLASSES
        },
        flushes_per_op=mid(lambda run: run["blocks"]["flushes"] / run["operations"]),
        requests_per_op=mid(
            lambda run: sum(run["blocks"]["requests"].values()) / run["operations"]
        ),
        mean_request_kib=mid(lambda run: run["blocks"]["mean_request_kib"]),
        sequential_ratio=mid(lambda run: run["blocks"]["sequential_ratio"]),
        neighbour_per_s=float(median(rounds)) if rounds else None,
        repetitions=len(runs),
    )


def rows_of(results: Iterable[Result]) -> list[Row]:
    """All rows of these results, in their order."""
    return [
        make_row(result, cell, phase)
        for result in results
        for cell in result["cells"]
        for phase in cell["repetitions"][0]["phases"]
    ]


def is_sweep(result: Result) -> bool:
    """Whether a result has a variant at more than one interval."""
    pairs = {(cell["variant"], cell["interval_ms"]) for cell in result["cells"]}
    return len(pairs) > len({variant for variant, _ in pairs})


def group_of(row: Row) -> Group:
    """What a row stands side by side in."""
    return (row.kernel, row.experiment, row.device, row.name)


def grouped(rows: Iterable[Row]) -> dict[Group, Cells]:
    """Rows side by side: by kernel, experiment, device and name, then by variant."""
    groups: dict[Group, Cells] = {}
    for row in rows:
        groups.setdefault(group_of(row), {})[row.variant] = row
    return groups


def sweeps(rows: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    """A sweep's rows by device and mode, in order of the interval."""
    series: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.interval_ms is not None:
            series.setdefault((row.device, row.variant), []).append(row)
    return {key: sorted(row, key=lambda r: r.interval_ms or 0) for key, row in series.items()}
