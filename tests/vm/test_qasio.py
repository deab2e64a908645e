"""The scheduler qasio: what somebody waits for passes the backlog, and nothing starves.

The device takes 50 ms for 512 KiB. A backlog of 8 MiB is sent to it as write-back does, in
requests of up to 512 KiB; whatever waits for write-back behind it waits 0.8 s, unless it is
boosted.
"""

import re
from collections.abc import Iterator

import pytest

from fastsync_lab.machine.vm import Vm
from tests.vm.conftest import IN_TIME
from tests.vm.guestfs import DEVICE, FILE, MNT, NODE, GuestFs, between_ms, parse_events
from tests.vm.scheduled import (
    BACKLOG,
    BACKLOG_MS,
    BOOSTED_MS,
    QUEUE,
    REQUEST_MS,
    SLOW_DEVICE,
    STATE,
    Scheduled,
    settled,
)
from tests.vm.tracing import start_tracing, stop_tracing

BOOST_EVENT = "qasio/qasio_boost"


@pytest.mark.short
def test_module_loads_and_says_what_it_is(sched: Scheduled) -> None:
    assert "[qasio]" in sched.vm.run(f"cat {QUEUE}/scheduler").stdout
    assert "cannot watch" not in sched.vm.run("dmesg").stdout
    assert sched.vm.run(f"cat {QUEUE}/wbt_lat_usec").stdout == "0\n"


@pytest.mark.short
@pytest.mark.parametrize(
    ("words", "call"),
    [
        (("open", "overwrite:4096", "writeback"), "fsync"),
        (("open", "overwrite:4096", "writeback"), "truncate:0"),
        (("open", "overwrite:65536", "writeback"), "fdatasync"),
    ],
)
def test_who_waits_for_durable_data_passes_the_backlog(
    sched: Scheduled, words: tuple[str, ...], call: str
) -> None:
    settled(sched)
    before = sched.waits()
    assert sched.timed_ms(BACKLOG, *words, call=call) < BOOSTED_MS
    assert sched.gained("sync", before)["boosted"] == 1
    settled(sched)  # blocks in place again: what is allocated anew may lie ahead of the backlog
    sched.tune("boost", 0)
    before = sched.waits()
    assert sched.timed_ms(BACKLOG, *words, call=call) > BACKLOG_MS / 2
    assert sched.gained("sync", before)["boosted"] == 0


@IN_TIME
def test_a_small_fsync_need_not_wait_for_that_of_a_large_file(sched: Scheduled) -> None:
    settled(sched)
    large, program = f"{MNT}/large", sched.fs.fsops_path
    before = sched.passed("same_file")
    done = sched.vm.run(
        f": >{large} && {program} {large} open {BACKLOG} || exit\n"
        f"{program} {large}.backlog clock open fsync clock >/run/large & large=$!\n"
        f"{program} {FILE} open sleep:50 overwrite:4096 clock fsync clock || exit\n"
        "wait $large && cat /run/large"
    )
    events = parse_events(done.stdout)  # of the small one first
    # Data, log and commit record: each may meet the two requests that the driver has.
    assert between_ms(*events[:2]) < 3 * 2 * REQUEST_MS
    assert between_ms(*events[2:]) < 2 * BACKLOG_MS
    assert sched.passed("same_file") - before > 8  # all but what the driver had before


@IN_TIME
def test_a_second_wait_for_a_file_finds_its_request_behind_those_of_another(
    sched: Scheduled,
) -> None:
    settled(sched)
    sched.vm.run(f"echo 128 >{QUEUE}/nr_requests")
    large, program = f"{MNT}/large", sched.fs.fsops_path
    mib, kib_each = 24, 512
    # The second wait is for a page of its own: the memory of the first is known by then.
    waits = "overwrite:4096 writeback fsync overwrite:4096,8192 writeback clock fsync clock"
    done = sched.vm.run(
        f": >{large} && {program} {large} open backlog:{mib} || exit\n"
        f"{program} {large}.backlog open fsync & large=$!\n"
        f"{program} {FILE} open sleep:50 {waits} || exit\n"
        "wait $large"
    )
    # Each link of fsync's chain may meet a request of the large file, but not all of them.
    all_ms = mib * 1024 / kib_each * REQUEST_MS
    assert between_ms(*parse_events(done.stdout)) < all_ms / 4


