"""User-Mode Linux and QEMU recover a state to the same bytes: why the explorer may use the first.

The clocks of the two differ, and so do the stamps of what recovery changes: those of the
superblock and of inodes, with the checksums over them, and in the journal, which is empty then, the
copies of them. All else has to be equal.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fastsync_lab.crash.case import Case, Request
from fastsync_lab.crash.explore import Explorer
from fastsync_lab.crash.extfs import Image, checksums
from fastsync_lab.crash.judge import differences, without_completion
from fastsync_lab.crash.kinds import split_journal
from fastsync_lab.crash.recording import PAGE, Recording, load_recording
from fastsync_lab.crash.recover import Found, Recoverer, plan
from fastsync_lab.crash.states import State, all_states, sample
from fastsync_lab.crash.trace import SECTOR, parse_trace
from fastsync_lab.host.options import EAGER_MODES
from tests.vm.guestfs import JOURNAL_INO

pytestmark = pytest.mark.debian("the explorer boots Debian's kernel")

CASES = (
    Case("attributes", "defer", "ordered"),
    Case("mmap", "defer", "journal"),
    Case("append", "defer", "fast_commit"),
    Case("remount", "defer", "external"),
    Case("shift", "defer", "bigalloc"),
    Case("one-by-one", "truncate", "1k-blocks"),
    Case("inline", "truncate", "inline_data"),
    # Data is in the log, whose end is torn in most states.
    Case("logged-append", "eager", "ordered"),
    Case("logged-reuse", "defer+eager", "ordered"),
)
STATES = 16
SECTORS = PAGE // SECTOR
# ext4_mount_msg_ratelimit: ten in five seconds, which pass faster in QEMU.
RATE_LIMITED = re.compile(r"EXT4-fs .*: (mounted|unmounting) filesystem[ .]|callbacks suppressed")
# Bytes of the superblock and of an inode: stamps, and checksums over them.
SUPER_STAMPS = (*range(44, 52), *range(1020, 1024))
INODE_STAMPS = (*range(8, 24), 124, 125, 130, 131, *range(132, 144))
SMALL_INODE = 128


def stamps(image: bytes) -> bytearray:
    """A mask of a file system: 0 where a clock decides, 1 elsewhere."""
    fs = Image(image)
    mask = bytearray(b"\1" * len(image))
    for offset in SUPER_STAMPS:
        mask[1024 + offset] = 0
    descriptors = (fs._first_block + 1) * fs.block_size
    blocks = int.from_bytes(image[1028:1032], "little")
    per_group = int.from_bytes(image[1056:1060], "little")
    for group in range(-(-(blocks - fs._first_block) // per_group)):
        entry = descriptors + group * fs._desc_size
        table = int.from_bytes(image[entry + 8 : entry + 12], "little") * fs.block_size
        for number in range(fs._inodes_per_group):
            for offset in INODE_STAMPS:
                if offset < fs._inode_size:
                    mask[table + number * fs._inode_size + offset] = 0
    if int.from_bytes(image[1024 + 0x5C : 1024 + 0x60], "little") & 4:  # it has a journal
        journal = fs._inode(JOURNAL_INO) if int.from_bytes(image[1248:1252], "little") else b""
        for _, first, count in fs._extents(journal) if journal else ():
            start, size = first * fs.block_size, count * fs.block_size
            mask[start : start + size] = bytes(size)
    return mask


def masked(found: Found, mask: bytearray) -> dict[int, bytes]:
    """The pages that recovery changed, without what a clock decides."""
    return {
        number: bytes(
            byte & -keep & 0xFF
            for byte, keep in zip(data, mask[number * PAGE : (number + 1) * PAGE], strict=True)
        )
        for number, data in found.pages.items()
    }


def said(found: Found) -> list[str]:
    return [line for line in found.log if not RATE_LIMITED.search(line)]


def recorded(here: Explorer, case: Case) -> tuple[Path, Recording, list[State]]:
    """The case's recording, and some of its states, the last among them."""
    folder = here.record(case, Request((case,)).script(case))
    recording = load_recording(folder)
    considered = all_states(recording.events, first=len(recording.events) // 2, seed=1)
    states = sample([one for one in considered if not one.is_boundary], STATES, 1)
    return folder, recording, [*states, *considered[-1:]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_both_machines_recover_the_same(
    explorer_here: Explorer, case: Case, request: pytest.FixtureRequest
) -> None:
    if case.mode in EAGER_MODES:
        request.getfixturevalue("bursts")
    folder, recording, states = recorded(explorer_here, case)
    text = plan(recording.events, states)
    in_uml = recovered(explorer_here.recoverer, explorer_here, folder, text, case)
    with recoverer_in_qemu(explorer_here) as qemu:
        in_qemu = recovered(qemu, explorer_here, folder, text, case)
    image, journal = split_journal(recording.base, case.kind)
    mask = stamps(bytes(image)) + bytes(len(journal))
    last_ns = max(op.stop_ns for op in parse_trace((folder / "trace").read_text()))
    assert [one.id for one in in_uml] == [one.id for one in in_qemu] == [one.id for one in states]
    for one, other in zip(in_uml, in_qemu, strict=True):
        assert (one.errors, said(one)) == (other.errors, said(other))
        late = frozenset(file.ino for file in one.tree.values() if file.mtime_ns > last_ns)
        assert differences(without_completion(one.tree, other.tree, late), other.tree) == []
        assert masked(one, mask) == masked(other, mask)
    assert any(len(one.pages) > 1 for one in in_uml)
    if case.mode in EAGER_MODES:
        assert sum(map(brings_back_data, in_uml)) > 1


def brings_back_data(found: Found) -> bool:
    """Whether recovery has written a page of what a file has."""
    contents = {
        file.sectors[at : at + SECTORS]
        for file in found.tree.values()
        for at in range(0, len(file.sectors), SECTORS)
    }
    return any(any(page) and checksums(page) in contents for page in found.pages.values())


@contextmanager
def recoverer_in_qemu(here: Explorer) -> Iterator[Recoverer]:
    """The guest that records, made one that recovers."""
    try:
        yield Recoverer(here.recorder.vm)
    finally:
        here.recorder.vm.run("losetup -d /dev/loop0")


def recovered(
    recoverer: Recoverer, here: Explorer, folder: Path, text: str, case: Case
) -> list[Found]:
    """What a guest makes of a plan, with the modules of the kernel that it has booted."""
    builds = here.builds
    assert builds.recovery is not None
    stock = builds.stock if recoverer.vm is here.recorder.vm else builds.recovery.stock
    recoverer.vm.use_filesystem(stock)
    found = recoverer.recover(folder, text, case.kind)
    recoverer.forget(folder)
    return found
