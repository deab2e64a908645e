"""eager_sync: who preallocates beside a sync does not have it touch the blocks of others.

A block is to be logged that was preallocated with its neighbours, one of which is being written in
place. If it became written as by any write, ext4 might write zeroes to the neighbour, behind the
write that is under way: its page is clean then, and its data lost. It may have been preallocated
before, or between the look at it and its allocation, where the modules wait
(tests/planted/eager-preallocation-converted.patch).
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.host.build import build_modules
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine.vm import Vm
from tests.vm.conftest import other_fs
from tests.vm.eagerfs import OPTIONS, run
from tests.vm.guestfs import FILE, MS, UNIFORM, GuestFs
from tests.vm.planted import patch_of

pytestmark = pytest.mark.usefixtures("bursts")

PARAMETERS = "/sys/module/ext4/parameters"
WRITE_MS = 400  # so that a write is under way when the sync goes on
LATE_MS = 2000
BLOCK = 4096
NEIGHBOUR, SYNCED, LAST = 8, 10, 11  # blocks of the file; the first to the last are preallocated


@pytest.fixture
def late(vm: Vm, tree: KernelTree, fsops: str, flashdev: Path) -> Iterator[GuestFs]:
    """A slow device, and modules whose syncs are late."""
    modules = build_modules(tree, fault=patch_of("eager-preallocation-converted"))
    profile = replace(UNIFORM, write_ns=WRITE_MS * MS)
    with other_fs(vm, fsops, modules, flashdev, profile, 64) as fs:
        yield fs


def is_kept(fs: GuestFs, script: str, *, converts: bool) -> bool:
    """Whether the file has on the medium what was written."""
    with fs.mounted(OPTIONS):
        run(
            fs,
            f"o $f create truncate:1048576 fsync; sync; cd {PARAMETERS}\n"
            f"echo {int(converts)} >planted_converts\n{script}\n"
            "cp $f /dev/shm/want; sync; echo 3 >/proc/sys/vm/drop_caches",
        )
        same = fs.vm.run(f"cmp {FILE} /dev/shm/want", check=False).status == 0
        fs.vm.run("rm /dev/shm/want")
    return same


WRITE = f"overwrite:{BLOCK}"
FALLOC = f"falloc:0,{NEIGHBOUR * BLOCK},{(LAST - NEIGHBOUR + 1) * BLOCK}"
SCRIPTS = {
    "meanwhile": (
        f"echo {LATE_MS} >planted_late_ms\n"
        f"o $f open {WRITE},{SYNCED * BLOCK} fsync & sleep {(LATE_MS - WRITE_MS / 2) / 1000}\n"
        f"o $f open {WRITE},{NEIGHBOUR * BLOCK} {FALLOC} writeback\n"
        "wait; echo 0 >planted_late_ms"
    ),
    "before": (
        f"o $f open {FALLOC} fsync; settle; o $f open {WRITE},{NEIGHBOUR * BLOCK} writeback\n"
        f"o $f open {WRITE},{SYNCED * BLOCK} fsync"
    ),
}


@pytest.mark.short
@pytest.mark.parametrize("preallocated", SCRIPTS)
def test_a_preallocation_beside_a_sync_costs_nobody_his_data(
    late: GuestFs, tree: KernelTree, preallocated: str
) -> None:
    assert is_kept(late, SCRIPTS[preallocated], converts=False)
    if tree.series == "7.2":  # 6.12 parts the neighbour from the rest before it writes it
        assert not is_kept(late, SCRIPTS[preallocated], converts=True)
