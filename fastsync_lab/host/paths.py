"""Where things lie: the repository, the cache of unpacked kernels, build products and results."""

import fcntl
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.interrupt import STOP

LOCK_RETRY_S = 0.1


def repo_root() -> Path:
    """The top of the source tree (the folder that holds ./fastsync)."""
    return Path(__file__).resolve().parents[2]


def cache_dir() -> Path:
    """Kernels, images: fastsync/ in $FASTSYNC_CACHE, else in $XDG_CACHE_HOME, else in ~/.cache."""
    named = os.environ.get("FASTSYNC_CACHE") or os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache").absolute() / "fastsync"


def build_dir() -> Path:
    """Build products, one folder a kernel series."""
    return repo_root() / "build"


def results_dir() -> Path:
    """Result files (JSON) and plots: $FASTSYNC_RESULTS, else results/ of the tree."""
    if own := os.environ.get("FASTSYNC_RESULTS"):
        return Path(own).absolute()
    return repo_root() / "results"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock for the time of a `with`, so that two builds do not meet.

    A signal ends the wait for it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        while not try_lock(file):
            STOP.sleep(LOCK_RETRY_S)
        yield


def try_lock(file: IO[str]) -> bool:
    """Take the lock of a file, unless another has it; it ends when all have closed the file."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def claim(path: Path) -> IO[str]:
    """Be the only one who writes a result file, until the file that is returned is closed.

    Raises FastsyncError when another run has it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    file = lock.open("w")
    if not try_lock(file):
        file.close()
        raise FastsyncError(f"another run is writing {path.name}: wait until it has ended")
    return file


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace a file in one step: whoever reads it, and whatever ends us, it is never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.new")
    with STOP.held():
        half.write_bytes(content if isinstance(content, bytes) else content.encode())
        half.replace(path)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replace a JSON file in one step."""
    write_whole(path, json.dumps(value, indent=1) + "\n")
