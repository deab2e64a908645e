"""Each place that notes what fsync has to commit, left out: the explorer has to see it.

tests/planted/tid-left-out.patch leaves out what one function of ext4 notes, in all three numbers:
i_sync_tid, i_datasync_tid and attr_tid of mtime_log.c. Where nothing is lost then, another function
notes the same, and the reason is here; if that goes, the test fails.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from fastsync_lab.crash.builds import prepare
from fastsync_lab.crash.case import Case, Outcome
from fastsync_lab.crash.explore import Explorer
from fastsync_lab.crash.layouts import move_ext
from fastsync_lab.crash.script import BLOCK, Script
from fastsync_lab.crash.singles import CREATE
from fastsync_lab.host.glue import assemble
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.host.progress import silent
from tests.vm.conftest import BY_THE_EXPLORER
from tests.vm.planted import each, functions_with, outcome_without, patch_of

pytestmark = BY_THE_EXPLORER

FAULT = patch_of("tid-left-out")
STATES = 20
NOTING = r"\b(ext4_update_inode_fsync_trans|ext4_tid_left_out)\([^)]"


def exchange() -> Script:
    """A file exchanges its contents with the boot loader's inode, which is as large.

    Once: a second exchange, not synced yet, would account for what the loss of the first one shows.
    """
    script = Script()
    script.file("f", 2 * BLOCK)
    script.do("swapboot", "f")
    script.do("write", "f", 0, 2 * BLOCK)
    script.begin()
    script.do("swapboot", "f")
    script.do("write", "f", 0, BLOCK)
    script.do("fdatasync", "f")
    return script


def small_overwrite() -> Script:
    """Data that the inode has room for changes; its size does not."""
    script = Script()
    script.file("f", 40)
    script.begin()
    for _ in range(2):
        script.do("write", "f", 0, 40)
        script.do("fdatasync", "f")
    return script


def filled_hole() -> Script:
    """A hole of a file is filled; its size does not change."""
    script = Script()
    script.file("f", BLOCK)
    script.do("write", "f", 8 * BLOCK, BLOCK)
    script.do("fsync", "f")
    script.begin()
    for block in (2, 4):
        script.do("write", "f", block * BLOCK, BLOCK)
        script.do("fdatasync", "f")
    return script


@dataclass(frozen=True)
class Left:
    """Which functions are left out, the script that comes to them, the kind of file system."""

    functions: tuple[str, ...]
    script: Script
    kind: str = "ordered"


CONVERT = ("convert_initialized_extent", "ext4_alloc_file_blocks", "ext4_zero_range")
LOSES = (
    Left(("ext4_do_update_inode",), each("chmod", "chown", "setxattr")),
    Left(("ext4_ext_handle_unwritten_extents",), each("use unwritten blocks", "fill a hole")),
    Left(("ext4_ext_map_blocks",), each("fill a hole", "store to a hole"), "dioread_lock"),
    Left(("__ext4_new_inode",), each(CREATE)),
    Left(("ext4_punch_hole",), each("punch")),
    Left(("ext4_swap_extents",), move_ext(random.Random(1))),
    Left(("swap_inode_boot_loader",), exchange()),
    Left(CONVERT, each("zero")),
    Left(("ext4_ind_map_blocks",), filled_hole(), "indirect"),
    Left(("ext4_write_inline_data_end",), small_overwrite(), "inline_data"),
)
# Why nothing is lost that only this function notes.
COVERED: Mapping[str, tuple[Script, str]] = {
    **{
        function: (each("zero", "zero in part"), "each of the three notes the same transaction")
        for function in CONVERT
    },
    "ext4_collapse_range": (each("take out"), "ext4_do_update_inode notes the new size"),
    "ext4_insert_range": (each("take in"), "ext4_do_update_inode notes the new size"),
    "ext4_mtime_update_fsync_trans": (
        each("overwrite"),
        "mtime_log.c has noted it beside the stamps",
    ),
    "ext4_mtime_log_metadata": (each("setxattr of many bytes"), "the function that logs notes it"),
}
# What no workload here reaches: eager_sync.
NOT_REACHED = {"ext4_eager_log_page"}


@pytest.fixture(scope="module")
def faulty(explorer_here: Explorer, kernel: str) -> Explorer:
    """It explores modules with the fault."""
    return replace(explorer_here, builds=prepare(kernel, silent, fault=FAULT))


@pytest.fixture(scope="module")
def places(tree: KernelTree, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The functions that note a transaction; some do not on an older kernel."""
    folder = tmp_path_factory.mktemp("source")
    assemble(tree, folder, stock=False, patches=[FAULT])
    files = (folder / "fs" / "ext4").glob("*.c")
    return {function for file in files for function in functions_with(file.read_text(), NOTING)}


def look(faulty: Explorer, places: set[str], left: Left) -> Outcome:
    """What the explorer says without what the functions note."""
    if not places.issuperset(left.functions):
        pytest.skip("they note nothing on this kernel")
    case = Case("one-by-one", "defer", left.kind)
    names = {"ext4.leave_out": ",".join(left.functions)}
    return outcome_without(faulty, case, left.script, STATES, names)


@pytest.mark.parametrize("left", LOSES, ids=lambda left: left.functions[0])
def test_loss_is_found(faulty: Explorer, places: set[str], left: Left) -> None:
    assert look(faulty, places, left).failures != []


@pytest.mark.parametrize("function", COVERED)
def test_what_another_notes_is_not_lost(faulty: Explorer, places: set[str], function: str) -> None:
    script, _reason = COVERED[function]
    assert look(faulty, places, Left((function,), script)).failures == []


def test_every_place_is_looked_at(places: set[str]) -> None:
    known = {*(name for left in LOSES for name in left.functions), *COVERED, *NOT_REACHED}
    assert places and places <= known, sorted(places - known)
