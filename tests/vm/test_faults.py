"""I/O errors: a slice of what `./fastsync faults` does, and faults of ours that it must find."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from fastsync_lab.crash.builds import QEMU, prepare
from fastsync_lab.faults.compare import SAME_CALL, SAME_SORT, Case, Result, compare
from fastsync_lab.faults.layout import COMMIT_FLUSH, DATA, JOURNAL, RECORD, SYNC_FLUSH
from fastsync_lab.faults.sweep import Sweeper, sweeper
from fastsync_lab.host.options import CONTROL
from fastsync_lab.host.progress import silent
from tests.vm.planted import FAULTS


def case(workload: str, mode: str) -> Case:
    return Case(workload, mode, "remount-ro", dead=False)


# What each fault of ours breaks, and words of what is said of it.
PLANTED = {
    "carried-error-ignored": (case("overwrite", "defer"), "commit record"),
    "abort-not-noticed": (case("neighbours", "truncate"), "succeeded after that"),
}
SUBJECTS = [case("overwrite", "off"), *(one for one, _ in PLANTED.values())]


@pytest.fixture(scope="module")
def sweeper_here(kernel: str) -> Iterator[Sweeper]:
    """One guest for all tests."""
    with sweeper(prepare(kernel, silent, recover_in=QEMU)) as one:
        yield one


@pytest.fixture(scope="module")
def stock(sweeper_here: Sweeper) -> list[Result]:
    """What stock ext4 does, with the commit thread at work by itself in one of them."""
    return sweeper_here.run(
        [case(name, CONTROL) for name in ("overwrite", "neighbours", "periodic")]
    )


def test_faults_lead_to_what_they_lead_to_on_stock(
    sweeper_here: Sweeper, stock: list[Result]
) -> None:
    ours = sweeper_here.run(SUBJECTS)
    verdicts, differences = compare([*stock, *ours])
    assert differences == []
    failed = {fault.kind for result in ours for fault in result.faults}
    assert failed >= {DATA, JOURNAL, COMMIT_FLUSH, RECORD, SYNC_FLUSH}
    assert {one.rule for one in verdicts} >= {SAME_CALL, SAME_SORT}
    carried = [one for one in verdicts if one.case.mode == "defer" and one.fault.kind == RECORD]
    assert any(one.reaction.errno for one in carried)


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_fault_is_found(
    sweeper_here: Sweeper, stock: list[Result], kernel: str, fault: str
) -> None:
    subject, words = PLANTED[fault]
    broken = prepare(kernel, silent, fault=FAULTS / f"{fault}.patch", recover_in=QEMU)
    results = replace(sweeper_here, builds=broken).run([subject])
    differences = compare([*stock, *results])[1]
    assert any(words in text for text in differences), differences
