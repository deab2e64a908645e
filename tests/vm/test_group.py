"""mtime_update: fsyncs that come together share a flush, one that comes alone waits for nobody."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.host.build import ModuleSet
from fastsync_lab.machine.device import load_profile
from fastsync_lab.machine.vm import Vm
from tests.vm.conftest import other_device
from tests.vm.guestfs import MNT, MODES, MS, GuestFs, trace_requests

WRITERS, ROUNDS = 6, 20
START_MS = 5000


@pytest.fixture
def slow(vm: Vm, fsops: str, modules: ModuleSet, flashdev: Path) -> Iterator[GuestFs]:
    """Flushes take long beside what a write takes, and beside the processor's part."""
    profile = replace(load_profile("uniform-100us"), flush_ns=20 * MS)
    with other_device(vm, modules, flashdev, profile, 512) as device:
        yield GuestFs(vm, fsops, device)


def make_files(fs: GuestFs) -> None:
    """A file for each writer, wholly on the medium, whose stamps are young."""
    fs.vm.run(
        f"cd {MNT}; for n in $(seq {WRITERS}); do dd if=/dev/zero of=w$n bs=64k count=1; done\nsync"
    )


def flushes(fs: GuestFs, writers: int) -> int:
    """How many the device was sent by fsyncs of that many processes, each of its own file.

    They begin together, however long it takes to start them.
    """
    words = f"align:{START_MS} " + "write fsync " * ROUNDS
    text = trace_requests(
        fs.vm,
        f"for n in $(seq {writers}); do {fs.fsops_path} {MNT}/w$n open {words} & done; wait",
    )
    return sum(" FF " in line for line in text.splitlines() if "block_rq_issue" in line)


@pytest.mark.short
@pytest.mark.parametrize("mode", MODES)
def test_together_they_share_a_flush(slow: GuestFs, mode: str) -> None:
    with slow.mounted(MODES[mode]):
        make_files(slow)
        sent = flushes(slow, WRITERS)
        shared = slow.counter("flushes_shared")
    # Some may begin earlier than others. Who has not shared one has sent one.
    assert shared > ROUNDS * WRITERS / 2, (sent, shared)
    assert sent <= ROUNDS * WRITERS - shared + 2, (sent, shared)


def test_alone_each_has_its_own(slow: GuestFs) -> None:
    with slow.mounted(MODES["defer"]):
        make_files(slow)
        sent = flushes(slow, 1)
        assert slow.counter("flushes_shared") == 0
    assert ROUNDS <= sent <= ROUNDS + 2


def test_not_without_the_option(slow: GuestFs) -> None:
    """Whatever was on before in this mount."""
    with slow.mounted(MODES["defer"]):
        make_files(slow)
        slow.remount("un_mtime_update")
        flushes(slow, WRITERS)
        assert slow.counter("flushes_shared") == 0


def test_a_long_writer_is_waited_for_once(slow: GuestFs) -> None:
    """It writes for seconds; who syncs meanwhile waits for half a flush at most, and only once."""
    with slow.mounted(MODES["defer"]):
        make_files(slow)
        size = 64 << 20
        text = trace_requests(
            slow.vm,
            f"{slow.fsops_path} {MNT}/large create overwrite:{size} fsync & sleep 0.3\n"
            f"{slow.fsops_path} {MNT}/w1 open {'write fsync ' * ROUNDS}; wait",
        )
        assert slow.counter("flushes_shared") <= 2
    assert text.count(" FF ") >= ROUNDS
