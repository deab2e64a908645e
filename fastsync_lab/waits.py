"""The experiment qasio: file system calls beside a bulk writer, under one I/O scheduler or another.

Its rows are in waits.toml, its programs are programs/waitbench.c and kernel/qasio. Other
experiments compare what ext4 does on an idle device; here ext4 is the stock one, and what differs
is who is served first. One guest for each device; finished cells are kept as in experiment.py.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from fastsync_lab.build import build_flashdev, build_modules, build_qasio
from fastsync_lab.device import DeviceProfile, load_profile
from fastsync_lab.errors import FastsyncError
from fastsync_lab.experiment import (
    FORMAT,
    MKFS,
    MOUNT_POINT,
    SECTION,
    TOOLS,
    Report,
    file_hash,
    kept_repetitions,
    key_of,
    sections,
    to_stderr,
    write_atomically,
)
from fastsync_lab.figures import kernel_of, load_result
from fastsync_lab.kernels import fetch_kernel
from fastsync_lab.paths import repo_root, results_dir
from fastsync_lab.report import count, markdown
from fastsync_lab.required import Verdict
from fastsync_lab.vm import Vm, VmConfig, check_kernel_log
from fastsync_lab.workload import build_waitbench

if TYPE_CHECKING:
    from fastsync_lab.kernels import KernelTree

NAME = "qasio"
OTHERS = "others"
CAPACITY_MIB = 768  # three files of the bulk writer
MEMORY_MIB = 3072
CELL_TIMEOUT_S = 1800.0
REST_S = 6  # longer than jbd2's periodic commit
WBT_ON_US, WBT_OFF_US = 2000, 0  # the kernel's default for flash; none
WAITS = "/sys/kernel/debug/qasio/waits"
FIGURES = ("max", "p99", "elapsed", "writer")

Result = Mapping[str, Any]


@dataclass(frozen=True)
class Scheduler:
    """An I/O scheduler and its settings; `nr_requests` where it is not what others have."""

    name: str
    scheduler: str
    wbt: bool = False
    nr_requests: int | None = None
    tunables: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Benchmark:
    """A benchmark of waitbench: its rounds, and the seconds in which the device's writes count."""

    name: str
    rounds: int
    window_s: int
    mount_options: str = "defaults"


@dataclass(frozen=True)
class Requirement:
    """A figure of qasio over that of `base` must be at most `most` and at least `least`."""

    figure: str
    base: str
    most: float | None = None
    least: float = 0.0
    devices: Sequence[str] = ()
    benchmarks: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Raises FastsyncError for a figure that there is not."""
        if self.figure not in FIGURES:
            raise FastsyncError(f"no figure {self.figure!r}: there are {', '.join(FIGURES)}")


@dataclass(frozen=True)
class Rows:
    """What waits.toml says; `nr_requests` by device, where it is not the kernel's default."""

    title: str
    devices: Sequence[str]
    repetitions: int
    nr_requests: Mapping[str, int]
    schedulers: Sequence[Scheduler]
    benchmarks: Sequence[Benchmark]
    required: Sequence[Requirement]
    quick: bool


def parse_rows(text: str, *, quick: bool) -> Rows:
    """The rows; with `quick` only what the [quick] table names.

    Raises FastsyncError for a key or a name that is not known.
    """
    table = tomllib.loads(text)
    chosen = table.pop("quick")
    try:
        rows = Rows(
            schedulers=[Scheduler(**row) for row in table.pop("scheduler")],
            benchmarks=[Benchmark(**row) for row in table.pop("benchmark")],
            required=[Requirement(**row) for row in table.pop("required")],
            quick=quick,
            **table,
        )
    except TypeError as error:
        raise FastsyncError(f"waits.toml: {error}") from error
    known = {OTHERS, *(scheduler.name for scheduler in rows.schedulers)}
    if unknown := [r.base for r in rows.required if r.base not in known]:
        raise FastsyncError(f"waits.toml: no scheduler {unknown[0]!r}")
    if not quick:
        return rows
    return replace(
        rows,
        devices=chosen["devices"],
        schedulers=[s for s in rows.schedulers if s.name in chosen["schedulers"]],
        benchmarks=[b for b in rows.benchmarks if b.name in chosen["benchmarks"]],
    )


