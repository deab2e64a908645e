"""Tables, plots, the README's figures and docs/results.md, all from result files."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastsync_lab.documents import replace_block
from fastsync_lab.errors import FastsyncError
from fastsync_lab.experiment import DEFAULT_INTERVAL_MS, experiment_names, load_experiment
from fastsync_lab.figures import (
    COMPARED,
    LABELS,
    MODES,
    Cells,
    Group,
    Result,
    Row,
    device_place,
    group_of,
    grouped,
    in_order,
    is_sweep,
    kernel_of,
    load_result,
    rows_of,
    series_of,
    sweeps,
)
from fastsync_lab.measure import CLASSES, DATA, JOURNAL, METADATA
from fastsync_lab.paths import repo_root, results_dir, write_whole
from fastsync_lab.required import Requirement, Verdict, judge

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console

FIGURES = "figures"  # the README's block
COLORS = {
    "stock": "#8a8f98",
    "ideal": "#3a3f47",
    "truncate": "#1f77b4",
    "defer": "#2ca089",
    "off": "#c7cad0",
}
CLASS_COLORS = {DATA: "#4c78a8", JOURNAL: "#e45756", METADATA: "#f2b134"}
CLASS_LABELS = {DATA: "file data", JOURNAL: "journal", METADATA: "other metadata"}

# The README's tables: of these kernels, these rows. docs/results.md has all.
HEADLINE_SERIES = ("6.12", "7.2")
HEADLINE = {
    "overwrite": ("random", "random, fstat first"),
    "fstat": ("random", "random, fstat first"),
    "sqlite": ("PERSIST update", "DELETE update"),
}


def required_of(names: Iterable[str]) -> dict[str, tuple[Requirement, ...]]:
    """What the figures of these experiments must show, as their files say now."""
    known = [name for name in dict.fromkeys(names) if name in experiment_names()]
    return {name: load_experiment(name, quick=False).required for name in known}


def verdicts(results: Sequence[Result]) -> list[Verdict]:
    """Every required figure that these results can show."""
    return judge(required_of(result["experiment"] for result in results), rows_of(results))


# --- the table ---------------------------------------------------------------------------------


def ratio(row: Row, base: Row | None) -> str:
    """How many times `base` a row's speed is."""
    return f"{row.ops_per_s / base.ops_per_s:.3f}" if base else "-"


def label(row: Row) -> str:
    """A variant as a reader knows it; the interval where it is not the default."""
    name = LABELS.get(row.variant, row.variant)
    return (
        name if row.interval_ms in (None, DEFAULT_INTERVAL_MS) else f"{name} {row.interval_ms} ms"
    )


TABLE_HEAD = (
    "workload",
    "variant",
    "ops/s",
    "/stock",
    "/Ideal",
    "data",
    "journal",
    "other",
    "flushes",
    "p50 ms",
    "p99 ms",
)
TABLE_WIDTH = 124


def table_cells(row: Row, stock: Row | None, ideal: Row | None) -> list[str]:
    """One line of the table, without the workload."""
    kib = row.kib_per_op
    return [
        label(row),
        f"{row.ops_per_s:,.1f}",
        ratio(row, stock),
        ratio(row, ideal),
        *(f"{kib[name]:.2f}" for name in CLASSES),
        f"{row.flushes_per_op:.2f}",
        f"{row.p50_ns / 1e6:.3f}",
        f"{row.p99_ns / 1e6:.3f}",
    ]


def print_table(paths: Sequence[Path], *, console: "Console | None" = None) -> None:
    """Print every figure side by side, then the verdicts. Raises FastsyncError on a bad file."""
    from rich.console import Console
    from rich.table import Table

    results = [load_result(path) for path in paths]
    out = console or Console()
    if out.width < TABLE_WIDTH:
        out = Console(file=out.file, width=TABLE_WIDTH)
    table = Table(
        caption="data, journal, other (KiB) and flushes are for each operation; "
        "p50, p99: time of a sync call (SQLite: of a transaction)",
        caption_justify="left",
        box=None,
        padding=(0, 2, 0, 0),
        header_style="bold",
        pad_edge=False,
    )
    for index, head in enumerate(TABLE_HEAD):
        table.add_column(head, justify="left" if index < 2 else "right", no_wrap=True)
    last = ""
    for (kernel, experiment, device, name), rows in blocks(results):
        if (block := f"{experiment}, {device}, {kernel}") != last:
            table.add_row()
            table.add_row(block, style="bold underline")
            last = block
        by_variant = {row.variant: row for row in rows}
        stock, ideal = by_variant.get("stock"), by_variant.get("ideal")
        for index, row in enumerate(rows):
            style = "bold" if row.variant in MODES else None
            head = "" if index else name
            table.add_row(head, *table_cells(row, stock, ideal), style=style)
    out.print(table)
    for environment in environments(results):
        out.print(environment, style="dim", highlight=False)
    print_verdicts(out, verdicts(results))


