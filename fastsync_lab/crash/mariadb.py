"""A MariaDB server on the recorded device, and what a server on the host finds after a crash."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fastsync_lab.crash.sql import DUMP, Reader, Rows, UnsoundDatabaseError
from fastsync_lab.host.shell import last_lines, run

SERVER = "/usr/sbin/mariadbd"
FOLDER = "mariadb"  # on the device
SCHEMA = "crash"
TABLE = f"{SCHEMA}.item"
TIMEOUT_S = 1800  # of a server that hangs; it takes a second
# As small as InnoDB allows, with its default pages of 16 KiB; temporary tables are kept elsewhere.
# Changed pages are written as soon as the server finds time to, through the doublewrite buffer.
OPTIONS = (
    "--no-defaults",
    "--user=root",
    "--skip-grant-tables",
    "--skip-networking",
    "--character-set-server=latin1",
    "--innodb-data-home-dir=",
    "--innodb-data-file-path=ibdata1:10M:autoextend",
    "--innodb-log-file-size=4M",
    "--innodb-buffer-pool-size=8M",
    "--innodb-buffer-pool-dump-at-shutdown=OFF",
    "--innodb-buffer-pool-load-at-startup=OFF",
    "--innodb-stats-persistent=OFF",
    "--innodb-doublewrite=ON",
    "--innodb-use-native-aio=OFF",  # programs/innodbsync.c says why
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-max-dirty-pages-pct=0",
)
CHECK = ("USE crash", f"CHECK TABLE {TABLE} EXTENDED", DUMP)


@dataclass(frozen=True)
class Flushing:
    """How a server writes: more options, and whether each of its fdatasync() is an fsync()."""

    options: tuple[str, ...]
    fsync_only: bool


FLUSHING: Mapping[str, Flushing] = {
    "direct": Flushing(("--innodb-flush-method=O_DIRECT",), fsync_only=False),  # the defaults
    "fsync": Flushing(
        ("--innodb-flush-method=fsync", "--innodb-log-file-buffering=ON"), fsync_only=True
    ),
}


def arguments(data: str, scratch: str) -> list[str]:
    """The server's arguments for a data folder; all else is in the folder `scratch`."""
    return [
        *OPTIONS,
        f"--datadir={data}",
        f"--socket={scratch}/socket",
        f"--pid-file={scratch}/pid",
        f"--tmpdir={scratch}",
        f"--innodb-temp-data-file-path={scratch}/ibtmp1:12M:autoextend",
    ]


def initialize(data: Path, scratch: Path) -> None:
    """A new data folder with an empty database. Raises FastsyncError if the server fails."""
    data.mkdir()
    argv = [SERVER, *arguments(str(data), str(scratch)), "--bootstrap"]
    run(argv, input_text=f"CREATE SCHEMA {SCHEMA};\n", timeout_s=TIMEOUT_S)


def reader(client: Path) -> Reader:
    """How a server on the host, and that client, read the table."""
    return Reader(lambda path: path.split("/")[0] == FOLDER, partial(read_table, client=client))


def read_table(folder: Path, client: Path) -> Rows:
    """The table, as a server on the host reads it.

    Raises UnsoundDatabaseError if the server cannot recover the database, or finds fault with it;
    FastsyncError if it does not answer.
    """
    script = folder / "check.sql"
    script.write_text("".join(f"{line}\n" for line in CHECK))
    server = [SERVER, *arguments(str(folder / FOLDER), str(folder)), "--innodb-flush-method=nosync"]
    done = run(
        [str(client), "", str(folder / "socket"), str(script), *server],
        check=False,
        timeout_s=TIMEOUT_S,
    )
    if done.status:
        raise UnsoundDatabaseError(f"MariaDB: {last_lines(done.stderr)}")
    if errors := errors_in(done.stderr):
        raise UnsoundDatabaseError(f"MariaDB: {' | '.join(errors[:3])}")
    return parse_answer(done.stdout)


def errors_in(log: str) -> list[str]:
    """The errors in a server's log, which is on its stderr, without their time."""
    return [match[1] for match in re.finditer(r"\[ERROR\] (.*)", log)]


def parse_answer(text: str) -> Rows:
    """The rows that CHECK returns. Raises UnsoundDatabaseError if the table is not sound."""
    lines = [line.split("\t") for line in text.splitlines()]
    checks = [words[1:] for words in lines if words[0] == TABLE]
    if checks != [["check", "status", "OK"]]:
        raise UnsoundDatabaseError(
            f"MariaDB: CHECK TABLE: {[' '.join(words) for words in checks][:3]}"
        )
    return [(int(words[0]), words[1]) for words in lines if words[0] != TABLE]
