"""Syncs of many tasks on a device that loses its cache with a flush: what they said is there.

Tasks sleep between every choice and its use (tests/delays.patch). So flushes overtake each other,
and a failed one's task comes to say so late.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fastsync_lab.host.build import ModuleSet, build_modules
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine.device import load_profile
from fastsync_lab.machine.vm import Vm
from tests.vm.conftest import compile_program, has_bursts
from tests.vm.guestfs import CAPACITY_MIB, CRASH_IMAGE, FAIL_ONE, MNT, MODES, GuestFs
from tests.vm.test_delays import DELAYS, seed_delays

TASKS = 4
MS_OF_A_ROUND = 1500
ROUNDS = 8
EAGER = "eager_sync,commit=300"
# What is mounted, and what tasks do. Without bursts a failed fdatasync is its caller's alone, as on
# stock: nobody else learns which data it took.
CASES = {
    "truncate": (MODES["truncate"], "fsync"),
    "defer": (MODES["defer"], "fsync"),
    "carried": ("mtime_update=5,mtime_mode=defer,commit=300", "modes"),
    "eager": (EAGER, "both"),
    "defer+eager": (f"{MODES['defer']},eager_sync", "both"),
    "in place": (f"{MODES['defer']},eager_sync", "overwrites"),
}


@contextmanager
def losing_fs(vm: Vm, fsops: str, modules: ModuleSet, flashdev: Path) -> Iterator[GuestFs]:
    """A device that loses its cache with a flush; nobody looks at what it complains of."""
    vm.use_filesystem(modules)
    profile = load_profile("uniform-100us")
    device = vm.load_device(profile, flashdev, capacity_mib=CAPACITY_MIB, lose_cache=True)
    yield GuestFs(vm, fsops, device)
    seed_delays(vm, 0)
    vm.run(f"umount -q {MNT}; rmmod flashdev")
    vm.kernel_log()


def acked_and_failed(fs: GuestFs, program: str, options: str, what: str, seed: int) -> list[int]:
    """One round on a new file system, and what it leaves held against what it said."""
    fs.mkfs()
    fs.mount(options)
    out = fs.vm.run(
        f"({FAIL_ONE.format('flush')}; echo 0 >fail_from)\n"
        f"echo {seed} >/sys/module/jbd2/parameters/delay_seed\n"
        f"{program} run {MNT} {TASKS} {MS_OF_A_ROUND} {seed} {what} || exit\n"
        f"echo 0 >/sys/module/jbd2/parameters/delay_seed\n"
        f"{fs.fsops_path} {MNT} crash:{CRASH_IMAGE} || exit\n"
        f"umount {MNT}; e2fsck -fy {CRASH_IMAGE} >/dev/shm/fsck.log 2>&1; [ $? -le 1 ] || exit 9\n"
        "rm -rf /dev/shm/found; mkdir /dev/shm/found\n"
        f"debugfs -R 'rdump / /dev/shm/found' {CRASH_IMAGE} >&2 || exit\n"
        f"{program} check /dev/shm/found",
    ).stdout
    said = json.loads(out)
    return [said["acked"], said["failed"]]


@pytest.mark.parametrize("mode", CASES)
def test_what_was_acked_is_there(
    vm: Vm, fsops: str, tree: KernelTree, flashdev: Path, tmp_path: Path, mode: str
) -> None:
    if "eager_sync" in CASES[mode][0] and not has_bursts(tree):
        pytest.skip(f"no eager_sync for {tree.series}")
    program = vm.stage(compile_program("acked", tmp_path))
    modules = build_modules(tree, fault=DELAYS)
    with losing_fs(vm, fsops, modules, flashdev) as fs:
        rounds = [acked_and_failed(fs, program, *CASES[mode], seed) for seed in range(ROUNDS)]
    acked, failed = map(sum, zip(*rounds, strict=True))
    assert acked > 10 * ROUNDS and failed > TASKS * ROUNDS / 2, rounds
