"""Faults on purpose in eager_sync for which the explorer has a script of its own.

Each reason that marks a transaction is left out, and each function that holds files:
tests/planted/burst-reason-left-out.patch has some reasons mark nothing, eager-hold-left-out.patch
has one function not hold the files whose blocks it changes. Where nothing is lost then, something
else does the same, and the reason is here; if that goes, the test fails.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from fastsync_lab.crash.builds import prepare
from fastsync_lab.crash.case import Case, Outcome
from fastsync_lab.crash.explore import Explorer
from fastsync_lab.crash.script import COLLAPSE, INSERT, Script
from fastsync_lab.crash.workloads import make_script
from fastsync_lab.host.glue import assemble
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.host.paths import repo_root
from fastsync_lab.host.progress import silent
from tests.vm import eager_scripts
from tests.vm.conftest import BY_THE_EXPLORER
from tests.vm.planted import each, functions_with, outcome_without, patch_of

pytestmark = [
    pytest.mark.usefixtures("bursts"),
    BY_THE_EXPLORER,
]

BOUNDARIES = 1  # all of them, and no other state


@dataclass(frozen=True)
class Left:
    """Reasons or a function, the script that comes to them, the kind of file system."""

    names: tuple[str, ...]
    script: Script
    kind: str = "ordered"
    states: int = 200


def look(
    explored: Explorer, fault: str, left: Left, parameters: Mapping[str, str] | None = None
) -> Outcome:
    """What the explorer says of the script, with a fault or without."""
    builds = prepare(explored.builds.tree.series, silent, fault=patch_of(fault) if fault else None)
    case = Case("one-by-one", "eager", left.kind)
    one = replace(explored, builds=builds)
    return outcome_without(one, case, left.script, left.states, parameters or {})


# --- faults without a parameter ------------------------------------------------------------------

BY_A_SCRIPT = {
    "burst-covered-before": Left((), eager_scripts.converted_behind_a_burst()),
    "eager-evicted-forgotten": Left((), eager_scripts.evicted(), states=BOUNDARIES),
}
REASONS, HOLDS = "burst-reason-left-out", "eager-hold-left-out"


@pytest.mark.parametrize("fault", BY_A_SCRIPT)
def test_a_script_shows_it(explorer_here: Explorer, fault: str) -> None:
    assert look(explorer_here, fault, BY_A_SCRIPT[fault]).failures != []


# --- what marks a transaction --------------------------------------------------------------------


def reasons() -> list[str]:
    """Their names, in the order of their bits."""
    text = (repo_root() / "kernel" / "jbd2" / "burst.h").read_text()
    return [name.lower() for name in re.findall(r"^\tJBD2_BURST_(\w+),\t/\*", text, re.M)]


def without_reasons(explored: Explorer, left: Left) -> Outcome:
    bits = sum(1 << reasons().index(name) for name in left.names)
    return look(explored, REASONS, left, {"jbd2.leave_out": str(bits)})


BLOCKS = each("use unwritten blocks", "fill a hole", "store to a hole")
EXPOSED = (
    Left(("converted",), eager_scripts.converted_behind_a_burst()),
    Left(("ordered",), eager_scripts.cut_and_grown_in_a_block()),
    Left(("moved",), eager_scripts.written_and_shifted()),
    Left(("ordered", "allocated"), BLOCKS, "dioread_lock"),
)
# Why nothing is lost without this reason alone.
COVERED: Mapping[str, tuple[Left, str]] = {
    "allocated": (Left(("allocated",), BLOCKS, "dioread_lock"), "the data is ordered, too"),
    "zeroed": (
        Left(("zeroed",), eager_scripts.zeroed_by_a_neighbour(), "dioread_lock"),
        "the neighbour for which they are zeroed is allocated, and ordered",
    ),
    "grown": (
        Left(("grown",), each("grow", "grow into unwritten blocks directly"), "dioread_lock"),
        "what the size shows has been allocated or converted by the same transaction, or before",
    ),
}
# What no workload comes to.
NO_REASONS = {"verity", "number_0"}


@pytest.mark.parametrize("left", EXPOSED, ids=lambda left: "-".join(left.names))
def test_what_is_not_marked_is_found(explorer_here: Explorer, left: Left) -> None:
    assert without_reasons(explorer_here, left).failures != []


@pytest.mark.parametrize("reason", COVERED)
def test_what_another_reason_marks_is_not_lost(explorer_here: Explorer, reason: str) -> None:
    left, _why = COVERED[reason]
    assert without_reasons(explorer_here, left).failures == []


def test_every_reason_is_looked_at() -> None:
    alone = {left.names[0] for left in EXPOSED if len(left.names) == 1}
    assert {*alone, *COVERED, *NO_REASONS} == set(reasons())


# --- who holds a file ----------------------------------------------------------------------------


def not_held(*functions: str, script: Script, kind: str = "ordered") -> Left:
    return Left(functions, script, kind, BOUNDARIES)


# The first of the functions does it; it may be a part of the second.
HELD = {
    "zero range": not_held(
        "ext4_fallocate", script=eager_scripts.zeroed_by_a_neighbour(), kind="dioread_lock"
    ),
    "collapse range": not_held("ext4_fallocate", script=eager_scripts.shifted(COLLAPSE)),
    "insert range": not_held("ext4_fallocate", script=eager_scripts.shifted(INSERT)),
    "move": not_held("ext4_move_extents", script=eager_scripts.moved()),
    "exchange": not_held("swap_inode_boot_loader", "__ext4_ioctl", script=eager_scripts.swapped()),
    "shrink": not_held("ext4_setattr", script=make_script("logged-cut", 1, BOUNDARIES)),
}
# What no workload comes to.
NOT_HELD = {
    *("ext4_begin_enable_verity", "ext4_change_inode_journal_flag", "ext4_iomap_swap_activate"),
    *("ext4_ext_migrate", "ext4_ind_migrate", "ext4_ioctl_setflags"),
}


@pytest.mark.parametrize("left", HELD.values(), ids=HELD)
def test_what_is_not_held_is_found(explorer_here: Explorer, left: Left) -> None:
    outcome = look(explorer_here, HOLDS, left, {"ext4.not_held": ",".join(left.names)})
    assert outcome.failures != []


def test_every_function_that_holds_is_looked_at(
    tree: KernelTree, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("source")
    assemble(tree, folder, stock=False)
    found = {
        name
        for file in (folder / "fs" / "ext4").glob("*.c")
        if not file.name.startswith("eager_")
        for name in functions_with(file.read_text(), r"ext4_eager_hold(_shrink)?\(")
    }
    assert found == {*(left.names[0] for left in HELD.values()), *NOT_HELD}


# --- nothing is found without a fault ------------------------------------------------------------

SCRIPTS = [*BY_A_SCRIPT.values(), *EXPOSED, *HELD.values()]


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(SCRIPTS)))
def test_unbroken_modules_lose_nothing(explorer_here: Explorer, number: int) -> None:
    assert look(explorer_here, "", SCRIPTS[number]).failures == []
