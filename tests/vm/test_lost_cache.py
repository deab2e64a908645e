"""A device that drops its cache when a flush fails: nobody is told that what was in it is there."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.host.build import ModuleSet
from fastsync_lab.machine.vm import Vm
from tests.vm import eagerfs
from tests.vm.carried import carrying
from tests.vm.conftest import losing_fs
from tests.vm.guestfs import (
    CRASH,
    FAIL_A_FLUSH,
    MNT,
    MODES,
    MS,
    UNIFORM,
    Event,
    GuestFs,
    parse_events,
)
from tests.vm.tracing import trace_requests

# Without the option a failed flush is as stock has it: the journal aborts, and an fsync that finds
# its transaction gone takes it for a committed one. So with it, and with asynchronous commits that
# are no bursts.
COMMITS = {**MODES, "async": f"data=writeback,journal_async_commit,{MODES['defer']}"}
OTHER, THIRD = f"{MNT}/other", f"{MNT}/third"


@pytest.fixture
def losing_slowly(vm: Vm, fsops: str, modules: ModuleSet, flashdev: Path) -> Iterator[GuestFs]:
    """Its flushes take long enough for another task to send one as well."""
    with losing_fs(vm, fsops, modules, flashdev, replace(UNIFORM, flush_ns=100 * MS)) as fs:
        yield fs


def start(fs: GuestFs, options: str) -> None:
    """Three files, wholly on the medium."""
    fs.mkfs()
    fs.mount(options)
    fs.prepare()
    fs.vm.run(f"cp {MNT}/f {OTHER}; cp {MNT}/f {THIRD}; sync")


def leave_unflushed_data(fs: GuestFs) -> str:
    """A script: two files with young stamps that are committed; the other's data is in the cache.

    To be run in one with what follows: between two of them the interval may pass.
    """
    return (
        f"{fs.fsops_path} {MNT}/f open sleep:1100 align:1000 write file:{OTHER} open write fsync"
        " write writeback waitfirst || exit\n"
    )


@pytest.mark.parametrize("mode", MODES)
def test_a_failed_fsync_takes_other_files_with_it(losing: GuestFs, mode: str) -> None:
    """Both have written; one's flush fails, which loses the other's data, too."""
    start(losing, MODES[mode])
    fsops = losing.fsops_path
    counter = f"/sys/fs/ext4/{losing.node}/mtime_commits_avoided"
    seen = losing.vm.run(
        f"{leave_unflushed_data(losing)}"
        f"({FAIL_A_FLUSH}); {fsops} {MNT}/f open write '?fsync'\n"
        f"echo avoided '{{\"commits\":' $(cat {counter}) '}}'; {fsops} {OTHER} open '?fsync'"
    ).stdout
    first, avoided, second = parse_events(seen)
    assert avoided["commits"] == 1
    assert first["errno"] != 0
    assert second["errno"] != 0


@pytest.mark.parametrize("mode", MODES)
def test_a_flush_behind_a_failed_one_is_not_trusted(losing_slowly: GuestFs, mode: str) -> None:
    """Two fsyncs at once: the first one's flush takes both files' data, the second's is fine."""
    start(losing_slowly, MODES[mode])
    fsops = losing_slowly.fsops_path
    seen = losing_slowly.vm.run(
        f"{leave_unflushed_data(losing_slowly)}"
        f"({FAIL_A_FLUSH}); {fsops} {MNT}/f open write '?fsync' &\n"
        f"sleep 0.005; {fsops} {OTHER} open '?fsync'; wait"
    ).stdout
    first, second = parse_events(seen)
    assert losing_slowly.counter("commits_avoided") == 2
    assert first["errno"] != 0
    assert second["errno"] != 0


@pytest.mark.usefixtures("bursts")
def test_with_eager_sync_alone_a_flush_behind_a_failed_one_is_not_trusted(
    losing_slowly: GuestFs,
) -> None:
    """Two fdatasyncs of data in place. Whoever has sent the failed flush does not get to run."""
    start(losing_slowly, eagerfs.OPTIONS)
    eagerfs.run(losing_slowly, "settle")
    fsops = losing_slowly.fsops_path
    second, first = while_others_wait(
        losing_slowly,
        SENDERS,
        f"{fsops} {OTHER} open write writeback waitfirst\n"
        f"({FAIL_A_FLUSH}); {fsops} {MNT}/f open write '?fdatasync' &\n"
        f"sleep 0.005; chrt -f 2 {fsops} {OTHER} open '?fdatasync' &",
    )
    assert first["errno"] != 0
    assert second["errno"] != 0


# Who sends the flushes of the device's queue.
SENDERS = "kworker/.*H|ksoftirqd/"


