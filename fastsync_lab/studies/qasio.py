"""How long file system calls wait beside a bulk writer, by I/O scheduler.

programs/waitbench.c has the benchmarks; kernel/qasio is the scheduler that is asked about. Other
studies compare what file systems do on an idle device; here ext4 is the stock one, and what differs
is who is served first. Then the same schedulers without anybody who waits: fio with direct I/O on
the device itself, each pattern at each depth.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.study import fio
from fastsync_lab.study.contract import (
    Axes,
    Cell,
    FileSystem,
    Output,
    Paths,
    Scheduler,
    Script,
    Study,
    Table,
    Workload,
)
from fastsync_lab.study.filesystems import RAW, STOCK
from fastsync_lab.study.grid import Grid, Part
from fastsync_lab.study.judge import Requirement, Where
from fastsync_lab.study.output import call_values
from fastsync_lab.study.programs import WAITBENCH
from fastsync_lab.study.rows import Line, Subjects, Values, machines_of

BASE, NAME = "mq-deadline", "qasio"
WAITS = "/sys/kernel/debug/qasio/waits"
WAIT = "wait: "  # subjects that are types of waits, not calls
TICK_NS = 10_000_000  # of /proc/stat
CPU = 'read -r stat </proc/stat; echo "$EPOCHREALTIME $stat"'
IDLE_WORDS = (5, 6)  # of its output: idle, iowait
SHOWN_LEAST_MS = 1.0  # what takes less under the base and under qasio hardly waits

DISCARD = FileSystem("discard", "Debian's ext4 with discard", options="discard")

ALONE = Scheduler("no writer", BASE)
OWN = Scheduler(NAME, NAME, nr_requests=2048)
LARGE = (
    Scheduler("qasio, 128 requests", NAME, nr_requests=128),
    Scheduler("qasio, 128 KiB a request", NAME, nr_requests=2048, max_sectors_kb=128),
    Scheduler("mq-deadline, 2048 requests", BASE, nr_requests=2048),
    Scheduler("bfq, 2048 requests", "bfq", nr_requests=2048),
)
BOOST_OFF = Scheduler("qasio, boost off", NAME, nr_requests=2048, tunables=(("boost", 0),))
SCHEDULERS = (
    ALONE,
    *(
        Scheduler(f"{name}{', wbt' if wbt else ''}", name, wbt=wbt)
        for name in (BASE, "none", "kyber", "bfq")
        for wbt in (False, True)
    ),
    BOOST_OFF,
    *LARGE,
    OWN,
)
# Schedulers beside which qasio is held: those that serve the writer, too, and are not itself.
OTHERS = tuple(one.name for one in SCHEDULERS if one != ALONE and one.scheduler != NAME)


@dataclass(frozen=True)
class Benchmark(Workload):
    """A benchmark of waitbench: its rounds, and the seconds over which they are spread."""

    rounds: int
    window_s: int = 10


@dataclass(frozen=True)
class Direct(Workload):
    """fio's requests of 4 KiB to the device itself."""

    pattern: str
    depth: int
    seconds: int = 8


Work = Benchmark | Direct
M1_TO_M5 = ("M1", "M2", "M3", "M4", "M5")
BULK = Benchmark("BULK", 1)  # the writer alone
M1 = Benchmark("M1", 160)
BENCHMARKS = (
    M1,
    Benchmark("M2", 160),
    Benchmark("M3", 4800),
    Benchmark("M4", 480),
    Benchmark("M5", 80),
    Benchmark("LAUNCH", 25),
    Benchmark("PHOTOS", 12),
    Benchmark("INSTALL", 8),
    BULK,
)
MATRIX = tuple(
    Direct(f"{pattern}, depth {depth}", pattern, depth)
    for pattern in ("read", "randread", "write", "randwrite", "rw", "randrw")
    for depth in (1, 4, 32, 128)
)


def wants(cell: Cell[Work]) -> bool:
    """M5 is about discards; the matrix compares two; settings of one scheduler run some."""
    work, scheduler = cell.workload, cell.scheduler
    if isinstance(work, Direct):
        return cell.system == RAW and scheduler.name in (BASE, NAME)
    if cell.system != (DISCARD if work.name == "M5" else STOCK):
        return False
    if scheduler == BOOST_OFF:
        return work.name in M1_TO_M5
    if scheduler in LARGE:
        return work in (M1, BULK)
    return scheduler != ALONE or work != BULK


