"""eager_sync: blocks that are allocated ahead of a file that grows by syncs, and unwritten ones."""

import pytest

from tests.vm.eagerfs import OPTIONS, bursts_of, requests, run, stats
from tests.vm.guestfs import MNT, NO_PERIODIC_COMMIT, GuestFs, sound_log

pytestmark = pytest.mark.usefixtures("bursts")

KIB = 1024
PAGE = 4 * KIB
SECTORS = 8  # of a block
AHEAD = 64  # blocks
# A file that a shell has open for writing, and whose third block comes from those ahead.
GROW = "append fsync " * 3
GROWN = f"exec 5>>$m/g; o $m/g open {GROW}"
CLOSE = "exec 5>&-"
SHOW = 'show() { echo stats "blocks $(stat -c %b $m/g) size $(stat -c %s $m/g)"; }\n'


def blocks_of(fs: GuestFs, script: str, *, options: str = OPTIONS) -> list[int]:
    """What each `show` has found allocated, in blocks of the file system."""
    with fs.mounted(options):
        return [one["blocks"] // SECTORS for one in run(fs, SHOW + script)]


@pytest.mark.short
def test_they_go_when_the_file_is_closed(fs: GuestFs) -> None:
    # Power fails while they are there, and when they have gone.
    script = f"{GROWN}; show; cut_keeps g; {CLOSE}; show; o $m/g open fsync; cut_keeps g"
    assert blocks_of(fs, script) == [2 + AHEAD, 3]


def test_an_append_changes_nothing_but_the_inode(fs: GuestFs) -> None:
    """The descriptor, the inode, the data, the record; the first two have allocated theirs."""
    with fs.mounted(OPTIONS):
        fs.prepare("append", "fsync")
        sent = requests(fs, f"{fs.fsops_path} {MNT}/f open " + "append fsync " * 20)
    first, others = bursts_of(sent)[:2], bursts_of(sent)[2:]
    assert first == [24 * KIB] * 2
    # The allocator gives what lies in a row, which may be less than was asked for.
    assert others.count(16 * KIB) >= 17 and max(others) <= 24 * KIB, others


def test_who_uses_up_the_last_one_allocates_others(fs: GuestFs) -> None:
    """As many as the file has, or what the allocator gives in a row."""
    more = "append fsync " * (AHEAD - 1)
    with fs.mounted(OPTIONS):
        seen = run(fs, f"{GROWN}; s; o $m/g open {more}; s; o $m/g open append fsync; s; {CLOSE}")
    first, then, later = (one["blocks_ahead"] for one in seen)
    assert first == AHEAD < then == later <= 2 * AHEAD + 2


@pytest.mark.parametrize("length", [300, 1000, 4120, 9000])
def test_a_log_whose_records_do_not_fill_blocks(fs: GuestFs, length: int) -> None:
    """The part of a record that fills the last block is no growth of somebody else's."""
    record = f"head -c {length} /dev/zero >&5 && sync $m/g || exit"
    records = f"for _ in {{1..{max(6, 3 * PAGE // length)}}}; do {record}; done"
    with fs.mounted(OPTIONS):
        (seen,) = run(fs, f"exec 5>>$m/g; {records}; s; cut_keeps g; {CLOSE}")
    assert seen["blocks_ahead"] == AHEAD


# What is done to a file that has blocks ahead, or had been done before.
CHANGES = {
    "nothing": GROWN,
    "shorter": f"{GROWN}; o $m/g open truncate:4096",
    "shorter, within a block": f"{GROWN}; o $m/g open truncate:5000",
    "empty, and longer": f"{GROWN}; o $m/g open truncate:0 append fsync append",
    "the same size": f"{GROWN}; o $m/g open truncate:12288",
    "punched": f"{GROWN}; o $m/g open falloc:3,4096,4096",
    "punched behind the end": f"{GROWN}; o $m/g open falloc:3,20480,4096",
    "collapsed": f"{GROWN}; o $m/g open falloc:8,0,4096",
    "inserted": f"{GROWN}; o $m/g open falloc:32,4096,8192",
    "zeroed": f"{GROWN}; o $m/g open falloc:16,4096,4096",
    "preallocated, same": f"{GROWN}; o $m/g open falloc:1,12288,40960",
    "preallocated, farther": f"{GROWN}; o $m/g open falloc:1,40960,4096",
    "preallocated, longer": f"{GROWN}; o $m/g open falloc:0,8192,40960",
    "preallocated before": f": >$m/g; o $m/g open falloc:1,0,1048576; {GROWN}",
    "preallocated before, farther": f": >$m/g; o $m/g open falloc:1,102400,8192; {GROWN}",
    "direct write": f"{GROWN}; o $m/g open dwrite",
    "mapped": f"{GROWN}; o $m/g open mwrite msync",
    "more, not synced": f"{GROWN}; o $m/g open append append",
    "more, by write-back": f"{GROWN}; o $m/g open append append writeback append fsync",
    "renamed": f"{GROWN}; mv $m/g $m/x; mv $m/x $m/g",
    "linked": f"{GROWN}; ln $m/g $m/x; rm $m/g; mv $m/x $m/g",
    "copied to": f"{GROWN}; cp $f $m/g",
    "switched off": f"{GROWN}; mount -o remount,un_eager_sync $m",
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_left_is_what_it_is_without(fs: GuestFs, change: str) -> None:
    """As many blocks, and the contents, after a power cut and after a clean unmount."""
    seen = []
    for options in (OPTIONS, NO_PERIODIC_COMMIT):
        script = f"{CHANGES[change]}; {CLOSE}; o $m/g open fsync; show; cut_keeps g; rm $m/x || :"
        with fs.mounted(options):
            fs.prepare()
            (left,) = run(fs, SHOW + script)
            sound_log(fs.vm)
            fs.umount()
            fs.mount(options)
            (again,) = run(fs, SHOW + "show")
            text = fs.vm.run(f"md5sum <{MNT}/g").stdout
        assert left == again
        seen.append((left, text))
    assert seen[0] == seen[1]


def test_those_before_a_gap_stay(fs: GuestFs) -> None:
    """They are no more behind the end then, and read as zero, whatever was there before."""
    gap, end = 3 * PAGE, 8192000
    script = (
        "yes deleted | head -c 16000000 >$m/d; sync; rm $m/d; sync\n"
        f"{GROWN}; o $m/g open overwrite:4096,{end} fsync; cut_keeps g; {CLOSE}; show\n"
        f"cmp -n {end - gap} -i {gap}:0 $m/g /dev/zero"
    )
    assert blocks_of(fs, script) == [2 + AHEAD + 1 + 1]  # the last is of the tree


def test_unlinked_while_it_is_open(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        run(
            fs,
            f"free() {{ stat -fc %f $m; }}; sync; before=$(free)\n"
            f"{GROWN}; rm $m/g; o $m sync; {CLOSE}; sync; settle\n"
            "[ $(free) = $before ]",
        )


NONE = {
    "closed between": "for i in 1 2 3 4 5; do o $m/g open append fsync; done",
    "truncated between": "exec 5>>$m/g; o $m/g open" + " append fsync truncate:0" * 4,
    "written back": "exec 5>>$m/g; o $m/g open"
    + " append writeback waitfirst append writeback waitfirst fsync" * 2,
    "never longer": "exec 5>>$m/g; o $m/g open append fsync" + " write fsync" * 4,
    "mapped": f"exec 5>>$m/g; o $m/g open append mwrite msync {GROW}",
    "little free": "fallocate -l $(($(stat -fc '%f*%S' $m) * 19 / 20)) $m/fill; sync; exec 5>>$m/g;"
    f" o $m/g open {GROW}",
    "quota": f"exec 5>>$m/g; o $m/g open {GROW}",
}


@pytest.mark.parametrize("case", NONE)
def test_none_are_allocated(fs: GuestFs, case: str) -> None:
    with fs.mounted(OPTIONS, mkfs="-O quota" if case == "quota" else ""):
        run(fs, f": >$m/g; sync; {NONE[case]}; {CLOSE}")
        assert stats(fs)["blocks_ahead"] == "0"


def test_a_file_that_is_closed_while_frozen_keeps_them(fs: GuestFs) -> None:
    """Nothing waits, and what appends next has them."""
    script = (
        f"{GROWN}; o $m freeze; {CLOSE}; o $m thaw; show\n"
        "o $m/g open append fsync; cut_keeps g; show"
    )
    assert blocks_of(fs, script) == [2 + AHEAD, 2 + AHEAD]


def test_a_write_that_failed_halfway(fs: GuestFs) -> None:
    """Small blocks: it has mapped those of the whole page, behind the end. They go to another."""
    with fs.mounted(OPTIONS, mkfs="-b 1024"):
        run(
            fs,
            f"echo 0 >/sys/fs/ext4/{fs.node}/reserved_clusters\n"
            "fallocate -l 64k $m/spare; rm -f /dev/shm/copy /dev/shm/sum\n"
            f"exec 5>>$m/g; o $m/g open {GROW}{GROW}halfwrite:1500,24576; {CLOSE}; sync; settle\n"
            "yes other | dd of=$m/other bs=1k iflag=fullblock status=none || :\n"
            "rm $m/spare; sync\n"
            "md5sum <$m/other >/dev/shm/sum\n"
            "o $m/g open overwrite:2048,26076 fdatasync writeback waitfirst; sync; settle\n"
            "cp $m/g /dev/shm/copy; echo 3 >/proc/sys/vm/drop_caches\n"
            "cmp $m/g /dev/shm/copy && md5sum <$m/other | cmp - /dev/shm/sum",
        )


# --- unwritten blocks --------------------------------------------------------------------------

PREALLOCATED = {
    "inside": ("falloc:0,0,65536", "overwrite:4096,8192"),
    "behind the end": ("falloc:1,0,65536", "append"),
    "to its end": ("falloc:0,0,4096", "write"),
}


@pytest.mark.short
@pytest.mark.parametrize("where", PREALLOCATED)
def test_preallocated_blocks_are_logged(fs: GuestFs, where: str) -> None:
    """One burst, nothing is zeroed, and the rest stays unwritten."""
    falloc, write = PREALLOCATED[where]
    with fs.mounted(OPTIONS):
        fs.prepare()
        before = f"o $m/g create {falloc} fsync; settle; o $f open chmod:640 fsync chmod:600 fsync"
        words = f"{write} fsync"
        (first,) = run(fs, "s")
        sent = requests(fs, f"{fs.fsops_path} {MNT}/g open {words}", before=before)
        (then,) = run(fs, "s; cut_keeps g; settle; placed g")
    assert bursts_of(sent) == [16 * KIB], sent
    assert then["data_blocks"] - first["data_blocks"] == 1


def test_what_a_neighbour_has_zeroed_is_settled(fs: GuestFs) -> None:
    """Write-back of a block makes the whole of a small extent written, by zeroes beside it."""
    with fs.mounted(f"{OPTIONS},nodioread_nolock"):
        fs.prepare()
        run(
            fs,
            "o $m/g create falloc:0,0,32768 fsync; settle\n"
            f"o $m/g open overwrite:{PAGE},0 overwrite:{PAGE},{4 * PAGE}\n"
            "o $m/g open writebackfirst; o $m/g open fsync; cut_keeps g\n"
            "sleep 7; placed g",  # settled, and not by write-back as usual
        )


def test_replacing_a_file_by_one_that_was_synced_writes_nothing_more(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        words = f"create write fsync rename:{MNT}/f file:{MNT} fsync"
        before = "settle; o $f open chmod:640 fsync chmod:600 fsync"
        sent = requests(fs, f"{fs.fsops_path} {MNT}/g {words}", before=before)
    assert len(bursts_of(sent)) == 2, sent


def test_replacing_a_file_writes_what_was_not_synced(fs: GuestFs) -> None:
    """As ext4 does for blocks that it has not allocated yet (auto_da_alloc)."""
    with fs.mounted(OPTIONS):
        fs.prepare()
        sent = requests(
            fs,
            f"{fs.fsops_path} {MNT}/g open append rename:{MNT}/f",
            before=f"{GROWN}; settle",
        )
        run(fs, CLOSE)
    assert [size for kind, size in sent if kind == "W"] == [PAGE], sent


def test_blocks_ahead_of_many_files_leave_room_for_others(fs: GuestFs) -> None:
    """A sixteenth of what is free, though each of forty files might have 256 KiB."""
    script = """
    used() { echo stats used $(($(stat -fc '%b - %f' $m))) free $(stat -fc %f $m); }
    used
    for i in {1..40}; do
        exec {fd}>>$m/f$i; fds="$fds $fd"; o $m/f$i open append fsync append fsync
    done
    s; used
    for fd in $fds; do exec {fd}>&-; done
    used; exec 5>>$m/g; o $m/g open append fsync append fsync; s; exec 5>&-"""
    with fs.mounted(OPTIONS):
        empty, grown, full, closed, again = run(fs, script)
    assert 3 * AHEAD <= grown["blocks_ahead"] <= empty["free"] // 16
    assert full["used"] - empty["used"] >= grown["blocks_ahead"]
    assert closed["used"] <= full["used"] - grown["blocks_ahead"] + AHEAD
    assert again["blocks_ahead"] == grown["blocks_ahead"] + AHEAD


def test_blocks_that_were_used_up_leave_room_for_others(fs: GuestFs) -> None:
    """Files that stay open. Each uses up what it has, and finds that there is no more."""
    script = f"""
    echo stats free $(stat -fc %f $m)
    for i in {{1..16}}; do exec {{fd}}>>$m/f$i; o $m/f$i open append fsync append fsync; done; s
    for i in {{1..16}}; do o $m/f$i open {"append fsync " * (AHEAD + 2)}; done; s
    """
    with fs.mounted(OPTIONS):
        empty, grown, used_up = run(fs, script)
    assert grown["blocks_ahead"] <= empty["free"] // 16
    assert used_up["blocks_ahead"] - grown["blocks_ahead"] >= 4 * AHEAD


@pytest.mark.parametrize("how", ["truncate:8192", "truncate:4096 append fsync append"])
def test_truncated_blocks_are_allocated_anew(fs: GuestFs, how: str) -> None:
    """A truncate to the size that the file has frees what lies behind the end, too."""
    grow = "append fsync append fsync"
    with fs.mounted(OPTIONS):
        before, after = run(
            fs, f"exec 5>>$m/g; o $m/g open {grow}; s; o $m/g open {how} {grow}; s; {CLOSE}"
        )
    assert before["blocks_ahead"] == AHEAD
    assert after["blocks_ahead"] == 2 * AHEAD


def test_once_it_is_off_a_rename_writes_nothing(fs: GuestFs) -> None:
    """On stock it does not write what was preallocated; eager_sync has it log that."""
    write = "dd if=/dev/zero bs=4k count=4 conv=notrunc status=none"
    with fs.mounted(OPTIONS):
        fs.vm.run(f"cd {MNT}; fallocate -l 1M p; touch q; sync; {write} of=p")
        fs.remount("un_eager_sync")
        sent = requests(
            fs, f"mv {MNT}/p {MNT}/q", before=f"sync; {write} seek=4 of={MNT}/p; sleep 1\n"
        )
    assert sent == []
