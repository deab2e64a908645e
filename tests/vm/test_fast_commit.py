"""Fast commits: whose they are if two tasks sync at once, and one that is torn."""

import errno
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.host.build import ModuleSet
from fastsync_lab.machine.vm import Vm
from tests.vm.conftest import other_fs
from tests.vm.guestfs import (
    CAPACITY_MIB,
    CRASH,
    CRASH_BEFORE,
    FILE,
    MNT,
    NO_PERIODIC_COMMIT,
    UNIFORM,
    GuestFs,
    changed_in_log,
    parse_events,
    torn_image,
)

FLUSH_MS = 100
SLOW_FLUSH = replace(
    UNIFORM,
    name="slow flush",
    flush_ns=FLUSH_MS * 10**6,
    fua_ns=FLUSH_MS * 10**6,
)


@pytest.fixture
def slow(request: pytest.FixtureRequest, vm: Vm, fsops: str, flashdev: Path) -> Iterator[GuestFs]:
    """With our modules, or those of another fixture, which a test names as the parameter."""
    modules: ModuleSet = request.getfixturevalue(getattr(request, "param", "modules"))
    with other_fs(vm, fsops, modules, flashdev, SLOW_FLUSH, CAPACITY_MIB) as fs:
        yield fs


# For tests of stock, and of stock with patches/upstream/.
on_stock = pytest.mark.parametrize("slow", ["stock_modules"], indirect=True)
on_mended = pytest.mark.parametrize("slow", ["mended_modules"], indirect=True)


@pytest.mark.short
@pytest.mark.parametrize("mode", ["off", "truncate", "defer"])
def test_a_fast_commit_that_began_before_does_not_flush_what_came_after(
    slow: GuestFs, mode: str
) -> None:
    """Another's fast commit flushes, then writes with FUA; data is written in that second half.

    Stock ext4, and so ours when off, waits for it and returns: nothing has flushed the data.
    """
    options = "" if mode == "off" else f"mtime_update=100,mtime_mode={mode}"
    with slow.mounted(options, mkfs="-O fast_commit"):
        slow.vm.run(f"dd if=/dev/zero of={MNT}/other bs=4k count=1 status=none")
        slow.prepare()
        later_ms = 20 + FLUSH_MS * 3 // 2
        out = slow.vm.run(
            f"{slow.fsops_path} {MNT}/other open align:4000 sleep:20 write fsync & "
            f"{slow.fsops_path} {FILE} open align:4000 write sleep:{later_ms} io fsync io; wait"
        ).stdout
        before, after = parse_events(out)
    assert after["flushes"] - before["flushes"] == (0 if mode == "off" else 1)


# What a task does to FILE, or to a new one, and then syncs.
CHANGES = ("append", "chmod:600", f"rename:{MNT}/renamed", f"file:{MNT}/created create")


@pytest.mark.short
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("mode", ["off", "truncate", "defer"])
def test_a_change_beside_the_commit_of_an_ineligible_transaction_is_in_the_next_fast_commit(
    slow: GuestFs, mode: str, change: str
) -> None:
    """An xattr takes a full commit; what changes meanwhile is the next transaction's."""
    options = "" if mode == "off" else f",mtime_update=100,mtime_mode={mode}"
    synced, recovered = across_a_crash(slow, options, change)
    assert recovered == synced


@on_stock
@pytest.mark.parametrize("change", CHANGES[:2])
def test_stock_loses_such_a_change(slow: GuestFs, change: str) -> None:
    """Once this fails the kernel has a mend of its own, and that in kernel/glue may go."""
    synced, recovered = across_a_crash(slow, "", change)
    assert recovered != synced


@on_stock
@pytest.mark.parametrize("way", ["+e", "-e"])
def test_stock_loses_a_file_whose_format_has_changed(slow: GuestFs, kernel: str, way: str) -> None:
    """A fast commit has the inode, with the new flag, but not how its blocks are found now.

    7.2 takes a full commit. patches/upstream/ has that for 6.12; once this fails it may go.
    """
    if kernel.startswith("7."):
        pytest.skip("mended there")
    synced, recovered = across_a_migration(slow, way)
    assert recovered != synced


@on_mended
@pytest.mark.short
@pytest.mark.parametrize("change", CHANGES)
def test_stock_with_our_patches_keeps_such_a_change(
    slow: GuestFs, kernel: str, change: str
) -> None:
    if not kernel.startswith("7."):
        pytest.skip("the patch is for 7.2")
    synced, recovered = across_a_crash(slow, "", change)
    assert recovered == synced


@on_mended
@pytest.mark.parametrize("way", ["+e", "-e"])
def test_stock_with_our_patches_keeps_a_file_whose_format_has_changed(
    slow: GuestFs, kernel: str, way: str
) -> None:
    if kernel.startswith("7."):
        pytest.skip("mended there")
    synced, recovered = across_a_migration(slow, way)
    assert recovered == synced


