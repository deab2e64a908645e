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
    """A workload of filebench, so often; and what a burst of it has on the device itself."""

    burst_kib: int = 0
    operations: int = 1000


def script(cell: Cell[Work], paths: Paths) -> Script:
    """filebench makes what has to be there before, rests, and marks its time."""
    bench, work = paths(FILEBENCH.name), cell.workload
    if cell.system == RAW:
        return fio.bursts(work.burst_kib, work.operations)
    return Script(f'{bench} {cell.system.sync_call} {work.name} {work.operations} "$MARKER"')


def read(cell: Cell[Work], output: Output) -> Subjects:
    """The figures of a run."""
    is_raw = cell.system == RAW
    return fio.read(cell, output) if is_raw else phases_of(FILEBENCH.name, output.result)


OTHERS = ("rename", "scattered", "threads", "appenders", "varmail")
FULL = Axes(
    title="Files: append, create, rename over an old one, scattered pages, 8 threads, mail",
    devices=FLASH,
    systems=(*FIVE, *EAGERS, *PEERS, RAW),
    workloads=(Work("append", burst_kib=16), Work("create", burst_kib=36), *map(Work, OTHERS)),
)
SHORT = tuple(replace(work, operations=200) for work in FULL.workloads)

STUDY = Study(
    name="files",
    says="append; create; rename over an old file; scattered pages; 8 threads on 8 files; mail",
    full=FULL,
    quick=replace(FULL, devices=("sata-ssd",), systems=(*FOUR, *EAGERS), workloads=SHORT),
    script=script,
    read=read,
    wants=lambda cell: cell.system != RAW or cell.workload.burst_kib > 0,
    programs=(FILEBENCH,),
    beside=eager_bars.BESIDE,
    required=eager_bars.FILES,
    headline=(("append", ""), ("create", "")),
    drawn=tuple((work.name, "") for work in FULL.workloads),
)
