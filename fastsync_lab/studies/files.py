"""What programs do with files and then sync: programs/filebench.c has each of them."""

from dataclasses import dataclass, replace

from fastsync_lab.study.contract import FLASH, Axes, Cell, Output, Paths, Script, Study, Workload
from fastsync_lab.study.filesystems import EAGERS, FIVE, FOUR, PEERS
from fastsync_lab.study.output import phases_of
from fastsync_lab.study.programs import FILEBENCH
from fastsync_lab.study.rows import Subjects


@dataclass(frozen=True)
class Work(Workload):
    """A workload of filebench, so often."""

    operations: int = 1000


def script(cell: Cell[Work], paths: Paths) -> Script:
    """filebench makes what has to be there before, rests, and marks its time."""
    bench, work = paths(FILEBENCH.name), cell.workload
    return Script(f'{bench} {cell.system.sync_call} {work.name} {work.operations} "$MARKER"')


def read(_cell: Cell[Work], output: Output) -> Subjects:
    """The figures of a run."""
    return phases_of(FILEBENCH.name, output.result)


WORKLOADS = ("append", "create", "rename", "scattered", "threads", "appenders", "varmail")
FULL = Axes(
    title="Files: append, create, rename over an old one, scattered pages, 8 threads, mail",
    devices=FLASH,
    systems=(*FIVE, *EAGERS, *PEERS),
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
    programs=(FILEBENCH,),
)
