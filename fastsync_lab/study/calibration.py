"""How near a guest's processor comes to the host's: what `./fastsync calibrate` measures and shows.

programs/cpubench.c takes the time of what a file system is made of, on the host and in a guest for
each row of processors.toml. Virtual time has a speed of its own, so nothing is held against the
host in ns, but each figure as so many system calls. What a guest's ratio is over the host's would
be 1 everywhere if the processor were modelled well; a figure's error is the logarithm of that to
the base 2. The nearest row has the least root of the mean square of its errors.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from fastsync_lab.host import shell
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.fetch import fetch_kernel
from fastsync_lab.host.kernels import KernelTree, file_checksum, upstream_version
from fastsync_lab.host.paths import repo_root, results_dir
from fastsync_lab.host.progress import Finished, Report
from fastsync_lab.machine.config import VmConfig
from fastsync_lab.machine.processor import (
    DEFAULT_MIPS,
    Processor,
    load_processor,
    processor_names,
    spelled,
)
from fastsync_lab.machine.qemu import qemu_version
from fastsync_lab.machine.vm import Vm
from fastsync_lab.study.grid import Grid, Part
from fastsync_lab.study.keeper import Keeper, Result, read_results, write_tables
from fastsync_lab.study.programs import plain

FORMAT = 1
DOCUMENT, BLOCK = "docs/device-model.md", "calibration"
PROGRAM = plain("cpubench")
BASE = "syscall"
FIGURES = {
    BASE: "system call",
    "switch": "switch of threads",
    "fault": "page fault",
    "memcpy": "`memcpy()`",
    "read": "`pread()`",
    "write": "`pwrite()`",
    "crc32c": "CRC32C",
    "crc32_be": "CRC32, tables",
}
HOST_ROUNDS = 15  # beside each guest
GUEST_ROUNDS = 30  # they hardly differ, but the host's time for them does
Rounds = Mapping[str, Sequence[float]]  # ns by figure


@dataclass(frozen=True)
class Figures:
    """What a processor takes: the median of its rounds, in ns, by figure."""

    ns: Mapping[str, float]

    def __post_init__(self) -> None:
        """Raises FastsyncError when one is missing, or takes no time."""
        for name in FIGURES:
            if self.ns.get(name, 0) <= 0:
                raise FastsyncError(f"the calibration lacks the figure {name}")

    def ratio(self, name: str) -> float:
        """A figure as so many system calls."""
        return self.ns[name] / self.ns[BASE]

    def over(self, host: "Figures") -> dict[str, float]:
        """Each ratio over the host's, but that of the system call to itself."""
        return {name: self.ratio(name) / host.ratio(name) for name in FIGURES if name != BASE}


def figures_of(rounds: Rounds) -> Figures:
    """The medians of rounds. Raises FastsyncError when a figure is missing."""
    return Figures({name: median(found) for name, found in rounds.items() if found})


def typical(ratios: Iterable[float]) -> float:
    """By what factor ratios are off 1, by the root of the mean square of their logarithms."""
    errors = [math.log2(ratio) for ratio in ratios]
    return float(2 ** math.sqrt(sum(error**2 for error in errors) / len(errors)))


def worst(ratios: Mapping[str, float]) -> str:
    """The figure whose ratio is farthest from 1."""
    return max(ratios, key=lambda name: abs(math.log2(ratios[name])))


def pooled(parts: Sequence[Rounds]) -> dict[str, list[float]]:
    """The rounds of several runs together."""
    names = parts[0] if parts else ()
    return {name: [ns for part in parts for ns in part[name]] for name in names}


# --- measuring -----------------------------------------------------------------------------------


def measure_host(program: Path) -> Rounds:
    """Rounds on the host, which the program spends on one of its processors."""
    found: Rounds = json.loads(shell.run([str(program), str(HOST_ROUNDS)], timeout_s=600).stdout)
    return found


