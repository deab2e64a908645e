"""Result files (JSON) as a table, as plots, as verdicts and as the README's figures.

Every figure is the median of a cell's repetitions. "Ideal" is fdatasync() on stock ext4.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from fastsync_lab.errors import FastsyncError
from fastsync_lab.measure import CLASSES, DATA, JOURNAL, METADATA
from fastsync_lab.paths import repo_root, results_dir

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console

BEGIN_MARK = "<!-- figures:begin -->"
END_MARK = "<!-- figures:end -->"
MODES = ("truncate", "defer")
DEFAULT_INTERVAL_MS = 100
COMPARED = ("stock", "ideal", *MODES, "off")
LABELS = {"ideal": "Ideal", "off": "option off"}
COLORS = {
    "stock": "#8a8f98",
    "ideal": "#3a3f47",
    "truncate": "#1f77b4",
    "defer": "#2ca089",
    "off": "#c7cad0",
}
CLASS_COLORS = {DATA: "#4c78a8", JOURNAL: "#e45756", METADATA: "#f2b134"}
CLASS_LABELS = {DATA: "file data", JOURNAL: "journal", METADATA: "other metadata"}

# What the figures must show.
NEED_IDEAL = 0.985
NEED_STOCK = 0.995
NEED_JOURNAL_SAVED = 0.97
NEED_SQLITE_IDEAL = 0.97
MONOTONIC_SLACK = 0.002  # two equal runs differ by less than this
JOURNALS_MOSTLY_KIB = 6.0  # half a 12 KiB commit a call: stock journals on most calls


@dataclass(frozen=True)
class Row:
    """One variant on one workload's phase on one device; sizes in KiB, times in ns."""

    experiment: str
    device: str
    workload: str
    phase: str
    variant: str
    interval_ms: int | None
    ops_per_s: float
    p50_ns: float
    p99_ns: float
    kib_per_op: Mapping[str, float]
    flushes_per_op: float
    requests_per_op: float
    mean_request_kib: float
    sequential_ratio: float
    repetitions: int

    @property
    def name(self) -> str:
        """Workload and, where there are several, phase."""
        return self.workload if self.phase == "overwrite" else f"{self.workload} {self.phase}"

    @property
    def total_kib(self) -> float:
        """KiB written for each operation, all classes."""
        return sum(self.kib_per_op.values())


Cells = dict[str, Row]  # by variant
Group = tuple[str, str, str]  # experiment, device, name


def load_result(path: Path) -> dict[str, Any]:
    """A whole result. Raises FastsyncError when it cannot be read or is not whole."""
    try:
        result: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise FastsyncError(f"cannot read the results in {path}: {error}") from error
    if not result.get("complete"):
        raise FastsyncError(f"{path} is of an interrupted run; run it again to complete it")
    return result


def make_row(result: Mapping[str, Any], cell: Mapping[str, Any], phase: str) -> Row:
    """A cell's medians."""
    runs = [repetition["phases"][phase] for repetition in cell["repetitions"]]

    def mid(pick: Any) -> float:
        return float(median(pick(run) for run in runs))

    return Row(
        experiment=result["experiment"],
        device=result["device"],
        workload=cell["workload"],
        phase=phase,
        variant=cell["variant"],
        interval_ms=cell["interval_ms"],
        ops_per_s=mid(lambda run: run["ops_per_s"]),
        p50_ns=mid(lambda run: run["p50_ns"]),
        p99_ns=mid(lambda run: run["p99_ns"]),
        kib_per_op={
            name: mid(lambda run, name=name: run["blocks"]["bytes"][name] / run["operations"])
            / 1024
            for name in CLASSES
        },
        flushes_per_op=mid(lambda run: run["blocks"]["flushes"] / run["operations"]),
        requests_per_op=mid(
            lambda run: sum(run["blocks"]["requests"].values()) / run["operations"]
        ),
        mean_request_kib=mid(lambda run: run["blocks"]["mean_request_kib"]),
        sequential_ratio=mid(lambda run: run["blocks"]["sequential_ratio"]),
        repetitions=len(runs),
    )


