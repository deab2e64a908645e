"""Who waits while a commit is carried: nobody waits for it longer than for one of stock's."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from fastsync_lab.host.build import ModuleSet
from fastsync_lab.machine.device import load_profile
from fastsync_lab.machine.vm import Vm
from tests.vm.carried import START_A_CARRIED_COMMIT, carrying
from tests.vm.conftest import IN_TIME, compile_program, other_fs
from tests.vm.guestfs import FILE, MNT, MODES, NO_PERIODIC_COMMIT, GuestFs

LONGEST = MODES["defer"]
STOCK = NO_PERIODIC_COMMIT
# A transaction holds 256 blocks of such a journal, here the inodes of some 900 files.
SMALL_JOURNAL = "-J size=4 -I 1024 -N 8192"
CREATS = 3000
ROUNDS = 5


@pytest.fixture(scope="module")
def creats(vm: Vm, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the guest finds the creats program."""
    return vm.stage(compile_program("creats", tmp_path_factory.mktemp("creats")))


@pytest.fixture
def worst_creat_ns(
    vm: Vm,
    fsops: str,
    creats: str,
    stock_modules: ModuleSet,
    modules: ModuleSet,
    flashdev: Path,
) -> Iterator[dict[str, float]]:
    """The worst creat(2) beside a commit that nobody waits for, by module pair: the median round.

    One round's worst depends on where the ticks fall: stock's has been 3.6 to 4.9 ms.
    """
    worst = {}
    # One script: between two of them the commit's patience would end.
    script = (
        f"{fsops} {FILE} {' '.join(START_A_CARRIED_COMMIT)} || exit\n"
        f"mkdir {MNT}/d && {creats} {MNT}/d {CREATS}"
    )
    for pair, options in ((stock_modules, STOCK), (modules, LONGEST)):
        profile, found = load_profile("sata-ssd"), []
        with other_fs(vm, fsops, pair, flashdev, profile, 64) as fs:
            for _ in range(ROUNDS):
                with fs.mounted(options, mkfs=SMALL_JOURNAL):
                    fs.prepare()
                    if pair is stock_modules:
                        done = vm.run(script)
                    else:
                        with carrying(fs, 1) as waits:
                            done = vm.run(script)
                        assert waits == ["blocks hurried"]
                found.append(json.loads(done.stdout)["worst_ns"])
        worst[pair.name] = median(found)
    yield worst


@IN_TIME
def test_a_carried_commit_holds_up_no_handle(worst_creat_ns: dict[str, float]) -> None:
    """The transaction after it fills; who wants to start a handle waits for the end of both."""
    assert worst_creat_ns["fastsync"] <= 1.2 * worst_creat_ns["stock"]


def average_commit_us(vm: Vm, device: str) -> int:
    text = vm.run(f"cat /proc/fs/jbd2/{device.removeprefix('/dev/')}-8/info").stdout
    match = re.search(r"(\d+)us average transaction commit time", text)
    assert match, text
    return int(match[1])


@IN_TIME
def test_patience_is_no_commit_time(fs: GuestFs) -> None:
    """Sync handles sleep as long as commits take on average, to be joined by others."""
    with fs.mounted(LONGEST):
        fs.prepare()
        before_us = average_commit_us(fs.vm, fs.device)
        with carrying(fs, 4) as waits:
            for _ in range(4):
                fs.ops(*START_A_CARRIED_COMMIT, "sleep:2100")
        assert waits == ["blocks alone"] * 4
        after_us = average_commit_us(fs.vm, fs.device)
    assert after_us <= 2 * before_us
