"""What `./fastsync report` writes: plots, the README's figures, docs/results.md and its like."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fastsync_lab.documents import replace_block
from fastsync_lab.errors import FastsyncError
from fastsync_lab.kernels import version_key
from fastsync_lab.paths import repo_root, results_dir, write_whole
from fastsync_lab.study.contract import Study
from fastsync_lab.study.plot import can_be_drawn, draw
from fastsync_lab.study.rows import Line, is_sweep, place_in
from fastsync_lab.study.show import (
    Grid,
    Studies,
    beside_grid,
    environments,
    markdown,
    pairs_grid,
    pairs_of,
    reached,
    sweep_grid,
    table_grid,
    unstable,
    verdicts,
)
from fastsync_lab.study.store import Result, full_results, load_result

# In a reader's order; others come after them.
DEVICES = ("emmc", "ufs", "sata-ssd", "nvme", "nvme-plp", "uniform-100us")
HEADLINE_SERIES = ("6.12", "7.2")  # the kernels that the README has


@dataclass(frozen=True)
class Page:
    """A document of results: docs/NAME.md, and the README's block of its headline."""

    name: str
    block: str
    intro: str


PAGES = (
    Page(
        "results",
        "figures",
        """\
# Results

<!-- Written by `./fastsync report` from results/*-full-*.json. -->

*Ideal* is `fdatasync()` on stock ext4. Both modes run at 100 ms. Of several runs, at different
phases of the timer's tick, a figure is the median ± the distance of the farthest one.
[experiments.md](experiments.md) says how a figure comes about and what is required of it.""",
    ),
    Page(
        "qasio-results",
        "qasio",
        """\
# Results of the study qasio

<!-- Written by `./fastsync report` from results/qasio-full-*.json. -->

File system calls beside a bulk buffered writer, by I/O scheduler. [qasio.md](qasio.md) says what
the benchmarks are and how to repeat this.""",
    ),
)
PAIRS_INTRO = """\
Each variant's rate *with* a neighbour that asks for the stamps of the file it writes, over its rate
*without*: beside one that asks for those of a file nobody writes."""


# --- parts -------------------------------------------------------------------------------------


def in_order(results: Iterable[Result], studies: Studies) -> list[Result]:
    """Results by kernel, the oldest first, then by study, then by device."""
    names = list(studies)

    def key(result: Result) -> Any:
        places = place_in(result.study, names), place_in(result.device, DEVICES)
        return version_key(result.series), *places

    return sorted(results, key=key)


def lines_in(results: Iterable[Result]) -> list[Line]:
    """All figures of results, in their order."""
    return [line for result in results for line in result.lines]


def as_markdown(grid: Grid) -> str:
    """A table in Markdown."""
    return markdown(grid.head, grid.lines, texts=grid.texts)


def count(lines: Sequence[Line]) -> str:
    """How many runs figures are of."""
    runs = sorted({line.runs for line in lines})
    if runs == [1]:
        return "one run each"
    if len(runs) == 1:
        return f"median of {runs[0]} runs"
    return f"medians of {runs[0]} to {runs[-1]} runs"


def title_of(results: Sequence[Result]) -> str:
    """A study's title, and how many runs each of its figures is the median of."""
    return f"{results[0].title} ({count(lines_in(results))})"


