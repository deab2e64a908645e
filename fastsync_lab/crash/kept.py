"""What runs of the explorer leave in build/crash/: recordings, and images of states that failed.

Each run records in a folder of its own, so that none reads what another one writes. A recording is
kept under its case's name when its states are judged; of two runs the last one's stays.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from fastsync_lab.host.paths import build_dir


def crash_dir() -> Path:
    """Recordings, and the images of states that failed."""
    return build_dir() / "crash"


@contextmanager
def folder_of_run() -> Iterator[Path]:
    """A folder for the recordings of one run; gone when it ends."""
    crash_dir().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory("", "run-", crash_dir()) as folder:
        yield Path(folder)


def keep_recording(folder: Path) -> None:
    """Keep a run's recording for a later look at one of its states."""
    kept = crash_dir() / folder.name
    with suppress(OSError):  # another run keeps its own at this moment
        shutil.rmtree(kept, ignore_errors=True)
        folder.rename(kept)


def take_recording(folder: Path, wanted: Mapping[str, str]) -> bool:
    """Copy what was kept under the name of `folder` to it, if it has files of these contents.

    False when there is none such.
    """
    kept = crash_dir() / folder.name
    if not _has(kept, wanted):
        return False
    with suppress(OSError):  # shutil.Error is one: another run replaces it at this moment,
        shutil.copytree(kept, folder)
        if _has(folder, wanted):  # or has done so since it was looked at
            return True
    shutil.rmtree(folder, ignore_errors=True)
    return False


def _has(folder: Path, wanted: Mapping[str, str]) -> bool:
    return all(
        (folder / name).is_file() and (folder / name).read_text() == text
        for name, text in wanted.items()
    )
