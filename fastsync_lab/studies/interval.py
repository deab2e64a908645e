"""How volume and throughput depend on the interval.

The original experiment wrote 256 blocks of a 1 MiB file; five seconds instead let an interval of
1000 ms pass often enough for a smooth figure.
"""

from dataclasses import replace

from fastsync_lab.study import fio
from fastsync_lab.study.contract import FLASH, Axes, Study
from fastsync_lab.study.filesystems import IDEAL, MODES, STOCK, in_mode
from fastsync_lab.study.judge import Requirement, Where

INTERVALS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

FULL = Axes(
    title="4 KiB random overwrite + fsync, 1 MiB file, by mtime interval",
    devices=FLASH,
    systems=(STOCK, IDEAL, *(in_mode(mode, ms) for mode in MODES for ms in INTERVALS_MS)),
    workloads=(fio.Overwrites("random", file_mib=1, seconds=5),),
)

STUDY = Study(
    name="interval",
    says="fio: random overwrites at intervals of 1 to 1000 ms",
    full=FULL,
    quick=replace(FULL, devices=("sata-ssd",)),
    script=fio.script,
    read=fio.read,
    packages=("fio",),
    # Throughput never falls, volume never rises as the interval grows; two equal runs differ by
    # less than 0.2 %.
    required=(
        Requirement("ops_per_s", "worst step", where=Where(systems=MODES), least=0.998),
        Requirement("kib", "worst step", where=Where(systems=MODES), least=0.998, falls=True),
    ),
)
