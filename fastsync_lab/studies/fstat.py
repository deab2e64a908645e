"""The loop by which 6.12 and 7.2 are compared: an fstat() before each write, a file of 4 MiB.

Every request takes 100 us. On Linux 6.13 and later stock ext4 commits at each turn of it.
"""

from collections.abc import Sequence
from dataclasses import replace

from fastsync_lab.study import fio
from fastsync_lab.study.contract import Axes, Study
from fastsync_lab.study.filesystems import FIVE, FOUR, MODES
from fastsync_lab.study.grid import Part
from fastsync_lab.study.judge import speed_over
from fastsync_lab.study.programs import STATWRITE
from fastsync_lab.study.rows import Line, machines_of

FSTAT = "random, fstat first"
DEVICE = "uniform-100us"


def slowed(lines: Sequence[Line]) -> list[Part]:
    """What the fstat() costs on stock ext4."""
    of = {
        line.place.workload: line
        for line in lines
        if (line.place.system, line.place.device) == ("stock", DEVICE)
    }
    if not {"random", FSTAT} <= of.keys():
        return []
    plain, asked = of["random"], of[FSTAT]
    return [
        f"Linux {machines_of(lines)}, stock ext4, every request 100 us: with an `fstat()` "
        f"before each write {asked.stats['ops_per_s'].text()} operations a second in place of "
        f"{plain.stats['ops_per_s'].text()}, and {asked.stats['kib'].text()} KiB written for each "
        f"in place of {plain.stats['kib'].text()}."
    ]


FULL = Axes(
    title="4 KiB random overwrite + fsync, 4 MiB file, every request 100 us",
    devices=(DEVICE,),
    systems=FIVE,
    workloads=fio.workloads(("random", FSTAT), file_mib=4),
)

STUDY = Study(
    name="fstat",
    says="fio: the loop fstat, write, fsync, which multigrain timestamps made slower",
    full=FULL,
    quick=replace(FULL, systems=FOUR),
    script=fio.script,
    read=fio.read,
    programs=(STATWRITE,),
    packages=("fio",),
    required=(
        speed_over("ideal", MODES, least=0.985),
        # Stock writes 16 KiB in four requests there, fdatasync() 4 KiB in two.
        speed_over("stock", MODES, least=2.0, workloads=(FSTAT,), kernels=("7.2",)),
        speed_over("stock", ("off",), least=0.99, most=1.01),
    ),
    headline=(("random", ""), (FSTAT, "")),
    says_headline=slowed,
)