def by_study(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Results by study."""
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(result.study, []).append(result)
    return found


def by_series(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Results by kernel series."""
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(result.series, []).append(result)
    return found


def describe_builds(results: Iterable[Result]) -> str:
    """Which build of the modules the results are of; more than one are told apart."""
    builds: dict[str, list[str]] = {}
    for result in results:
        files = result.environment["sha256"]
        modules = {name: files[name] for name in files if name.endswith(".ko")}
        build = hashlib.sha256(json.dumps(modules, sort_keys=True).encode()).hexdigest()[:12]
        builds.setdefault(build, []).append(f"{result.study} on {result.device}")
    if len(builds) == 1:
        return f"All with one build of the modules ({next(iter(builds))})."
    return f"With {len(builds)} builds of the modules: " + "; ".join(
        f"{build}: {', '.join(names)}" for build, names in builds.items()
    )


def plot_file(result: Result) -> str:
    """The name of the plot of a result's study on its kernel."""
    return f"{result.study}-{result.series}.png"


# --- the README --------------------------------------------------------------------------------


def headline(study: Study[Any], results: Sequence[Result]) -> list[str]:
    """Title and table of the headline's lines of a study, kernel beside kernel."""
    mine = [one for one in results if one.series in HEADLINE_SERIES]
    lines = [x for x in lines_in(mine) if (x.place.workload, x.place.subject) in study.headline]
    if not lines:
        return []
    names = [f"{workload} {subject}".strip() for workload, subject in study.headline]
    parts: list[tuple[Any, Sequence[str]]] = []
    head: Sequence[str] = ()
    for kernel in dict.fromkeys(line.place.kernel for line in lines):
        grid = beside_grid(study, [line for line in lines if line.place.kernel == kernel])
        assert grid is not None
        also = sum(len(names) for _, names in study.beside.also) if study.beside else 0
        head = ["kernel", *grid.head[: len(grid.head) - also]]
        for line in grid.lines:
            place = (place_in(line[0], DEVICES), place_in(line[1], names), version_key(kernel))
            parts.append((place, [kernel, *line[: len(line) - also]]))
    table = [line for _, line in sorted(parts, key=lambda part: part[0])]
    return [f"**{mine[0].title} ({count(lines)})**", markdown(head, table, texts=3)]


def readme_text(page: Page, results: Sequence[Result], studies: Studies) -> str:
    """The README's figures. Raises FastsyncError when a result lacks one that is compared."""
    ordered = in_order(results, studies)
    parts = []
    for name, study in studies.items():
        parts += headline(study, [result for result in ordered if result.study == name])
    series = by_series(ordered)
    for found in series.values():
        for name, mine in by_study(found).items():
            parts += studies[name].says_headline(lines_in(mine))
    lines = [
        f"- {' '.join(environments(found))} "
        f"{reached(verdicts(studies, lines_in(found)))} are reached."
        for found in series.values()
    ]
    if any(study.headline for study in studies.values()):
        lines += [
            f"- Linux {name}: no figures yet." for name in HEADLINE_SERIES if name not in series
        ]
    link = f"[docs/{page.name}.md](docs/{page.name}.md)"
    parts += ["\n".join(lines), f"All figures, and each required one that is missed: {link}."]
    return "\n\n".join(parts)


# --- docs/ -------------------------------------------------------------------------------------


def results_text(page: Page, results: Sequence[Result], studies: Studies) -> str:
    """A page of results. Raises FastsyncError when one lacks something that is compared."""
    parts = [page.intro]
    for series, found in by_series(in_order(results, studies)).items():
        judged = verdicts(studies, lines_in(found))
        parts += [f"## Linux {series}", *environments(found), describe_builds(found)]
        for name, mine in by_study(found).items():
            parts += study_parts(studies[name], mine)
        parts.append(f"### Linux {series}: {reached(judged)} are reached")
        if short := [verdict for verdict in judged if not verdict.passed]:
            parts.append("\n".join(f"- {verdict}" for verdict in short))
    return "\n\n".join(parts) + "\n"


def study_parts(study: Study[Any], results: Sequence[Result]) -> list[str]:
    """Title and tables of one study on one kernel."""
    lines = lines_in(results)
    parts = [f"### Linux {results[0].kernel}: {title_of(results)}"]
    if is_sweep(lines):
        parts += ["Operations a second; KiB written for each.", as_markdown(sweep_grid(lines))]
    elif grid := beside_grid(study, lines):
        parts.append(as_markdown(grid))
        parts += peers(study, lines)
    else:
        grids = [table_grid(study, table, lines) for table in study.tables]
        parts += [as_markdown(grid) for grid in grids if grid]
    if found := pairs_of(study, lines):
        parts += [PAIRS_INTRO, as_markdown(pairs_grid(found))]
    parts += study.remarks(lines)
    if shaky := unstable(lines):
        parts.append("\n".join(f"- {one}" for one in shaky))
    if can_be_drawn(results[0]):
        name = plot_file(results[0])
        parts.append(f"Drawn: [{name}](../results/{name})")
    return parts


def peers(study: Study[Any], lines: Sequence[Line]) -> list[str]:
    """The table of what does not stand beside the others, if there is any."""
    beside = study.beside.names if study.beside else ()
    others = [line for line in lines if line.place.system not in (*beside, "off")]
    if not others:
        return []
    shown = [line for line in lines if line in others or line.place.system in ("stock", "defer")]
    grids = [table_grid(study, table, shown) for table in study.tables]
    return ["Beside other file systems and options:", *(as_markdown(x) for x in grids if x)]


def write_report(studies: Studies) -> None:
    """Draw a plot for each full study and kernel; write the README's figures and the pages.

    Raises FastsyncError when there is no full result.
    """
    loaded = [load_result(path) for path in full_results()]
    if not loaded:
        raise FastsyncError("results/ holds no full result; try `./fastsync run --full overwrite`")
    readme = repo_root() / "README.md"
    for page in PAGES:
        mine = {name: study for name, study in studies.items() if study.page == page.name}
        results = in_order([one for one in loaded if one.study in mine], mine)
        if not results:
            continue
        text = replace_block(readme.read_text(), page.block, readme_text(page, results, mine))
        for name in dict.fromkeys(plot_file(one) for one in results if can_be_drawn(one)):
            shown = [one for one in results if plot_file(one) == name]
            draw(shown, mine, results_dir() / name)
        write_whole(repo_root() / "docs" / f"{page.name}.md", results_text(page, results, mine))
        write_whole(readme, text)
