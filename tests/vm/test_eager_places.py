"""eager_sync: a place that does not hold what the log does is not read, and not forgotten."""

from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.host.build import ModuleSet, build_modules
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine.vm import Vm
from tests.vm.conftest import other_fs, prepare
from tests.vm.eagerfs import OPTIONS, run
from tests.vm.guestfs import (
    CAPACITY_MIB,
    FAIL_A_FLUSH,
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
LOST_READ = patch_of("eager-lost-place-read")
# What free blocks have; `old` says how much of it a file shows.
FILL = "tr '\\0' X </dev/zero | dd of=$m/old bs=1M status=none 2>/dev/null; sync; rm $m/old; sync"
FLUSH_MS = 400
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


@pytest.fixture
def two_leaves(vm: Vm, tree: KernelTree, flashdev: Path, fsops: str) -> GuestFs:
    """$f with each second block allocated, and not read yet; its extents are in two blocks.

    The modules' parameter not_held says which of their functions do not hold a file.
    """
    modules = build_modules(tree, fault=patch_of("eager-hold-left-out"))
    fs = GuestFs(vm, fsops, prepare(vm, modules, flashdev))
    blocks = " ".join(f"falloc:0,{8192 * i},4096" for i in range(400))
    fs.mkfs()
    fs.mount(f"{OPTIONS},errors=continue")
    run(fs, f"{FILL}; o $f create {blocks} fsync")
    fs.umount()
    fs.mount(f"{OPTIONS},errors=continue")
    return fs


@pytest.mark.parametrize("not_held", ["", "ext4_fallocate"])
def test_a_hole_that_cannot_be_punched(two_leaves: GuestFs, not_held: str) -> None:
    """Its pages have been dropped: the places hold what they did, unless the file was not held."""
    script = f"""
    echo {not_held} >/sys/module/ext4/parameters/not_held
    o $f open overwrite:4096,81920 fsync; s
    ({FAIL_ALL.format("read")})
    fallocate -p -o 4096 -l 3M $f 2>/dev/null; echo stats punched $?
    {FAIL_NONE}; echo 3 >/proc/sys/vm/drop_caches
    echo stats old $(dd if=$f bs=4k skip=20 count=1 status=none | tr -cd X | wc -c)
    echo >/sys/module/ext4/parameters/not_held
    """
    synced, punched, shown = run(two_leaves, script)
    two_leaves.umount()
    sound_log(two_leaves.vm, device_fails=True)
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
        f"({FAIL_ONE.format('write')}); o $f open writeback sleep:7000 crash:$img; kept f\n"
        f"[ $(cat /sys/fs/ext4/{fs.node}/errors_count) = 1 ]",
    )
    fs.umount()
    assert "Aborting journal" in sound_log(fs.vm, device_fails=True)


@pytest.mark.parametrize("not_held", ["", "ext4_evict_inode"])
def test_what_write_back_leaves_is_in_its_place_before_an_unmount_drops_it(
    two_leaves: GuestFs, not_held: str
) -> None:
    """No block can be allocated where the extents cannot be read: each try gives one hole up."""
    holes = " ".join(f"overwrite:4096,{8192 * i + 4096}" for i in range(20))
    script = f"""
    echo {not_held} >/sys/module/ext4/parameters/not_held
    o $f open append fsync; s
    o $f open {holes}; echo 1 >/proc/sys/vm/drop_caches
    ({FAIL_ALL.format("read")}); umount $m || exit 5; {FAIL_NONE}
    echo >/sys/module/ext4/parameters/not_held
    """
    (synced,) = run(two_leaves, script)
    sound_log(two_leaves.vm, device_fails=True)
    two_leaves.mount(OPTIONS)
    (shown,) = run(two_leaves, "echo stats old $(tail -c 4096 $f | tr -cd X | wc -c)")
    two_leaves.umount()
    assert synced["data_blocks"] == 1
    assert (shown["old"] > 0) == bool(not_held)


@pytest.mark.short
@pytest.mark.parametrize("pages", [1, 16])
def test_memory_that_is_bad_does_not_replace_what_the_log_has(fs: GuestFs, pages: int) -> None:
    """Many pages that are written at once are one folio, which cannot be split while it is dirty.

    So the kernel leaves it in the page cache, and write-back takes it for good.
    """
    fs.mkfs()
    fs.mount(OPTIONS)
    script = f"""
    dd if=/dev/urandom of=$f bs={pages * 4096} count=1 status=none; o $f open fsync; s
    cp $f /dev/shm/want.f
    {fs.fsops_path} $f poison:{pages // 2}; [ $? = 135 ] || exit 5
    o $m sleep:7000 crash:$img; s; kept f
    """
    synced, after = run(fs, script)
    fs.umount()
    assert synced["data_blocks"] == pages
    assert "Aborting journal" in sound_log(fs.vm, device_fails=True)
    assert after["settlings_lost"] == 1


