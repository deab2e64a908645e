"""What guests print on their consoles: files in build/logs/.

What the machine itself has to say stands there, too. Of guests that have ended the newest logs are
kept. One that runs may say nothing for hours: while there is its Console, its log is locked.
"""

import fcntl
import os
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

from fastsync_lab.host.paths import build_dir, try_lock

KEPT_LOGS = 50


class Console:
    """The console of one guest; its machine, QEMU or User-Mode Linux, writes to `path`."""

    def __init__(self) -> None:
        folder = build_dir() / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        forget_oldest(folder, KEPT_LOGS - 1)
        handle, name = tempfile.mkstemp(prefix="console-", suffix=".log", dir=folder)
        fcntl.flock(handle, fcntl.LOCK_SH)
        weakref.finalize(self, os.close, handle)
        self.path = Path(name)

    def size(self) -> int:
        """Bytes so far."""
        return self.path.stat().st_size if self.path.exists() else 0

    def text(self, start: int = 0) -> str:
        """What came after the first `start` bytes."""
        data = self.path.read_bytes() if self.path.exists() else b""
        return data[start:].decode(errors="replace").replace("\r", "")


def forget_oldest(folder: Path, count: int) -> None:
    """Remove all logs of a folder but the `count` that were written last, and those locked.

    Another guest that starts at the same moment may remove them, too. Those of another user stay.
    """
    logs = []
    for file in folder.glob("console-*.log"):
        with suppress(FileNotFoundError):
            logs.append((file.stat().st_mtime_ns, file))
    for _, file in sorted(logs, reverse=True)[count:]:
        with suppress(FileNotFoundError, PermissionError), file.open() as log:
            if try_lock(log):
                file.unlink()
