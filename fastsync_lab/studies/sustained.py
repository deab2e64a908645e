"""A minute of syncs: settling, checkpoints, write-back and periodic commits are all in it.

What a burst leaves for later is paid within the time measured. Nothing is traced: `files` has the
bytes. The longest sync is that of a minute.
"""

from dataclasses import dataclass, replace

from fastsync_lab.study import eager_bars, fio
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
from fastsync_lab.study.eager_bars import NEAREST_PEERS, OURS, SLOW_BARRIERS, faster_than
from fastsync_lab.study.filesystems import EAGERS, STOCK
from fastsync_lab.study.judge import speed_over
from fastsync_lab.study.output import counters_of
from fastsync_lab.study.rows import Subjects


@dataclass(frozen=True)
class Sustained(Workload):
    """fio's arguments; it begins anew, until the time has passed. A sync after `each` writes."""

    arguments: str = ""
    each: int = 1
    seconds: int = 60


def script(cell: Cell[Sustained], _paths: Paths) -> Script:
    """fio, which removes its files before it begins anew."""
    work = cell.workload
    job = f"--name=sustained --ioengine=psync --fallocate=none --bs=4k {' '.join(fio.ARGUMENTS)}"
    until = f"--loops=1000000 --runtime={work.seconds}s --{cell.system.sync_call}={work.each}"
    return Script(f"fio {job} {until} {work.arguments}")


def read(cell: Cell[Sustained], output: Output) -> Subjects:
    """What fio says, and the longest settling that eager_sync has counted, if any."""
    longest_us = counters_of(output.sections).get("settle_max_us", 0)
    return {
        subject: {**values, **({"settle_max_ns": longest_us * 1000} if longest_us else {})}
        for subject, values in fio.read(cell, output).items()
    }


LOG = "--rw=write --size=64M --unlink_each_loop=1"
FULL = Axes(
    title="A minute of 4 KiB appends, new files, scattered pages, 8 appenders, all synced",
    devices=FLASH,
    systems=(STOCK, *EAGERS, *NEAREST_PEERS),
    workloads=(
        Sustained("append", LOG),
        Sustained(
            "create",
            "--rw=write --nrfiles=2000 --filesize=4k --size=8000k --create_on_open=1 "
            "--file_service_type=sequential --openfiles=1 --unlink_each_loop=1",
        ),
        Sustained("scattered", "--rw=randwrite --size=64M", each=5),
        Sustained("appenders", f"{LOG} --numjobs=8 --group_reporting"),
    ),
)
STUDY = Study(
    name="sustained",
    says="appends, new files and scattered pages for a minute, settling and write-back inside",
    full=FULL,
    quick=replace(
        FULL,
        devices=("sata-ssd",),
        systems=(STOCK, EAGERS[1]),
        workloads=tuple(replace(work, seconds=10) for work in FULL.workloads),
    ),
    script=script,
    read=read,
    packages=("fio",),
    traced=False,
    capacity_mib=1024,  # 8 files of 64 MiB
    memory_mib=4096,
    required=(
        speed_over("stock", OURS, 1.0),
        faster_than(("f2fs",), 1.0, ("append", "create", "appenders")),
        *(
            faster_than((one.name,), 2.0, ("append",), devices=SLOW_BARRIERS)
            for one in (STOCK, *NEAREST_PEERS[:2])
        ),
    ),
    tables=(
        Table(
            ("ops_per_s", "p50_ns", "p99_ns", "max_ns", "settle_max_ns"), over=(STOCK.name, "f2fs")
        ),
    ),
    beside=eager_bars.BESIDE,
)