def blocks(results: Iterable[Result]) -> list[tuple[Group, list[Row]]]:
    """The rows that belong side by side, a sweep's intervals included."""
    found: dict[Group, list[Row]] = {}
    for row in rows_of(results):
        found.setdefault(group_of(row), []).append(row)
    return list(found.items())


def print_verdicts(out: "Console", found: Sequence[Verdict]) -> None:
    """How many required figures are reached, and each one that is not."""
    short = [verdict for verdict in found if not verdict.passed]
    out.print(
        f"Required figures: {len(found) - len(short)} of {len(found)} reached.", highlight=False
    )
    for verdict in short:
        out.print(str(verdict), style="yellow", highlight=False)


def describe_environment(result: Result) -> str:
    """Where figures come from, in a line."""
    environment = result["environment"]
    return (
        f"Linux {environment['kernel_release']} ({environment['debian_version']}), virtual time, "
        f"{environment['models_cpu']}; {environment['fio']}, SQLite {environment['sqlite']}."
    )


def environments(results: Iterable[Result]) -> list[str]:
    """Where figures come from, each place once."""
    return list(dict.fromkeys(describe_environment(result) for result in results))


# --- Markdown ----------------------------------------------------------------------------------


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]], *, texts: int = 2) -> str:
    """A table in Markdown; the first `texts` columns are text, the others are numbers."""
    rule = ["---"] * texts + ["---:"] * (len(head) - texts)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *lines])


def count(number: int, noun: str) -> str:
    """A number and its noun, in the plural where that is due; more than one are medians."""
    return f"one {noun}" if number == 1 else f"median of {number} {noun}s"


def title_of(results: Sequence[Result]) -> str:
    """An experiment's title, and how many runs each of its figures is the median of."""
    runs = min(row.repetitions for row in rows_of(results))
    return f"{results[0]['title']} ({count(runs, 'run')} each)"


COMPARED_HEAD = (
    "stock, ops/s",
    "Ideal",
    "truncate",
    "defer",
    "truncate ÷ Ideal",
    "defer ÷ Ideal",
    "defer ÷ stock",
)
JOURNAL_HEAD = ("journal KiB/op: stock", "truncate", "defer")


def compared_cells(group: Group, cells: Cells) -> list[str]:
    """Speeds and ratios of one workload's variants. Raises FastsyncError when one is missing."""
    if missing := [variant for variant in COMPARED[:4] if variant not in cells]:
        raise FastsyncError(f"{', '.join(group)}: the result lacks variant {missing[0]}")
    stock, ideal, truncate, defer = (cells[variant] for variant in COMPARED[:4])
    return [
        *(f"{row.ops_per_s:,.0f}" for row in (stock, ideal, truncate, defer)),
        ratio(truncate, ideal),
        ratio(defer, ideal),
        ratio(defer, stock),
    ]


def compared_markdown(results: Sequence[Result]) -> str:
    """All workloads of an experiment on one kernel, a line for each on each device."""
    lines = []
    for group, cells in grouped(rows_of(results)).items():
        _, _, device, name = group
        journal = [f"{cells[v].kib_per_op[JOURNAL]:.2f}" for v in ("stock", *MODES) if v in cells]
        lines.append([device, name, *compared_cells(group, cells), *journal])
    return markdown(("device", "workload", *COMPARED_HEAD, *JOURNAL_HEAD), lines)


def sweep_markdown(rows: Sequence[Row]) -> str:
    """A sweep: KiB and operations a second by interval, a line for each device and mode."""
    series = sweeps(rows)
    intervals = [str(row.interval_ms) for row in next(iter(series.values()))]
    base = {(row.device, row.variant): row for row in rows if row.interval_ms is None}
    lines = []
    for (device, variant), line in series.items():
        ends = (base[device, "stock"], *line, base[device, "ideal"])
        lines.append(
            [
                device,
                variant,
                *(f"{row.ops_per_s:,.0f}; {row.total_kib:.2f}" for row in ends),
            ]
        )
    head = ["device", "mode", "stock", *(f"{ms} ms" for ms in intervals), "Ideal"]
    return markdown(head, lines)


