"""What a run measured, as rows: one for each subject of a run, with the metrics that it has.

A subject is a part of a run: a call, a phase, or "" for the run itself. `lines_of()` makes of the
rows of several equal runs one line, with the median and the spread of each metric.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from fastsync_lab.host.errors import FastsyncError

DIGITS = 4  # the most that a figure is written with
STABLE = 0.05  # a figure whose spread is a larger share of it is called unstable


@dataclass(frozen=True)
class Metric:
    """A quantity: its head in a table, and what its values are multiplied by there."""

    head: str
    factor: float = 1.0


METRICS: Mapping[str, Metric] = {
    "operations": Metric("operations"),
    "ops_per_s": Metric("ops/s"),
    # of one operation, or of the call that is the subject
    "mean_ns": Metric("mean, ms", 1e-6),
    "p50_ns": Metric("p50, ms", 1e-6),
    "p99_ns": Metric("p99, ms", 1e-6),
    "max_ns": Metric("max, ms", 1e-6),
    "burst_blocks": Metric("blocks/burst"),
    "settle_max_ns": Metric("longest settling, ms", 1e-6),
    # what was written for each operation
    "kib": Metric("KiB/op"),
    "kib_data": Metric("data"),
    "kib_journal": Metric("journal"),
    "kib_metadata": Metric("metadata"),
    "kib_unsorted": Metric("unsorted"),
    # requests for each operation
    "flushes": Metric("flushes"),
    "fua": Metric("FUA"),
    "requests": Metric("requests"),
    "reads": Metric("reads"),
    "discards": Metric("discards"),
    # of requests that write
    "request_kib": Metric("KiB/request"),
    "sequential": Metric("sequential"),
    "write_us": Metric("write, us"),
    "flush_us": Metric("flush, us"),
    # of one study each
    "neighbour_per_s": Metric("rounds/s"),
    "elapsed_s": Metric("all rounds, s"),
    "writer_mib_s": Metric("writer, MiB/s"),
    "requests_per_s": Metric("requests/s"),
    "cpu_ns": Metric("CPU, us a request", 1e-3),
    "waits": Metric("waits"),
    "boosted": Metric("boosted"),
    "late": Metric("late"),
    "other": Metric("other"),
    "handle": Metric("by a handle"),
    "commit": Metric("by a commit"),
    "saved_us": Metric("saved, us"),
}
CLASS_METRICS = ("kib_data", "kib_journal", "kib_metadata", "kib_unsorted")

Values = Mapping[str, float]
Subjects = Mapping[str, Values]


def check_metrics(names: Iterable[str]) -> None:
    """Raise FastsyncError for a metric that there is not."""
    for name in names:
        if name not in METRICS:
            raise FastsyncError(f"no metric {name!r}: there are {', '.join(METRICS)}")


@dataclass(frozen=True)
class Place:
    """Where a figure is: a value of each axis. `kernel` is an upstream version.

    `interval_ms` is that of the mount option, None without it. `processor` is the modelled one's
    label, empty for the one that guests have now.
    """

    kernel: str
    study: str
    device: str
    workload: str
    subject: str
    scheduler: str
    system: str
    interval_ms: int | None = None
    processor: str = ""

    @property
    def series(self) -> str:
        """The kernel's series."""
        return series_name(self.kernel)

    @property
    def machine(self) -> str:
        """Kernel and, where it is another, processor."""
        return machine_name(self.kernel, self.processor)

    @property
    def name(self) -> str:
        """Workload and, where there is one, subject."""
        return f"{self.workload} {self.subject}".strip()


@dataclass(frozen=True)
class Row:
    """What one run measured of one subject."""

    place: Place
    run: int
    values: Values

    def __post_init__(self) -> None:
        """Raises FastsyncError for a metric that there is not."""
        check_metrics(self.values)