def test_a_task_that_changes_metadata_under_write_back_is_boosted(sched: Scheduled) -> None:
    # Sixteen inodes share a block. The root's and the backlog's change: a block with one of these
    # belongs to the running transaction and is not written back.
    sched.vm.run(f"for i in {{1..40}}; do echo >{MNT}/m$i; done; sync")
    before = sched.waits()
    # The inode's block is dirty after fsync, until the flusher comes by or, here, we send it. The
    # commit waited for the journal's copy, the same memory: that is forgotten after 0.5 s.
    words = ("open", "chmod:600", "fsync", "sleep:1000", BACKLOG, "writebackmeta")
    assert sched.timed_ms(*words, call="chmod:640", file=f"{MNT}/m20") < BOOSTED_MS
    gained = sched.gained("meta", before)
    assert gained["boosted"] >= 1
    assert gained["handle"] >= 1


def test_pages_need_not_be_stable_and_nobody_waits(sched: Scheduled) -> None:
    settled(sched)
    before = sched.waits()
    words = (BACKLOG, "open", "overwrite:4096", "writeback")
    assert sched.timed_ms(*words, call="overwrite:4096") < REQUEST_MS
    assert sched.gained("data", before)["waits"] == 0


@IN_TIME
@pytest.mark.parametrize("offset_kib", [0, 1020])
def test_all_parts_of_a_split_bio_are_boosted(stable: Scheduled, offset_kib: int) -> None:
    # Of 1 MiB, sent as two requests: its pages are done when both are.
    stable.vm.run(f"dd if=/dev/zero of={FILE} bs=1M count=1 conv=fsync status=none; sync; sleep 1")
    data, parts = stable.waits(), stable.passed("same_bio")
    words = (BACKLOG, "open", f"overwrite:{1 << 20}", "writeback")
    call = f"overwrite:4096,{offset_kib << 10}"
    assert stable.timed_ms(*words, call=call) < BOOSTED_MS + REQUEST_MS
    assert stable.gained("data", data)["boosted"] == 1
    assert stable.passed("same_bio") - parts == 1


def test_discards_are_not_waited_for_by_a_commit(sched: Scheduled) -> None:
    sched.fs.remount("discard")
    settled(sched)
    sched.vm.run(f"dd if=/dev/zero of={MNT}/gone bs=1M count=8 conv=fsync status=none; sync")
    sched.vm.run(f"rm {MNT}/gone")
    assert sched.timed_ms("open", "chmod:600", call="fsync") < SLOW_DEVICE.discard_ns / 1e6 / 2
    # The commit freed the blocks; a worker discards them afterwards.
    discards = f"[ $(awk '{{print $12}}' /sys/block/{NODE}/stat) != 0 ]"
    sched.vm.run(f"for i in {{1..50}}; do ! {discards} || exit 0; sleep 0.1; done; exit 1")


@IN_TIME
def test_a_wait_that_begins_before_the_request_is_queued_is_not_missed(sched: Scheduled) -> None:
    sched.vm.run(f"echo 4 >{QUEUE}/nr_requests")
    settled(sched)
    before = sched.waits()
    # Two senders wait for tags; the second one's page is under write-back and in no request yet.
    senders = (f"later:0,{BACKLOG}", "later:100,writeback")
    sched.timed_ms("open", "overwrite:4096", *senders, "sleep:130", call="fsync")
    gained = sched.gained("sync", before)
    assert (gained["boosted"], gained["late"]) == (0, 1)


