"""What fsync() costs when the file's blocks are all there."""

from dataclasses import replace

from fastsync_lab.study import eager_bars, fio
from fastsync_lab.study.contract import FLASH, Axes, Study
from fastsync_lab.study.filesystems import DEMO, EAGERS, FIVE, MODES, PEERS
from fastsync_lab.study.judge import Requirement, Where, speed_over
from fastsync_lab.study.programs import STATWRITE

LOOPS = ("random", "sequential", "random, fstat first", "sequential, fstat first")

FULL = Axes(
    title="4 KiB overwrite + fsync, 100 MB file",
    devices=(*FLASH, "uniform-100us"),
    systems=(*FIVE, *EAGERS, *PEERS),
    workloads=fio.workloads(LOOPS, file_mib=100),
)

STUDY = Study(
    name="overwrite",
    says="fio: 4 KiB overwrites of a file that is all there, a sync call after each",
    full=FULL,
    # For `make demo`: one device, without `off`, on a file that is sooner made.
    quick=replace(
        FULL,
        title="4 KiB overwrite + fsync, 20 MB file",
        devices=("sata-ssd",),
        systems=DEMO,
        workloads=fio.workloads(LOOPS, file_mib=20),
    ),
    script=fio.script,
    read=fio.read,
    programs=(STATWRITE,),
    packages=("fio",),
    required=(
        speed_over("ideal", MODES, least=0.985),
        # Asked for where stock writes half a commit or more for each operation: it journals mostly.
        Requirement(
            "kib_journal",
            "saved",
            where=Where(systems=MODES),
            over=Where(systems=("stock",)),
            base_least=6.0,
            least=0.97,
        ),
        speed_over("stock", MODES, least=0.995),
        speed_over("stock", ("off",), least=0.99, most=1.01),
        *eager_bars.OVERWRITE,
    ),
    headline=(("random", ""), ("random, fstat first", "")),
)
