"""Rows of runs, their medians and spreads, and how these are written."""

from dataclasses import replace
from typing import Any

import pytest

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.study.rows import (
    Line,
    Place,
    Row,
    Stat,
    is_sweep,
    lines_of,
    place_in,
    stat_of,
    sweeps,
)

PLACE = Place("7.2.3", "e", "ufs", "w", "update", "default", "defer", 100)


def line(value: float = 100.0, **axes: Any) -> Line:
    return Line(replace(PLACE, **axes), {"ops_per_s": Stat(value)})


def test_a_place_knows_its_series_and_its_name() -> None:
    assert (PLACE.series, PLACE.name) == ("7.2", "w update")
    assert replace(PLACE, subject="", kernel="6.12.117").series == "6.12"
    assert replace(PLACE, subject="").name == "w"


def test_a_machine_is_a_kernel_and_where_it_is_another_a_processor() -> None:
    assert PLACE.machine == "7.2.3"
    assert replace(PLACE, processor="little core").machine == "7.2.3, little core"


def test_a_row_of_what_there_is_not_is_an_error() -> None:
    with pytest.raises(FastsyncError, match="no metric 'haste': there are operations, ops_per_s,"):
        Row(PLACE, 0, {"haste": 1.0})


def test_lines_are_medians_with_the_farthest_run() -> None:
    rows = [
        Row(PLACE, run, {"ops_per_s": value, "kib": 1.0}) for run, value in enumerate((1, 9, 4))
    ]
    other = Row(replace(PLACE, device="emmc"), 0, {"kib": 7.0})
    assert lines_of([rows[0], other, *rows[1:]]) == [
        Line(PLACE, {"ops_per_s": Stat(4.0, 5.0, 3), "kib": Stat(1.0, 0.0, 3)}),
        Line(other.place, {"kib": Stat(7.0)}),
    ]
    assert lines_of(rows)[0].runs == 3
    assert lines_of(rows)[0].value("kib") == 1.0


def test_a_line_has_what_all_its_runs_have() -> None:
    rows = [Row(PLACE, 0, {"kib": 1.0, "fua": 2.0}), Row(PLACE, 1, {"kib": 3.0})]
    assert lines_of(rows) == [Line(PLACE, {"kib": Stat(2.0, 1.0, 2)})]


@pytest.mark.parametrize(
    ("stat", "text"),
    [
        (Stat(253.04), "253"),
        (Stat(11675.2), "11,680"),
        (Stat(1675.2), "1,675"),
        (Stat(11.049), "11.0"),
        (Stat(0.98765), "0.988"),
        (Stat(0.0109), "0.011"),
        (Stat(0.0), "0"),
        (Stat(0.0, 0.0, 5), "0 ± 0"),
        (Stat(253.04, 0.0, 5), "253 ± 0"),
        (Stat(253.04, 12.3, 5), "253 ± 12"),
        (Stat(253.04, 1.2, 5), "253.0 ± 1.2"),
        (Stat(253.04, 0.96, 5), "253.0 ± 1.0"),
        (Stat(253.04, 0.06, 5), "253.0 ± 0.1"),
        (Stat(253.04, 0.12, 5), "253.0 ± 0.1"),
        (Stat(25.304, 0.03, 5), "25.30 ± 0.03"),
        (Stat(1.165787, 0.000016, 5), "1.166 ± 0.001"),
        (Stat(0.067123, 0.000016, 5), "0.06712 ± 0.00002"),
        (Stat(13889.0, 4.0, 5), "13,890 ± 10"),
        (Stat(-13889.0, 4.0, 5), "-13,890 ± 10"),
        (Stat(213_890_000.0, 4.0, 5), "213,900,000 ± 100,000"),
        (Stat(0.0, 0.03, 5), "0.00 ± 0.03"),
        (Stat(0.05, 0.12, 5), "0.05 ± 0.12"),
        (Stat(11675.2, 234.0, 5), "11,700 ± 200"),
    ],
)
def test_no_digit_is_finer_than_the_spread(stat: Stat, text: str) -> None:
    assert stat.text() == text


