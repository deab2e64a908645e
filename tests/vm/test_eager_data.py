"""eager_sync: data of small syncs in the log, its places, and what settles it."""

import pytest

from tests.vm.guestfs import CRASH_IMAGE, FILE, MNT, GuestFs
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
        fs.vm.run(
            f"e2fsck -fy {CRASH_IMAGE} >/dev/null; debugfs -R 'dump /f /dev/shm/f' {CRASH_IMAGE} 2>/dev/null;"
            "sha256sum </dev/shm/f | cmp - /dev/shm/sum"
        )
