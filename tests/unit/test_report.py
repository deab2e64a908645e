"""The page of HTML that `./fastsync report` writes."""

import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fastsync_lab.cli import report
from fastsync_lab.host import mutants
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.studies import studies
from fastsync_lab.study import chapters, html, profiles
from fastsync_lab.study.grid import Grid
from fastsync_lab.study.keeper import read_results
from fastsync_lab.study.store import Result, parse_result
from tests.unit.study_results import cell, four, overwrite, result

VOID = {"meta", "input", "img"}


class Tags(HTMLParser):
    """Checks that each element ends where it has to, and gathers ids and addresses."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.addresses += [str(values[name]) for name in ("src", "href") if name in values]
        if "id" in values:
            self.ids.append(str(values["id"]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, tag


@pytest.fixture(autouse=True)
def no_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was explored, failed or run of xfstests."""
    walks = [replace(walk, load=list, write=lambda: None) for walk in report.WALKS]
    monkeypatch.setattr(report, "WALKS", walks)


def page(*results: Result) -> str:
    return report.page(results, studies())


def section(text: str, name: str) -> str:
    start = text.index(f'<section id="{name}">')
    return text[start : text.index("</section>", start)]


def test_the_page_is_whole_and_stands_alone() -> None:
    tags = Tags(page(parse_result(overwrite())))
    assert tags.open == []
    assert tags.ids[0] == "gain" and set(studies()) < set(tags.ids)
    assert len(tags.ids) == len(set(tags.ids))
    links = [one for one in tags.addresses if not one.startswith("data:image/svg+xml;base64,")]
    assert [link.removeprefix("#") for link in links] == tags.ids
    assert len(tags.addresses) > len(links)  # there are pictures


def test_it_is_experimental_and_says_so_first() -> None:
    text = page(parse_result(overwrite()))
    warning = text.index("it has run in virtual machines only")
    assert text.index("<h1>") < warning < text.index("<h2>")


def test_what_has_no_figure_yet_is_named() -> None:
    text = page(parse_result(overwrite()))
    assert "Not measured yet. <code>./fastsync crash all</code>" in section(text, "crash")
    files = section(text, "files")
    assert "Linux 7.2: not measured yet. <code>./fastsync run --full files --kernel 7.2" in files
    mine = section(text, "overwrite")
    assert "Linux 6.12, not measured yet: device emmc, ufs, nvme, nvme-plp, uniform-100us." in mine
    assert "not measured yet: file system off, eager, defer+eager, fast_commit" in mine
    assert "Linux 7.2: not measured yet." in mine and "Linux 6.12: not measured" not in mine


def all_devices() -> list[Result]:
    study = studies()["fstat"]
    systems = [one.name for one in study.full.systems]
    names = [one.name for one in study.full.workloads]
    cells = [cell(x, [100], interval_ms=None, workload=name) for name in names for x in systems]
    return [result(cells, "fstat", kernel, "uniform-100us") for kernel in ("6.12.1", "7.2.3")]


def test_of_a_whole_study_nothing_is_missing() -> None:
    assert "not measured yet" not in section(page(*all_devices()), "fstat")


def test_the_newest_kernel_comes_first() -> None:
    mine = section(page(*all_devices()), "fstat")
    assert re.findall(r"<h3>Linux (\S+)", mine) == ["7.2.3", "6.12.1"]


def test_a_row_says_how_it_is_measured_again() -> None:
    cells = four((100, 200, 150, 190))
    made = {"mkfs": "mkfs.ext4 -q", "options": "a=1&2"}
    cells[3] |= {"filesystem": made, "prepare": ":", "command": "fio --name=<x>", "queue": ":"}
    mine = section(page(result(cells)), "overwrite")
    rows = mine[mine.index("All 4 rows") :].split("<tr>")
    command = "./fastsync run --full overwrite --kernel 6.12 --device sata-ssd"
    assert f"<pre>{command}</pre>" in rows[2]
    assert (
        f"<pre>{command}\n\n# in the guest:\nmkfs.ext4 -q $FASTSYNC_DEV\n"
        "mount -o a=1&amp;2 $FASTSYNC_DEV /mnt; cd /mnt\nfio --name=&lt;x&gt;</pre>" in rows[5]
    )


