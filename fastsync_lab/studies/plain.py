"""What has nothing to gain, and must lose nothing: large synced writes, reads, no sync at all."""

from dataclasses import dataclass, replace

from fastsync_lab.study import fio
from fastsync_lab.study.contract import FLASH, Axes, Cell, Output, Paths, Script, Study, Workload
from fastsync_lab.study.filesystems import DEFER, EAGERS, OFF, STOCK
from fastsync_lab.study.judge import speed_over
from fastsync_lab.study.rows import Subjects

FILES = 4000


@dataclass(frozen=True)
class Plain(Workload):
    """A job of fio by its own arguments, `SYNC` being the file system's sync call."""

    arguments: str
    prepare: str = ":"


def script(cell: Cell[Plain], _paths: Paths) -> Script:
    """fio, its requests marked as those of the run itself."""
    arguments = cell.workload.arguments.replace("SYNC", cell.system.sync_call)
    shared = "--name=plain --ioengine=psync --fallocate=none " + " ".join(fio.ARGUMENTS)
    return Script(f"measured '' fio {shared} {arguments}", cell.workload.prepare)


def read(_cell: Cell[Plain], output: Output) -> Subjects:
    """Its calls a second, and their latency."""
    return {"": fio.values_of(output.result, synced=False)}


WORKLOADS = (
    Plain("1 MiB + fsync", "--rw=write --bs=1M --size=192M --filename=file --SYNC=1"),
    Plain(
        "random reads",
        "--rw=randread --bs=4k --size=128M --io_size=8M --filename=file",
        "dd if=/dev/zero of=file bs=1M count=128 conv=fsync 2>&1; echo 3 >/proc/sys/vm/drop_caches",
    ),
    Plain("writes, no sync", "--rw=write --bs=64k --size=256M --filename=file"),
    Plain(
        "new files, no sync",
        f"--rw=write --bs=4k --nrfiles={FILES} --filesize=4k --size={4 * FILES}k "
        "--create_on_open=1 --file_service_type=sequential --openfiles=1",
    ),
)
FULL = Axes(
    title="Large synced writes, reads and writes without a sync: as fast as on stock",
    devices=FLASH,
    systems=(STOCK, OFF, DEFER, *EAGERS),
    workloads=WORKLOADS,
    runs=3,
)
STUDY = Study(
    name="plain",
    says="large synced writes, reads, writes and new files without a sync: nothing may be slower",
    full=FULL,
    quick=replace(FULL, devices=("sata-ssd",), runs=1),
    script=script,
    read=read,
    required=(speed_over("stock", tuple(x.name for x in FULL.systems[1:]), least=0.99),),
    beside=None,
)
