"""Paints figures: bars that lie in groups, one beneath the other, and curves.

A figure is as wide as a telephone's screen, so that a page can put as many beside each other as
there is room for, and a projector shows its text large. No text is smaller than TEXT points.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.paths import write_whole
from fastsync_lab.study.figures import CLASS_LABELS, Bar, Figure, overview
from fastsync_lab.study.rows import CLASS_METRICS
from fastsync_lab.study.show import Studies
from fastsync_lab.study.store import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

TEXT = 9.0  # points
WIDTH_IN, ROW_IN, GAP_ROWS, FRAME_IN, CURVES_IN = 4.1, 0.19, 0.9, 1.3, 3.5
PNG_DPI = 160
LEAST_SHARE = 0.1  # of the axis, for bars with long words behind them
LOG_FROM = 8  # times the smallest; an axis of less has too few powers of ten
COLORS = {
    "stock": "#8a8f98",
    "ideal": "#3a3f47",
    "truncate": "#1f77b4",
    "defer": "#2ca089",
    "off": "#c7cad0",
    "eager": "#d9822b",
    "defer+eager": "#0b6e4f",
    "mq-deadline": "#8a8f98",
    "no writer": "#3a3f47",
    "qasio": "#2ca089",
}
OTHER_COLOR = "#b9a7d6"
CLASS_COLORS = dict(zip(CLASS_METRICS, ("#4c78a8", "#e45756", "#f2b134", "#9d9d9d"), strict=True))
CURVE_STYLES = ("o-", "s--", "^-.", "D:", "v-", "P--")
WORDS = "words"  # the texts behind bars
WHITE: Any = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
INK, FAINT = "#22262b", "#c9ced6"
SETTINGS: Any = {
    "font.size": TEXT,
    "text.color": INK,
    "axes.labelcolor": INK,
    "font.family": ["DejaVu Sans", "sans-serif"],
    "svg.fonttype": "none",  # text that can be searched, in the reader's own font
    "svg.hashsalt": "fastsync",  # the same figure makes the same file
}
NO_DATE = {"Date": None}


# --- painting ------------------------------------------------------------------------------------


def places_of(figure: Figure) -> list[tuple[float, str, list[tuple[float, Bar]]]]:
    """Of each group the row of its title, the title, and its bars with their rows, downwards."""
    row, found = 0.0, []
    for title, bars in figure.groups.items():
        head = row
        row += bool(title)
        found.append((head, title, [(row + number, bar) for number, bar in enumerate(bars)]))
        row += len(bars) + GAP_ROWS / 2
    return found


def rows_of(figure: Figure) -> float:
    """How many rows a figure of bars has."""
    groups = places_of(figure)
    return groups[-1][2][-1][0] + 1 if groups else 0.0


def colour(bar: Bar) -> str:
    """Of whose bar it is."""
    return COLORS.get(bar.name, OTHER_COLOR)


def paint_bars(axes: "Axes", figure: Figure) -> None:
    """Groups of bars, each with its words behind its end."""
    seen: set[str] = set()
    longest = max(bar.end for bars in figure.groups.values() for bar in bars)
    for head, title, rows in places_of(figure):
        if title:
            axes.annotate(
                title,
                (0, head),
                xycoords=("axes fraction", "data"),
                va="center",
                weight="bold",
                xytext=(3, 0),
                textcoords="offset points",
                zorder=4,
                bbox=WHITE,
            )
        for row, bar in rows:
            left = bar.start
            for name, length in bar.parts.items():
                axes.barh(
                    row,
                    length,
                    0.8,
                    left=left,
                    color=CLASS_COLORS.get(name) or colour(bar),
                    label=CLASS_LABELS[name] if name and name not in seen else None,
                    zorder=2,
                )
                seen.add(name)
                left += length
            if bar.start:
                axes.plot(bar.start, row, "o", color=colour(bar), markersize=5, zorder=3)
            if bar.spread:
                axes.errorbar(left, row, xerr=bar.spread, color=INK, capsize=2, zorder=3)
            axes.annotate(
                bar.text,
                (left + bar.spread, row),
                va="center",
                xytext=(4, 0),
                textcoords="offset points",
                zorder=4,
                bbox=WHITE,
                gid=WORDS,
                in_layout=False,
            )
    named = [(row, bar.label) for _, _, rows in places_of(figure) for row, bar in rows]
    axes.set_yticks([row for row, _ in named], [word for _, word in named])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(rows_of(figure) - 0.4, -0.7)
    scale_bars(axes, figure, longest)


def scale_bars(axes: "Axes", figure: Figure, longest: float) -> None:
    """An axis that is longer than the longest bar, and no tick there."""
    starts = [bar.start for bars in figure.groups.values() for bar in bars if bar.start]
    log = figure.log and longest > LOG_FROM * min(starts, default=longest)
    if log:
        axes.set_xscale("log")
        axes.set_xlim(min(starts) / 1.5, longest * (longest / min(starts)) ** 0.9)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(lambda _value, _place: "")
    else:
        axes.set_xlim(0, longest * 1.5)
    low, high = axes.get_xlim()
    last = longest * (2 if log else 1.05)
    ticks = [tick for tick in axes.get_xticks() if low <= tick <= last]
    axes.set_xticks(ticks)
    axes.set_xticks([], minor=True)
    axes.set_xlim(low, high)


def make_room(picture: "Picture", axes: "Axes") -> None:
    """Let the axis end where the words behind each bar do, if it ends before."""
    from matplotlib.text import Annotation

    picture.draw_without_rendering()  # so that all has its place
    frame = axes.get_window_extent()
    low, high = (axes.transScale.transform((limit, 1))[0] for limit in axes.get_xlim())
    furthest = high
    for words in axes.texts:
        if isinstance(words, Annotation) and words.get_gid() == WORDS:
            end = axes.transScale.transform((words.xy[0], 1))[0]
            begin = frame.x0 + (end - low) / (high - low) * frame.width
            share = 1 - (words.get_window_extent().x1 - begin) / frame.width
            furthest = max(furthest, low + (end - low) / max(share, LEAST_SHARE))
    inverted = axes.transScale.inverted()
    axes.set_xlim(right=float(inverted.transform((furthest, 1))[0]))


def paint_curves(axes: "Axes", figure: Figure) -> None:
    """Curves over the interval."""
    for curve, style in zip(figure.curves, cycle(CURVE_STYLES), strict=False):
        x, y = zip(*curve.points, strict=True)
        axes.plot(x, y, style, markersize=4, linewidth=1.3, label=curve.name)
    ticks = sorted({x for curve in figure.curves for x, _ in curve.points})
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False, rotation=60)
    axes.set_xticks([], minor=True)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("mtime interval, ms")


def paint_reference(axes: "Axes", figure: Figure) -> None:
    """The line that all are compared with."""
    if figure.reference is None:
        return
    value, word = figure.reference
    paint = axes.axhline if figure.curves else axes.axvline
    paint(value, color=INK, linewidth=1, linestyle=(0, (3, 2)), zorder=3)
    if not figure.curves:
        axes.annotate(
            word,
            (value, 1),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="bottom",
            xytext=(0, 1),
            textcoords="offset points",
        )


@contextmanager
def painted(figure: Figure) -> Iterator["Picture"]:
    """A figure as matplotlib has it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    height = CURVES_IN if figure.curves else FRAME_IN + ROW_IN * rows_of(figure)
    with matplotlib.rc_context(SETTINGS):
        picture, axes = pyplot.subplots(figsize=(WIDTH_IN, height), layout="constrained")
        (paint_curves if figure.curves else paint_bars)(axes, figure)
        paint_reference(axes, figure)
        title = f"{figure.title}\n{figure.kernel}"
        picture.suptitle(title, x=0.02, ha="left", weight="bold", size=TEXT + 1)
        if figure.curves:
            axes.set_title(figure.axis, loc="left", size=TEXT, weight="normal")
        else:
            axes.set_xlabel(figure.axis)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines["left"].set_visible(bool(figure.curves))
        axes.spines[["bottom"]].set_color(FAINT)
        axes.grid(axis="y" if figure.curves else "x", color=FAINT, linewidth=0.5, zorder=0)
        axes.set_axisbelow(True)
        if figure.curves or figure.classes:
            picture.legend(
                loc="outside lower center",
                ncols=3,
                frameon=False,
                columnspacing=1,
                handlelength=1.5,
            )
        if not figure.curves:
            make_room(picture, axes)
        try:
            yield picture
        finally:
            pyplot.close(picture)


def svg_of(figure: Figure) -> str:
    """A figure as SVG, for a page."""
    text = io.StringIO()
    with painted(figure) as picture:
        picture.savefig(text, format="svg", metadata=NO_DATE)
    return text.getvalue()


def write_png(figure: Figure, png: Path) -> None:
    """A figure as PNG, for a projector; the file is never there in part."""
    data = io.BytesIO()
    with painted(figure) as picture:
        picture.savefig(data, format="png", dpi=PNG_DPI, metadata={"Software": None})
    png.parent.mkdir(parents=True, exist_ok=True)
    write_whole(png, data.getvalue())


def draw(results: list[Result], studies: Studies, png: Path) -> None:
    """Draw what these results show, in one figure. Raises FastsyncError when that is nothing."""
    lines = [line for result in results for line in result.lines]
    figure = overview(studies, lines)
    if figure is None:
        raise FastsyncError("there is nothing to draw: no speed that fdatasync's is known of")
    write_png(figure, png)
