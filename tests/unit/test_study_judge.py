"""Verdicts, figure by figure."""

from dataclasses import replace
from typing import Any

import pytest

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.study.judge import (
    Requirement,
    Verdict,
    Where,
    judge,
    speed_over,
    sweep_verdicts,
    within,
    worst_step,
)
from fastsync_lab.study.rows import Line, Stat
from tests.unit.study_results import PLACE, line

# --- one figure ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figure", "least", "most", "passed"),
    [
        (0.985, 0.985, None, True),
        (0.9849, 0.985, None, False),
        (9.0, 0.985, None, True),
        (1.01, 0.99, 1.01, True),
        (1.0101, 0.99, 1.01, False),
        (0.98, 0.99, 1.01, False),
        (0.0, 0.0, 0.0, True),
        (0.1, 0.0, 0.0, False),
    ],
)
def test_a_bar_is_reached_when_it_is_met(
    figure: float, least: float, most: float | None, passed: bool
) -> None:
    assert within(figure, least, most) is passed
    assert Verdict("6.12.1", "ufs", "random", "w", figure, least, most).passed is passed


@pytest.mark.parametrize(
    ("figure", "least", "most", "text"),
    [
        (0.99, 0.985, None, "pass  0.9900 (at least 0.985) 6.12.1, ufs, random: what"),
        (0.9, 0.985, None, "MISS  0.9000 (at least 0.985) 6.12.1, ufs, random: what"),
        (1.0, 0.99, 1.01, "pass  1.0000 (at least 0.99, at most 1.01) 6.12.1, ufs, random: what"),
        (0.02, 0.0, 0.03, "pass  0.0200 (at most 0.03) 6.12.1, ufs, random: what"),
        (0.5, 0.0, None, "pass  0.5000 (at least 0) 6.12.1, ufs, random: what"),
    ],
)
def test_a_verdict_in_words(figure: float, least: float, most: float | None, text: str) -> None:
    assert str(Verdict("6.12.1", "ufs", "random", "what", figure, least, most)) == text


def fast(speed: float, system: str = "defer", **axes: Any) -> Line:
    return line(system, {"ops_per_s": speed}, **axes)


SPEED = speed_over("stock", ("defer",), least=0.9)
SAVED = Requirement(
    "kib_journal", "saved", Where(systems=("defer",)), Where(systems=("stock",)), 0.97,
    base_least=6.0,
)  # fmt: skip
STEP = Requirement("ops_per_s", "worst step", Where(systems=("defer",)), least=0.998, most=5.0)


def test_a_bar_of_speed_is_about_some_file_systems_and_another() -> None:
    assert speed_over("ideal", ("off", "defer"), 0.5, 1.5, devices=("ufs",)) == Requirement(
        "ops_per_s",
        where=Where(systems=("off", "defer"), devices=("ufs",)),
        over=Where(systems=("ideal",)),
        least=0.5,
        most=1.5,
    )


def test_a_requirement_of_what_there_is_not_is_an_error() -> None:
    with pytest.raises(FastsyncError, match="no metric 'haste': there are operations, "):
        replace(SPEED, metric="haste")


@pytest.mark.parametrize(
    ("requirement", "text"),
    [
        (SPEED, "defer, speed over stock"),
        (replace(SPEED, over=Where(systems=("ideal",))), "defer, speed over Ideal"),
        (replace(SPEED, over=Where(workloads=("x",))), "defer, speed over defer x"),
        (replace(SPEED, metric="fua"), "defer, fua over stock"),
        (
            replace(SAVED, over=Where(systems=("off",))),
            "defer, share of option off's journal bytes saved",
        ),
        (STEP, "defer, worst step of speed"),
        (replace(STEP, metric="kib", falls=True), "defer, worst step of volume (inverse)"),
        (replace(SPEED, over=Where(schedulers=("a", "b"))), "default, speed over a or b"),
        (
            replace(SPEED, over=Where(schedulers=("a", "b")), others="that of others"),
            "default, speed over that of others",
        ),
    ],
)
def test_a_requirement_in_words(requirement: Requirement, text: str) -> None:
    assert requirement.describe(PLACE) == text


