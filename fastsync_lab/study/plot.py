"""Pictures: throughput and bytes by class, and the two lines of a sweep."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastsync_lab.errors import FastsyncError
from fastsync_lab.study.judge import LABELS
from fastsync_lab.study.rows import CLASS_METRICS, Line, is_sweep, sweeps
from fastsync_lab.study.show import Group, Studies, environments, grouped, label
from fastsync_lab.study.store import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = {
    "stock": "#8a8f98",
    "ideal": "#3a3f47",
    "truncate": "#1f77b4",
    "defer": "#2ca089",
    "off": "#c7cad0",
}
CLASS_COLORS = dict(zip(CLASS_METRICS, ("#4c78a8", "#e45756", "#f2b134", "#9d9d9d"), strict=True))
CLASS_LABELS = dict(
    zip(CLASS_METRICS, ("file data", "journal", "other metadata", "unsorted"), strict=True)
)


def drawn(groups: Sequence[Group]) -> list[str]:
    """The file systems that have bars."""
    return [name for name in COLORS if all(name in group for group in groups)]


def bars_speed(
    axes: "Axes", names: Sequence[str], groups: Sequence[Group], labels: Sequence[str]
) -> None:
    """Operations a second over stock, a group of bars for each workload."""
    systems = drawn(groups)
    width = 0.8 / len(systems)
    for index, (system, said) in enumerate(zip(systems, labels, strict=True)):
        lines = [group[system] for group in groups]
        places = [place - 0.4 + width * (index + 0.5) for place in range(len(groups))]
        stock = [group["stock"].value("ops_per_s") for group in groups]
        heights = [x.value("ops_per_s") / y for x, y in zip(lines, stock, strict=True)]
        spreads = [x.stats["ops_per_s"].spread / y for x, y in zip(lines, stock, strict=True)]
        errors = spreads if any(spreads) else None
        axes.bar(places, heights, width * 0.92, yerr=errors, color=COLORS[system], label=said)
        for place, height, line in zip(places, heights, lines, strict=True):
            above(axes, place, height, f"{line.value('ops_per_s'):,.0f}")
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.set_ylabel("throughput ÷ stock\n(on the bars: operations/s)")
    axes.margins(x=0.01, y=0.22)
    axes.legend(fontsize=8, ncols=len(systems), loc="upper left", frameon=False)


def above(axes: "Axes", place: float, height: float, text: str) -> None:
    """Write a text on a bar."""
    axes.annotate(
        text,
        (place, height),
        ha="center",
        va="bottom",
        fontsize=6,
        rotation=90,
        xytext=(0, 2),
        textcoords="offset points",
    )


def bars_bytes(axes: "Axes", names: Sequence[str], groups: Sequence[Group]) -> None:
    """KiB written for each operation by class, stacked, in the order of bars_speed()."""
    systems = drawn(groups)
    width = 0.8 / len(systems)
    every = [group[system] for group in groups for system in systems]
    classes = [name for name in CLASS_METRICS if any(kib(line, name) for line in every)]
    for index, system in enumerate(systems):
        places = [place - 0.4 + width * (index + 0.5) for place in range(len(groups))]
        bottom = [0.0] * len(groups)
        for name in classes:
            heights = [kib(group[system], name) for group in groups]
            axes.bar(
                places,
                heights,
                width * 0.92,
                bottom=bottom,
                color=CLASS_COLORS[name],
                label=CLASS_LABELS[name] if index == 0 else None,
            )
            bottom = [low + high for low, high in zip(bottom, heights, strict=True)]
        for place, top in zip(places, bottom, strict=True):
            above(axes, place, top, LABELS.get(system, system))
    axes.margins(x=0.01)
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.set_ylabel("KiB written per operation")
    axes.set_ylim(0, 1.3 * max(line.value("kib") for line in every))
    axes.legend(fontsize=8, ncols=len(classes), loc="upper left", frameon=False)


def kib(line: Line, metric: str) -> float:
    """What was written to a class, 0 where the class was not there yet."""
    return line.value(metric) if metric in line.stats else 0.0


def lines_sweep(speed: "Axes", volume: "Axes", lines: Sequence[Line]) -> None:
    """Throughput and volume by interval, a line for each mode; stock and Ideal as levels."""
    panels = ((speed, "ops_per_s", "operations/s"), (volume, "kib", "KiB written per operation"))
    for axes, metric, text in panels:
        for (_, system), series in sweeps(lines).items():
            axes.plot(
                [line.place.interval_ms or 0 for line in series],
                [line.value(metric) for line in series],
                linestyle="-" if system == "truncate" else "--",
                color=COLORS[system],
                marker="o",
                markersize=3,
                label=system,
            )
        for line in lines:
            if line.place.interval_ms is None:
                name = LABELS.get(line.place.system, line.place.system)
                color = COLORS[line.place.system]
                axes.axhline(line.value(metric), color=color, linestyle=":", label=name)
        ticks = sorted({line.place.interval_ms for line in lines if line.place.interval_ms})
        axes.set_xscale("log")
        axes.set_xticks(ticks, [str(tick) for tick in ticks], minor=False)
        axes.set_xticks([], minor=True)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("mtime interval, ms")
        axes.set_ylabel(text)
        axes.legend(fontsize=7, frameon=False)


def can_be_drawn(result: Result) -> bool:
    """Whether there is a picture of it: file systems that are compared with stock."""
    systems = {line.place.system for line in result.lines if "ops_per_s" in line.stats}
    return {"stock", "ideal"} <= systems


def draw(results: Sequence[Result], studies: Studies, png: Path) -> None:
    """Draw throughput and bytes by class, and a sweep's two lines, into one PNG.

    A row of the picture is one study on one device. Raises FastsyncError without results.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [result for result in results if can_be_drawn(result)]
    if not shown:
        raise FastsyncError("there are no results to plot; run a study of file systems first")
    figure, axes = pyplot.subplots(
        len(shown), 2, figsize=(17, 4.6 * len(shown)), squeeze=False, layout="constrained"
    )
    for panels, result in zip(axes, shown, strict=True):
        draw_result(panels, result, studies)
    figure.supxlabel("\n".join(environments(shown)), fontsize=7, color="#555555")
    png.parent.mkdir(parents=True, exist_ok=True)
    half = png.with_name(f"{png.stem}.new.png")
    figure.savefig(half, dpi=110)
    half.replace(png)
    pyplot.close(figure)


def draw_result(panels: Any, result: Result, studies: Studies) -> None:
    """Draw one study on one device into a row of two panels."""
    study, lines = studies[result.study], result.lines
    if is_sweep(lines):
        lines_sweep(panels[0], panels[1], lines)
    else:
        groups = grouped(study, lines)
        names = [name.replace(" ", "\n") for _, name in groups]
        found = list(groups.values())
        labels = [label(study, found[0][system].place) for system in drawn(found)]
        bars_speed(panels[0], names, found, labels)
        bars_bytes(panels[1], names, found)
    for panel in panels:
        panel.set_title(f"{result.title} — {result.device}", fontsize=10)
        panel.spines[["top", "right"]].set_visible(False)
