"""eager_sync: who has the log settled, and whose files it has no more: FIBMAP, swap, migration."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fastsync_lab.host.build import build_modules
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine.vm import Vm
from tests.vm.conftest import prepare
from tests.vm.eagerfs import OPTIONS, run
from tests.vm.guestfs import MNT, GuestFs
from tests.vm.planted import patch_of

pytestmark = pytest.mark.usefixtures("bursts")

# As small as a swap file may be: the inode has place for the numbers of its blocks.
FILE = "o $m/g create overwrite:40960; mkswap -q $m/g || exit 5; o $m/g open fsync"
NEWER = "overwrite:4096,32768 writeback sleep:20"
NO_SWAP = "swapoff $m/g 2>/dev/null"
EVENTS = {
    "FIBMAP": "filefrag -B $m/g >/dev/null",
    "FIEMAP": "filefrag $m/g >/dev/null",
    "swapon": "swapon $m/g",
    "to indirect blocks": "chattr -e $m/g",
    "and back": "chattr -e $m/g && chattr +e $m/g",
    "no page cache": "chattr +x $m/g",
}
# Functions that hold the file, and have it to themselves.
HOLDERS = (
    "ext4_iomap_swap_activate,ext4_ind_migrate,ext4_ext_migrate,"
    "ext4_ioctl_setflags,ext4_fileattr_set"  # who of the two, the compiler says
)
# Wherever the inode is: it may be in the log.
PLACED = """
    cut g; first=$(filefrag -v -b4096 $m/g | awk '$1 == "0:" {print $4 + 0}')
    dd if=$img bs=4k skip=$first count=10 status=none | cmp - /dev/shm/want.g || exit 7
    kept g
"""


def settled(fs: GuestFs, event: str, then: str, newer: str = "") -> tuple[int, int]:
    """How many settlings somebody has waited for, and blocks with copies that are left."""
    before, after = run(
        fs,
        f"trap '{NO_SWAP}' EXIT; settle; {FILE}; o $m/g open sleep:0 {newer}\n"
        f"s; {event} || exit 6; s; {then}",
    )
    assert before["unsettled_blocks"] == 10
    waited = after["settlings_past_cache"] - before["settlings_past_cache"]
    return waited, after["unsettled_blocks"]


@pytest.mark.parametrize("newer", ["", NEWER], ids=["", "newer"])
@pytest.mark.parametrize("what", EVENTS)
def test_the_data_is_in_its_place(fs: GuestFs, what: str, newer: str) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        assert settled(fs, EVENTS[what], PLACED, newer) == (1, 0)


# An inode that is not cached is read anew, and then nobody holds it; FIEMAP does not.
@pytest.mark.parametrize("what", [one for one in EVENTS if one not in ("no page cache", "FIEMAP")])
def test_it_is_not_logged_any_more(fs: GuestFs, what: str) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        settled(fs, EVENTS[what], "cut_keeps g")
        before, after = run(fs, "s; o $m/g open sleep:0 write append fsync; s; cut_keeps g")
    assert after["data_blocks"] == before["data_blocks"]
    assert after["in_place_held"] == before["in_place_held"] + 1


@pytest.fixture
def not_held(vm: Vm, tree: KernelTree, flashdev: Path, fsops: str) -> Iterator[GuestFs]:
    """Modules in which HOLDERS do not hold the files."""
    modules = build_modules(tree, fault=patch_of("eager-hold-left-out"))
    fs = GuestFs(vm, fsops, prepare(vm, modules, flashdev))
    vm.run(f"echo {HOLDERS} >/sys/module/ext4/parameters/not_held")
    yield fs
    vm.run(f"umount -q {MNT}; echo >/sys/module/ext4/parameters/not_held", check=False)


@pytest.mark.parametrize("what", [one for one in EVENTS if one not in ("FIBMAP", "FIEMAP")])
def test_it_is_not_settled_unless_the_file_is_held(not_held: GuestFs, what: str) -> None:
    with not_held.mounted(OPTIONS):
        not_held.prepare()
        assert settled(not_held, EVENTS[what], ":") == (0, 10)


def test_an_encrypted_file_is_not_logged(fs: GuestFs) -> None:
    with fs.mounted(f"{OPTIONS},test_dummy_encryption", mkfs="-O encrypt"):
        before, after = run(
            fs,
            f"s; o $m/g create append fsync append fsync; s; cut g; {KEPT_WITHOUT_DEBUGFS}",
        )
    assert after["data_blocks"] == before["data_blocks"]
    assert after["bursts"] + after["barriers"] > before["bursts"] + before["barriers"]


# The kernel has the key.
KEPT_WITHOUT_DEBUGFS = """
    opened test_dummy_encryption
    cmp /dev/shm/m/g /dev/shm/want.g || exit 8; umount /dev/shm/m; e2fsck -fn $img || exit 9
"""