def test_a_part_of_several_axes_in_words() -> None:
    assert str(Where(systems=("off",), workloads=("a", "b"))) == "option off, a or b"


@pytest.mark.parametrize(
    ("axis", "name"),
    [
        ("systems", "defer"),
        ("workloads", "w"),
        ("subjects", "update"),
        ("schedulers", "default"),
        ("devices", "ufs"),
        ("kernels", "6.12"),
    ],
)
def test_a_place_is_where_all_named_axes_have_it(axis: str, name: str) -> None:
    place = replace(PLACE, subject="update")
    assert Where().has(place)
    assert Where(**{axis: ("x", name)}).has(place)
    assert not Where(**{axis: ("x",)}).has(place)
    assert Where().has_beside(place, place)
    assert not Where(**{axis: ("x",)}).has_beside(place, place)
    changed: dict[str, Any] = {axis[:-1]: "9.9.1" if axis == "kernels" else "x"}
    other = replace(place, **changed)
    assert not Where().has_beside(other, place)
    assert Where(**{axis: ("9.9" if axis == "kernels" else "x",)}).has_beside(other, place)


# --- over a base --------------------------------------------------------------------------------


def test_speed_is_over_the_base_of_the_same_place() -> None:
    lines = [fast(50.0, "stock"), fast(10.0, "stock", device="emmc"), line()]
    assert judge({"e": [SPEED]}, lines) == [
        Verdict("6.12.1", "ufs", "w", "defer, speed over stock", 2.0, 0.9, None)
    ]
    (found,) = judge({"e": [replace(SPEED, most=1.5)]}, lines)
    assert not found.passed


def test_without_a_base_there_is_no_verdict() -> None:
    assert judge({"e": [SPEED]}, [line(), line("stock", workload="other")]) == []
    assert judge({"other": [SPEED]}, [line(), line("stock")]) == []
    assert judge({"e": [SPEED]}, [line(), fast(0.0, "stock")]) == []
    other = Line(PLACE, {"elapsed_s": Stat(1.0)})
    assert judge({"e": [SPEED]}, [other, line("stock")]) == []
    assert (
        judge({"e": [SPEED]}, [line(), replace(other, place=replace(PLACE, system="stock"))]) == []
    )


def test_what_has_no_base_is_left_out_and_the_rest_is_judged() -> None:
    lines = [line(device="emmc"), line(), fast(50.0, "stock")]
    assert [(one.device, one.figure) for one in judge({"e": [SPEED]}, lines)] == [("ufs", 2.0)]


def test_of_several_bases_the_least_counts_or_the_greatest() -> None:
    others = replace(SPEED, over=Where(schedulers=("a", "b")), where=Where(schedulers=("own",)))
    lines = [fast(4.0, scheduler=name) for name in ("own", "c")]
    lines += [fast(speed, scheduler=name) for speed, name in ((16.0, "a"), (8.0, "b"))]
    assert [one.figure for one in judge({"e": [others]}, lines)] == [0.5]
    best = replace(others, greatest=True)
    assert [one.figure for one in judge({"e": [best]}, lines)] == [0.25]


def test_nothing_is_held_against_peers_of_which_one_is_missing() -> None:
    best = replace(SPEED, over=Where(systems=("stock", "xfs")), greatest=True)
    lines = [fast(4.0), fast(8.0, "stock"), fast(16.0, "xfs")]
    assert [one.figure for one in judge({"e": [best]}, lines)] == [0.25]
    assert judge({"e": [best]}, lines[:-1]) == []


def test_a_control_is_of_the_same_file_system() -> None:
    beside = replace(SPEED, where=Where(workloads=("loud",)), over=Where(workloads=("quiet",)))
    lines = [
        fast(speed, system, workload=workload)
        for speed, system, workload in (
            (90.0, "defer", "loud"), (100.0, "defer", "quiet"),
            (40.0, "stock", "loud"), (80.0, "stock", "quiet"),
        )
    ]  # fmt: skip
    assert [(one.what, one.figure) for one in judge({"e": [beside]}, lines)] == [
        ("defer, speed over defer quiet", 0.9),
        ("stock, speed over stock quiet", 0.5),
    ]


