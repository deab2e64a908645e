"""What the report has of studies: a section each, and what was measured at its beginning."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fastsync_lab.host.kernels import version_key
from fastsync_lab.machine.device import load_profile
from fastsync_lab.machine.processor import DEFAULT_MIPS
from fastsync_lab.study.contract import FileSystem, Study
from fastsync_lab.study.figures import DEVICES, figures_of
from fastsync_lab.study.gains import gain_parts, picture
from fastsync_lab.study.grid import Grid
from fastsync_lab.study.html import element, figures_html, folded, inline, parts_of, table
from fastsync_lab.study.pages import (
    SERIES,
    by_machine,
    count,
    describe_builds,
    gaps,
    in_order,
    lines_in,
    study_parts,
)
from fastsync_lab.study.rows import Line, machines_of
from fastsync_lab.study.show import (
    Studies,
    environments,
    older_modules,
    reached,
    table_grid,
    table_lines,
    verdicts,
)
from fastsync_lab.study.store import Result


@dataclass(frozen=True)
class Section:
    """A section of the report: its id, its name, its HTML."""

    name: str
    title: str
    body: str

    @property
    def html(self) -> str:
        """All of it."""
        heading = element("h2", inline(self.title))
        return element("section", heading + "\n" + self.body, id=self.name)


def command_of(study: str, series: str, device: str = "", mips: float = DEFAULT_MIPS) -> str:
    """How a study is measured."""
    on_device = f" --device {device}" if device else ""
    at_speed = f" --mips {mips:g}" if mips != DEFAULT_MIPS else ""
    return f"./fastsync run --full {study} --kernel {series}{on_device}{at_speed}"


def absent(text: str) -> str:
    """What is not there, said plainly."""
    return element("p", inline(text), class_="none")


# --- a study -------------------------------------------------------------------------------------


def how_to_repeat(line: Line, results: Iterable[Result]) -> str:
    """How a row is measured again: the command, and what it runs in the guest."""
    place = line.place
    own = next(one for one in results if one.device == place.device)
    command = command_of(place.study, place.series, place.device, own.mips)
    text = own.steps_of(place).text
    said = f"{command}\n\n# in the guest:\n{text}" if text else command
    return folded("how", element("pre", inline(said)))


def all_figures(study: Study[Any], results: Sequence[Result]) -> str:
    """Every figure, with the runs behind it, and how it is measured again."""
    lines, found = lines_in(results), []
    for one in study.tables:
        grid = table_grid(study, one, lines)
        if grid is None:
            continue
        mine = table_lines(one, lines)
        shown = [[*row, str(line.runs)] for row, line in zip(grid.lines, mine, strict=True)]
        full = Grid([*grid.head, "runs"], shown, texts=grid.texts)
        how = [how_to_repeat(line, results) for line in mine]
        found.append(folded(f"All {len(mine)} rows", table(full, how, "repeat")))
    return "\n".join(found)


def on_kernel(study: Study[Any], results: Sequence[Result], studies: Studies) -> str:
    """A study on one kernel and processor."""
    lines = lines_in(results)
    first = results[0]
    judged = verdicts(studies, lines)
    parts = [
        element("h3", f"Linux {machines_of(lines)} ({count(lines)})"),
        figures_html(figures_of(study, lines)),
        folded("Tables", parts_of(study_parts(study, results))),
        all_figures(study, results),
    ]
    if judged:
        short = [f"- {one}" for one in judged if not one.passed]
        said = parts_of(["\n".join(short)]) if short else ""
        title = f"{reached(judged)} are met"
        parts.append(
            folded(f"{title}; those that are missed", said) if said else f"<p>{title}.</p>"
        )
    dates = sorted({one.date for one in results if one.date})
    parts.append(
        parts_of(
            [
                " ".join((*environments(results), *dates[-1:])),
                *describe_builds(results),
                *older_modules(results),
                f"To repeat it: `{command_of(study.name, first.series, mips=first.mips)}`",
            ]
        )
    )
    if not first.processor:
        parts += [absent(text) for text in gaps(study, first.series, results)]
    return "\n".join(parts)


def newest(results: Sequence[Result]) -> Any:
    """Sorts what one machine has measured by the kernel."""
    return version_key(results[0].series)


def section_of(study: Study[Any], results: Sequence[Result], studies: Studies) -> Section:
    """A study on all kernels, the newest first; on each the processor of now comes first."""
    there = {one.series for one in results}
    machines = sorted(by_machine(results).values(), key=newest, reverse=True)
    parts = [element("p", inline(f"{study.says}."))]
    parts += [on_kernel(study, found, studies) for found in machines]
    parts += [
        absent(f"Linux {name}: not measured yet. `{command_of(study.name, name)}`")
        for name in SERIES
        if name not in there
    ]
    return Section(study.name, study.name, "\n".join(parts))


# --- what was measured ---------------------------------------------------------------------------


def devices_grid() -> Grid:
    """The modelled devices: what a request costs on each."""
    head = ["device", "what it stands for", "write, us", "random, us", "flush, us", "FUA, us",
            "MiB/s", "depth"]  # fmt: skip
    lines = []
    for one in map(load_profile, DEVICES):
        times = (
            *(one.write_ns, one.write_ns + one.random_write_ns),
            *(one.flush_ns if one.volatile_cache else 0, one.write_ns + one.fua_ns),
        )
        figures = [f"{ns / 1000:,.0f}" for ns in times]
        speed = f"{one.write_mib_s:,}" if one.write_mib_s else "no limit"
        lines.append([one.name, one.description, *figures, speed, str(one.queue_depth)])
    return Grid(head, lines, texts=2)


def systems_grid(studies: Studies) -> Grid:
    """The file systems, and how each is mounted."""
    there: dict[str, FileSystem] = {}
    for study in studies.values():
        for system in study.full.systems:
            if system.kind:
                there.setdefault(system.name, system)
    lines = [[one.name, one.says, one.options, one.sync_call] for one in there.values()]
    return Grid(["file system", "what it is", "mounted with", "call"], lines, texts=4)


def measured(results: Sequence[Result], studies: Studies) -> Section:
    """What a user gains, and what was measured on what."""
    body = [
        figures_html([drawn] if (drawn := picture(results)) else []),
        parts_of(gain_parts(results, studies)),
        element("h3", "The modelled devices"),
        table(devices_grid()),
        element("h3", "The file systems"),
        table(systems_grid(studies)),
    ]
    return Section("gain", "What a user gains", "\n".join(body))


def sections(results: Sequence[Result], studies: Studies) -> list[Section]:
    """The section of what was measured, and one for each study."""
    ordered = in_order(results, studies)
    found = [measured(ordered, studies)]
    for name, study in studies.items():
        mine = [one for one in ordered if one.study == name]
        found.append(section_of(study, mine, studies))
    return found
