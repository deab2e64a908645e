"""eager_sync: the log that bursts leave, switching, torn bursts, failures."""

import errno
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from fastsync_lab.host.build import ModuleSet, build_modules
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine.vm import Vm
from tests.vm.carried import START_A_CARRIED_COMMIT, carrying
from tests.vm.conftest import other_fs
from tests.vm.eagerfs import (
    OPTIONS,
    barriers,
    burst_blocks,
    in_force,
    journal,
    requests,
    run,
    stats,
)
from tests.vm.guestfs import (
    CAPACITY_MIB,
    CRASH,
    CRASH_BEFORE,
    CRASH_IMAGE,
    FAIL_ALL,
    FAIL_NONE,
    FAIL_ONE,
    FILE,
    MNT,
    MODES,
    NO_PERIODIC_COMMIT,
    UNIFORM,
    GuestFs,
    sound_log,
    torn_image,
)
from tests.vm.planted import patch_of

pytestmark = pytest.mark.usefixtures("bursts")


def test_sequence_jumps_once_in_a_mount_and_never_back(fs: GuestFs) -> None:
    """Far at first, past what an older file system may have left; then a little."""
    fs.mkfs()
    seen = []
    for _ in range(3):
        fs.mount()
        fs.vm.run(f"echo >{FILE}; sync")
        seen.append(int(journal(fs)["Journal sequence"], 16))
        for option in ("eager_sync", "un_eager_sync", "eager_sync"):
            fs.remount(option)
            fs.vm.run(f"chmod 600 {FILE}; sync {FILE}; chmod 611 {FILE}; sync {FILE}")
            seen.append(int(journal(fs)["Journal sequence"], 16))
        fs.umount()
    assert seen == sorted(seen)
    distances = [b - a for a, b in pairwise(seen)]
    jumps = {at: distance for at, distance in enumerate(distances) if distance > 2**19}
    assert list(jumps) == [0, 4, 8]
    assert 2**20 <= jumps[0] < 2**31
    assert all(0 <= jumps[at] - 2**20 < 100 for at in (4, 8))


@pytest.mark.parametrize(("first", "least"), [(0xDFF01000, 0), (0xDFE00000, 0xDFF00000)])
def test_a_jump_leaves_room_before_the_number_0(fs: GuestFs, first: int, least: int) -> None:
    """Recovery takes it for "none"."""
    fs.mkfs()
    number = "".join(f"\\x{byte:02x}" for byte in first.to_bytes(4))
    fs.vm.run(
        f"block=$(debugfs -R 'bmap <8> 0' {fs.device} 2>/dev/null)\n"
        f"printf '{number}' | "
        f"dd of={fs.device} bs=1 seek=$((block * 4096 + 24)) conv=notrunc status=none"
    )
    fs.mount(OPTIONS)
    fs.prepare()
    at_work = int(journal(fs)["Journal sequence"], 16)
    assert max(least, 1) <= at_work < (least or 0x2000) + 100


@pytest.mark.parametrize("kind", ["freeze", "remountro"])
def test_quiet_file_system_shows_what_it_was(fs: GuestFs, kind: str) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        before = journal(fs)["Journal features"]
        fs.ops(kind, CRASH, file=MNT)  # the page cache has what the log will hold
        quiet = journal(fs, CRASH_IMAGE)
        if kind == "freeze":
            fs.ops("thaw", file=MNT)
        else:
            fs.vm.run(f"mount -o remount,rw {MNT}")
        assert in_force(fs) == ["eager_sync=100"]
        first = int(stats(fs)["bursts"])
        fs.ops("open", "chmod:600", "fsync", "chmod:633", "fsync", CRASH)
        assert int(stats(fs)["bursts"]) == first + 2
        assert fs.crashed().mode == 0o633
    assert "journal_async_commit" in before
    assert "journal_async_commit" not in quiet["Journal features"]
    assert quiet["Journal start"] == "0"


