"""patches/upstream: what is lost on stock, each time, is kept once they are applied.

The power fails where a script says `cut`: the device then has what flushes and FUA writes have
covered, and nothing else. tests/vm/test_fast_commit.py and test_swapped_blocks.py have more.
"""

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.host.build import ModuleSet
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine.device import DeviceProfile
from fastsync_lab.machine.vm import Vm
from tests.vm.conftest import IN_TIME, other_fs
from tests.vm.eagerfs import burst_blocks
from tests.vm.guestfs import (
    CAPACITY_MIB,
    CRASH,
    CRASH_BEFORE,
    FILE,
    MNT,
    MS,
    NO_PERIODIC_COMMIT,
    UNIFORM,
    GuestFs,
    torn_image,
)

pytestmark = pytest.mark.short  # they are for one series each, most for 7.2

SLOW_READS = replace(UNIFORM, name="slow reads", read_ns=100 * MS)
SLOW_FLUSH = replace(UNIFORM, name="slow flush", flush_ns=100 * MS, fua_ns=100 * MS)
ONE_BY_ONE = replace(UNIFORM, name="one by one", write_ns=20 * MS, queue_depth=1)
SLOW_ZEROES = replace(UNIFORM, name="slow zeroes", discard_ns=100 * MS, write_mib_s=1)
FAST_COMMIT = "-O fast_commit"
OTHER = f"{MNT}/other"


