"""The calibration of the processor: its arithmetic, its tables, what is kept."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fastsync_lab.host import shell
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.host.progress import silent
from fastsync_lab.host.workload import plain_command
from fastsync_lab.machine.processor import Processor, load_processor, processor_names
from fastsync_lab.study import calibration
from fastsync_lab.study.calibration import FIGURES, Figures, figures_of, typical, worst
from fastsync_lab.study.contract import Program
from fastsync_lab.study.documents import marks
from fastsync_lab.study.grid import Grid, print_parts
from fastsync_lab.study.keeper import Result

HOST = {"syscall": 100.0, "switch": 1400.0, "fault": 1800.0, "memcpy": 150.0, "read": 400.0,
        "write": 420.0, "crc32c": 160.0, "crc32_be": 2000.0}  # fmt: skip


def times(factor: float, **others: float) -> dict[str, float]:
    """The host's figures, all so many times as long, and some of them more than that."""
    return {name: ns * factor * others.get(name, 1.0) for name, ns in HOST.items()}


def rounds(ns: Mapping[str, float]) -> dict[str, list[float]]:
    """Three rounds whose median that is; one of them was disturbed."""
    return {name: [value * 9, value, value * 0.99] for name, value in ns.items()}


def guest(name: str, ns: Mapping[str, float], host_s: float = 1.5) -> dict[str, Any]:
    return {
        "name": name,
        "says": "s",
        "cpu": f"max,-{name}",
        "parameters": ["a=1"],
        "flags": ["fpu"],
        "rounds": rounds(ns),
        "boot_host_s": 8.0,
        "host_s_per_s": host_s,
    }


def result(*guests: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "format": 1,
        "date": "2026-11-23T04:00:00+00:00",
        "kernel_release": "6.12.1-amd64",
        "debian_version": "6.12.1-1",
        "qemu": "QEMU emulator version 7.2",
        "mips": 500,
        "host": {"processor": "Example CPU", "rounds": rounds(HOST)},
        "guests": list(guests),
    }


# --- arithmetic ----------------------------------------------------------------------------------


def test_a_figure_is_the_median_of_its_rounds() -> None:
    assert figures_of(rounds(HOST)).ns == HOST


def test_a_processor_that_is_slower_in_all_is_not_off() -> None:
    ratios = Figures(times(7)).over(Figures(HOST))
    assert list(ratios) == [name for name in FIGURES if name != "syscall"]
    assert list(ratios.values()) == pytest.approx([1.0] * 7)
    assert typical(ratios.values()) == pytest.approx(1)


def test_a_ratio_is_held_against_the_hosts() -> None:
    ratios = Figures(times(3, read=4, crc32c=0.5)).over(Figures(HOST))
    assert ratios["read"] == pytest.approx(4)
    assert ratios["crc32c"] == pytest.approx(0.5)
    assert ratios["write"] == pytest.approx(1)


def test_a_dear_system_call_makes_all_else_cheap() -> None:
    ratios = Figures(times(1, syscall=2)).over(Figures(HOST))
    assert list(ratios.values()) == pytest.approx([0.5] * 7)


def test_what_is_typical_counts_too_much_and_too_little_alike() -> None:
    assert typical([2.0, 0.5]) == pytest.approx(2)
    assert typical([4.0, 1.0, 1.0, 1.0]) == pytest.approx(2)
    assert typical([8.0]) == pytest.approx(8) == typical([0.125])


def test_the_worst_is_the_farthest_from_one() -> None:
    assert worst({"a": 1.9, "b": 0.5, "c": 1.0}) == "b"
    assert worst({"a": 2.1, "b": 0.5}) == "a"


@pytest.mark.parametrize("wrong", [{"read": 0.0}, {"read": -1.0}])
def test_a_figure_that_is_no_time_is_an_error(wrong: dict[str, float]) -> None:
    with pytest.raises(FastsyncError, match="lacks the figure read"):
        Figures(HOST | wrong)
    with pytest.raises(FastsyncError, match="lacks the figure read"):
        figures_of({**rounds(HOST), "read": []})


