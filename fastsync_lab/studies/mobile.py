"""The workloads of the thesis on eager syncing (Sung, NCTU 2013, Table 5.4), beside its figures.

AndroBench's SQLite test is 300 transactions of each kind, in SQLite's own default journal mode and
in the one that Android had then; the thesis does not name it. What programs/mobilebench.c writes
has the published shape of the other workloads: an operation is a sync call there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
from fastsync_lab.study.filesystems import DEFER, DEFER_EAGER, EAGERS, PEERS, STOCK
from fastsync_lab.study.grid import Grid, Part
from fastsync_lab.study.judge import Requirement, Where
from fastsync_lab.study.output import phases_of
from fastsync_lab.study.programs import MOBILEBENCH, SQLBENCHES
from fastsync_lab.study.rows import Line, Subjects

# Table 5.4: eager over stock; then stock to eager: sequential ratio, KiB a request, MB written.
INSERT = (78 / 45, "0.00 to 0.65", "5.1 to 11.5", "38.7 to 41.1")
THESIS = {
    ("DELETE", "insert"): INSERT,
    ("PERSIST", "insert"): INSERT,
    ("random", ""): (1 / 0.6, "0.00 to 0.99", "9.3 to 23.2", "39.4 to 34.9"),
    ("facebook", ""): (1.19 / 0.91, "0.01 to 0.59", "22.9 to 45.6", "85.0 to 91.8"),
    ("gmail", ""): (2.08 / 1.69, "0.00 to 0.17", "12.9 to 35.5", "306.2 to 292.2"),
    ("chrome", ""): (5.05 / 3.80, "0.03 to 0.14", "31.5 to 63.0", "149.8 to 146.0"),
}
OURS = DEFER_EAGER.name


@dataclass(frozen=True)
class Mobile(Workload):
    """A workload of mobilebench, its `parts`-th part; or a journal mode of SQLite."""

    parts: int = 1
    transactions: int = 0
    rows: int = 10000


def script(cell: Cell[Mobile], paths: Paths) -> Script:
    """Both programs make what has to be there, rest, and mark their time."""
    work, call = cell.workload, cell.system.sync_call
    if work.transactions:
        bench = f"{paths(f'sqlbench-{call}')} item.db {work.name} {work.transactions} {work.rows}"
    else:
        bench = f"{paths(MOBILEBENCH.name)} {call} {work.name} {work.parts}"
    return Script(f'{bench} "$MARKER"')


def read(cell: Cell[Mobile], output: Output) -> Subjects:
    """The figures of a run."""
    return phases_of("sqlbench" if cell.workload.transactions else "mobilebench", output.result)


def row(stock: Line, own: Line, ratio: float, *texts: str) -> list[str]:
    """The thesis's figures of a workload and ours beside each other, from stock's to eager's."""
    mb = [x.value("kib") * x.value("operations") * 1024e-6 for x in (stock, own)]
    ours = (
        f"{own.value('ops_per_s') / stock.value('ops_per_s'):.2f}",
        f"{stock.value('sequential'):.2f} to {own.value('sequential'):.2f}",
        f"{stock.value('request_kib'):.1f} to {own.value('request_kib'):.1f}",
        f"{mb[0]:.1f} to {mb[1]:.1f}",
    )
    both = zip((f"{ratio:.2f}", *texts), ours, strict=True)
    return [own.place.device, own.place.name, *(text for pair in both for text in pair)]


def beside_thesis(lines: Sequence[Line]) -> list[Part]:
    """All of them in one table."""
    there = {(x.place.device, x.place.workload, x.place.subject, x.place.system): x for x in lines}
    pairs = [
        (there.get((device, *at, STOCK.name)), there.get((device, *at, OURS)), figures)
        for at, figures in THESIS.items()
        for device in FLASH
    ]
    table = [row(stock, own, *figures) for stock, own, figures in pairs if stock and own]
    heads = ("over stock", "sequential", "KiB/request", "MB written")
    names = [f"{who}: {head}" for head in heads for who in ("thesis", "ours")]
    return [Grid(("device", "workload", *names), table, texts=2)] if table else []


SHOWN = ("ops_per_s", "sequential", "request_kib", "kib", "kib_journal", "flushes", "fua", "p99_ns")
SHAPES = ("random", "facebook", "gmail", "chrome")
FULL = Axes(
    title="What phones write: SQLite as AndroBench does it, and the shape of traces",
    devices=FLASH,
    systems=(STOCK, DEFER, *EAGERS, *(x for x in PEERS if x.name in ("f2fs", "fast_commit"))),
    workloads=(
        *(Mobile(mode, transactions=300) for mode in ("DELETE", "PERSIST")),
        *map(Mobile, SHAPES),
    ),
)

STUDY = Study(
    name="mobile",
    says="a phone's SQLite and random writes, and traces in the shape of Facebook, Gmail, Chrome",
    full=FULL,
    quick=replace(
        FULL,
        devices=("emmc",),
        systems=(STOCK, *EAGERS),
        workloads=(
            Mobile("DELETE", transactions=100, rows=2000),
            *(Mobile(name, parts=5) for name in SHAPES),
        ),
    ),
    script=script,
    read=read,
    programs=(*SQLBENCHES, MOBILEBENCH),
    required=tuple(
        Requirement(
            "ops_per_s",
            where=Where((OURS,), (workload,), (subject,), devices=("emmc",)),
            over=Where(systems=(STOCK.name,)),
            least=ratio,
        )
        for (workload, subject), (ratio, *_) in THESIS.items()
    ),
    tables=(Table(SHOWN, over=(STOCK.name,)),),
    beside=None,
    says_headline=beside_thesis,
)
