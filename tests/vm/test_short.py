"""eager_sync: transactions stay short while somebody syncs, and are as long as ever otherwise."""

import re

import pytest

from tests.vm.conftest import IN_TIME
from tests.vm.eagerfs import OPTIONS, run
from tests.vm.guestfs import MNT, GuestFs
from tests.vm.tracing import trace_requests

pytestmark = pytest.mark.usefixtures("bursts")

MKFS = "-N 8192"
FILES = 3000  # some 190 blocks of inodes, and 50 of the folder
FLUSHED = re.compile(r"jbd2_burst_flush: .* blocks (\d+) flushed")
EXTENT = re.compile(r"ext4_da_write_pages_extent: .* len (\d+) ")
CUT = re.compile(r"jbd2_burst_cut: .* blocks (\d+) of (\d+)")
EVENTS = ("jbd2_burst/jbd2_burst_flush", "jbd2_burst/jbd2_burst_cut")
NEIGHBOUR = f"mkdir -p {MNT}/d; for n in $(seq {FILES}); do : >{MNT}/d/$n; done"
SYNC = f"dd if=/dev/zero of={MNT}/f bs=4k count=12 conv=fsync,notrunc oflag=append status=none"
SYNCS = "\n".join([SYNC, f"sleep 1\n{SYNC}", f"sleep 1\n{SYNC}"])  # one is expected in a second
FOLDER_SYNCS = f"{SYNC}; mkdir {MNT}/e" + f"\nsleep 1; mktemp -qp {MNT}/e; sync {MNT}/e" * 3
CUTS = 7  # for a sync at most


def traced(fs: GuestFs, commands: str, *, before: str = "") -> str:
    """The trace of bursts, and of what is cut, while these commands run."""
    return trace_requests(fs.vm, commands, *EVENTS, before=before).text


def bursts(text: str) -> list[int]:
    return [int(match[1]) for match in FLUSHED.finditer(text)]


def cuts(text: str) -> list[tuple[int, int]]:
    """Transactions that were not to grow on: their blocks, and how many were enough."""
    return [(int(match[1]), int(match[2])) for match in CUT.finditer(text)]


@IN_TIME
@pytest.mark.short
@pytest.mark.parametrize("before", [SYNCS, FOLDER_SYNCS], ids=["file", "folder"])
def test_beside_who_never_syncs_a_sync_finds_few_blocks(fs: GuestFs, before: str) -> None:
    with fs.mounted(OPTIONS, mkfs=MKFS):
        text = traced(fs, f"{NEIGHBOUR}\n{SYNC}", before=before)
        (found,) = run(fs, "s")
    cut, sizes = cuts(text), bursts(text)
    assert 3 <= len(cut) <= CUTS, text
    assert found["cut"] >= len(cut)
    assert all(enough <= blocks for blocks, enough in cut)
    # The first quarter of a second has the most.
    assert max(sizes) < sum(sizes) / 2, text


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(SYNC, id="once"),
        pytest.param(f"{SYNCS}\nsleep 3", id="no more"),
        pytest.param(f"{SYNC}\nsleep 6\n" * 3 + SYNC, id="seldom"),
        pytest.param(SYNC + f"\nsleep 1; touch {MNT}/t; sync" * 3, id="sync"),
    ],
)
def test_where_no_sync_is_expected_a_transaction_grows(fs: GuestFs, before: str) -> None:
    with fs.mounted(OPTIONS, mkfs=MKFS):
        text = traced(fs, f"{NEIGHBOUR}\n{SYNC}", before=before)
    assert cuts(text) == []
    assert max(bursts(text)) > FILES / 32  # settling may have come in the midst


def test_a_sync_of_many_pages_is_not_cut_in_two(fs: GuestFs) -> None:
    large = f"dd if=/dev/zero of={MNT}/large bs=360k count=1 conv=fsync status=none"
    with fs.mounted(OPTIONS, mkfs=MKFS):
        text = traced(fs, f"sleep 0.7\n{large}", before=SYNCS)
    assert cuts(text) == []
    assert max(bursts(text)) > 360 / 4


def test_without_the_option_a_transaction_grows(fs: GuestFs) -> None:
    commands, event = f"{NEIGHBOUR}\n{SYNC}", "jbd2/jbd2_run_stats"
    with fs.mounted("commit=300", mkfs=MKFS):
        text = trace_requests(fs.vm, commands, event, before=SYNCS).text
    logged = [int(blocks) for blocks in re.findall(r"jbd2_run_stats: .* blocks (\d+)", text)]
    assert len(logged) == 1
    assert logged[0] > FILES / 16


@pytest.mark.short
@pytest.mark.parametrize(
    ("options", "before", "most"),
    [(OPTIONS, SYNC, 256), (OPTIONS, f"{SYNC}\nsleep 6", 2048), ("commit=300", SYNC, 2048)],
)
def test_write_back_maps_less_at_once_while_somebody_syncs(
    fs: GuestFs, options: str, before: str, most: int
) -> None:
    large = f"dd if=/dev/zero of={MNT}/large bs=1M count=12 status=none\nsync {MNT}/large"
    with fs.mounted(options):
        traced = trace_requests(fs.vm, large, "ext4/ext4_da_write_pages_extent", before=before)
    lengths = [int(length) for length in EXTENT.findall(traced.text)]
    assert sum(lengths) == 12 * 256
    assert max(lengths) == most
