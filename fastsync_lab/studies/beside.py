"""How long a small fsync takes beside a neighbour that never syncs, and how long it takes alone.

programs/beside.c has the workloads and the neighbours. The figures are of the sync call ("sync")
and of all calls of an operation: what a file system spares fsync may make creat() or write() wait.
Once a second, 60 of them make the time measured: their p99 is their longest.
"""

import json
from dataclasses import dataclass, replace

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.study.contract import (
    FLASH,
    Axes,
    Cell,
    Output,
    Paths,
    Script,
    Study,
    Table,
    Workload,
)
from fastsync_lab.study.eager_bars import BEST, NEAREST_PEERS, OURS
from fastsync_lab.study.filesystems import DEFER, EAGERS, STOCK
from fastsync_lab.study.judge import Requirement, Where
from fastsync_lab.study.output import counters_of, phases_of
from fastsync_lab.study.programs import BESIDE
from fastsync_lab.study.rows import Subjects

SECONDS = {1: 60, 10: 20, 200: 10}  # by rate; longer than the periods of write-back and commits
REQUESTS = 128  # what a driver's 64 tags give a scheduler; the model of an eMMC has one


@dataclass(frozen=True)
class Beside(Workload):
    """A workload of `beside`, its rate and neighbour; `qasio` is the scheduler, or the default."""

    call: str = "append"
    rate: int = 10
    neighbour: str = "alone"
    qasio: bool = False


def beside(call: str, rate: int, neighbour: str, *, qasio: bool = False) -> Beside:
    """A workload by its name."""
    where = "alone" if neighbour == "alone" else f"beside {neighbour}"
    name = f"{call} {rate}/s {where}{', qasio' if qasio else ''}"
    return Beside(name, call, rate, neighbour, qasio)


def wants(cell: Cell[Beside]) -> bool:
    """The other scheduler is for what we have."""
    return not cell.workload.qasio or cell.system in (STOCK, *EAGERS)


def script(cell: Cell[Beside], paths: Paths) -> Script:
    """The program marks its time and brings its neighbour; the scheduler is set before."""
    work = cell.workload
    arguments = f"{work.call} {work.rate} {SECONDS[work.rate]} {work.neighbour}"
    run = f'{paths(BESIDE.name)} {cell.system.sync_call} {arguments} "$MARKER"'
    scheduler, requests = ("qasio", 2048) if work.qasio else ("mq-deadline", REQUESTS)
    return Script(
        run,
        f'echo none >"$QUEUE/scheduler" && echo {scheduler} >"$QUEUE/scheduler" &&\n'
        f'echo {requests} >"$QUEUE/nr_requests"',
    )


def read(_cell: Cell[Beside], output: Output) -> Subjects:
    """The latencies, what the neighbour did, and how many blocks a burst had since the mount.

    Raises FastsyncError for what is no result.
    """
    phases = phases_of(BESIDE.name, output.result)
    try:
        did = float(json.loads(output.result)["neighbour_per_s"])
    except (KeyError, TypeError, ValueError) as error:
        raise FastsyncError(f"{BESIDE.name} printed no neighbour: {error!r}") from error
    more = {"neighbour_per_s": did}
    counted = counters_of(output.sections)
    if counted.get("bursts"):
        more["burst_blocks"] = counted["burst_blocks"] / counted["bursts"]
    return {name: {**values, **more} for name, values in phases.items()}


CALLS, NEIGHBOURS = ("append", "create"), ("creates", "untar", "stream")
FULL = Axes(
    title="A small fsync 1, 10 and 200 times a second, alone and beside who never syncs",
    devices=FLASH,
    systems=(STOCK, DEFER, *EAGERS, *NEAREST_PEERS),
    workloads=(
        *(beside(c, r, n) for c in CALLS for r in SECONDS for n in ("alone", *NEIGHBOURS)),
        *(beside(c, 10, n, qasio=True) for c in CALLS for n in ("alone", *NEIGHBOURS)),
    ),
)


def p99(most: float, over: Where, workloads: tuple[str, ...] = (), who: str = "") -> Requirement:
    """The p99 of ours, of the sync call and of the whole operation."""
    where = Where(systems=OURS, workloads=workloads)
    return Requirement("p99_ns", where=where, over=over, most=most, others=who)


def peers(*workloads: str) -> Where:
    """The others' figures; of these workloads, or of the same."""
    return Where(systems=tuple(one.name for one in NEAREST_PEERS), workloads=workloads)


def name_of(call: str, rate: int, neighbour: str, *, qasio: bool = False) -> tuple[str]:
    """The workload's name as a requirement has it."""
    return (beside(call, rate, neighbour, qasio=qasio).name,)


SHOWN = (
    *("p99_ns", "p50_ns", "max_ns", "neighbour_per_s"),
    *("kib", "kib_journal", "flushes", "burst_blocks"),
)
WRITERS = ("untar", "stream")  # neighbours whose data is written back
EACH = [(call, rate) for call in CALLS for rate in SECONDS]
LOADED = tuple(name for each in EACH for n in WRITERS for name in name_of(*each, n))
STUDY = Study(
    name="beside",
    says="a small fsync beside a neighbour that creates files, unpacks trees or streams",
    full=FULL,
    quick=replace(
        FULL,
        devices=("sata-ssd",),
        systems=(STOCK, EAGERS[0], *NEAREST_PEERS),
        workloads=tuple(beside("append", 10, n) for n in ("alone", *NEIGHBOURS)),
    ),
    script=script,
    read=read,
    wants=wants,
    programs=(BESIDE,),
    modules=("qasio",),
    capacity_mib=2048,  # 120,000 files
    memory_mib=4096,
    required=(
        *(
            p99(2.0, Where(workloads=name_of(*each, "alone")), name_of(*each, "creates"))
            for each in EACH
        ),
        p99(1.0, peers(), LOADED, BEST),
        *(
            p99(1.0, peers(*name_of(call, 10, n)), name_of(call, 10, n, qasio=True), BEST)
            for call in CALLS
            for n in WRITERS
        ),
        p99(1.0, Where(systems=(STOCK.name,))),
    ),
    tables=(Table(SHOWN, over=(STOCK.name,)),),
    beside=None,
)
