"""eager_sync: data of small syncs in the log, its places, and what settles it."""

import pytest

from tests.vm.guestfs import CRASH_IMAGE, FILE, GuestFs
from tests.vm.test_eager import OPTIONS, bursts_of, requests, stats

pytestmark = pytest.mark.usefixtures("bursts")

FRESH = f"dd if=/dev/urandom of={FILE} bs=4k status=none conv=notrunc"


def data(fs: GuestFs) -> dict[str, int]:
    """The numbers that are about files' data."""
    return {name: int(value) for name, value in stats(fs).items() if value.isdecimal()}


@pytest.mark.short
def test_append_is_one_burst_and_one_flush(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare("append", "fsync")
        before = data(fs)
        sent = requests(fs, f"{fs.fsops_path} {FILE} open " + "append fsync " * 6)
        after = data(fs)
    # Descriptor, inode, block bitmap, group descriptors, the data, the record.
    assert bursts_of(sent) == [24576] * 6, sent
    assert after["data_blocks"] - before["data_blocks"] == 6
    assert after["barriers"] == before["barriers"]


@pytest.mark.short
def test_logged_data_survives_a_crash(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare("append", "fsync")
        fs.vm.run(f"{FRESH} count=3 seek=16 conv=notrunc,fsync; sha256sum <{FILE} >/dev/shm/sum")
        assert data(fs)["unsettled_blocks"] >= 3
        fs.ops("open", f"crash:{CRASH_IMAGE}")
        assert survived(fs)


@pytest.mark.short
def test_data_that_looks_like_the_log_survives(fs: GuestFs) -> None:
    """A block that begins with jbd2's magic number is escaped in the log, copy or not."""
    with fs.mounted(OPTIONS):
        fs.prepare("append", "fsync")
        fs.vm.run(
            "for i in 1 2 3; do\n"
            "printf '\\xc0\\x3b\\x39\\x98\\0\\0\\0\\x05'; head -c 4088 /dev/urandom\n"
            f"done | dd of={FILE} bs=4k seek=16 iflag=fullblock conv=notrunc,fsync status=none\n"
            f"sha256sum <{FILE} >/dev/shm/sum"
        )
        assert data(fs)["unsettled_blocks"] >= 3
        fs.ops("open", f"crash:{CRASH_IMAGE}")
        assert survived(fs)


def survived(fs: GuestFs) -> bool:
    """Whether the file in the crash image is, after e2fsck has replayed, as /dev/shm/sum says."""
    done = fs.vm.run(
        f"e2fsck -fy {CRASH_IMAGE} >/dev/null; "
        f"debugfs -R 'dump /f /dev/shm/f' {CRASH_IMAGE} 2>/dev/null; "
        "sha256sum </dev/shm/f | cmp - /dev/shm/sum",
        check=False,
    )
    return done.status == 0
