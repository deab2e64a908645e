"""A file whose blocks have changed places: what is written to them afterwards and synced is kept."""

import pytest

from fastsync_lab.vm import Vm
from tests.vm.conftest import compile_program
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
    return vm.stage(str(compile_program("swapped", tmp_path_factory.mktemp("swapped"))))


@pytest.mark.short
@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
@pytest.mark.parametrize("how", ["move", "boot"])
@pytest.mark.parametrize("mode", MODES)
def test_synced_data_in_swapped_blocks_is_kept(
    fs: GuestFs, swapped: str, mode: str, how: str, call: str
) -> None:
    fs.mkfs()
    fs.mount(MODES[mode])
    fs.vm.run(f"{swapped} {how} {call} {FILE}")
    fs.ops("open", "shutdown:2")  # EXT4_GOING_FLAGS_NOLOGFLUSH
    fs.umount()
    fs.mount()
    try:
        assert fs.vm.run(f"head -c 3 {FILE}").stdout == "NNN"
    finally:
        fs.umount()
    fs.vm.run(f"e2fsck -fn {fs.device}")