def load_rows(*, quick: bool) -> Rows:
    """The rows of the experiment."""
    return parse_rows(Path(__file__).with_name("waits.toml").read_text(), quick=quick)


# --- a cell ------------------------------------------------------------------------------------


def cell_script(
    scheduler: Scheduler, benchmark: Benchmark, nr_requests: int | None, waitbench: str
) -> str:
    """Bash for one cell: scheduler, fresh file system, benchmark; prints sections."""
    queue = "/sys/block/${FASTSYNC_DEV##*/}/queue"
    lines = [
        f"! mountpoint -q {MOUNT_POINT} || umount {MOUNT_POINT} || exit",
        f"mkdir -p {MOUNT_POINT} || exit",
        f"echo none >{queue}/scheduler || exit",
        f"echo {scheduler.scheduler} >{queue}/scheduler || exit",
        f"echo {WBT_ON_US if scheduler.wbt else WBT_OFF_US} >{queue}/wbt_lat_usec || exit",
    ]
    if (wanted := scheduler.nr_requests or nr_requests) and scheduler.scheduler != "none":
        lines.append(f"echo {wanted} >{queue}/nr_requests || exit")
    lines += [
        f"echo {value} >{queue}/iosched/{name} || exit"
        for name, value in scheduler.tunables.items()
    ]
    lines += [
        f"{MKFS} $FASTSYNC_DEV || exit",
        f"mount -t ext4 -o {benchmark.mount_options} $FASTSYNC_DEV {MOUNT_POINT} || exit",
        f"cd {MOUNT_POINT} || exit",
        f"sync; echo 3 >/proc/sys/vm/drop_caches; sleep {REST_S}",
        f'echo "{SECTION}before"; cat {WAITS}',
        f'echo "{SECTION}result"',
        f"{waitbench} $FASTSYNC_DEV {benchmark.name} {benchmark.rounds} {benchmark.window_s} "
        "|| exit",
        f'echo "{SECTION}after"; cat {WAITS}',
        f'echo "{SECTION}queue"; echo nr_requests $(<{queue}/nr_requests) '
        f"wbt_lat_usec $(<{queue}/wbt_lat_usec)",
        f"cd / && umount {MOUNT_POINT}",
    ]
    return "\n".join(lines)


def parse_waits(text: str) -> dict[str, dict[str, int]]:
    """The counters of /sys/kernel/debug/qasio/waits, by type of wait."""
    rows = (line.split() for line in text.splitlines() if " waits " in line)
    return {row[0]: dict(zip(row[1::2], map(int, row[2::2]), strict=True)) for row in rows}


def measure_cell(parts: Mapping[str, str]) -> dict[str, Any]:
    """One repetition's figures. Raises FastsyncError when waitbench printed no result."""
    try:
        result = json.loads(parts["result"])
        before, after = parse_waits(parts["before"]), parse_waits(parts["after"])
        words = parts["queue"].split()
        return {
            "calls": result["calls"],
            "elapsed_ns": int(result["elapsed_ns"]),
            "writer_mib_s": round(
                int(result["written_bytes"]) / int(result["window_ns"]) * 1e9 / (1 << 20), 3
            ),
            "waits": {
                kind: {name: value - before[kind][name] for name, value in counters.items()}
                for kind, counters in after.items()
            },
            **dict(zip(words[::2], map(int, words[1::2]), strict=True)),
        }
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise FastsyncError(f"waitbench printed no result: {error!r}") from error


# --- a run -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setup:
    """What all guests of a run share."""

    tree: "KernelTree"
    files: Mapping[str, Path]  # jbd2, ext4, flashdev, qasio, waitbench