def host_processor(text: str) -> str:
    """The name of the host's processor, from /proc/cpuinfo."""
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else "unknown"


def flags_of(cpuinfo: str) -> list[str]:
    """The flags of the first processor in /proc/cpuinfo."""
    line = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "")
    return sorted(line.partition(":")[2].split())


def measure_guest(
    tree: KernelTree, processor: Processor, mips: int, program: Path
) -> dict[str, Any]:
    """Rounds in a guest, its flags, and what a second of its time takes of the host's."""
    with Vm(VmConfig(tree, mips=mips, processor=processor)) as vm:
        boot_s = vm.host_seconds
        cpuinfo = vm.run("cat /proc/cpuinfo").stdout
        bench = vm.stage(program)
        before_s = vm.host_seconds
        ran = vm.run(
            f"read -r a _ </proc/uptime; {bench} {GUEST_ROUNDS}; status=$?\n"
            "read -r b _ </proc/uptime; echo $a $b >&2; exit $status",
            timeout_s=600,
        )
        used_s = vm.host_seconds - before_s
    begin_s, end_s = map(float, ran.stderr.split()[-2:])
    return {
        "name": processor.name,
        "says": processor.says,
        **processor.record,
        "flags": flags_of(cpuinfo),
        "rounds": json.loads(ran.stdout),
        "boot_host_s": round(boot_s, 2),
        "host_s_per_s": round(used_s / (end_s - begin_s), 3),
    }


