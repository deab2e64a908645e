"""What file systems are put through: stock and every mode take it alike, and stamps get out."""

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fastsync_lab.host.build import ModuleSet
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine.vm import Vm
from tests.vm.conftest import need_bursts, prepare
from tests.vm.guestfs import (
    CRASH,
    CRASH_IMAGE,
    FILE,
    MNT,
    MS,
    Event,
    GuestFs,
    OnDisk,
    written_kib,
)

INTERVAL_MS = 500
BLOCK = 4096
PREPARED_BLOCKS = 16
S = 1000 * MS
# Stamps are durable, then change well inside the interval: in defer the fsync does not commit them.
DEFERRED = ("open", "sleep:600", f"align:{INTERVAL_MS}", "write", "fsync", "sleep:20",
            "write", "fsync")  # fmt: skip


@dataclass(frozen=True)
class Subject:
    """A file system of the stock modules, or of ours in a mode."""

    fs: GuestFs
    mode: str

    def options(self, more: str = "commit=300", interval_ms: int = INTERVAL_MS) -> str:
        words = [more] if more else []
        if self.mtime_mode:
            words += [f"mtime_update={interval_ms}", f"mtime_mode={self.mtime_mode}"]
        if self.eager:
            words.append("eager_sync")
        return ",".join(words)

    @property
    def mtime_mode(self) -> str:
        """The mode of mtime_update; empty without it."""
        first = self.mode.removesuffix("+eager")
        return first if first in ("truncate", "defer") else ""

    @property
    def eager(self) -> bool:
        return self.mode.endswith("eager")

    def prepare(self, *words: str) -> None:
        """A file that is on disk; with eager_sync the log has a copy of its last block."""
        self.fs.prepare(*words)
        if self.eager:
            self.fs.ops("open", "append", "fsync", "sleep:1100", "chmod:644", "fsync")
            # Below whatever device-mapper puts over the device.
            stats = self.fs.vm.run("grep -h unsettled_blocks /sys/fs/ext4/*/eager_stats").stdout
            assert int(stats.split()[1]) > 0

    def _has_appended(self) -> bool:
        """Does the image have the block that prepare() has appended and synced?"""
        count = (
            f"debugfs -R 'dump /f /dev/shm/got' {CRASH_IMAGE} 2>/dev/null; "
            f"dd if=/dev/shm/got bs=4k skip={PREPARED_BLOCKS} count=1 status=none | "
            "tr -d '\\0' | wc -c; rm /dev/shm/got"
        )
        return int(self.fs.vm.run(count).stdout) == BLOCK

    def promised(self, stamp: Event, disk: OnDisk, interval_ms: int = INTERVAL_MS) -> bool:
        """Are stamps and data on the medium what an fsync that returned has promised?"""
        if self.eager and not self._has_appended():
            return False
        behind = [stamp["mtime_ns"] - disk.mtime_ns, stamp["ctime_ns"] - disk.ctime_ns]
        most_ns = interval_ms * MS if self.mtime_mode == "defer" else 1
        return all(0 <= one < most_ns for one in behind)


# Off is stock request by request (test_off.py); with defer eager_sync has all that it has alone.
LONG = [pytest.param(name, marks=pytest.mark.long) for name in ("off", "eager")]


@pytest.fixture(scope="module", params=["stock", "truncate", "defer", "defer+eager", *LONG])
def mode(request: pytest.FixtureRequest, tree: KernelTree) -> str:
    name: str = request.param
    if name.endswith("eager"):
        need_bursts(tree)
    return name


@pytest.fixture
def subject(
    vm: Vm, fsops: str, mode: str, modules: ModuleSet, stock_modules: ModuleSet, flashdev: Path
) -> Iterator[Subject]:
    pair = stock_modules if mode == "stock" else modules
    yield Subject(GuestFs(vm, fsops, prepare(vm, pair, flashdev)), mode)
    vm.run(f"umount -q {MNT}", check=False)


def errnos(events: list[Event]) -> list[int]:
    return [event["errno"] for event in events if "errno" in event]


def exact(stamp: Event, disk: OnDisk) -> bool:
    return (disk.mtime_ns, disk.ctime_ns) == (stamp["mtime_ns"], stamp["ctime_ns"])


def image_of(fs: GuestFs) -> None:
    """What `crash` does, of a device that is not mounted."""
    fs.vm.run(f"dd if={fs.device} of={CRASH_IMAGE} bs=1M status=none")


def test_full_disk(subject: Subject) -> None:
    fs = subject.fs
    with fs.mounted(subject.options()):
        subject.prepare()
        fs.vm.run(f"dd if=/dev/zero of={MNT}/fill bs=64k 2>&1; sync")
        *tried, stamp = fs.ops(*DEFERRED, "?append", "?fsync", "stat", CRASH)
        assert errnos(tried) == [errno.ENOSPC, 0]
        assert subject.promised(stamp, fs.crashed())
        (stamp,) = fs.ops("open", "write", "fsync", "write", "fsync", "stat", "sync", CRASH)
        assert exact(stamp, fs.crashed())


