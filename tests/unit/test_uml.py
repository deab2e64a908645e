"""The processor of the host that a guest of User-Mode Linux keeps to."""

import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

from fastsync_lab.machine.uml import claimed_processor


def test_guests_keep_to_processors_of_their_own_as_long_as_there_are_any(tmp_path: Path) -> None:
    there = os.sched_getaffinity(0)
    with ExitStack() as stack:
        claimed = [stack.enter_context(claimed_processor(tmp_path))[0] for _ in there]
        assert set(claimed) == there
        with claimed_processor(tmp_path) as (one_more, _):
            assert one_more in there
    with claimed_processor(tmp_path) as (again, _):
        assert again == claimed[0]


def test_a_claim_holds_until_the_guest_has_ended_too(tmp_path: Path) -> None:
    with claimed_processor(tmp_path) as (first, claim):
        guest = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[claim])
    taken = len(os.sched_getaffinity(0)) > 1
    with claimed_processor(tmp_path) as (second, _):
        assert (second != first) == taken
    guest.communicate()
    with claimed_processor(tmp_path) as (third, _):
        assert third == first