@pytest.fixture
def fast_disk(vm: Vm) -> Iterator[str]:
    """A disk that is no slow device's, and takes 0.1 ms for a request."""
    vm.run("modprobe null_blk gb=1 irqmode=2 completion_nsec=100000")
    yield "/dev/nullb0"
    vm.run("rmmod null_blk")


@IN_TIME
def test_waits_of_others_do_not_make_one_forgotten(sched: Scheduled, fast_disk: str) -> None:
    sched.vm.run(f"echo 4 >{QUEUE}/nr_requests")
    settled(sched)
    before = sched.waits()
    # As above. While the page is in no request yet, another task waits time and again.
    senders = (f"later:0,{BACKLOG}", "later:100,writeback", "later:130,fsync")
    waits = ("overwrite:4096", "writeback", "waitfirst") * 40
    sched.fs.ops(
        "open", "overwrite:4096", *senders, "sleep:135", f"file:{fast_disk}", "open", *waits
    )
    gained = sched.gained("sync", before)
    assert gained["waits"] > 40
    assert (gained["boosted"], gained["late"]) == (0, 1)


@IN_TIME
def test_the_queue_is_run_when_a_merge_made_a_request_pass(selected: GuestFs) -> None:
    sched = Scheduled(selected)
    sched.tune("async_kib", 0)
    kib, mib = 2, 2 << 10  # in sectors
    sched.vm.run(f"addpart {DEVICE} 1 0 {2 * mib} && addpart {DEVICE} 2 {2 * mib} {2 * mib}")
    first, second = f"{DEVICE}p1", f"{DEVICE}p2"
    # The driver has 512 KiB of the first partition, for which somebody waits. A request to the
    # second one waits for its turn, and what is then sent to the first is merged into it. The
    # kernel tries once more by itself, a tick or two after it got nothing, so that is later.
    words = [
        *("open", "io", f"overwrite:{512 << 10}", "writeback"),
        *(f"file:{second}", "open", "overwrite:4096", "writeback"),
        *(f"file:{first}", "open", "later:0,waitfirst", "sleep:20"),
        *(f"overwrite:4096,{(2 << 20) - 4096}", "writeback", "sleep:500", "io"),
    ]
    # Who closes a device last waits for all that was written to it.
    held = f"exec 7<{first} 8<{second}; {sched.fs.fsops_path} {first} {' '.join(words)}"
    before, after = parse_events(sched.vm.run(held).stdout)
    assert after["sectors"] - before["sectors"] == (512 + 4 + 4) * kib
    assert after["writes"] - before["writes"] == 2
    sched.vm.run(f"delpart {DEVICE} 1; delpart {DEVICE} 2")


@pytest.mark.short
@pytest.mark.parametrize("call", ["fsync", "ufsync", "fsync32"])
def test_fsync_is_seen_however_it_is_called(sched: Scheduled, call: str) -> None:
    settled(sched)
    before = sched.waits()
    words = (BACKLOG, "open", "overwrite:4096", "writeback")
    assert sched.timed_ms(*words, call=call) < BOOSTED_MS
    assert sched.gained("sync", before)["boosted"] == 1
    assert sched.gained("data", before)["waits"] == 0


@pytest.mark.short
@pytest.mark.parametrize("call", ["write", "uwrite", "write32"])
def test_a_write_is_seen_however_it_is_called(stable: Scheduled, call: str) -> None:
    settled(stable)
    before = stable.waits()
    words = (BACKLOG, "open", "overwrite:4096", "writeback")
    assert stable.timed_ms(*words, call=call) < BOOSTED_MS
    assert stable.gained("data", before)["boosted"] == 1
    assert stable.gained("sync", before)["waits"] == 0


