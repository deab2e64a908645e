"""How exactly devices meet their model: what `./fastsync calibrate --devices` measures and shows.

programs/blkprobe.c sends one kind of request after the other to a modelled device. A request's
latency is taken from the block layer's trace, from block_rq_issue to block_rq_complete, and held
against what the profile says. What a call takes beside that is the kernel's own time.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from typing import Any

from fastsync_lab.host.build import build_flashdev
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.fetch import fetch_kernel
from fastsync_lab.host.kernels import upstream_version
from fastsync_lab.host.paths import repo_root, results_dir, write_json
from fastsync_lab.host.progress import Finished, Report
from fastsync_lab.machine.config import VmConfig
from fastsync_lab.machine.device import DeviceProfile, RequestKind, load_profile
from fastsync_lab.machine.processor import DEFAULT_MIPS, load_processor
from fastsync_lab.machine.trace import TRACE_SH, Request, Trace, check_no_loss, parse_trace
from fastsync_lab.machine.vm import Vm
from fastsync_lab.study.figures import DEVICES
from fastsync_lab.study.grid import Grid, Part
from fastsync_lab.study.keeper import Result, read_results, write_tables
from fastsync_lab.study.programs import plain

FORMAT = 1
DOCUMENT, BLOCK = "docs/device-model.md", "devices"
PROGRAM = plain("blkprobe")
PROBE_SH = Path(__file__).with_suffix(".sh")
CAPACITY_MIB = 64
COUNT = 24  # requests of each kind


@dataclass(frozen=True)
class Phase:
    """Requests of one kind: what the trace calls them, what the model does, of so many bytes."""

    says: str
    rwbs: str
    kind: RequestKind
    size_bytes: int

    def is_on(self, profile: DeviceProfile) -> bool:
        """A device without a volatile cache gets no flush, and its FUA writes are writes."""
        return profile.volatile_cache or self.kind not in ("flush", "fua-write")

    def model_ns(self, profile: DeviceProfile) -> int:
        """What one should take."""
        return profile.service_ns(self.kind, self.size_bytes)

    def waits_ns(self, profile: DeviceProfile) -> int:
        """What a call of blkprobe waits for the device: O_DSYNC on one has a flush behind it."""
        has_flush = self.kind == "fua-write" and profile.volatile_cache
        return self.model_ns(profile) + (profile.flush_ns if has_flush else 0)


# By blkprobe's names.
PHASES: Mapping[str, Phase] = {
    "read4k": Phase("read 4 KiB", "R", "read", 4096),
    "write4k": Phase("write 4 KiB", "W", "write", 4096),
    "random4k": Phase("random 4 KiB", "W", "random-write", 4096),
    "fua4k": Phase("FUA 4 KiB", "WF", "fua-write", 4096),
    "flush": Phase("flush", "FF", "flush", 0),
    "discard": Phase("discard 64 KiB", "D", "discard", 65536),
    "read128k": Phase("read 128 KiB", "R", "read", 131072),
    "write128k": Phase("write 128 KiB", "W", "write", 131072),
}


def latencies_ns(requests: Sequence[Request], rwbs: str) -> list[int]:
    """What requests of a kind took, in the order of their issue; the flag S (sync) is left out."""
    return [
        one.service_ns
        for one in requests
        if one.rwbs.replace("S", "") == rwbs and one.service_ns is not None
    ]


@dataclass(frozen=True)
class Probe:
    """blkprobe in a guest, and the driver of the devices that it probes."""

    vm: Vm
    program: str
    flashdev: Path

    def load(self, profile: DeviceProfile) -> None:
        """Make the device behave like the profile."""
        self.vm.load_device(profile, self.flashdev, capacity_mib=CAPACITY_MIB)

    def run(self, count: int, *phases: str) -> tuple[Trace, dict[str, int]]:
        """What the block layer saw of the phases, and the mean time of each one's calls in ns.

        Raises FastsyncError when the trace has not all of it.
        """
        words = shlex.join([self.program, str(count), *phases])
        printed = self.vm.run(f"{TRACE_SH.read_text()}\n{PROBE_SH.read_text()}\nprobe {words}")
        check_no_loss((self.vm.out_dir / "stats").read_text())
        trace = parse_trace((self.vm.out_dir / "trace").read_text())
        means = {name: int(ns) for name, ns in map(str.split, printed.stdout.splitlines())}
        return trace, means


# --- measuring -----------------------------------------------------------------------------------


def measure(kernel: str, report: Report) -> Result:
    """Probe each device, keep what was measured in results/, write it into the document."""
    tree = fetch_kernel(kernel, report=report)
    flashdev, program = build_flashdev(tree, report=report), PROGRAM.build(report)
    report(f"booting {tree.release}")
    with Vm(VmConfig(tree, processor=load_processor())) as vm:
        probe = Probe(vm, vm.stage(program), flashdev)
        devices = [measure_device(probe, name, report) for name in DEVICES]
    result = {
        "format": FORMAT,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "kernel_release": tree.release,
        "debian_version": tree.debian_version,
        "mips": DEFAULT_MIPS,
        "devices": devices,
    }
    write_json(path(), result)
    write_latencies()
    return result


def measure_device(probe: Probe, name: str, report: Report) -> dict[str, Any]:
    """What was measured of a device: ns of each request, and of a call in the mean, by phase.

    Raises FastsyncError when the trace has not COUNT requests of each kind, or has lost some.
    """
    profile = load_profile(name)
    probe.load(profile)
    trace, calls = probe.run(COUNT, *PHASES)
    there = {key: phase for key, phase in PHASES.items() if phase.is_on(profile)}
    seen = {key: latencies_ns(trace.phase(key), phase.rwbs) for key, phase in there.items()}
    for key, times_ns in seen.items():
        if len(times_ns) != COUNT:
            raise FastsyncError(f"{name}: {len(times_ns)} requests of {key} seen, not {COUNT}")
    report(Finished(f"{name}: {len(there)} kinds of requests"))
    return {
        "name": name,
        "model_ns": {key: phase.model_ns(profile) for key, phase in there.items()},
        "waits_ns": {key: phase.waits_ns(profile) for key, phase in there.items()},
        "requests_ns": seen,
        "call_ns": {key: calls[key] for key in there},
    }


# --- what is shown -------------------------------------------------------------------------------


def off_model(device: Mapping[str, Any], key: str) -> float:
    """By what share of the model the mean of a phase is off it."""
    model_ns = device["model_ns"][key]
    return float(abs(mean(device["requests_ns"][key]) - model_ns) / model_ns)


def said(result: Result) -> str:
    """How far the farthest mean is off, and what a call of 4 KiB takes beside the device."""
    devices: Sequence[Mapping[str, Any]] = result["devices"]
    farthest = max(off_model(one, key) for one in devices for key in one["model_ns"])
    count = min(len(times_ns) for one in devices for times_ns in one["requests_ns"].values())
    beside_us = [
        (one["call_ns"][key] - one["waits_ns"][key]) / 1000
        for one in devices
        for key in one["model_ns"]
        if PHASES[key].size_bytes == 4096 and PHASES[key].kind != "fua-write"
    ]
    return (
        f"Linux {upstream_version(result['debian_version'])}, {result['mips']} million "
        f"instructions a second, {result['date'][:10]}. Each figure is the mean of {count} "
        f"requests; the largest deviation from the model is {100 * farthest:.1f} %. A call of "
        f"4 KiB takes {min(beside_us):.0f} to {max(beside_us):.0f} us more than its request: the "
        "kernel's own time. Measured : model, in us:"
    )


def cell(device: Mapping[str, Any], key: str) -> str:
    """A phase's mean beside its model, in us."""
    if key not in device["model_ns"]:
        return "none"
    return f"{mean(device['requests_ns'][key]) / 1000:.1f} : {device['model_ns'][key] / 1000:.1f}"


def parts(result: Result) -> list[Part]:
    """A sentence, and a line for each device."""
    lines = [[f"`{one['name']}`", *(cell(one, key) for key in PHASES)] for one in result["devices"]]
    return [said(result), Grid(["", *(phase.says for phase in PHASES.values())], lines, texts=1)]


def path() -> Path:
    """Where the last measurement is kept."""
    return results_dir() / "devices.json"


def load() -> list[Result]:
    """The last measurement, if there was one."""
    return read_results([path()], FORMAT)


def write_latencies() -> None:
    """Write results/devices.json into docs/device-model.md.

    Raises FastsyncError when the document lacks the marks.
    """
    write_tables(repo_root() / DOCUMENT, BLOCK, load(), parts)