# --- a neighbour -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A variant on a workload, and on the control that the workload is held against."""

    row: Row
    control: Row

    @property
    def share(self) -> float:
        """The rate as a share of the control's."""
        return self.row.ops_per_s / self.control.ops_per_s


def pairs(results: Sequence[Result]) -> dict[tuple[str, str], dict[str, Pair]]:
    """By device and workload, then by variant, what a requirement holds against a control."""
    rows = rows_of(results)
    found: dict[tuple[str, str], dict[str, Pair]] = {}
    controls = {
        workload: requirement.base_workload
        for required in required_of(result["experiment"] for result in results).values()
        for requirement in required
        for workload in requirement.workloads
        if requirement.base_workload
    }
    by_place = {(row.device, row.workload, row.variant): row for row in rows}
    for row in rows:
        control = by_place.get((row.device, controls.get(row.workload, ""), row.variant))
        if control is not None:
            found.setdefault((row.device, row.workload), {})[row.variant] = Pair(row, control)
    return found


def pairs_markdown(found: Mapping[tuple[str, str], Mapping[str, Pair]]) -> str:
    """Each variant's rate as a share of its rate beside the control, and stock's own rates."""
    variants = [v for v in COMPARED if all(v in cells for cells in found.values())]
    lines = []
    for (device, workload), cells in found.items():
        stock = cells["stock"]
        rounds = (stock.row.neighbour_per_s or 0, stock.control.neighbour_per_s or 0)
        lines.append(
            [
                device,
                workload,
                stock.control.workload,
                *(f"{value:,.0f}" for value in rounds),
                f"{stock.row.ops_per_s:,.0f}",
                f"{stock.control.ops_per_s:,.0f}",
                *(f"{cells[variant].share:.3f}" for variant in variants),
            ]
        )
    head = (
        "device",
        "with",
        "without",
        "rounds/s with",
        "without",
        "stock, ops/s with",
        "without",
        *(f"with ÷ without: {variants[0]}", *(LABELS.get(v, v) for v in variants[1:])),
    )
    return markdown(head, lines, texts=3)


def neighbour_lines(results: Sequence[Result]) -> list[str]:
    """The README's line on one kernel, if there is one: how far rates fall where they fall most."""
    found = pairs(results).values()
    if not found:
        return []
    worst = {v: min(cells[v].share for cells in found) for v in ("stock", *MODES)}
    shares = ", ".join(f"{variant} {share:.3f}" for variant, share in worst.items())
    return [
        f"Linux {kernel_of(results[0])}, beside a process that `stat()`s and writes another file "
        "all the time: the fsync rate of a file as a share of what it is beside one that only "
        f"writes, on the device where that is lowest: {shares}."
    ]


# --- the README and docs/results.md --------------------------------------------------------------


def of_experiment(results: Iterable[Result], name: str) -> list[Result]:
    """The results of one experiment."""
    return [result for result in results if result["experiment"] == name]


def by_series(results: Iterable[Result]) -> dict[str, list[Result]]:
    """The results by kernel series."""
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(series_of(result), []).append(result)
    return found


def headline(results: Sequence[Result], experiment: str) -> list[str]:
    """Title and table of the headline's rows of an experiment, kernel beside kernel."""
    names = HEADLINE[experiment]
    mine = [r for r in of_experiment(results, experiment) if series_of(r) in HEADLINE_SERIES]
    if not mine:
        return []
    rows = [row for row in rows_of(mine) if row.name in names]
    groups = sorted(
        grouped(rows).items(),
        key=lambda item: (device_place(item[0][2]), names.index(item[0][3])),
    )
    lines = [
        [kernel, device, name, *compared_cells((kernel, experiment, device, name), cells)]
        for (kernel, experiment, device, name), cells in groups
    ]
    head = ("kernel", "device", "workload", *COMPARED_HEAD)
    return [f"**{title_of(mine)}**", markdown(head, lines, texts=3)]


def reached(found: Sequence[Verdict]) -> str:
    """How many required figures are reached."""
    return f"{sum(verdict.passed for verdict in found)} of {len(found)} required figures"


def readme_text(results: Sequence[Result]) -> str:
    """The README's figures. Raises FastsyncError when a result lacks one of the four variants."""
    results = in_order(results)
    parts = [part for experiment in HEADLINE for part in headline(results, experiment)]
    series = by_series(results)
    for found in series.values():
        parts += neighbour_lines(of_experiment(found, "neighbour"))
    lines = [
        f"- {' '.join(environments(found))} {reached(verdicts(found))} are reached."
        for found in series.values()
    ]
    lines += [f"- Linux {name}: no figures yet." for name in HEADLINE_SERIES if name not in series]
    parts.append("\n".join(lines))
    parts.append(
        "All figures, and each required one that is missed: [docs/results.md](docs/results.md)."
    )
    return "\n\n".join(parts)


