"""mtime_update: fsyncs that come together share a flush, one that comes alone waits for nobody."""

import re
from itertools import pairwise

import pytest

from tests.vm.guestfs import (
    FILE,
    MNT,
    MODES,
    GuestFs,
    between_ms,
    parse_events,
    with_limit,
)
from tests.vm.tracing import trace_requests

WRITERS, ROUNDS = 6, 20
FLUSH_MS = 20  # of slow_flushes
# It takes two seconds to write this where a second lets half of it through.
LARGE_SIZE = 8 << 20
LONE_ROUNDS = 10


def make_files(fs: GuestFs) -> None:
    """A file for each writer, wholly on the medium, whose stamps are young."""
    fs.vm.run(
        f"cd {MNT}; for n in $(seq {WRITERS}); do dd if=/dev/zero of=w$n bs=64k count=1; done\nsync"
    )


def flushes(fs: GuestFs, writers: int) -> int:
    """How many the device was sent by fsyncs of that many processes, each of its own file."""
    traced = trace_requests(fs.vm, fs.together(*["write fsync " * ROUNDS] * writers))
    return sum(one.is_flush for one in traced.requests)


@pytest.mark.short
@pytest.mark.parametrize("mode", MODES)
def test_together_they_share_a_flush(slow_flushes: GuestFs, mode: str) -> None:
    with slow_flushes.mounted(MODES[mode]):
        make_files(slow_flushes)
        sent = flushes(slow_flushes, WRITERS)
        shared = slow_flushes.counter("flushes_shared")
    # Some may begin earlier than others. Who has not shared one has sent one.
    assert shared > ROUNDS * WRITERS / 2, (sent, shared)
    assert sent <= ROUNDS * WRITERS - shared + 2, (sent, shared)


def test_alone_each_has_its_own(slow_flushes: GuestFs) -> None:
    with slow_flushes.mounted(MODES["defer"]):
        make_files(slow_flushes)
        sent = flushes(slow_flushes, 1)
        assert slow_flushes.counter("flushes_shared") == 0
    assert ROUNDS <= sent <= ROUNDS + 2


@pytest.mark.parametrize("mode", MODES)
def test_write_back_throttling_takes_a_flush_for_synchronous(fs: GuestFs, mode: str) -> None:
    with fs.mounted(MODES[mode]):
        fs.prepare()
        synced = f"{fs.fsops_path} {FILE} open write fsync write fsync"
        trace = trace_requests(fs.vm, synced, "block/block_bio_queue").text
    flushes = [line for line in trace.splitlines() if re.search(r" FW\S* 0 \+ 0 ", line)]
    assert flushes and all(" FWS 0 + 0 " in line for line in flushes), trace


def test_not_without_the_option(slow_flushes: GuestFs) -> None:
    """Whatever was on before in this mount."""
    with slow_flushes.mounted(MODES["defer"]):
        make_files(slow_flushes)
        slow_flushes.remount("un_mtime_update")
        sent = flushes(slow_flushes, WRITERS)
        assert slow_flushes.counter("flushes_shared") == 0
    assert sent >= ROUNDS  # each waits for a commit, perhaps the others'


def test_a_long_writer_is_waited_for_once(slow_flushes: GuestFs) -> None:
    """It writes for seconds; who syncs meanwhile waits for half a flush, and only once."""
    vm, program = slow_flushes.vm, slow_flushes.fsops_path
    name = slow_flushes.node
    device = vm.run(f"cat /sys/block/{name}/dev").stdout.strip()
    # What a flush takes shows in the first ones.
    work = f"""
        limited {program} {MNT}/large create overwrite:{LARGE_SIZE}; wait $! || exit
        {program} {MNT}/w1 open {"write fsync " * 3} || exit
        limited {program} {MNT}/large open clock fsync clock >/dev/shm/large; large=$!
        sleep 0.1
        {program} {MNT}/w1 open {"clock write fsync " * LONE_ROUNDS} clock || exit
        wait $large && cat /dev/shm/large || exit
    """
    with slow_flushes.mounted(MODES["defer"]):
        make_files(slow_flushes)
        text = vm.run(with_limit("io.max", f"{device} wbps={LARGE_SIZE // 2}", work)).stdout
        assert slow_flushes.counter("flushes_shared") == 0
    *times, begun, ended = parse_events(text)
    assert begun["time_ns"] < times[0]["time_ns"] and times[-1]["time_ns"] < ended["time_ns"]
    first_ms, *others_ms = [between_ms(*pair) for pair in pairwise(times)]
    assert 1.5 * FLUSH_MS <= first_ms < 1.75 * FLUSH_MS
    assert max(others_ms) < 1.25 * FLUSH_MS


# Two turns' flushes, and how late the second of them may begin.
MOST_MS = 80
# Of each second, two tasks have this between them, and one of them takes what it gets.
POOR_CPU_US = "20000 1000000"


@pytest.mark.parametrize("policy", [MODES["defer"], "eager_sync"])
def test_nobody_waits_for_who_has_no_processor_time_left(
    slow_flushes: GuestFs, policy: str, request: pytest.FixtureRequest
) -> None:
    if policy == "eager_sync":
        request.getfixturevalue("bursts")
    program, mine = slow_flushes.fsops_path, f"{MNT}/w1"
    with slow_flushes.mounted(policy):
        make_files(slow_flushes)
        done = slow_flushes.vm.run(
            with_limit(
                "cpu.max",
                POOR_CPU_US,
                f"limited bash -c 'while :; do :; done'; busy=$!\n"
                f"limited {program} {MNT}/w2 open {'write fsync ' * 20 * ROUNDS}; other=$!\n"
                f"{program} {mine} open {'clock write fsync ' * 20 * ROUNDS} clock || exit\n"
                f"kill $busy && kill $other || exit",  # neither has ended
            )
        )
    took_ms = [between_ms(*pair) for pair in pairwise(parse_events(done.stdout))]
    assert max(took_ms) < MOST_MS, sorted(took_ms)[-5:]
