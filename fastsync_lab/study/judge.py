"""What figures must show, and verdicts on them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Literal

from fastsync_lab.study.rows import Line, Place, check_metrics, sweeps

LABELS = {"ideal": "Ideal", "off": "option off"}
WORDS = {
    "ops_per_s": "speed",
    "kib": "volume",
    "kib_journal": "journal bytes",
    "max_ns": "max",
    "p99_ns": "p99",
    "elapsed_s": "elapsed",
    "writer_mib_s": "writer",
    "requests_per_s": "speed",
    "cpu_ns": "cpu",
}


@dataclass(frozen=True)
class Where:
    """A part of the axes: the names that are meant on each; an axis left out means every one.

    `kernels` are series.
    """

    systems: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    schedulers: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()

    def has(self, place: Place) -> bool:
        """Whether a place is in it."""
        return all(
            not names or value in names
            for names, value in zip(self.axes(), axes_of(place), strict=True)
        )

    def has_beside(self, place: Place, own: Place) -> bool:
        """The same, where an axis left out means the one that `own` has."""
        return all(
            value in (names or (mine,))
            for names, value, mine in zip(self.axes(), axes_of(place), axes_of(own), strict=True)
        )

    def axes(self) -> list[tuple[str, ...]]:
        """The names on each axis."""
        return [getattr(self, one.name) for one in fields(self)]

    def __str__(self) -> str:
        """Its names in words."""
        return ", ".join(
            " or ".join(LABELS.get(n, n) for n in names) for names in self.axes() if names
        )


def axes_of(place: Place) -> list[str]:
    """A place's names on the axes of a Where."""
    return [
        place.system,
        place.workload,
        place.subject,
        place.scheduler,
        place.device,
        place.series,
    ]


Kind = Literal["ratio", "saved", "worst step"]


@dataclass(frozen=True)
class Requirement:
    """A figure at the places `where` must be at least `least` and at most `most`.

    The figure is made of a metric. "ratio": its value over that of the base; "saved": the share of
    the base's that is not there, asked for only where the base is `base_least` or more; "worst
    step": of a sweep, the smallest ratio of a value to that at the next shorter interval (with
    `falls`, of the inverse values).

    The base is what stands at the same place but for the axes that `over` names. Of several the
    least counts, or the `greatest`, and `others` says how they are called together.
    """

    metric: str
    kind: Kind = "ratio"
    where: Where = field(default_factory=Where)
    over: Where = field(default_factory=Where)
    least: float = 0.0
    most: float | None = None
    base_least: float = 0.0
    falls: bool = False
    others: str = ""
    greatest: bool = False

    def __post_init__(self) -> None:
        """Raises FastsyncError for a metric that there is not."""
        check_metrics([self.metric])

    def describe(self, place: Place) -> str:
        """The figure of a place in words."""
        who = place.scheduler if self.over.schedulers else place.system
        return f"{who}, {self.figure(who)}"

    def figure(self, who: str) -> str:
        """The figure in words; `who` has another workload's figure that it is held against."""
        word = WORDS.get(self.metric, self.metric)
        if self.kind == "worst step":
            return f"worst step of {word}{' (inverse)' if self.falls else ''}"
        over = self.others or str(self.over)
        if self.over.workloads and not self.others:
            over = f"{who} {over}"
        if self.kind == "saved":
            return f"share of {over}'s {word} saved"
        return f"{word} over {over}"


def speed_over(
    base: str,
    systems: tuple[str, ...],
    least: float,
    most: float | None = None,
    **where: tuple[str, ...],
) -> Requirement:
    """Operations a second on some file systems over those on another; `where` are other axes."""
    return Requirement(
        "ops_per_s",
        where=Where(systems=systems, **where),
        over=Where(systems=(base,)),
        least=least,
        most=most,
    )


def within(figure: float, least: float, most: float | None) -> bool:
    """Whether a figure is at least one bar and, if there is another, at most that."""
    return least <= figure and (most is None or figure <= most)


def bars_text(least: float, most: float | None) -> str:
    """What a figure must be, in words."""
    needs = [f"at least {least:g}"] if least or not most else []
    needs += [f"at most {most:g}"] if most else []
    return ", ".join(needs)


@dataclass(frozen=True)
class Verdict:
    """A target: the figure must be at least `least` and at most `most`."""

    kernel: str
    device: str
    name: str
    what: str
    figure: float
    least: float
    most: float | None = None

    @property
    def passed(self) -> bool:
        """Whether it is as required."""
        return within(self.figure, self.least, self.most)

    def __str__(self) -> str:
        state = "pass " if self.passed else "MISS "
        need = bars_text(self.least, self.most)
        return (
            f"{state} {self.figure:.4f} ({need}) {self.kernel}, {self.device}, {self.name}: "
            f"{self.what}"
        )


def verdict(requirement: Requirement, place: Place, name: str, figure: float) -> Verdict:
    """A verdict on a figure at a place."""
    what = requirement.describe(place)
    bars = (requirement.least, requirement.most)
    return Verdict(place.machine, place.device, name, what, figure, *bars)


def worst_step(values: Sequence[float]) -> float:
    """The smallest ratio of a value to the one before it: 1 or more when they never fall."""
    return min((b / a for a, b in pairwise(values) if a), default=1.0)


def sweep_verdicts(requirement: Requirement, lines: Sequence[Line]) -> list[Verdict]:
    """The verdicts on sweeps of the interval on one kernel, one for each device and mode."""
    found = []
    mine = [line for line in lines if requirement.where.has(line.place)]
    for series in sweeps(mine).values():
        values = [line.value(requirement.metric) for line in series]
        if len(values) < 2:
            continue  # no step
        if requirement.falls:
            values = [1 / value for value in values if value]
        first, last = series[0].place, series[-1].place
        name = f"interval {first.interval_ms} to {last.interval_ms} ms"
        found.append(verdict(requirement, first, name, worst_step(values)))
    return found


def base_of(requirement: Requirement, own: Place, lines: Iterable[Line]) -> float | None:
    """The value that a figure is held against; None where there is none, or a system is missing.

    (Not every scheduler is run beside every workload.)
    """
    there = [
        line
        for line in lines
        if requirement.metric in line.stats and requirement.over.has_beside(line.place, own)
    ]
    if not {line.place.system for line in there}.issuperset(requirement.over.systems):
        return None
    values = (line.value(requirement.metric) for line in there)
    return (max if requirement.greatest else min)(values, default=None)


def compared_verdicts(requirement: Requirement, lines: Sequence[Line]) -> list[Verdict]:
    """The verdicts on figures over a base; none where the base was not run, is 0 or too small."""
    found = []
    for line in lines:
        if requirement.metric not in line.stats or not requirement.where.has(line.place):
            continue
        base = base_of(requirement, line.place, lines)
        if not base or base < requirement.base_least:
            continue
        ratio = line.value(requirement.metric) / base
        figure = 1 - ratio if requirement.kind == "saved" else ratio
        found.append(verdict(requirement, line.place, line.place.name, figure))
    return found


def judge(required: Mapping[str, Sequence[Requirement]], lines: Iterable[Line]) -> list[Verdict]:
    """Every target that these lines can show; `required` has them by study."""
    blocks: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        blocks.setdefault((line.place.machine, line.place.study), []).append(line)
    found: list[Verdict] = []
    for (_, study), block in blocks.items():
        for requirement in required.get(study, ()):
            is_step = requirement.kind == "worst step"
            found += (sweep_verdicts if is_step else compared_verdicts)(requirement, block)
    return found