def test_quota(subject: Subject) -> None:
    fs = subject.fs
    with fs.mounted(subject.options("commit=300,usrquota"), mkfs="-O quota"):
        subject.prepare("chown:1000", "quota:1000,64", "fsync")
        *tried, stamp = fs.ops(
            "open", "setuid:1000", *DEFERRED[1:], "?append", "?fsync", "?write", "stat",
        )  # fmt: skip
        assert errnos(tried) == [errno.EDQUOT, 0, 0]
        words = ["quotaoff", "write", "fsync", "quotaon", "write", "fsync"]
        (stamp,) = fs.ops(*DEFERRED, *words, "stat", CRASH)
        assert subject.promised(stamp, fs.crashed())
        (stamp,) = fs.ops("open", "stat", "sync", CRASH)
        assert exact(stamp, fs.crashed())


@pytest.mark.parametrize("under_way", ["deferred", "carried"])
def test_freeze(subject: Subject, under_way: str) -> None:
    """Frozen, the device is clean and has every stamp; nothing is written until it is thawed."""
    fs = subject.fs
    interval_ms = 1000
    carried = ("open", "sleep:1100", "write", "fsync", "sleep:920", "write", "fsync")
    words = DEFERRED if under_way == "deferred" else carried
    with fs.mounted(subject.options(interval_ms=interval_ms)):
        subject.prepare()
        stamp, before, after = fs.ops(
            *words, "stat", "freeze", "io", CRASH, "sleep:3000", "io", "thaw"
        )
        assert exact(stamp, fs.clean_image())
        assert before["sectors"] == after["sectors"]
        (stamp,) = fs.ops("open", "write", "fsync", "stat", CRASH)
        assert subject.promised(stamp, fs.crashed(), interval_ms)


def test_read_only_remount(subject: Subject) -> None:
    fs = subject.fs
    with fs.mounted(subject.options()):
        subject.prepare()
        # Open for write, a file would keep the file system from becoming read-only.
        (stamp,) = fs.ops(*DEFERRED, "stat")
        fs.ops("remountro", CRASH)
        assert exact(stamp, fs.clean_image())
        *tried, again = fs.ops("?open", "stat")
        assert errnos(tried) == [errno.EROFS] and again == stamp
        fs.vm.run(f"mount -o remount,rw {MNT}")
        (stamp,) = fs.ops("open", "write", "fsync", "stat", CRASH)
        assert subject.promised(stamp, fs.crashed())


@pytest.mark.parametrize("flag", ["default", "flush the log", "do not"])
def test_shutdown(subject: Subject, flag: str) -> None:
    fs = subject.fs
    number = ["default", "flush the log", "do not"].index(flag)
    fs.mkfs()
    fs.mount(subject.options())
    subject.prepare()
    stamp, *tried = fs.ops(
        *DEFERRED, "stat", f"shutdown:{number}", "?write", "?fsync", "?chmod:600"
    )
    assert errnos(tried) == [errno.EIO] * 3
    fs.umount()
    image_of(fs)
    disk = fs.crashed()
    assert subject.promised(stamp, disk) and disk.mode == 0o644
    if flag != "do not":
        assert exact(stamp, disk)


LOAD = " ".join(["write", "fsync", "sleep:3", "append", "fsync", "write", "fsync", "sleep:3"] * 60)
RESIZED = "/dev/shm/resized"


def test_resize_under_load(subject: Subject) -> None:
    fs = subject.fs
    fs.mkfs("-E resize=16384", size="4096")
    fs.mount(subject.options(interval_ms=50))
    subject.prepare()
    fs.vm.run(
        f"rm -f {RESIZED}; until [ -f {RESIZED} ]; do {fs.fsops_path} {FILE} open {LOAD} || exit; "
        "done & load=$!\n"
        f"resize2fs {fs.device} >/dev/shm/resize.log 2>&1; resized=$?\n"
        f"touch {RESIZED}; wait $load || exit\n"
        "[ $resized = 0 ] || { cat /dev/shm/resize.log >&2; exit $resized; }"
    )
    (stamp,) = fs.ops("open", "write", "fsync", "stat", CRASH)
    assert subject.promised(stamp, fs.crashed(), 50)
    blocks = fs.vm.run(f"stat -f -c %b {MNT}").stdout
    assert int(blocks) > 4096
    fs.umount()
    fs.vm.run(f"e2fsck -fn {fs.device}")


