"""The table of the targets."""

import pytest

from fastsync_lab.host.paths import repo_root
from fastsync_lab.studies import studies
from fastsync_lab.study import pages
from fastsync_lab.study.documents import marks
from fastsync_lab.study.grid import markdown
from fastsync_lab.study.judge import Requirement, Where, judge
from fastsync_lab.study.store import full_results, load_result
from fastsync_lab.study.targets import place_of, targets_grid


def test_each_target_has_a_row() -> None:
    grid = targets_grid(studies())
    assert len(grid.lines) == sum(len(study.required) for study in studies().values())
    rows = [" | ".join(line) for line in grid.lines]
    assert (
        "`fstat` | truncate, defer | speed over stock | random, fstat first; Linux 7.2 | at least 2"
        in rows
    )
    assert (
        "`files` | eager, defer+eager | p99 over f2fs | appenders; on emmc, ufs, sata-ssd, nvme | "
        "at most 1" in rows
    )
    assert (
        "`interval` | truncate, defer | worst step of speed | everywhere | at least 0.998" in rows
    )
    assert (
        "`overwrite` | truncate, defer | share of stock's journal bytes saved | "
        "where stock has at least 6 | at least 0.97" in rows
    )
    assert (
        "`neighbour` | truncate, defer | speed over its own beside writes | beside stat + writes | "
        "at least 0.97" in rows
    )


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (Where(), "everywhere"),
        (Where(workloads=("a",), subjects=("",)), "a"),
        (Where(workloads=("a", "b"), subjects=("x",)), "a, b; x"),
        (Where(schedulers=("bfq",), devices=("ufs", "nvme")), "bfq; on ufs, nvme"),
        (Where(kernels=("6.1", "7.2")), "Linux 6.1, 7.2"),
    ],
)
def test_a_place_in_words(where: Where, said: str) -> None:
    assert place_of(Requirement("ops_per_s", where=where)) == said


def test_every_target_is_about_something_that_was_run() -> None:
    """Where its study was, on its kernels and devices: a wrong name leaves nothing to judge."""
    lines = [line for path in full_results() for line in load_result(path).lines]
    for name, study in studies().items():
        mine = [line for line in lines if line.place.study == name]
        for one in study.required:
            where = Where(devices=one.where.devices, kernels=one.where.kernels)
            there = {line.place.subject for line in mine if where.has(line.place)}
            if there:
                assert {*one.where.subjects, *one.over.subjects} <= there, one
                assert judge({name: [one]}, mine), one


def test_the_document_has_the_table_of_this_tree() -> None:
    begin, end = marks(pages.TARGETS_BLOCK)
    text = (repo_root() / "docs" / pages.EXPERIMENTS).read_text()
    assert text.split(begin)[1].split(end)[0].strip() == markdown(targets_grid(studies()))