PAIRS_INTRO = """\
Each variant's rate *with* a neighbour that asks for the stamps of the file it writes, over its rate
*without*: beside one that asks for those of a file nobody writes."""

RESULTS_INTRO = """\
# Results

<!-- Written by `./fastsync report` from results/*-full-*.json. -->

*Ideal* is `fdatasync()` on stock ext4. Both modes run at 100 ms.
[experiments.md](experiments.md) says how a figure comes about and what is required of it."""


def results_text(results: Sequence[Result]) -> str:
    """docs/results.md. Raises FastsyncError when a result lacks one of the four variants."""
    parts = [RESULTS_INTRO]
    for series, found in by_series(in_order(results)).items():
        judged = verdicts(found)
        parts += [f"## Linux {series}", *environments(found), describe_builds(found)]
        for experiment in dict.fromkeys(result["experiment"] for result in found):
            parts += experiment_parts(of_experiment(found, experiment))
        parts.append(f"### Linux {series}: {reached(judged)} are reached")
        if short := [verdict for verdict in judged if not verdict.passed]:
            parts.append("\n".join(f"- {verdict}" for verdict in short))
    return "\n\n".join(parts) + "\n"


def experiment_parts(results: Sequence[Result]) -> list[str]:
    """Title and tables of one experiment on one kernel."""
    kernel, plot_name = kernel_of(results[0]), plot_file(results[0])
    parts = [f"### Linux {kernel}: {title_of(results)}"]
    if is_sweep(results[0]):
        parts.append("Operations a second; KiB written for each.")
        parts.append(sweep_markdown(rows_of(results)))
    else:
        parts.append(compared_markdown(results))
    if found := pairs(results):
        parts += [PAIRS_INTRO, pairs_markdown(found)]
    return [*parts, f"Drawn: [{plot_name}](../results/{plot_name})"]


def describe_builds(results: Iterable[Result]) -> str:
    """Which build of the modules the results are of; more than one are told apart."""
    builds: dict[str, list[str]] = {}
    for result in results:
        hashes = json.dumps(result["environment"]["modules_sha256"], sort_keys=True)
        build = hashlib.sha256(hashes.encode()).hexdigest()[:12]
        builds.setdefault(build, []).append(f"{result['experiment']} on {result['device']}")
    if len(builds) == 1:
        return f"All with one build of the modules ({next(iter(builds))})."
    return f"With {len(builds)} builds of the modules: " + "; ".join(
        f"{build}: {', '.join(names)}" for build, names in builds.items()
    )


# --- plots -------------------------------------------------------------------------------------


def bars_speed(axes: "Axes", names: Sequence[str], groups: Sequence[Cells]) -> None:
    """Operations a second over stock, a group of bars for each workload."""
    variants = [v for v in COMPARED if all(v in cells for cells in groups)]
    width = 0.8 / len(variants)
    for index, variant in enumerate(variants):
        rows = [cells[variant] for cells in groups]
        places = [place - 0.4 + width * (index + 0.5) for place in range(len(groups))]
        heights = [
            row.ops_per_s / cells["stock"].ops_per_s
            for row, cells in zip(rows, groups, strict=True)
        ]
        axes.bar(places, heights, width * 0.92, color=COLORS[variant], label=label(rows[0]))
        for place, height, row in zip(places, heights, rows, strict=True):
            axes.annotate(
                f"{row.ops_per_s:,.0f}",
                (place, height),
                ha="center",
                va="bottom",
                fontsize=6,
                rotation=90,
                xytext=(0, 2),
                textcoords="offset points",
            )
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.set_ylabel("throughput ÷ stock\n(on the bars: operations/s)")
    axes.margins(x=0.01, y=0.22)
    axes.legend(fontsize=8, ncols=len(variants), loc="upper left", frameon=False)


