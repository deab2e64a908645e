"""What is drawn of a study: figures of one subject each, as bars or lines that only need painting.

Three figures of each workload can be read beside each other: speed over that of fdatasync(), bytes
by class, latency. Then come the peers, a figure for each device; the shares of a study with a
control; the curves of a sweep. What no result has is not drawn.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fastsync_lab.machine.device import profile_names
from fastsync_lab.study.contract import SPEED_BESIDE, Study
from fastsync_lab.study.judge import LABELS
from fastsync_lab.study.rows import (
    CLASS_METRICS,
    Line,
    Place,
    Stat,
    is_sweep,
    machines_of,
    place_in,
    sweeps,
)
from fastsync_lab.study.show import Group, grouped, label, pairs_of

# In a reader's order; others come after them.
DEVICES = profile_names()
MAIN = SPEED_BESIDE.names
SHORT = (*MAIN, "defer+eager")  # what a short run's picture has
CLASS_LABELS = dict(
    zip(CLASS_METRICS, ("file data", "journal", "other metadata", "not sorted"), strict=True)
)
SEEN = 0.005  # a class that is nowhere a larger share of the longest bar cannot be seen
FDATASYNC = "fdatasync"
MS = 1e-6  # of a nanosecond
SPEED_AXIS = "speed, as a share of fdatasync's"
Kind = Literal["speed", "bytes", "latency", "peers", "share", "sweep"]


@dataclass(frozen=True)
class Bar:
    """A bar: whose it is, its parts one behind the other, and the words at its end.

    It begins at `start`; a part without a class is called "". The spread is that of its end.
    """

    name: str
    label: str
    parts: Mapping[str, float]
    text: str
    start: float = 0.0
    spread: float = 0.0

    @property
    def end(self) -> float:
        """Where it ends."""
        return self.start + sum(self.parts.values())


@dataclass(frozen=True)
class Curve:
    """A line of a sweep: whose it is, and its points."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Figure:
    """A picture of one subject: groups of bars by what stands beside them, or curves.

    `reference` is a line at a value that all are compared with, and what it is called; `stem` names
    its file.
    """

    kind: Kind
    stem: str
    title: str
    kernel: str
    axis: str
    groups: Mapping[str, Sequence[Bar]] = field(default_factory=dict)
    curves: Sequence[Curve] = ()
    reference: tuple[float, str] | None = None
    log: bool = False

    @property
    def classes(self) -> list[str]:
        """The classes that bars consist of, in their order; none where they have one part."""
        names = dict.fromkeys(
            name for bars in self.groups.values() for bar in bars for name in bar.parts
        )
        return [name for name in CLASS_LABELS if name in names]

    @property
    def alt(self) -> str:
        """The same in words, for who does not see it."""
        said = [
            f"{group}: {', '.join(f'{bar.label} {bar.text}' for bar in bars)}"
            for group, bars in self.groups.items()
        ]
        said += [f"{curve.name}: {curve.points[-1][1]:.3g} at the end" for curve in self.curves]
        return f"{self.title}, {self.kernel}. {self.axis}. {'; '.join(said)}"


# --- which lines are drawn -----------------------------------------------------------------------

Groups = dict[str, Group]  # by what stands beside the bars


def shown_names(study: Study[Any], lines: Iterable[Line]) -> list[tuple[str, str]]:
    """The workloads and subjects that have figures: those the study names, else its headline, else
    all that have a speed."""
    there = dict.fromkeys((line.place.workload, line.place.subject) for line in lines)
    named = study.drawn or study.headline
    if named:
        return [name for name in named if name in there]
    fast = {(x.place.workload, x.place.subject) for x in lines if "ops_per_s" in x.stats}
    return [name for name in there if name in fast]


def by_device(study: Study[Any], lines: Iterable[Line]) -> Groups:
    """Lines of one workload beside each other, by device."""
    groups = {device: group for (device, _), group in grouped(study, lines).items()}
    return {name: groups[name] for name in sorted(groups, key=lambda x: place_in(x, DEVICES))}


# --- figures of bars -----------------------------------------------------------------------------


def speed_bars(study: Study[Any], group: Group, names: Sequence[str]) -> list[Bar]:
    """Operations a second over those of fdatasync(); none without that."""
    base = group.get("ideal")
    if base is None or not base.value("ops_per_s"):
        return []
    bars = []
    for name in names:
        if name not in group or "ops_per_s" not in group[name].stats:
            continue
        line = group[name]
        ratio = line.stats["ops_per_s"].over(base.stats["ops_per_s"])
        said = f"{ratio.as_ratio} ({line.stats['ops_per_s'].short()}/s)"
        spread = ratio.spread if line is not base else 0.0
        bars.append(Bar(name, label(study, line.place), {"": ratio.median}, said, spread=spread))
    return bars


