"""eager_sync: what has been promised is there after a crash, whatever else is done to the file."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine.vm import Vm
from tests.vm.conftest import compile_program
from tests.vm.eagerfs import OPTIONS, run
from tests.vm.guestfs import FILE, MNT, NO_PERIODIC_COMMIT, GuestFs, parse_events

pytestmark = pytest.mark.usefixtures("bursts")

# Another file, synced before, whose fsync commits what is running.
OTHER = f"file:{MNT}/h open chmod:600 fsync"


@pytest.fixture(scope="module")
def swapped(vm: Vm, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the guest finds the swapped program."""
    return vm.stage(compile_program("swapped", tmp_path_factory.mktemp("swapped")))


@pytest.mark.short
def test_logged_data_survives_a_crash(fs: GuestFs) -> None:
    """And is nowhere else."""
    with fs.mounted(OPTIONS):
        fs.prepare()
        (after,) = run(
            fs,
            "dd if=/dev/urandom of=$f bs=4k count=3 seek=16 conv=notrunc,fsync status=none; s; "
            "cut f; (same f) 2>/dev/null && exit 5; kept f",
        )
    assert after["unsettled_blocks"] >= 3


def test_a_direct_write_that_must_not_wait(fs: GuestFs) -> None:
    """Nor does it, but has the log settled, and goes through once that has been."""
    with fs.mounted(OPTIONS):
        fs.prepare()
        seen = fs.vm.run(
            f"o() {{ {fs.fsops_path} {FILE} open $@ || exit; }}\n"
            "o append fsync nowait:3 sleep:1000\n"
            # What is cached would block as well.
            "echo 1 >/proc/sys/vm/drop_caches; o nowait:3"
        ).stdout
    first, second = parse_events(seen)
    assert (first["written"], second["written"]) == (0, 3)


# --- write-back --------------------------------------------------------------------------------

# Each ends with a sync that promises what the page cache shows.
NEWER = {
    "in place, then logged": "create write fsync write writeback waitfirst fsync",
    "in place, fdatasync": "create write fsync write writeback waitfirst fdatasync",
    "in place twice": "create write fsync write writeback waitfirst writeback waitfirst fsync",
    "in place, unsynced, newer": (
        "create write fsync write writeback waitfirst write fsync write writeback waitfirst fsync"
    ),
    "as logged, then newer in place": (
        "create write fsync writeback waitfirst write writeback waitfirst fsync"
    ),
    "more than the threshold": (
        "create overwrite:12288 fsync overwrite:24576 writeback waitfirst fsync"
    ),
    "larger than the threshold behind it": (
        "create overwrite:12288 fsync write writeback waitfirst overwrite:20480,12288 fsync"
    ),
    "stored": "create write fsync mwrite writeback waitfirst msync",
    "under write-back": "create write fsync write writeback fsync",
    "sync": "create write fsync write writeback waitfirst sync",
    "syncfs": "create write fsync write syncfs",
    "O_SYNC": "create write fsync owrite writeback waitfirst owrite",
    "by settling": "create write fsync sleep:6000 write fsync sleep:6000 write fsync",
}


@pytest.mark.parametrize("how", NEWER)
def test_newest_promise_is_kept(fs: GuestFs, how: str) -> None:
    with fs.mounted(f"{OPTIONS},eager_sync=4"):
        run(fs, f"o $m/g {NEWER[how]}; cut_keeps g")


def test_what_was_not_synced_is_either(fs: GuestFs) -> None:
    """A crash brings back what was promised, though the place had something newer."""
    with fs.mounted(OPTIONS):
        run(fs, "o $m/g create write fsync; cut g; o $m/g open sleep:0 sleep:0 write writeback "
            "waitfirst crash:$img; cmp -s $m/g /dev/shm/want.g && exit 5; kept g")  # fmt: skip


def test_evicted_and_read_again(fs: GuestFs) -> None:
    """Its pages are clean, it has copies, and does not know of them."""
    with fs.mounted(OPTIONS):
        before, after, last = run(
            fs,
            "o $m/g create write fsync write fsync sync; s; echo 3 >/proc/sys/vm/drop_caches\n"
            "o $m/g open sleep:0 write fdatasync; s; cut_keeps g\n"
            "o $m/g open append fsync sync; echo 3 >/proc/sys/vm/drop_caches\n"
            "o $m/g open chmod:600 fsync; s; cut_keeps g",
        )
    assert before["unsettled_blocks"] > 0
    assert after["in_place_no_new_blocks"] == before["in_place_no_new_blocks"] + 1
    assert after["settlings"] == before["settlings"] + 1
    assert last["settlings"] <= after["settlings"] + 1


