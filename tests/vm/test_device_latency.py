"""kernel/flashdev in virtual time: each latency of each profile, the queue's depth, the data.

Latencies are taken from the block layer's trace events, from block_rq_issue to block_rq_complete.
"""

import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fastsync_lab.host import shell
from fastsync_lab.machine.device import DeviceProfile, RequestKind, load_profile, profile_names
from fastsync_lab.machine.vm import Vm
from tests.vm.conftest import IN_TIME

pytestmark = IN_TIME

TOLERANCE = 0.05
COUNT = 24
CAPACITY_MIB = 64
# What a call costs in the kernel beside the device, at 500 million instructions a second: for each
# request, and for each 4 KiB page to pin.
MAX_REQUEST_NS = 50_000
MAX_PAGE_NS = 2_000
# From the end of a request to the start of the next, where the device holds one at a time.
MAX_DISPATCH_NS = 30_000

# Phase of blkprobe: what the trace calls its requests, the kind in the model, bytes.
PHASES: dict[str, tuple[str, RequestKind, int]] = {
    "read4k": ("R", "read", 4096),
    "read128k": ("R", "read", 131072),
    "write4k": ("W", "write", 4096),
    "write128k": ("W", "write", 131072),
    "random4k": ("W", "random-write", 4096),
    "fua4k": ("WF", "fua-write", 4096),
    "flush": ("FF", "flush", 0),
    "discard": ("D", "discard", 65536),
}
TRACE_LINE = re.compile(
    r"\s(?P<ns>\d+): (?:block_rq_(?P<event>issue|complete): \S+ (?P<rwbs>[A-Z]+) "
    r"(?:\d+ )?\(.*?\) (?P<sector>\d+) \+ \d+|tracing_mark_write: probe (?P<phase>\S+))"
)


@dataclass
class PhaseTrace:
    """The requests of one phase: kind and ns of each, most in flight, ns from first to last."""

    latencies: list[tuple[str, int]] = field(default_factory=list)
    most_in_flight: int = 0
    begin_ns: int = 0
    end_ns: int = 0

    def of(self, rwbs: str) -> list[int]:
        """Latencies in ns of the requests of a kind, the flag S (sync) left out."""
        return [ns for kind, ns in self.latencies if kind.replace("S", "") == rwbs]


def parse_trace(text: str) -> dict[str, PhaseTrace]:
    """The phases of a blkprobe run from the text of a trace with the x86-tsc clock.

    In virtual time QEMU's TSC counts ns. A flush has no sector, so it is known by its kind.
    """
    phases: dict[str, PhaseTrace] = {}
    phase = PhaseTrace()
    issued: dict[tuple[str, str], int] = {}
    for match in TRACE_LINE.finditer(text):
        now_ns = int(match["ns"])
        if match["phase"]:
            phase = PhaseTrace()
            phases[match["phase"]] = phase
            continue
        rwbs = match["rwbs"]
        key = (rwbs, "" if rwbs == "FF" else match["sector"])
        if match["event"] == "issue":
            issued[key] = now_ns
            phase.begin_ns = phase.begin_ns or now_ns
            phase.most_in_flight = max(phase.most_in_flight, len(issued))
        elif key in issued:
            phase.latencies.append((rwbs, now_ns - issued.pop(key)))
            phase.end_ns = now_ns
    return phases