def byte_bars(study: Study[Any], group: Group, names: Sequence[str]) -> list[Bar]:
    """KiB written for each operation, by class."""
    bars = []
    for name in names:
        if name not in group or "kib" not in group[name].stats:
            continue
        line = group[name]
        parts = {one: line.value(one) for one in CLASS_METRICS if one in line.stats}
        bars.append(Bar(name, label(study, line.place), parts, line.stats["kib"].short()))
    return bars


def latency_bars(study: Study[Any], group: Group, names: Sequence[str]) -> list[Bar]:
    """From the median to the 99th percentile of a call, in ms."""
    bars = []
    for name in names:
        if name not in group or not {"p50_ns", "p99_ns"} <= group[name].stats.keys():
            continue
        ends = [group[name].stats[metric] for metric in ("p50_ns", "p99_ns")]
        p50, p99 = (end.median * MS for end in ends)
        bars.append(
            Bar(
                name,
                label(study, group[name].place),
                {"": p99 - p50},
                f"{' – '.join(end.short(MS) for end in ends)} ms",
                start=p50,
            )
        )
    return bars


def seen_parts(groups: Mapping[str, Sequence[Bar]]) -> dict[str, list[Bar]]:
    """The same bars without the classes that are too small to be seen anywhere.

    None of reads alone, which write nothing.
    """
    longest = max((bar.end for bars in groups.values() for bar in bars), default=0.0)
    seen = {
        name
        for bars in groups.values()
        for bar in bars
        for name, value in bar.parts.items()
        if value > SEEN * longest
    }
    if not seen:
        return {}
    return {
        group: [
            Bar(x.name, x.label, {n: v for n, v in x.parts.items() if n in seen}, x.text)
            for x in bars
        ]
        for group, bars in groups.items()
    }


Maker = Callable[[Study[Any], Group, Sequence[str]], list[Bar]]


def bars_of(
    study: Study[Any], groups: Groups, make: Maker, names: Sequence[str]
) -> dict[str, list[Bar]]:
    """Bars of each group that has any."""
    found = {title: make(study, group, names) for title, group in groups.items()}
    return {title: bars for title, bars in found.items() if bars}


@dataclass(frozen=True)
class Namer:
    """Makes the figures of a study on a kernel and processor: what they have in common."""

    study: Study[Any]
    place: Place

    def make(self, kind: Kind, name: str, about: str, axis: str, **rest: Any) -> Figure:
        """A figure about `about`, its file called by `name`."""
        which = f"-{plain(self.place.processor)}" if self.place.processor else ""
        stem = f"{self.study.name}-{self.place.series}{which}-{plain(name)}-{kind}"
        title = f"{self.study.name}: {about}"
        return Figure(kind, stem, title, f"Linux {self.place.machine}", axis, **rest)


def without_ideal(names: Iterable[str]) -> list[str]:
    """What speed is shown of: fdatasync() itself is the reference."""
    return [name for name in names if name != "ideal"]


def names_in(study: Study[Any], groups: Groups) -> list[str]:
    """What has bars: the file systems that its table has beside each other, or every scheduler."""
    if study.compared == "system":
        return list(study.beside.names if study.beside else MAIN)
    return list(dict.fromkeys(name for group in groups.values() for name in group))


def workload_figures(namer: Namer, lines: Sequence[Line]) -> list[Figure]:
    """The figures of one workload and subject, by device."""
    study, name = namer.study, lines[0].place.name
    groups = by_device(study, lines)
    names = names_in(study, groups)
    call = "of a call" if study.compared == "scheduler" else "of a sync call or transaction"
    found = []
    if speed := bars_of(study, groups, speed_bars, without_ideal(names)):
        reference = (1.0, FDATASYNC)
        found.append(namer.make("speed", name, name, SPEED_AXIS, groups=speed, reference=reference))
    if written := seen_parts(bars_of(study, groups, byte_bars, names)):
        found.append(namer.make("bytes", name, name, "KiB written per operation", groups=written))
    if latency := bars_of(study, groups, latency_bars, names):
        axis = f"time {call}, median to 99 %, ms"
        found.append(namer.make("latency", name, name, axis, groups=latency, log=True))
    return found


def peer_figures(namer: Namer, lines: Sequence[Line]) -> list[Figure]:
    """All file systems beside each other in one workload, a figure for each device."""
    found = []
    for device, group in by_device(namer.study, lines).items():
        if group.keys() <= {*MAIN, "off"}:
            continue
        if bars := speed_bars(namer.study, group, list(dict.fromkeys((*MAIN, *group)))):
            name = lines[0].place.name
            axis = "speed, as a share of that of fdatasync on ext4"
            found.append(
                namer.make(
                    *("peers", f"{name}-{device}", f"{name}, on {device}", axis),
                    groups={"": bars},
                    reference=(1.0, FDATASYNC),
                )
            )
    return found


