"""Documents, the report's page and plots from result files."""

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.machine.device import profile_names
from fastsync_lab.studies import studies
from fastsync_lab.study import figures, keeper, pages, plot, show
from fastsync_lab.study.documents import marks, replace_block
from fastsync_lab.study.grid import Grid, in_markdown
from fastsync_lab.study.store import Result, parse_result
from tests.unit.study_results import (
    cell,
    data,
    four,
    neighbour,
    overwrite,
    result,
    scheduled,
    sweep,
)

BEGIN_MARK, END_MARK = marks(pages.README_BLOCK)


def first(results: Sequence[Result]) -> str:
    return in_markdown(pages.first_parts(results, studies()))


def page(name: str, results: Sequence[Result]) -> str:
    mine = [one for one in results if one.study == name]
    return in_markdown(pages.page_parts(studies()[name], mine))


def test_what_comes_first_has_the_headline_of_each_kernel() -> None:
    fstat = "random, fstat first"
    results = [
        result(four((118, 244, 233, 240), fstat), kernel="7.2.3"),
        result(four((20, 40, 43, 46), "PERSIST", "update"), "sqlite"),
        parse_result(overwrite()),
        neighbour("7.2.3", 500),
    ]
    text = first(results)
    row = "| 6.12.1 | sata-ssd | random | 230 ± 130 | 535 | 530 | 532 | 0.991 | 0.994 |"
    assert row in text
    assert f"| 7.2.3 | sata-ssd | {fstat} | 118 | 244 | 233 | 240 | 0.955 | 0.984 | 2.03 |" in text
    assert "| 6.12.1 | sata-ssd | PERSIST update | 20.0 | 40.0 | 43.0 | 46.0 |" in text
    assert "sequential" not in text and "MISS" not in text
    assert "on the worst device: stock 0.500, truncate 0.999, defer 0.999." in text
    assert "Linux 6.12.1+deb-amd64" in text and "Linux 7.2.3+deb-amd64" in text
    assert "targets are met. Not measured yet: fstat, files," in text
    assert "targets are met. Not measured yet: fstat, sqlite, files," in text
    order = ("(medians of 1 to 3 runs)", "PERSIST", "worst device:", "SQLite 3.50.4")
    assert sorted(order, key=text.index) == list(order)


def test_a_table_of_two_versions_of_a_series_names_both() -> None:
    other = parse_result({**overwrite(debian_version="6.12.2-1"), "device": "ufs"})
    results = [parse_result(overwrite()), other]
    heads = [line for line in page("overwrite", results).splitlines() if line[:4] == "### "]
    assert heads[0].startswith("### Linux 6.12.2, 6.12.1 (")


def test_a_kernel_without_results_is_named_and_no_failure() -> None:
    text = first([parse_result(overwrite())])
    assert "- Linux 7.2: no figures yet." in text
    only = first([neighbour("7.2.3", 500)])
    assert "- Linux 6.12: no figures yet." in only and "Linux 7.2:" not in only


def test_pages_have_all_figures_and_name_those_that_are_missed() -> None:
    results = [sweep([230, 400, 390, 530]), parse_result(overwrite()), neighbour("7.2.3", 500)]
    text = page("overwrite", results)
    row = "| sata-ssd | sequential | 200 | 500 | 495 | 496 | 0.990 | 0.992 | 2.48 | 12.0 | 0.240 |"
    assert row in text
    assert "- not stable: sata-ssd, random, stock: 230 ± 130 ops/s" in text
    assert "- Linux 6.12, not measured yet: device emmc, ufs, nvme," in text
    assert "### Linux 6.12: 12 of 12 targets are met" in text and "MISS" not in text
    text = page("interval", results)
    assert "| sata-ssd | truncate | 230; 16.0 | 230; 16.0 | 400; 10.0 |" in text
    assert "### Linux 6.12: 1 of 2 targets are met\n\n- MISS  0.9750" in text
    assert "](../../results/plots/interval-6.12-truncate-speed-sweep.png)" in text
    text = page("neighbour", results)
    assert (
        "| sata-ssd | beside stat + writes | beside writes | 5,000 | 5,000 | 500 | 1,000 "
        "| 0.500 | 0.999 | 0.999 | 0.999 |" in text
    )
    assert "### Linux 7.2: 2 of 2 targets are met" in text


