"""eager_sync: a burst waits a moment for those who sync all the time, and for nobody else."""

import re

import pytest

from tests.vm.conftest import IN_TIME
from tests.vm.eagerfs import OPTIONS, stats
from tests.vm.guestfs import MNT, GuestFs
from tests.vm.tracing import trace_requests

pytestmark = [pytest.mark.usefixtures("bursts"), IN_TIME]

TASKS, ROUNDS = 6, 20
WAIT = re.compile(r"jbd2_burst_gather: .* of (\d+) there were (\d+), are (\d+)")


def make_files(fs: GuestFs) -> None:
    fs.vm.run(f"cd {MNT}; for n in $(seq {TASKS}); do echo $n >w$n; done; sync")


def waits(fs: GuestFs, *tasks: str) -> list[tuple[int, ...]]:
    """Each wait of a burst, while tasks do this: how many are expected, there before, and after."""
    traced = trace_requests(fs.vm, fs.together(*tasks), "jbd2_burst/jbd2_burst_gather")
    return [tuple(map(int, match.groups())) for match in WAIT.finditer(traced.text)]


@pytest.mark.short
def test_those_who_sync_all_the_time_are_in_each_burst(slow_flushes: GuestFs) -> None:
    with slow_flushes.mounted(OPTIONS):
        make_files(slow_flushes)
        before = int(stats(slow_flushes)["bursts"])
        seen = waits(slow_flushes, *["append fsync " * ROUNDS] * TASKS)
        found = stats(slow_flushes)
    # Without a wait each is in every second burst: there are twice as many.
    bursts = int(found["bursts"]) - before
    assert ROUNDS <= bursts <= ROUNDS * 1.5, seen
    assert int(found["joined"]) == sum(after - there for _, there, after in seen)
    assert int(found["joined"]) > ROUNDS * TASKS / 2
    assert int(found["join_waits_us"]) > 0


def test_one_task_is_never_waited_for(slow_flushes: GuestFs) -> None:
    with slow_flushes.mounted(OPTIONS):
        make_files(slow_flushes)
        assert waits(slow_flushes, "append fsync " * ROUNDS) == []
        found = stats(slow_flushes)
    assert found["joined"] == found["join_waits_us"] == "0"


def test_who_comes_now_and_then_is_seldom_waited_for(slow_flushes: GuestFs) -> None:
    """Beside one who is always there; a wait in vain makes the next ones rarer."""
    rare, times = "append fsync sleep:150 ", 16
    with slow_flushes.mounted(OPTIONS):
        make_files(slow_flushes)
        seen = waits(slow_flushes, "append fsync " * 150, rare * times)
    in_vain = [wait for wait in seen if wait[1] == wait[2]]
    # Each time there are two chances to wait: in the burst that it is in, and in the next one.
    # 1, 3, 7, then 15 of them pass: it is waited for the 1st, 2nd, 4th, 8th and 16th time.
    assert 1 <= len(in_vain) <= 5, seen
