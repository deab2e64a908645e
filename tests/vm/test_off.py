"""Options off, or off again: the module behaves as the stock module built the same way.

Request by request.
"""

from itertools import groupby
from pathlib import Path

import pytest

from fastsync_lab.host.build import ModuleSet
from fastsync_lab.machine.vm import Vm
from tests.vm import eagerfs
from tests.vm.conftest import prepare
from tests.vm.guestfs import FIXED, GuestFs
from tests.vm.tracing import trace_requests

# Whether a second write falls into the tick of the first decides about a commit: hence "align".
WORK = [
    "align:100", "create", "write", "fsync", "write", "fsync", "align:100", "dwrite", "fsync",
    "append", "fsync", "align:100", "mwrite", "fsync", "chmod:600", "fsync", "align:100",
    "setxattr:user.a=b", "fdatasync", "utimens:5,5", "fsync", "align:100", "truncate:4096",
    "fsync", "falloc:0,65536,65536", "write", "fdatasync", "align:100", "awrite", "fsync",
    "uwrite", "fsync", "swrite", "align:100", "owrite", "stat", "write", "fsync", "sync", "stat",
]  # fmt: skip
# Bitmaps are not to be read ahead at a time that chance decides.
MOUNT_OPTIONS = "commit=300,no_prefetch_block_bitmaps"


def requests(vm: Vm, modules: ModuleSet, flashdev: Path, fsops: str) -> list[tuple[str, int, int]]:
    """Every request that a fixed workload makes: (kind, sector, sectors).

    Metadata that is written in place in one go is sorted: on a busy host a checkpoint may begin
    with another block of it.
    """
    fs = GuestFs(vm, fsops, prepare(vm, modules, flashdev))
    fs.mkfs(FIXED)
    traced = trace_requests(
        vm, f"{fsops} /mnt/f mount:{MOUNT_OPTIONS} {' '.join(WORK)} umount || exit"
    )
    found = [(one.rwbs, one.sector, one.sectors) for one in traced.requests]
    runs = groupby(found, key=lambda one: one[0] == "WM")
    return [one for in_place, run in runs for one in (sorted(run) if in_place else run)]


@pytest.mark.short
def test_requests_equal_those_of_the_stock_module(
    vm: Vm, fsops: str, modules: ModuleSet, stock_modules: ModuleSet, flashdev: Path
) -> None:
    ours = requests(vm, modules, flashdev, fsops)
    stock = requests(vm, stock_modules, flashdev, fsops)
    assert len(stock) > 60
    assert ours == stock


# Data is in the log when the option goes. Then the log is emptied, as it has to be for that.
BEFORE = """
o $f create overwrite:65536 fsync; o $m/h create append sync
o $f open append fsync append fsync overwrite:4096 fsync
o $m/g create append fsync rename:$m/k; sync $m
mount -o remount,{} $m || exit 4
settle; sleep 1
"""
SYNCS = {
    "append": "o $f open append fsync append append fsync append fdatasync",
    "create": "o $m/n create write fsync; o $m/o create append append fsync",
    "rename": "o $m/k rename:$m/n; sync $m; o $m/n rename:$m/h; sync $m; o $m/h open append fsync",
}


@pytest.mark.short
@pytest.mark.parametrize("work", SYNCS.values(), ids=SYNCS)
@pytest.mark.usefixtures("bursts")
def test_requests_behind_the_option_equal_those_of_the_stock_module(
    vm: Vm, fsops: str, modules: ModuleSet, stock_modules: ModuleSet, flashdev: Path, work: str
) -> None:
    """The kind of each request, and its bytes: the log goes on at another place."""
    seen = []
    in_force = {"bursts": 0, "data_blocks": 0}
    for loaded, option, remount in [
        (modules, "eager_sync=100", "un_eager_sync"),
        (stock_modules, "barrier", "barrier"),
    ]:
        fs = GuestFs(vm, fsops, prepare(vm, loaded, flashdev))
        fs.mkfs(FIXED)
        fs.mount(f"{MOUNT_OPTIONS},{option}")
        seen.append(eagerfs.requests(fs, work, before=BEFORE.format(remount)))
        if loaded is modules:
            (in_force,) = eagerfs.run(fs, "s")
        fs.umount()
        fs.vm.run(f"e2fsck -fn {fs.device}")
    assert in_force["bursts"] > 0 and in_force["data_blocks"] > 0
    assert len(seen[1]) > 4
    assert seen[0] == seen[1]