@pytest.mark.parametrize("lock", ["frozen", "at any moment"])
def test_snapshot_under_load(subject: Subject, lock: str) -> None:
    """dm-snapshot of the device: it recovers, is clean, and has the synced file."""
    fs = subject.fs
    nolock = "" if lock == "frozen" else "--nolockfs"
    sectors = 32 << 11
    fs.mkfs()
    fs.vm.run(
        "modprobe -a dm_mod dm_snapshot && modprobe brd rd_nr=1 rd_size=40960 || exit\n"
        f'dmsetup create origin --table "0 {sectors} snapshot-origin {fs.device}" || exit\n'
        f"dmsetup mknodes; mount -t ext4 -o {subject.options(interval_ms=50)} "
        f"/dev/mapper/origin {MNT}"
    )
    try:
        subject.prepare()
        fs.vm.run(
            f"{fs.fsops_path} {FILE} open {LOAD} & load=$!; sleep 0.2\n"
            f"dmsetup suspend {nolock} origin || exit\n"
            f'dmsetup create snapshot --table "0 {sectors} snapshot {fs.device} /dev/ram0 N 8"; '
            "status=$?; dmsetup resume origin; wait $load || exit\n"
            "[ $status = 0 ] && dmsetup mknodes && mkdir -p /tmp/snapshot || exit\n"
            "mount -t ext4 /dev/mapper/snapshot /tmp/snapshot || exit\n"
            f"[ $(stat -c %s /tmp/snapshot/f) -ge {PREPARED_BLOCKS * BLOCK} ] || exit 7\n"
            "umount /tmp/snapshot && e2fsck -fn /dev/mapper/snapshot"
        )
    finally:
        fs.vm.run(
            f"umount -q {MNT}; dmsetup remove --retry snapshot; dmsetup remove --retry origin; "
            "rmmod brd",
            check=False,
        )
    fs.vm.run(f"e2fsck -fn {fs.device}")


@pytest.mark.parametrize("hours", [-1, 1])
def test_clock_that_jumps(subject: Subject, hours: int) -> None:
    """Stamps follow; a commit or two for the jump, and then as before it."""
    fs = subject.fs
    jump_ms = hours * 3600 * 1000
    with fs.mounted(subject.options()):
        subject.prepare()
        try:
            jumped = fs.ops(
                *DEFERRED, f"shifttime:{jump_ms}", "sleep:20", "write", "clock", "fsync", "stat",
                CRASH,
            )  # fmt: skip
            clock, stamp = jumped
            assert subject.promised(stamp, fs.crashed())
            assert 0 <= clock["time_ns"] - stamp["mtime_ns"] <= INTERVAL_MS * MS + 20 * MS
            if subject.eager:  # or overwrites of what the log has copies of are logged, too
                fs.ops("freeze", "thaw", file=MNT)
            align = f"align:{INTERVAL_MS}"
            loop = ["write", "fsync", "sleep:8"] * 20
            events = fs.ops("open", align, "write", "fsync", "io", *loop, "io", "stat", CRASH)
            assert subject.promised(events[-1], fs.crashed())
            commits = (written_kib(events) - 20 * 4) / 12
            if subject.mtime_mode:
                assert commits <= 2
            else:
                assert commits > 10, "then nothing here would be saved"
        finally:
            fs.ops(f"shifttime:{-jump_ms}", file=MNT)


INT32_MAX = 2**31 - 1
LAST_S = (1 << 34) - 1 - 2**31  # ext4's, in 2446
LAST_CLOCK_S = 8277292036 - 1  # the kernel lets nobody set the clock to a later time: 2232


@pytest.mark.parametrize(
    ("inode_size", "now_s"),
    [
        (128, INT32_MAX - 1),
        (256, INT32_MAX - 1),
        (256, 2**32 - 2),
        (256, LAST_CLOCK_S - 2),
    ],
)
def test_late_years(subject: Subject, inode_size: int, now_s: int) -> None:
    """Over the edges of 31 and 32 bits, and near the last second that the clock takes."""
    fs = subject.fs
    fs.mkfs(f"-I {inode_size}")
    fs.mount(subject.options())
    subject.prepare()
    (before,) = fs.ops("clock", file=MNT)
    last_s = INT32_MAX if inode_size == 128 else LAST_S
    try:
        loop = ["write", "fsync", "sleep:400"] * 3
        clock, stamp = fs.ops(
            "open", f"settime:{now_s}", "sleep:20", *loop, "write", "clock", "fsync", "stat", CRASH
        )
        latest_ns = min(clock["time_ns"], last_s * S)
        slack_ns = S if inode_size == 128 else INTERVAL_MS * MS + 20 * MS
        assert 0 <= latest_ns - stamp["mtime_ns"] <= slack_ns
        fs.vm.run(f"export E2FSCK_TIME={now_s}; e2fsck -fy {CRASH_IMAGE} >/dev/null; [ $? -le 1 ]")
        disk = fs.on_image()
        behind_ns = stamp["mtime_ns"] - disk.mtime_ns
        assert 0 <= behind_ns < (INTERVAL_MS * MS if subject.mtime_mode == "defer" else 1)
        (stamp,) = fs.ops("open", f"utimens:{LAST_S + 5},7", "fsync", "stat")
        assert stamp["mtime_ns"] % 2**64 // S == last_s  # beyond what 63 bits of ns hold
        fs.umount()
        fs.vm.run(f"E2FSCK_TIME={now_s + 60} e2fsck -fn {fs.device}")
    finally:
        fs.ops(f"settime:{before['time_ns'] // S + 2}", file=MNT)


def test_unmount_with_deferred_stamps_leaves_a_clean_device(subject: Subject) -> None:
    fs = subject.fs
    fs.mkfs()
    fs.mount(subject.options())
    subject.prepare()
    (stamp,) = fs.ops(*DEFERRED, "stat")
    fs.umount()
    image_of(fs)
    assert exact(stamp, fs.clean_image())