def prepare(kernel: str, report: Report) -> Setup:
    """Fetch and build what the guests need."""
    tree = fetch_kernel(kernel)
    report(f"building qasio, the device model and waitbench for {tree.release}")
    stock = build_modules(tree, stock=True)
    files = {
        "jbd2": stock.jbd2,
        "ext4": stock.ext4,
        "flashdev": build_flashdev(tree),
        "qasio": build_qasio(tree),
        "waitbench": build_waitbench(),
    }
    return Setup(tree, files)


def describe(setup: Setup, profile: DeviceProfile) -> dict[str, Any]:
    """Everything that a figure depends on besides scheduler and benchmark."""
    config = VmConfig(setup.tree)
    return {
        "kernel_release": setup.tree.release,
        "debian_version": setup.tree.debian_version,
        "sha256": {name: file_hash(path) for name, path in setup.files.items()},
        "device": asdict(profile),
        "capacity_mib": CAPACITY_MIB,
        "memory_mib": MEMORY_MIB,
        "icount_shift": config.icount_shift,
        "models_cpu": f"{1000 / 2**config.icount_shift:g} million instructions a second, one core",
        "mkfs": MKFS,
    }


def empty_cells(
    rows: Rows, environment: Mapping[str, Any], nr_requests: int | None
) -> list[dict[str, Any]]:
    """A cell for each benchmark and scheduler, without figures."""
    return [
        {
            "key": key_of(environment, asdict(benchmark), asdict(scheduler), nr_requests),
            "benchmark": benchmark.name,
            "rounds": benchmark.rounds,
            "scheduler": scheduler.name,
            "repetitions": [],
        }
        for benchmark in rows.benchmarks
        for scheduler in rows.schedulers
    ]


def run_device(rows: Rows, device: str, setup: Setup, report: Report) -> Path:
    """Run what is missing on one device; the path of the whole result.

    Raises FastsyncError when a cell fails; cells finished before are kept.
    """
    profile = load_profile(device)
    environment = describe(setup, profile)
    nr_requests = rows.nr_requests.get(device)
    stem = f"{NAME}-{'quick' if rows.quick else 'full'}-{setup.tree.series}-{device}"
    partial = results_dir() / f"{stem}.partial.json"
    cells = empty_cells(rows, environment, nr_requests)
    kept = kept_repetitions(partial)
    for cell in cells:
        cell["repetitions"] = kept.get(cell["key"], [])[: rows.repetitions]
    result: dict[str, Any] = {
        "format": FORMAT,
        "experiment": NAME,
        "title": rows.title,
        "mode": "quick" if rows.quick else "full",
        "device": device,
        "complete": False,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment,
        "cells": cells,
    }
    if any(len(cell["repetitions"]) < rows.repetitions for cell in cells):
        report(f"{stem}: booting {setup.tree.release}")
        with Vm(VmConfig(setup.tree, memory_mib=MEMORY_MIB)) as vm:
            waitbench = prepare_guest(vm, setup, profile)
            pairs = [(b, s) for b in rows.benchmarks for s in rows.schedulers]
            for cell, (benchmark, scheduler) in zip(cells, pairs, strict=True):
                script = cell_script(scheduler, benchmark, nr_requests, waitbench)
                while len(cell["repetitions"]) < rows.repetitions:
                    done = vm.run(script, timeout_s=CELL_TIMEOUT_S)
                    if complaints := check_kernel_log(vm.kernel_log()):
                        raise FastsyncError(f"the kernel complained: {complaints[0]}")
                    repetition = measure_cell(sections(done.stdout))
                    cell["repetitions"].append(repetition)
                    write_atomically(partial, result)
                    report(
                        f"{stem}: {benchmark.name}, {scheduler.name}: "
                        f"{repetition['elapsed_ns'] / 1e9:.2f} s"
                    )
    path = results_dir() / f"{stem}.json"
    write_atomically(path, result | {"complete": True})
    partial.unlink(missing_ok=True)
    return path


