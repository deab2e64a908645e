"""What programs do with files and then sync: programs/filebench.c has each of them."""

from dataclasses import dataclass, replace

from fastsync_lab.study import eager_bars, fio
from fastsync_lab.study.contract import FLASH, Axes, Cell, Output, Paths, Script, Study, Workload
from fastsync_lab.study.filesystems import EAGERS, FIVE, FOUR, PEERS, RAW
from fastsync_lab.study.output import phases_of
from fastsync_lab.study.programs import FILEBENCH
from fastsync_lab.study.rows import Subjects


@dataclass(frozen=True)
class Work(Workload):
    """A workload of filebench, so often."""

    operations: int = 1000


def script(cell: Cell[Work], paths: Paths) -> Script:
    """filebench makes what has to be there before, rests, and marks its time."""
    if cell.system == RAW:
        return fio.bursts(BURST_KIB[cell.workload.name], cell.workload.operations)
    bench, work = paths(FILEBENCH.name), cell.workload
    return Script(f'{bench} {cell.system.sync_call} {work.name} {work.operations} "$MARKER"')


def read(cell: Cell[Work], output: Output) -> Subjects:
    """The figures of a run."""
    if cell.system == RAW:
        return fio.read(cell, output)
    return phases_of(FILEBENCH.name, output.result)


def wants(cell: Cell[Work]) -> bool:
    """On the device itself, what a burst and its flush take."""
    return cell.system != RAW or cell.workload.name in BURST_KIB


BURST_KIB = {"append": 24, "create": 36}
WORKLOADS = ("append", "create", "rename", "scattered", "threads", "appenders", "varmail")
FULL = Axes(
    title="Files: append, create, rename over an old one, scattered pages, 8 threads, mail",
    devices=FLASH,
    systems=(*FIVE, *EAGERS, *PEERS, RAW),
    workloads=tuple(map(Work, WORKLOADS)),
)

STUDY = Study(
    name="files",
    says="append; create; rename over an old file; scattered pages; 8 threads on 8 files; mail",
    full=FULL,
    quick=replace(
        FULL,
        devices=("sata-ssd",),
        systems=(*FOUR, *EAGERS),
        workloads=tuple(replace(work, operations=200) for work in FULL.workloads),
    ),
    script=script,
    read=read,
    wants=wants,
    programs=(FILEBENCH,),
    beside=eager_bars.BESIDE,
    required=eager_bars.FILES,
)
