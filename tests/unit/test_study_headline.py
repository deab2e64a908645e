"""What a reader sees first: it is run five times, the demo measures it, and a study is short."""

from dataclasses import replace
from typing import Any

import pytest

from fastsync_lab.host.paths import repo_root
from fastsync_lab.machine.device import load_profile
from fastsync_lab.studies import fstat, studies
from fastsync_lab.study import gains
from fastsync_lab.study.contract import FLASH, HEADLINE_RUNS, Script, Study
from fastsync_lab.study.filesystems import DEFER_EAGER
from fastsync_lab.study.grid import in_markdown
from fastsync_lab.study.plan import Job, bash_of, cell_record
from tests.unit.study_results import cell, result

EVERY = list(studies())


def study(name: str) -> Study[Any]:
    return studies()[name]


def test_the_headline_has_five_runs_in_full_and_one_in_quick() -> None:
    one = study("overwrite")
    runs = {
        quick: {cell.name: one.runs_of(cell, quick=quick) for cell in one.cells("ufs", quick=quick)}
        for quick in (True, False)
    }
    assert HEADLINE_RUNS == 5
    more = [name for name, count in runs[False].items() if count == HEADLINE_RUNS]
    timed = ("truncate 100 ms", "defer 100 ms", "defer+eager 100 ms")
    systems = ("stock", "ideal", "off", "eager", *timed)
    assert sorted(more) == sorted(
        f"{workload}, {system}"
        for workload in ("random", "random, fstat first")
        for system in systems
    )
    assert {count for name, count in runs[False].items() if name not in more} == {1}
    assert set(runs[True].values()) == {1}


@pytest.mark.parametrize("device", FLASH)
@pytest.mark.parametrize("gain", gains.SHOWN, ids=lambda gain: gain.what)
def test_all_that_the_readme_shows_is_in_a_headline_and_has_five_runs(
    gain: gains.Gain, device: str
) -> None:
    one = study(gain.study)
    assert (gain.workload, gain.subject) in one.headline
    runs = {
        cell.system.name: one.runs_of(cell, quick=False)
        for cell in one.cells(device, quick=False)
        if cell.workload.name == gain.workload
    }
    assert (runs[gains.BASE], runs[gains.OURS]) == (HEADLINE_RUNS, HEADLINE_RUNS)


def test_what_was_run_once_is_the_first_of_five_runs() -> None:
    """It began at the same part of a tick, and its key says nothing of how many there are."""
    job = Job(study("files"), "6.12", load_profile("ufs"), quick=False)
    cell = next(one for one in job.cells if job.runs_of(one) == HEADLINE_RUNS)
    script = Script("true")
    once, first = (bash_of(job, cell, script, "/c", run=0, runs=n) for n in (1, HEADLINE_RUNS))
    assert first.splitlines() == [
        "PHASES=5" if line == "PHASES=1" else line for line in once.splitlines()
    ]
    assert "PHASE=0" in first.splitlines()  # 0 of 5 parts, as 0 of 1
    lone = replace(job, study=replace(job.study, headline=()))
    assert lone.runs_of(cell) == 1
    assert cell_record(lone, cell, {})["key"] == cell_record(job, cell, {})["key"]


@pytest.mark.parametrize("name", ["overwrite", "sqlite"])
def test_the_demo_measures_what_the_readme_has(name: str) -> None:
    assert {gains.BASE, gains.OURS} <= {one.name for one in study(name).quick.systems}
    assert "./fastsync run overwrite sqlite --quick" in (repo_root() / "Makefile").read_text()


@pytest.mark.parametrize("name", ["files", "git", "dpkg"])
def test_a_study_can_be_a_file_of_sixty_lines(name: str) -> None:
    file = repo_root() / "fastsync_lab" / "studies" / f"{name}.py"
    assert len(file.read_text().splitlines()) <= 60


@pytest.mark.parametrize("name", ["overwrite", "sqlite", "files", "git", "dpkg"])
@pytest.mark.parametrize("quick", [True, False])
def test_eager_syncing_is_measured_beside_the_modes(name: str, quick: bool) -> None:
    assert DEFER_EAGER in study(name).axes(quick=quick).systems


@pytest.mark.parametrize("name", EVERY)
def test_the_headline_is_of_workloads_that_there_are(name: str) -> None:
    workloads = {cell.workload.name for cell in study(name).cells("ufs", quick=False)}
    assert {workload for workload, _ in study(name).headline} <= workloads


def test_the_headline_of_fstat_is_of_the_device_that_it_names() -> None:
    def said(device: str) -> str:
        cells = [cell("stock", [9.0], workload=name) for name in ("random", fstat.FSTAT)]
        return in_markdown(fstat.slowed(result(cells, "fstat", device=device).lines))

    assert "every request 100 us" in said(fstat.DEVICE)
    assert said("emmc") == ""