def rows_of(results: Iterable[Mapping[str, Any]]) -> list[Row]:
    """All rows of these results, in their order."""
    return [
        make_row(result, cell, phase)
        for result in results
        for cell in result["cells"]
        for phase in cell["repetitions"][0]["phases"]
    ]


def is_sweep(result: Mapping[str, Any]) -> bool:
    """Whether a result has a variant at more than one interval."""
    pairs = {(cell["variant"], cell["interval_ms"]) for cell in result["cells"]}
    return len(pairs) > len({variant for variant, _ in pairs})


def grouped(rows: Iterable[Row]) -> dict[Group, Cells]:
    """Rows side by side: by experiment, device and name, then by variant."""
    groups: dict[Group, Cells] = {}
    for row in rows:
        groups.setdefault((row.experiment, row.device, row.name), {})[row.variant] = row
    return groups


def split_results(
    paths: Iterable[Path],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The results that compare variants, and those that sweep the interval."""
    results = [load_result(path) for path in paths]
    return [r for r in results if not is_sweep(r)], [r for r in results if is_sweep(r)]


# --- verdicts ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """A required figure: `figure` must be at least `need`."""

    what: str
    device: str
    name: str
    figure: float
    need: float

    @property
    def passed(self) -> bool:
        """Whether it is reached."""
        return self.figure >= self.need

    def __str__(self) -> str:
        state = "pass " if self.passed else "SHORT"
        return (
            f"{state} {self.figure:.3f} (at least {self.need:.3f}) "
            f"{self.device}, {self.name}: {self.what}"
        )


def compare(group: Group, cells: Cells) -> list[Verdict]:
    """The verdicts on one workload's variants."""
    experiment, device, name = group
    verdicts: list[Verdict] = []

    def add(what: str, figure: float, need: float) -> None:
        verdicts.append(Verdict(what, device, name, figure, need))

    stock, ideal = cells.get("stock"), cells.get("ideal")
    for variant in (*MODES, "off"):
        row = cells.get(variant)
        if row is None:
            continue
        if stock is not None:
            add(f"{variant}, speed over stock", row.ops_per_s / stock.ops_per_s, NEED_STOCK)
        if variant not in MODES:
            continue
        if ideal is not None and experiment == "overwrite":
            add(f"{variant}, speed over Ideal", row.ops_per_s / ideal.ops_per_s, NEED_IDEAL)
        if ideal is not None and name == "PERSIST update":
            figure = row.ops_per_s / ideal.ops_per_s
            add(f"{variant}, speed over SQLite with fdatasync", figure, NEED_SQLITE_IDEAL)
        if stock is not None and experiment == "overwrite":
            base = stock.kib_per_op[JOURNAL]
            if base >= JOURNALS_MOSTLY_KIB:
                saved = 1 - row.kib_per_op[JOURNAL] / base
                add(f"{variant}, share of stock's journal bytes saved", saved, NEED_JOURNAL_SAVED)
    return verdicts


def worst_step(values: Sequence[float]) -> float:
    """The smallest ratio of a value to the one before it: 1 or more when they never fall."""
    return min((b / a for a, b in pairwise(values) if a), default=1.0)


def sweeps(rows: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    """A sweep's rows by device and mode, in order of the interval."""
    series: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.interval_ms is not None:
            series.setdefault((row.device, row.variant), []).append(row)
    return {key: sorted(row, key=lambda r: r.interval_ms or 0) for key, row in series.items()}


def sweep_verdicts(rows: Iterable[Row]) -> list[Verdict]:
    """Throughput must never fall and volume never rise as the interval grows."""
    verdicts = []
    for (device, variant), series in sweeps(rows).items():
        speed = worst_step([row.ops_per_s for row in series])
        volume = worst_step([1 / row.total_kib for row in series if row.total_kib])
        name = f"interval {series[0].interval_ms} to {series[-1].interval_ms} ms"
        need = 1 - MONOTONIC_SLACK
        verdicts.append(Verdict(f"{variant}, worst step of speed", device, name, speed, need))
        verdicts.append(
            Verdict(f"{variant}, worst step of volume (inverse)", device, name, volume, need)
        )
    return verdicts


def verdicts(results: Iterable[Mapping[str, Any]]) -> list[Verdict]:
    """Every required figure that these results can show."""
    found: list[Verdict] = []
    for result in results:
        rows = rows_of([result])
        if is_sweep(result):
            found += sweep_verdicts(rows)
        else:
            for group, cells in grouped(rows).items():
                found += compare(group, cells)
    return found


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
TABLE_WIDTH = 116


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
    last = ("", "")
    for (experiment, device, name), rows in blocks(results):
        if (experiment, device) != last:
            table.add_row()
            table.add_row(f"{experiment}, {device}", style="bold underline")
            last = (experiment, device)
        by_variant = {row.variant: row for row in rows}
        stock, ideal = by_variant.get("stock"), by_variant.get("ideal")
        for index, row in enumerate(rows):
            style = "bold" if row.variant in MODES else None
            head = "" if index else name
            table.add_row(head, *table_cells(row, stock, ideal), style=style)
    out.print(table)
    for environment in {describe_environment(result) for result in results}:
        out.print(environment, style="dim", highlight=False)
    print_verdicts(out, verdicts(results))


def blocks(results: Iterable[Mapping[str, Any]]) -> list[tuple[Group, list[Row]]]:
    """The rows that belong side by side, a sweep's intervals included."""
    found: dict[Group, list[Row]] = {}
    for row in rows_of(results):
        found.setdefault((row.experiment, row.device, row.name), []).append(row)
    return list(found.items())


def print_verdicts(out: "Console", found: Sequence[Verdict]) -> None:
    """How many required figures are reached, and each one that is not."""
    short = [verdict for verdict in found if not verdict.passed]
    out.print(
        f"Required figures: {len(found) - len(short)} of {len(found)} reached.", highlight=False
    )
    for verdict in short:
        out.print(str(verdict), style="yellow", highlight=False)


def describe_environment(result: Mapping[str, Any]) -> str:
    """Where figures come from, in a line."""
    environment = result["environment"]
    return (
        f"Linux {environment['kernel_release']} ({environment['debian_version']}), virtual time, "
        f"{environment['models_cpu']}; {environment['fio']}, SQLite {environment['sqlite']}."
    )


# --- the README --------------------------------------------------------------------------------


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; the first two columns are text, the others are numbers."""
    rule = ["---", "---", *["---:"] * (len(head) - 2)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *lines])


README_PHASES = ("overwrite", "update")
README_HEAD = (
    "device",
    "workload",
    "stock, ops/s",
    "Ideal",
    "truncate",
    "defer",
    "truncate ÷ Ideal",
    "defer ÷ Ideal",
    "defer ÷ stock",
    "journal KiB/op: stock",
    "truncate",
    "defer",
)


def readme_line(device: str, name: str, cells: Cells) -> list[str]:
    """One line of the README's table."""
    stock, ideal, truncate, defer = (cells[v] for v in COMPARED[:4])
    return [
        device,
        name,
        *(f"{row.ops_per_s:,.0f}" for row in (stock, ideal, truncate, defer)),
        ratio(truncate, ideal),
        ratio(defer, ideal),
        ratio(defer, stock),
        *(f"{row.kib_per_op[JOURNAL]:.2f}" for row in (stock, truncate, defer)),
    ]


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


def readme_text(compared: Sequence[Mapping[str, Any]], swept: Sequence[Mapping[str, Any]]) -> str:
    """The README's figures: of SQLite's phases only the updates, the others are much the same.

    Raises FastsyncError when a result lacks one of the four variants.
    """
    parts: list[str] = []
    for experiment in dict.fromkeys(result["experiment"] for result in compared):
        mine = [result for result in compared if result["experiment"] == experiment]
        lines = []
        rows = [row for row in rows_of(mine) if row.phase in README_PHASES]
        for (_, device, name), cells in grouped(rows).items():
            if missing := [v for v in COMPARED[:4] if v not in cells]:
                raise FastsyncError(f"{experiment} on {device} lacks variant {missing[0]}")
            lines.append(readme_line(device, name, cells))
        repetitions = min(row.repetitions for row in rows)
        title = f"**{mine[0]['title']}** ({count(repetitions, 'run')} each)"
        parts += [title, markdown(README_HEAD, lines)]
    if swept:
        title = f"**{swept[0]['title']}**: operations a second; KiB written for each"
        parts += [title, sweep_markdown(rows_of(swept))]
    everything = [*compared, *swept]
    found = verdicts(everything)
    short = [verdict for verdict in found if not verdict.passed]
    parts.append(
        " ".join(sorted({describe_environment(result) for result in everything}))
        + f" {len(found) - len(short)} of {len(found)} required figures are reached"
        + (":" if short else ".")
    )
    if short:
        parts.append("\n".join(f"- {verdict}" for verdict in short))
    return "\n\n".join(parts)


def count(number: int, noun: str) -> str:
    """A number and its noun, in the plural where that is due; more than one are medians."""
    return f"one {noun}" if number == 1 else f"median of {number} {noun}s"


def replace_figures(text: str, figures: str) -> str:
    """`text` with what stands between the marks replaced.

    Raises FastsyncError when it does not hold both marks, once each and in order.
    """
    if text.count(BEGIN_MARK) != 1 or text.count(END_MARK) != 1:
        raise FastsyncError(f"the README must hold {BEGIN_MARK} and {END_MARK} once each")
    head, rest = text.split(BEGIN_MARK)
    if END_MARK not in rest:
        raise FastsyncError(f"in the README {END_MARK} stands before {BEGIN_MARK}")
    return f"{head}{BEGIN_MARK}\n\n{figures}\n\n{END_MARK}{rest.split(END_MARK)[1]}"


def write_readme(paths: Sequence[Path], readme: Path) -> None:
    """Put the figures of these results into the README. Raises FastsyncError on a bad file."""
    text = replace_figures(readme.read_text(), readme_text(*split_results(paths)))
    readme.write_text(text)


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
    """Draw throughput and bytes by class, and a sweep's two lines, into one PNG.

    A row of the picture is one experiment on one device. Raises FastsyncError on a bad file.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    results = [load_result(path) for path in paths]
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
            names = [name.replace(" ", "\n") for _, _, name in groups]
            bars_speed(line[0], names, list(groups.values()))
            bars_bytes(line[1], names, list(groups.values()))
        for one in line:
            one.set_title(f"{result['title']} — {result['device']}", fontsize=10)
            one.spines[["top", "right"]].set_visible(False)
    figure.supxlabel(describe_environment(results[0]), fontsize=7, color="#555555")
    png.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(png, dpi=110)
    pyplot.close(figure)


def write_report() -> None:
    """Draw a plot for each full experiment under results/ and fill in the README's figures.

    Raises FastsyncError when there is no full result.
    """
    paths = sorted(results_dir().glob("*-full-*.json"))
    paths = [path for path in paths if not path.name.endswith(".partial.json")]
    if not paths:
        raise FastsyncError("results/ holds no full result; try `./fastsync run --full overwrite`")
    names = dict.fromkeys(path.name.split("-full-")[0] for path in paths)
    for name in names:
        mine = [path for path in paths if path.name.startswith(f"{name}-full-")]
        plot(mine, results_dir() / f"{name}.png")
    write_readme(paths, repo_root() / "README.md")
