"""A device that drops what it has cached when a flush fails: nobody is told afterwards that it is there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fastsync_lab.build import ModuleSet
from fastsync_lab.device import load_profile
from fastsync_lab.vm import Vm
from tests.vm.guestfs import CAPACITY_MIB, CRASH, MNT, NO_PERIODIC_COMMIT, GuestFs

# Without the option a failed flush is as stock has it: the journal aborts, and an fsync that finds
# its transaction gone takes it for a committed one.
MODES = {
    "truncate": f"mtime_update=1000,{NO_PERIODIC_COMMIT}",
    "defer": f"mtime_update=1000,mtime_mode=defer,{NO_PERIODIC_COMMIT}",
}
FAIL_A_FLUSH = (
    "cd /sys/module/flashdev/parameters; echo flush >fail_kind; echo 1 >fail_count; "
    "echo 1 >fail_from"
)
OTHER, THIRD = f"{MNT}/other", f"{MNT}/third"


@pytest.fixture
def losing(vm: Vm, fsops: str, modules: ModuleSet, flashdev: Path) -> Iterator[GuestFs]:
    """Our modules on a device that loses its cache with a flush; its complaints are not looked at."""
    vm.use_filesystem(modules)
    device = vm.load_device(
        load_profile("uniform-100us"), flashdev, capacity_mib=CAPACITY_MIB, lose_cache=True
    )
    yield GuestFs(vm, fsops, device)
    vm.run(f"umount -q {MNT}; rmmod flashdev")
    vm.kernel_log()


def start(fs: GuestFs, options: str) -> None:
    """Three files, wholly on the medium."""
    fs.mkfs()
    fs.mount(options)
    fs.prepare()
    fs.vm.run(f"cp {MNT}/f {OTHER}; cp {MNT}/f {THIRD}; sync")


def failed(fs: GuestFs, file: str, *words: str) -> int:
    """The errno of the last of these ops, 0 if it succeeded."""
    return fs.ops("open", *words[:-1], f"?{words[-1]}", file=file)[-1]["errno"]


@pytest.mark.parametrize("mode", MODES)
def test_a_failed_fsync_takes_other_files_with_it(losing: GuestFs, mode: str) -> None:
    """Both have written; one's flush fails, which loses the other's data, too."""
    start(losing, MODES[mode])
    # Stamps that are young and committed, where the mode keeps them for a while.
    losing.ops("open", "write", "fsync")
    losing.ops("open", "write", "fsync", file=OTHER)
    losing.ops("open", "write", "writeback", "waitfirst", file=OTHER)
    losing.vm.run(FAIL_A_FLUSH)
    assert failed(losing, f"{MNT}/f", "write", "fsync") != 0
    assert failed(losing, OTHER, "fsync") != 0


def test_a_failed_flush_fails_the_commit_that_was_to_be_carried(losing: GuestFs) -> None:
    """Its blocks are lost; the flushes that succeed afterwards do not carry it."""
    start(losing, MODES["defer"])
    losing.ops("open", "write", "fsync", "sleep:900")
    losing.ops("open", "chmod:601", file=OTHER)
    losing.ops("open", "write", "fsync", "sleep:4")  # starts the commit, and does not wait for it
    losing.vm.run(FAIL_A_FLUSH)
    assert failed(losing, THIRD, "write", "fdatasync") != 0
    # Flushes that succeed. Once the journal is aborted nothing is opened for writing.
    fsops = losing.fsops_path
    losing.vm.run(f"for i in 1 2 3; do {fsops} {MNT}/f open write fdatasync sleep:4; done; true")
    refused = losing.vm.run(f"{fsops} {OTHER} open fsync", check=False).status != 0
    losing.ops(CRASH)
    losing.umount()
    assert refused or losing.crashed("/other").mode == 0o601


def test_fsync_fails_once_the_journal_is_aborted(losing: GuestFs) -> None:
    """An aborted transaction has a tid like a committed one, and stamps that would be young."""
    start(losing, MODES["defer"])
    losing.ops("open", "write", "fsync", "sleep:900")
    losing.ops("open", "write", "fsync", "sleep:4")  # starts the commit, and does not wait for it
    losing.vm.run(FAIL_A_FLUSH)
    assert failed(losing, THIRD, "write", "fdatasync") != 0
    losing.ops("open", "sleep:4")
    assert failed(losing, f"{MNT}/f", "fsync") != 0
