"""The file-system axis: ext4 as it is, with our modules, with its own options, and its peers."""

from fastsync_lab.host.kernels import load_series
from fastsync_lab.host.options import DEFAULT_INTERVAL_MS, EAGER_MODES, mode_options, mtime_mode
from fastsync_lab.study.contract import FASTSYNC, FileSystem

EAGER_KERNELS = tuple(name for name, series in load_series().items() if series.eager_sync)
SAYS = {
    "truncate": "our ext4: mtime at the start of its interval",
    "defer": "our ext4: exact mtime, durable with the interval",
    "eager": "our ext4 with eager_sync",
    "defer+eager": "our ext4 with eager_sync, and mtime as in defer",
}


def in_mode(mode: str, interval_ms: int = DEFAULT_INTERVAL_MS) -> FileSystem:
    """Our ext4 in one of these modes."""
    return FileSystem(
        mode,
        SAYS[mode],
        options=",".join(mode_options(mode, interval_ms)),
        modules=FASTSYNC,
        interval_ms=None if mtime_mode(mode) == "off" else interval_ms,
        kernels=EAGER_KERNELS if mode in EAGER_MODES else (),
    )


STOCK = FileSystem("stock", "Debian's ext4")
IDEAL = FileSystem("ideal", "Debian's ext4, fdatasync in place of fsync", sync_call="fdatasync")
TRUNCATE, DEFER = in_mode("truncate"), in_mode("defer")
OFF = FileSystem("off", "our ext4 without the option", modules=FASTSYNC)

EAGER, DEFER_EAGER = map(in_mode, EAGER_MODES)
EAGERS = (EAGER, DEFER_EAGER)

MODES = (TRUNCATE.name, DEFER.name)
FOUR = (STOCK, IDEAL, TRUNCATE, DEFER)
FIVE = (*FOUR, OFF)
DEMO = (*FOUR, DEFER_EAGER)  # what `make demo` has beside each other

F2FS = "mkfs.f2fs -q -f"
PEERS = (
    FileSystem(
        "fast_commit", "Debian's ext4 with fast_commit", mkfs=f"{STOCK.mkfs} -O fast_commit"
    ),
    FileSystem("lazytime", "Debian's ext4 with lazytime", options="lazytime"),
    FileSystem("noatime", "Debian's ext4 with noatime", options="noatime"),
    FileSystem("data=journal", "Debian's ext4, data in the journal", options="data=journal"),
    FileSystem("xfs", "XFS", kind="xfs", mkfs="mkfs.xfs -q -f"),
    FileSystem("btrfs", "btrfs", kind="btrfs", mkfs="mkfs.btrfs -q -f"),
    FileSystem("f2fs", "F2FS", kind="f2fs", mkfs=F2FS, options="fsync_mode=posix"),
    FileSystem(
        "f2fs not durable",
        "F2FS with fsync_mode=nobarrier: no flush, for comparison only",
        kind="f2fs",
        mkfs=F2FS,
        options="fsync_mode=nobarrier",
        durable=False,
    ),
)
RAW = FileSystem("raw", "the device itself", kind="", mkfs="")