def prepare_guest(vm: Vm, setup: Setup, profile: DeviceProfile) -> str:
    """Load modules and device, put the programs into memory; how waitbench is called."""
    files = setup.files
    tools = "".join(f"ln -sf {vm.stage(tool)} {tool}\n" for tool in TOOLS)
    vm.run(f"cd /run/fastsync/bin || exit\n{tools}")
    waitbench = vm.stage(str(files["waitbench"]))
    vm.run(
        "for m in ext4 jbd2; do [ ! -d /sys/module/$m ] || rmmod $m || exit; done\n"
        "modprobe -a bfq kyber-iosched crc32c_generic mbcache crc16 || exit\n"
        f"insmod {files['jbd2']} && insmod {files['ext4']} && insmod {files['qasio']} || exit\n"
        "mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug"
    )
    vm.load_device(profile, files["flashdev"], capacity_mib=CAPACITY_MIB)
    vm.kernel_log()
    return waitbench


def run_waits(
    *, quick: bool, kernel: str, devices: Sequence[str] | None, report: Report = to_stderr
) -> list[Path]:
    """Run the experiment; its result files, one for each device.

    Raises FastsyncError when anything fails; run again, it goes on with what is missing.
    """
    rows = load_rows(quick=quick)
    setup = prepare(kernel, report)
    return [run_device(rows, device, setup, report) for device in devices or rows.devices]


# --- figures -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """One call (or none: the whole) of one benchmark under one scheduler; times in ms."""

    device: str
    benchmark: str
    scheduler: str
    call: str
    mean_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    elapsed_s: float
    writer_mib_s: float

    def figure(self, name: str) -> float:
        """The value that a requirement asks for."""
        return {
            "max": self.max_ms,
            "p99": self.p99_ms,
            "elapsed": self.elapsed_s,
            "writer": self.writer_mib_s,
        }[name]


def lines_of(result: Result) -> list[Line]:
    """The medians of each cell's repetitions, a line for each call, in their order."""
    lines = []
    for cell in result["cells"]:
        runs = cell["repetitions"]
        for call in runs[0]["calls"] or [""]:
            ms = {
                key: median(run["calls"][call][f"{key}_ns"] for run in runs) / 1e6 if call else 0.0
                for key in ("mean", "p50", "p99", "max")
            }
            lines.append(
                Line(
                    device=result["device"],
                    benchmark=cell["benchmark"],
                    scheduler=cell["scheduler"],
                    call=call,
                    mean_ms=ms["mean"],
                    p50_ms=ms["p50"],
                    p99_ms=ms["p99"],
                    max_ms=ms["max"],
                    elapsed_s=median(run["elapsed_ns"] for run in runs) / 1e9,
                    writer_mib_s=median(run["writer_mib_s"] for run in runs),
                )
            )
    return lines


def base_figure(
    requirement: Requirement, line: Line, lines: Sequence[Line], own: str
) -> float | None:
    """What a figure of `line` is held against; None where it was not run."""
    beside = [
        other.figure(requirement.figure)
        for other in lines
        if (other.device, other.benchmark, other.call) == (line.device, line.benchmark, line.call)
        and (
            not other.scheduler.startswith(own)
            if requirement.base == OTHERS
            else other.scheduler == requirement.base
        )
    ]
    return min(beside) if beside else None


def judge(rows: Rows, results: Iterable[Result]) -> list[Verdict]:
    """Every required figure that these results can show."""
    found = []
    for result in results:
        lines = lines_of(result)
        for requirement in rows.required:
            asked = [line for line in lines if line.scheduler == NAME]
            if requirement.devices:
                asked = [line for line in asked if line.device in requirement.devices]
            if requirement.benchmarks:
                asked = [line for line in asked if line.benchmark in requirement.benchmarks]
            whole = requirement.figure in ("elapsed", "writer")
            if whole:  # the same for each call
                asked = list({line.benchmark: line for line in asked}.values())
            for line in asked:
                base = base_figure(requirement, line, lines, NAME)
                if not base:
                    continue
                found.append(
                    Verdict(
                        kernel_of(result),
                        line.device,
                        line.benchmark if whole else f"{line.benchmark} {line.call}",
                        f"{requirement.figure} over that of {requirement.base}",
                        line.figure(requirement.figure) / base,
                        requirement.least,
                        requirement.most,
                    )
                )
    return found


