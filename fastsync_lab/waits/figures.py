"""Values of results that can be compared, and verdicts on those that are required."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from fastsync_lab.figures import kernel_of
from fastsync_lab.required import Verdict
from fastsync_lab.waits.rows import MATRIX_FIGURES, NAME, OTHERS, ROUND_FIGURES, Rows

Result = Mapping[str, Any]


@dataclass(frozen=True)
class Line:
    """One call (or none: the whole) of one benchmark under one scheduler; times in ms."""

    device: str
    benchmark: str
    scheduler: str
    call: str
    mean_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    elapsed_s: float
    writer_mib_s: float

    def figure(self, name: str) -> float:
        """The value that a requirement asks for."""
        return {
            "max": self.max_ms,
            "p99": self.p99_ms,
            "elapsed": self.elapsed_s,
            "writer": self.writer_mib_s,
        }[name]


def lines_of(result: Result) -> list[Line]:
    """The medians of each benchmark cell's repetitions, a line for each call, in their order."""
    lines = []
    for cell in result["cells"]:
        if "benchmark" not in cell:
            continue
        runs = cell["repetitions"]
        for call in runs[0]["calls"] or [""]:
            ms = {
                key: median(run["calls"][call][f"{key}_ns"] for run in runs) / 1e6 if call else 0.0
                for key in ("mean", "p50", "p99", "max")
            }
            lines.append(
                Line(
                    device=result["device"],
                    benchmark=cell["benchmark"],
                    scheduler=cell["scheduler"],
                    call=call,
                    mean_ms=ms["mean"],
                    p50_ms=ms["p50"],
                    p99_ms=ms["p99"],
                    max_ms=ms["max"],
                    elapsed_s=median(run["elapsed_ns"] for run in runs) / 1e9,
                    writer_mib_s=median(run["writer_mib_s"] for run in runs),
                )
            )
    return lines


@dataclass(frozen=True)
class Figure:
    """One value of one scheduler; what has the same name is compared."""

    scheduler: str
    name: str
    benchmark: str
    value: float


def figures_of(result: Result, figure: str) -> list[Figure]:
    """The values of a result that requirements on `figure` are about."""
    if figure in MATRIX_FIGURES:
        key = {"speed": "requests_per_s", "cpu": "cpu_ns_per_request"}[figure]
        return [
            Figure(
                cell["scheduler"],
                cell["matrix"],
                cell["matrix"],
                median(run[key] for run in cell["repetitions"]),
            )
            for cell in result["cells"]
            if "matrix" in cell
        ]
    lines = lines_of(result)
    if figure in ROUND_FIGURES:  # the same for each call
        once = {(line.benchmark, line.scheduler): line for line in lines}.values()
        return [Figure(x.scheduler, x.benchmark, x.benchmark, x.figure(figure)) for x in once]
    return [
        Figure(x.scheduler, f"{x.benchmark} {x.call}", x.benchmark, x.figure(figure))
        for x in lines
        if x.call
    ]


def schedulers_of(base: str, rows: Rows) -> set[str]:
    """The names of those that a requirement's base stands for."""
    if base != OTHERS:
        return {base}
    return {one.name for one in rows.schedulers if one.writer and one.scheduler != NAME}


def least(schedulers: Collection[str], own: Figure, beside: Sequence[Figure]) -> float | None:
    """The least figure of the same name of one of these; None where there is none."""
    found = [x.value for x in beside if x.name == own.name and x.scheduler in schedulers]
    return min(found, default=None)


def judge(rows: Rows, results: Iterable[Result]) -> list[Verdict]:
    """Every required figure that these results can show."""
    found = []
    for result in results:
        for requirement in rows.required:
            if requirement.devices and result["device"] not in requirement.devices:
                continue
            figures = figures_of(result, requirement.figure)
            schedulers = schedulers_of(requirement.base, rows)
            for own in figures:
                wanted = not requirement.benchmarks or own.benchmark in requirement.benchmarks
                base = least(schedulers, own, figures)
                if own.scheduler == NAME and wanted and base:
                    found.append(
                        Verdict(
                            kernel_of(result),
                            result["device"],
                            own.name,
                            f"{requirement.figure} over that of {requirement.base}",
                            own.value / base,
                            requirement.least,
                            requirement.most,
                        )
                    )
    return found
