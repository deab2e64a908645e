"""eager_sync: what settles the log, and that the places hold the data then."""

import pytest

from fastsync_lab.host.build import ModuleSet
from fastsync_lab.host.kernels import KernelTree
from tests.vm.eagerfs import OPTIONS, journal, run
from tests.vm.guestfs import CRASH_IMAGE, FAIL_ONE, TOGETHER_MS, GuestFs, sound_log

pytestmark = pytest.mark.usefixtures("bursts")

APPENDS = "append fsync " * 3
# A newer version in place of what the log has, and not synced.
NEWER = "overwrite:4096,65536 writeback waitfirst"


def why(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """How many settlings have ended between these numbers, by reason."""
    grown = {name: after[name] - before[name] for name in after if name.startswith("settlings")}
    assert grown.pop("settlings") == sum(grown.values())
    return {name.removeprefix("settlings_"): count for name, count in grown.items() if count}


@pytest.mark.short
def test_five_seconds_settle(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        first, before, after = run(
            fs, f"settle; s; o $f open {APPENDS} sleep:4000; s; sleep 2; s; placed f"
        )
    assert before["unsettled_blocks"] == 3 and why(first, before) == {}
    assert after["unsettled_blocks"] == 0 and why(first, after) == {"aged": 1}
    assert after["settle_waits"] == first["settle_waits"]


def test_nothing_to_settle_is_not_settled(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        before, after = run(fs, "settle; s; o $f open chmod:600 fsync write fsync sleep:11000; s")
    assert why(before, after) == {}


def test_copies_that_come_later_have_a_settling_of_their_own(fs: GuestFs) -> None:
    """Appends go on for 12 s; each is settled 10 s later at the latest."""
    with fs.mounted(OPTIONS):
        fs.prepare()
        steps = "append fsync sleep:900 " * 12
        before, middle, after = run(fs, f"settle; s; o $f open {steps}; s; sleep 10; s; placed f")
    assert why(before, middle) in ({"aged": 2}, {"aged": 3})
    assert middle["data_blocks"] - before["data_blocks"] == 12
    assert after["unsettled_blocks"] == 0


@pytest.mark.parametrize("pages", [1, 20])
def test_part_of_the_log_settles(fs: GuestFs, pages: int) -> None:
    """Of 1024 blocks, in less than 5 s: an eighth of data at most, or a half in all.

    A settling that has begun may still be making its pauses: it has a second to end.
    """
    with fs.mounted(OPTIONS):
        fs.prepare()
        steps = "".join(f"overwrite:{pages * 4096},{i * pages * 4096} fsync " for i in range(150))
        before, after = run(fs, f"settle; s; o $m/g create {steps}; sleep 1; s; cut_keeps g")
    assert list(why(before, after)) == ["filling"]
    assert after["unsettled_blocks"] <= 128
    logged = after["data_blocks"] - before["data_blocks"]
    assert logged + pages * (after["in_place_full"] - before["in_place_full"]) == 150 * pages
    assert logged > 75 * pages


# In a folder of 6,000 files, whose inodes take 375 blocks: none is synced.
NEIGHBOURS = {
    "chmod": "chmod 0600 + $_, glob '*' for 1..10",
    "mkdir": """for $r (1..2) { mkdir "$r-$_" or die for 1..1500; rmdir for glob "$r-*" }""",
}


@pytest.mark.parametrize("does", NEIGHBOURS.values(), ids=NEIGHBOURS)
def test_a_neighbours_metadata_fills_the_log(fs: GuestFs, tree: KernelTree, does: str) -> None:
    """While data of a file holds its tail: that is settled, long before it is 5 s old."""
    with fs.mounted(OPTIONS, mkfs="-N 8192"):
        fs.prepare()
        before, synced, took, after = run(
            fs,
            f"""
            ms() {{ awk '{{print int($1 * 1000)}}' /proc/uptime; }}
            cat >/dev/shm/neighbour <<'END'
            {does}
END
            mkdir $m/d; cd $m/d; perl -e 'open F, ">", $_ or die for 1..6000'; sync; settle; s
            o $m/g create append append fsync; s; begin=$(ms)
            perl /dev/shm/neighbour || exit 5
            echo stats ms $(($(ms) - begin)); s; cut_keeps g
            o $m/g open append fsync; perl /dev/shm/neighbour || exit 5; cut_keeps g; cd /
            """,
        )
    assert before["unsettled_blocks"] == 0 and synced["unsettled_blocks"] == 2
    # It went round, all of its 1024 blocks.
    assert after["burst_blocks"] - synced["burst_blocks"] > 2 * 1024
    assert after["unsettled_blocks"] == 0 and why(synced, after)
    if not tree.variant:
        assert took["ms"] < 5000 and list(why(synced, after)) == ["emptied"]


def test_folder_has_no_copies(fs: GuestFs) -> None:
    """So when it is read again, its sync need not wait for them to be settled."""
    with fs.mounted(OPTIONS):
        fs.prepare()
        before, after = run(
            fs,
            "mkdir $m/d; sync; settle; o $f open append fsync\n"
            "echo 3 >/proc/sys/vm/drop_caches; s; touch $m/d/n; sync $m/d; s; cut_keeps f",
        )
    assert before["unsettled_blocks"] == 1 and why(before, after) == {}


def test_sync_2_settles_what_is_newer_in_place(fs: GuestFs) -> None:
    """Else replay would undo what it has promised. Not what is in place as the log has it."""
    words = "create overwrite:4096 fsync overwrite:4096 writeback waitfirst sync"
    with fs.mounted(OPTIONS):
        fs.prepare()
        first, before, after = run(
            fs, f"settle; s; o $f open append fsync sync; s; o $m/g {words}; s; placed f g; kept g"
        )
    assert why(first, before) == {} and before["unsettled_blocks"] > 0
    assert why(before, after) == {"sync_fs": 1} and after["unsettled_blocks"] == 0


WHO_WAITS = {
    "past_cache": "o $f open append fsync; s; o $f open dwrite",
    "synced": "o $m/g create overwrite:12288 fsync; s; o $m/g open overwrite:24576 fsync",
    "sync_fs": "o $f open append fsync append writeback waitfirst overwrite:4096,65536 writeback "
    "waitfirst; s; o $f open sync",
    "emptied": "o $f open append fsync; s; o $m checkpoint",
}


@pytest.mark.parametrize("reason", WHO_WAITS)
def test_who_waits_is_counted(fs: GuestFs, reason: str) -> None:
    with fs.mounted(f"{OPTIONS},eager_sync=4"):
        fs.prepare()
        before, after = run(fs, f"settle; {WHO_WAITS[reason]}; s; cut_keeps f")
    assert before["unsettled_blocks"] > 0 and after["unsettled_blocks"] == 0
    assert why(before, after) == {reason: 1}
    assert after["settle_waits"] == before["settle_waits"] + 1
    assert after["settle_waits_us"] > before["settle_waits_us"]


def test_a_failed_write_in_place_ends_it(fs: GuestFs) -> None:
    """Those of whom the log is not to be trimmed any more; the journal aborts."""
    fs.mkfs()
    fs.mount(OPTIONS)
    fs.prepare()
    before, after = run(
        fs,
        f"settle; o $f open append fsync; s; ({FAIL_ONE.format('write')})\n"
        "o $f open writeback sleep:7000; s",
    )
    fs.umount()
    assert why(before, after) == {"lost": 1}
    assert after["unsettled_blocks"] == before["unsettled_blocks"] > 0
    assert "Aborting journal" in sound_log(fs.vm, device_fails=True)


QUIET = {
    "freeze": ("o $m freeze", "o $m thaw"),
    "remountro": ("o $m remountro >/dev/null", "mount -o remount,rw $m"),
    "un_eager_sync": ("mount -o remount,un_eager_sync $m", ""),
    "nobarrier": ("mount -o remount,nobarrier $m 2>/dev/null", ""),
    "umount": ("cp $m/f /dev/shm/want.f; umount $m", ""),
}


@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize("what", QUIET)
def test_quiet_file_system_is_settled(fs: GuestFs, what: str, *, newer: bool) -> None:
    """Nothing of a file is in the log alone; so in the first case, once more, behind it."""
    quiet, end = QUIET[what]
    words = f"{APPENDS}{NEWER}" if newer else APPENDS
    images = "o $f crash:$img; same f" if what == "umount" else "placed f; s"
    with fs.mounted(OPTIONS):
        fs.prepare()
        before, *after = run(fs, f"settle; o $f open {words}; s; {quiet}; {images}")
        left = journal(fs, CRASH_IMAGE)
        if what == "umount":
            fs.mount(OPTIONS)
        run(fs, f"{end or ':'} || exit 5; o $f open append fsync write fsync; cut_keeps f")
    assert before["unsettled_blocks"] == 3
    assert [one["unsettled_blocks"] for one in after] == [0] * (what != "umount")
    # Of these two sync_fs comes first, which settles what is newer in place.
    first = "sync_fs" if newer and what in ("freeze", "remountro") else "emptied"
    assert [why(before, one) for one in after] == [{first: 1}] * (what != "umount")
    assert left["Journal start"] == "0" or what == "un_eager_sync"


def test_option_goes_and_comes_with_data_in_the_log(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        words = "append fsync overwrite:4096,65536 fsync append"
        on, off = "mount -o remount,eager_sync $m", "mount -o remount,un_eager_sync $m"
        seen = run(
            fs,
            f"for i in 1 2 3; do o $f open {words} fsync; {off}; cut_keeps f; s; o $f open {words};"
            f"{on}; o $f open {words} fsync; s; cut_keeps f; done",
        )
    assert [one["unsettled_blocks"] for one in seen[::2]] == [0] * 3
    assert all(one["unsettled_blocks"] > 0 for one in seen[1::2])


@pytest.mark.short
def test_stock_kernel_recovers_it(fs: GuestFs, stock_modules: ModuleSet) -> None:
    """Copies of new and of old blocks, one of them twice, one revoked, one newer in place."""
    fs.mkfs()
    fs.mount(OPTIONS)
    fs.prepare()
    run(
        fs,
        "settle; o $m/gone create overwrite:8192 fsync; rm $m/gone\n"
        "o $f open append fsync overwrite:4096,65536 overwrite:4096,4096 overwrite:100,70000 fsync"
        " append fsync write writeback waitfirst fsync; cut f",
    )
    fs.umount()
    fs.vm.use_filesystem(stock_modules)
    run(
        fs,
        "opened\n"
        "cmp /dev/shm/m/f /dev/shm/want.f && [ ! -e /dev/shm/m/gone ] || exit 6\n"
        "umount /dev/shm/m; e2fsck -fn $img || exit 7",
    )


def test_many_at_once(fs: GuestFs) -> None:
    """Four that sync one file, one that makes and removes files, and all that settles."""
    writers = [
        "".join(f"overwrite:4096,{(4 * step + one) % 24 * 4096} fsync " for step in range(120))
        for one in range(4)
    ]
    makers = "".join(f"file:$m/n{step % 3} {'create' if step < 3 else 'open'} truncate:0 append "
                     "fsync append fdatasync " for step in range(90))  # fmt: skip
    others = "sleep:2 freeze thaw sleep:2 sync sleep:2 syncfs writeback " * 12
    at = f"align:{TOGETHER_MS}"  # or some have ended when the last one begins
    dropped = "for n in 1 2 3 4 5 6; do sleep 0.01; echo 3 >/proc/sys/vm/drop_caches; done"
    with fs.mounted(OPTIONS):
        fs.prepare()
        before, after = run(
            fs,
            "s\n"
            + "".join(
                f'(o $f open {at} {words}) & jobs="$jobs $!"\n' for words in [*writers, others]
            )
            + f'(o $m/n0 {at} {makers}) & jobs="$jobs $!"\no $f {at}; {dropped}\n'
            "for job in $jobs; do wait $job || exit 6; done; s; cut_keeps f n0 n1 n2",
        )
    assert sum(why(before, after).values()) >= 5
    # Each append of those that make files is of a new block.
    assert after["data_blocks"] - before["data_blocks"] >= 180
