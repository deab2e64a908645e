"""What stat() sees of writes, foremost on kernels with multigrain timestamps (Linux 6.13)."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fastsync_lab.host.build import ModuleSet
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine.vm import Vm
from tests.vm.conftest import compile_program, prepare
from tests.vm.guestfs import FILE, GuestFs

TRUNCATE = "mtime_update=100"
DEFER = "mtime_update=100,mtime_mode=defer"
OFF = "un_mtime_update"
RACE_MS = 1500

Race = Callable[..., dict[str, int]]


def is_multigrain(tree: KernelTree) -> bool:
    version = re.match(r"(\d+)\.(\d+)", tree.release)
    assert version
    return (int(version[1]), int(version[2])) >= (6, 13)


@pytest.fixture
def multigrain(tree: KernelTree) -> None:
    if not is_multigrain(tree):
        pytest.skip(f"{tree.release} has no multigrain timestamps")


@pytest.fixture
def fs2(
    two_cores: Vm, modules: ModuleSet, flashdev: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GuestFs]:
    """A file system on the guest with two cores."""
    fsops = two_cores.stage(compile_program("fsops", tmp_path_factory.mktemp("fsops")))
    yield GuestFs(two_cores, fsops, prepare(two_cores, modules, flashdev))
    two_cores.run("umount -q /mnt", check=False)


@pytest.fixture
def race(request: pytest.FixtureRequest, tmp_path: Path) -> Race:
    """Call the race program in the guest of fs2, or of fs where there is none."""
    fixture = "fs2" if "fs2" in request.fixturenames else "fs"
    guest: GuestFs = request.getfixturevalue(fixture)
    program = guest.vm.stage(compile_program("race", tmp_path))

    def call(*words: object) -> dict[str, int]:
        found: dict[str, int] = json.loads(
            guest.vm.run(" ".join(map(str, (program, *words)))).stdout
        )
        return found

    return call


@pytest.mark.usefixtures("multigrain")
@pytest.mark.parametrize("options", [OFF, DEFER])
def test_stat_never_misses_a_write(fs2: GuestFs, race: Race, options: str) -> None:
    with fs2.mounted(options):
        fs2.prepare()
        seen = race("watch", FILE, RACE_MS)
    assert seen["due"] > 100
    assert seen["missed"] == 0


@pytest.mark.short
@pytest.mark.usefixtures("multigrain")
@pytest.mark.parametrize("options", [OFF, DEFER])
def test_stat_never_misses_a_write_on_one_core(fs: GuestFs, race: Race, options: str) -> None:
    with fs.mounted(options):
        fs.prepare()
        seen = race("watch", FILE, RACE_MS)
    assert seen["due"] > 100
    assert seen["missed"] == 0


def test_stat_misses_writes_inside_an_interval_of_truncate(fs: GuestFs, race: Race) -> None:
    """The price of truncate; and the watcher does see a miss where there is one."""
    with fs.mounted(TRUNCATE):
        fs.prepare()
        seen = race("watch", FILE, RACE_MS)
    assert 0 < seen["missed"] < seen["due"]


@pytest.mark.usefixtures("multigrain")
@pytest.mark.parametrize("options", ["mtime_update=1", "mtime_update=10", DEFER])
def test_stamps_never_go_back(fs2: GuestFs, race: Race, options: str) -> None:
    with fs2.mounted(options):
        fs2.prepare()
        seen = race("back", FILE, RACE_MS)
    assert seen["looks"] > 100
    assert seen["ctime_back"] == 0
    if options != DEFER:  # which sets mtime as stock does: after ctime, without a lock
        assert seen["mtime_back"] == 0


@pytest.mark.parametrize("options", [OFF, "mtime_update=3", "mtime_update=10", DEFER])
def test_file_written_later_has_no_earlier_mtime(fs: GuestFs, race: Race, options: str) -> None:
    """A fine-grained stamp must not take a file into an interval ahead of everybody else's."""
    with fs.mounted(options):
        fs.prepare()
        fs.ops("create", "write", file="/mnt/g")
        seen = race("order", FILE, "/mnt/g", 2000)
    assert seen["rounds"] == 2000
    assert seen["backwards"] == 0


@pytest.mark.short
@pytest.mark.usefixtures("multigrain")
def test_mark_that_stat_leaves_outlives_a_write_of_truncate(fs: GuestFs) -> None:
    """Both chmod are in one tick: their ctimes differ only if the mark is still there."""
    with fs.mounted(TRUNCATE):
        fs.prepare()
        begin, seen, end, changed = fs.ops(
            "open", "align:100", "clock", "chmod:600", "stat", "write", "chmod:644", "clock", "stat"
        )
        unseen, clock = fs.ops(
            "open", "align:100", "chmod:600", "write", "chmod:644", "stat", "clock"
        )
    assert begin["stamp_ns"] == end["stamp_ns"], "the test ran too slowly"
    assert changed["ctime_ns"] > seen["ctime_ns"] == begin["stamp_ns"]
    assert unseen["ctime_ns"] == clock["stamp_ns"]


@pytest.mark.short
@pytest.mark.usefixtures("multigrain")
def test_write_takes_no_fine_grained_stamp_in_truncate(fs: GuestFs) -> None:
    def fine_stamps(options: str) -> tuple[int, int]:
        with fs.mounted(options):
            fs.prepare()
            before, *_, after = fs.ops(
                "open", "align:100", "multigrain", *["stat", "write"] * 20, "multigrain"
            )
        return after["fine"] - before["fine"], after["floor"] - before["floor"]

    assert min(fine_stamps(OFF)) >= 15
    assert fine_stamps(TRUNCATE) == (0, 0)


@pytest.mark.short
@pytest.mark.parametrize("options", [OFF, TRUNCATE, DEFER])
def test_no_write_would_block_for_its_stamp(fs: GuestFs, options: str) -> None:
    """ext4 asks for the stamp of a RWF_NOWAIT write as of any other, on all kernels so far."""
    with fs.mounted(options):
        fs.prepare()
        # The direct write before drops the page from the cache, which would block as well.
        (count,) = fs.ops("open", "dwrite", "nowait:500")
    assert count == {"written": 500, "again": 0}