@pytest.fixture(params=["stock", "mended"])
def which(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def fs(
    request: pytest.FixtureRequest,
    which: str,
    tree: KernelTree,
    vm: Vm,
    fsops: str,
    flashdev: Path,
) -> Iterator[GuestFs]:
    """The device that the test names; nobody looks at what the kernel complains of."""
    patch: str
    profile: DeviceProfile
    patch, profile = request.param
    if not patch.startswith(f"{tree.series}/"):
        pytest.skip(f"the patch is {patch}")
    modules: ModuleSet = request.getfixturevalue(f"{which}_modules")
    with other_fs(vm, fsops, modules, flashdev, profile, CAPACITY_MIB, lose_cache=True) as fs:
        yield fs
    vm.kernel_log()


def patch(name: str, profile: DeviceProfile = UNIFORM) -> pytest.MarkDecorator:
    """The patch that a test is for, and the device on which its loss is seen."""
    return pytest.mark.parametrize("fs", [(name, profile)], ids=[name], indirect=True)


def before_a_cut(fs: GuestFs, script: str) -> list[str]:
    """Run a script; the words that it prints."""
    tools = f"""
    f={FILE}; m={MNT}; other={OTHER}; device={fs.device}
    fail() {{ (cd /sys/module/flashdev/parameters
        echo "$1" >fail_kind; echo 1 >fail_count; echo "$2" >fail_from); }}
    o() {{ {fs.fsops_path} "$@"; }}
    cut() {{
        o $m shutdown:2; fail flush 1  # 2: EXT4_GOING_FLAGS_NOLOGFLUSH
        ! dd if=/dev/null of=$device conv=notrunc,fsync status=none 2>/dev/null || exit 4
    }}
    """
    return fs.vm.run(tools + script).stdout.split()


def after_it(fs: GuestFs, look: str) -> list[str]:
    """Recover; the words that a look at the files prints, if there is anything to look at."""
    fs.umount()
    if fs.mount(check=False).status != 0:
        return []
    words = fs.vm.run(f"f={FILE}; m={MNT}; {look}", check=False).stdout.split()
    fs.umount()
    return words


def start(fs: GuestFs, mkfs: str = "", options: str = NO_PERIODIC_COMMIT) -> None:
    """Two files, wholly on the medium, in a file system that leaves some room behind it."""
    fs.mkfs(mkfs, size="16M")
    fs.mount(options)
    fs.prepare()
    fs.vm.run(f"cp {FILE} {OTHER}; sync; touch {MNT}/x; rm {MNT}/x; sync")


@IN_TIME
@patch("7.2/0003", SLOW_FLUSH)
def test_data_written_in_the_second_half_of_a_fast_commit(fs: GuestFs, which: str) -> None:
    """Another one's: it flushes, then writes with FUA."""
    start(fs, FAST_COMMIT)
    before_a_cut(
        fs,
        """
        o $other open align:4000 sleep:20 write fsync &
        o $f open align:4000 write sleep:170 fsync
        cut; wait
        """,
    )
    assert (after_it(fs, r"head -c 1 $f | tr -d '\0'") != []) == (which == "mended")


@IN_TIME
@patch("7.2/0004", ONE_BY_ONE)
def test_a_fast_commit_of_several_blocks(fs: GuestFs, which: str) -> None:
    """Its first block waits for the device, which somebody else uses; the flush passes it."""
    start(fs, FAST_COMMIT)
    renames = " ".join(f"rename:{MNT}/{letter * 250}" for letter in "abcdefghijklmnop")
    before_a_cut(
        fs,
        f"""
        cd /sys/block/${{device#/dev/}}/queue && echo mq-deadline >scheduler && echo 64 >nr_requests
        for i in 1 2 3 4 5 6 7 8; do  # behind the file system
            dd if=/dev/zero of=$device bs=4k seek=$((5000 + i * 100)) count=20 oflag=direct \
                conv=notrunc status=none &
        done
        o $f open sleep:300 {renames} fsync
        cut; wait
        """,
    )
    assert (after_it(fs, "ls $m | grep -x 'p*'") != []) == (which == "mended")


@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
@patch("7.2/0005")
def test_a_sync_of_an_aborted_transaction(fs: GuestFs, which: str, call: str) -> None:
    """Another one's fsync, in the same transaction, is told; this one comes after that."""
    start(fs)
    words = before_a_cut(
        fs,
        f"""
        o $f open append writeback sleep:500 '?{call}' & last=$!
        sleep 0.2; fail flush 1; o $other open append '?fsync'
        wait $last
        cut
        """,
    )
    first, second = [int(word.rstrip("}")) for word in words if word.endswith("}")]
    assert first == errno.EIO
    assert second == (errno.EIO if which == "mended" else 0)
    assert after_it(fs, "stat -c %s $f") == ["65536"]


@patch("7.2/0006")
def test_a_failed_flush_before_the_tail_moves(fs: GuestFs, which: str) -> None:
    """The log has nothing but the chmod."""
    start(fs)
    words = before_a_cut(
        fs,
        """
        o $m checkpoint; o $f open chmod:600 fsync
        fail flush 1; o $m '?checkpoint'
        o $m shutdown:2
        """,
    )
    kept = which == "mended"
    assert (words[-1] != "0}") == kept
    assert (after_it(fs, "stat -c %a $f") == ["600"]) == kept


@IN_TIME
@patch("7.2/0009", SLOW_READS)
def test_a_commit_while_a_format_changes(fs: GuestFs, which: str) -> None:
    """The handle is restarted behind it, so another transaction ends the migration."""
    fs.mkfs("-O ^extent,^64bit,fast_commit")
    fs.mount()
    # A block of block numbers has its second one, and two the third.
    fs.vm.run(
        f"for at in 0 12 1036; do printf NNN |"
        f" dd of={FILE} bs=4k seek=$at conv=notrunc status=none; done; echo >{OTHER}; sync"
    )
    fs.umount()
    fs.vm.run(f"tune2fs -O extent {fs.device}")
    fs.mount(f"no_prefetch_block_bitmaps,{NO_PERIODIC_COMMIT}")
    # Each of these is read for 100 ms, and before they are freed the bitmap.
    before_a_cut(
        fs,
        """
        ls -l $m; touch $m/x; rm $m/x; sync
        chattr +e $f & chattr=$!
        o $other open sleep:150 chmod:600 fsync
        wait $chattr || exit 5
        o $f open fsync
        cut
        """,
    )
    assert (after_it(fs, "head -c 3 $f") == ["NNN"]) == (which == "mended")


@IN_TIME
@patch("7.2/0010", SLOW_ZEROES)
def test_new_blocks_during_a_resize(fs: GuestFs, which: str) -> None:
    """On stock recovery finds them behind the end of the file system, and the mount fails."""
    look = "stat -c %s $f; tail -c 1 $f"
    fs.mkfs("-O fast_commit,^flex_bg -m 0 -g 512 -E nodiscard", size="10M")
    fs.mount(f"noinit_itable,{NO_PERIODIC_COMMIT}")
    fs.vm.run(
        f"echo >{FILE}; for size in 64k 4k 4k 4k; do"
        f" dd if=/dev/zero bs=$size status=none >>{MNT}/fill; sync; done; true"
    )
    synced = before_a_cut(
        fs,
        f"""
        resize2fs $device >/dev/shm/resize 2>&1 & resize=$!
        until printf %08192d 7 2>/dev/null >>$f; do sleep 0.005; done
        o $f open fsync; {look}
        kill -0 $resize || exit 6
        cut; wait
        """,
    )
    assert synced[-1] == "7"
    assert (after_it(fs, look) == synced) == (which == "mended")


@pytest.mark.parametrize("has_record", [True, False])
@patch("7.2/0011")
def test_a_block_of_the_log_that_cannot_be_read(fs: GuestFs, which: str, has_record: bool) -> None:
    """Without a record nobody was told of the transaction."""
    start(fs, "-O ^metadata_csum", f"data=writeback,journal_async_commit,{NO_PERIODIC_COMMIT}")
    fs.ops("open", "chmod:600", "fsync", CRASH_BEFORE, "chmod:611", "fsync", CRASH)
    fs.umount()
    blocks = burst_blocks(fs)
    at, end = blocks[1] * 8, CAPACITY_MIB << 11
    words = before_a_cut(
        fs,
        f"""
        {torn_image(blocks, (8, 8, 8 * has_record))}
        dd if=/dev/shm/t.img of=$device bs=1M conv=fsync status=none
        printf '%s\\n' "0 {at} linear $device 0" "{at} 8 error" \\
            "{at + 8} {end - at - 8} linear $device {at + 8}" >/dev/shm/table
        modprobe dm_mod && dmsetup create bad </dev/shm/table && dmsetup mknodes || exit 5
        mount -t ext4 /dev/mapper/bad $m 2>/dev/null && {{ stat -c %a $f; umount $m; }}
        dmsetup remove --retry bad; mount -t ext4 $device $m || exit 6
        stat -c %a $f; umount $m; rm /dev/shm/*.img
        """,
    )
    fails = has_record and which == "mended"
    assert words == (["611"] if fails else ["600", "600"])


@patch("7.2/0012")
def test_a_folder_of_an_aborted_transaction(fs: GuestFs, which: str) -> None:
    start(fs)
    words = before_a_cut(
        fs,
        """
        mkdir $m/d; fail flush 1; o $other open chmod:601 '?fsync'
        sync $m 2>/dev/null; echo $?
        cut
        """,
    )
    assert (words[-1] != "0") == (which == "mended")
    assert after_it(fs, "ls -d $m/d 2>/dev/null") == []


@patch("7.2/0013")
def test_blocks_that_an_aborted_transaction_has_freed(fs: GuestFs, which: str) -> None:
    start(fs, options=f"discard,{NO_PERIODIC_COMMIT}")
    before_a_cut(
        fs,
        """
        printf NNN | dd of=$f conv=notrunc,fsync status=none; o $m checkpoint
        rm $f; fail flush 1; o $other open chmod:601 '?fsync'; sleep 1
        dd if=/dev/null of=$device conv=notrunc,fsync status=none
        cut
        """,
    )
    assert (after_it(fs, "head -c 3 $f") == ["NNN"]) == (which == "mended")


# An extent that cannot be split: the file's leaf is full, and so is the disk.
FULL_LEAF = """
put() { tr '\\0' "$2" </dev/zero | dd of=$f bs=4k count=1 seek=$1 iflag=fullblock \
    oflag=direct conv=notrunc status=none 2>/dev/null && echo $1; }
rm $f; fallocate -o 40k -l 128k $f; put 0 a; put 2 a; put 60 a
echo 0 >/sys/fs/ext4/${device#/dev/}/reserved_clusters
! dd if=/dev/zero of=$m/fill bs=4k oflag=direct status=none 2>/dev/null || exit 5
show() { dd if=$f bs=4k skip=$1 count=1 status=none | head -c 1 | tr '\\0' -; }
"""


def with_a_full_leaf(fs: GuestFs, script: str) -> list[str]:
    """The words of a script that writes into such an extent of $f, of 32 blocks from 10 on."""
    start(fs, "-m 0")
    words = before_a_cut(fs, FULL_LEAF + script)
    assert words[:3] == ["0", "2", "60"]
    return words[3:]


@patch("7.2/0014", ONE_BY_ONE)
def test_two_writes_to_an_extent_that_cannot_be_split(fs: GuestFs, which: str) -> None:
    """Who converts its block first zeroes the other one."""
    words = with_a_full_leaf(
        fs,
        """
        sync; put 20 b & put 30 c; wait
        echo 3 >/proc/sys/vm/drop_caches
        show 20; show 30
        """,
    )
    seen = words.pop()
    lost = [at for at, now in zip(("20", "30"), seen, strict=True) if at in words and now == "-"]
    assert (lost != []) == (which == "stock")


@patch("7.2/0014", ONE_BY_ONE)
def test_fsync_of_a_block_that_cannot_be_split_off(fs: GuestFs, which: str) -> None:
    """On stock the rest is zeroed, and nobody else's data are in it."""
    words = with_a_full_leaf(
        fs,
        """
        printf x | dd of=$f bs=4k seek=20 conv=notrunc,fsync status=none 2>/dev/null; echo $?
        echo 3 >/proc/sys/vm/drop_caches
        show 20
        """,
    )
    status, seen = words
    assert (status != "0") == (which == "mended")
    assert status != "0" or seen == "x"


@IN_TIME
@patch("7.2/0015", ONE_BY_ONE)
def test_blocks_allocated_while_a_fast_commit_flushes(fs: GuestFs, which: str) -> None:
    fs.vm.run(f"tr '\\0' S </dev/zero | head -c 16M >{fs.device}; sync")
    start(fs, f"{FAST_COMMIT} -E nodiscard", f"nodelalloc,nodioread_nolock,{NO_PERIODIC_COMMIT}")
    before_a_cut(
        fs,
        """
        o $f open chmod:601
        dd if=/dev/zero of=$m/large bs=1M count=1 status=none
        o $other open chmod:601 fsync &
        o $f open sleep:20 append; wait
        cut
        """,
    )
    assert (after_it(fs, "tail -c 4k $f | tr -cd S") != []) == (which == "stock")


@patch("6.12/0005")
def test_data_whose_journal_is_elsewhere(fs: GuestFs, external: str, which: str) -> None:
    start(fs, external)
    before_a_cut(fs, "o $f open append fsync; cp $f /dev/shm/want; cut")
    assert (after_it(fs, "cmp $f /dev/shm/want && echo same") == ["same"]) == (which == "mended")
    fs.vm.run("rm /dev/shm/want")


@patch("6.12/0001")
def test_a_failed_write_at_unmount(fs: GuestFs, which: str) -> None:
    start(fs)
    before_a_cut(fs, "o $f open chmod:600 fsync; fail write 1; umount $m")
    fs.mount()
    assert (after_it(fs, "stat -c %a $f") == ["600"]) == (which == "mended")


@IN_TIME
@patch("6.12/0004", SLOW_READS)
def test_a_commit_while_verity_is_enabled(fs: GuestFs, which: str) -> None:
    """It has the file as an orphan; the transaction behind it takes the file off that list."""
    start(fs, "-O fast_commit,verity")
    fs.umount()
    fs.mount(NO_PERIODIC_COMMIT)
    before_a_cut(
        fs,
        """
        ls -l $m; touch $m/x; rm $m/x; sync
        o $f verity & verity=$!
        o $other open sleep:50 setxattr:user.a=b fsync  # a full commit
        wait $verity || exit 5
        sync $f
        cut
        """,
    )
    assert (after_it(fs, "wc -c <$f") == ["65536"]) == (which == "mended")
