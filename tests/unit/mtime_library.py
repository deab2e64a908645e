"""kernel/ext4/mtime_durable.c and mtime_sync.c, compiled in userspace: what tests ask them."""

import ctypes
from pathlib import Path

import pytest

from tests.unit import shim

STUBS = (
    *("linux/fs.h", "linux/jbd2.h", "linux/percpu_counter.h", "linux/types.h", "linux/blkdev.h"),
    "linux/bio.h",
    *("ext4.h", "ext4_jbd2.h", "trace/define_trace.h"),
)
GUARDS = ("_EXT4_MTIME_COMPAT_H", "_EXT4_MTIME_TRACE_H")


def mtime_library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """A fixture: mtime_model.c, with mtime_shim.c in place of the kernel's headers."""
    return load(tmp_path_factory.mktemp("mtime"))


def load(folder: Path) -> ctypes.CDLL:
    """The same, compiled in a folder; a file of kernel/ext4/ that is there is taken from there."""
    guards = [f"-D{guard}" for guard in GUARDS]
    loaded = shim.load(
        "mtime_model", "ext4", folder, "-O1", *shim.SANITIZED, *guards, headers=STUBS
    )
    loaded.log_stamps.argtypes = [ctypes.c_uint32, *[ctypes.c_int64] * 3]
    loaded.younger.argtypes = [ctypes.c_bool, ctypes.c_int64, ctypes.c_int64]
    loaded.younger.restype = ctypes.c_bool
    loaded.flush_after_remount.argtypes = [ctypes.c_bool, ctypes.POINTER(ctypes.c_bool)]
    loaded.waits_for_long_ago.argtypes = [ctypes.c_bool]
    loaded.waits_for_long_ago.restype = ctypes.c_bool
    return loaded
