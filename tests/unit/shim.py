"""Files of kernel/ in userspace: each with a shim for what it needs of the kernel."""

import ctypes
from collections.abc import Sequence
from pathlib import Path

from fastsync_lab.host import shell
from fastsync_lab.host.paths import repo_root

SANITIZED = ("-fsanitize=undefined", "-fno-sanitize-recover", "-static-libubsan")


def load(
    source: str, part: str, folder: Path, *flags: str, headers: Sequence[str] = ()
) -> ctypes.CDLL:
    """Compile tests/unit/<source>.c in `folder`, beside kernel/<part>/.

    Headers of these names are there, and empty.
    """
    for header in headers:
        (folder / header).parent.mkdir(parents=True, exist_ok=True)
        (folder / header).write_text("")
    library = folder / f"{source}.so"
    shell.run(
        ["gcc", "-shared", "-fPIC", "-Wall", "-Werror", *flags,
         "-I", str(folder), "-I", str(repo_root() / "kernel" / part),
         "-o", str(library), str(Path(__file__).with_name(f"{source}.c"))]
    )  # fmt: skip
    return ctypes.CDLL(str(library))


def load_burst(folder: Path) -> ctypes.CDLL:
    """What a burst costs, and when a transaction is cut: burst_cost.c and burst_short.c."""
    return load(
        "burst_shim", "jbd2", folder, "-O2", "-D_JBD2_BURST_H", "-D_JBD2_BURST_TRACE_H",
        *SANITIZED, headers=["linux/ktime.h", "trace/define_trace.h"],
    )  # fmt: skip