def test_kernels_are_judged_apart() -> None:
    lines = [
        fast(speed, system, kernel=kernel)
        for kernel, speeds in (("6.12.1", (100, 90)), ("7.2.3", (100, 50)))
        for system, speed in zip(("stock", "defer"), speeds, strict=True)
    ]
    found = judge({"e": [SPEED]}, lines)
    assert [(one.kernel, one.figure) for one in found] == [("6.12.1", 0.9), ("7.2.3", 0.5)]


@pytest.mark.parametrize(("base_kib", "asked"), [(5.99, False), (6.0, True), (12.0, True)])
def test_saved_bytes_are_asked_for_where_the_base_writes_enough(
    base_kib: float, asked: bool
) -> None:
    base, mine = (
        line("stock", {"kib_journal": base_kib}),
        line("defer", {"kib_journal": base_kib / 4}),
    )
    found = judge({"e": [SAVED]}, [base, mine])
    assert [(v.figure, v.passed) for v in found] == ([(0.75, False)] if asked else [])


def test_saved_bytes_are_not_asked_for_where_there_are_none() -> None:
    base = line("stock", {"kib_journal": 0.0})
    assert judge({"e": [replace(SAVED, base_least=0.0)]}, [base, line()]) == []


# --- over an interval ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ([], 1.0),
        ([5.0], 1.0),
        ([1.0, 2.0, 8.0], 2.0),
        ([4.0, 2.0, 8.0], 0.5),
        ([0.0, 2.0, 6.0], 3.0),
    ],
)
def test_the_worst_step_is_the_smallest_ratio(values: list[float], step: float) -> None:
    assert worst_step(values) == step


def swept(speeds: list[float], kib: list[float], device: str = "ufs") -> list[Line]:
    """A sweep of defer at 1, 10, ... ms, its longest interval first."""
    return [
        line(
            values={"ops_per_s": speed, "kib": size},
            interval_ms=10**index,
            device=device,
        )
        for index, (speed, size) in enumerate(zip(speeds, kib, strict=True))
    ][::-1]


def test_a_sweep_is_judged_in_the_order_of_its_intervals() -> None:
    lines = [*swept([100, 200, 150], [16, 8, 10]), line("truncate", interval_ms=5), line("stock")]
    name = "interval 1 to 100 ms"
    assert sweep_verdicts(STEP, lines) == [
        Verdict("6.12.1", "ufs", name, "defer, worst step of speed", 0.75, 0.998, 5.0)
    ]
    volume = replace(STEP, metric="kib", falls=True)
    assert sweep_verdicts(volume, lines) == [
        Verdict("6.12.1", "ufs", name, "defer, worst step of volume (inverse)", 0.8, 0.998, 5.0)
    ]
    assert judge({"e": [STEP, volume]}, lines) == [
        *sweep_verdicts(STEP, lines),
        *sweep_verdicts(volume, lines),
    ]


def test_each_device_has_a_sweep_of_its_own() -> None:
    lines = swept([1, 2], [1, 1]) + swept([2, 1], [1, 0], device="emmc")
    found = [(v.device, v.figure) for v in sweep_verdicts(STEP, lines)]
    assert found == [("ufs", 2.0), ("emmc", 0.5)]
    volume = sweep_verdicts(replace(STEP, metric="kib", falls=True), lines)
    assert [v.figure for v in volume] == [1.0, 1.0]  # what was not written is no step


def test_a_sweep_of_one_interval_has_no_step() -> None:
    assert sweep_verdicts(STEP, swept([7], [1])) == []
    (found,) = sweep_verdicts(STEP, swept([7, 8], [1, 1]))
    assert (found.kernel, found.name) == ("6.12.1", "interval 1 to 10 ms")