def while_others_wait(
    fs: GuestFs, urgent: str, script: str, *, seconds: float = 0.5
) -> list[Event]:
    """What the ops of a script say; 20 ms after it has begun its tasks others do not run.

    For as many seconds. Others are all but the threads that `urgent` names and the tasks with chrt.
    """
    return parse_events(
        fs.vm.run(
            f"for pid in $(pgrep '{urgent}'); do chrt -f -p 2 $pid || exit; done\n"
            f"{script}\n"
            f"sleep 0.020; chrt -f 2 timeout {seconds} chrt -f 1 sh -c 'while :; do :; done'; wait"
        ).stdout
    )


@pytest.mark.parametrize("mode", COMMITS)
def test_a_commit_behind_a_failed_flush_is_not_trusted(losing_slowly: GuestFs, mode: str) -> None:
    """One fsync only flushes, which takes the data of the other one; its commit's flush is fine.

    Whoever has sent the failed flush does not get to run before that commit has ended.
    """
    start(losing_slowly, COMMITS[mode])
    fsops = losing_slowly.fsops_path
    # In one script: between two of them the interval may pass.
    committed, flushed = while_others_wait(
        losing_slowly,
        f"jbd2/|{SENDERS}",
        f"{fsops} {MNT}/f open align:1000 write fsync\n"
        f"{fsops} {OTHER} open write writeback waitfirst\n"
        f"({FAIL_A_FLUSH}); {fsops} {MNT}/f open write '?fsync' &\n"
        f"sleep 0.005; chrt -f 2 {fsops} {OTHER} open chmod:601 '?fsync' &",
    )
    assert losing_slowly.counter("commits_avoided") == 1
    assert flushed["errno"] != 0
    assert committed["errno"] != 0


@pytest.mark.parametrize("mode", COMMITS)
def test_a_flush_behind_a_failed_commit_is_not_trusted(losing_slowly: GuestFs, mode: str) -> None:
    """A commit's flush takes the data of an fsync that only flushes, whose own flush is fine.

    The commit thread does not get to run before that fsync has ended.
    """
    start(losing_slowly, COMMITS[mode])
    fsops = losing_slowly.fsops_path
    flushed, committed = while_others_wait(
        losing_slowly,
        SENDERS,
        f"{fsops} {MNT}/f open align:1000 write fsync write writeback waitfirst\n"
        f"({FAIL_A_FLUSH}); {fsops} {OTHER} open chmod:601 '?fsync' &\n"
        f"sleep 0.015; chrt -f 2 {fsops} {MNT}/f open '?fsync' &",
    )
    assert losing_slowly.counter("commits_avoided") == 1
    assert committed["errno"] != 0
    assert flushed["errno"] != 0


@pytest.mark.usefixtures("bursts")
def test_the_tail_does_not_pass_data_behind_a_failed_flush(losing_slowly: GuestFs) -> None:
    """A failed flush takes logged data that is in place; the flush before the tail moves is fine.

    Whoever has sent the failed flush does not get to run before the tail would have moved.
    """
    start(losing_slowly, f"noatime,{eagerfs.OPTIONS}")
    fsops = losing_slowly.fsops_path
    settled, flushed = while_others_wait(
        losing_slowly,
        "jbd2/|kworker/|ksoftirqd/",
        f"{fsops} {MNT}/f open overwrite:4096,4096 fsync writeback waitfirst\n"
        f"cp {MNT}/f /dev/shm/want.f\n"
        f"({FAIL_A_FLUSH}); {fsops} {THIRD} open '?fdatasync' &\n"
        # What writes past the page cache has the log settled before.
        f"sleep 0.005; chrt -f 2 {fsops} {MNT}/f open '?dwrite' &",
    )
    assert flushed["errno"] != 0
    assert settled["errno"] != 0
    eagerfs.run(losing_slowly, "o $f crash:$img; kept f")


@pytest.mark.usefixtures("bursts")
def test_a_burst_does_not_show_what_a_failed_flush_has_taken(losing_slowly: GuestFs) -> None:
    """A flush takes data of a preallocated block before its extent is converted.

    Then another one ends well, which would cover that. Whoever has sent the failed flush does not
    get to run before the transaction has been committed.
    """
    start(losing_slowly, f"{eagerfs.OPTIONS},{MODES['defer']}")
    eagerfs.run(losing_slowly, "settle")  # what is overwritten goes into place
    fsops = losing_slowly.fsops_path
    at = "chrt -f 2 sh -c 'sleep 0.{}; {}' &\n"
    lost, flushed, committed = while_others_wait(
        losing_slowly,
        f"jbd2/|{SENDERS}",
        f"export o='{fsops} {OTHER} open' w=\"$(pgrep kworker/u)\"\n"
        f"$o falloc:0,65536,65536 fsync align:1000; {fsops} {MNT}/f open write fsync\n"
        f"({FAIL_A_FLUSH})\n"
        + at.format("15", "$o overwrite:4096,65536 writeback")
        + at.format("18", f"echo $$ >/dev/shm/pid; exec {fsops} {MNT}/f open write ?fsync")
        + at.format("23", "chrt -o -p 0 $(cat /dev/shm/pid)")
        + at.format("35", "for pid in $w; do chrt -f -p 2 $pid; done")
        + at.format("50", f"{fsops} {THIRD} open ?fdatasync")
        + at.format("68", "$o chmod:601 ?fsync"),
        seconds=0.9,
    )
    assert [one["errno"] != 0 for one in (lost, flushed, committed)] == [True] * 3
    losing_slowly.ops(CRASH)
    assert losing_slowly.crashed("/other").mode != 0o601


