"""eager_sync on a device without a volatile cache, where flushes cost nothing, and none is sent."""

from collections.abc import Iterator

import pytest

from tests.vm.eagerfs import requests, run, stats
from tests.vm.guestfs import MNT, NO_PERIODIC_COMMIT, GuestFs
from tests.vm.tracing import trace_requests

pytestmark = pytest.mark.usefixtures("bursts")

ADAPTS = f"eager_sync,{NO_PERIODIC_COMMIT}"
PAGE = 4096
TASKS, ROUNDS = 6, 20


@pytest.fixture
def uncached(slow_flushes: GuestFs) -> Iterator[GuestFs]:
    """It would take long to flush, if anybody did."""
    cache = f"/sys/block/{slow_flushes.node}/queue/write_cache"
    slow_flushes.vm.run(f"echo write through >{cache}")
    yield slow_flushes
    slow_flushes.vm.run(f"echo write back >{cache}")


def test_two_pages_are_logged_and_three_are_not(uncached: GuestFs) -> None:
    """Whatever the bursts before have shown: one of eight blocks tells what a block takes."""
    with uncached.mounted(ADAPTS):
        uncached.prepare()
        seen = run(
            uncached,
            "settle; s; o $m/one create append fsync; s\n"
            f"o $m/two create overwrite:{2 * PAGE} fsync; s\n"
            f"o $m/three create overwrite:{3 * PAGE} fsync; s\n"
            f"o $m/two open sleep:0 overwrite:{2 * PAGE} append fsync; s; cut_keeps one two three",
        )
    assert [one["worth_blocks"] for one in seen] == [2] * len(seen)
    logged = [after["data_blocks"] - seen[0]["data_blocks"] for after in seen]
    # What has copies is logged up to the threshold.
    assert logged == [0, 1, 3, 3, 6]
    large = [after["in_place_large"] - seen[0]["in_place_large"] for after in seen]
    assert large == [0, 0, 0, 1, 1]
    assert seen[-1]["barriers"] == seen[0]["barriers"]


def test_nothing_is_flushed(uncached: GuestFs) -> None:
    with uncached.mounted(ADAPTS):
        uncached.prepare()
        (before,) = run(uncached, "settle; o $f open append fsync; s")
        sent = requests(uncached, f"{uncached.fsops_path} {MNT}/f open append fsync append fsync")
        (after,) = run(uncached, "s")
    assert sent and not any(kind.startswith("F") for kind, _size in sent), sent
    assert after["bursts"] >= before["bursts"] + 2


def test_no_burst_waits_for_others(uncached: GuestFs) -> None:
    """With a cache they do: test_gather.py."""
    with uncached.mounted(ADAPTS):
        uncached.vm.run(f"cd {MNT}; for n in $(seq {TASKS}); do echo $n >w$n; done; sync")
        tasks = uncached.together(*["append fsync " * ROUNDS] * TASKS)
        traced = trace_requests(uncached.vm, tasks, "jbd2_burst/jbd2_burst_gather")
        found = stats(uncached)
    assert len(traced.requests) >= ROUNDS and "jbd2_burst_gather" not in traced.text
    assert found["joined"] == found["join_waits_us"] == "0"
