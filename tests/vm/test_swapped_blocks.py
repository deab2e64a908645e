"""Blocks that change places, and data in the inode: what is written there and synced is kept."""

import pytest

from fastsync_lab.machine.vm import Vm
from tests.vm.conftest import compile_program, prepare
from tests.vm.guestfs import FILE, NO_PERIODIC_COMMIT, GuestFs

# Long enough for stamps to be young for all of the test.
MODES = {
    "off": NO_PERIODIC_COMMIT,
    "truncate": f"mtime_update=1000,{NO_PERIODIC_COMMIT}",
    "defer": f"mtime_update=1000,mtime_mode=defer,{NO_PERIODIC_COMMIT}",
}


@pytest.fixture(scope="module")
def swapped(vm: Vm, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the guest finds the swapped program."""
    return vm.stage(compile_program("swapped", tmp_path_factory.mktemp("swapped")))


@pytest.mark.short
@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
@pytest.mark.parametrize("how", ["move", "boot"])
@pytest.mark.parametrize("mode", MODES)
def test_synced_data_in_swapped_blocks_is_kept(
    fs: GuestFs, swapped: str, mode: str, how: str, call: str
) -> None:
    assert in_swapped_blocks(fs, swapped, MODES[mode], how, call) == "NNN"


@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
@pytest.mark.parametrize("mode", MODES)
def test_a_fast_commit_does_not_leave_swapped_blocks_out(
    fs: GuestFs, swapped: str, mode: str, call: str
) -> None:
    """6.1 and 6.12 take MOVE_EXT for something that a fast commit describes."""
    fs.mkfs("-O fast_commit")
    fs.mount(MODES[mode])
    fs.vm.run(f"touch {FILE}.first; sync")  # fast commits begin after a full one
    fs.vm.run(f"{swapped} move {call} {FILE}")
    assert first_bytes_after_a_crash(fs) == "NNN"


@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
@pytest.mark.parametrize("mode", MODES)
def test_synced_inline_data_is_kept(fs: GuestFs, mode: str, call: str) -> None:
    """An overwrite changes neither the size nor a page."""
    assert in_the_inode(fs, MODES[mode], call) == "NNN"


@pytest.mark.short
@pytest.mark.parametrize("which", ["stock_modules", "mended_modules"])
def test_fdatasync_of_stock_keeps_neither_without_our_patches(
    which: str, request: pytest.FixtureRequest, kernel: str, swapped: str
) -> None:
    """Once stock does, the kernel has mends of its own, and these patches may go."""
    if not kernel.startswith("7."):
        pytest.skip("the patches are for 7.2")
    vm, fsops, flashdev, modules = map(request.getfixturevalue, ("vm", "fsops", "flashdev", which))
    fs = GuestFs(vm, fsops, prepare(vm, modules, flashdev))
    found = [
        in_swapped_blocks(fs, swapped, MODES["off"], "move", "fdatasync"),
        in_the_inode(fs, MODES["off"], "fdatasync"),
    ]
    kept = which == "mended_modules"
    assert [text == "NNN" for text in found] == [kept, kept]


def in_swapped_blocks(fs: GuestFs, swapped: str, options: str, how: str, call: str) -> str:
    """What is left of a write into a block that has just got another place."""
    fs.mkfs()
    fs.mount(options)
    fs.vm.run(f"{swapped} {how} {call} {FILE}")
    return first_bytes_after_a_crash(fs)


def in_the_inode(fs: GuestFs, options: str, call: str) -> str:
    """What is left of a write into a small file that has its data in its inode."""
    fs.mkfs("-O inline_data")
    fs.mount(options)
    fs.vm.run(f"printf %050d 7 >{FILE}; sync")
    fs.vm.run(f"printf NNN | dd of={FILE} conv=notrunc,{call} status=none")
    return first_bytes_after_a_crash(fs)


def first_bytes_after_a_crash(fs: GuestFs) -> str:
    """The file's first bytes once nothing but what has been committed is left."""
    fs.ops("open", "shutdown:2")  # EXT4_GOING_FLAGS_NOLOGFLUSH
    fs.umount()
    fs.mount()
    try:
        return fs.vm.run(f"head -c 3 {FILE}").stdout
    finally:
        fs.umount()
        fs.vm.run(f"e2fsck -fn {fs.device}")