@pytest.mark.usefixtures("bursts")
def test_a_failed_flush_of_zeroed_inode_tables_is_told(losing: GuestFs) -> None:
    """It comes within 5 s of a mount, before the log is settled, and takes data in place.

    When within them is random, so it can come before the fault is armed. Then all is done again.
    """
    fsops = losing.fsops_path
    for _ in range(6):
        losing.mkfs("-g 2048 -E lazy_itable_init=1")
        traced = trace_requests(
            losing.vm,
            f"({FAIL_A_FLUSH}); {fsops} {MNT}/f open sleep:12000 '?fsync' {CRASH}",
            "block/block_bio_queue",
            before=f"mount -t ext4 -o noatime,{eagerfs.OPTIONS} {losing.device} {MNT} || exit\n"
            f"{fsops} {MNT}/f create append fsync sleep:20 || exit\n"
            f"{fsops} {MNT}/f open overwrite:4096,0 fsync writeback waitfirst || exit\n"
            f"cp {MNT}/f /dev/shm/want.f",
        )
        flushes = re.findall(r"block_bio_queue: \S+ F\S* \d+ \+ \d+ \[(.*)\]", traced.text)
        if "ext4lazyinit" in flushes:
            break
    assert flushes[0] == "ext4lazyinit", traced.text
    (synced,) = parse_events(traced.printed)
    assert synced["errno"] != 0
    eagerfs.run(losing, "kept f")


def test_a_failed_flush_fails_the_commit_that_was_to_be_carried(losing: GuestFs) -> None:
    """Its blocks are lost; the flushes that succeed afterwards do not carry it."""
    start(losing, MODES["defer"])
    fsops = losing.fsops_path
    flushes = "'?write' '?fdatasync' sleep:4 " * 3  # which the journal's abort prevents
    with carrying(losing, 1) as waits:
        text = losing.vm.run(
            f"{fsops} {MNT}/f open write fsync sleep:900 file:{OTHER} open chmod:601"
            f" file:{MNT}/f open write fsync sleep:4 || exit\n"
            f"({FAIL_A_FLUSH}); {fsops} {OTHER} open sleep:600 '?fsync' {CRASH} &\n"
            f"{fsops} {THIRD} open write '?fdatasync'\n"
            f"{fsops} {MNT}/f '?open' {flushes}; wait"
        ).stdout
    assert waits == ["blocks lost"]
    flushed, *_, synced = [event["errno"] for event in parse_events(text)]
    assert flushed != 0 and synced != 0
    assert losing.crashed("/other").mode != 0o601


@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
@pytest.mark.parametrize("mode", MODES)
def test_a_sync_fails_once_the_journal_is_aborted(losing: GuestFs, mode: str, call: str) -> None:
    """An aborted transaction has a tid like a committed one; stock takes it for one."""
    start(losing, MODES[mode])
    fsops = losing.fsops_path
    text = losing.vm.run(
        f"{fsops} {MNT}/f open write fsync append\n"
        f"({FAIL_A_FLUSH}); {fsops} {THIRD} open chmod:601 '?fsync'\n"
        f"{fsops} {MNT}/f open '?{call}'"
    ).stdout
    committed, synced = [event["errno"] for event in parse_events(text)]
    assert committed != 0 and synced != 0


def test_fsync_fails_once_a_carried_commit_has_aborted_the_journal(losing: GuestFs) -> None:
    """The stamps that the aborted transaction has would be young."""
    start(losing, MODES["defer"])
    # In one script: between two of them the interval may pass. The second fsync starts the commit.
    fsops = losing.fsops_path
    with carrying(losing, 1) as waits:
        text = losing.vm.run(
            f"{fsops} {MNT}/f open write fsync sleep:900 write fsync sleep:4\n"
            f"({FAIL_A_FLUSH}); {fsops} {THIRD} open write '?fdatasync'\n"
            f"{fsops} {MNT}/f open sleep:4 '?fsync'"
        ).stdout
    assert waits == ["blocks lost"]
    flushed, synced = [event["errno"] for event in parse_events(text)]
    assert flushed != 0 and synced != 0