def test_rounds_of_several_runs_are_one_heap() -> None:
    assert calibration.pooled([{"a": [1, 2]}, {"a": [3]}]) == {"a": [1, 2, 3]}


def test_the_nearest_has_the_least_typical_error_and_of_equals_the_first_is_taken() -> None:
    near, far = guest("near", times(8, read=1.5)), guest("far", times(2, read=4))
    other = guest("other", times(9, read=1.501))
    assert calibration.nearest(result(far, near, other)) == "near"
    assert calibration.nearest(result(far, other, near)) == "other"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.123, "0.123"), (1.0, "1.00"), (81.04, "81.0"), (1156.8, "1,157"), (0.9999, "1.000")],
)
def test_a_number_has_three_digits(value: float, text: str) -> None:
    assert calibration.number(value) == text


CPUINFO = """\
processor\t: 0
model name\t: Example CPU
flags\t\t: sse fpu erms
bugs\t\t: flags
processor\t: 1
model name\t: Another
flags\t\t: other
"""


def test_what_is_taken_from_cpuinfo() -> None:
    assert calibration.flags_of(CPUINFO) == ["erms", "fpu", "sse"]
    assert calibration.host_processor(CPUINFO) == "Example CPU"
    assert (calibration.flags_of(""), calibration.host_processor("")) == ([], "unknown")


# --- what is shown -------------------------------------------------------------------------------


def test_the_tables_have_host_and_guest_beside_each_other() -> None:
    found = result(guest("far", times(2, read=4), 2.25), guest("near", times(8, read=1.5)))
    said, nearest, one, _, every = calibration.parts(found)
    assert isinstance(said, str) and isinstance(nearest, str)
    assert said == (
        "Linux 6.12.1, 500 million instructions a second, QEMU emulator version 7.2; the host is "
        "an Example CPU, 2026-11-23."
    )
    now = load_processor().name
    assert nearest == (
        f"The nearest is `near` (guests have `{now}`): its ratios are typically off by a factor "
        "of 1.17, at most by 1.50 (`pread()`)."
    )
    assert isinstance(one, Grid) and isinstance(every, Grid)
    assert one.head[3] == "`near`, ns"
    assert [list(line) for line in one.lines][:2] == [
        ["system call", "100", "1.00", "800", "1.00", "1.00"],
        ["switch of threads", "1,400", "14.0", "11,200", "14.0", "1.00"],
    ]
    (read,) = (line for line in one.lines if line[0] == "`pread()`")
    assert list(read) == ["`pread()`", "400", "4.00", "4,800", "6.00", "1.50"]
    assert [list(line) for line in every.lines] == [
        ["far", "`max,-far a=1`", "1.00", "1.00", "1.00", "4.00", "1.00", "1.00", "1.00", "1.69",
         "2.25"],
        ["near", "`max,-near a=1`", "1.00", "1.00", "1.00", "1.50", "1.00", "1.00", "1.00", "1.17",
         "1.50"],
    ]  # fmt: skip
    assert all(len(line) == len(every.head) for line in every.lines)


def test_the_terminal_shows_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    found = result(guest("far", times(2, read=4)), guest("near", times(8, read=1.5)))
    print_parts(calibration.parts(found))
    shown = capsys.readouterr().out
    assert "The nearest is near" in shown and "max,-far a=1" in shown and "1.69" in shown


def test_a_calibration_is_kept_and_written_into_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "repo_root", lambda: tmp_path)
    monkeypatch.setattr(calibration, "results_dir", lambda: tmp_path)
    assert calibration.load() == []
    document = tmp_path / calibration.DOCUMENT
    document.parent.mkdir()
    document.write_text("a\n" + "\n".join(marks(calibration.BLOCK)) + "\nb\n")
    calibration.path().write_text(json.dumps(result(guest("near", times(8)))))
    calibration.write_calibration()
    text = document.read_text()
    assert text.startswith("a\n") and text.endswith("\nb\n")
    assert "| system call | 100 | 1.00 | 800 | 1.00 | 1.00 |" in text


