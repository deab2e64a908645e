"""mtime_mode=defer: stamps exact in memory, coarse in durability alone."""

from collections.abc import Callable

import pytest

from tests.vm.guestfs import CRASH, FILE, MS, GuestFs, OnDisk, written_kib

INTERVAL_MS = 500
OPTIONS = f"mtime_update={INTERVAL_MS},mtime_mode=defer,commit=300"
WRITES = ["write", "dwrite", "mwrite", "swrite", "awrite", "uwrite"]
# The stamps become durable, then a change follows well inside the interval.
DURABLE = ("open", "sleep:600", "write", "fsync", "sleep:20")


@pytest.mark.parametrize("write", WRITES)
def test_stamps_are_exact_in_memory(fs: GuestFs, write: str) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        before, stamp, after = fs.ops(
            "open", "align:100", "sleep:30", "clock", write, "stat", "clock"
        )
    assert before["stamp_ns"] <= stamp["mtime_ns"] <= after["stamp_ns"]
    assert stamp["mtime_ns"] == stamp["ctime_ns"]


@pytest.mark.short
@pytest.mark.parametrize("write", WRITES)
def test_fsync_inside_the_interval_writes_data_only(fs: GuestFs, write: str) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        events = fs.ops(*DURABLE, "io", write, "fsync", "io", "stat", CRASH)
        assert written_kib(events) == 4
        assert fs.counter("commits_avoided") == 1
        disk = fs.crashed()
    stamp = events[-1]
    assert disk.mtime_ns < stamp["mtime_ns"], "then the commit was not avoided"
    assert stamp["mtime_ns"] - disk.mtime_ns < INTERVAL_MS * MS
    assert stamp["ctime_ns"] - disk.ctime_ns < INTERVAL_MS * MS


@pytest.mark.parametrize("sync", ["fsync", "owrite"])
def test_fsync_after_the_interval_commits(fs: GuestFs, sync: str) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        (stamp,) = fs.ops(*DURABLE, "write", "fsync", "sleep:600", "write", sync, "stat", CRASH)
        disk = fs.crashed()
    assert disk.mtime_ns == stamp["mtime_ns"] and disk.ctime_ns == stamp["ctime_ns"]