def test_a_page_has_one_kernel_after_the_other() -> None:
    text = page(
        "overwrite", [result(four((1, 2, 2, 2)), kernel="7.2.3"), parse_result(overwrite())]
    )
    assert text.index("## Linux 6.12\n") < text.index("## Linux 7.2\n")


def test_the_index_leads_to_every_page_and_says_how_many_targets_are_met() -> None:
    results = [sweep([230, 400, 390, 530]), parse_result(overwrite()), neighbour("7.2.3", 500)]
    dpkg = result([cell("stock", [1])], study="dpkg")
    grid = pages.index([*results, dpkg, scheduled(4.3)], studies())
    assert list(grid.head[2:]) == ["Linux 6.12", "Linux 7.2"]
    found = {line[0]: line[2:] for line in grid.lines}
    assert len(found) == len(studies())
    assert found["[interval](results/interval.md)"] == ["1 of 2 targets", "-"]
    assert found["[neighbour](results/neighbour.md)"] == ["-", "2 of 2 targets"]
    assert found["[dpkg](results/dpkg.md)"] == ["no targets", "-"]
    assert "[qasio](results/qasio.md)" in found
    assert found["sqlite"] == ["-", "-"]
    text = in_markdown(pages.results_parts([*results, scheduled(4.3)], studies()))
    first, last = text.split("## All figures")
    assert "qasio" not in first and "](results/qasio.md)" in last and "MISS" not in text


def test_peers_have_a_table_of_their_own() -> None:
    cells = [*four((118, 244, 233, 240)), cell("xfs", [150], kib_unsorted=9.0)]
    cells.append(cell("off", [118]))
    text = page("overwrite", [result(cells)])
    table = text[text.index("Beside other file systems") :].splitlines()
    assert table[2].startswith("| device | workload | system | ops/s | ÷ stock | data | journal |")
    assert [line.split(" | ")[2] for line in table[4:7]] == ["stock", "defer", "xfs"]
    assert "| xfs | 150 | 1.27 |" in text and "| 9.00 |" in text


def test_what_lacks_one_that_is_compared_is_no_result() -> None:
    with pytest.raises(FastsyncError, match="overwrite, sata-ssd, random: the result lacks defer"):
        page("overwrite", [result(four((1, 2, 3, 4))[:3])])


def test_what_a_kernel_does_not_have_is_left_empty_and_not_asked_for() -> None:
    there = ("stock", "fast_commit", "xfs", "f2fs", "defer")
    cells = [cell(name, [100 + n], workload="append") for n, name in enumerate(there)]
    files = studies()["files"]
    old = result(cells, study="files", kernel="6.1.192")
    grid = show.beside_grid(files, pages.lines_in([old]))
    assert grid is not None
    row = dict(zip(grid.head, grid.lines[0], strict=True))
    assert (row["defer+eager"], row["defer+eager ÷ stock"], row["defer"]) == ("-", "-", "104")
    assert not any("eager" in gap for gap in pages.gaps(files, "6.1", [old]))
    with pytest.raises(FastsyncError, match="the result lacks defer\\+eager"):
        show.beside_grid(files, pages.lines_in([result(cells, study="files")]))


def test_results_of_several_builds_are_told_apart() -> None:
    one, on_ufs = parse_result(overwrite()), parse_result(overwrite(device="ufs"))
    (text,) = pages.describe_builds([one, on_ufs])
    assert str(text).startswith("All with one build of the modules (")
    rebuilt = overwrite(sha256={"stock/ext4.ko": "1", "fastsync/ext4.ko": "3"}, device="nvme")
    text, grid = pages.describe_builds([one, parse_result(rebuilt), on_ufs])
    assert text == "With 2 builds of the modules:" and isinstance(grid, Grid)
    assert [line[1] for line in grid.lines] == ["sata-ssd, ufs", "nvme"]
    assert grid.lines[0][0] != grid.lines[1][0]


def test_results_are_ordered_by_kernel_study_and_device() -> None:
    kernels, names, devices = ("6.1.9", "6.12.1", "7.2.3"), ("overwrite", "sqlite"), ("ufs", "nvme")
    wanted = list(product(kernels, names, devices))
    results = [
        result([], name, kernel, device) for kernel, name, device in sorted(wanted, reverse=True)
    ]
    found = pages.in_order(results, studies())
    assert [(r.kernel, r.study, r.device) for r in found] == wanted


