"""Where things lie: the repository, the cache of unpacked kernels, build products and results."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def repo_root() -> Path:
    """The top of the source tree (the folder that holds ./fastsync)."""
    return Path(__file__).resolve().parent.parent


def cache_dir() -> Path:
    """Kernels, images: $FASTSYNC_CACHE, else $XDG_CACHE_HOME/fastsync, else ~/.cache/fastsync."""
    if own := os.environ.get("FASTSYNC_CACHE"):
        return Path(own).absolute()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg).absolute() / "fastsync"
    return Path.home() / ".cache" / "fastsync"


def build_dir() -> Path:
    """Build products, one folder a kernel series."""
    return repo_root() / "build"


def results_dir() -> Path:
    """Result files (JSON) and plots."""
    return repo_root() / "results"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock for the time of a `with`, so that two builds do not meet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