def test_fsync_without_a_new_write_commits_what_was_deferred(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        (stamp,) = fs.ops(*DURABLE, "write", "fsync", "sleep:600", "fsync", "stat", CRASH)
        assert fs.crashed().mtime_ns == stamp["mtime_ns"]


def test_first_fsync_of_a_file_read_from_disk_commits(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        fs.umount()
        fs.mount(OPTIONS)
        (stamp,) = fs.ops("open", "write", "fsync", "stat", CRASH)
        assert fs.crashed().mtime_ns == stamp["mtime_ns"]


@pytest.mark.parametrize("sync", ["sync", "syncfs"])
def test_sync_makes_deferred_stamps_durable(fs: GuestFs, sync: str) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        (stamp,) = fs.ops(*DURABLE, "write", "fsync", sync, "stat", CRASH)
        disk = fs.crashed()
    assert disk.mtime_ns == stamp["mtime_ns"] and disk.ctime_ns == stamp["ctime_ns"]


def test_periodic_commit_makes_deferred_stamps_durable(fs: GuestFs) -> None:
    with fs.mounted("mtime_update=1000,mtime_mode=defer,commit=1"):
        fs.prepare()
        (stamp,) = fs.ops("open", "write", "fsync", "write", "fsync", "stat", "sleep:2500", CRASH)
        assert fs.crashed().mtime_ns == stamp["mtime_ns"]


def test_unmount_makes_deferred_stamps_durable(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        (stamp,) = fs.ops(*DURABLE, "write", "fsync", "stat")
        fs.umount()
        fs.mount(OPTIONS)
        (again,) = fs.ops("open", "stat")
    assert again["mtime_ns"] == stamp["mtime_ns"] and again["ctime_ns"] == stamp["ctime_ns"]


ATTRIBUTES: dict[str, tuple[str, Callable[[OnDisk], bool]]] = {
    "mode": ("chmod:601", lambda disk: disk.mode == 0o601),
    "owner": ("chown:4321", lambda disk: disk.uid == 4321),
    "xattr": ("setxattr:user.k=precious", lambda disk: "precious" in disk.text),
    "large xattr": ("setxattr:user.k=" + "x" * 300, lambda disk: "user.k (300)" in disk.text),
    "flags": ("flags:40", lambda disk: disk.flags & 0x40 != 0),
    "shrunk": ("truncate:4096", lambda disk: disk.size == 4096),
    "grown": ("truncate:1048576", lambda disk: disk.size == 1048576),
    "appended": ("append", lambda disk: disk.size == 69632),
    "allocated": ("falloc:0,131072,65536", lambda disk: disk.size == 196608),
    "punched": ("falloc:3,8192,4096", lambda disk: "(0-1):" in disk.text),
    "link": (f"link:{FILE}3", lambda disk: disk.links == 2),
    "mtime": ("utimens:1234567890,123456789",
              lambda disk: disk.mtime_ns == 1234567890_123456789),
}  # fmt: skip


@pytest.mark.short
@pytest.mark.parametrize("name", ATTRIBUTES)
@pytest.mark.parametrize("order", ["alone", "between writes"])
def test_every_other_change_is_on_the_medium_after_fsync(
    fs: GuestFs, name: str, order: str
) -> None:
    """Crash right after fsync: the journal as replayed by e2fsck holds the change."""
    op, holds = ATTRIBUTES[name]
    words = [op] if order == "alone" else ["write", op]
    if order != "alone" and name != "mtime":
        words.append("write")
    with fs.mounted(OPTIONS):
        fs.prepare()
        fs.ops(*DURABLE, *words, "fsync", CRASH)
        assert holds(fs.crashed())


def test_change_without_fsync_is_not_on_the_medium(fs: GuestFs) -> None:
    """The control: without fsync the crash image lacks the change, so the test above can fail."""
    with fs.mounted(OPTIONS):
        fs.prepare()
        fs.ops(*DURABLE, "chmod:601", "write", "fdatasync", CRASH)
        assert fs.crashed().mode == 0o644


def test_change_by_another_process_counts(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        fs.ops(*DURABLE)
        fs.vm.run(f"chmod 606 {FILE}")
        fs.ops("open", "write", "fsync", CRASH)
        assert fs.crashed().mode == 0o606


def test_atime_is_deferred_with_the_others(fs: GuestFs) -> None:
    """relatime sets atime at the first read after each write."""
    with fs.mounted(OPTIONS):
        fs.prepare()
        events = fs.ops(*DURABLE, "io", "write", "read", "fsync", "io", "stat")
        assert written_kib(events) == 4
        assert events[-1]["atime_ns"] >= events[-1]["mtime_ns"]


def test_atime_alone_commits_as_stock(fs: GuestFs) -> None:
    with fs.mounted(f"{OPTIONS},strictatime"):
        fs.prepare()
        (stamp,) = fs.ops("open", "sleep:600", "read", "fsync", "stat", CRASH)
        assert fs.crashed().atime_ns == stamp["atime_ns"]


def test_promise_holds_over_many_intervals(fs: GuestFs) -> None:
    """After each of 16 fsyncs the medium's stamps are less than the interval behind its own.

    While a crash is looked at time runs on, so each has all that were before it done anew.
    """
    with fs.mounted("mtime_update=50,mtime_mode=defer,commit=300"):
        fs.prepare()
        behind_ns = []
        for before in range(16):
            words = ["write", "fsync", "sleep:13"] * before
            (stamp,) = fs.ops("open", *words, "write", "fsync", "stat", CRASH)
            behind_ns.append(stamp["mtime_ns"] - fs.crashed().mtime_ns)
        assert fs.counter("commits_avoided") > 0
    assert all(0 <= one < 50 * MS for one in behind_ns), behind_ns


def test_old_ctime_change_does_not_hide_an_old_mtime(fs: GuestFs) -> None:
    """chmod makes ctime durable and young, but the mtime beside it is over a second old."""
    with fs.mounted(OPTIONS):
        fs.prepare()
        (stamp,) = fs.ops(
            "open", "sleep:600", "chmod:600", "fsync", "write", "fsync", "stat", CRASH
        )
        assert fs.crashed().mtime_ns == stamp["mtime_ns"]


def test_fdatasync_is_as_stock(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        events = fs.ops("open", "sleep:600", "io", "write", "fdatasync", "io")
        assert written_kib(events) == 4


def test_an_old_mtime_set_while_the_option_was_off_counts(fs: GuestFs) -> None:
    """It is on the medium when the option comes back, so the next fsync commits."""
    on = "mtime_update=1000,mtime_mode=defer"
    with fs.mounted(on):
        fs.prepare()
        off, on_again, stamp = fs.ops(
            "open", "write", "fsync", "remount:un_mtime_update", "utimens:631152000,0", "fsync",
            f"remount:{on}", "write", "fsync", "stat", CRASH,
        )  # fmt: skip
        assert off["errno"] == on_again["errno"] == 0
        behind_ns = stamp["mtime_ns"] - fs.crashed().mtime_ns
        assert 0 <= behind_ns < 1000 * MS


def test_a_clock_that_is_set_back_a_little(fs: GuestFs) -> None:
    """The stamps on the medium are young by the clock, and far behind those of the file."""
    with fs.mounted(OPTIONS):
        fs.prepare()
        (stamp,) = fs.ops(
            "open", "write", "fsync", "sleep:1900", "write", "shifttime:-1850", "fsync", "stat",
            CRASH, "shifttime:1850",
        )  # fmt: skip
        assert stamp["mtime_ns"] - fs.crashed().mtime_ns < INTERVAL_MS * MS