def share_figures(namer: Namer, lines: Sequence[Line]) -> list[Figure]:
    """Of a study with a control: each file system's rate as a share of its rate beside that."""
    workloads: dict[str, dict[str, list[Bar]]] = {}
    for (device, workload), pair in pairs_of(namer.study, lines).items():
        bars = []
        for name in (one for one in MAIN if one in pair):
            share: Stat = pair[name][0].stats["ops_per_s"].over(pair[name][1].stats["ops_per_s"])
            said, text = LABELS.get(name, name), share.as_ratio
            bars.append(Bar(name, said, {"": share.median}, text, spread=share.spread))
        workloads.setdefault(workload, {})[device] = bars
    axis = "fsync rate, as a share of that beside the control"
    return [
        namer.make(
            *("share", workload, workload, axis),
            groups={x: bars[x] for x in sorted(bars, key=lambda x: place_in(x, DEVICES))},
            reference=(1.0, "control"),
        )
        for workload, bars in workloads.items()
    ]


# --- a sweep -------------------------------------------------------------------------------------

SWEPT = (
    ("ops_per_s", "ideal", SPEED_AXIS, "speed", FDATASYNC),
    ("kib", "stock", "KiB written per operation, as a share of stock's", "bytes", "stock"),
)


def sweep_figures(namer: Namer, lines: Sequence[Line]) -> list[Figure]:
    """Speed and volume of each mode by interval, a curve for each device."""
    ends = {(x.place.device, x.place.system): x for x in lines if x.place.interval_ms is None}
    found = []
    for mode in dict.fromkeys(system for _, system in sweeps(lines)):
        of_mode = {device: x for (device, system), x in sweeps(lines).items() if system == mode}
        for metric, base, axis, name, word in SWEPT:
            curves = [
                curve_of(device, of_mode[device], metric, ends[device, base])
                for device in sorted(of_mode, key=lambda device: place_in(device, DEVICES))
                if (device, base) in ends
            ]
            if curves:
                about = f"{mode}, by interval"
                found.append(
                    namer.make(
                        "sweep", f"{mode}-{name}", about, axis, curves=curves, reference=(1.0, word)
                    )
                )
    return found


def curve_of(device: str, series: Sequence[Line], metric: str, base: Line) -> Curve:
    """A metric over that of a base, by interval."""
    divisor = base.value(metric)
    points = [(float(x.place.interval_ms or 0), x.value(metric) / divisor) for x in series]
    return Curve(device, points)


# --- all of a study ------------------------------------------------------------------------------


def plain(text: str) -> str:
    """A name as a part of a file's name."""
    kept = "".join(letter if letter.isalnum() else "-" for letter in text.lower())
    return "-".join(part for part in kept.split("-") if part)


def figures_of(study: Study[Any], lines: Sequence[Line]) -> list[Figure]:
    """The figures of one study on one kernel."""
    if not lines:
        return []
    namer = Namer(study, lines[0].place)
    if is_sweep(lines):
        return sweep_figures(namer, lines)
    if shares := share_figures(namer, lines):
        return shares
    found: list[Figure] = []
    for index, name in enumerate(shown_names(study, lines)):
        mine = [line for line in lines if (line.place.workload, line.place.subject) == name]
        found += workload_figures(namer, mine)
        if index == 0 and study.compared == "system":
            found += peer_figures(namer, mine)
    return found


def overview(studies: Mapping[str, Study[Any]], lines: Sequence[Line]) -> Figure | None:
    """Speed over that of fdatasync(), of what figures are drawn of: the one picture of a short run.

    None where nothing is compared with that.
    """
    several = len({line.place.device for line in lines}) > 1
    groups: dict[str, Sequence[Bar]] = {}
    for study in studies.values():
        mine = [line for line in lines if line.place.study == study.name]
        if is_sweep(mine):
            continue
        names = shown_names(study, mine)
        shown = [line for line in mine if (line.place.workload, line.place.subject) in names]
        for (device, name), group in grouped(study, shown).items():
            if bars := speed_bars(study, group, without_ideal(SHORT)):
                said = f"{study.name}: {name}"
                groups[f"{said}, {device}" if several else said] = bars
    if not groups:
        return None
    title = "Speed on several devices" if several else f"On {lines[0].place.device}"
    kernel = f"Linux {machines_of(lines)}"
    reference = (1.0, FDATASYNC)
    return Figure("speed", "overview", title, kernel, SPEED_AXIS, groups, reference=reference)
