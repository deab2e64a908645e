"""What a user gains, device by device: the README's picture and its table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastsync_lab.machine.device import load_profile
from fastsync_lab.study.contract import Study
from fastsync_lab.study.figures import DEVICES, Figure, figures_of
from fastsync_lab.study.grid import Grid, Part
from fastsync_lab.study.rows import METRICS, Line
from fastsync_lab.study.show import environments, ratio
from fastsync_lab.study.store import Result

SERIES = ("6.12", "7.2")  # the kernels that the README has
BASE = "stock"
METRIC = "ops_per_s"
NOT_YET = "not measured yet"
NOT_ASKED = "–"  # the study does not take the device
Studies = Mapping[str, Study[Any]]


@dataclass(frozen=True)
class Gain:
    """A column of the table for each of `kernels`: what a workload gains in a mode."""

    study: str
    workload: str
    subject: str
    what: str
    mode: str = "defer"
    kernels: tuple[str, ...] = SERIES


SHOWN = (
    Gain("overwrite", "random", "", "4 KiB write + fsync"),
    Gain("sqlite", "PERSIST", "update", "SQLite update"),
    Gain("files", "append", "", "4 KiB append + fsync", mode="eager", kernels=("6.12",)),
)
MODES = {"defer": "`mtime_mode=defer`", "eager": "appends: `eager_sync`"}


def chosen(results: Sequence[Result]) -> list[Result]:
    """One result of each kind: that of the processor guests have now, where it was measured."""
    found: dict[tuple[str, str, str], Result] = {}
    for one in sorted(results, key=lambda one: one.processor):
        found.setdefault((one.study, one.series, one.device), one)
    return list(found.values())


def gain(stock: Line | None, ours: Line | None) -> str:
    """Operations a second before and after, and how many times that is.

    Another processor than the one that guests have now is named.
    """
    found = ratio(ours, stock, METRIC)
    if found is None or stock is None or ours is None:
        return NOT_YET
    before, after = (line.stats[METRIC].text(METRICS[METRIC].factor) for line in (stock, ours))
    other = f", {stock.place.processor}" if stock.place.processor else ""
    return f"{before} → {after} (**{found.text()}×**){other}"


def columns(results: Sequence[Result]) -> list[tuple[Gain, str]]:
    """The gains with their kernels: all, or those of which something was measured."""
    every = [(one, series) for one in SHOWN for series in one.kernels]
    there = {(result.study, result.series) for result in results}
    return [pair for pair in every if (pair[0].study, pair[1]) in there] or every


def gains(results: Sequence[Result], studies: Studies) -> Grid:
    """A row for each device."""
    there = {
        (x.place.series, x.place.study, x.place.workload, x.place.subject, x.place.device,
         x.place.system): x
        for result in chosen(results) for x in result.lines
    }  # fmt: skip
    shown = columns(results)
    head = ["device", *(f"{one.what}, Linux {series}" for one, series in shown)]
    lines = []
    for device in DEVICES:
        cells = []
        for one, series in shown:
            place = (series, one.study, one.workload, one.subject, device)
            pair = [there.get((*place, x)) for x in (BASE, one.mode)]
            asked = device in studies[one.study].full.devices
            cells.append(gain(pair[0], pair[1]) if any(pair) or asked else NOT_ASKED)
        about = load_profile(device).description.split(":")[0]
        lines.append([f"`{device}`: {about}", *cells])
    return Grid(head, lines, texts=1)


def pictures(results: Sequence[Result], studies: Studies) -> list[Figure]:
    """Speed over that of fdatasync(), on each of these kernels that was measured.

    A picture has one processor: the one that guests have now, if anything was measured with it.
    """
    shown, found = SHOWN[0], list[Figure]()
    for series in shown.kernels:
        mine = [one for one in results if (one.study, one.series) == (shown.study, series)]
        first = min((one.processor for one in mine), default="")
        lines = [
            line
            for one in mine
            if one.processor == first
            for line in one.lines
            if line.place.workload == shown.workload
        ]
        speed = [one for one in figures_of(studies[shown.study], lines) if one.kind == "speed"]
        found += [replace(one, title=shown.what) for one in speed]
    return found


def gain_parts(results: Sequence[Result], studies: Studies) -> list[Part]:
    """What the README says beside its picture."""
    mine = [one for one in results if one.study in {gain.study for gain in SHOWN}]
    shown = [one for one in chosen(mine) if one.series in SERIES]
    modes = dict.fromkeys(one.mode for one, _ in columns(results))
    how = "; ".join(MODES[mode] for mode in modes)
    return [
        f"Operations a second, stock ext4 → fastsync ({how}), and how many times that is:",
        gains(results, studies),
        "\n".join(f"- {text}" for text in environments(shown)) or f"All of it: {NOT_YET}.",
    ]