# --- tables ------------------------------------------------------------------------------------

TABLE_HEAD = (
    "benchmark",
    "call",
    "scheduler",
    "mean, ms",
    "p50",
    "p99",
    "max",
    "all rounds, s",
    "writer, MiB/s",
)

INTRO = """\
# Results of the experiment qasio

<!-- Written by `./fastsync report` from results/qasio-full-*.json. -->

File system calls beside a bulk buffered writer, by I/O scheduler. [qasio.md](qasio.md) says what
the benchmarks are and how to repeat this."""


def table_lines(result: Result) -> list[list[str]]:
    """The table of one device: a line for each call under each scheduler, schedulers together."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in lines_of(result):
        groups.setdefault((line.benchmark, line.call), []).append(line)
    return [
        [
            line.benchmark,
            line.call or "-",
            line.scheduler,
            *(f"{ms:.2f}" for ms in (line.mean_ms, line.p50_ms, line.p99_ms, line.max_ms)),
            f"{line.elapsed_s:.2f}",
            f"{line.writer_mib_s:.1f}",
        ]
        for group in groups.values()
        for line in group
    ]


def waits_line(result: Result) -> str:
    """What qasio saw and did in all of its cells of a result, by type of wait."""
    total: dict[str, dict[str, int]] = {}
    for cell in result["cells"]:
        if cell["scheduler"] == NAME:
            for kind, counters in cell["repetitions"][0]["waits"].items():
                for name, value in counters.items():
                    row = total.setdefault(kind, {})
                    row[name] = row.get(name, 0) + value
    return "; ".join(
        f"{kind}: {row['waits']} waits, {row['boosted']} boosted in the queue, {row['late']} at "
        f"insertion, {row['handle']} by the holder of a journal handle, {row['commit']} by a commit"
        for kind, row in total.items()
    )


def title_of(result: Result) -> str:
    """Kernel, device and how many runs a figure is the median of."""
    runs = min(len(cell["repetitions"]) for cell in result["cells"])
    return f"Linux {kernel_of(result)}, {result['device']} ({count(runs, 'run')} each)"


def results_text(results: Sequence[Result], rows: Rows) -> str:
    """docs/qasio-results.md."""
    parts = [INTRO]
    for result in results:
        judged = judge(rows, [result])
        short = [verdict for verdict in judged if not verdict.passed]
        parts += [
            f"## {title_of(result)}",
            markdown(TABLE_HEAD, table_lines(result), texts=3),
            f"What qasio saw: {waits_line(result)}.",
            f"{len(judged) - len(short)} of {len(judged)} required figures are reached.",
        ]
        if short:
            parts.append("\n".join(f"- {verdict}" for verdict in short))
    return "\n\n".join(parts) + "\n"


def print_waits(paths: Iterable[Path]) -> None:
    """Print every figure and the verdicts. Raises FastsyncError on a bad file."""
    results = [load_result(path) for path in paths]
    rows = load_rows(quick=False)
    for result in results:
        print(title_of(result))
        lines = [list(TABLE_HEAD), *table_lines(result)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(TABLE_HEAD))]
        for line in lines:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)))
        print(f"Seen: {waits_line(result)}.")
        for verdict in judge(rows, [result]):
            print(verdict)


def write_waits() -> None:
    """Write docs/qasio-results.md, if there are full results."""
    paths = sorted(results_dir().glob(f"{NAME}-full-*.json"))
    results = [load_result(path) for path in paths if not path.name.endswith(".partial.json")]
    if results:
        text = results_text(results, load_rows(quick=False))
        (repo_root() / "docs" / "qasio-results.md").write_text(text)
