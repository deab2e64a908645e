"""What rows.toml says."""

import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fastsync_lab.errors import FastsyncError

NAME = "qasio"
OTHERS = "others"
BULK = "BULK"  # the benchmark that is the writer alone
CALL_FIGURES = ("max", "p99")
ROUND_FIGURES = ("elapsed", "writer")
MATRIX_FIGURES = ("speed", "cpu")
FIGURES = (*CALL_FIGURES, *ROUND_FIGURES, *MATRIX_FIGURES)


@dataclass(frozen=True)
class Scheduler:
    """An I/O scheduler and its settings; `nr_requests` where it is not what others have.

    `max_sectors_kb` is the most that a request may have, in KiB, where it is not the kernel's.
    With `benchmarks` only these run.

    Without `writer` the calls have the device for themselves: what no scheduler can be better than.
    """

    name: str
    scheduler: str
    wbt: bool = False
    writer: bool = True
    nr_requests: int | None = None
    max_sectors_kb: int | None = None
    tunables: Mapping[str, int] = field(default_factory=dict)
    benchmarks: Sequence[str] = ()

    def runs(self, benchmark: str) -> bool:
        """Whether `benchmark` is run with it."""
        if benchmark == BULK and not self.writer:
            return False
        return not self.benchmarks or benchmark in self.benchmarks


@dataclass(frozen=True)
class Benchmark:
    """A benchmark of waitbench: its rounds, and the seconds over which they are spread."""

    name: str
    rounds: int
    window_s: int
    mount_options: str = "defaults"


@dataclass(frozen=True)
class Requirement:
    """A figure of qasio over that of `base` must be at most `most` and at least `least`."""

    figure: str
    base: str
    most: float | None = None
    least: float = 0.0
    devices: Sequence[str] = ()
    benchmarks: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Raises FastsyncError for a figure that there is not."""
        if self.figure not in FIGURES:
            raise FastsyncError(f"no figure {self.figure!r}: there are {', '.join(FIGURES)}")


@dataclass(frozen=True)
class Matrix:
    """fio on the device itself: patterns (of fio's --rw) at depths under schedulers, by name."""

    schedulers: Sequence[str]
    patterns: Sequence[str]
    depths: Sequence[int]
    seconds: int


@dataclass(frozen=True)
class Rows:
    """What rows.toml says; `nr_requests` by device, where it is not the kernel's default."""

    title: str
    devices: Sequence[str]
    repetitions: int
    nr_requests: Mapping[str, int]
    schedulers: Sequence[Scheduler]
    benchmarks: Sequence[Benchmark]
    matrix: Matrix
    required: Sequence[Requirement]
    quick: bool


def refuse_unknown(what: str, named: Iterable[str], known: Collection[str]) -> None:
    """Raises FastsyncError for the first of these names that is not known."""
    if unknown := [name for name in named if name not in known]:
        raise FastsyncError(f"rows.toml: no {what} {unknown[0]!r}")


def parse_rows(text: str, *, quick: bool) -> Rows:
    """The rows; with `quick` only what the [quick] table names.

    Raises FastsyncError for a key or a name that is not known.
    """
    table = tomllib.loads(text)
    chosen = table.pop("quick")
    try:
        rows = Rows(
            schedulers=[Scheduler(**row) for row in table.pop("scheduler")],
            benchmarks=[Benchmark(**row) for row in table.pop("benchmark")],
            matrix=Matrix(**table.pop("matrix")),
            required=[Requirement(**row) for row in table.pop("required")],
            quick=quick,
            **table,
        )
    except TypeError as error:
        raise FastsyncError(f"rows.toml: {error}") from error
    schedulers = {OTHERS, *(scheduler.name for scheduler in rows.schedulers)}
    refuse_unknown("scheduler", rows.matrix.schedulers, schedulers)
    refuse_unknown("scheduler", [requirement.base for requirement in rows.required], schedulers)
    benchmarks = {benchmark.name for benchmark in rows.benchmarks}
    limited: list[Scheduler | Requirement] = [*rows.schedulers, *rows.required]
    for row in limited:
        refuse_unknown("benchmark", row.benchmarks, benchmarks)
    if not quick:
        return rows
    return replace(
        rows,
        devices=chosen["devices"],
        schedulers=[s for s in rows.schedulers if s.name in chosen["schedulers"]],
        benchmarks=[b for b in rows.benchmarks if b.name in chosen["benchmarks"]],
        matrix=replace(rows.matrix, patterns=chosen["patterns"]),
    )


def load_rows(*, quick: bool) -> Rows:
    """The rows of the experiment."""
    return parse_rows(Path(__file__).with_name("rows.toml").read_text(), quick=quick)
