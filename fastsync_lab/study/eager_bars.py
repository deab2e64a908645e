"""What eager syncing must show, in studies that other modes are in as well.

The bars are those that the project set itself before it was built: speed over stock ext4, over its
peers and over the device itself, and nowhere below stock.
"""

from dataclasses import replace

from fastsync_lab.machine.device import load_profile
from fastsync_lab.study.contract import FLASH, SideBySide
from fastsync_lab.study.filesystems import EAGERS, PEERS, RAW, STOCK
from fastsync_lab.study.judge import Requirement, Where, speed_over

OURS = tuple(one.name for one in EAGERS)
CACHED = tuple(name for name in FLASH if load_profile(name).volatile_cache)
SLOW_BARRIERS = ("emmc", "sata-ssd", "nvme")
DURABLE_PEERS = tuple(one.name for one in PEERS if one.durable)
BEST = "the best peer"
NEAREST_PEERS = tuple(one for one in PEERS if one.name in ("fast_commit", "xfs", "f2fs"))
NOWHERE_BELOW_STOCK = speed_over("stock", OURS, 1.0, devices=("nvme-plp",))  # the CPU counts there
# Eight tasks fall into one of two rhythms, with all or with half of them in a commit, as the phase
# of a run has it: stock's own figures differ by a factor of two.
ONE_TASK = ("append", "create", "rename", "scattered", "varmail")

# What a reader sees beside each other.
BESIDE = SideBySide(
    "ops_per_s",
    ("stock", "fast_commit", "xfs", "f2fs", "defer", "defer+eager"),
    ratios=(("defer+eager", "stock"), ("defer+eager", "f2fs")),
    also=tuple((metric, ("stock", "f2fs", "defer+eager")) for metric in ("p99_ns", "kib")),
)
TIMED = replace(BESIDE, also=BESIDE.also[1:])  # of programs that time no call


def faster_than(
    peers: tuple[str, ...],
    least: float,
    workloads: tuple[str, ...],
    subjects: tuple[str, ...] = ("",),
    devices: tuple[str, ...] = CACHED,
) -> Requirement:
    """Our speed over the greatest of these."""
    return Requirement(
        "ops_per_s",
        where=Where(systems=OURS, workloads=workloads, subjects=subjects, devices=devices),
        over=Where(systems=peers),
        least=least,
        greatest=True,
        others="" if len(peers) == 1 else BEST,
    )


FILES = (
    faster_than(("f2fs",), 1.0, ("append", "create", "threads", "appenders")),
    *(
        faster_than((name,), 2.0, ("append",), devices=SLOW_BARRIERS)
        for name in (STOCK.name, "fast_commit", "xfs")
    ),
    faster_than((RAW.name,), 0.93, ("append",)),
    faster_than((RAW.name,), 0.90, ("create",)),
    faster_than(DURABLE_PEERS, 1.5, ("rename",)),
    faster_than(("ideal",), 1.3, ("scattered",), devices=("emmc",)),
    speed_over("defer", OURS[1:], 0.99, workloads=("scattered",)),
    faster_than((STOCK.name,), 1.25, ("appenders",), devices=("sata-ssd",)),
    Requirement(
        "p99_ns",
        where=Where(systems=OURS, workloads=("appenders",), devices=CACHED),
        over=Where(systems=("f2fs",)),
        most=1.0,
    ),
    faster_than((STOCK.name,), 1.3, ("append",), devices=("nvme-plp",)),
    NOWHERE_BELOW_STOCK,
    speed_over("stock", ("off",), least=0.99, most=1.01, workloads=ONE_TASK),
)
SQLITE = (
    faster_than(("f2fs",), 1.0, ("WAL",), ("insert",)),
    faster_than(DURABLE_PEERS, 1.35, ("DELETE", "TRUNCATE"), ("insert",)),
    NOWHERE_BELOW_STOCK,
)
OVERWRITE = (speed_over("defer", OURS[1:], 0.985), NOWHERE_BELOW_STOCK)