def test_rows_have_their_spread_and_their_runs() -> None:
    mine = section(page(parse_result(overwrite())), "overwrite")
    row = re.search(r"<tr><td>sata-ssd</td><td>random</td><td>stock</td>.*?</tr>", mine)
    assert row is not None
    cells = re.findall(r"<td[^>]*>(.*?)</td>", row[0])
    assert cells[3] == "230 ± 130" and cells[-2] == "3"


def test_figures_that_fall_short_are_listed_and_what_shook_is_named() -> None:
    mine = section(page(parse_result(overwrite(truncate=220))), "overwrite")
    assert "10 of 12 targets are met; those that are missed" in mine
    assert "<li>MISS  0.4112" in mine and "not stable: sata-ssd, random, stock" in mine


def test_devices_are_described_and_a_flush_that_costs_nothing_is_0() -> None:
    grid = chapters.devices_grid()
    found = {line[0]: line for line in grid.lines}
    assert found["emmc"][2:6] == ["50", "318", "3,600", "3,650"]
    assert found["nvme-plp"][4] == "0"


def test_a_file_system_is_listed_once_as_it_is_mounted_by_default() -> None:
    lines = [line for line in chapters.systems_grid(studies()).lines if line[0] == "defer"]
    assert [line[2] for line in lines] == ["mtime_update=100,mtime_mode=defer"]


# --- pieces --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a < b & `x<y`", "a &lt; b &amp; <code>x&lt;y</code>"),
        ("**2.0×** and *Ideal*", "<strong>2.0×</strong> and <em>Ideal</em>"),
        ("see [there](x.md).", "see there."),
    ],
)
def test_a_line_of_markdown(text: str, expected: str) -> None:
    assert html.inline(text) == expected


def test_paragraphs_lists_and_headings() -> None:
    assert html.parts_of(["a\nb"]) == "<p>a\nb</p>"
    assert html.parts_of(["- a\n- b"]) == "<ul><li>a</li><li>b</li></ul>"
    assert html.parts_of(["### a"]) == "<h3>a</h3>"


@pytest.mark.parametrize(("rows", "field"), [(11, False), (12, True)])
def test_a_long_table_can_be_searched(rows: int, field: bool) -> None:
    drawn = html.table(Grid(["a", "b"], [["x", "1"]] * rows, texts=1))
    assert drawn.startswith("<input") == field
    assert drawn.count("<button") == 2  # each column sorts
    assert '<td class="n">1</td>' in drawn and "<td>x</td>" in drawn


# --- the command ---------------------------------------------------------------------------------


def test_the_page_lies_in_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Sequence[Result]] = []
    monkeypatch.setattr(report, "build_dir", lambda: tmp_path / "build")
    monkeypatch.setattr(report, "load_full", lambda _: [result(four((1, 2, 2, 2)))])
    monkeypatch.setattr(report, "write_pages", lambda results, _: written.append(results))
    monkeypatch.setattr(profiles, "write_profiles", written.append)
    aged: list[None] = []
    monkeypatch.setattr(mutants, "write_age", lambda: aged.append(None))
    path = report.write_report(studies())
    assert path == tmp_path / "build" / "report.html" and len(written) == 2 and aged
    assert path.read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("text", ["<<<<<<< ours\n{}", "[]", '{"format": 2}', "{}"])
def test_a_file_that_is_no_result_is_one_clear_line(text: str, tmp_path: Path) -> None:
    file = tmp_path / "crash-6.12.json"
    file.write_text(text)
    with pytest.raises(FastsyncError, match=r"crash-6\.12\.json") as error:
        read_results([file, tmp_path / "crash-7.2.json"], 3)
    assert "\n" not in str(error.value)
