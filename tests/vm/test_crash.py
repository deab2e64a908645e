"""Power cuts: a slice of what `./fastsync crash all` explores, and faults that it has to find."""

import struct
from dataclasses import replace

import pytest

from fastsync_lab.crash.builds import delays_patch, prepare
from fastsync_lab.crash.case import Case, Request
from fastsync_lab.crash.explore import Explorer
from fastsync_lab.crash.extfs import Image
from fastsync_lab.crash.summary import failure_lines
from fastsync_lab.crash.workloads import make_script
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.host.options import CONTROL, EAGER_MODES
from fastsync_lab.host.paths import repo_root
from fastsync_lab.host.progress import silent
from tests.vm.conftest import BY_THE_EXPLORER, has_bursts, need_bursts
from tests.vm.guestfs import JOURNAL_INO
from tests.vm.planted import outcome_with, problems

pytestmark = BY_THE_EXPLORER

SLICE = (
    Case("overwrite", "off", "ordered"),
    Case("attributes", "truncate", "ordered"),
    Case("attributes", "defer", "ordered"),
    Case("random", "defer", "ordered"),
    Case("append", "defer", "fast_commit"),
    Case("mmap", "defer", "journal"),
    Case("threads", "defer", "ordered"),
    Case("mariadb-fsync", "defer", "ordered"),
    Case("one-by-one", "truncate", "1k-blocks"),
    Case("move-ext", "truncate", "ordered"),
    Case("move-ext", "defer", "ordered"),
    Case("swap-boot", "defer", "1k-blocks"),
    Case("shift", "defer", "bigalloc"),
    Case("inline", "truncate", "inline_data"),
    Case("aio", "defer", "lazytime"),
    Case("random", "truncate", "lazytime"),
    Case("io-uring", "defer", "ordered"),
    Case("logged-mix", "defer", "i_version"),
    Case("remount", "defer", "external"),
    Case("attributes", "defer", "small-inodes"),
    Case("append", "defer", "indirect"),
    Case("append", "defer", "nodelalloc"),
    Case("attributes", "eager", "ordered"),
    Case("append", "eager", "ordered"),
    Case("create", "defer+eager", "ordered"),
    Case("move-ext", "eager", "ordered"),
    Case("logged-mix", "eager", "ordered"),
    Case("logged-race", "defer+eager", "ordered"),
)
STATES = 30
DELAYED = (
    Case("threads", "defer", "ordered", delays=1),
    Case("remount", "defer", "ordered", delays=1),
    Case("logged-race", "defer+eager", "ordered", delays=1),
    Case("logged-toggle", "eager", "ordered", delays=1),
)
DELAYED_STATES = 20

# What each planted fault breaks: the workload that has to show it, and a word of the verdict.
PLANTED = (
    ("chmod-not-committed", Case("attributes", "defer", "ordered"), "mode is"),
    ("fsync-without-flush", Case("overwrite", "defer", "ordered"), "bytes"),
    ("fsync-without-flush", Case("mariadb-fsync", "defer", "ordered"), "was committed, what is"),
    ("size-not-committed", Case("append", "defer", "ordered"), "size is"),
    ("carried-record-too-early", Case("overwrite", "defer", "ordered"), "mount failed"),
    ("carried-record-beside-flush", Case("overwrite", "defer", "ordered"), "mount failed"),
    ("data-not-ordered", Case("create", "defer", "nodelalloc"), "show junk of sector"),
    ("group-late-member", Case("threads", "defer", "ordered"), "bytes"),
)
PLANTED_STATES = 60
# How a block of the log begins that ends a transaction (jbd2.h, big-endian).
BLOCK = 4096
JBD2_MAGIC, COMMIT = 0xC03B3998, 2


def known(cases: tuple[Case, ...], tree: KernelTree) -> tuple[Case, ...]:
    """Those whose mode the kernel's modules have."""
    return tuple(one for one in cases if one.mode not in EAGER_MODES or has_bursts(tree))


def test_nothing_that_was_promised_is_lost(explorer_here: Explorer, tree: KernelTree) -> None:
    outcomes = explorer_here.run(Request(known(SLICE, tree), STATES))
    assert [line for one in outcomes for line in failure_lines(one)] == []
    assert all(one.states - one.cuts >= STATES for one in outcomes)
    assert all(one.second_states and one.own_states for one in outcomes)


@pytest.mark.parametrize("mode", [CONTROL, "defer", *EAGER_MODES])
def test_the_log_is_full_of_an_earlier_life(
    explorer_here: Explorer, tree: KernelTree, mode: str
) -> None:
    """It has gone round: the oldest transaction lies behind the newest one."""
    if mode in EAGER_MODES:
        need_bursts(tree)
    case = Case("append", mode, "crashed")
    folder = explorer_here.record(case, make_script(case.workload, case.seed, 100))
    log = Image((folder / "base.img").read_bytes()).contents(JOURNAL_INO)
    heads = [struct.unpack_from(">3I", log, at) for at in range(BLOCK, len(log), BLOCK)]
    tids = [tid for magic, kind, tid in heads if (magic, kind) == (JBD2_MAGIC, COMMIT)]
    newest = tids.index(max(tids))
    assert tids[newest + 1 : newest + 2] == [min(tids)]


@pytest.mark.parametrize(
    ("fault", "case", "verdict"), PLANTED, ids=[f"{one[0]}-{one[1].workload}" for one in PLANTED]
)
def test_planted_fault_is_found(
    explorer_here: Explorer, fault: str, case: Case, verdict: str
) -> None:
    outcome = outcome_with(explorer_here, fault, case, PLANTED_STATES)
    assert outcome.failures and verdict in problems(outcome)
    after_one_cut = "/" not in outcome.failures[0].state
    assert after_one_cut == (outcome.second_states == 0)  # it ends with the first batch that fails
    assert f"--seed {outcome.case.seed} --state " in outcome.failures[0].command
    assert (repo_root() / outcome.failures[0].image).is_file()


def test_nothing_is_lost_when_tasks_change_places(
    explorer_here: Explorer, kernel: str, tree: KernelTree
) -> None:
    """The modules sleep between a choice and its use, where others come in."""
    builds = prepare(kernel, silent, fault=delays_patch())
    request = Request(known(DELAYED, tree), DELAYED_STATES)
    outcomes = replace(explorer_here, builds=builds).run(request)
    assert [line for one in outcomes for line in failure_lines(one)] == []
    assert all(one.states - one.cuts >= DELAYED_STATES for one in outcomes)
    assert all(one.second_states and one.own_states for one in outcomes)
