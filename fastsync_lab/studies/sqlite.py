"""SQLite compiled without HAVE_FDATASYNC (it calls fsync), one row a transaction, synchronous=FULL.

`ideal` is the same SQLite compiled with HAVE_FDATASYNC, on stock ext4.
"""

from dataclasses import dataclass, replace

from fastsync_lab.study import eager_bars
from fastsync_lab.study.contract import (
    FLASH,
    Axes,
    Cell,
    Output,
    Paths,
    Script,
    Study,
    Workload,
)
from fastsync_lab.study.filesystems import DEMO, EAGERS, FIVE, MODES, PEERS
from fastsync_lab.study.judge import speed_over
from fastsync_lab.study.output import phases_of
from fastsync_lab.study.programs import SQLBENCHES
from fastsync_lab.study.rows import Subjects


@dataclass(frozen=True)
class Transactions(Workload):
    """`operations` transactions of each kind on a table of `rows`; the journal mode is the name."""

    operations: int = 200
    rows: int = 10000


def script(cell: Cell[Transactions], paths: Paths) -> Script:
    """sqlbench fills its table and rests by itself, and marks its phases."""
    work = cell.workload
    bench = paths(f"sqlbench-{cell.system.sync_call}")
    return Script(f'{bench} item.db {work.name} {work.operations} {work.rows} "$MARKER"')


def read(_cell: Cell[Transactions], output: Output) -> Subjects:
    """The figures of each phase."""
    return phases_of("sqlbench", output.result)


FULL = Axes(
    title="SQLite that calls fsync, one row a transaction",
    devices=FLASH,
    systems=(*FIVE, *EAGERS, *PEERS),
    workloads=tuple(Transactions(mode) for mode in ("PERSIST", "TRUNCATE", "DELETE", "WAL")),
)

STUDY = Study(
    name="sqlite",
    says="SQLite that calls fsync: inserts, updates and deletes in four journal modes",
    full=FULL,
    quick=replace(
        FULL,
        devices=("sata-ssd",),
        systems=DEMO,
        workloads=tuple(replace(one, operations=100, rows=2000) for one in FULL.workloads),
    ),
    script=script,
    read=read,
    programs=SQLBENCHES,
    required=(
        # What the paper has, on kernels before multigrain timestamps.
        speed_over(
            "ideal",
            MODES,
            0.97,
            kernels=("6.1", "6.12"),
            workloads=("PERSIST",),
            subjects=("update",),
        ),
        speed_over(
            "ideal", MODES, 0.97, kernels=("7.2",), workloads=("PERSIST", "TRUNCATE", "DELETE")
        ),
        speed_over("stock", MODES, least=0.995),
        speed_over("stock", ("off",), least=0.99, most=1.01),
        *eager_bars.SQLITE,
    ),
    headline=(
        *(("PERSIST", "update"), ("DELETE", "update")),
        *(("DELETE", "insert"), ("WAL", "insert")),
    ),
)
