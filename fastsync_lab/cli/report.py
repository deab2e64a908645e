"""The command `report`: the documents' figures, and one page of HTML, of what is in results/."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastsync_lab.cli.options import shown
from fastsync_lab.crash import summary as crash
from fastsync_lab.faults import summary as faults
from fastsync_lab.host import mutants
from fastsync_lab.host.paths import build_dir, write_whole
from fastsync_lab.host.progress import Report, progress, silent
from fastsync_lab.studies import studies
from fastsync_lab.study import calibration, first_runs, latencies, profiles
from fastsync_lab.study.chapters import Section, absent, sections
from fastsync_lab.study.grid import Part
from fastsync_lab.study.html import document, element, inline, parts_of
from fastsync_lab.study.keeper import tables_of
from fastsync_lab.study.pages import load_full, write_pages
from fastsync_lab.study.show import Studies
from fastsync_lab.study.store import Result
from fastsync_lab.xfstests import summary as xfstests

TITLE = "fastsync: what was measured"
INTRO = """\
fastsync is a pair of kernel modules that makes `fsync()` on ext4 cheaper: that of an overwrite
costs nearly what `fdatasync()` costs, that of an append, a new file or a rename one write and one
flush. This page has everything that its lab measured, made from results/ by `./fastsync report`."""
WARNING = "**Experimental: so far it has run in virtual machines only.** Times are those of \
modelled devices, in virtual time."
READING = """\
*Ideal* is `fdatasync()` on Debian's ext4. *truncate* and *defer* are the modes of `mtime_update`,
at 100 ms; *eager* is `eager_sync`. Of several runs a figure is the median ± the distance of the
farthest one; no digit is shown that is finer, and four at most. Without ± it is of one run, or
over one of one run. Click a column's head to sort by it."""


@dataclass(frozen=True)
class Walk:
    """What keeps results of its own beside the studies': its section, and how it is run."""

    name: str
    title: str
    command: str
    load: Callable[[], Sequence[Mapping[str, Any]]]
    parts: Callable[[Mapping[str, Any]], list[Part]]
    write: Callable[[], None]  # into the documents
    sentence: Callable[[Mapping[str, Any]], str] | None = None


WALKS = (
    Walk(
        name="crash",
        title="Power cuts",
        command="./fastsync crash all",
        load=crash.load,
        parts=crash.parts,
        write=crash.write_crash,
        sentence=crash.sentence,
    ),
    Walk(
        name="faults",
        title="I/O errors",
        command="./fastsync faults",
        load=faults.load,
        parts=faults.parts,
        write=faults.write_faults,
        sentence=faults.sentence,
    ),
    Walk(
        name="xfstests",
        title="xfstests",
        command="./fastsync xfstests --tree FOLDER",
        load=xfstests.load,
        parts=xfstests.parts,
        write=xfstests.write_xfstests,
    ),
    Walk(
        name="calibration",
        title="The modelled processor",
        command="./fastsync calibrate",
        load=calibration.load,
        parts=calibration.parts,
        write=calibration.write_calibration,
    ),
    Walk(
        name="devices",
        title="The modelled devices",
        command="./fastsync calibrate --devices",
        load=latencies.load,
        parts=latencies.parts,
        write=latencies.write_latencies,
    ),
    Walk(
        name="first-runs",
        title="First runs of a fresh clone",
        command="make first-runs",
        load=first_runs.load,
        parts=first_runs.parts,
        write=first_runs.write_first_runs,
    ),
)


def section_of(walk: Walk) -> Section:
    """The section of a walk."""
    results = walk.load()
    said: list[Part] = [walk.sentence(result) for result in results] if walk.sentence else []
    again = f"To repeat it: `{walk.command}`"
    body = parts_of([*said, *tables_of(results, walk.parts), again])
    return Section(
        walk.name,
        walk.title,
        body if results else absent(f"Not measured yet. `{walk.command}`"),
    )


def page(results: Sequence[Result], studies: Studies) -> str:
    """The whole page of HTML."""
    found = [*sections(results, studies), *map(section_of, WALKS)]
    head = [
        element("h1", inline(TITLE)),
        element("p", inline(WARNING), class_="warning"),
        parts_of([INTRO, READING]),
    ]
    links = [(section.name, section.title) for section in found]
    return document(TITLE, links, "\n".join([*head, *(section.html for section in found)]))


def write_report(studies: Studies, report: Report = silent) -> Path:
    """Write the documents' figures and build/report.html, whose path is returned.

    Raises FastsyncError when there is no full result, or a document lacks its marks.
    """
    results = load_full(studies)
    report("writing the documents and their plots")
    write_pages(results, studies)
    profiles.write_profiles(results)
    for walk in WALKS:
        walk.write()
    mutants.write_age()
    report("writing the page of HTML")
    path = build_dir() / "report.html"
    write_whole(path, page(results, studies))
    return path


def report() -> None:
    """Write the documents' figures, their plots and one HTML page from what is in results/.

    These are README.md's, those of docs/, results/gains.png, results/plots/; and
    build/report.html, which has everything: all plots, tables that can be sorted, and how each
    row is measured again.
    """
    with progress() as report:
        written = write_report(studies(), report)
    print(shown(written))
