"""Which workloads `./fastsync crash all` runs on which kinds of file systems, in which modes."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastsync_lab.crash.case import Case
from fastsync_lab.crash.kinds import KINDS
from fastsync_lab.crash.logged import PREFIX
from fastsync_lab.crash.logged_blocks import TOGGLING
from fastsync_lab.crash.workloads import workload_names
from fastsync_lab.host.errors import check_names
from fastsync_lab.host.kernels import find_series
from fastsync_lab.host.options import (
    CONTROL,
    DEFAULT_INTERVAL_MS,
    EAGER_MODES,
    MTIME_MODES,
)

ALL = "all"


@dataclass(frozen=True)
class Row:
    """Each of the workloads on each of the kinds in each of the modes, with so many seeds."""

    workloads: Sequence[str]
    kinds: Sequence[str]
    modes: Sequence[str] = MTIME_MODES
    seeds: int = 1


FILES = ("overwrite", "append", "create", "attributes", "mmap", "direct", "punch", "threads")
DATABASES = (
    *("sqlite-delete", "sqlite-truncate", "sqlite-persist", "sqlite-wal"),
    *("mariadb-direct", "mariadb-fsync"),
)
CLASSIC = ("bounded", *DATABASES, *FILES, "random")
QUICK = ("one-by-one", "overwrite", "append", "attributes", "direct", "punch", "threads", "random")
# With stamps of whole seconds a sync of overwrites alone finds nothing to commit: no burst. Direct
# writes mark their transactions: whether a flush has covered one, so that it is a burst, is chance.
COMMITTING = tuple(name for name in QUICK if name not in ("overwrite", "direct"))
OURS = ("truncate", "defer")
LOGGED = tuple(n for n in workload_names() if n.startswith(PREFIX) and n != TOGGLING)
# ext4 does not take the other pairs: no MOVE_EXT with journalled data or with clusters, and for
# SWAP_BOOT too little room in the log for what changes of quotas: stock's, and the kernel warns.
# The pairs with `bounded` are those that write the most different blocks. What fails on stock
# is run there, too: a record torn over an older lap of the log, with which e2fsck gives up; fast
# commits; with 1 KiB blocks a superblock torn during recovery; with quotas their numbers after a
# punched hole. i_version moves if it has been queried, and counts as queried once an inode is read
# from the disk: so its workloads are some that drop caches.
TABLE = (
    Row(("bounded",), ("1k-blocks",), ("defer", CONTROL)),
    Row(("bounded",), ("external",), ("defer", CONTROL)),
    Row(CLASSIC, ("ordered", "journal")),
    Row(("bounded",), ("ordered", "journal"), (CONTROL,)),
    Row(CLASSIC, ("fast_commit",), (*MTIME_MODES, CONTROL)),
    Row(("one-by-one",), ("ordered", "journal", "fast_commit"), (*MTIME_MODES, CONTROL)),
    Row(("alike",), ("fast_commit",), MTIME_MODES),
    Row(("alike",), ("fast_commit",), (CONTROL,), seeds=3),  # which errors are seen is chance
    Row(("one-by-one", "append", "direct", "mmap", "punch", "random"), ("dioread_lock",), OURS),
    Row(("append", "create", "punch", "random"), ("nodelalloc",), OURS),
    Row(("move-ext",), ("ordered", "external", "quota")),
    Row(("swap-boot",), ("ordered",)),
    Row(("shift",), ("ordered", "journal", "bigalloc", "quota")),
    Row(("move-ext", "swap-boot", "shift"), ("1k-blocks",), (*MTIME_MODES, CONTROL)),
    Row(("inline",), ("inline_data",)),
    # fallocate() is not for files without extents.
    Row(("overwrite", "append", "create", "mmap", "direct"), ("indirect",), (*OURS, "eager")),
    Row(("create", "attributes", "random"), ("inline_data",), OURS),
    Row(("aio", "io-uring"), ("ordered", "journal")),
    Row(("aio", "io-uring"), ("lazytime", "bigalloc", "external"), OURS),
    Row(("remount",), ("ordered", "journal", "external")),
    Row(("remount",), ("1k-blocks", "small-inodes"), ("defer",)),  # stock has no such options
    Row(("names", "tmpfile"), ("ordered",), (*MTIME_MODES, *EAGER_MODES, CONTROL)),
    Row(QUICK, ("1k-blocks",), (*OURS, CONTROL)),
    Row(("punch",), ("quota",), (*OURS, CONTROL)),
    Row(QUICK, ("lazytime", "bigalloc", "quota", "small-inodes", "external"), OURS),
    Row(("logged-append", "logged-rewrite", "logged-mix"), ("i_version",), (*OURS, "defer+eager")),
    Row((*CLASSIC, "one-by-one", "aio", "io-uring", "remount"), ("ordered",), EAGER_MODES),
    Row(("move-ext", "swap-boot", "shift"), ("ordered", "1k-blocks"), EAGER_MODES),
    Row(("one-by-one", "append", "direct", "punch", "random"), ("dioread_lock",), ("eager",)),
    Row(("overwrite", *COMMITTING), ("1k-blocks", "bigalloc", "quota"), EAGER_MODES),
    Row(COMMITTING, ("small-inodes",), EAGER_MODES),
    Row(("inline",), ("inline_data",), ("eager",)),
    Row(LOGGED, ("ordered",), EAGER_MODES, seeds=4),
    Row(LOGGED, ("ordered",), (CONTROL,)),
    Row(("logged-mix",), ("dioread_lock",), EAGER_MODES),
    Row(LOGGED, ("1k-blocks",), ("eager", CONTROL)),
    Row(("logged-still", "logged-vanish"), ("lazytime",), (*EAGER_MODES, CONTROL)),
    Row((TOGGLING,), ("ordered",), EAGER_MODES),
    Row(
        ("one-by-one", "append", "create", "random"), ("crashed",), ("defer", *EAGER_MODES, CONTROL)
    ),
    Row(("logged-append", "logged-mix", "logged-reuse"), ("crashed",), (*EAGER_MODES, CONTROL)),
)


def everything(
    kernel: str, seed: int = 1, interval_ms: int = DEFAULT_INTERVAL_MS, delays: int = 0
) -> tuple[Case, ...]:
    """What the table says of the modes that the kernel's modules have, in its order."""
    modes = (*find_series(kernel).modes, CONTROL)
    return tuple(
        dict.fromkeys(
            Case(workload, mode, kind, interval_ms, seed + more, delays)
            for row in TABLE
            for workload in row.workloads
            for kind in row.kinds
            for mode in row.modes
            if mode in modes
            for more in range(row.seeds)
        )
    )