def bars_bytes(axes: "Axes", names: Sequence[str], groups: Sequence[Cells]) -> None:
    """KiB written for each operation by class, stacked, in the order of bars_speed()."""
    variants = [v for v in COMPARED if all(v in cells for cells in groups)]
    width = 0.8 / len(variants)
    for index, variant in enumerate(variants):
        places = [place - 0.4 + width * (index + 0.5) for place in range(len(groups))]
        bottom = [0.0] * len(groups)
        for name in CLASSES:
            heights = [cells[variant].kib_per_op[name] for cells in groups]
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
            axes.annotate(
                LABELS.get(variant, variant),
                (place, top),
                ha="center",
                va="bottom",
                fontsize=6,
                rotation=90,
                xytext=(0, 2),
                textcoords="offset points",
            )
    axes.margins(x=0.01)
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.set_ylabel("KiB written per operation")
    axes.set_ylim(0, 1.3 * max(row.total_kib for cells in groups for row in cells.values()))
    axes.legend(fontsize=8, ncols=len(CLASSES), loc="upper left", frameon=False)


def lines_sweep(speed: "Axes", volume: "Axes", rows: Sequence[Row]) -> None:
    """Throughput and volume by interval, a line for each mode; stock and Ideal as levels."""
    for (_, variant), series in sweeps(rows).items():
        style: dict[str, Any] = {
            "color": COLORS[variant],
            "marker": "o",
            "markersize": 3,
            "label": variant,
        }
        dashes = "-" if variant == "truncate" else "--"
        intervals = [row.interval_ms or 0 for row in series]
        speed.plot(intervals, [row.ops_per_s for row in series], linestyle=dashes, **style)
        volume.plot(intervals, [row.total_kib for row in series], linestyle=dashes, **style)
    for row in rows:
        if row.interval_ms is None:
            name = LABELS.get(row.variant, row.variant)
            for axes, value in ((speed, row.ops_per_s), (volume, row.total_kib)):
                axes.axhline(value, color=COLORS[row.variant], linestyle=":", label=name)
    for axes, text in ((speed, "operations/s"), (volume, "KiB written per operation")):
        axes.set_xscale("log")
        ticks = sorted({row.interval_ms for row in rows if row.interval_ms})
        axes.set_xticks(ticks, [str(tick) for tick in ticks], minor=False)
        axes.set_xticks([], minor=True)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("mtime interval, ms")
        axes.set_ylabel(text)
        axes.legend(fontsize=7, frameon=False)


def plot(paths: Sequence[Path], png: Path) -> None:
    """Draw the results in these files. Raises FastsyncError on a bad file."""
    draw([load_result(path) for path in paths], png)


def draw(results: Sequence[Result], png: Path) -> None:
    """Draw throughput and bytes by class, and a sweep's two lines, into one PNG.

    A row of the picture is one experiment on one device. Raises FastsyncError without results.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    if not results:
        raise FastsyncError("there are no results to plot; run an experiment first")
    figure, axes = pyplot.subplots(
        len(results), 2, figsize=(17, 4.6 * len(results)), squeeze=False, layout="constrained"
    )
    for line, result in zip(axes, results, strict=True):
        rows = rows_of([result])
        if is_sweep(result):
            lines_sweep(line[0], line[1], rows)
        else:
            groups = grouped(rows)
            names = [name.replace(" ", "\n") for *_, name in groups]
            bars_speed(line[0], names, list(groups.values()))
            bars_bytes(line[1], names, list(groups.values()))
        for one in line:
            one.set_title(f"{result['title']} — {result['device']}", fontsize=10)
            one.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("\n".join(environments(results)), fontsize=7, color="#555555")
    png.parent.mkdir(parents=True, exist_ok=True)
    half = png.with_name(f"{png.stem}.new.png")
    figure.savefig(half, dpi=110)
    half.replace(png)
    pyplot.close(figure)


def plot_file(result: Result) -> str:
    """The name of the plot of a result's experiment on its kernel."""
    return f"{result['experiment']}-{series_of(result)}.png"


def write_report() -> None:
    """Draw a plot for each full experiment and kernel; write README's figures and docs/results.md.

    Raises FastsyncError when there is no full result.
    """
    paths = sorted(results_dir().glob("*-full-*.json"))
    paths = [path for path in paths if not path.name.endswith(".partial.json")]
    if not paths:
        raise FastsyncError("results/ holds no full result; try `./fastsync run --full overwrite`")
    loaded = (load_result(path) for path in paths)
    results = in_order(r for r in loaded if r["experiment"] in experiment_names())
    readme = repo_root() / "README.md"
    text = replace_block(readme.read_text(), FIGURES, readme_text(results))
    for name in dict.fromkeys(plot_file(result) for result in results):
        draw([result for result in results if plot_file(result) == name], results_dir() / name)
    write_whole(repo_root() / "docs" / "results.md", results_text(results))
    write_whole(readme, text)