# What stock finds behind the first sector of the first fast commit: no tag, or another one's tail.
first_torn = pytest.mark.parametrize("older, error", [(0, errno.ECANCELED), (1, errno.EBADMSG)])


@pytest.mark.short
@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("files", [4, 40])
def test_the_log_ends_at_a_torn_fast_commit_be_it_the_first(
    slow: GuestFs, files: int, older: bool
) -> None:
    failed_with, said = mounted_after_a_tear(slow, older=older, files=files)
    assert failed_with == 0
    assert re.search(r"first fast commit of transaction \d+ is not whole, and not replayed", said)


@on_stock
@pytest.mark.short
@first_torn
def test_stock_does_not_mount_if_the_first_fast_commit_is_torn(
    slow: GuestFs, older: bool, error: int
) -> None:
    assert mounted_after_a_tear(slow, older=older)[0] == error


@on_mended
@pytest.mark.short
@first_torn
def test_stock_with_our_patches_mounts_if_the_first_fast_commit_is_torn(
    slow: GuestFs, kernel: str, older: bool, error: int
) -> None:
    mended = kernel.startswith("7.")  # the patch is for 7.2
    assert mounted_after_a_tear(slow, older=older)[0] == (0 if mended else error)


def mounted_after_a_tear(fs: GuestFs, *, older: bool, files: int = 4) -> tuple[int, str]:
    """The errno of a mount whose log begins with a torn fast commit of so many files, and the log.

    Of its one block the first sector is there, of two blocks the first one. `older`: what is behind
    it is an older fast commit's, of the same form. No sync of the torn one has returned, so what it
    has may be there or not.
    """
    paths = " ".join(f"{MNT}/f{number}" for number in range(files))
    sync = f"{fs.fsops_path} {MNT}/f0 open fsync"
    fs.mkfs("-O fast_commit")
    fs.mount(NO_PERIODIC_COMMIT)
    fs.vm.run(f"touch {paths}; sync")
    if older:
        fs.vm.run(f"chmod 601 {paths}; {sync}; sync")
    fs.vm.run(f"{sync} {CRASH_BEFORE}; chmod 602 {paths}; {sync} {CRASH}")
    fs.umount()
    blocks = changed_in_log(fs)
    there = [1] if len(blocks) == 1 else [8, 0]
    fs.vm.run(
        f"{torn_image(blocks, there)} dd if=/dev/shm/t.img of={fs.device} bs=1M conv=fsync\n"
        "rm /dev/shm/*.img"
    )
    failed_with = fs.mount_errno("")
    if not failed_with:
        fs.vm.run(f"[ $(stat -c %a {paths} | uniq | wc -l) = 1 ]")
        fs.umount()
    return failed_with, fs.vm.kernel_log()  # stock complains there of what it finds


def across_a_migration(fs: GuestFs, way: str) -> tuple[str, str]:
    """A durable file, its format changed and synced; and what is left of it after a crash."""
    look = f"od -An -c -N4 {FILE} 2>&1"
    fs.mkfs("-O fast_commit")
    fs.mount(NO_PERIODIC_COMMIT)
    before = {"+e": "-e", "-e": "+e"}[way]
    fs.vm.run(f"printf NNN >{FILE}; sync {FILE}; chattr {before} {FILE}; sync")
    synced = fs.vm.run(
        f"chattr {way} {FILE}; {fs.fsops_path} {FILE} open fsync; {look}; "
        f"{fs.fsops_path} {FILE} open shutdown:2"
    ).stdout  # 2: EXT4_GOING_FLAGS_NOLOGFLUSH
    fs.umount()
    fs.mount()
    recovered = fs.vm.run(look, check=False).stdout
    fs.umount()
    fs.vm.kernel_log()  # where it complains of what it finds
    return synced, recovered


def across_a_crash(fs: GuestFs, options: str, change: str) -> tuple[str, str]:
    """The files as the fsync of a change left them, and as they are once recovered.

    The change comes while a transaction with an xattr commits. Who waits for that must not be an
    fsync of a file: then the transaction counts as eligible before its commit begins.
    """
    look = f"cd {MNT}; stat -c '%n %s %a' *"
    other = f"{MNT}/other"
    fs.mkfs("-O fast_commit")
    fs.mount(NO_PERIODIC_COMMIT + options)
    fs.vm.run(f"dd if=/dev/zero of={other} bs=4k count=1 status=none")
    fs.prepare()
    synced = fs.vm.run(
        f"{fs.fsops_path} {other} open setxattr:user.a=b syncfs & "
        f"{fs.fsops_path} {FILE} open sleep:{FLUSH_MS * 3 // 10} {change} fsync; "
        f"({look}); {fs.fsops_path} {other} open shutdown:2; wait"
    ).stdout  # 2: EXT4_GOING_FLAGS_NOLOGFLUSH
    fs.umount()
    fs.mount()
    recovered = fs.vm.run(look).stdout
    fs.umount()
    fs.vm.run(f"e2fsck -fn {fs.device}")
    return synced, recovered
