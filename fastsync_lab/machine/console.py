"""What guests print on their consoles: files in build/logs/, of which the newest are kept.

What QEMU itself has to say stands there, too.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from fastsync_lab.host.paths import build_dir

KEPT_LOGS = 50


class Console:
    """The console of one guest, which QEMU writes to `path`."""

    def __init__(self) -> None:
        folder = build_dir() / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        forget_oldest(folder, KEPT_LOGS - 1)
        handle, name = tempfile.mkstemp(prefix="console-", suffix=".log", dir=folder)
        os.close(handle)
        self.path = Path(name)

    def size(self) -> int:
        """Bytes so far."""
        return self.path.stat().st_size if self.path.exists() else 0

    def text(self, start: int = 0) -> str:
        """What came after the first `start` bytes."""
        data = self.path.read_bytes() if self.path.exists() else b""
        return data[start:].decode(errors="replace").replace("\r", "")


def forget_oldest(folder: Path, count: int) -> None:
    """Remove all logs of a folder but the `count` that were written last.

    Another guest that starts at the same moment may remove them, too.
    """
    logs = []
    for file in folder.glob("console-*.log"):
        with suppress(FileNotFoundError):
            logs.append((file.stat().st_mtime_ns, file))
    for _, file in sorted(logs, reverse=True)[count:]:
        file.unlink(missing_ok=True)
