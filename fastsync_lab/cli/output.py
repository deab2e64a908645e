"""Can a command write where it is told to? That is asked before it begins."""

import tempfile
from pathlib import Path

from fastsync_lab.host.errors import FastsyncError


def check_writable(folder: Path) -> None:
    """Raise FastsyncError when files cannot be made in a folder, or in what is there of its path.

    It leaves nothing behind.
    """
    try:
        there = next(one for one in (folder, *folder.parents) if one.exists())
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise FastsyncError(f"cannot write into {folder}: {error.strerror}") from error


def output_file(file: Path) -> Path:
    """Where a file that a command is to write really lies: what is there will be replaced.

    Raises FastsyncError when that is no file (a device, say), or cannot be made.
    """
    real = file.resolve()
    if real.exists() and not real.is_file():
        raise FastsyncError(f"cannot write {file}: it is no regular file")
    check_writable(real.parent)
    return real