def choose(
    workload: str,
    *,
    modes: Sequence[str] | None,
    journals: Sequence[str] | None,
    seed: int,
    interval_ms: int,
    delays: int = 0,
    kernel: str,
) -> tuple[Case, ...]:
    """The cases that options ask for.

    Of `all` the table's, in other modes if any are given; of one workload those that are asked for,
    else on `ordered` if the table has that, in defer. Raises UsageError for a name that there is
    not, or not on this kernel.
    """
    check_names("workload", [workload], [ALL, *workload_names()])
    find_series(kernel).check_modes(modes or (), CONTROL)
    check_names("journal", journals or (), tuple(KINDS))
    if workload == ALL:
        table = everything(kernel, seed, interval_ms, delays)
        mine = [case for case in table if not journals or case.journal in journals]
        if not modes:
            return tuple(mine)
        pairs = dict.fromkeys((case.workload, case.journal) for case in mine)
    else:
        kinds = journals or [_first_kind(workload)]
        pairs = dict.fromkeys((workload, kind) for kind in kinds)
    return tuple(
        Case(name, mode, kind, interval_ms, seed, delays)
        for name, kind in pairs
        for mode in dict.fromkeys(modes or ("defer",))
    )


def _first_kind(workload: str) -> str:
    """ordered, if the table has it."""
    kinds = [kind for row in TABLE if workload in row.workloads for kind in row.kinds]
    return "ordered" if "ordered" in kinds else kinds[0]


def is_whole(cases: Sequence[Case], kernel: str) -> bool:
    """Whether the cases have all that the table has, be it from another seed on, or interval."""
    first = min(cases, key=lambda case: case.seed)
    return set(everything(kernel, first.seed, first.interval_ms)) <= set(cases)
