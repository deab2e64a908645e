"""fio as a workload: 4 KiB overwrites of a file that is all there, a sync call after each."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.study.contract import Cell, Output, Paths, Script, Workload
from fastsync_lab.study.programs import STATWRITE
from fastsync_lab.study.rows import Subjects, Values

BLOCK_KIB = 4

# Of every run of fio: the same requests in the same order, timed by the guest's clock, as JSON.
ARGUMENTS = (
    "--thread",
    "--norandommap",
    "--randrepeat=1",
    "--clocksource=clock_gettime",
    "--disk_util=0",
    "--eta=never",
    "--output-format=json",
)
TIMED = ("--time_based", *ARGUMENTS)


@dataclass(frozen=True)
class Overwrites(Workload):
    """Overwrites of a file of `file_mib`, `pattern` "write" or "randwrite", for `seconds`.

    With `stat_first` an fstat() comes before each write.
    """

    pattern: str = "randwrite"
    stat_first: bool = False
    file_mib: int = 100
    seconds: int = 2


Loop = TypeVar("Loop", bound=Overwrites)


def arguments(workload: Overwrites, sync_call: str) -> list[str]:
    """fio's arguments; the file is in the current folder."""
    return [
        "--name=overwrite",
        "--filename=file",
        f"--filesize={workload.file_mib}M",
        f"--rw={workload.pattern}",
        f"--bs={BLOCK_KIB}k",
        "--ioengine=psync",
        f"--{sync_call}=1",
        f"--runtime={workload.seconds}s",
        "--fallocate=none",
        *TIMED,
    ]


def command(cell: Cell[Any], workload: Overwrites, paths: Paths) -> str:
    """Bash that runs fio, its requests marked as those of the run itself."""
    shim = f"env LD_PRELOAD={paths(STATWRITE.name)} " if workload.stat_first else ""
    return f"measured '' {shim}fio {' '.join(arguments(workload, cell.system.sync_call))}"


def prepared(workload: Overwrites) -> str:
    """Bash that writes the file in full."""
    return (
        f"fallocate -l {workload.file_mib}M file &&\n"
        f"dd if=/dev/zero of=file bs=1M count={workload.file_mib} oflag=direct "
        "conv=notrunc,fsync 2>&1"
    )


def script(cell: Cell[Loop], paths: Paths) -> Script:
    """The script of a cell."""
    return Script(command(cell, cell.workload, paths), prepared(cell.workload))


def job_of(text: str) -> dict[str, Any]:
    """The one job of fio's JSON, behind whatever it warned of.

    Raises FastsyncError when the job failed; ValueError, KeyError, IndexError or TypeError when it
    is no such JSON.
    """
    job: dict[str, Any] = json.loads(text[text.index("{") :])["jobs"][0]
    if job["error"]:
        raise FastsyncError(f"fio's job failed with error {job['error']}")
    return job


def values_of(text: str, *, synced: bool = True) -> Values:
    """What fio did, and the latency of the sync call after each, from its JSON (one job).

    Without `synced`: the latency of its writes or, if it made none, of its reads; and of the time
    all that the job took is counted, such as making its files. Raises FastsyncError when it is no
    such JSON or the job failed.
    """
    try:
        job = job_of(text)
        side = job["write"] if job["write"]["total_ios"] or synced else job["read"]
        times = job["sync"]["lat_ns"] if synced else side["clat_ns"]
        operations = int(side["total_ios"])
        rate = float(side["iops"]) if synced else operations * 1e3 / int(job["job_runtime"])
        return {
            "operations": operations,
            "ops_per_s": rate,
            "mean_ns": round(float(times["mean"])),
            "p50_ns": int(times["percentile"]["50.000000"]),
            "p99_ns": int(times["percentile"]["99.000000"]),
            "max_ns": int(times["max"]),
        }
    except (ValueError, KeyError, IndexError, TypeError, ZeroDivisionError) as error:
        raise FastsyncError(f"fio printed no result: {error!r}") from error


def bursts(kib: int, count: int) -> Script:
    """Writes to the device itself, one behind the other, and a flush after each."""
    return Script(
        f"measured '' fio --name=bursts --filename=\"$FASTSYNC_DEV\" --rw=write --bs={kib}k "
        f"--size={kib * count}k --direct=1 --ioengine=psync --fdatasync=1 " + " ".join(ARGUMENTS)
    )


def read(_cell: Cell[Any], output: Output) -> Subjects:
    """The figures of a run."""
    return {"": values_of(output.result)}


def workloads(names: Sequence[str], file_mib: int) -> tuple[Overwrites, ...]:
    """The loops by their names: "random" or "sequential", and ", fstat first"."""
    return tuple(
        Overwrites(
            name,
            pattern="randwrite" if name.startswith("random") else "write",
            stat_first=name.endswith("fstat first"),
            file_mib=file_mib,
        )
        for name in names
    )
