"""The experiment qasio: file system calls beside a bulk writer, under one I/O scheduler or another.

Its rows are in waits.toml, its programs are programs/waitbench.c and kernel/qasio. Other
experiments compare what ext4 does on an idle device; here ext4 is the stock one, and what differs
is who is served first. One guest for each device; finished cells are kept as in experiment.py.
"""

import json
import shlex
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from fastsync_lab.build import ModuleSet, build_flashdev, build_modules, build_qasio
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
from fastsync_lab.kernels import KernelTree, fetch_kernel
from fastsync_lab.paths import repo_root, results_dir
from fastsync_lab.report import count, markdown
from fastsync_lab.required import Verdict
from fastsync_lab.shell import run
from fastsync_lab.vm import Vm, VmConfig, check_kernel_log
from fastsync_lab.workload import build_waitbench

NAME = "qasio"
OTHERS = "others"
CAPACITY_MIB = 768  # three files of the bulk writer
MEMORY_MIB = 3072
CELL_TIMEOUT_S = 1800.0
REST_S = 6  # longer than jbd2's periodic commit
WBT_ON_US, WBT_OFF_US = 2000, 0  # the kernel's default for flash; none
QUEUE = "/sys/block/${FASTSYNC_DEV##*/}/queue"
WAITS = "/sys/kernel/debug/qasio/waits"
CALL_FIGURES = ("max", "p99")
ROUND_FIGURES = ("elapsed", "writer")
MATRIX_FIGURES = ("speed", "cpu")
FIGURES = (*CALL_FIGURES, *ROUND_FIGURES, *MATRIX_FIGURES)
FIO_BLOCK_KIB = 4
TICK_NS = 10_000_000  # of /proc/stat

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
class Matrix:
    """fio on the device itself: patterns (of fio's --rw) at depths under schedulers, by name."""

    schedulers: Sequence[str]
    patterns: Sequence[str]
    depths: Sequence[int]
    seconds: int


@dataclass(frozen=True)
class Rows:
    """What waits.toml says; `nr_requests` by device, where it is not the kernel's default."""

    title: str
    devices: Sequence[str]
    repetitions: int
    nr_requests: Mapping[str, int]
    schedulers: Sequence[Scheduler]
    benchmarks: Sequence[Benchmark]
    matrix: Matrix
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
            matrix=Matrix(**table.pop("matrix")),
            required=[Requirement(**row) for row in table.pop("required")],
            quick=quick,
            **table,
        )
    except TypeError as error:
        raise FastsyncError(f"waits.toml: {error}") from error
    known = {OTHERS, *(scheduler.name for scheduler in rows.schedulers)}
    named = [*(requirement.base for requirement in rows.required), *rows.matrix.schedulers]
    if unknown := [name for name in named if name not in known]:
        raise FastsyncError(f"waits.toml: no scheduler {unknown[0]!r}")
    if not quick:
        return rows
    return replace(
        rows,
        devices=chosen["devices"],
        schedulers=[s for s in rows.schedulers if s.name in chosen["schedulers"]],
        benchmarks=[b for b in rows.benchmarks if b.name in chosen["benchmarks"]],
        matrix=replace(rows.matrix, patterns=chosen["patterns"]),
    )


def load_rows(*, quick: bool) -> Rows:
    """The rows of the experiment."""
    return parse_rows(Path(__file__).with_name("waits.toml").read_text(), quick=quick)


# --- a cell ------------------------------------------------------------------------------------


def scheduler_lines(scheduler: Scheduler, nr_requests: int | None) -> list[str]:
    """Bash that unmounts the device and sets its scheduler."""
    lines = [
        f"! mountpoint -q {MOUNT_POINT} || umount {MOUNT_POINT} || exit",
        f"mkdir -p {MOUNT_POINT} || exit",
        f"echo none >{QUEUE}/scheduler || exit",
        f"echo {scheduler.scheduler} >{QUEUE}/scheduler || exit",
        f"echo {WBT_ON_US if scheduler.wbt else WBT_OFF_US} >{QUEUE}/wbt_lat_usec || exit",
    ]
    if (wanted := scheduler.nr_requests or nr_requests) and scheduler.scheduler != "none":
        lines.append(f"echo {wanted} >{QUEUE}/nr_requests || exit")
    return lines + [
        f"echo {value} >{QUEUE}/iosched/{name} || exit"
        for name, value in scheduler.tunables.items()
    ]


