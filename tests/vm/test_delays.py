"""Modules in which tasks sleep between a choice and its use, drawn by a seed (tests/delays.patch).

One processor runs one task at a time, and a task gives way only where it sleeps. Without the delays
no other task would ever come in between.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fastsync_lab.crash.builds import delays_patch
from fastsync_lab.host.build import ModuleSet, build_modules
from fastsync_lab.host.glue import assemble
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine.vm import Vm
from tests.vm.conftest import IN_TIME, has_bursts, prepare
from tests.vm.eagerfs import run
from tests.vm.guestfs import CRASH, MNT, MS, GuestFs
from tests.vm.planted import DELAY_SEED, seed_delays
from tests.vm.stress import check_rounds, stress_on

INTERVAL_MS = 20
DEFER = f"mtime_update={INTERVAL_MS},mtime_mode=defer"


@pytest.fixture(scope="module")
def delayed(tree: KernelTree) -> ModuleSet:
    return build_modules(tree, fault=delays_patch())


@pytest.fixture
def slow_fs(vm: Vm, fsops: str, delayed: ModuleSet, flashdev: Path) -> Iterator[GuestFs]:
    """A uniform 100 us device, and modules that sleep once a seed is set."""
    fs = GuestFs(vm, fsops, prepare(vm, delayed, flashdev))
    yield fs
    vm.run(f"umount -q {MNT}", check=False)
    seed_delays(vm, 0)


def test_the_delays_apply(tree: KernelTree, tmp_path: Path) -> None:
    assemble(tree, tmp_path, stock=False, patches=[delays_patch()])


@IN_TIME
def test_switched_off_and_on_while_a_write_is_under_way(slow_fs: GuestFs) -> None:
    """Its stamps are logged as stamps that may wait: then they are on record, and do not."""
    with slow_fs.mounted(f"{DEFER},commit=300"):
        slow_fs.prepare()
        for seed in range(1, 25):
            seed_delays(slow_fs.vm, 0)
            slow_fs.ops("open", "write", "fsync")
            seed_delays(slow_fs.vm, seed)
            off, on = slow_fs.ops(
                "open", "later:1,write", f"sleep:{1 + 2 * (seed % 6)}", "remount:un_mtime_update",
                "sleep:150", f"remount:{DEFER}",
            )  # fmt: skip
            assert off["errno"] == on["errno"] == 0
            (stamp,) = slow_fs.ops("open", "sleep:100", "fsync", "stat", CRASH)
            behind_ns = stamp["mtime_ns"] - slow_fs.crashed().mtime_ns
            assert 0 <= behind_ns < INTERVAL_MS * MS, f"seed {seed}"


@IN_TIME
def test_a_write_relies_on_stamps_that_another_has_set_and_not_logged(slow_fs: GuestFs) -> None:
    """In truncate the second writer of an interval finds them as they should be."""
    with slow_fs.mounted("mtime_update=1000,mtime_mode=truncate,commit=300"):
        slow_fs.prepare()
        for seed in range(1, 25):
            seed_delays(slow_fs.vm, 0)
            slow_fs.ops("open", "write", "fsync", "align:1000")
            seed_delays(slow_fs.vm, seed)
            (stamp,) = slow_fs.ops(
                "open", "later:1,dwrite", f"sleep:{1 + seed % 6}", "dwrite", "fsync", "stat", CRASH
            )
            assert stamp["mtime_ns"] == slow_fs.crashed().mtime_ns, f"seed {seed}"


@pytest.mark.usefixtures("bursts")
def test_a_sync_does_not_run_after_who_writes_ahead_of_it(slow_fs: GuestFs) -> None:
    """eager_sync logs at most its threshold; what was written since the look goes into place."""
    appends = "dd if=/dev/zero of=$m/g bs=4k count=2000 oflag=append conv=notrunc status=none"
    with slow_fs.mounted("eager_sync=50,commit=300", mkfs="-J size=8"):
        slow_fs.prepare()
        logged: list[int] = []
        for seed in range(1, 61):
            if max(logged, default=0) >= 50:
                break
            slow_fs.vm.run(f"rm -f {MNT}/g")
            seed_delays(slow_fs.vm, 0)
            run(slow_fs, "settle; o $m/g create append")
            seed_delays(slow_fs.vm, seed)
            before, after = run(slow_fs, f"s; o $m/g open fsync & {appends}; wait; s")
            logged.append(after["data_blocks"] - before["data_blocks"])
    assert max(logged) == 50, logged


@IN_TIME
@pytest.mark.usefixtures("bursts")
def test_a_freeze_does_not_fail_when_a_settling_ends_meanwhile(slow_fs: GuestFs) -> None:
    """It looks whether the log has data; before it looks again the timer's may have settled it."""
    met = 0
    with slow_fs.mounted("eager_sync=100,commit=300"):
        slow_fs.prepare()
        for seed in range(1, 41):
            seed_delays(slow_fs.vm, 0)
            before, after = run(
                slow_fs,
                f"rm -f $m/g; settle; s; o $m/g create append fsync; echo {seed} >{DELAY_SEED};"
                f"o $m sleep:{4980 + seed % 25} freeze thaw; s",
            )
            met += all(
                after[name] > before[name] for name in ("settlings_aged", "settlings_emptied")
            )
    assert met > 0  # 9 times, seen


@pytest.mark.parametrize("seed", [1, 2])
def test_stress(
    vm: Vm, delayed: ModuleSet, flashdev: Path, tmp_path: Path, tree: KernelTree, seed: int
) -> None:
    eager = has_bursts(tree)
    stress = stress_on(vm, delayed, flashdev, tmp_path, round_ms=500, eager=eager)
    seed_delays(vm, seed)
    check_rounds(stress, "ordered", [f"{DEFER},eager_sync=8" if eager else DEFER])
