"""Figures of studies: what is drawn of which results, and how."""

import re
from collections.abc import Sequence

import pytest

from fastsync_lab.host.paths import results_dir
from fastsync_lab.studies import studies
from fastsync_lab.study import figures, plot
from fastsync_lab.study.figures import Bar, Figure, figures_of
from fastsync_lab.study.store import Result, load_result, parse_result
from tests.unit.study_results import cell, four, neighbour, overwrite, result, scheduled, sweep


def drawn(*results: Result) -> list[Figure]:
    lines = [line for one in results for line in one.lines]
    return figures_of(studies()[results[0].study], lines)


def of_kind(kind: str, found: Sequence[Figure]) -> Figure:
    return next(one for one in found if one.kind == kind)


def test_a_workload_has_three_figures_by_device() -> None:
    ufs = result(four((100, 200, 150, 190)), device="ufs")
    found = drawn(parse_result(overwrite()), ufs)
    stems = [f"overwrite-6.12-random-{kind}" for kind in ("speed", "bytes", "latency")]
    assert [one.stem for one in found] == stems
    speed = found[0]
    assert (speed.title, speed.kernel) == ("overwrite: random", "Linux 6.12.1")
    assert list(speed.groups) == ["ufs", "sata-ssd"]  # in a reader's order
    assert [(bar.name, bar.end, bar.text) for bar in speed.groups["ufs"]] == [
        ("stock", 0.5, "0.50 (100/s)"),
        ("truncate", 0.75, "0.75 (150/s)"),
        ("defer", 0.95, "0.95 (190/s)"),
    ]
    assert speed.reference == (1.0, "fdatasync")
    assert [bar.name for bar in found[1].groups["ufs"]] == list(figures.MAIN)
    latency = found[2].groups["ufs"][0]
    assert (latency.start, latency.end, latency.text) == (1.5, 4.0, "1.50 – 4.00 ms")
    assert "ufs: stock 0.50 (100/s), truncate" in speed.alt


def test_a_class_that_is_always_empty_is_not_drawn() -> None:
    cells = four((100, 200, 150, 190))
    written = of_kind("bytes", drawn(result(cells)))
    assert written.classes == ["kib_data", "kib_journal"]
    assert "other metadata" not in plot.svg_of(written)
    cells[0]["runs"][0]["subjects"][""]["kib_metadata"] = 3.0
    assert of_kind("bytes", drawn(result(cells))).classes[-1] == "kib_metadata"


def test_no_bytes_are_drawn_of_what_writes_none() -> None:
    cells = [
        cell(system, [100], kib=0.0, kib_data=0.0, kib_journal=0.0) for system in ("stock", "ideal")
    ]
    assert [one.kind for one in drawn(result(cells))] == ["speed", "latency"]


def test_peers_have_a_figure_for_each_device_and_without_them_there_is_none() -> None:
    cells = four((100, 200, 150, 190))
    assert "peers" not in [one.kind for one in drawn(result(cells))]
    peers = of_kind("peers", drawn(result([*cells, cell("xfs", [120]), cell("off", [101])])))
    assert peers.title == "overwrite: random, on sata-ssd"
    assert [(bar.name, bar.end) for bar in peers.groups[""]][-2:] == [("xfs", 0.6), ("off", 0.505)]


def test_a_spread_is_drawn_and_a_single_run_has_none() -> None:
    cells = [cell("stock", [230, 231, 100]), cell("ideal", [500, 500]), cell("truncate", [490])]
    stock, truncate = drawn(result(cells))[0].groups["sata-ssd"]
    assert stock.spread == pytest.approx(130 / 500) and truncate.spread == 0


def test_a_neighbour_is_drawn_as_a_share_of_its_control() -> None:
    (share,) = drawn(neighbour("7.2.3", 500))
    assert (share.kind, share.reference) == ("share", (1.0, "control"))
    assert [bar.text for bar in share.groups["sata-ssd"]] == ["0.50", "1.00", "1.00", "1.00"]


def test_a_sweep_has_a_curve_for_each_device() -> None:
    speed, volume = drawn(sweep([230, 400, 520, 530]))
    assert (speed.stem, volume.stem) == tuple(
        f"interval-6.12-truncate-{what}-sweep" for what in ("speed", "bytes")
    )
    (curve,) = speed.curves
    assert curve.name == "sata-ssd" and curve.points[0] == (1.0, 230 / 535)
    assert volume.curves[0].points[0] == (1.0, 1.0)


def test_schedulers_have_their_calls_drawn_and_no_speed() -> None:
    (latency,) = drawn(scheduled(4.3))
    assert latency.title == "qasio: M1 fsync"
    names = [bar.name for bar in latency.groups["emmc"]]
    assert names[:2] == ["no writer", "mq-deadline"] and names[-1] == "qasio"


def test_nothing_measured_is_nothing_drawn() -> None:
    assert figures_of(studies()["overwrite"], []) == []
    assert figures.overview(studies(), scheduled(4.3).lines) is None


def test_the_picture_of_a_short_run_has_what_the_headline_has() -> None:
    sqlite = result(four((20, 40, 43, 46), "PERSIST", "update"), "sqlite")
    lines = [*parse_result(overwrite()).lines, *sqlite.lines, *sweep([1, 2, 3, 4]).lines]
    found = figures.overview(studies(), lines)
    assert found is not None and list(found.groups) == [
        "overwrite: random",
        "sqlite: PERSIST update",
    ]
    assert found.title == "On sata-ssd"


@pytest.mark.parametrize("name", ["overwrite-full-6.12-emmc", "sqlite-full-6.12-ufs"])
def test_committed_results_can_be_drawn(name: str) -> None:
    kinds = [one.kind for one in drawn(load_result(results_dir() / f"{name}.json"))]
    assert kinds[:3] == ["speed", "bytes", "latency"]


# --- painting ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "found",
    [
        *drawn(parse_result(overwrite())),
        drawn(sweep([230, 400, 520, 530]))[0],
        drawn(neighbour("7.2.3", 500))[0],
        drawn(scheduled(4.3))[0],
    ],
    ids=lambda figure: figure.stem,
)
def test_no_text_of_a_figure_is_smaller_than_nine_points(found: Figure) -> None:
    svg = plot.svg_of(found)
    sizes = [float(size) for size in re.findall(r"font(?:-size)?:[^;\"]*?([\d.]+)px", svg)]
    assert len(sizes) > 5
    assert min(sizes) >= 9  # of an SVG in points
    assert found.title in svg and found.kernel in svg


LONG = "2.66 (293,000 → 780,000 operations a second)"


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("words", ["2.66", "2.66 (293 → 780/s)", LONG])
def test_the_words_behind_a_bar_end_within_the_picture(words: str, log: bool) -> None:
    bars = [Bar("stock", "a", {"": 1.0}, words, start=0.1), Bar("stock", "b", {"": 2.7}, words)]
    with plot.painted(Figure("speed", "x", "title", "k", "axis", {"g": bars}, log=log)) as picture:
        picture.draw_without_rendering()
        (axes,) = picture.axes
        found = [text for text in axes.texts if text.get_gid() == plot.WORDS]
        ends = [text.get_window_extent().x1 for text in found]
        assert len(ends) == 2 and max(ends) <= axes.get_window_extent().x1 + 1
        assert axes.get_window_extent().x1 <= picture.bbox.x1


def test_equal_figures_make_equal_files() -> None:
    found = drawn(parse_result(overwrite()))[0]
    assert plot.svg_of(found) == plot.svg_of(found)