# --- freeing -----------------------------------------------------------------------------------

FREED = {
    "unlink": "rm $m/g",
    "truncate": "o $m/g open truncate:0",
    "O_TRUNC": ": >$m/g",
    "shorter": "o $m/g open truncate:4096",
    "rename": "mv $m/h $m/g",
}


# Blocks of a file, one a line; what is left for the second file is what the first has given back.
BLOCKS = """
blocks() {  # as a crash leaves them: FIEMAP would have the log settled
    cut_keeps >/dev/null
    debugfs -R "blocks /$1" $img 2>/dev/null | tr ' ' '\\n' | grep . | sort
}
fill() {  # it takes what there is, then fails
    echo 0 >/sys/fs/ext4/${FASTSYNC_DEV##*/}/reserved_clusters
    for n in 1 2 3; do fallocate -l 64M $m/big.$n 2>/dev/null; done
    [ $(stat -f -c %f $m) = 0 ] || exit 5
}
"""


@pytest.mark.parametrize("settled", ["", "settle"])
@pytest.mark.parametrize("how", FREED)
def test_freed_blocks_are_their_next_owners(
    fs: GuestFs, tree: KernelTree, how: str, settled: str
) -> None:
    """The disk is full but for blocks that have copies: another file gets them, in place."""
    with fs.mounted(OPTIONS, mkfs="-m 0"):
        fs.prepare()
        before, freed, after, last = run(
            fs,
            f"{BLOCKS}settle; o $m/h create; o $m/k create write fsync\n"
            "o $m/g create overwrite:32768 fsync; fill; sync; blocks g >/dev/shm/g; s\n"
            f"{FREED[how]}; sync $m; s; {settled or ':'}\n"
            "o $m/n create sleep:0 overwrite:20480 fdatasync; s; blocks n >/dev/shm/n\n"
            "cut n k; s; [ $(comm -12 /dev/shm/g /dev/shm/n | wc -l) = 5 ] || exit 6; kept n k",
        )
    assert freed["revokes"] - before["revokes"] == (7 if how == "shorter" else 8)
    assert before["unsettled_blocks"] - freed["unsettled_blocks"] == freed["revokes"]
    assert after["data_blocks"] == freed["data_blocks"]  # nearly full: nothing is put off
    # The log still has what was freed; a debug kernel takes longer than the log keeps it.
    assert tree.variant or last["settlings"] == before["settlings"] + (settled != ""), (
        before,
        freed,
        after,
        last,
    )


def test_crash_before_the_blocks_are_freed(fs: GuestFs) -> None:
    """The new size, or the file's end, is on the medium; recovery frees what it had."""
    with fs.mounted(OPTIONS):
        run(
            fs,
            "o $m/h create write fsync\n"
            "for how in truncate:0 truncate:4096 truncate:5000 'truncate:0 append fsync'; do\n"
            f"o $m/g create overwrite:32768 fsync $how {OTHER}; cut_keeps g h; rm $m/g; done\n"
            f"o $m/g create overwrite:32768 fsync; rm $m/g; o $f {OTHER}; cut_keeps h\n"
            "debugfs -R 'stat /g' $img 2>&1 | grep -q 'not found' || exit 6\n"
            # Written and not synced: it is nothing, zeros, or there, but not what was before.
            f"o $m/g create overwrite:32768 fsync truncate:0 append {OTHER}; cut_keeps h\n"
            "debugfs -R 'dump /g /dev/shm/got' $img 2>/dev/null; cp $m/g /dev/shm/want.g\n"
            "[ -e /dev/shm/got ] || exit 10; cmp -s /dev/shm/got /dev/shm/want.g ||"
            " [ $(tr -d '\\0' </dev/shm/got | wc -c) = 0 ] || exit 11",
        )


# --- whoever else changes blocks -----------------------------------------------------------------

# The file has copies of eight blocks; each ends with a sync.
CHANGES = {
    "direct write": "dwrite fdatasync",
    "direct write of another process": f"awrite {OTHER}",
    "direct write, then a page": "dwrite write fsync",
    "punch": "falloc:3,0,8192 fsync",
    "punch in part": "falloc:3,100,8000 fsync",
    "punch, then a page": "falloc:3,0,8192 write fsync",
    "zero": "falloc:16,4096,8192 fsync",
    "zero in part": "falloc:16,100,8000 fsync",
    "zero, then a page": "falloc:16,0,8192 write fdatasync",
    "collapse": "falloc:8,4096,4096 fsync",
    "collapse, then a page": "falloc:8,0,8192 write overwrite:4096,8192 fsync",
    "insert": "falloc:32,4096,4096 fsync",
    "insert, then a page": "falloc:32,0,8192 overwrite:8192 fsync",
    "preallocate": "falloc:1,32768,8192 overwrite:4096,32768 fsync",
    "shrink and grow": f"truncate:5000 truncate:20000 {OTHER}",
    "shrink and grow by a write": "truncate:1000 overwrite:100,9000 fsync",
    "shrink and sync": "truncate:5000 fsync truncate:20000 fsync",
    "shrink to a block": f"truncate:4096 truncate:20000 {OTHER}",
    "truncate and write": "truncate:0 overwrite:8192 fsync",
    "grow": "truncate:40000 overwrite:100,39000 fsync",
    "data=journal": "flags:4000 write fsync",
    "not evicted, in place": "dwrite append fsync write fsync append fsync",
}