def test_the_queue_is_not_searched_for_every_page_of_a_file(sched: Scheduled) -> None:
    pages = 256  # each a request
    sched.vm.run(f"dd if=/dev/zero of={FILE} bs=1M count=1 conv=fsync status=none; sync")
    sched.vm.run(f"echo {2 * pages} >{QUEUE}/nr_requests; echo 4 >{QUEUE}/max_sectors_kb")
    before, looked_at = sched.waits(), sched.passed("looked_at")
    sched.fs.ops("open", f"pages:{pages}", "fsync")
    sched.vm.run(f"echo 512 >{QUEUE}/max_sectors_kb")
    assert sched.gained("sync", before)["waits"] > pages / 2
    assert sched.passed("looked_at") - looked_at < 20 * pages  # else it is half the square


def test_every_boost_is_a_trace_event(sched: Scheduled) -> None:
    settled(sched)
    start_tracing(sched.vm, BOOST_EVENT)
    sched.fs.ops(BACKLOG, "open", "overwrite:4096", "writeback", "fsync")
    trace = stop_tracing(sched.vm, BOOST_EVENT)
    events = re.findall(r"qasio_boost: (\d+,\d+) (\w+) \d+ \+ (\d+), (\d+) ahead", trace)
    assert [event[1:3] for event in events] == [("sync", "8")]
    assert int(events[0][3]) > 8


@IN_TIME
@pytest.mark.parametrize("wait_ms", [100, 400])
def test_the_backlog_moves_while_others_write_all_the_time(sched: Scheduled, wait_ms: int) -> None:
    settled(sched)
    sched.tune("boost", 0)
    sched.tune("async_wait_ms", wait_ms)
    words = ("open", "direct:1500", "sleep:50", "overwrite:4096", "writeback")
    took_ms = sched.timed_ms(*words, call="fsync")
    assert wait_ms - 20 < took_ms < wait_ms + 100


def flood(vm: Vm) -> str:
    """Bash that has more reads under way than the device can do, as long as the script runs."""
    return (
        f"fio --name=flood --filename={DEVICE} --readonly --rw=randread --bs=128k "
        "--direct=1 --ioengine=libaio --iodepth=48 --time_based --runtime=1h --thread "
        ">/dev/null 2>&1 & flood=$!; trap 'kill -KILL $flood; wait $flood' EXIT\n"
        f"until read -a s </sys/block/{NODE}/stat; [ ${{s[8]}} -ge 40 ]; do sleep 0.05; done\n"
    )


@IN_TIME
def test_the_rest_of_a_file_that_nobody_waits_for_any_more_moves_under_a_flood_of_reads(
    sched: Scheduled,
) -> None:
    settled(sched)
    sched.vm.run(f"echo 256 >{QUEUE}/nr_requests")  # for the reads and the file
    large, program = f"{MNT}/large", sched.fs.fsops_path
    done = sched.vm.run(
        f": >{large}; {flood(sched.vm)}"
        f"{program} {large} open backlog:16 && {program} {large}.backlog open waitfirst || exit\n"
        f"cat {STATE}; sleep 1.5; cat {STATE}"
    )
    queued = [int(count) for count in re.findall(r"^file (\d+)$", done.stdout, re.MULTILINE)]
    assert queued[0] > 10, queued  # the first bio, of up to half of it, is what was waited for
    assert queued[1] < queued[0] - 5, queued


def write_ms_beside_a_flood(sched: Scheduled, command: str = "") -> float:
    """How long a direct write of 4 KiB takes beside a flood of reads, run by `command`."""
    done = sched.vm.run(
        f"{flood(sched.vm)}{command} {sched.fs.fsops_path} {FILE} opendirect sleep:1000 "
        "clock write clock"
    )
    return between_ms(*parse_events(done.stdout))


@IN_TIME
@pytest.mark.parametrize(("wait_ms", "most_ms"), [(400, 500), (0, 150)])
def test_a_sync_write_passes_a_flood_of_reads_in_time(
    sched: Scheduled, wait_ms: int, most_ms: int
) -> None:
    settled(sched)
    sched.tune("sync_wait_ms", wait_ms)
    assert wait_ms * 0.9 < write_ms_beside_a_flood(sched) < most_ms