@pytest.mark.parametrize("how", ["-p", "-z", "-c"], ids=["punch", "zero", "collapse"])
def test_no_page_goes_before_its_place_is_written(fs: GuestFs, how: str) -> None:
    """A journal has been aborted: fallocate starts no handle, but drops pages before it finds out.

    What has been synced is in the log and in the page cache alone.
    """
    fs.mkfs()
    fs.mount(OPTIONS)
    script = f"""
    {FILL}
    o $m/g create; o $f create append append fsync; s
    ({FAIL_A_FLUSH}); o $m/g open chmod:600 '?fsync'; sleep 6
    fallocate {how} -o 0 -l 4096 $f 2>/dev/null; echo stats changed $?
    old $f
    """
    synced, changed, shown = run(fs, script)
    fs.umount()
    assert "Aborting journal" in sound_log(fs.vm, device_fails=True)
    assert synced["data_blocks"] == 2 and changed["changed"] != 0
    assert shown["old"] == 0


@pytest.mark.parametrize("before", ["", "map"], ids=["", "mapped"])
def test_nobody_reads_the_place_of_a_first_write_that_has_failed(fs: GuestFs, before: str) -> None:
    """It has what another file has left there."""
    fs.mkfs()
    fs.mount(OPTIONS)
    script = f"""
    {FILL}
    o $f create append fsync; s
    ({FAIL_ONE.format("write")}); old $f open {before} writeback sleep:7000 forget
    """
    synced, shown = run(fs, script)
    fs.umount()
    assert "Aborting journal" in sound_log(fs.vm, device_fails=True)
    assert synced["data_blocks"] == 1 and shown["old"] == 0


@pytest.mark.parametrize("fault", [None, LOST_READ], ids=["", LOST_READ.stem])
def test_nobody_logs_what_a_lost_place_has(
    vm: Vm, tree: KernelTree, flashdev: Path, fsops: str, fault: Path | None
) -> None:
    """A settling has yet to abort the journal, and writes another file's place."""
    modules = build_modules(tree, fault=fault)
    profile = replace(UNIFORM, write_ns=WRITE_MS * MS)
    script = f"""
    printf %100s v >$m/a; o $m/a open fsync; cp $m/a /dev/shm/want.a
    o $f create append fsync; s
    ({FAIL_ONE.format("write")})
    o $m/a open writeback '?waitfirst' forget '?append' '?fsync' crash:$img
    (kept a); echo stats lost $?
    """
    with other_fs(vm, fsops, modules, flashdev, profile, CAPACITY_MIB) as fs:
        fs.mkfs()
        fs.mount(OPTIONS)
        synced, shown = run(fs, script)
        fs.umount()
    assert "Aborting journal" in sound_log(vm, device_fails=True)
    assert synced["data_blocks"] == 2
    assert (shown["lost"] != 0) == (fault is not None)


@pytest.mark.parametrize("block", [4096, 1024])
def test_a_block_that_was_never_logged_is_given_up(fs: GuestFs, block: int) -> None:
    """It is lost, as on stock. What the log has of the file is not: nothing is aborted.

    The blocks beside it have copies, and stock would give up one page behind, or all in its page.
    """
    options = f"{OPTIONS},errors=continue,no_prefetch_block_bitmaps"
    first, third = f"0,{block}", f"{2 * block},{block}"
    fs.mkfs(f"-b {block}")
    fs.mount(options)
    run(fs, f"o $f create falloc:0,{first} falloc:0,{third} fsync")
    fs.umount()
    fs.mount(options)
    script = f"""
    o $f open overwrite:{block} overwrite:{block},{2 * block} fsync; s
    o $f open overwrite:{block},{block}
    ({FAIL_ALL.format("read")}); o $f open '?writeback'; ({FAIL_NONE}); sleep 1
    echo stats given_up $(dmesg | grep -c 'Data will be lost')
    cut_keeps f; o $f open chmod:600 fsync
    """
    synced, shown = run(fs, script)
    fs.umount()
    assert "Aborting journal" not in sound_log(fs.vm, device_fails=True)
    assert synced["data_blocks"] == 2 and shown["given_up"] == 1


def test_a_write_that_fails_while_a_settling_ends(
    vm: Vm, fsops: str, modules: ModuleSet, flashdev: Path
) -> None:
    """The settling has written the places, and flushes; the next one aborts the journal at once."""
    profile = replace(UNIFORM, flush_ns=FLUSH_MS * MS)
    script = f"""
    o $f create append fsync file:$m/g create append fsync; s
    o $m/g open dwrite & settling=$!
    sleep {FLUSH_MS / 2000}; ({FAIL_ONE.format("write")}); o $f open overwrite:4096 writeback; s
    wait $settling; sleep 1
    echo stats aborted $(dmesg | grep -c 'Aborting journal')
    """
    with other_fs(vm, fsops, modules, flashdev, profile, CAPACITY_MIB) as fs:
        fs.mkfs()
        fs.mount(OPTIONS)
        synced, failed, settled = run(fs, script)
        fs.umount()
    sound_log(vm, device_fails=True)
    assert failed["settlings"] == synced["settlings"]
    assert settled["aborted"] == 1
