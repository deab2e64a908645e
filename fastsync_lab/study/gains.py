"""What a user gains, device by device: the README's picture and its table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastsync_lab.host.kernels import default_series
from fastsync_lab.machine.device import load_profile
from fastsync_lab.study.contract import Study
from fastsync_lab.study.figures import DEVICES, Bar, Figure
from fastsync_lab.study.grid import Grid, Part
from fastsync_lab.study.rows import Line, Stat, machines_of
from fastsync_lab.study.show import environments, older_modules, ratio
from fastsync_lab.study.store import Result

SERIES = default_series()
BASE, OURS, PEER = "stock", "defer+eager", "f2fs"
METRIC = "ops_per_s"
NOT_YET = "not measured yet"
NOT_ASKED = "–"  # the study does not take the device
Studies = Mapping[str, Study[Any]]


@dataclass(frozen=True)
class Gain:
    """A column of the table: a workload, and what a reader calls it."""

    study: str
    workload: str
    subject: str
    what: str


SHOWN = (
    Gain("overwrite", "random", "", "4 KiB write"),
    Gain("files", "append", "", "4 KiB append"),
    Gain("files", "create", "", "new file"),
    Gain("sqlite", "DELETE", "insert", "SQLite insert, DELETE"),
    Gain("sqlite", "WAL", "insert", "SQLite insert, WAL"),
)
INTRO = """\
Operations a second on modelled devices: stock ext4 →
`mtime_update,mtime_mode=defer,eager_sync` (speed over stock's). Each operation is durable before
the next one begins. SQLite is compiled to call `fsync()`; Debian's calls `fdatasync()`."""
STUDIES = " ".join(dict.fromkeys(one.study for one in SHOWN))
AGAIN = (
    f"To repeat the table: `./fastsync run --full {STUDIES} --kernel {SERIES}`, "
    "then `./fastsync report`."
)
SLOWER = 0.995  # of stock's speed; what is below that is named,
LONGER = 1.1  # and what has a p99 of so many times stock's


@dataclass(frozen=True)
class Pair:
    """A workload on another file system, stock or a peer, and on ours."""

    other: Line
    ours: Line

    @property
    def times(self) -> Stat:
        """How many times the other's speed ours is."""
        found = ratio(self.ours, self.other, METRIC)
        if found is None:
            raise ValueError(f"{self.other.place}: no operations")
        return found

    @property
    def rates(self) -> str:
        """Operations a second before and after."""
        return " → ".join(line.stats[METRIC].short() for line in (self.other, self.ours))

    @property
    def runs(self) -> int:
        """How many runs its figures are the medians of; of two, the lesser number."""
        return min(self.other.runs, self.ours.runs)

    @property
    def furthest(self) -> float:
        """How far the farthest run is from the median, as a share of it."""
        stats = [line.stats[METRIC] for line in (self.other, self.ours)]
        return max(stat.spread / stat.median for stat in stats)


Pairs = Mapping[tuple[str, Gain], Pair]


def of_now(results: Sequence[Result]) -> list[Result]:
    """Those of the README's kernel, and of the processor that guests have now."""
    return [one for one in results if one.series == SERIES and not one.processor]


def shown(results: Sequence[Result]) -> list[Result]:
    """Those that the README's table has."""
    names = {one.study for one in SHOWN}
    return [one for one in of_now(results) if one.study in names]


def pairs_of(results: Sequence[Result], base: str = BASE) -> Pairs:
    """What was measured of ours and of another file system, by device and gain."""
    there = {
        (x.place.device, x.place.study, x.place.workload, x.place.subject, x.place.system): x
        for result in shown(results)
        for x in result.lines
    }
    found = {}
    for device in DEVICES:
        for one in SHOWN:
            place = (device, one.study, one.workload, one.subject)
            other, ours = (there.get((*place, system)) for system in (base, OURS))
            if other and ours:
                found[device, one] = Pair(other, ours)
    return found


def gains(pairs: Pairs, studies: Studies) -> Grid:
    """A row for each device."""
    lines = []
    for device in DEVICES:
        cells = []
        for one in SHOWN:
            if pair := pairs.get((device, one)):
                cells.append(f"{pair.rates} (**{pair.times.as_ratio}×**)")
            else:
                cells.append(NOT_YET if device in studies[one.study].full.devices else NOT_ASKED)
        lines.append([f"`{device}`: {load_profile(device).about}", *cells])
    return Grid(["device", *(one.what for one in SHOWN)], lines, texts=1)


def losses(results: Sequence[Result]) -> list[str]:
    """What is slower than on stock, and what has a longer p99, by more than runs differ."""
    said = []
    for what, metric, bound, sign, digits in (
        ("Slower than on stock", METRIC, SLOWER, 1, 3),
        ("With a longer p99", "p99_ns", LONGER, -1, 2),
    ):
        named = ", ".join(
            f"{name} ({times:.{digits}f}× on `{device}`)"
            for name, (times, device) in worst_over_stock(results, metric, bound, sign).items()
        )
        said += [f"{what}, by study and workload: {named}."] if named else []
    return said


def worst_over_stock(
    results: Sequence[Result], metric: str, bound: float, sign: int
) -> dict[str, tuple[float, str]]:
    """Which workloads' metric, over stock's, is past a bound by more than runs differ.

    Each, by study and workload, with the worst device's ratio and that device. `sign` is 1 where
    less is worse, and -1 where more is. Two studies may have workloads of one name.
    """
    worst: dict[str, tuple[float, str]] = {}
    for result in of_now(results):
        of_system = {(x.place.name, x.place.scheduler, x.place.system): x for x in result.lines}
        for (name, scheduler, system), ours in of_system.items():
            stock = of_system.get((name, scheduler, BASE))
            found = ratio(ours, stock, metric) if system == OURS and stock else None
            if found is None:
                continue
            past = sign * found.median + found.spread < sign * bound
            one = f"`{result.study}` {name}"
            if past and sign * found.median < sign * worst.get(one, (bound, ""))[0]:
                worst[one] = found.median, result.device
    return worst


def beside_peer(results: Sequence[Result]) -> list[str]:
    """How many times a peer's speed ours is, from the worst device to the best."""
    times: dict[Gain, list[Stat]] = {}
    for (_, one), pair in pairs_of(results, PEER).items():
        times.setdefault(one, []).append(pair.times)
    named = []
    for one, of in times.items():
        of.sort(key=lambda stat: stat.median)
        named.append(f"{one.what} {of[0].as_ratio}–{of[-1].as_ratio}×")
    return (
        [f"Speed divided by F2FS's, from the worst device to the best: {', '.join(named)}."]
        if named
        else []
    )


def spread_of(pairs: Pairs) -> list[str]:
    """What is the median of how many runs, and how far these differ; and what is of one run."""
    of_gain = {one: [pair for (_, other), pair in pairs.items() if other == one] for one in SHOWN}
    alike: dict[tuple[int, int], list[Gain]] = {}
    for one, found in of_gain.items():
        if runs := [pair.runs for pair in found]:
            alike.setdefault((max(runs), min(runs)), []).append(one)
    said = []
    for (most, least), gains_alike in sorted(alike.items(), reverse=True):
        names = ", ".join(one.what for one in gains_alike)
        furthest = max(pair.furthest for one in gains_alike for pair in of_gain[one])
        runs_said = f"{most} runs" if most == least else f"{most} runs ({least} on some devices)"
        said.append(
            f"{names}: medians of {runs_said}; "
            f"each run is within {furthest * 100:.1f} % of its median."
            if most > 1
            else f"{names}: one run each."
        )
    return said


def picture(results: Sequence[Result]) -> Figure | None:
    """How many times stock's speed, a group for each device. None where nothing was measured."""
    groups: dict[str, list[Bar]] = {}
    pairs = pairs_of(results)
    if not pairs:
        return None
    for (device, one), pair in pairs.items():
        times = pair.times
        text = f"{times.as_ratio} ({pair.rates}/s)"
        groups.setdefault(device, []).append(Bar(OURS, one.what, {"": times.median}, text))
    kernel = f"Linux {machines_of(x for one in shown(results) for x in one.lines)}"
    return Figure(
        *("speed", "gains", "fsync with fastsync", kernel),
        "times the speed of stock ext4",
        groups,
        reference=(1.0, "stock ext4"),
    )


def gain_parts(results: Sequence[Result], studies: Studies) -> list[Part]:
    """What the README says beside its picture."""
    pairs, mine = pairs_of(results), shown(results)
    where = environments(mine) or [f"All of it: {NOT_YET}."]
    said = [
        *where,
        *older_modules(mine),
        *spread_of(pairs),
        *beside_peer(results),
        *losses(results),
        *([AGAIN] if pairs else []),
    ]
    return [INTRO, gains(pairs, studies), " ".join(said)]