def script(cell: Cell[Work], paths: Paths) -> Script:
    """A benchmark between two looks at qasio's counters, or fio between two at the CPU's."""
    work = cell.workload
    if isinstance(work, Direct):
        arguments = (
            f'--name=matrix --filename="$FASTSYNC_DEV" --rw={work.pattern} --bs={fio.BLOCK_KIB}k '
            f"--direct=1 --ioengine=libaio --iodepth={work.depth} --runtime={work.seconds}s "
            + " ".join(fio.TIMED)
        )
        return Script(
            f"before=$({CPU})\nfio {arguments} || return\n"
            f'after=$({CPU})\nsection before; echo "$before"; section after; echo "$after"'
        )
    alone = " alone" if cell.scheduler == ALONE else ""
    return Script(
        f"before=$(<{WAITS})\n"
        f'{paths(WAITBENCH.name)} "$FASTSYNC_DEV" {work.name} {work.rounds} {work.window_s}{alone} '
        f'|| return\nsection before; echo "$before"; section after; cat {WAITS}',
        prepare="sync; echo 3 >/proc/sys/vm/drop_caches",
    )


# --- figures -------------------------------------------------------------------------------------


def parse_waits(text: str) -> dict[str, dict[str, int]]:
    """The counters of /sys/kernel/debug/qasio/waits, by type of wait."""
    rows = (line.split() for line in text.splitlines() if " waits " in line)
    return {row[0]: dict(zip(row[1::2], map(int, row[2::2]), strict=True)) for row in rows}


def busy_ns(before: str, after: str) -> int:
    """How long the guest's one CPU did anything between two outputs of CPU.

    That is the time in which it was not idle, as the kernel times exactly when it becomes idle;
    what it did otherwise, it samples each tick.
    """
    first, last = before.split(), after.split()
    elapsed_ns = round((float(last[0]) - float(first[0])) * 1e9)
    return elapsed_ns - TICK_NS * sum(int(last[i]) - int(first[i]) for i in IDLE_WORDS)


def benchmark_figures(output: Output) -> Subjects:
    """A benchmark's calls, the whole of it, and what qasio saw of each type of wait."""
    result = json.loads(output.result)
    before, after = (parse_waits(output.sections[name]) for name in ("before", "after"))
    mib_s = int(result["written_bytes"]) / int(result["window_ns"]) * 1e9 / (1 << 20)
    return {
        **{name: call_values(call) for name, call in result["calls"].items()},
        "": {"elapsed_s": int(result["elapsed_ns"]) / 1e9, "writer_mib_s": mib_s},
        **{
            f"{WAIT}{kind}": {name: value - before[kind][name] for name, value in counters.items()}
            for kind, counters in after.items()
        },
    }


def direct_figures(output: Output) -> Values:
    """fio's requests, and what each cost the CPU."""
    job = fio.job_of(output.result)
    done = [job[way] for way in ("read", "write")]
    busy = busy_ns(output.sections["before"], output.sections["after"])
    return {
        "requests_per_s": sum(way["iops"] for way in done),
        "cpu_ns": busy / sum(way["total_ios"] for way in done),
    }


def read(cell: Cell[Work], output: Output) -> Subjects:
    """The figures of a run. Raises FastsyncError when its program printed no result."""
    direct = isinstance(cell.workload, Direct)
    try:
        return {"": direct_figures(output)} if direct else benchmark_figures(output)
    except (ValueError, KeyError, IndexError, TypeError, ZeroDivisionError) as error:
        program = "fio" if direct else WAITBENCH.name
        raise FastsyncError(f"{program} printed no result: {error!r}") from error


# --- what is said of it --------------------------------------------------------------------------


def seen(lines: Sequence[Line]) -> list[str]:
    """What qasio saw and did in all of its cells, by type of wait."""
    total: dict[str, dict[str, float]] = {}
    for line in lines:
        if line.place.scheduler == NAME and line.place.subject.startswith(WAIT):
            row = total.setdefault(line.place.subject.removeprefix(WAIT), {})
            for name in line.stats:
                row[name] = row.get(name, 0) + line.value(name)
    words = "; ".join(
        f"{kind}: {row['waits']:.0f} waits, {row['boosted']:.0f} boosted in the queue, "
        f"{row['late']:.0f} at insertion, {row['handle']:.0f} by the holder of a journal handle, "
        f"{row['commit']:.0f} by a commit"
        for kind, row in total.items()
    )
    return [f"What qasio saw: {words}."] if words else []