def commits_and_bursts(fs: GuestFs) -> tuple[int, int]:
    """How many commits there have been since the mount, and how many of them have been bursts."""
    node = fs.node
    commits = fs.vm.run(f"head -n 1 /proc/fs/jbd2/{node}-8/info").stdout.split()[0]
    return int(commits), int(stats(fs)["bursts"])


def test_switched_under_load(fs: GuestFs) -> None:
    """Files are made, renamed, written and synced meanwhile; what was synced is in the image."""
    with fs.mounted(NO_PERIODIC_COMMIT):
        fs.prepare()
        commits_before, bursts_before = commits_and_bursts(fs)
        fs.vm.run(
            f"cd {MNT}; for t in 1 2 3; do (mkdir t$t; n=0; while [ ! -e stop ]; do n=$((n+1));"
            " echo $n >t$t/new && sync t$t/new && mv t$t/new t$t/f$((n % 40)) && sync t$t &&"
            " chmod 600 t$t || exit;"
            f' done; echo $n >/dev/shm/n$t) & jobs="$jobs $!"; done\n'
            "for i in $(seq 20); do mount -o remount,eager_sync=$i /mnt || exit 5; sleep 0.05;"
            " mount -o remount,un_eager_sync /mnt || exit 6; sleep 0.03; done\n"
            "mount -o remount,eager_sync /mnt || exit 5; sleep 0.1; touch stop\n"
            "for job in $jobs; do wait $job || exit 8; done\n"
            f"{fs.fsops_path} {MNT} {CRASH}",
            timeout_s=300,
        )
        commits, bursts = commits_and_bursts(fs)
        # With the option and without it, where each of forty remounts may have one.
        assert bursts - bursts_before > 40
        assert commits - commits_before > bursts - bursts_before + 40
        numbers = fs.vm.run("cat /dev/shm/n1 /dev/shm/n2 /dev/shm/n3").stdout.split()
        assert all(int(number) > 20 for number in numbers), numbers
        for number in (1, 2, 3):
            assert fs.crashed(f"/t{number}").mode == 0o600
        fs.vm.run(
            "mkdir /dev/shm/d; cd /dev/shm/d\n"
            f"debugfs -R 'rdump /t1 /t2 /t3 .' {CRASH_IMAGE} 2>/dev/null\n"
            f"for t in t1 t2 t3; do diff -r {MNT}/$t $t || exit 7; done; rm -r /dev/shm/d"
        )


def test_log_goes_round(fs: GuestFs) -> None:
    """1024 blocks, three or more for each burst; looked at now and then."""
    with fs.mounted(OPTIONS):
        fs.prepare()
        for part in range(8):
            modes = [0o600 + part * 8 + i % 8 for i in range(60)]
            words = [word for mode in modes for word in (f"chmod:{mode:o}", "fsync")]
            fs.ops("open", *words, CRASH)
            assert fs.crashed().mode == modes[-1]
        assert int(stats(fs)["burst_blocks"]) > 1400


