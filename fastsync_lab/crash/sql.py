"""Is every committed transaction of a database there after a crash?"""

import hashlib
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fastsync_lab.crash.extfs import DIRECTORY, REGULAR, Image
from fastsync_lab.crash.recording import memory_dir
from fastsync_lab.host.errors import FastsyncError

DATABASE = "base.db"
DUMP = "SELECT id, value FROM item ORDER BY id"
NO_CHANGE = ("PRAGMA ", "USE ", "DO ")  # what a line begins with that changes no row

Rows = list[tuple[int, str]]
Files = dict[str, bytes | None]  # what is in them by path; a folder has nothing, and comes first


class UnsoundDatabaseError(FastsyncError):
    """The files of a database are not sound. It is their fault, and so they always fail."""


@dataclass(frozen=True)
class Reader:
    """How a database is read: which paths are its own, and what the table holds.

    `rows` is given a folder with these files. It raises UnsoundDatabaseError if the database is
    broken, and another FastsyncError if that could not be found out.
    """

    belongs: Callable[[str], bool]
    rows: Callable[[Path], Rows]

    def files(self, image: Image) -> Files:
        """The files of a database in an image."""
        found: Files = {}
        for path, ino in image.paths():
            if self.belongs(path) and (kind := image.kind(ino)) in (DIRECTORY, REGULAR):
                found[path] = image.contents(ino) if kind == REGULAR else None
        return found

    def read(self, files: Files) -> Rows:
        """What the table holds of a database that has these files. Raises as `rows` does."""
        with tempfile.TemporaryDirectory("", "fastsync-sql-", memory_dir()) as folder:
            for path, contents in files.items():
                if contents is None:
                    Path(folder, path).mkdir()
                else:
                    Path(folder, path).write_bytes(contents)
            return self.rows(Path(folder))


def digest(files: Files) -> bytes:
    """A hash of all that reading a database can depend on."""
    found = hashlib.blake2b()
    for path, contents in files.items():
        size = -1 if contents is None else len(contents)
        found.update(f"{path}\0{size}\0".encode())
        found.update(contents or b"")
    return found.digest()


def rows_after(lines: Sequence[str]) -> list[Rows]:
    """What the table holds after each line of a script; nothing before it is created."""
    rows: list[Rows] = []
    created = False
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        for line in lines:
            if not line.startswith(NO_CHANGE):
                database.executescript(line)
            created |= line.startswith("CREATE TABLE")
            rows.append(database.execute(DUMP).fetchall() if created else [])
    return rows


class SqlOracle:
    """Knows what the table holds after each line of a script.

    Many states leave a database the same files. It is read once, for starting a server takes longer
    than all else.
    """

    def __init__(self, lines: Sequence[str], reader: Reader) -> None:
        self._rows = rows_after(lines)
        self._reader = reader
        self._known: dict[bytes, Rows | str] = {}

    def problems(self, image: Image, acknowledged: frozenset[int]) -> list[str]:
        """What is wrong with the database in a recovered image."""
        rows = self._read(self._reader.files(image))
        if isinstance(rows, str):
            return [rows]
        last = max(acknowledged)
        if rows in self._rows[last : last + 2]:  # the next one may have been committed
            return []
        after = [number for number, there in enumerate(self._rows) if there == rows]
        is_there = f"what is there is that of {after[-1]}" if after else "it was never like that"
        return [f"the table: transaction {last} was committed, {is_there}"]

    def _read(self, files: Files) -> Rows | str:
        """What the table holds, or what is wrong with the database.

        Raises FastsyncError if that could not be found out.
        """
        key = digest(files)
        if key not in self._known:
            try:
                self._known[key] = self._reader.read(files)
            except UnsoundDatabaseError as error:
                self._known[key] = str(error)  # the error itself would keep all the files
        return self._known[key]


def read_sqlite(folder: Path) -> Rows:
    """The table of a SQLite database. Raises UnsoundDatabaseError if the database is broken."""
    if not (folder / DATABASE).exists():
        raise UnsoundDatabaseError(f"{DATABASE} is not there")
    try:
        with closing(sqlite3.connect(folder / DATABASE)) as database:
            verdict = database.execute("PRAGMA integrity_check").fetchall()
            rows: Rows = database.execute(DUMP).fetchall()
    except sqlite3.Error as error:
        raise UnsoundDatabaseError(f"{DATABASE}: {error}") from error
    if verdict != [("ok",)]:
        raise UnsoundDatabaseError(f"{DATABASE}: integrity check: {verdict[0][0]}")
    return rows


SQLITE = Reader(lambda path: path.startswith(DATABASE), read_sqlite)
