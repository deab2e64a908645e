"""Faults on purpose in bursts, which the tests of eager_sync and the explorer have to find."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fastsync_lab.crash.case import Case
from fastsync_lab.crash.explore import Explorer
from fastsync_lab.host.build import build_modules
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine.vm import Vm
from tests.vm import test_eager_ahead, test_eager_log, test_eager_places, test_eager_rules
from tests.vm.conftest import BY_THE_EXPLORER, prepare
from tests.vm.guestfs import MNT, GuestFs
from tests.vm.planted import outcome_with, patch_of, problems

pytestmark = pytest.mark.usefixtures("bursts")


def many_revokes(fs: GuestFs) -> None:
    test_eager_log.test_many_revokes_are_in_first_sectors(fs, "")


def failed_flush(fs: GuestFs) -> None:
    test_eager_log.test_failed_flush_or_write_aborts(fs, "flush")


def preallocated_before(fs: GuestFs) -> None:
    test_eager_ahead.test_what_is_left_is_what_it_is_without(fs, "preallocated before")


def pinned(fs: GuestFs) -> None:
    test_eager_rules.test_a_page_that_a_device_writes_while_another_syncs(fs, "fsync")


# Which test a fault makes fail, and a pattern of what that says then.
FOUND_BY_A_TEST: dict[str, tuple[Callable[[GuestFs], None], str]] = {
    "burst-revokes": (many_revokes, r"\d+ <= 512"),
    "burst-no-jump": (test_eager_log.test_stale_log_of_an_older_file_system, "no Mode:"),
    "burst-flush-error-ignored": (failed_flush, "assert 0 == 5"),
    "eager-pinned-logged": (pinned, "want.g differ"),
    "eager-ahead-frees-others": (preallocated_before, r"{'blocks': \d+"),
    "eager-zeroed-left-unwritten": (
        test_eager_ahead.test_what_a_neighbour_has_zeroed_is_settled,
        "want.g differ: byte 16385,",
    ),
    # Of these two the last line's comparison: other commands have other statuses.
    "eager-ahead-written": (
        test_eager_ahead.test_those_before_a_gap_stay,
        "failed with status 1:",
    ),
    "eager-ahead-pages-kept": (
        test_eager_ahead.test_a_write_that_failed_halfway,
        "failed with status 1:",
    ),
    "eager-inode-failure-ignored": (
        test_eager_log.test_an_inode_that_cannot_be_logged,
        "'Aborting journal' in",
    ),
    "eager-shrunk-not-in-place": (
        test_eager_log.test_a_truncate_that_fails_shows_nothing_old,
        "assert 4096 == 0",
    ),
    "eager-write-failure-ignored": (
        test_eager_places.test_a_failed_write_in_place_keeps_the_log,
        "want.f differ",
    ),
}
# Which workload of the explorer has to show it, and a word of the verdict.
FOUND_BY_THE_EXPLORER = {
    "burst-before-flush": (Case("attributes", "eager", "ordered"), "mount failed"),
    "burst-start-not-written": (Case("attributes", "eager", "ordered"), "missing: ['f', 'g']"),
    "burst-switched-in-use": (Case("logged-toggle", "eager", "ordered"), "size is"),
}
STATES = 60


@contextmanager
def broken(vm: Vm, tree: KernelTree, flashdev: Path, fsops: str, fault: str) -> Iterator[GuestFs]:
    """A file system of modules with a fault, and what the log says of it not looked at."""
    modules = build_modules(tree, fault=patch_of(fault))
    yield GuestFs(vm, fsops, prepare(vm, modules, flashdev))
    vm.run(f"umount -q {MNT}; rm -f /dev/shm/*.img", check=False)
    vm.kernel_log()


@pytest.mark.parametrize("fault", FOUND_BY_A_TEST)
def test_a_test_finds_it(vm: Vm, tree: KernelTree, flashdev: Path, fsops: str, fault: str) -> None:
    test, complaint = FOUND_BY_A_TEST[fault]
    with (
        broken(vm, tree, flashdev, fsops, fault) as fs,
        pytest.raises((AssertionError, FastsyncError), match=complaint),
    ):
        test(fs)


@BY_THE_EXPLORER
@pytest.mark.parametrize("fault", FOUND_BY_THE_EXPLORER)
def test_the_explorer_finds_it(explorer_here: Explorer, fault: str) -> None:
    case, verdict = FOUND_BY_THE_EXPLORER[fault]
    outcome = outcome_with(explorer_here, fault, case, STATES)
    assert outcome.failures and verdict in problems(outcome), problems(outcome)