@pytest.mark.parametrize("mkfs", ["", "-O ^64bit"])
def test_many_revokes_are_in_first_sectors(fs: GuestFs, mkfs: str) -> None:
    with fs.mounted(OPTIONS, mkfs=mkfs):
        # A guest takes 60 ms to start a program: one makes all folders, one reads all blocks.
        fs.vm.run(f"mkdir {MNT}/d; cd {MNT}/d; mkdir $(seq 300); sync .")
        before = barriers(fs)["barriers"]
        fs.vm.run(f"rm -r {MNT}/d; sync {MNT}")
        assert barriers(fs)["barriers"] == before
        fs.ops(CRASH)
        text = fs.vm.run(
            f"debugfs -R 'dump <8> /dev/shm/log' {CRASH_IMAGE} 2>/dev/null\n"
            """perl -e '$/ = \\4096; print unpack("H32", $_), "\\n" while <>' /dev/shm/log"""
        ).stdout
        heads = text.split()
        assert len(heads) == 1024
        counts = [int(head[24:], 16) for head in heads if head.startswith("c03b399800000005")]
        used = sum((count - 16) // (8 if mkfs == "" else 4) for count in counts)
        assert used >= 300 and max(counts) <= 512, counts
        fs.vm.run(f"e2fsck -fy {CRASH_IMAGE} >/dev/null; e2fsck -fn {CRASH_IMAGE}")


# --- failures ----------------------------------------------------------------------------------


def test_crash_and_mount_without_the_option(fs: GuestFs) -> None:
    """The superblock that a crash leaves is written before anything else."""
    with fs.mounted(OPTIONS):
        fs.prepare()
        fs.ops("open", "chmod:600", "fsync", CRASH)
        seen = []
        for options in ("", "eager_sync", ""):
            mode = fs.vm.run(
                f"modprobe loop; mkdir -p /dev/shm/m; cp {CRASH_IMAGE} /dev/shm/again.img\n"
                f"mount -o loop,{options or 'rw'} /dev/shm/again.img /dev/shm/m || exit\n"
                "stat -c %a /dev/shm/m/f"
            ).stdout
            assert mode == "600\n"
            seen.append(journal(fs, "/dev/shm/again.img"))
            fs.vm.run("umount /dev/shm/m && e2fsck -fn /dev/shm/again.img && rm /dev/shm/again.img")
    for shown in seen:
        assert "journal_checksum_v3" in shown["Journal features"]
        assert shown["Journal start"] == "0"


@pytest.fixture
def torn(fs: GuestFs) -> Iterator[GuestFs]:
    """Images before and after one burst: BEFORE_IMAGE and CRASH_IMAGE."""
    with fs.mounted(OPTIONS):
        fs.prepare()
        fs.ops("open", "chmod:600", "fsync", CRASH_BEFORE, "chmod:611", "fsync", CRASH)
    yield fs
    fs.vm.run("rm -f /dev/shm/*.img")


def test_torn_burst_ends_the_log(torn: GuestFs, stock_modules: ModuleSet) -> None:
    """Any part of it, in blocks and in sectors; stock e2fsck and the stock kernel agree."""
    fs = torn
    blocks = burst_blocks(fs)
    fs.vm.use_filesystem(stock_modules)
    for mask in range(27):
        # None of each, its first sector, all of it.
        sectors = [(0, 1, 8)[mask // 3**index % 3] for index in range(3)]
        # Descriptor and record have nothing behind their first sectors, nor has a new log.
        whole = sectors[0] and sectors[1] == 8 and sectors[2]
        found = fs.vm.run(
            f"{torn_image(blocks, sectors)}"
            "modprobe loop; cp /dev/shm/t.img /dev/shm/k.img; mkdir -p /dev/shm/m\n"
            "e2fsck -fy /dev/shm/t.img >/dev/shm/fsck.log; [ $? -le 1 ] || exit 9\n"
            "e2fsck -fn /dev/shm/t.img >/dev/null || exit 8\n"
            "debugfs -R 'stat /f' /dev/shm/t.img 2>/dev/null | grep -o 'Mode: *[0-9]*'\n"
            "mount -o loop /dev/shm/k.img /dev/shm/m || exit 7\n"
            "stat -c %a /dev/shm/m/f; umount /dev/shm/m\n"
            "e2fsck -fn /dev/shm/k.img >/dev/null || exit 6"
        ).stdout.split()
        expected = "611" if whole else "600"
        assert found[1].lstrip("0") == found[2] == expected, (mask, found)


@pytest.mark.parametrize("what", ["flush", "write"])
def test_failed_flush_or_write_aborts(fs: GuestFs, what: str) -> None:
    """A burst is one write, of several blocks, and one flush."""
    fs.mkfs()
    fs.mount(OPTIONS)
    fs.prepare("chmod:600", "fsync")
    fs.vm.run(FAIL_ONE.format(what))
    events = fs.ops("open", "chmod:611", "?fsync")
    assert events[-1]["errno"] == errno.EIO
    assert fs.vm.run(f"touch {MNT}/g", check=False).status != 0
    fs.umount()
    assert "Aborting journal" in sound_log(fs.vm, device_fails=True)


@pytest.mark.parametrize("has_record", [True, False])
def test_a_block_of_the_log_that_cannot_be_read(torn: GuestFs, has_record: bool) -> None:
    """It fails the mount, and the log stays. Without a record nobody was told of the burst."""
    fs = torn
    blocks = burst_blocks(fs)
    at, end = blocks[1] * 8, CAPACITY_MIB << 11
    (found,) = run(
        fs,
        f"""
        {torn_image(blocks, (8, 8, 8 * has_record))}
        dd if=/dev/shm/t.img of={fs.device} bs=1M conv=fsync status=none
        printf '%s\\n' "0 {at} linear {fs.device} 0" "{at} 8 error" \\
            "{at + 8} {end - at - 8} linear {fs.device} {at + 8}" >/dev/shm/table
        modprobe dm_mod && dmsetup create bad </dev/shm/table && dmsetup mknodes || exit 5
        mount -t ext4 /dev/mapper/bad $m; failed=$?; mode=0
        [ $failed != 0 ] || {{ mode=$(stat -c %a $f); umount $m; }}
        dmsetup remove --retry bad; mount -t ext4 {fs.device} $m || exit 6
        echo stats failed $failed bad $mode good $(stat -c %a $f)
        umount $m
        """,
    )
    assert bool(found["failed"]) == has_record
    assert (found["bad"], found["good"]) == ((0, 611) if has_record else (600, 600))
    sound_log(fs.vm, device_fails=True)


def test_an_inode_that_cannot_be_logged(fs: GuestFs) -> None:
    """Its block is in the log, and nothing leads there: this sync fails, and so do all others."""
    fs.mkfs()
    fs.mount(f"{OPTIONS},mtime_update,mtime_mode=defer,errors=continue")
    run(fs, "o $f create falloc:0,0,65536 fsync; settle; sync; echo 1 >/proc/sys/vm/drop_caches")
    fs.vm.run(f"({FAIL_ALL.format('read')})")
    failed = fs.ops("open", "overwrite:4096,8192", "?fsync")[-1]["errno"]
    fs.vm.run(FAIL_NONE)
    again = fs.ops("open", "?fsync")[-1]["errno"]
    fs.umount()
    assert "Aborting journal" in sound_log(fs.vm, device_fails=True)
    assert (failed, again) == (errno.EIO, errno.EIO)


# What is old is X. Whoever makes the file larger reads what is left behind its end.
FILL = "tr '\\0' X </dev/zero | dd of=$m/old bs=1M status=none 2>/dev/null"
GROWN = """
grown() {
    truncate -s 1M $1/f || exit 5; echo 3 >/proc/sys/vm/drop_caches
    echo stats old $(dd if=$1/f bs=4k skip=20 count=1 status=none | tr -cd X | wc -c)
}
"""


def test_a_truncate_that_fails_shows_nothing_old(fs: GuestFs) -> None:
    """It drops the page of a block that is logged alone, and cannot read what is behind it."""
    two_leaves = " ".join(f"falloc:0,{8192 * i},4096" for i in range(400))
    options = f"{OPTIONS},errors=continue"
    fs.mkfs()
    fs.mount(options)
    run(fs, f"{FILL}; sync; rm $m/old; sync; o $f create {two_leaves} fsync")
    fs.umount()
    fs.mount(options)
    script = f"""
    o $f open overwrite:4096,81920 fsync; s
    ({FAIL_ALL.format("read")})
    truncate -s 4096 $f 2>/dev/null; echo stats truncated $?
    {FAIL_NONE}
    settle; grown $m
    """
    synced, truncated, shown = run(fs, GROWN + script)
    assert synced["data_blocks"] == 1 and truncated["truncated"] != 0
    assert shown["old"] == 0
    fs.umount()
    sound_log(fs.vm, device_fails=True)


@pytest.fixture
def in_three(vm: Vm, tree: KernelTree, fsops: str, flashdev: Path) -> Iterator[GuestFs]:
    """Modules whose truncates take three transactions, and fail in the last one."""
    modules = build_modules(tree, fault=patch_of("truncate-in-three"))
    with other_fs(vm, fsops, modules, flashdev, UNIFORM, 64) as fs:
        yield fs


# A file system has seen an error before, so recovery heeds no orphan record.
SEEN_AN_ERROR = "debugfs -w -R 'ssv state 2' {device} 2>/dev/null"
CUT_AND_GROWN = """
    opened; dmesg | grep -q 'clearing orphan list' || exit 8
    grown /dev/shm/m; umount /dev/shm/m
"""


def test_a_truncate_that_fails_behind_a_settling_shows_nothing_old(in_three: GuestFs) -> None:
    """It, or a crash before it has freed anything: the log has no copy any more."""
    in_three.mkfs()
    in_three.vm.run(SEEN_AN_ERROR.format(device=in_three.device))
    in_three.mount(f"{OPTIONS},errors=continue")
    script = f"""
    {FILL}; sync; rm $m/old; sync
    o $f create truncate:1048576 overwrite:4096,81920 fsync file:$m/g create write fsync; s
    echo 400 >/sys/module/ext4/parameters/planted_wait_ms
    truncate -s 4096 $f 2>/dev/null & truncate=$!
    sleep 0.2; o $m/g open dwrite; s; o $m/g open crash:$img
    wait $truncate; echo stats truncated $?
    echo 0 >/sys/module/ext4/parameters/planted_wait_ms
    settle; grown $m; {CUT_AND_GROWN}
    """
    synced, settled, truncated, shown, cut = run(in_three, GROWN + script)
    assert settled["settlings"] == synced["settlings"] + 1
    assert truncated["truncated"] != 0
    assert (shown["old"], cut["old"]) == (0, 0)
    in_three.umount()
    sound_log(in_three.vm, device_fails=True)


def test_a_truncate_writes_only_what_has_copies(fs: GuestFs) -> None:
    """In place, without a flush; what was never synced is dropped, as on stock."""
    with fs.mounted(OPTIONS):
        sent = requests(
            fs,
            "o $m/g open truncate:4096",
            before="o $m/g create overwrite:16384 fsync overwrite:65536,16384; s",
        )
    assert sum(size for kind, size in sent if kind.startswith("W")) == 3 * 4096, sent
    assert not any("F" in kind for kind, _ in sent), sent


def test_carried_commit_that_exposes_nothing(fs: GuestFs) -> None:
    """One that `defer` starts for stamps: written at once, carried by one flush."""
    start, others = " ".join(START_A_CARRIED_COMMIT), "write fsync " * 20
    with fs.mounted(f"{MODES['defer']},eager_sync=100"):
        fs.prepare()
        with carrying(fs, 1) as waits:
            # Once the log has no copies, what is written goes into place, and a sync only flushes.
            before, after = run(fs, f"settle; s; o $f {start} {others}; s")
    assert waits == ["record flushed"]
    # The first one's stamps were old.
    assert after["bursts"] == before["bursts"] + 2
    assert after["barriers"] == before["barriers"]


def test_stale_log_of_an_older_file_system(fs: GuestFs) -> None:
    """Its transactions lie behind ours, and would have the next numbers if ours did not jump."""
    for modes in ((0o601, 0o602, 0o603, 0o604), (0o611,)):
        fs.mkfs("-E nodiscard,lazy_itable_init=0,lazy_journal_init=1")
        fs.mount(OPTIONS)
        words = [word for mode in modes for word in (f"chmod:{mode:o}", "fsync")]
        fs.ops("create", "sync", *words, CRASH)
        fs.umount()
    assert fs.crashed().mode == 0o611