def headline(lines: Sequence[Line]) -> list[Part]:
    """p99 and max of the calls that wait under the base or qasio, and what the writer gets."""
    of = {
        (*(x.place.device, x.place.workload, x.place.subject), x.place.scheduler): x for x in lines
    }
    table = []
    for device, workload, call in dict.fromkeys(key[:3] for key in of):
        calls = {name: of.get((device, workload, call, name)) for name in (ALONE.name, BASE, NAME)}
        alone, base, own = calls.values()
        if not (alone and base and own) or base.stats.get("p99_ns") is None:
            continue
        if max(one.value("p99_ns") for one in (base, own)) < SHOWN_LEAST_MS * 1e6:
            continue
        beside = [
            of[device, workload, call, x] for x in OTHERS if (device, workload, call, x) in of
        ]
        pairs = [tuple(x.value(m) / 1e6 for m in ("p99_ns", "max_ns")) for x in (alone, base)]
        pairs += [tuple(min(x.value(m) / 1e6 for x in beside) for m in ("p99_ns", "max_ns"))]
        pairs += [tuple(own.value(m) / 1e6 for m in ("p99_ns", "max_ns"))]
        writer = [of[device, workload, "", x].value("writer_mib_s") for x in (NAME, BASE)]
        table.append(
            [
                *(device, workload, call),
                *(f"{p99:.1f} / {most:.1f}" for p99, most in pairs),
                f"{writer[0] / writer[1]:.2f}",
            ]
        )
    head = ("device", "benchmark", "call", ALONE.name, BASE, "best of the others", NAME, "writer")
    if not table:
        return []
    says = (
        f"Linux {machines_of(lines)}: p99 / max latency in ms; *writer* is the throughput of "
        f"the process that writes, divided by that under {BASE}:"
    )
    return [says, Grid(head, table, texts=3)]


# --- the study -----------------------------------------------------------------------------------


def bar(
    metric: str, base: tuple[str, ...], *, least: float = 0.0, most: float | None = None,
    workloads: tuple[str, ...] = (), devices: tuple[str, ...] = (),
) -> Requirement:  # fmt: skip
    """A figure of qasio over the least of those of other schedulers."""
    where = Where(schedulers=(NAME,), workloads=workloads, devices=devices)
    others = "that of others" if base == OTHERS else f"that of {base[0]}"
    return Requirement(
        metric, where=where, over=Where(schedulers=base), least=least, most=most, others=others
    )


FULL = Axes[Work](
    title="File system calls beside a bulk buffered writer, by I/O scheduler",
    devices=("emmc", "ufs"),
    systems=(STOCK, DISCARD, RAW),
    workloads=(*BENCHMARKS, *MATRIX),
    schedulers=SCHEDULERS,
)

STUDY = Study[Work](
    name=NAME,
    says="file system calls beside a bulk writer, by I/O scheduler; fio on the device itself",
    full=FULL,
    quick=replace(
        FULL,
        devices=("emmc",),
        workloads=(M1,),
        schedulers=tuple(one for one in SCHEDULERS if one.name in (BASE, "bfq", NAME)),
    ),
    script=script,
    read=read,
    wants=wants,
    programs=(WAITBENCH,),
    packages=("fio",),
    modules=("qasio",),
    setup="modprobe -a bfq kyber-iosched",
    traced=False,
    # The driver of an eMMC has 64 tags, although the device takes one request at a time.
    nr_requests={"emmc": 128},
    capacity_mib=768,  # three files of the bulk writer
    memory_mib=3072,
    limit_s=1800.0,
    required=(
        bar("max_ns", (BASE,), most=0.03, devices=("emmc",), workloads=M1_TO_M5),
        bar("p99_ns", OTHERS, most=1.0, workloads=M1_TO_M5),
        bar("max_ns", OTHERS, most=1.0, workloads=M1_TO_M5),
        bar("elapsed_s", (BASE,), most=0.169, workloads=("M1",)),
        bar("writer_mib_s", (BASE,), least=0.95),
        bar("requests_per_s", (BASE,), least=0.98),
        bar("cpu_ns", (BASE,), most=1.02),
    ),
    compared="scheduler",
    tables=(
        Table(("mean_ns", "p50_ns", "p99_ns", "max_ns")),
        Table(("elapsed_s", "writer_mib_s"), over=()),
        Table(("requests_per_s", "cpu_ns")),
    ),
    beside=None,
    drawn=(
        *((name, "fsync") for name in ("M1", "M2", "M5", "LAUNCH", "PHOTOS", "INSTALL")),
        *(("M1", "creat"), ("M4", "truncate"), ("LAUNCH", "read")),
    ),
    front="qasio",
    remarks=seen,
    says_headline=headline,
)