def test_a_text_is_in_the_units_of_its_table() -> None:
    assert Stat(3_916_000.0).text(1e-6) == "3.92"
    assert Stat(3_916_000.0, 20_000.0, 5).text(1e-6) == "3.92 ± 0.02"


@pytest.mark.parametrize(
    ("stat", "text", "ratio"),
    [
        (Stat(253.04), "253", "253"),
        (Stat(11675.2, 4.0, 5), "11,680", "11,680"),
        (Stat(1675.2, 12.0, 5), "1,675", "1,675"),
        (Stat(1675.2, 40.0, 5), "1,680", "1,680"),
        (Stat(2.0349, 0.0002, 5), "2.03", "2.03"),
        (Stat(2.0349, 0.3, 5), "2.0", "2.0"),
        (Stat(0.98765, 0.0004, 5), "0.988", "0.99"),
        (Stat(81.04, 0.03, 5), "81.0", "81.0"),
        (Stat(0.0, 0.0, 5), "0", "0"),
    ],
)
def test_alone_a_median_has_no_finer_digit_either(stat: Stat, text: str, ratio: str) -> None:
    assert (stat.short(), stat.as_ratio) == (text, ratio)
    assert Stat(3_916_000.0, 400_000.0, 5).short(1e-6) == "3.9"


def test_a_ratio_has_the_spread_of_both() -> None:
    ratio = Stat(50.0, 1.0, 5).over(Stat(100.0, 4.0, 3))
    assert (ratio.median, round(ratio.spread, 9), ratio.runs) == (0.5, 0.03, 3)
    assert Stat(0.0, 1.0, 2).over(Stat(100.0, 4.0, 2)) == Stat(0.0, 0.0, 2)


def test_a_ratio_of_which_one_side_is_of_one_run_has_no_spread() -> None:
    """The one run may be as far off as any: what the other side's runs say would be too little."""
    assert Stat(50.0).over(Stat(100.0, 4.0, 5)).text() == "0.500"
    assert Stat(50.0, 4.0, 5).over(Stat(100.0)) == Stat(0.5, 0.0, 1)
    assert Stat(103.5).over(Stat(100.0, 0.1, 5)).text() == "1.03"


@pytest.mark.parametrize(("spread", "stable"), [(0.0, True), (5.0, True), (5.1, False)])
def test_what_is_stable(spread: float, stable: bool) -> None:
    assert Stat(100.0, spread, 5).stable is stable
    assert Stat(-100.0, spread, 5).stable is stable


def test_an_even_number_of_runs_has_its_median_between_two() -> None:
    assert stat_of([1.0, 2.0, 4.0, 9.0]) == Stat(3.0, 6.0, 4)


def test_names_are_in_the_readers_order_and_the_rest_by_the_alphabet() -> None:
    order = ("emmc", "ufs")
    assert sorted(["b", "ufs", "a", "emmc"], key=lambda name: place_in(name, order)) == [
        "emmc", "ufs", "a", "b",
    ]  # fmt: skip


def test_a_sweep_has_a_file_system_at_several_intervals() -> None:
    def of(*places: tuple[str, int | None]) -> list[Line]:
        return [line(system=system, interval_ms=ms) for system, ms in places]

    assert is_sweep(of(("stock", None), ("defer", 1), ("defer", 2)))
    assert not is_sweep(of(("stock", None), ("defer", 1), ("defer", 1), ("truncate", 1)))


def test_sweeps_leave_out_what_has_no_interval_and_keep_zero_first() -> None:
    lines = [line(interval_ms=ms) for ms in (10, None, 1, 0, 5)]
    found = sweeps([*lines, line(interval_ms=3, system="truncate"), line(device="emmc")])
    assert {key: [one.place.interval_ms for one in series] for key, series in found.items()} == {
        ("ufs", "defer"): [0, 1, 5, 10],
        ("ufs", "truncate"): [3],
        ("emmc", "defer"): [100],
    }
