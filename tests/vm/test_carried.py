"""Carried commits (kernel/jbd2/carrier.c): stamps become durable on flushes that are paid for."""

import pytest

from tests.vm.carried import INTERVAL_MS, LOOP, OPTIONS, STARTED, carrying
from tests.vm.conftest import IN_TIME
from tests.vm.guestfs import CRASH, FILE, MNT, MODES, MS, TOGETHER_MS, GuestFs, OnDisk, parse_events

LONGEST = MODES["defer"]
# Flushes of nobody who waits for stamps: more than the two that carry a commit.
FLUSHES = ["write", "fdatasync", "sleep:4"] * 4


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
    with fs.mounted(LONGEST):
        fs.prepare()
        with carrying(fs, 1) as waits:
            (stamp,) = fs.ops(*STARTED, "stat", "sleep:2100", CRASH)
        assert waits == ["blocks alone"]
        assert stamps_behind_ns(stamp, fs.crashed()) == 0


def test_somebody_who_waits_hurries_it(fs: GuestFs) -> None:
    """chmod + fsync while the commit waits for a flush: on the medium at once."""
    with fs.mounted(LONGEST):
        fs.prepare()
        with carrying(fs, 1) as waits:
            before, after = fs.ops(*STARTED, "clock", "chmod:601", "fsync", "clock", CRASH)
        assert waits == ["blocks hurried"]
        assert fs.crashed().mode == 0o601
    assert after["time_ns"] - before["time_ns"] < 100 * MS


def test_sync_while_it_waits(fs: GuestFs) -> None:
    with fs.mounted(LONGEST):
        fs.prepare()
        with carrying(fs, 1) as waits:
            before, after, stamp = fs.ops(*STARTED, "clock", "sync", "clock", "stat", CRASH)
        assert waits == ["blocks hurried"]
        assert stamps_behind_ns(stamp, fs.crashed()) == 0
    assert after["time_ns"] - before["time_ns"] < 100 * MS


def test_unmount_while_it_waits(fs: GuestFs) -> None:
    for _ in range(3):
        fs.mkfs()
        fs.mount(LONGEST)
        fs.prepare()
        with carrying(fs, 1) as waits:
            (stamp,) = fs.ops(*STARTED, "stat", "umount", CRASH)
        assert waits == ["blocks hurried"]
        assert stamps_behind_ns(stamp, fs.clean_image()) == 0


def test_switched_off_while_it_waits(fs: GuestFs) -> None:
    with fs.mounted(LONGEST):
        fs.prepare()
        with carrying(fs, 1) as waits:
            switched, stamp = fs.ops(
                *STARTED, "remount:un_mtime_update", "write", "fsync", "stat", CRASH
            )
        assert switched["errno"] == 0
        assert waits == ["blocks hurried"]
        assert stamps_behind_ns(stamp, fs.crashed()) == 0


def test_clock_set_back_while_it_waits(fs: GuestFs) -> None:
    """What it carries is later than what comes then: on the medium it is not young."""
    with fs.mounted(LONGEST):
        fs.prepare()
        with carrying(fs, 1) as waits:
            (stamp,) = fs.ops(
                *STARTED, "shifttime:-300", *FLUSHES, "write", "fsync", "stat", CRASH,
                "shifttime:300",
            )  # fmt: skip
        assert waits == ["blocks flushed", "record flushed"]
        assert stamps_behind_ns(stamp, fs.crashed()) == 0


@IN_TIME
def test_none_is_started_where_syncs_wait_for_commits(fs: GuestFs) -> None:
    """The next of these takes the stamps along. It would have to wait for two commits."""
    other = f"{MNT}/other"

    def commit(mode: int) -> list[str]:
        return [f"file:{other}", "open", f"chmod:{mode}", "fsync", f"file:{FILE}", "open"]

    with fs.mounted(LONGEST):
        fs.prepare()
        fs.vm.run(f"touch {other} && sync")
        with carrying(fs, 0) as waits:
            before, after, stamp = fs.ops(
                *("open", "write", "fsync", "sleep:920", *commit(601), "write", "fsync"),
                *("io", *commit(602), "io", "stat", CRASH),
            )
        assert not waits
        assert after["flushes"] - before["flushes"] == 1
        assert stamps_behind_ns(stamp, fs.crashed()) == 0


def test_two_file_systems_do_not_mix(fs: GuestFs) -> None:
    """A second journal has a carrier of its own, and both go without a trace.

    Each starts a commit at the same time; the flushes of one of them carry that one's.
    """
    second = "/dev/shm/second"
    other = GuestFs(fs.vm, fs.fsops_path, "/dev/ram0")
    with fs.mounted(LONGEST):
        fs.prepare()
        fs.vm.run(
            f"modprobe brd rd_nr=1 rd_size=16384 && mkfs.ext4 -qF /dev/ram0 && mkdir -p {second} "
            f"&& mount -o {LONGEST} /dev/ram0 {second} && cp {FILE} {second}/g && sync && sleep 1.1"
        )
        begin = f"align:{TOGETHER_MS} {' '.join(STARTED[1:])}"
        with carrying(fs, 1) as waits, carrying(other, 1) as waits_of_other:
            done = fs.vm.run(
                f"{fs.fsops_path} {second}/g open {begin} sleep:2100 &\n"
                f"{fs.fsops_path} {FILE} open {begin} sleep:20 {' '.join(FLUSHES)} stat {CRASH}"
                " || exit; wait $!"
            )
        fs.vm.run(f"umount {second} && e2fsck -fn /dev/ram0 && rmmod brd")
        assert waits == ["blocks flushed", "record flushed"]
        # Its blocks take no time there: the fsync that starts the commit may flush behind them.
        assert waits_of_other[-1] in ("blocks alone", "record alone")
        (stamp,) = parse_events(done.stdout)
        # What has been carried is as old as the last write before FLUSHES.
        assert 0 < stamps_behind_ns(stamp, fs.crashed()) < 100 * MS
