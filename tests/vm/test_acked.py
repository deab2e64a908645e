"""Syncs of many tasks on a device that loses its cache with a flush: what they said is there.

Tasks sleep between every choice and its use (tests/delays.patch). So flushes overtake each other,
and a failed one's task comes to say so late.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastsync_lab.crash.builds import delays_patch
from fastsync_lab.host.build import build_modules
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine.vm import Vm
from tests.vm import eagerfs
from tests.vm.conftest import compile_program, losing_fs, need_bursts
from tests.vm.guestfs import (
    CRASH_IMAGE,
    FAIL_A_FLUSH,
    MNT,
    MODES,
    NO_PERIODIC_COMMIT,
    UNIFORM,
    GuestFs,
)
from tests.vm.planted import DELAY_SEED, seed_delays

TASKS = 4
MS_OF_A_ROUND = 1500
ROUNDS = 8
# What is mounted, and what tasks do. Without bursts a failed fdatasync is its caller's alone, as on
# stock: nobody else learns which data it took.
CASES = {
    "truncate": (MODES["truncate"], "fsync"),
    "defer": (MODES["defer"], "fsync"),
    "carried": (f"mtime_update=5,mtime_mode=defer,{NO_PERIODIC_COMMIT}", "modes"),
    "eager": (eagerfs.OPTIONS, "both"),
    "defer+eager": (f"{MODES['defer']},eager_sync", "both"),
    "in place": (f"{MODES['defer']},eager_sync", "overwrites"),
}


@pytest.fixture
def delayed_losing(vm: Vm, fsops: str, tree: KernelTree, flashdev: Path) -> Iterator[GuestFs]:
    modules = build_modules(tree, fault=delays_patch())
    with losing_fs(vm, fsops, modules, flashdev, UNIFORM) as fs:
        yield fs
        seed_delays(vm, 0)


def acked_and_failed(fs: GuestFs, program: str, options: str, what: str, seed: int) -> list[int]:
    """One round on a new file system, and what it leaves held against what it said."""
    fs.mkfs()
    fs.mount(options)
    out = fs.vm.run(
        f"({FAIL_A_FLUSH}; echo 0 >fail_from)\n"
        f"echo {seed} >{DELAY_SEED}\n"
        f"{program} run {MNT} {TASKS} {MS_OF_A_ROUND} {seed} {what} || exit\n"
        f"echo 0 >{DELAY_SEED}\n"
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
    delayed_losing: GuestFs, tree: KernelTree, tmp_path: Path, mode: str
) -> None:
    if "eager_sync" in CASES[mode][0]:
        need_bursts(tree)
    fs = delayed_losing
    program = fs.vm.stage(compile_program("acked", tmp_path))
    rounds = [acked_and_failed(fs, program, *CASES[mode], seed) for seed in range(ROUNDS)]
    acked, failed = map(sum, zip(*rounds, strict=True))
    assert acked > 10 * ROUNDS and failed > TASKS * ROUNDS / 2, rounds
