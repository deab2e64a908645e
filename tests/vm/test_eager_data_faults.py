"""Faults on purpose in what eager_sync does with data, one a rule; the explorer finds each."""

from dataclasses import replace

import pytest

from fastsync_lab.crash.case import Case
from fastsync_lab.crash.explore import Explorer
from tests.vm.conftest import BY_THE_EXPLORER
from tests.vm.planted import outcome_with

pytestmark = [
    pytest.mark.usefixtures("bursts"),
    BY_THE_EXPLORER,
]
BOUNDARIES = 1  # all of them, and no other state


def case(workload: str, mode: str = "eager", kind: str = "ordered") -> Case:
    return Case(f"logged-{workload}", mode, kind)


# Which workload has to show it. The rules are in kernel/ext4/eager_log.c.
PLANTED = {
    "eager-copy-missing": case("append"),
    "eager-direct-not-held": case("direct"),
    "eager-in-place-over-copies": case("scatter"),
    "eager-inode-left-out": case("holes"),
    "eager-mapping-not-protected": case("mapped"),
    "eager-newer-left-clean": case("rewrite"),
    "eager-no-floor": replace(case("churn"), seed=2),
    "eager-not-revoked": case("reuse"),
    "eager-places-not-awaited": case("still", "defer+eager", "lazytime"),
    "eager-places-not-written": case("scatter"),
    "eager-rest-not-zeroed": case("mapped"),
    "eager-settled-without-commit": case("vanish", "defer+eager", "lazytime"),
    "eager-settled-without-flush": case("direct"),
    "eager-size-not-logged": case("append"),
    "eager-sync-not-settled": case("rewrite"),
    "eager-taken-for-logged": case("rewrite"),
    "eager-window-lost": case("rewrite"),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_fault_is_found(explorer_here: Explorer, fault: str) -> None:
    assert outcome_with(explorer_here, fault, PLANTED[fault], BOUNDARIES).failures