@IN_TIME
@pytest.mark.parametrize(("ionice", "least_ms", "most_ms"), [("-c 1", 0, 150), ("-c 3", 900, 1100)])
def test_classes_pass_each_other_until_one_has_waited_too_long(
    sched: Scheduled, ionice: str, least_ms: int, most_ms: int
) -> None:
    settled(sched)
    sched.tune("sync_wait_ms", 400)
    sched.tune("prio_aging_ms", 1000)
    assert least_ms < write_ms_beside_a_flood(sched, f"ionice {ionice}") < most_ms


@IN_TIME
@pytest.mark.parametrize(("backlog", "reader"), [("-c 2", "-c 3"), ("-c 1", "-c 2")])
def test_a_backlog_does_not_stand_back_for_who_stands_behind_it(
    sched: Scheduled, backlog: str, reader: str
) -> None:
    settled(sched)
    program, read = sched.fs.fsops_path, f"dd if={DEVICE} of=/dev/null bs=4k count=1 iflag=direct"
    done = sched.vm.run(
        f"ionice {backlog} {program} {FILE} {BACKLOG} open clock || exit\n"
        f"ionice {reader} {read} status=none & read=$!\n"
        f"until grep -q '^async 0' {STATE}; do sleep 0.01; done\n"
        f"{program} {FILE} open clock && wait $read"
    )
    # Each of its 16 requests would wait for 100 ms.
    assert between_ms(*parse_events(done.stdout)) < BACKLOG_MS + 2 * REQUEST_MS


def waiters(sched: Scheduled) -> str:
    """Bash that has tasks write a page and wait for it, each of its own file, until it ends.

    They are more than the driver takes requests, so it always has some of theirs.
    """
    words = "overwrite:4096 writeback waitfirst " * 50
    each = "for n in {1..48}; do"
    return (
        f"echo 256 >{QUEUE}/nr_requests; "
        f"{each} dd if=/dev/zero of={MNT}/w$n bs=4k count=1 status=none; done; sync\n"
        f"touch /run/load; {each} ( while [ -e /run/load ]; do "
        f"{sched.fs.fsops_path} {MNT}/w$n open {words}; done ) & done\n"
        "trap 'rm /run/load; wait' EXIT; sleep 0.3\n"
    )


ASYNC_WAIT_MS = 100  # the scheduler's default


@IN_TIME
def test_the_backlog_moves_beside_many_who_wait_for_small_writes(sched: Scheduled) -> None:
    settled(sched)
    done = sched.vm.run(
        f"{waiters(sched)}{sched.fs.fsops_path} {FILE} open overwrite:4096 writeback clock\n"
        f"until grep -q '^async 0' {STATE}; do sleep 0.01; done\n"
        f"{sched.fs.fsops_path} {FILE} open clock"
    )
    # One asynchronous request goes each async_wait_ms, in turn: before it those of tasks that have
    # sent theirs and do not wait yet. 2 to 4 were seen; without the bound it is 5 s.
    assert between_ms(*parse_events(done.stdout)) < 5 * ASYNC_WAIT_MS


@IN_TIME
def test_a_sync_write_passes_many_who_wait_for_small_writes(sched: Scheduled) -> None:
    settled(sched)
    done = sched.vm.run(
        f"{waiters(sched)}{sched.fs.fsops_path} {FILE} opendirect clock write clock"
    )
    assert between_ms(*parse_events(done.stdout)) < 250


def test_neighbouring_requests_are_merged(sched: Scheduled) -> None:
    settled(sched)
    before, after = sched.fs.ops("open", BACKLOG, "io", "pages:16", "sync", "io")
    backlog_requests = BACKLOG_MS // REQUEST_MS
    assert after["writes"] - before["writes"] < backlog_requests + 16
