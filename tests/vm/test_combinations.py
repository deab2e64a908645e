"""Both modes on every kind of ext4: what they save, and that a crash loses nothing promised."""

from collections.abc import Callable

import pytest

from tests.vm.guestfs import CRASH, MS, GuestFs, OnDisk, written_kib

# name: (mkfs options, mount options)
KINDS = {
    "ordered": ("", ""),
    "writeback": ("", "data=writeback"),
    "data=journal": ("", "data=journal"),
    "fast_commit": ("-O fast_commit", ""),
    "no journal": ("-O ^has_journal", ""),
    "lazytime": ("", "lazytime"),
    "inline_data": ("-O inline_data", ""),
    "bigalloc": ("-O bigalloc -C 65536", ""),
    "128-byte inodes": ("-I 128", ""),
    "indirect blocks": ("-O ^extents,^64bit", ""),
    "no checksums": ("-O ^metadata_csum", ""),
    "quota": ("-O quota", ""),
    "nobarrier": ("", "nobarrier"),
    "sync": ("", "sync"),
}
MODES = ["truncate", "defer"]
INTERVAL_MS = 500
# These must write more than 4 KiB a call whatever the stamps do: the data goes through the journal,
# or the whole file lies in the inode.
JOURNALLED_DATA = {"data=journal", "inline_data"}
WHOLE_SECONDS = {"128-byte inodes"}


def options_of(kind: str, mode: str) -> str:
    mount = KINDS[kind][1]
    ours = f"mtime_update={INTERVAL_MS},mtime_mode={mode}"
    commit = "" if kind == "no journal" else ",commit=300"
    return ours + commit + (f",{mount}" if mount else "")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_fsync_costs_what_fdatasync_costs(fs: GuestFs, kind: str, mode: str) -> None:
    with fs.mounted(options_of(kind, mode), mkfs=KINDS[kind][0]):
        if kind == "inline_data":
            fs.ops("create", "write", "truncate:60", "fsync", "sleep:1100")
        else:
            fs.prepare()
        warm = ("open", "sleep:600", f"align:{INTERVAL_MS}", "write", "fsync", "sleep:20")
        data = written_kib(fs.ops(*warm, "io", "write", "fdatasync", "io"))
        full = written_kib(fs.ops(*warm, "io", "write", "fsync", "io"))
    if (kind, mode) == ("no journal", "defer"):
        assert full >= data  # there is nothing to defer; on 6.1 fsync writes the inode, too
        return
    assert full == data
    if kind not in JOURNALLED_DATA:
        assert full == 4


CHANGES: dict[str, tuple[str, Callable[[OnDisk], bool]]] = {
    "mode": ("chmod:601", lambda disk: disk.mode == 0o601),
    "owner": ("chown:4321", lambda disk: disk.uid == 4321),
    "xattr": ("setxattr:user.k=precious", lambda disk: "precious" in disk.text),
    "size": ("append", lambda disk: disk.size == 69632),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_changes_survive_a_crash_after_fsync(fs: GuestFs, kind: str, mode: str) -> None:
    """One crash for each change, each between two writes inside one interval."""
    with fs.mounted(options_of(kind, mode), mkfs=KINDS[kind][0]):
        fs.prepare()
        fs.ops("open", f"align:{INTERVAL_MS}", "write", "fsync")
        for name, (op, holds) in CHANGES.items():
            fs.ops("open", "write", op, "write", "fsync", CRASH)
            assert holds(fs.crashed()), name


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_stamps_after_a_crash_are_as_promised(fs: GuestFs, kind: str, mode: str) -> None:
    with fs.mounted(options_of(kind, mode), mkfs=KINDS[kind][0]):
        fs.prepare()
        words = ("open", f"align:{INTERVAL_MS}", "sleep:30", "write", "fsync", "sleep:30")
        *_, stamp = fs.ops(*words, "write", "fsync", "stat", CRASH)
        disk = fs.crashed()
    second = 1000 * MS if kind in WHOLE_SECONDS else 1
    assert stamp["mtime_ns"] % second == 0
    behind_ns = stamp["mtime_ns"] - disk.mtime_ns
    if mode == "truncate":
        assert behind_ns == 0 and stamp["ctime_ns"] == disk.ctime_ns
    else:
        assert 0 <= behind_ns < INTERVAL_MS * MS


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", sorted(JOURNALLED_DATA))
def test_journalled_data_survives(fs: GuestFs, kind: str, mode: str) -> None:
    """Inside one interval no stamp moves i_sync_tid: the data alone must make fsync commit."""
    with fs.mounted(options_of(kind, mode), mkfs=KINDS[kind][0]):
        first = ("create", "write", "truncate:60") if kind == "inline_data" else ("create", "write")
        fs.ops(*first, "fsync", "sleep:1100")
        fs.ops("open", f"align:{INTERVAL_MS}", "overwrite:60", "fsync", "overwrite:60", "fsync",
               CRASH)  # fmt: skip
        fs.crashed()
        fs.vm.run("debugfs -R 'cat /f' /dev/shm/crash.img 2>/dev/null | cmp - /mnt/f")


@pytest.mark.parametrize("mode", MODES)
def test_encrypted_file(fs: GuestFs, mode: str) -> None:
    """fscrypt: test_dummy_encryption encrypts everything with a key that needs no user."""
    fs.mkfs("-O encrypt")
    options = f"{options_of('ordered', mode)},test_dummy_encryption"
    fs.mount(options)
    fs.prepare()
    events = fs.ops(
        "open", "sleep:600", f"align:{INTERVAL_MS}", "write", "fsync", "io", "write", "fsync", "io"
    )
    assert written_kib(events) == 4
    fs.umount()
    fs.vm.run(f"e2fsck -fn {fs.device}")