def test_every_device_has_its_place() -> None:
    assert set(figures.DEVICES) == set(profile_names())


def test_the_page_of_schedulers_shows_every_line_and_what_was_seen() -> None:
    text = page("qasio", [scheduled(4.3)])
    assert "| device | workload | scheduler | mean, ms | p50, ms | p99, ms | max, ms |" in text
    assert "| emmc | M1 fsync | qasio, boost off | 1.00 | 1.00 | 1.00 | 1.00 |" in text
    assert "| emmc | M1 | qasio | 1.00 | 49.0 |" in text
    assert "What qasio saw: meta: 10 waits, 2 boosted in the queue" in text
    assert "![" not in text and "not stable" not in text


def test_the_calls_that_wait_are_shown_beside_the_least_of_all_others() -> None:
    mine = {"qasio": studies()["qasio"]}
    text = in_markdown(pages.first_parts([scheduled(4.3)], mine))
    row = "| emmc | M1 | fsync | 0.1 / 0.1 | 9.0 / 9.0 | 8.6 / 8.6 | 4.3 / 4.3 | 0.98 |"
    assert row in text
    assert "no figures yet" not in text
    assert "M1" not in in_markdown(pages.first_parts([scheduled(0.5, base_ms=0.9)], mine))
    assert "M1" in in_markdown(pages.first_parts([scheduled(1.5, base_ms=0.9)], mine))


# --- files ---------------------------------------------------------------------------------------


def test_the_report_is_made_of_whole_full_runs_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "results"
    monkeypatch.setattr(keeper, "results_dir", lambda: folder)
    monkeypatch.setattr(pages, "results_dir", lambda: folder)
    monkeypatch.setattr(pages, "repo_root", lambda: tmp_path)
    with pytest.raises(FastsyncError, match="no full result"):
        pages.load_full(studies())
    docs = tmp_path / "docs"
    (docs / "results").mkdir(parents=True)
    (docs / "results" / "of-before.md").write_text("")
    targets = docs / pages.EXPERIMENTS
    targets.write_text("\n".join(marks(pages.TARGETS_BLOCK)))
    folder.mkdir()
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN_MARK}\nold\n{END_MARK}\nafter\n")
    files = {
        "overwrite-full-6.12-sata-ssd": data([*overwrite()["cells"], cell("defer+eager", [533])]),
        "overwrite-full-7.2-sata-ssd.partial": {"complete": False},
        "overwrite-quick-7.2-sata-ssd": data(four((1, 2, 3, 4)), kernel="7.2.3"),
    }
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    (folder / "plots").mkdir()
    (folder / "plots" / "of-before.png").write_bytes(b"")
    pages.write_pages(pages.load_full(studies()), studies())
    text = readme.read_text()
    pages.write_pages(pages.load_full(studies()), studies())
    assert readme.read_text() == text
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert "](results/gains.png)" in text
    assert "| `fstat` | truncate, defer | speed over Ideal |" in targets.read_text()
    written = [path.relative_to(docs) for path in docs.rglob("*.md")]
    assert sorted(map(str, written)) == ["experiments.md", "results.md", "results/overwrite.md"]
    assert "7.2.3" not in text + (docs / "results.md").read_text()
    pngs = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.png"))
    with pytest.raises(FastsyncError, match="no study of this tree: overwrite"):
        pages.load_full({})
    assert pngs == ["gains.png", "plots/overwrite-6.12-random-speed.png"]


@pytest.mark.parametrize("text", ["", BEGIN_MARK, f"{END_MARK} {BEGIN_MARK}", BEGIN_MARK * 2])
def test_a_readme_without_its_marks_is_an_error(text: str) -> None:
    with pytest.raises(FastsyncError):
        replace_block(text, pages.README_BLOCK, "x")


def test_the_plot_is_a_png(tmp_path: Path) -> None:
    png = tmp_path / "folder" / "demo.png"
    plot.draw([parse_result(overwrite()), sweep([230, 400, 520, 530])], studies(), png)
    assert png.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(FastsyncError, match="nothing to draw"):
        plot.draw([scheduled(4.0)], studies(), png)