class Measured:
    """Stands for the host and the guests; fails at the processor that `fails_at` names."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self.fails_at = ""
        file = folder / "cpubench"
        file.write_text("program")
        document = folder / calibration.DOCUMENT
        document.parent.mkdir()
        document.write_text("\n".join(marks(calibration.BLOCK)))
        names = ("6.12", "6.12.1-amd64", "6.12.1-1")
        tree = KernelTree(*names, folder, folder, folder, folder)
        program = Program("cpubench", lambda _report: file)
        for name, value in {
            "repo_root": lambda: folder,
            "results_dir": lambda: folder,
            "fetch_kernel": lambda _kernel, report: tree,
            "PROGRAM": program,
            "measure_host": lambda _program: rounds(HOST),
            "measure_guest": self.guest,
        }.items():
            monkeypatch.setattr(calibration, name, value)

    def guest(self, _tree: object, one: Processor, _mips: int, _program: Path) -> dict[str, Any]:
        if one.name == self.fails_at:
            raise FastsyncError("interrupted")
        self.names.append(one.name)
        return {**guest(one.name, times(8)), **one.record}


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measured:
    return Measured(tmp_path, monkeypatch)


def run(names: list[str], mips: int = 500) -> Result:
    return calibration.calibrate("6.12", mips, names, silent)


def test_a_whole_calibration_is_kept_and_a_part_of_it_is_not(measured: Measured) -> None:
    every = processor_names()
    assert len(run(every[:2])["guests"]) == 2
    assert len(run(every, 1000)["guests"]) == len(every)
    assert calibration.load() == []
    found = run(every)
    assert [one["name"] for one in found["guests"]] == every
    (kept,) = calibration.load()
    assert kept["guests"] == found["guests"] and kept["mips"] == 500
    assert len(kept["host"]["rounds"]["read"]) == 3 * len(every)


def test_an_interrupted_calibration_goes_on(measured: Measured) -> None:
    every = processor_names()
    measured.fails_at = every[2]
    with pytest.raises(FastsyncError):
        run(every)
    assert calibration.load() == [] and measured.names == every[:2]
    measured.fails_at = ""
    run(every)
    assert measured.names == every
    assert [one["name"] for one in calibration.load()[0]["guests"]] == every
    run(every)  # a whole one begins anew
    assert measured.names == every * 2


def test_what_was_measured_of_another_processor_is_not_taken_up(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = processor_names()
    measured.fails_at = every[1]
    with pytest.raises(FastsyncError):
        run(every)
    measured.fails_at = ""
    other = replace(load_processor(every[0]), cpu="max,-x")
    load = load_processor
    monkeypatch.setattr(
        calibration, "load_processor", lambda name=None: other if name == every[0] else load(name)
    )
    run(every)
    assert measured.names == [every[0], *every]


def test_the_last_calibration_is_of_the_processors_that_there_are() -> None:
    """And names as the nearest the one that guests have."""
    results = calibration.load()
    assert results
    for kept in results:
        rows = [load_processor(name) for name in processor_names()]
        assert [(x["name"], x["cpu"], tuple(x["parameters"])) for x in kept["guests"]] == [
            (row.name, row.cpu, row.parameters) for row in rows
        ]
        assert calibration.nearest(kept) == load_processor().name


# --- the program ---------------------------------------------------------------------------------


def test_the_program_measures_every_figure(tmp_path: Path) -> None:
    program = tmp_path / "cpubench"
    shell.run([*plain_command("cpubench", program), "-Wall", "-Wextra", "-Werror"])
    found = json.loads(shell.run([str(program), "3"], timeout_s=120).stdout)
    assert list(found) == list(FIGURES)
    assert all(len(ns) == 3 and min(ns) > 0 for ns in found.values())
    for wrong in ([], ["0"], ["1001"], ["x"]):
        assert shell.run([str(program), *wrong], check=False).status == 1
