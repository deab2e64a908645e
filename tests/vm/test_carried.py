"""Carried commits (kernel/jbd2/carrier.c): stamps become durable on flushes that are paid for."""

import pytest

from tests.vm.guestfs import CRASH, FILE, MS, GuestFs, OnDisk

INTERVAL_MS = 40
OPTIONS = f"mtime_update={INTERVAL_MS},mtime_mode=defer,commit=300"
# 0.3 ms each on the uniform 100 us device: 300 of them are more than two intervals.
LOOP = ["write", "fsync"] * 300
# The stamps are 32 ms old at the last fsync, which therefore starts a commit and does not wait.
PATIENT = ["sleep:100", "align:4", "write", "fsync", "sleep:32", "write", "fsync"]

IN_TIME = pytest.mark.debian(
    "a commit has to be carried in time; on a debug kernel it takes longer"
)


def stamps_behind_ns(stamp: dict[str, int], disk: OnDisk) -> int:
    return stamp["mtime_ns"] - disk.mtime_ns


@pytest.mark.short
@IN_TIME
def test_busy_file_never_waits_for_stamps(fs: GuestFs) -> None:
    """One flush for each fsync and none beside them, though commits have taken place."""
    with fs.mounted(OPTIONS):
        fs.prepare()
        before, after, stamp = fs.ops("open", "write", "fsync", "io", *LOOP, "io", "stat", CRASH)
        disk = fs.crashed()
    commits_kib = (after["sectors"] - before["sectors"]) // 2 - 4 * 300
    assert commits_kib >= 2 * 12, "then no stamp was committed meanwhile"
    assert after["flushes"] - before["flushes"] == 300
    assert 0 <= stamps_behind_ns(stamp, disk) < INTERVAL_MS * MS


@IN_TIME
def test_slow_loop_never_waits_for_stamps(fs: GuestFs) -> None:
    """Here the carried commit takes several ticks, and the stamp changes while it is under way."""
    with fs.mounted("mtime_update=400,mtime_mode=defer,commit=300"):
        fs.prepare()
        words = ["write", "fsync", "sleep:5"] * 200
        before, after = fs.ops("open", "write", "fsync", "io", *words, "io")
    commits_kib = (after["sectors"] - before["sectors"]) // 2 - 4 * 200
    assert 2 * 12 <= commits_kib <= 5 * 12
    assert after["flushes"] - before["flushes"] == 200


def test_started_commit_ends_by_itself(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        (stamp,) = fs.ops("open", *PATIENT, "stat", "sleep:100", CRASH)
        assert stamps_behind_ns(stamp, fs.crashed()) == 0


def test_somebody_who_waits_hurries_it(fs: GuestFs) -> None:
    """chmod + fsync while the commit waits for a flush: on the medium at once."""
    with fs.mounted("mtime_update=1000,mtime_mode=defer,commit=300"):
        fs.prepare()
        before, after = fs.ops(
            "open", "write", "fsync", "sleep:920", "write", "fsync", "sleep:2", "clock",
            "chmod:601", "fsync", "clock", CRASH,
        )  # fmt: skip
        assert fs.crashed().mode == 0o601
    assert after["time_ns"] - before["time_ns"] < 100 * MS


def test_sync_while_it_waits(fs: GuestFs) -> None:
    with fs.mounted("mtime_update=1000,mtime_mode=defer,commit=300"):
        fs.prepare()
        before, after, stamp = fs.ops(
            "open", "write", "fsync", "sleep:920", "write", "fsync", "sleep:2", "clock",
            "sync", "clock", "stat", CRASH,
        )  # fmt: skip
        assert stamps_behind_ns(stamp, fs.crashed()) == 0
    assert after["time_ns"] - before["time_ns"] < 100 * MS


def test_unmount_while_it_waits(fs: GuestFs) -> None:
    for _ in range(3):
        with fs.mounted("mtime_update=1000,mtime_mode=defer,commit=300"):
            fs.prepare()
            fs.ops("open", "write", "fsync", "sleep:920", "write", "fsync")


def test_switched_off_while_it_waits(fs: GuestFs) -> None:
    with fs.mounted("mtime_update=1000,mtime_mode=defer,commit=300"):
        fs.prepare()
        fs.ops("open", "write", "fsync", "sleep:920", "write", "fsync")
        fs.remount("un_mtime_update")
        (stamp,) = fs.ops("open", "write", "fsync", "stat", CRASH)
        assert stamps_behind_ns(stamp, fs.crashed()) == 0


def test_clock_set_back_while_it_waits(fs: GuestFs) -> None:
    """What it carries is later than what comes then: on the medium it is not young."""
    with fs.mounted("mtime_update=1000,mtime_mode=defer,commit=300"):
        fs.prepare()
        (stamp,) = fs.ops(
            "open", "write", "fsync", "sleep:920", "write", "fsync", "sleep:2", "shifttime:-300",
            *["write", "fdatasync", "sleep:4"] * 4, "write", "fsync", "stat", CRASH,
            "shifttime:300",
        )  # fmt: skip
        assert stamps_behind_ns(stamp, fs.crashed()) == 0


def test_two_file_systems_do_not_mix(fs: GuestFs) -> None:
    """A second journal has a carrier of its own, and both go without a trace."""
    second = "/dev/shm/second"
    with fs.mounted(OPTIONS):
        fs.prepare()
        fs.vm.run(
            f"modprobe brd rd_nr=1 rd_size=16384 && mkfs.ext4 -qF /dev/ram0 && mkdir -p {second} "
            f"&& mount -o {OPTIONS} /dev/ram0 {second} && cp {FILE} {second}/g && sync"
        )
        stamp = fs.ops("open", *PATIENT, *LOOP[:100], "stat", CRASH)[-1]
        fs.ops("open", *LOOP[:100], file=f"{second}/g")
        fs.vm.run(f"umount {second} && e2fsck -fn /dev/ram0 && rmmod brd")
        assert stamps_behind_ns(stamp, fs.crashed()) < INTERVAL_MS * MS
