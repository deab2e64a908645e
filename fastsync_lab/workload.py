"""The programs that run in the guest: fio, with an fstat before each write or not, and sqlbench.

Beside fio another process may work on a file of its own: the neighbour.

Everything here makes bash for the guest or builds a program on the host; nothing runs a guest.
"""

import hashlib
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fastsync_lab.errors import FastsyncError
from fastsync_lab.paths import build_dir, cache_dir
from fastsync_lab.progress import Report, silent
from fastsync_lab.shell import run

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
BLOCK_KIB = 4
SETTLE_S = 6  # longer than jbd2's periodic commit and the first write-back (5 s)

SQLITE_MODES = ("PERSIST", "TRUNCATE", "DELETE", "WAL")
SQLITE_PHASES = ("insert", "update", "delete")
NEIGHBOURS = ("stat", "write")


@dataclass(frozen=True)
class Programs:
    """What was built for the guest: sqlbench by its sync call, the fstat shim, the neighbour."""

    sqlbench: dict[str, Path]
    statwrite: Path
    neighbour: Path

    def digest(self) -> str:
        """A hash of all of them."""
        files = [*(self.sqlbench[call] for call in SYNC_CALLS), self.statwrite, self.neighbour]
        return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


@dataclass(frozen=True)
class Workload:
    """One thing to run on a mounted file system.

    `kind` is "fio" (4 KiB overwrites of a file of `file_mib`, `pattern` "write" or "randwrite",
    for `seconds` of the guest's time, an fstat before each write if `stat_first`) or "sqlite"
    (`journal_mode`; `operations` transactions in each phase on a table of `rows` rows).

    `neighbour`, beside fio only: a process that every `neighbour_us` microseconds asks for the
    stamps of a file and writes to its own, on the same file system or on a tmpfs. With "stat" both
    are one file; with "write" they are two, so that nobody asks for the stamps of what it writes.
    """

    name: str
    kind: str
    pattern: str = "randwrite"
    stat_first: bool = False
    file_mib: int = 100
    seconds: int = 5
    journal_mode: str = "PERSIST"
    operations: int = 1000
    rows: int = 10000
    neighbour: str | None = None
    neighbour_on_tmpfs: bool = False
    neighbour_us: int = 1000

    def __post_init__(self) -> None:
        """Raises FastsyncError for a neighbour that there is not."""
        if self.neighbour is not None and (
            self.neighbour not in NEIGHBOURS or self.kind != "fio" or self.neighbour_us < 1
        ):
            raise FastsyncError(
                f"workload {self.name!r}: a neighbour is one of {', '.join(NEIGHBOURS)}, every "
                "1 us or more, beside fio"
            )

    def phases(self) -> tuple[str, ...]:
        """The parts of a run that are measured one by one."""
        return SQLITE_PHASES if self.kind == "sqlite" else ("overwrite",)


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
    if (folder / "sqlite3.c").exists():
        return folder
    report(f"fetching the source of SQLite {SQLITE_VERSION} by pip")
    folder.mkdir(parents=True, exist_ok=True)
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
    (folder / "sqlite3.h").write_bytes(contents["sqlite3.h"])
    temporary_c = folder / "sqlite3.c.new"
    temporary_c.write_bytes(pristine_amalgamation(contents["sqlite3.c"]))
    temporary_c.rename(folder / "sqlite3.c")
    return folder


def sqlbench_command(sync_call: str, sqlite: Path, output: Path) -> list[str]:
    """The compiler's command for sqlbench with SQLite in it, static, calling `sync_call`."""
    flags = [*SQLITE_FLAGS, *(["-DHAVE_FDATASYNC=1"] if sync_call == "fdatasync" else [])]
    sources = [str(programs_source() / "sqlbench.c"), str(sqlite / "sqlite3.c")]
    return ["gcc", "-O2", "-static", *flags, f"-I{sqlite}", *sources, "-lm", "-o", str(output)]


def statwrite_command(output: Path) -> list[str]:
    """The compiler's command for the library that puts an fstat before each write."""
    source = str(programs_source() / "statwrite.c")
    return ["gcc", "-O2", "-fPIC", "-shared", source, "-ldl", "-o", str(output)]


def plain_command(name: str, output: Path) -> list[str]:
    """The compiler's command for a program that is one file, static."""
    return ["gcc", "-O2", "-static", str(programs_source() / f"{name}.c"), "-o", str(output)]


def build_waitbench(report: Report = silent) -> Path:
    """Build the benchmarks of the experiment qasio; FastsyncError when the compiler fails."""
    output = build_dir() / "programs" / "waitbench"
    output.parent.mkdir(parents=True, exist_ok=True)
    compile_changed(output, plain_command("waitbench", output), report)
    return output


