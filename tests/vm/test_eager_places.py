"""eager_sync: a place that does not hold what the log does is not read, and not forgotten."""

from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.host.build import build_modules
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine.vm import Vm
from tests.vm.conftest import other_fs, prepare
from tests.vm.eagerfs import OPTIONS, run
from tests.vm.guestfs import (
    CAPACITY_MIB,
    FAIL_ALL,
    FAIL_NONE,
    FAIL_ONE,
    MS,
    UNIFORM,
    GuestFs,
    sound_log,
)
from tests.vm.planted import patch_of

pytestmark = pytest.mark.usefixtures("bursts")

MAPPED = patch_of("eager-mapped-logged")
# What free blocks have.
FILL = "tr '\\0' X </dev/zero | dd of=$m/old bs=1M status=none 2>/dev/null; sync; rm $m/old; sync"
WRITE_MS = 500  # longer than the guest takes to start a program


@pytest.mark.parametrize("fault", [None, MAPPED], ids=["", MAPPED.stem])
def test_a_direct_read_of_a_hole_that_is_stored_to(
    vm: Vm, tree: KernelTree, flashdev: Path, fsops: str, fault: Path | None
) -> None:
    """It waits for another block to be written, then asks where the hole is.

    By then that has been stored to, and synced: if it was logged, its place has what was there.
    """
    modules = build_modules(tree, fault=fault)
    profile = replace(UNIFORM, write_ns=WRITE_MS * MS)
    script = f"""
    {FILL}
    o $m/g create truncate:8192 overwrite:4096,4096; s
    dd if=$m/g of=/dev/shm/got bs=8k iflag=direct status=none & read=$!
    sleep {WRITE_MS / 2500}; o $m/g open mwrite msync; s; wait $read || exit 5
    echo stats old $(tr -cd X </dev/shm/got | wc -c); rm /dev/shm/got
    """
    with other_fs(vm, fsops, modules, flashdev, profile, CAPACITY_MIB) as fs, fs.mounted(OPTIONS):
        before, after, shown = run(fs, script)
    assert after["in_place_mapped"] == before["in_place_mapped"] + (fault is None)
    assert (shown["old"] > 0) == (fault is not None)


@pytest.mark.parametrize("not_held", ["", "ext4_fallocate"])
def test_a_hole_that_cannot_be_punched(
    vm: Vm, tree: KernelTree, flashdev: Path, fsops: str, not_held: str
) -> None:
    """Its pages have been dropped: the places hold what they did, unless the file was not held."""
    modules = build_modules(tree, fault=patch_of("eager-hold-left-out"))
    fs = GuestFs(vm, fsops, prepare(vm, modules, flashdev))
    two_leaves = " ".join(f"falloc:0,{8192 * i},4096" for i in range(400))
    fs.mkfs()
    fs.mount(f"{OPTIONS},errors=continue")
    run(fs, f"{FILL}; o $f create {two_leaves} fsync")
    fs.umount()
    fs.mount(f"{OPTIONS},errors=continue")
    script = f"""
    echo {not_held} >/sys/module/ext4/parameters/not_held
    o $f open overwrite:4096,81920 fsync; s
    ({FAIL_ALL.format("read")})
    fallocate -p -o 4096 -l 3M $f 2>/dev/null; echo stats punched $?
    {FAIL_NONE}; echo 3 >/proc/sys/vm/drop_caches
    echo stats old $(dd if=$f bs=4k skip=20 count=1 status=none | tr -cd X | wc -c)
    echo >/sys/module/ext4/parameters/not_held
    """
    synced, punched, shown = run(fs, script)
    fs.umount()
    sound_log(vm, device_fails=True)
    assert synced["data_blocks"] == 1 and punched["punched"] != 0
    assert (shown["old"] > 0) == bool(not_held)


def test_a_failed_write_in_place_keeps_the_log(fs: GuestFs) -> None:
    """The journal aborts, and recovery brings the block back."""
    fs.mkfs()
    fs.mount(OPTIONS)
    fs.prepare()
    run(
        fs,
        "settle; o $f open append fsync; cp $f /dev/shm/want.f\n"
        f"({FAIL_ONE.format('write')}); o $f open writeback sleep:7000 crash:$img; kept f",
    )
    fs.umount()
    assert "Aborting journal" in sound_log(fs.vm, device_fails=True)