@pytest.mark.parametrize("how", CHANGES)
def test_changed_blocks_are_what_they_became(fs: GuestFs, how: str) -> None:
    with fs.mounted(OPTIONS):
        (before,) = run(
            fs,
            "o $m/h create write fsync; o $m/g create overwrite:32768 fsync; s\n"
            f"o $m/g open sleep:0 sleep:0 {CHANGES[how]}; cut_keeps g h",
        )
    assert before["unsettled_blocks"] == 9


@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
@pytest.mark.parametrize("how", ["move", "boot"])
def test_moved_blocks(fs: GuestFs, swapped: str, how: str, call: str) -> None:
    with fs.mounted(OPTIONS):
        before, after = run(
            fs,
            f"s; {swapped} {how} {call} $m/g || exit 5; s; cut_keeps g\n"
            "[ $(head -c 3 $m/g) = NNN ] || exit 6",
        )
    assert after["data_blocks"] > before["data_blocks"]


@pytest.mark.parametrize("newer", ["", "overwrite:4096 writeback waitfirst"])
def test_verity_vouches_for_what_was_logged(fs: GuestFs, newer: str) -> None:
    """The flag is committed with barriers: the tree, and the data, were written in place.

    Reading a file whose tree does not fit its data fails.
    """
    with fs.mounted(OPTIONS, mkfs="-O verity"):
        fs.prepare()
        before, synced, after = run(
            fs,
            f"s; o $m/g create overwrite:20000 append fsync {newer}; s\n"
            "o $f file:$m/g verity file:$f open chmod:600 fsync; s; cut_keeps g\n"
            "lsattr $m/g | grep -q '^[^ ]*V' || exit 5\n"
            "opened\n"
            "lsattr /dev/shm/m/g | grep -q '^[^ ]*V' || exit 10\n"
            "cmp /dev/shm/m/g /dev/shm/want.g || exit 11; umount /dev/shm/m",
        )
    assert synced["data_blocks"] > before["data_blocks"] and synced["unsettled_blocks"] > 0
    assert after["barriers_verity"] - synced["barriers_verity"] == 1
    assert after["unsettled_blocks"] == 0


# --- stores, renames, small blocks ---------------------------------------------------------------


@pytest.mark.parametrize("call", ["msync", "fsync", "fdatasync"])
def test_stores(fs: GuestFs, call: str) -> None:
    """In a block with a copy, in an old one, in a hole, in one that is logged meanwhile."""
    with fs.mounted(OPTIONS):
        run(
            fs,
            f"o $m/g create write fsync mwrite {call} mwrite append fsync; cut_keeps g\n"
            f"settle; o $m/g open mwrite {call} append fsync mwrite {call}; cut_keeps g\n"
            f"o $m/h create truncate:8192 mwrite {call}; cut_keeps h\n"
            f"o $m/h open overwrite:4096,4096 fsync mwrite write {call}; cut_keeps g h",
        )


@contextmanager
def slow_reads(vm: Vm) -> Iterator[str]:
    """A device that has what is read half a second later."""
    vm.run(
        "modprobe brd rd_nr=1 rd_size=1024 && modprobe dm_delay && "
        "dd if=/dev/urandom of=/dev/ram0 bs=64k count=1 status=none && "
        "dmsetup create slow --table '0 2048 delay /dev/ram0 0 500' && dmsetup mknodes"
    )
    try:
        yield "/dev/mapper/slow"
    finally:
        vm.run("dmsetup remove slow; rmmod dm_delay brd")


@pytest.mark.parametrize("call", ["msync", "fsync", "fdatasync"])
def test_a_page_that_a_device_writes_while_another_syncs(fs: GuestFs, call: str) -> None:
    """The kernel tells of what was read into a mapping only if the page is clean by then."""
    with slow_reads(fs.vm) as device, fs.mounted(OPTIONS):
        before, after = run(
            fs,
            "o $m/g create write append fsync; s\n"
            f"o $m/g open later:250,fsync aread:{device} {call}; s; cut_keeps g\n"
            f"cmp -n 4096 $m/g {device} || exit 5",
        )
    assert after["in_place_failed"] > before["in_place_failed"]


