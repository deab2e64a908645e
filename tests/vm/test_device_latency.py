"""kernel/flashdev in virtual time: each latency of each profile, the queue's depth, the data."""

import statistics
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import pytest

from fastsync_lab.host.progress import silent
from fastsync_lab.machine.device import load_profile, profile_names
from fastsync_lab.machine.trace import Request
from fastsync_lab.machine.vm import Vm
from fastsync_lab.study.latencies import COUNT, PHASES, PROGRAM, Probe, latencies_ns
from tests.vm.conftest import IN_TIME
from tests.vm.guestfs import NODE

pytestmark = IN_TIME

TOLERANCE = 0.05
# What a call costs in the kernel beside the device, at 500 million instructions a second: for each
# request, and for each 4 KiB page to pin.
MAX_REQUEST_NS = 50_000
MAX_PAGE_NS = 2_000
# From the end of a request to the start of the next, where the device holds one at a time.
MAX_DISPATCH_NS = 30_000


@pytest.fixture(scope="session")
def blkprobe(vm: Vm) -> str:
    """Where the guest finds the blkprobe program."""
    return vm.stage(PROGRAM.build(silent))


@pytest.fixture
def probe(vm: Vm, blkprobe: str, flashdev: Path) -> Iterator[Probe]:
    """Leaves no device behind."""
    yield Probe(vm, blkprobe, flashdev)
    vm.run("[ ! -d /sys/module/flashdev ] || rmmod flashdev")


@pytest.mark.parametrize("name", profile_names())
def test_latency(probe: Probe, name: str) -> None:
    """Mean and median of each kind of request are within 5 % of the model."""
    profile = load_profile(name)
    probe.load(profile)
    trace, calls = probe.run(COUNT, *PHASES)
    for key, phase in PHASES.items():
        seen = trace.phase(key)
        rwbs = phase.rwbs
        if not profile.volatile_cache:
            assert latencies_ns(seen, "FF") == latencies_ns(seen, "WF") == []
            if phase.kind == "flush":
                continue
            rwbs = rwbs.replace("WF", "W")
        latencies = latencies_ns(seen, rwbs)
        expected = phase.model_ns(profile)
        assert len(latencies) == COUNT, (key, seen)
        assert statistics.mean(latencies) == pytest.approx(expected, rel=TOLERANCE), key
        assert statistics.median(latencies) == pytest.approx(expected, rel=TOLERANCE), key
        requests = 2 if rwbs == "WF" else 1  # O_DSYNC on a device flushes as well
        software_ns = MAX_REQUEST_NS * requests + MAX_PAGE_NS * (phase.size_bytes // 4096)
        assert 0 <= calls[key] - phase.waits_ns(profile) <= software_ns, key


def end_ns(request: Request) -> int:
    """When it was complete."""
    assert request.service_ns is not None
    return request.time_ns + request.service_ns


def most_in_flight(requests: Sequence[Request]) -> int:
    """How many the device had at once; one that ends makes room first."""
    steps = [step for one in requests for step in ((one.time_ns, 1), (end_ns(one), -1))]
    return max(accumulate(change for _, change in sorted(steps)))


@pytest.mark.parametrize("name", ["emmc", "ufs"])
def test_queue_depth(probe: Probe, name: str) -> None:
    """The device holds queue_depth requests, and serves what occupies it one after the other."""
    profile = load_profile(name)
    probe.load(profile)
    count = 48
    seen = probe.run(count, "burst4k")[0].phase("burst4k")
    assert len(latencies_ns(seen, "W")) == count
    assert most_in_flight(seen) == profile.queue_depth
    one_ns = profile.service_ns("random-write", 4096)
    occupied_ns = one_ns if profile.queue_depth == 1 else one_ns - profile.write_ns
    expected = count * occupied_ns + (one_ns - occupied_ns)
    dispatch_ns = (count - 1) * MAX_DISPATCH_NS if profile.queue_depth == 1 else 0
    elapsed_ns = max(map(end_ns, seen)) - seen[0].time_ns
    assert (1 - TOLERANCE) * expected <= elapsed_ns <= (1 + TOLERANCE) * expected + dispatch_ns


@pytest.mark.short
def test_data(probe: Probe) -> None:
    """Reads return what was written, to the sector; discarded and zeroed ranges read as zeros."""
    probe.load(load_profile("nvme"))
    probe.vm.run(
        "set -e; d=$FASTSYNC_DEV; cd /dev/shm\n"
        "trap 'rm -f flash.want flash.got' EXIT\n"
        "head -c 1M /dev/urandom >flash.want\n"
        "check() { dd if=$d of=flash.got bs=1M count=1 iflag=direct status=none; "
        "cmp flash.want flash.got; }\n"
        "zero() { dd if=/dev/zero of=flash.want bs=512 seek=$(($1 / 512)) count=$(($2 / 512)) "
        "conv=notrunc status=none; }\n"
        "dd if=flash.want of=$d bs=64k oflag=direct status=none; check\n"
        "dd if=/dev/urandom of=flash.want bs=512 seek=13 count=21 conv=notrunc status=none\n"
        "dd if=flash.want of=$d bs=512 skip=13 seek=13 count=21 oflag=direct status=none; check\n"
        "blkdiscard -o 65536 -l 131072 $d; zero 65536 131072; check\n"
        "blkdiscard -z -o 263680 -l 8704 $d; zero 263680 8704; check\n"
    )


def test_reload_is_empty(probe: Probe) -> None:
    """A device that is loaded again has its new profile, and nothing of the old one's data."""
    probe.load(load_profile("nvme"))
    probe.vm.run("echo data | dd of=$FASTSYNC_DEV conv=sync bs=4096 status=none; sync")
    probe.load(load_profile("nvme-plp"))
    seen = probe.vm.run(
        f"cat /sys/block/{NODE}/queue/write_cache /sys/module/flashdev/parameters/queue_depth\n"
        "cmp -n 1048576 $FASTSYNC_DEV /dev/zero && blockdev --getsize64 $FASTSYNC_DEV"
    ).stdout
    assert seen.split() == ["write", "through", "128", "67108864"]


def test_wrong_parameters(probe: Probe) -> None:
    """insmod fails with EINVAL; the kernel log names each wrong parameter and its range."""
    wrong = {
        "flush_ns=1000000001": "0 to 1000000000",
        "queue_depth=0": "1 to 10240",
        "volatile_cache=2": "0 to 1",
        "capacity_mib=0": "1 to 1048576",
        "devices=9": "1 to 8",
        "lose_cache_on_failed_flush=2": "0 to 1",
    }
    result = probe.vm.run(f"insmod {probe.vm.stage(probe.flashdev)} {' '.join(wrong)}", check=False)
    assert result.status != 0
    assert "Invalid parameters" in result.stderr
    log = probe.vm.kernel_log()
    for parameter, allowed in wrong.items():
        assert f"flashdev: {parameter} is out of range: {allowed}" in log
