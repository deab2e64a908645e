"""The documents that `./fastsync report` writes: docs/results.md, a page of each study, blocks.

A reader first sees a study's figures in docs/results.md, or in a block of the document that the
study names as its front. docs/results/NAME.md has all of them.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.kernels import version_key
from fastsync_lab.host.paths import repo_root, results_dir, write_whole
from fastsync_lab.study.contract import Study
from fastsync_lab.study.documents import write_block
from fastsync_lab.study.figures import DEVICES, Figure, figures_of
from fastsync_lab.study.gains import gain_parts, picture
from fastsync_lab.study.grid import Grid, Part, in_markdown, markdown
from fastsync_lab.study.plot import write_png
from fastsync_lab.study.rows import Line, is_sweep, machine_name, machines_of, place_in
from fastsync_lab.study.show import (
    Studies,
    beside_grid,
    environments,
    older_modules,
    pairs_grid,
    pairs_of,
    reached,
    sweep_grid,
    table_grid,
    unstable,
    verdicts,
)
from fastsync_lab.study.store import Result, full_results, load_result
from fastsync_lab.study.targets import targets_grid

README, README_BLOCK = "README.md", "figures"
EXPERIMENTS, TARGETS_BLOCK = "experiments.md", "targets"
README_PLOT = "gains.png"
SERIES = ("6.12", "7.2")  # the kernels that documents have
EMBEDDED = ("speed", "share", "sweep")  # the figures that documents show; the report has all


RESULTS = "results"  # docs/results.md, and the folder with the pages
WRITTEN = "<!-- Written by `./fastsync report` from results/*-full-*.json. -->"
INTRO = f"""\
# Results

{WRITTEN}

*Ideal* is `fdatasync()` on stock ext4. *truncate* and *defer* are the modes of `mtime_update`, at
100 ms; *eager* is `eager_sync`. SQLite is compiled to call `fsync()` (for Ideal: `fdatasync()`). A
figure of several runs, at different phases of the timer's tick, is the median ± the distance of
the farthest run. A figure without ± comes from a single run, or is a ratio to one that does.
Figures have at most four digits. [experiments.md](experiments.md) explains how they are measured,
and lists the targets. `./fastsync report` also writes build/report.html: the same with all plots,
tables that can be sorted, and how each row is repeated."""
ALL_FIGURES = """\
Each study has a page with all its tables, and with the targets that are missed. Here is how many
are met."""
PAIRS_INTRO = """\
Each file system's fsync rate beside a neighbour that calls `fstat()` on the file it writes, divided
by its rate beside one that calls `fstat()` on a file nobody writes."""


# --- parts -------------------------------------------------------------------------------------


def in_order(results: Iterable[Result], studies: Studies) -> list[Result]:
    """Results by kernel, the oldest first, then by processor, by study and by device."""
    names = list(studies)

    def key(result: Result) -> Any:
        places = place_in(result.study, names), place_in(result.device, DEVICES)
        return version_key(result.series), result.processor, *places

    return sorted(results, key=key)


def lines_in(results: Iterable[Result]) -> list[Line]:
    """All figures of results, in their order."""
    return [line for result in results for line in result.lines]


def count(lines: Sequence[Line]) -> str:
    """How many runs figures are of."""
    runs = sorted({line.runs for line in lines})
    if runs == [1]:
        return "one run each"
    if len(runs) == 1:
        return f"median of {runs[0]} runs"
    return f"medians of {runs[0]} to {runs[-1]} runs"


def by_study(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Results by study."""
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(result.study, []).append(result)
    return found


