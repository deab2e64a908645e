"""Files of kernel/jbd2 in userspace: each with a shim for what it needs of the kernel."""

import ctypes
from collections.abc import Sequence
from pathlib import Path

from fastsync_lab.host import shell
from fastsync_lab.host.paths import repo_root


def load(name: str, headers: Sequence[str], folder: Path) -> ctypes.CDLL:
    """Compile tests/unit/<name>_shim.c in `folder`; kernel headers of these names are empty."""
    for header in headers:
        (folder / header).parent.mkdir(parents=True, exist_ok=True)
        (folder / header).write_text("")
    library = folder / f"{name}.so"
    shell.run(
        ["gcc", "-O2", "-shared", "-fPIC", "-Wall", "-Werror", "-D_JBD2_BURST_H",
         "-I", str(folder), "-I", str(repo_root() / "kernel/jbd2"),
         "-o", str(library), str(Path(__file__).with_name(f"{name}_shim.c"))]
    )  # fmt: skip
    return ctypes.CDLL(str(library))