def test_files_that_replace_each_other(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        new = f"file:{MNT}/new create overwrite:6000 append fsync rename:{MNT}/g"
        before, after = run(
            fs,
            f"s; o $f {new} fsync {new}; sync $m; s; cut_keeps g\n"
            f"o $f {new} {new}; sync $m; cut_keeps g",
        )
    assert after["barriers"] == before["barriers"]


def test_folios_of_many_blocks(fs: GuestFs) -> None:
    """Newer kernels have them: as many blocks are logged as have changed, wherever they lie."""
    with fs.mounted(OPTIONS):
        before, whole, parts = run(
            fs,
            "w() { dd if=/dev/urandom of=$m/g conv=notrunc status=none $*; }; s; "
            "w bs=64k count=2; w bs=100 count=1 seek=131072 oflag=seek_bytes; o $m/g open fsync; "
            "s; "
            "cut_keeps g; for b in 3 9 20; do w bs=4k count=1 seek=$b; done; o $m/g open fsync; s; "
            "cut_keeps g",
        )
    assert whole["data_blocks"] - before["data_blocks"] == 33
    assert parts["data_blocks"] - whole["data_blocks"] == 3
    assert not any(parts[name] for name in parts if name.startswith("in_place_"))


@pytest.mark.parametrize("size", [1024, 2048])
def test_small_blocks(fs: GuestFs, size: int) -> None:
    with fs.mounted(OPTIONS, mkfs=f"-b {size}"):
        fs.prepare()
        before, after = run(
            fs,
            "o $m/h create write fsync; s\n"
            "o $m/g create overwrite:1000 fsync overwrite:1000,1000 fsync overwrite:2500,6000 fsync"
            " overwrite:10,1030 overwrite:10,7200 fsync; s; cut_keeps g\n"
            "o $m/g open overwrite:1024,1024 writeback waitfirst overwrite:1024,2048 fsync;"
            "cut_keeps g\n"
            f"o $m/g open truncate:1500 truncate:7000 {OTHER}; cut_keeps g h\n"
            "o $m/g open overwrite:9000 fsync falloc:3,1024,3072 overwrite:1024,2048 fsync;"
            "cut_keeps g; rm $m/g; sync $m; cut_keeps h; settle; placed h",
        )
    assert after["data_blocks"] > before["data_blocks"]
    # What lies behind the old end in its block is zeroed for a write far behind it, as on stock.
    assert after["barriers_ordered"] - before["barriers_ordered"] == 1
    assert after["barriers"] - before["barriers"] == 1


# --- no room -----------------------------------------------------------------------------------


def test_full_disk_is_as_on_stock(fs: GuestFs) -> None:
    """How much goes in, and what the call says behind it; all of it is kept."""
    seen = []
    for options in ("", "eager_sync"):
        words = ",".join(filter(None, [options, NO_PERIODIC_COMMIT]))
        with fs.mounted(words):
            fs.prepare()
            text = fs.vm.run(
                f"fallocate -l $(($(stat -f -c %f {MNT}) * 4096 - 262144)) {MNT}/big; sync\n"
                f"{fs.fsops_path} {MNT}/g create " + "?append ?fsync " * 80 + "stat | tail -162"
            ).stdout
            run(fs, "cut_keeps g; rm $m/big; o $m/g open append fsync; cut_keeps g")
        seen.append([line for line in text.splitlines() if line.startswith("try")])
    assert len(seen[0]) == 160 and seen[0] == seen[1]
    assert set(seen[0]) == {'try {"errno": 0}', 'try {"errno": 28}'}


def test_quota_is_as_on_stock(fs: GuestFs) -> None:
    seen = []
    for options in ("", "eager_sync"):
        words = ",".join(filter(None, [options, NO_PERIODIC_COMMIT, "usrquota"]))
        with fs.mounted(words, mkfs="-O quota"):
            fs.prepare("chown:1000", "quota:1000,128")
            fs.vm.run(f"chmod 777 {MNT}")
            text = fs.vm.run(
                f"{fs.fsops_path} {MNT}/g setuid:1000 create " + "?append ?fsync " * 20
            ).stdout
            run(fs, "cut_keeps g; rm $m/g; sync $m; o $f open append fsync; cut_keeps f")
        seen.append(text)
    assert seen[0] == seen[1] and '"errno": 122' in seen[0]
