"""eager_sync: trace events of marks, decisions, flushes and switching.

test_gather.py and test_short.py read those of waits and of cuts.
"""

import re
from pathlib import Path

import pytest

from fastsync_lab.host.build import build_modules
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine.vm import Vm
from tests.vm.conftest import prepare
from tests.vm.eagerfs import OPTIONS, run, stats
from tests.vm.guestfs import FAIL_A_FLUSH, FILE, MNT, GuestFs, sound_log
from tests.vm.planted import patch_of
from tests.vm.tracing import trace_requests

pytestmark = pytest.mark.usefixtures("bursts")

EVENT = re.compile(r": jbd2_burst_(\w+): dev \d+,\d+ tid (\d+) (.*)$", re.MULTILINE)
FLUSHED = re.compile(r"blocks (\d+) flushed in (\d+) us: (\d+)")
MARK = re.compile(r"(\w+) by (?:__)?(?:ext4|jbd2)_[\w.]+\+0x\S+(?: \[\w+\])?")
NAMES = ("mark", "decide", "flush", "switch")
Event = tuple[str, int, str]


def traced(fs: GuestFs, commands: str) -> list[Event]:
    """Each event while the commands run: its name, its transaction, what it says of it."""
    events = [f"jbd2_burst/jbd2_burst_{name}" for name in NAMES]
    text = trace_requests(fs.vm, commands, *events).text
    return [(name, int(tid), said) for name, tid, said in EVENT.findall(text)]


def said(events: list[Event], name: str) -> list[str]:
    return [text for event, _, text in events if event == name]


def reasons(decision: str) -> set[str]:
    return set(decision.split(" for ")[1].split("|"))


