"""eager_sync: which data of a sync goes into the log, what that costs, what goes into place."""

from itertools import pairwise
from pathlib import Path

import pytest

from fastsync_lab.host.build import ModuleSet
from fastsync_lab.machine.device import load_profile
from fastsync_lab.machine.vm import Vm
from tests.vm.conftest import other_fs
from tests.vm.eagerfs import OPTIONS, bursts_of, requests, run
from tests.vm.guestfs import FAIL_ONE, FILE, MNT, NO_PERIODIC_COMMIT, GuestFs

pytestmark = pytest.mark.usefixtures("bursts")

KIB = 1024
COUNT = 5
# The first one behind an empty log writes the journal's superblock, too.
SMALL_BURST = "o $f open chmod:640 fsync chmod:600 fsync"


def scattered(pages: int, first: int = 0) -> str:
    """Overwrites of that many pages, none beside another."""
    return " ".join(f"overwrite:4096,{(first + 2 * i) * 4096}" for i in range(pages))


# --- the blocks of a burst -----------------------------------------------------------------------


@pytest.mark.short
def test_append_is_one_burst_and_one_flush(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare("append", "fsync")
        (before,) = run(fs, "s")
        sent = requests(fs, f"{fs.fsops_path} {FILE} open " + "append fsync " * COUNT)
        (after,) = run(fs, "s")
    # Descriptor, inode, the data, the record; twice, a block bitmap and group descriptors.
    assert bursts_of(sent) == [24 * KIB] * 2 + [16 * KIB] * (COUNT - 2), sent
    assert after["data_blocks"] - before["data_blocks"] == COUNT
    assert after["data_syncs"] - before["data_syncs"] == COUNT
    assert after["barriers"] == before["barriers"]


def test_bursts_are_counted(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare("append", "fsync")
        before, after = run(fs, f"s; o $f open {'append fsync ' * COUNT}; s")
    grown = {name: after[name] - before[name] for name in after}
    assert grown["bursts"] == grown["flushes_saved"] == COUNT
    assert grown["burst_bytes"] == 4 * KIB * grown["burst_blocks"]
    assert grown["burst_bytes"] == 2 * 24 * KIB + (COUNT - 2) * 16 * KIB


# What is done before, what is done each time, and the bursts' sizes.
BURSTS = {
    "append inside a block": (
        "overwrite:100,65536 fsync",
        [f"overwrite:100,{65636 + 100 * i} fsync" for i in range(COUNT)],
        {16 * KIB},
    ),
    "create": (
        f"file:{MNT}/n create write fsync",
        [f"file:{MNT}/n{i} create write fsync" for i in range(COUNT)],
        {32 * KIB, 36 * KIB},  # both inodes may be in one block
    ),
    **{
        f"{pages} scattered overwrites": (
            "sync",
            [f"{scattered(pages, i)} fsync sleep:20" for i in range(COUNT)],
            {(12 + 4 * pages) * KIB},
        )
        for pages in (2, 5)
    },
    "3 scattered overwrites, fdatasync": (
        "sync",
        [f"{scattered(3, i)} fdatasync sleep:20" for i in range(COUNT)],
        {24 * KIB},  # the transaction has the new stamp anyway
    ),
    "overwrite of a block that has a copy": (
        "append fsync",
        ["overwrite:4096,65536 fsync sleep:20"] * COUNT,
        {16 * KIB},
    ),
}


@pytest.mark.parametrize("what", BURSTS)
def test_burst_has_no_block_too_many(fs: GuestFs, what: str) -> None:
    first, steps, sizes = BURSTS[what]
    with fs.mounted(OPTIONS):
        sent = requests(
            fs,
            f"{fs.fsops_path} {FILE} open {' '.join(steps)}",
            before=fs.preparation(*first.split()),
        )
        assert set(bursts_of(sent)) <= sizes and len(bursts_of(sent)) == COUNT, sent


def test_without_a_stamp_the_inode_is_no_part_of_it(fs: GuestFs) -> None:
    """In `truncate` writes of one interval have one stamp."""
    with fs.mounted(f"mtime_update=1000,{OPTIONS}"):
        words = " ".join(f"{scattered(3, i)} fdatasync" for i in range(3))
        commands = f"{fs.fsops_path} {FILE} open align:1000 write fsync {words}"
        sent = requests(fs, commands, before=fs.preparation())
    assert bursts_of(sent)[1:] == [20 * KIB] * 3, sent


def test_unlink_of_what_has_copies_is_one_block_more(fs: GuestFs) -> None:
    """The block with the revokes."""
    with fs.mounted(OPTIONS):
        fs.prepare()
        sizes = []
        for number, settled in enumerate((":", "settle")):
            words = f"create overwrite:12288 fsync; {settled}; {SMALL_BURST}"
            before = f"settle; o $m/n{number} {words}"
            sizes += bursts_of(requests(fs, f"rm {MNT}/n{number}; sync {MNT}", before=before))
        (after,) = run(fs, "s")
    assert len(sizes) == 2 and sizes[0] == sizes[1] + 4 * KIB, sizes
    assert after["revokes"] == 3


# --- in place ----------------------------------------------------------------------------------


def in_place(counted: dict[str, int]) -> dict[str, int]:
    """How many syncs wrote data in place, by reason."""
    return {name: count for name, count in counted.items() if name.startswith("in_place_")}


@pytest.mark.parametrize(
    "words",
    [
        "write fdatasync",
        "overwrite:65536 fdatasync",
        f"{scattered(5)} fdatasync",
        "overwrite:20480,65536 fsync",
    ],
)
def test_what_goes_into_place_goes_as_on_stock(fs: GuestFs, words: str) -> None:
    """Request by request: one run of old blocks, more than the threshold."""
    seen, counted = [], []
    # In `truncate`, so that an overwrite needs no commit.
    for options in ("mtime_update=1000", "mtime_update=1000,eager_sync=4"):
        with fs.mounted(f"{options},{NO_PERIODIC_COMMIT}"):
            fs.prepare()
            (before,) = run(fs, "settle; o $f open align:1000 write fsync; s")
            seen.append(requests(fs, f"{fs.fsops_path} {FILE} open {words}"))
            (after,) = run(fs, "s")
            counted.append(sum(in_place(after).values()) - sum(in_place(before).values()))
    assert counted == [0, 1]
    assert seen[0] == seen[1]
    assert ("FF", 0) in seen[0]


def test_overwrite_and_fsync_is_data_in_place_and_a_burst(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        before = f"settle; {SMALL_BURST}"
        sent = requests(fs, f"{fs.fsops_path} {FILE} open write fsync", before=before)
    assert sent[0] == ("WS", 4096) and bursts_of(sent[1:]) == [12 * KIB], sent


# Why, and what comes to it: the last command's sync is the one that counts.
IN_PLACE = {
    "large": ("eager_sync=4", "o $f open overwrite:20480,65536 fsync"),
    "no_new_blocks": ("", "settle; o $f open write fsync"),
    "mapped": ("", "o $m/g create truncate:4096 mwrite msync"),
    "held": ("", "o $f open dwrite append fsync"),
    "full": (
        "eager_sync=300",
        "o $m/g create overwrite:409600 fsync overwrite:819200,409600 fsync",
    ),
    "failed": (
        "eager_sync=4",
        f"o $f sync; ({FAIL_ONE.format('write')}); o $f open overwrite:20480,65536 '?fsync';"
        f"o $f open {scattered(2, 16)} append fsync",
    ),
}


@pytest.mark.parametrize("why", IN_PLACE)
def test_why_it_went_into_place(fs: GuestFs, why: str) -> None:
    options, script = IN_PLACE[why]
    # What cannot be read back on stock either: nobody converts it when it is written again.
    look = ":" if why == "failed" else "files=$(cd $m; ls -d [fg]); cut_keeps $files"
    with fs.mounted(",".join(filter(None, [OPTIONS, options]))):
        fs.prepare()
        before, after = run(fs, f"s; {script}; s; {look}")
        log = fs.vm.kernel_log()
    assert after[f"in_place_{why}"] == before[f"in_place_{why}"] + 1
    others = in_place(after).keys() - {f"in_place_{why}"}
    large = ["in_place_large"] if why == "failed" else []
    assert [name for name in others if after[name] > before[name]] == large
    assert ("I/O error" in log) == (why == "failed")


def test_threshold_is_the_last_that_is_logged(fs: GuestFs) -> None:
    with fs.mounted(f"{OPTIONS},eager_sync=4"):
        fs.prepare()
        seen = run(
            fs,
            "s; o $f open overwrite:16384,65536 fsync; s; o $f open overwrite:20480,81920 fsync;"
            "s; o $f open overwrite:16384,65536 fsync; s; o $f open overwrite:20480,65536 fsync; s",
        )
    logged = [one["data_blocks"] for one in seen]
    assert [b - a for a, b in pairwise(logged)] == [4, 0, 4, 0]
    large = [one["in_place_large"] for one in seen]
    assert [b - a for a, b in pairwise(large)] == [0, 1, 0, 1]


# --- other ways to sync --------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["fsync", "fdatasync", "sync", "dsync", "ufsync", "fsync32"])
def test_every_way_to_sync_logs(fs: GuestFs, call: str) -> None:
    """`sync` and `dsync` are O_SYNC and O_DSYNC."""
    opened = f"dd if=/dev/zero of=$f bs=4k count=4 seek=16 conv=notrunc oflag={call} status=none"
    synced = f"o $f open append {call} append {call} append {call} append {call}"
    with fs.mounted(OPTIONS):
        fs.prepare()
        before, after = run(fs, f"s; {opened if 'dsync' in call or call == 'sync' else synced}; s;"
                            "cut_keeps f")  # fmt: skip
    assert after["data_blocks"] - before["data_blocks"] == 4
    assert after["barriers"] == before["barriers"]


def test_msync_logs_what_has_a_copy(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        seen = run(
            fs,
            "s; o $m/g create write fsync mwrite msync mwrite msync; s; cut_keeps g;"
            "o $m/h create truncate:8192 mwrite msync; s; cut_keeps g h;"
            "settle; o $m/g open mwrite msync; s; cut_keeps g",
        )
    logged = [one["data_blocks"] for one in seen]
    assert [b - a for a, b in pairwise(logged)] == [3, 0, 0]
    assert seen[2]["in_place_mapped"] == seen[1]["in_place_mapped"] + 1
    assert seen[3]["in_place_no_new_blocks"] == seen[2]["in_place_no_new_blocks"] + 1


def test_a_slow_device_makes_less_data_worth_it(
    vm: Vm, fsops: str, modules: ModuleSet, flashdev: Path
) -> None:
    """Files of 80 blocks on an eMMC: their first burst tells. A given threshold is obeyed."""
    large = [f"o $m/l{i} create overwrite:327680 fsync" for i in range(4)]
    small = [f"o $m/s{i} create overwrite:32768 fsync" for i in range(4)]
    with other_fs(vm, fsops, modules, flashdev, load_profile("emmc"), 512) as fs:
        seen = {}
        for option in ("eager_sync", "eager_sync=100"):
            with fs.mounted(f"{NO_PERIODIC_COMMIT},{option}"):
                steps = "; ".join(["settle", "s", *large, "s", *small, "s"])
                first, second, third = run(fs, f"{steps}; cut_keeps l1 s1")
            seen[option] = (
                second["in_place_large"] - first["in_place_large"],
                third["data_blocks"] - second["data_blocks"],
                third["worth_blocks"],
            )
    in_place, logged, worth = seen["eager_sync"]
    assert in_place == 3 and logged == 4 * 8 and 8 <= worth <= 30, seen
    assert seen["eager_sync=100"] == (0, 4 * 8, 100)
