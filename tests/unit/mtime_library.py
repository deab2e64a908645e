"""kernel/ext4/mtime_durable.c and mtime_sync.c, compiled in userspace: what tests ask them."""

import ctypes
from pathlib import Path

import pytest

from fastsync_lab.host import shell
from fastsync_lab.host.paths import repo_root

STUBS = (
    *("linux/fs.h", "linux/jbd2.h", "linux/percpu_counter.h", "linux/types.h", "linux/blkdev.h"),
    *("ext4.h", "ext4_jbd2.h", "trace/define_trace.h"),
)
GUARDS = ("_EXT4_MTIME_COMPAT_H", "_EXT4_MTIME_TRACE_H")


def mtime_library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """A fixture: mtime_model.c, with mtime_shim.c in place of the kernel's headers."""
    folder = tmp_path_factory.mktemp("mtime")
    for name in STUBS:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")
    source = Path(__file__).with_name("mtime_model.c")
    shell.run(
        ["gcc", "-O1", "-shared", "-fPIC", "-Wall", "-Werror", "-fsanitize=undefined",
         "-fno-sanitize-recover", "-static-libubsan", *(f"-D{guard}" for guard in GUARDS),
         "-I", str(folder), "-I", str(repo_root() / "kernel/ext4"),
         "-o", str(folder / "mtime.so"), str(source)]
    )  # fmt: skip
    loaded = ctypes.CDLL(str(folder / "mtime.so"))
    loaded.log_stamps.argtypes = [ctypes.c_uint32, *[ctypes.c_int64] * 3]
    loaded.younger.argtypes = [ctypes.c_bool, ctypes.c_int64, ctypes.c_int64]
    loaded.younger.restype = ctypes.c_bool
    loaded.flush_after_remount.argtypes = [ctypes.c_bool, ctypes.POINTER(ctypes.c_bool)]
    return loaded