@dataclass(frozen=True)
class Asked:
    """A calibration that somebody wants: what it is measured with, and of which processors."""

    tree: KernelTree
    mips: int
    program: Path
    names: Sequence[str]

    @property
    def whole(self) -> bool:
        """Whether it is one for the document: of all processors, at the speed of guests."""
        return self.mips == DEFAULT_MIPS and list(self.names) == processor_names()

    def result(self, guests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What is kept of it, when these guests were measured."""
        return {
            "format": FORMAT,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "kernel_release": self.tree.release,
            "debian_version": self.tree.debian_version,
            "qemu": f"QEMU {qemu_version()}",
            "program_sha256": file_checksum(self.program),
            "mips": self.mips,
            "host": {
                "processor": host_processor(Path("/proc/cpuinfo").read_text()),
                "rounds": pooled([one["host_rounds"] for one in guests]),
            },
            "guests": list(guests),
        }

    def measure(self, processor: Processor) -> dict[str, Any]:
        """The host, and a guest of one processor beside it."""
        host = measure_host(self.program)
        guest = measure_guest(self.tree, processor, self.mips, self.program)
        return {**guest, "host_rounds": host}


# An interrupted calibration goes on where these are what they were.
SAME = ("format", "kernel_release", "qemu", "program_sha256", "mips")


def is_of(guest: Mapping[str, Any], processor: Processor) -> bool:
    """Whether a guest that was measured had this processor."""
    said = (guest["name"], guest["cpu"], tuple(guest["parameters"]))
    return said == (processor.name, processor.cpu, processor.parameters)


def calibrate(kernel: str, mips: int, names: Sequence[str], report: Report) -> Result:
    """Measure the host and a guest of each processor named, one after the other.

    What is whole is kept in results/ and in the document; an interrupted one goes on there.
    """
    tree = fetch_kernel(kernel, report=report)
    asked = Asked(tree, mips, PROGRAM.build(report), names)
    kept = Keeper(path(), asked.result, lambda result: list(result["guests"]), SAME)
    there = kept.parts if asked.whole else []
    guests: list[dict[str, Any]] = []
    for processor in map(load_processor, names):
        guest = next((one for one in there if is_of(one, processor)), None)
        if guest is None:
            report(f"measuring the host, and processor {processor.name}")
            guest = asked.measure(processor)
            if asked.whole:
                kept.add(guest)
        guests.append(guest)
        host = figures_of(pooled([one["host_rounds"] for one in guests]))
        off = typical(figures_of(guest["rounds"]).over(host).values())
        report(Finished(f"{processor.name}: typically off by a factor of {off:.2f}"))
    if asked.whole:
        kept.parts = guests  # in the order of the table, and no others
        kept.finish()
        write_calibration()
    return asked.result(guests)


# --- what is shown -------------------------------------------------------------------------------


def nearest(result: Result) -> str:
    """The name of the processor that comes nearest to the host's; of equals the first."""
    host = figures_of(result["host"]["rounds"])
    off: dict[str, float] = {
        one["name"]: typical(figures_of(one["rounds"]).over(host).values())
        for one in result["guests"]
    }
    return min(off, key=lambda name: round(off[name], 2))


def number(value: float) -> str:
    """A figure with three digits."""
    return f"{value:,.{max(0, 2 - math.floor(math.log10(value)))}f}"


def candidates_grid(result: Result) -> Grid:
    """A line for each processor: what its ratios are over the host's, and how far that is off."""
    host = figures_of(result["host"]["rounds"])
    lines = []
    for one in result["guests"]:
        ratios = figures_of(one["rounds"]).over(host)
        lines.append(
            [
                one["name"],
                f"`{spelled(one)}`",
                *(f"{ratios[name]:.2f}" for name in ratios),
                f"{typical(ratios.values()):.2f}",
                f"{one['host_s_per_s']:.2f}",
            ]
        )
    names = [FIGURES[name] for name in FIGURES if name != BASE]
    head = ["processor", "QEMU's `-cpu`, and parameters", *names, "typically", "host s"]
    return Grid(head, lines, texts=2)


def processor_grid(result: Result, name: str) -> Grid:
    """A line for each figure of one processor, beside the host's."""
    host = figures_of(result["host"]["rounds"])
    guest = figures_of(next(x["rounds"] for x in result["guests"] if x["name"] == name))
    lines = [
        [
            said,
            number(host.ns[key]),
            number(host.ratio(key)),
            number(guest.ns[key]),
            number(guest.ratio(key)),
            f"{guest.ratio(key) / host.ratio(key):.2f}",
        ]
        for key, said in FIGURES.items()
    ]
    head = ["", "host, ns", "system calls", f"`{name}`, ns", "system calls", "guest ÷ host"]
    return Grid(head, lines, texts=1)


def said_nearest(result: Result) -> str:
    """Which processor is nearest, and by what."""
    name, now = nearest(result), load_processor().name
    guests = {one["name"]: figures_of(one["rounds"]) for one in result["guests"]}
    ratios = guests[name].over(figures_of(result["host"]["rounds"]))
    far = worst(ratios)
    guest = "guests have it" if name == now else f"guests have `{now}`"
    return (
        f"The nearest is `{name}` ({guest}): its ratios are typically off by a factor of "
        f"{typical(ratios.values()):.2f}, at most by {max(ratios[far], 1 / ratios[far]):.2f} "
        f"({FIGURES[far]})."
    )


def parts(result: Result) -> list[Part]:
    """What is shown of a calibration: the nearest processor in full, then all beside each other."""
    first = nearest(result)
    return [
        f"Linux {upstream_version(result['debian_version'])}, {result['mips']} million "
        f"instructions a second, {result['qemu']}; the host is an {result['host']['processor']}, "
        f"{result['date'][:10]}.",
        said_nearest(result),
        processor_grid(result, first),
        "Each figure in system calls, the guest's over the host's:",
        candidates_grid(result),
    ]


def path() -> Path:
    """Where the last calibration is kept."""
    return results_dir() / "calibration.json"


def load() -> list[Result]:
    """The last calibration, if there was one."""
    return read_results([path()], FORMAT)


def write_calibration() -> None:
    """Write results/calibration.json into docs/device-model.md.

    Raises FastsyncError when the document lacks the marks.
    """
    write_tables(repo_root() / DOCUMENT, BLOCK, load(), parts)
