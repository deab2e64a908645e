"""mtime_mode=truncate: what a write coarsens, and what stays exact."""

import pytest

from tests.vm.guestfs import CRASH, FILE, MS, GuestFs, written_kib

INTERVAL_MS = 100
OPTIONS = f"mtime_update={INTERVAL_MS},commit=300"
WRITES = ["write", "dwrite", "mwrite", "swrite", "awrite", "uwrite"]


@pytest.mark.parametrize("write", WRITES)
def test_write_takes_the_start_of_its_interval(fs: GuestFs, write: str) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        clock, first, later, second = fs.ops(
            "open", f"align:{INTERVAL_MS}", "sleep:30", "clock", write, "stat",
            "sleep:30", "write", "clock", "stat",
        )  # fmt: skip
    start_ns = clock["stamp_ns"] // (INTERVAL_MS * MS) * INTERVAL_MS * MS
    assert later["stamp_ns"] - start_ns < INTERVAL_MS * MS, "the test ran too slowly"
    assert first["mtime_ns"] == first["ctime_ns"] == start_ns
    assert second["mtime_ns"] == second["ctime_ns"] == start_ns


@pytest.mark.short
@pytest.mark.parametrize("write", WRITES)
def test_second_fsync_of_an_interval_writes_data_only(fs: GuestFs, write: str) -> None:
    """4 KiB of data and no transaction."""
    with fs.mounted(OPTIONS):
        fs.prepare()
        events = fs.ops(
            "open", f"align:{INTERVAL_MS}", "write", "fsync", "io", write, "fsync", "io",
        )  # fmt: skip
        assert written_kib(events) == 4
        assert fs.counter("updates_skipped") >= 1
        assert fs.counter("commits_avoided") >= 1