@dataclass(frozen=True)
class Probe:
    """blkprobe in the guest, and the device it probes."""

    vm: Vm
    program: str
    flashdev: Path

    def load(self, profile: DeviceProfile) -> None:
        self.vm.load_device(profile, self.flashdev, capacity_mib=CAPACITY_MIB)

    def run(self, count: int, *phases: str) -> tuple[dict[str, PhaseTrace], dict[str, int]]:
        """The trace of each phase, and the mean time of its calls in ns."""
        printed = self.vm.run(
            "t=/sys/kernel/tracing; mountpoint -q $t || mount -t tracefs tracefs $t || exit\n"
            "echo 0 >$t/tracing_on; echo x86-tsc >$t/trace_clock; echo >$t/trace\n"
            "echo 4096 >$t/buffer_size_kb\n"
            "for e in issue complete; do echo 1 >$t/events/block/block_rq_$e/enable || exit; done\n"
            f"echo 1 >$t/tracing_on; {self.program} /dev/flash0 {count} {' '.join(phases)}\n"
            "status=$?; echo 0 >$t/tracing_on; echo 0 >$t/events/block/enable\n"
            'cat $t/trace >"$FASTSYNC_OUT/trace"; echo local >$t/trace_clock\n'
            "exit $status"
        ).stdout
        trace = (self.vm.out_dir / "trace").read_text()
        means = {name: int(ns) for name, ns in map(str.split, printed.splitlines())}
        return parse_trace(trace), means


@pytest.fixture(scope="session")
def blkprobe(vm: Vm, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the guest finds the blkprobe program."""
    program = tmp_path_factory.mktemp("blkprobe") / "blkprobe"
    source = Path(__file__).with_name("blkprobe.c")
    shell.run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-static",
               "-o", str(program), str(source)])  # fmt: skip
    return vm.stage(program)


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
    phases, calls = probe.run(COUNT, *PHASES)
    for phase, (rwbs, kind, size) in PHASES.items():
        seen = phases[phase]
        if not profile.volatile_cache:
            assert seen.of("FF") == seen.of("WF") == []
            if kind == "flush":
                continue
            rwbs = rwbs.replace("WF", "W")
        latencies = seen.of(rwbs)
        expected = profile.service_ns(kind, size)
        assert len(latencies) == COUNT, (phase, seen)
        assert statistics.mean(latencies) == pytest.approx(expected, rel=TOLERANCE), phase
        assert statistics.median(latencies) == pytest.approx(expected, rel=TOLERANCE), phase
        flush_ns = profile.flush_ns if rwbs == "WF" else 0  # O_DSYNC on a device flushes as well
        software_ns = MAX_REQUEST_NS * (2 if flush_ns else 1) + MAX_PAGE_NS * (size // 4096)
        assert 0 <= calls[phase] - expected - flush_ns <= software_ns, phase


@pytest.mark.parametrize("name", ["emmc", "ufs"])
def test_queue_depth(probe: Probe, name: str) -> None:
    """The device holds queue_depth requests, and serves what occupies it one after the other."""
    profile = load_profile(name)
    probe.load(profile)
    count = 48
    seen = probe.run(count, "burst4k")[0]["burst4k"]
    assert len(seen.of("W")) == count
    assert seen.most_in_flight == profile.queue_depth
    one_ns = profile.service_ns("random-write", 4096)
    occupied_ns = one_ns if profile.queue_depth == 1 else one_ns - profile.write_ns
    expected = count * occupied_ns + (one_ns - occupied_ns)
    dispatch_ns = (count - 1) * MAX_DISPATCH_NS if profile.queue_depth == 1 else 0
    elapsed_ns = seen.end_ns - seen.begin_ns
    assert (1 - TOLERANCE) * expected <= elapsed_ns <= (1 + TOLERANCE) * expected + dispatch_ns


@pytest.mark.short
def test_data(probe: Probe) -> None:
    """Reads return what was written, to the sector; discarded and zeroed ranges read as zeros."""
    probe.load(load_profile("nvme"))
    probe.vm.run(
        "set -e; d=/dev/flash0; cd /dev/shm\n"
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
    probe.vm.run("echo data | dd of=/dev/flash0 conv=sync bs=4096 status=none; sync")
    probe.load(load_profile("nvme-plp"))
    seen = probe.vm.run(
        "cat /sys/block/flash0/queue/write_cache /sys/module/flashdev/parameters/queue_depth\n"
        "cmp -n 1048576 /dev/flash0 /dev/zero && blockdev --getsize64 /dev/flash0"
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
