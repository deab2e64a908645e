"""One setting of the experiment: its script for the guest, and the figures it printed."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastsync_lab.errors import FastsyncError
from fastsync_lab.experiment import MKFS, MOUNT_POINT, SECTION
from fastsync_lab.measure import fio_job
from fastsync_lab.waits.rows import Benchmark, Rows, Scheduler
from fastsync_lab.workload import FIO_ARGUMENTS

REST_S = 6  # longer than jbd2's periodic commit
WBT_ON_US, WBT_OFF_US = 2000, 0  # the kernel's default for flash; none
DEFAULT_MAX_SECTORS = 0  # what the kernel takes for its default
QUEUE = "/sys/block/${FASTSYNC_DEV##*/}/queue"
WAITS = "/sys/kernel/debug/qasio/waits"
FIO_BLOCK_KIB = 4
TICK_NS = 10_000_000  # of /proc/stat
CLOCK_AND_STAT = "read -r stat </proc/stat; echo $EPOCHREALTIME $stat"
IDLE_WORDS = (5, 6)  # of its output: idle, iowait


def scheduler_lines(scheduler: Scheduler, nr_requests: int | None) -> list[str]:
    """Bash that unmounts the device and sets its scheduler."""
    lines = [
        f"! mountpoint -q {MOUNT_POINT} || umount {MOUNT_POINT} || exit",
        f"mkdir -p {MOUNT_POINT} || exit",
        f"echo none >{QUEUE}/scheduler || exit",
        f"echo {scheduler.scheduler} >{QUEUE}/scheduler || exit",
        f"echo {WBT_ON_US if scheduler.wbt else WBT_OFF_US} >{QUEUE}/wbt_lat_usec || exit",
        f"echo {scheduler.max_sectors_kb or DEFAULT_MAX_SECTORS} >{QUEUE}/max_sectors_kb || exit",
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
        f"{waitbench} $FASTSYNC_DEV {benchmark.name} {benchmark.rounds} {benchmark.window_s}"
        f"{'' if scheduler.writer else ' alone'} || exit",
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
        f"--runtime={seconds}s",
        *FIO_ARGUMENTS,
    ]
    lines = [
        *scheduler_lines(scheduler, nr_requests),
        f'sleep 1; echo "{SECTION}before"; {CLOCK_AND_STAT}',
        f'echo "{SECTION}result"',
        f"{fio} {' '.join(arguments)} || exit",
        f'echo "{SECTION}after"; {CLOCK_AND_STAT}',
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


def busy_ns(before: str, after: str) -> int:
    """How long the guest's one CPU did anything between two outputs of CLOCK_AND_STAT.

    That is the time in which it was not idle, as the kernel times exactly when it becomes idle;
    what it did otherwise, it samples each tick.
    """
    first, last = before.split(), after.split()
    elapsed_ns = round((float(last[0]) - float(first[0])) * 1e9)
    return elapsed_ns - TICK_NS * sum(int(last[i]) - int(first[i]) for i in IDLE_WORDS)


def measure_fio(parts: Mapping[str, str]) -> dict[str, Any]:
    """One repetition's figures of the matrix. Raises FastsyncError when fio printed no result."""
    try:
        job = fio_job(parts["result"])
        done = [job[way] for way in ("read", "write")]
        requests = sum(way["total_ios"] for way in done)
        busy = busy_ns(parts["before"], parts["after"])
        return {
            "requests_per_s": round(sum(way["iops"] for way in done), 2),
            "cpu_ns_per_request": round(busy / requests, 1),
        }
    except (ValueError, KeyError, IndexError, TypeError, ZeroDivisionError) as error:
        raise FastsyncError(f"fio printed no result: {error!r}") from error


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
        if scheduler.runs(benchmark.name)
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