def build_programs(report: Report = silent) -> Programs:
    """Build what has changed (25 s on two cores the first time).

    Raises FastsyncError when the source cannot be had or the compiler fails.
    """
    folder = build_dir() / "programs"
    folder.mkdir(parents=True, exist_ok=True)
    sqlite = fetch_sqlite(report)
    bench = {call: folder / f"sqlbench-{call}" for call in SYNC_CALLS}
    shim, neighbour = folder / "statwrite.so", folder / "neighbour"
    jobs = [(bench[call], sqlbench_command(call, sqlite, bench[call])) for call in SYNC_CALLS]
    jobs += [(shim, statwrite_command(shim)), (neighbour, plain_command("neighbour", neighbour))]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda job: compile_changed(job[0], job[1], report), jobs))
    return Programs(bench, shim, neighbour)


def compile_changed(output: Path, command: Sequence[str], report: Report = silent) -> None:
    """Run a compiler's command, unless its output is there, of the same sources and headers."""
    digest = hashlib.sha256(repr(command).encode())
    named = [Path(word) for word in command if word.endswith(".c") and "/" in word]
    for file in (*named, *sorted(programs_source().glob("*.h"))):
        digest.update(file.read_bytes())
    stamp = output.with_suffix(output.suffix + ".stamp")
    if output.exists() and stamp.exists() and stamp.read_text() == digest.hexdigest():
        return
    report(f"compiling {output.name}")
    run(command, timeout_s=300)
    stamp.write_text(digest.hexdigest())


# --- bash for the guest ------------------------------------------------------------------------


def neighbour_files(workload: Workload, guest: "GuestPaths") -> tuple[str, str]:
    """The file that the neighbour writes, and the one whose stamps it asks for."""
    folder = guest.tmpfs if workload.neighbour_on_tmpfs else "."
    written = f"{folder}/neighbour-written"
    return written, written if workload.neighbour == "stat" else f"{folder}/neighbour-asked"


def prepare_script(workload: Workload, guest: "GuestPaths") -> str:
    """Bash that lays the workload's files, fully written, in the current folder and lets them rest.

    The neighbour's have their block, too: no write of its allocates one.
    """
    if workload.kind == "sqlite":
        return "sync"  # sqlbench fills its table and rests by itself
    neighbour = "".join(
        f"dd if=/dev/zero of={file} bs=4k count=1 conv=fsync 2>&1\n"
        for file in dict.fromkeys(neighbour_files(workload, guest))
        if workload.neighbour
    )
    return (
        f"{neighbour}fallocate -l {workload.file_mib}M file\n"
        f"dd if=/dev/zero of=file bs=1M count={workload.file_mib} oflag=direct "
        "conv=notrunc,fsync 2>&1\n"
        f"sync; sleep {SETTLE_S}"
    )


# Of every run of fio: the same requests in the same order, timed by the guest's clock, as JSON.
FIO_ARGUMENTS = (
    "--time_based",
    "--thread",
    "--norandommap",
    "--randrepeat=1",
    "--clocksource=clock_gettime",
    "--disk_util=0",
    "--eta=never",
    "--output-format=json",
)


def fio_arguments(workload: Workload, sync_call: str) -> list[str]:
    """fio's arguments; the file is in the current folder."""
    return [
        "--name=overwrite",
        "--filename=file",
        f"--filesize={workload.file_mib}M",
        f"--rw={workload.pattern}",
        f"--bs={BLOCK_KIB}k",
        "--ioengine=psync",
        f"--{sync_call}=1",
        f"--runtime={workload.seconds}s",
        "--fallocate=none",
        *FIO_ARGUMENTS,
    ]


def run_command(workload: Workload, sync_call: str, guest: "GuestPaths") -> str:
    """Bash that runs the workload once in the current folder and prints its JSON."""
    if workload.kind == "sqlite":
        return (
            f"{guest.sqlbench[sync_call]} item.db {workload.journal_mode} {workload.operations} "
            f"{workload.rows} {guest.marker}"
        )
    preload = f"LD_PRELOAD={guest.statwrite} " if workload.stat_first else ""
    arguments = " ".join(fio_arguments(workload, sync_call))
    phase = workload.phases()[0]
    start = end = ""
    if workload.neighbour:
        files = " ".join(neighbour_files(workload, guest))
        start = f"{guest.neighbour} {files} {workload.neighbour_us} >{guest.neighbour_log} &\n"
        end = "kill $! && wait $! || status=1\n"
    return (
        f"{start}echo fastsync begin {phase} >{guest.marker}\n"
        f"{preload}{guest.fio} {arguments}\n"
        "status=$?\n"
        f"echo fastsync end {phase} >{guest.marker}\n"
        f"{end}(exit $status)"
    )


@dataclass(frozen=True)
class GuestPaths:
    """Where the programs lie in the guest's memory, what it has of files, and its trace marker."""

    fio: str
    sqlbench: dict[str, str]
    statwrite: str
    neighbour: str = ""
    neighbour_log: str = "/run/fastsync/neighbour.json"
    tmpfs: str = "/run/fastsync"
    marker: str = "/sys/kernel/tracing/trace_marker"