@dataclass(frozen=True)
class Stat:
    """The median of some runs, and how far from it the farthest of them is."""

    median: float
    spread: float = 0.0
    runs: int = 1

    @property
    def stable(self) -> bool:
        """Whether the runs agree."""
        return self.spread <= STABLE * abs(self.median)

    def over(self, base: "Stat") -> "Stat":
        """The ratio of two figures; its spread is what both spreads may do to it, to first order.

        It is unknown where one of them is of one run: then the ratio is as of one run, too.
        """
        ratio, runs = self.median / base.median, min(self.runs, base.runs)
        if runs == 1 or not ratio:
            return Stat(ratio, 0.0, runs)
        shares = self.spread / self.median + base.spread / base.median
        return Stat(ratio, ratio * shares, runs)

    def text(self, factor: float = 1.0) -> str:
        """Median and spread, with no digit that is finer than the spread.

        A spread has one digit, two where the first is a 1. No figure has more than DIGITS: a spread
        that is finer is shown as one of the last digit. Of one run, three significant digits.
        """
        value, spread = self.median * factor, self.spread * factor
        if not spread:
            text = written(value, three_digits(value))
            return text if self.runs == 1 else f"{text} ± 0"
        places = min(last_digit(spread), finest(value))
        least = 10.0**-places
        return f"{written(value, places)} ± {written(max(spread, least), places)}"

    def short(self, factor: float = 1.0, most: int = 3) -> str:
        """The median alone, in three digits, four from 1,000 on, of which `most` are decimals.

        None is finer than the spread.
        """
        value, spread = self.median * factor, self.spread * factor
        places = min(most, three_digits(value))
        return written(value, min(places, last_digit(spread)) if spread else places)

    @property
    def as_ratio(self) -> str:
        """The same of a ratio: two decimals."""
        return self.short(most=2)


def three_digits(value: float) -> int:
    """The place of the third significant digit, or of the fourth if that is before the point."""
    return min(decimals(value, 2), finest(value))


def last_digit(spread: float) -> int:
    """The place of the last digit that a spread leaves: its first, the second where that is a 1."""
    places = -math.floor(math.log10(spread))
    return places + 1 if spread * 10**places < 2 else places


def decimals(value: float, more: int) -> int:
    """How many decimals show the first digit of a value and `more` behind it; three at most."""
    return min(3, max(0, more - math.floor(math.log10(abs(value))))) if value else 0


def finest(value: float) -> int:
    """The place behind the point of the last of DIGITS significant digits; before it, below 0."""
    return DIGITS - 1 - math.floor(math.log10(abs(value))) if value else DIGITS


def written(value: float, places: int) -> str:
    """A value rounded to so many places behind the point, or before it."""
    return f"{round(value, places):,.{max(0, places)}f}"


def stat_of(values: Sequence[float]) -> Stat:
    """What several runs come to."""
    middle = float(median(values))
    return Stat(middle, max(abs(value - middle) for value in values), len(values))


@dataclass(frozen=True)
class Line:
    """All runs at one place: the metrics that each of them has."""

    place: Place
    stats: Mapping[str, Stat]

    @property
    def runs(self) -> int:
        """How many there are."""
        return max(stat.runs for stat in self.stats.values())

    def value(self, metric: str) -> float:
        """A metric's median. Raises KeyError where there is none."""
        return self.stats[metric].median


def lines_of(rows: Iterable[Row]) -> list[Line]:
    """A line for each place, in the order of the first rows."""
    places: dict[Place, list[Values]] = {}
    for row in rows:
        places.setdefault(row.place, []).append(row.values)
    return [
        Line(
            place,
            {
                metric: stat_of([one[metric] for one in runs])
                for metric in runs[0]
                if all(metric in one for one in runs)
            },
        )
        for place, runs in places.items()
    ]


def series_name(kernel: str) -> str:
    """The series of an upstream version: "6.12" of "6.12.117"."""
    return ".".join(kernel.split(".")[:2])


def machine_name(kernel: str, processor: str) -> str:
    """What ran the guest: figures of two machines are never held against each other."""
    return f"{kernel}, {processor}" if processor else kernel


def machines_of(lines: Iterable["Line"]) -> str:
    """What ran the guests of several figures: kernels of one series may be of several versions."""
    return ", ".join(dict.fromkeys(line.place.machine for line in lines))


def place_in(name: str, order: Sequence[str]) -> tuple[int, str]:
    """Sorts the names in `order` as they stand there, others after them by the alphabet."""
    return (order.index(name) if name in order else len(order), name)


def sweeps(lines: Iterable[Line]) -> dict[tuple[str, str], list[Line]]:
    """Lines with an interval by device and file system, in order of the interval."""
    series: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        if line.place.interval_ms is not None:
            series.setdefault((line.place.device, line.place.system), []).append(line)
    return {
        key: sorted(found, key=lambda line: line.place.interval_ms or 0)
        for key, found in series.items()
    }


def is_sweep(lines: Iterable[Line]) -> bool:
    """Whether a file system is there at more than one interval."""
    pairs = {(line.place.system, line.place.interval_ms) for line in lines}
    return len(pairs) > len({system for system, _ in pairs})