def test_a_burst(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare("chmod:600", "fsync")
        before = stats(fs)
        events = traced(fs, f"{fs.fsops_path} {FILE} open chmod:611 fsync chmod:600 fsync")
        after = stats(fs)
    assert said(events, "mark") == said(events, "switch") == []
    assert said(events, "decide") == ["burst for nothing"] * 2
    flushes = [FLUSHED.fullmatch(text) for text in said(events, "flush")]
    blocks, took_us, errors = zip(
        *(map(int, match.groups()) for match in flushes if match), strict=True
    )
    assert sum(blocks) == int(after["burst_blocks"]) - int(before["burst_blocks"])
    assert all(100 <= us < 10**6 for us in took_us)  # the device takes 100 us
    assert errors == (0, 0)
    assert [(name, tid - events[0][1]) for name, tid, _ in events] == [
        ("decide", 0),
        ("flush", 0),
        ("decide", 1),
        ("flush", 1),
    ]


def test_a_flush_that_fails(fs: GuestFs) -> None:
    fs.mkfs()
    fs.mount(OPTIONS)
    fs.prepare("chmod:600", "fsync")
    fs.vm.run(FAIL_A_FLUSH)
    events = traced(fs, f"{fs.fsops_path} {FILE} open chmod:611 ?fsync")
    fs.umount()
    assert said(events, "decide") == ["burst for nothing"]
    (flushed,) = said(events, "flush")
    assert flushed.endswith(" us: -5")
    sound_log(fs.vm, device_fails=True)


MARKS = {
    "grown": "append append fsync",
    "converted": "append append fsync",
    "ordered": "truncate:1000 fsync",
    "moved": "falloc:8,4096,4096 fsync",
}


@pytest.mark.parametrize("reason", MARKS)
def test_marks_and_what_they_decide(fs: GuestFs, reason: str) -> None:
    """Each reason of a transaction has a mark before, from a function of ext4 or jbd2."""
    with fs.mounted(f"{OPTIONS},eager_sync=1"):
        fs.prepare("chmod:600", "fsync")
        before = stats(fs)
        events = traced(fs, f"{fs.fsops_path} {FILE} open {MARKS[reason]}")
        after = stats(fs)
    marked: dict[int, set[str]] = {}
    decided = 0
    for name, tid, text in events:
        if name == "mark":
            match = MARK.fullmatch(text)
            assert match and match[1] not in marked.setdefault(tid, set()), text
            marked[tid].add(match[1])
        elif name == "decide" and tid in marked:
            assert text.startswith("barriers for ")
            assert reasons(text) == marked.pop(tid)
            decided += 1
    assert not marked and decided == int(after["barriers"]) - int(before["barriers"]) > 0
    assert any(reason in reasons(text) for text in said(events, "decide"))


def test_a_mark_that_a_flush_covers(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        fs.vm.run(f"fallocate -l 1M {MNT}/g; cp {FILE} {MNT}/h; sync")
        events = traced(
            fs,
            f"dd if=/dev/zero of={MNT}/g bs=64k seek=2 count=1 conv=notrunc oflag=direct\n"
            f"{fs.fsops_path} {MNT}/h open write fdatasync; sync {MNT}/g",
        )
    assert [MARK.sub(r"\1", text) for text in said(events, "mark")] == ["converted"]
    assert said(events, "decide") == ["burst for converted, covered"]
    assert len(said(events, "flush")) == 1


# When flushes begin and a commit decides, in ms; a flush takes 20, one after the other.
COVERED, NOT_COVERED = "burst for converted, covered", "barriers for converted"
BESIDE = {
    "alone": ((5,), 30, COVERED),
    "one has begun by its end": ((5, 15), 30, NOT_COVERED),
    "that one has ended, another has not": ((5, 15, 27), 50, COVERED),
}


@pytest.mark.parametrize("what", BESIDE)
def test_when_a_flush_covers(slow_flushes: GuestFs, what: str) -> None:
    """The device may have had another first, and failed it, and have lost what was written."""
    flushes_ms, commit_ms, decided = BESIDE[what]
    fsops = slow_flushes.fsops_path
    with slow_flushes.mounted(OPTIONS):
        slow_flushes.prepare()
        slow_flushes.vm.run(
            f"for f in {' '.join(map(str, flushes_ms))}; do cp {FILE} {MNT}/$f; done\n"
            f"fallocate -l 1M {MNT}/i; sync\n"
            f"{fsops} {MNT} freeze thaw && {fsops} {FILE} open chmod:601 fsync"
        )
        flushers = "\n".join(
            f"{fsops} {MNT}/{ms} open write writeback align:1000 sleep:{ms} fdatasync &"
            for ms in flushes_ms
        )
        events = traced(
            slow_flushes,
            f"dd if=/dev/zero of={MNT}/i bs=64k seek=2 count=1 conv=notrunc oflag=direct\n"
            f"{flushers}\n{fsops} {MNT}/i open align:1000 sleep:{commit_ms} fsync; wait",
        )
    assert said(events, "decide") == [decided]


def test_the_number_0_has_barriers(vm: Vm, fsops: str, tree: KernelTree, flashdev: Path) -> None:
    """Recovery takes it for "none": a torn burst of that number would be replayed."""
    modules = build_modules(tree, fault=patch_of("burst-near-0"))
    fs = GuestFs(vm, fsops, prepare(vm, modules, flashdev))
    with fs.mounted(OPTIONS):
        events = traced(fs, f"{fsops} {FILE} create append {'append fsync ' * 5}")
        run(fs, "cut f; opened; cmp /dev/shm/m/f /dev/shm/want.f; umount /dev/shm/m; kept f")
    decided = [(tid, text) for name, tid, text in events if name == "decide"]
    assert len(decided) == 5 and (0, "barriers for number_0") in decided
    assert {text for tid, text in decided if tid} == {"burst for nothing"}


def test_switching(fs: GuestFs) -> None:
    """Between the two a commit decides nothing."""
    with fs.mounted(OPTIONS):
        fs.prepare("chmod:600", "fsync")
        sync = f"{fs.fsops_path} {FILE} open chmod:611 fsync chmod:600 fsync"
        off, on = (f"mount -o remount,{word}eager_sync {MNT}" for word in ("un_", ""))
        events = traced(fs, f"{off}\n{sync}\n{on}\n{sync}")
    assert [(name, text) for name, _, text in events if name != "flush"] == [
        ("switch", "off"),
        ("switch", "on"),
        *[("decide", "burst for nothing")] * 2,
    ]
    # It names the first transaction of the new kind.
    off_at, on_at = (tid for name, tid, _ in events if name == "switch")
    assert on_at == off_at + 2
    assert [tid for name, tid, _ in events if name == "decide"] == [on_at, on_at + 1]