def test_first_fsync_of_an_interval_commits(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        events = fs.ops("open", f"align:{INTERVAL_MS}", "io", "write", "fsync", "io")
        assert written_kib(events) == 16
        assert fs.counter("updates_done") >= 1


@pytest.mark.parametrize("interval_ms", [7, 300, 1000])
def test_intervals_that_do_not_divide_a_second(fs: GuestFs, interval_ms: int) -> None:
    with fs.mounted(f"mtime_update={interval_ms}"):
        fs.prepare()
        clock, stamp = fs.ops("open", "align:1000", "clock", "write", "stat")
    start_ns = clock["stamp_ns"] // (interval_ms * MS) * interval_ms * MS
    assert stamp["mtime_ns"] == stamp["ctime_ns"] == start_ns


def test_interval_finer_than_the_tick_is_the_tick(fs: GuestFs) -> None:
    with fs.mounted("mtime_update=1"):
        fs.prepare()
        events = fs.ops("open", "align:100", "clock", "write", "stat", "write", "stat")
    clock, first, second = events
    assert first["mtime_ns"] == clock["stamp_ns"] // MS * MS
    assert second["mtime_ns"] in (first["mtime_ns"], first["mtime_ns"] + 4 * MS)


EXACT_OPS = [
    "chmod:600", "chown:7", "setxattr:user.k=v", "truncate:8192", "utimensnow", "flags:40",
    "falloc:1,8192,4096", "falloc:3,4096,4096", "falloc:17,4096,4096", "falloc:8,4096,4096",
    "falloc:0,131072,4096", f"rename:{FILE}2", f"link:{FILE}3",
]  # fmt: skip
KEEPS_SIZE = ("falloc:1,", "falloc:17,")


@pytest.mark.short
@pytest.mark.parametrize("op", EXACT_OPS)
def test_other_changes_have_exact_ctime(fs: GuestFs, op: str) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        before, after, stamp = fs.ops(
            "open", f"align:{INTERVAL_MS}", "sleep:30", "clock", op, "clock", "stat"
        )
        assert before["stamp_ns"] <= stamp["ctime_ns"] <= after["stamp_ns"]
        if op.startswith(("truncate", "falloc", "utimensnow")):
            assert before["stamp_ns"] <= stamp["mtime_ns"] <= stamp["ctime_ns"]
            # Allocation that keeps the size sets ctime alone, once more for each extent.
            if not op.startswith(KEEPS_SIZE):
                assert stamp["mtime_ns"] == stamp["ctime_ns"]


def test_utimensat_is_kept_to_the_nanosecond(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        (stamp,) = fs.ops("open", "utimens:1234567890,123456789", "stat")
        assert stamp["mtime_ns"] == 1234567890_123456789
        fs.ops("open", "fsync")
        fs.umount()
        fs.mount(OPTIONS)
        (stamp,) = fs.ops("open", "stat")
        assert stamp["mtime_ns"] == 1234567890_123456789


def test_cp_and_touch_keep_nanoseconds(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        shown = fs.vm.run(
            "cd /mnt; echo x >a; touch -d '2020-02-02 02:02:02.123456789 UTC' a; cp -p a b; "
            "mkdir d; touch -d '2021-01-01 01:01:01.987654321 UTC' d; TZ=UTC stat -c %y a b d"
        ).stdout.splitlines()
    assert shown[0] == shown[1] == "2020-02-02 02:02:02.123456789 +0000"
    assert shown[2] == "2021-01-01 01:01:01.987654321 +0000"


def test_create_and_directories_are_exact(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        before, stamp, after = fs.ops(
            f"align:{INTERVAL_MS}", "sleep:30", "clock", "create", "stat", "clock", file="/mnt/new"
        )
        directory_ns = int(fs.vm.run("stat -c %.9Y /mnt").stdout.strip().replace(".", ""))
        assert before["stamp_ns"] <= stamp["mtime_ns"] <= directory_ns <= after["stamp_ns"]
        assert stamp["mtime_ns"] == stamp["ctime_ns"]


def test_atime_is_exact(fs: GuestFs) -> None:
    with fs.mounted(f"{OPTIONS},strictatime"):
        fs.prepare()
        clock, stamp = fs.ops("open", f"align:{INTERVAL_MS}", "sleep:30", "clock", "read", "stat")
    assert 0 <= stamp["atime_ns"] - clock["stamp_ns"] <= 8 * MS


def test_atime_waits_while_the_other_stamps_are_young(fs: GuestFs) -> None:
    """relatime sets atime at the first read after each new mtime."""
    with fs.mounted(OPTIONS):
        fs.prepare()
        *_, before, after, stamp = fs.ops(
            "open", f"align:{INTERVAL_MS}", "write", "fsync", "io", "read", "write", "fsync", "io",
            "stat",
        )  # fmt: skip
        assert written_kib([before, after]) == 4
        assert stamp["atime_ns"] > stamp["mtime_ns"]


def test_atime_alone_commits_as_stock(fs: GuestFs) -> None:
    with fs.mounted(f"{OPTIONS},strictatime"):
        fs.prepare("write", "fsync")
        (stamp,) = fs.ops("open", "sleep:200", "read", "fsync", "stat", CRASH)
        assert fs.crashed().atime_ns == stamp["atime_ns"]


def test_exact_stamp_inside_the_interval_is_kept(fs: GuestFs) -> None:
    """create(2) stamps exactly; the write in the same interval must not take the file back."""
    with fs.mounted(OPTIONS):
        created, same, later = fs.ops(
            f"align:{INTERVAL_MS}", "sleep:30", "create", "stat", "write", "stat",
            f"align:{INTERVAL_MS}", "write", "stat", file="/mnt/new",
        )  # fmt: skip
    assert created["mtime_ns"] % (INTERVAL_MS * MS) != 0
    assert same["mtime_ns"] == created["mtime_ns"]
    assert same["ctime_ns"] == created["ctime_ns"]
    assert later["mtime_ns"] % (INTERVAL_MS * MS) == 0 and later["mtime_ns"] > same["mtime_ns"]


def test_ctime_never_decreases(fs: GuestFs) -> None:
    """chmod late in an interval, then a write that sets mtime to the interval's start."""
    with fs.mounted(OPTIONS):
        fs.prepare()
        changed, written = fs.ops(
            "open", f"align:{INTERVAL_MS}", "sleep:40", "chmod:600", "stat", "write", "stat"
        )
    assert written["ctime_ns"] == changed["ctime_ns"]
    assert written["mtime_ns"] == written["ctime_ns"] // (INTERVAL_MS * MS) * INTERVAL_MS * MS


def test_user_stamps_outside_the_interval_are_replaced(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        for seconds in (1, 4102444800):  # 1970 and 2100
            clock, stamp = fs.ops(
                "open", f"align:{INTERVAL_MS}", "sleep:30", f"utimens:{seconds},5", "clock",
                "write", "stat",
            )  # fmt: skip
            start_ns = clock["stamp_ns"] // (INTERVAL_MS * MS) * INTERVAL_MS * MS
            assert stamp["mtime_ns"] == start_ns


def test_suid_is_still_dropped_by_a_write(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        fs.vm.run(
            f"chmod 4777 {FILE}; setpriv --reuid 65534 --clear-groups "
            f"sh -c 'printf x 1<>{FILE}'; [ $(stat -c %a {FILE}) = 777 ]"
        )


def test_no_atomic_change_is_lost_in_the_new_interval(fs: GuestFs) -> None:
    """Each interval's first write is seen by stat: ten intervals, ten different stamps."""
    with fs.mounted(OPTIONS):
        fs.prepare()
        words = ["open"] + ["align:100", "write", "stat"] * 10
        stamps = [event["mtime_ns"] for event in fs.ops(*words)]
    assert len(set(stamps)) == 10 and stamps == sorted(stamps)
