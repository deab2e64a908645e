"""Fast commits of two tasks at once: whose is whose."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.host.build import ModuleSet
from fastsync_lab.machine.device import load_profile
from fastsync_lab.machine.vm import Vm
from tests.vm.conftest import other_device
from tests.vm.guestfs import CAPACITY_MIB, FILE, MNT, GuestFs, parse_events

FLUSH_MS = 100
SLOW_FLUSH = replace(
    load_profile("uniform-100us"),
    name="slow flush",
    flush_ns=FLUSH_MS * 10**6,
    fua_ns=FLUSH_MS * 10**6,
)


@pytest.fixture
def slow(vm: Vm, fsops: str, modules: ModuleSet, flashdev: Path) -> Iterator[GuestFs]:
    with other_device(vm, modules, flashdev, SLOW_FLUSH, CAPACITY_MIB) as device:
        yield GuestFs(vm, fsops, device)


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