def cell_script(
    scheduler: Scheduler, benchmark: Benchmark, nr_requests: int | None, waitbench: str
) -> str:
    """Bash for one cell: scheduler, fresh file system, benchmark; prints sections."""
    lines = [
        *scheduler_lines(scheduler, nr_requests),
        f"{MKFS} $FASTSYNC_DEV || exit",
        f"mount -t ext4 -o {benchmark.mount_options} $FASTSYNC_DEV {MOUNT_POINT} || exit",
        f"cd {MOUNT_POINT} || exit",
        f"sync; echo 3 >/proc/sys/vm/drop_caches; sleep {REST_S}",
        f'echo "{SECTION}before"; cat {WAITS}',
        f'echo "{SECTION}result"',
        f"{waitbench} $FASTSYNC_DEV {benchmark.name} {benchmark.rounds} {benchmark.window_s} "
        "|| exit",
        f'echo "{SECTION}after"; cat {WAITS}',
        f'echo "{SECTION}queue"; echo nr_requests $(<{QUEUE}/nr_requests) '
        f"wbt_lat_usec $(<{QUEUE}/wbt_lat_usec)",
        f"cd / && umount {MOUNT_POINT}",
    ]
    return "\n".join(lines)


def fio_script(
    scheduler: Scheduler, pattern: str, depth: int, seconds: int, nr_requests: int | None, fio: str
) -> str:
    """Bash for one cell of the matrix; prints sections."""
    arguments = [
        "--name=matrix",
        "--filename=$FASTSYNC_DEV",
        f"--rw={pattern}",
        f"--bs={FIO_BLOCK_KIB}k",
        "--direct=1",
        "--ioengine=libaio",
        f"--iodepth={depth}",
        "--time_based",
        f"--runtime={seconds}s",
        "--thread",
        "--norandommap",
        "--randrepeat=1",
        "--clocksource=clock_gettime",
        "--disk_util=0",
        "--eta=never",
        "--output-format=json",
    ]
    lines = [
        *scheduler_lines(scheduler, nr_requests),
        f'sleep 1; echo "{SECTION}before"; head -n 1 /proc/stat',
        f'echo "{SECTION}result"',
        f"{fio} {' '.join(arguments)} || exit",
        f'echo "{SECTION}after"; head -n 1 /proc/stat',
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


def busy_ns(stat: str) -> int:
    """How long the CPUs did anything, from the first line of /proc/stat."""
    ticks = [int(word) for word in stat.split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, _steal = ticks
    return (user + nice + system + irq + softirq) * TICK_NS


def measure_fio(parts: Mapping[str, str]) -> dict[str, Any]:
    """One repetition's figures of the matrix. Raises FastsyncError when fio printed no result."""
    try:
        text = parts["result"]
        job = json.loads(text[text.index("{") :])["jobs"][0]
        done = [job[way] for way in ("read", "write")]
        requests = sum(way["total_ios"] for way in done)
        busy = busy_ns(parts["after"]) - busy_ns(parts["before"])
        return {
            "requests_per_s": round(sum(way["iops"] for way in done), 2),
            "cpu_ns_per_request": round(busy / requests, 1),
        }
    except (ValueError, KeyError, IndexError, TypeError, ZeroDivisionError) as error:
        raise FastsyncError(f"fio printed no result: {error!r}") from error


# --- a run -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setup:
    """What all guests of a run share."""

    tree: KernelTree
    stock: ModuleSet
    flashdev: Path
    qasio: Path
    waitbench: Path
    fio_version: str


def prepare(kernel: str, report: Report) -> Setup:
    """Fetch and build what the guests need."""
    tree = fetch_kernel(kernel)
    report(f"building qasio, the device model and waitbench for {tree.release}")
    return Setup(
        tree=tree,
        stock=build_modules(tree, stock=True),
        flashdev=build_flashdev(tree),
        qasio=build_qasio(tree),
        waitbench=build_waitbench(),
        fio_version=run(["fio", "--version"]).stdout.strip(),
    )


def describe(setup: Setup, profile: DeviceProfile) -> dict[str, Any]:
    """Everything that a figure depends on besides scheduler and benchmark."""
    config = VmConfig(setup.tree)
    stock = setup.stock
    files = (stock.jbd2, stock.ext4, setup.flashdev, setup.qasio, setup.waitbench)
    return {
        "kernel_release": setup.tree.release,
        "debian_version": setup.tree.debian_version,
        "sha256": {path.name: file_hash(path) for path in files},
        "fio": setup.fio_version,
        "device": asdict(profile),
        "capacity_mib": CAPACITY_MIB,
        "memory_mib": MEMORY_MIB,
        "icount_shift": config.icount_shift,
        "models_cpu": f"{1000 / 2**config.icount_shift:g} million instructions a second, one core",
        "mkfs": MKFS,
    }


@dataclass(frozen=True)
class Cell:
    """What one cell runs, and how its output is read."""

    names: Mapping[str, str]
    script: str
    measure: Callable[[Mapping[str, str]], dict[str, Any]]


def cells_of(rows: Rows, nr_requests: int | None, waitbench: str, fio: str) -> list[Cell]:
    """All cells, those of the matrix last."""
    cells = [
        Cell(
            {"benchmark": benchmark.name, "scheduler": scheduler.name},
            cell_script(scheduler, benchmark, nr_requests, waitbench),
            measure_cell,
        )
        for benchmark in rows.benchmarks
        for scheduler in rows.schedulers
    ]
    matrix = rows.matrix
    return cells + [
        Cell(
            {"matrix": f"{pattern}, depth {depth}", "scheduler": scheduler.name},
            fio_script(scheduler, pattern, depth, matrix.seconds, nr_requests, fio),
            measure_fio,
        )
        for pattern in matrix.patterns
        for depth in matrix.depths
        for scheduler in rows.schedulers
        if scheduler.name in matrix.schedulers
    ]


def run_device(rows: Rows, device: str, setup: Setup, report: Report) -> Path:
    """Run what is missing on one device; the path of the whole result.

    Raises FastsyncError when a cell fails; cells finished before are kept.
    """
    profile = load_profile(device)
    environment = describe(setup, profile)
    stem = f"{NAME}-{'quick' if rows.quick else 'full'}-{setup.tree.series}-{device}"
    partial = results_dir() / f"{stem}.partial.json"
    kept = kept_repetitions(partial)
    result: dict[str, Any] = {
        "format": FORMAT,
        "experiment": NAME,
        "title": rows.title,
        "mode": "quick" if rows.quick else "full",
        "device": device,
        "complete": False,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment,
        "cells": [],
    }
    report(f"{stem}: booting {setup.tree.release}")
    with Vm(VmConfig(setup.tree, memory_mib=MEMORY_MIB)) as vm:
        waitbench = prepare_guest(vm, setup, profile)
        cells = cells_of(rows, rows.nr_requests.get(device), waitbench, vm.stage("fio"))
        for cell in cells:
            key = key_of(environment, cell.names, cell.script)
            repetitions = kept.get(key, [])[: rows.repetitions]
            result["cells"].append({"key": key, **cell.names, "repetitions": repetitions})
            while len(repetitions) < rows.repetitions:
                repetitions.append(run_cell(vm, cell))
                write_atomically(partial, result)
                report(
                    f"{stem} {len(result['cells'])}/{len(cells)}: {', '.join(cell.names.values())}"
                )
    path = results_dir() / f"{stem}.json"
    write_atomically(path, result | {"complete": True})
    partial.unlink(missing_ok=True)
    return path


def run_cell(vm: Vm, cell: Cell) -> dict[str, Any]:
    """Run one cell once. Raises FastsyncError when it fails or the kernel complains."""
    done = vm.run(cell.script, timeout_s=CELL_TIMEOUT_S)
    if complaints := check_kernel_log(vm.kernel_log()):
        raise FastsyncError(f"the kernel complained: {complaints[0]}")
    return cell.measure(sections(done.stdout))


def prepare_guest(vm: Vm, setup: Setup, profile: DeviceProfile) -> str:
    """Load modules and device, put the programs into memory; how waitbench is called."""
    tools = "".join(f"ln -sf {vm.stage(tool)} {tool}\n" for tool in TOOLS)
    vm.run(f"cd /run/fastsync/bin || exit\n{tools}")
    waitbench = vm.stage(str(setup.waitbench))
    vm.load_filesystem(setup.stock)
    vm.run(
        f"modprobe -a bfq kyber-iosched && insmod {shlex.quote(str(setup.qasio))} || exit\n"
        "mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug"
    )
    vm.load_device(profile, setup.flashdev, capacity_mib=CAPACITY_MIB)
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
    """The medians of each benchmark cell's repetitions, a line for each call, in their order."""
    lines = []
    for cell in result["cells"]:
        if "benchmark" not in cell:
            continue
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


@dataclass(frozen=True)
class Figure:
    """One value of one scheduler; what has the same name is compared."""

    scheduler: str
    name: str
    benchmark: str
    value: float


def figures_of(result: Result, figure: str) -> list[Figure]:
    """The values of a result that requirements on `figure` are about."""
    if figure in MATRIX_FIGURES:
        key = {"speed": "requests_per_s", "cpu": "cpu_ns_per_request"}[figure]
        return [
            Figure(
                cell["scheduler"],
                cell["matrix"],
                cell["matrix"],
                median(run[key] for run in cell["repetitions"]),
            )
            for cell in result["cells"]
            if "matrix" in cell
        ]
    lines = lines_of(result)
    if figure in ROUND_FIGURES:  # the same for each call
        once = {(line.benchmark, line.scheduler): line for line in lines}.values()
        return [Figure(x.scheduler, x.benchmark, x.benchmark, x.figure(figure)) for x in once]
    return [
        Figure(x.scheduler, f"{x.benchmark} {x.call}", x.benchmark, x.figure(figure))
        for x in lines
        if x.call
    ]


def base_of(requirement: Requirement, own: Figure, beside: Sequence[Figure]) -> float | None:
    """What a figure is held against; None where it was not run."""
    found = [
        other.value
        for other in beside
        if other.name == own.name
        and (
            not other.scheduler.startswith(NAME)
            if requirement.base == OTHERS
            else other.scheduler == requirement.base
        )
    ]
    return min(found) if found else None


def judge(rows: Rows, results: Iterable[Result]) -> list[Verdict]:
    """Every required figure that these results can show."""
    found = []
    for result in results:
        for requirement in rows.required:
            if requirement.devices and result["device"] not in requirement.devices:
                continue
            figures = figures_of(result, requirement.figure)
            for own in figures:
                wanted = not requirement.benchmarks or own.benchmark in requirement.benchmarks
                base = base_of(requirement, own, figures)
                if own.scheduler == NAME and wanted and base:
                    found.append(
                        Verdict(
                            kernel_of(result),
                            result["device"],
                            own.name,
                            f"{requirement.figure} over that of {requirement.base}",
                            own.value / base,
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


MATRIX_HEAD = ("pattern", "scheduler", "requests/s", "CPU, us a request")


def matrix_lines(result: Result) -> list[list[str]]:
    """The table of the matrix on one device."""
    speed, cpu = figures_of(result, "speed"), figures_of(result, "cpu")
    return [
        [one.name, one.scheduler, f"{one.value:,.0f}", f"{other.value / 1e3:.2f}"]
        for one, other in zip(speed, cpu, strict=True)
    ]


def waits_line(result: Result) -> str:
    """What qasio saw and did in all of its cells of a result, by type of wait."""
    total: dict[str, dict[str, int]] = {}
    for cell in result["cells"]:
        if cell["scheduler"] == NAME and "benchmark" in cell:
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
            "Direct I/O of 4 KiB on the device itself, without anybody who waits for write-back:",
            markdown(MATRIX_HEAD, matrix_lines(result)),
            f"{len(judged) - len(short)} of {len(judged)} required figures are reached.",
        ]
        if short:
            parts.append("\n".join(f"- {verdict}" for verdict in short))
    return "\n\n".join(parts) + "\n"


def print_aligned(lines: Sequence[Sequence[str]]) -> None:
    """Print a table; a head alone is none."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines if len(lines) > 1 else []:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)))


def print_waits(paths: Iterable[Path]) -> None:
    """Print every figure and the verdicts. Raises FastsyncError on a bad file."""
    results = [load_result(path) for path in paths]
    rows = load_rows(quick=False)
    for result in results:
        print(title_of(result))
        print_aligned([list(TABLE_HEAD), *table_lines(result)])
        print_aligned([list(MATRIX_HEAD), *matrix_lines(result)])
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