def by_machine(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Results by kernel series and processor: what no table has two of, if it does not say so."""
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(machine_name(result.series, result.processor), []).append(result)
    return found


def describe_builds(results: Iterable[Result]) -> list[Part]:
    """Which build of the modules a study's results are of; several are told apart in a table."""
    builds: dict[str, list[str]] = {}
    for result in results:
        files = result.environment["sha256"]
        modules = {name: files[name] for name in files if name.endswith(".ko")}
        build = hashlib.sha256(json.dumps(modules, sort_keys=True).encode()).hexdigest()[:12]
        builds.setdefault(build, []).append(result.device)
    if len(builds) == 1:
        return [f"All with one build of the modules ({next(iter(builds))})."]
    lines = [[build, ", ".join(devices)] for build, devices in builds.items()]
    head = ["build of the modules", "devices"]
    return [f"With {len(builds)} builds of the modules:", Grid(head, lines, texts=2)]


def gaps(study: Study[Any], series: str, results: Sequence[Result]) -> list[str]:
    """What a full run has and these results do not: devices, file systems or schedulers."""
    lines = lines_in(results)
    axes, elsewhere = study.full, study.not_on(series)
    there = {
        "device": {line.place.device for line in lines},
        "file system": {line.place.system for line in lines},
        "scheduler": {line.place.scheduler for line in lines},
        "workload": {line.place.workload for line in lines},
    }
    wanted = {
        "device": axes.devices,
        "file system": tuple(
            dict.fromkeys(one.name for one in axes.systems if one.name not in elsewhere)
        ),
        "scheduler": tuple(one.name for one in axes.schedulers),
        "workload": tuple(one.name for one in axes.workloads),
    }
    missing = {
        axis: [name for name in names if name not in there[axis]] for axis, names in wanted.items()
    }
    return [
        f"Linux {series}, not measured yet: {axis} {', '.join(names)}."
        for axis, names in missing.items()
        if names
    ]


# --- what comes first ----------------------------------------------------------------------------


def headline(study: Study[Any], results: Sequence[Result]) -> list[Part]:
    """Title and table of the headline's lines of a study, kernel beside kernel.

    Where a processor is not the one that guests have now, it stands behind the kernel.
    """
    mine = [one for one in results if one.series in SERIES]
    lines = [x for x in lines_in(mine) if (x.place.workload, x.place.subject) in study.headline]
    if not lines:
        return []
    names = [f"{workload} {subject}".strip() for workload, subject in study.headline]
    found: list[tuple[Any, Sequence[str]]] = []
    head: Sequence[str] = ()
    for machine in dict.fromkeys(line.place.machine for line in lines):
        grid = beside_grid(study, [line for line in lines if line.place.machine == machine])
        assert grid is not None
        also = sum(len(names) for _, names in study.beside.also) if study.beside else 0
        head = ["kernel", *grid.head[: len(grid.head) - also]]
        for line in grid.lines:
            kernel, _, processor = machine.partition(", ")
            places = place_in(line[0], DEVICES), place_in(line[1], names)
            shown = [machine, *line[: len(line) - also]]
            found.append(((*places, version_key(kernel), processor), shown))
    table = [line for _, line in sorted(found, key=lambda one: one[0])]
    return [f"**{mine[0].title} ({count(lines)})**", Grid(head, table, texts=3)]


def first_parts(results: Sequence[Result], studies: Studies) -> list[Part]:
    """What a reader sees first. Raises FastsyncError when a result lacks one that is compared."""
    ordered = in_order(results, studies)
    parts: list[Part] = []
    for name, study in studies.items():
        parts += headline(study, [result for result in ordered if result.study == name])
    machines = by_machine(ordered)
    for found in machines.values():
        for name, mine in by_study(found).items():
            parts += studies[name].says_headline(lines_in(mine))
    lines = [
        f"- {' '.join(environments(found))} "
        f"{reached(verdicts(studies, lines_in(found)))} are met."
        f"{''.join(f' {one}' for one in older_modules(found))}{not_run(found, studies)}"
        for found in machines.values()
    ]
    there = {result.series for result in ordered}
    if any(study.headline for study in studies.values()):
        lines += [f"- Linux {name}: no figures yet." for name in SERIES if name not in there]
    return [*parts, "\n".join(lines)]


def not_run(results: Sequence[Result], studies: Studies) -> str:
    """Which studies nobody has run there; of another processor than the guests' none is missed."""
    there = by_study(results)
    names = [name for name in studies if name not in there]
    if not names or results[0].processor:
        return ""
    return f" Not measured yet: {', '.join(names)}."


# --- docs/ -------------------------------------------------------------------------------------


def results_parts(results: Sequence[Result], studies: Studies) -> list[Part]:
    """docs/results.md. Raises FastsyncError when a result lacks one that is compared."""
    here = {name: study for name, study in studies.items() if not study.front}
    first = first_parts([one for one in results if one.study in here], here)
    return [INTRO, "## In short", *first, "## All figures", ALL_FIGURES, index(results, studies)]


def index(results: Iterable[Result], studies: Studies) -> Grid:
    """The studies, where their pages are, and how many targets are met on each machine."""
    machines = by_machine(in_order(results, studies))
    lines = []
    for name, study in studies.items():
        met = []
        for found in machines.values():
            mine = lines_in(result for result in found if result.study == name)
            judged = verdicts({name: study}, mine)
            met.append(reached(judged) if judged else "no targets" if mine else "-")
        measured = set(met) != {"-"}
        lines.append([f"[{name}]({RESULTS}/{name}.md)" if measured else name, study.says, *met])
    head = ["study", "what it measures", *(f"Linux {machine}" for machine in machines)]
    return Grid(head, lines, texts=len(head))


def page_parts(study: Study[Any], results: Sequence[Result]) -> list[Part]:
    """The page of a study, of its results. Raises FastsyncError when one lacks what is compared."""
    front = f"{study.front or RESULTS}.md"
    parts: list[Part] = [
        f"# Results of the study {study.name}",
        WRITTEN,
        f"{results[0].title}. [{front}](../{front}) has the short of it, and says how to read it.",
    ]
    studies = {study.name: study}
    for machine, found in by_machine(in_order(results, studies)).items():
        lines = lines_in(found)
        judged = verdicts(studies, lines)
        parts += [f"## Linux {machine}", *environments(found), *describe_builds(found)]
        parts += older_modules(found)
        if absent := gaps(study, found[0].series, found):
            parts.append("\n".join(f"- {one}" for one in absent))
        parts.append(f"### Linux {machines_of(lines)} ({count(lines)})")
        parts += [*embedded(study, lines), *study_parts(study, found)]
        parts.append(f"### Linux {machine}: {reached(judged)} are met")
        if short := [verdict for verdict in judged if not verdict.passed]:
            parts.append("\n".join(f"- {verdict}" for verdict in short))
    return parts


def embedded(study: Study[Any], lines: Sequence[Line]) -> list[Part]:
    """The pictures of a study on one kernel, in a document of docs/."""
    return [
        f"![{figure.alt}](../../results/{plot_path(figure)})"
        for figure in figures_of(study, lines)
        if figure.kind in EMBEDDED
    ]


def plot_path(figure: Figure) -> str:
    """Where a figure's PNG lies in results/."""
    return f"plots/{figure.stem}.png"


def study_parts(study: Study[Any], results: Sequence[Result]) -> list[Part]:
    """The tables of one study on one kernel."""
    lines = lines_in(results)
    parts: list[Part] = []
    if is_sweep(lines):
        parts += ["Operations a second; KiB written for each.", sweep_grid(lines)]
    elif grid := beside_grid(study, lines):
        parts.append(grid)
        parts += peers(study, lines)
    else:
        grids = [table_grid(study, table, lines) for table in study.tables]
        parts += [grid for grid in grids if grid]
    if found := pairs_of(study, lines):
        parts += [PAIRS_INTRO, pairs_grid(found)]
    parts += study.remarks(lines)
    if shaky := unstable(lines):
        parts.append("\n".join(f"- {one}" for one in shaky))
    return parts


def peers(study: Study[Any], lines: Sequence[Line]) -> list[Part]:
    """The table of what does not stand beside the others, if there is any."""
    beside = study.beside.names if study.beside else ()
    others = [line for line in lines if line.place.system not in (*beside, "off")]
    if not others:
        return []
    shown = [line for line in lines if line in others or line.place.system in ("stock", "defer")]
    grids = [table_grid(study, table, shown) for table in study.tables]
    return ["Beside other file systems and options:", *(x for x in grids if x)]


# --- all of it -----------------------------------------------------------------------------------


def load_full(studies: Studies) -> list[Result]:
    """All full results. Raises FastsyncError when there is none, or one of another study."""
    loaded = [load_result(path) for path in full_results()]
    if not loaded:
        raise FastsyncError("results/ holds no full result; try `./fastsync run --full overwrite`")
    if unknown := sorted({result.study for result in loaded} - {*studies}):
        raise FastsyncError(f"results/ has results of no study of this tree: {', '.join(unknown)}")
    return loaded


def write_pages(results: Sequence[Result], studies: Studies) -> None:
    """Write the README's figures, the pages of docs/, the targets and the plots that these show.

    Raises FastsyncError when a document lacks its marks, or a result what is compared; the pages
    are as they were then.
    """
    docs = repo_root() / "docs"
    pages = {docs / f"{RESULTS}.md": in_markdown(results_parts(results, studies)) + "\n"}
    gains = gain_parts(results, studies)
    blocks = [(docs / EXPERIMENTS, TARGETS_BLOCK, markdown(targets_grid(studies)))]
    plots: dict[str, Figure] = {}
    for name, mine in by_study(results).items():
        study = studies[name]
        pages[docs / RESULTS / f"{name}.md"] = in_markdown(page_parts(study, mine)) + "\n"
        if study.front:
            first = in_markdown(first_parts(mine, {name: study}))
            blocks.append((docs / f"{study.front}.md", name, first))
        for found in by_machine(mine).values():
            for figure in figures_of(study, lines_in(found)):
                if figure.kind in EMBEDDED:
                    plots[plot_path(figure)] = figure
    if drawn := picture(results):
        plots[README_PLOT] = drawn
        gains.insert(0, f"![{drawn.alt}](results/{README_PLOT})")
    blocks.append((repo_root() / README, README_BLOCK, in_markdown(gains)))
    for path, text in pages.items():
        write_whole(path, text)
    for document, name, block in blocks:
        write_block(document, name, block)
    for name, figure in plots.items():
        write_png(figure, results_dir() / name)
    remove_others(docs / RESULTS, {path.name for path in pages})
    remove_others(results_dir() / "plots", {Path(path).name for path in plots})


def remove_others(folder: Path, kept: Iterable[str]) -> None:
    """Remove what was written for what is not shown any more."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.suffix in (".md", ".png") and path.name not in kept:
            path.unlink()
