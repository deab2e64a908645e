"""Is every committed transaction of a database there after a crash?"""

import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from fastsync_lab.crash.extfs import Image
from fastsync_lab.crash.recording import memory_dir
from fastsync_lab.host.errors import FastsyncError

DATABASE = "base.db"
DUMP = "SELECT id, value FROM item ORDER BY id"
NO_CHANGE = ("PRAGMA ", "USE ", "DO ")  # what a line begins with that changes no row

Rows = list[tuple[int, str]]
Reader = Callable[[Image, Path], Rows]  # in an empty folder; FastsyncError: the database is broken


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
    """Knows what the table holds after each line of a script."""

    def __init__(self, lines: Sequence[str], read: Reader) -> None:
        self._rows = rows_after(lines)
        self._read = read

    def problems(self, image: Image, acknowledged: frozenset[int]) -> list[str]:
        """What is wrong with the database in a recovered image."""
        with tempfile.TemporaryDirectory("", "fastsync-sql-", memory_dir()) as folder:
            try:
                rows = self._read(image, Path(folder))
            except FastsyncError as error:
                return [str(error)]
        last = max(acknowledged)
        if rows in self._rows[last : last + 2]:  # the next one may have been committed
            return []
        after = [number for number, there in enumerate(self._rows) if there == rows]
        is_there = f"what is there is that of {after[-1]}" if after else "it was never like that"
        return [f"the table: transaction {last} was committed, {is_there}"]


def read_sqlite(image: Image, folder: Path) -> Rows:
    """The table of a SQLite database. Raises FastsyncError if the database is broken."""
    for path, file in image.tree().items():
        if file.is_regular and path.startswith(DATABASE):
            (folder / path).write_bytes(image.contents(file.ino))
    if not (folder / DATABASE).exists():
        raise FastsyncError(f"{DATABASE} is not there")
    try:
        with closing(sqlite3.connect(folder / DATABASE)) as database:
            verdict = database.execute("PRAGMA integrity_check").fetchall()
            rows: Rows = database.execute(DUMP).fetchall()
    except sqlite3.Error as error:
        raise FastsyncError(f"{DATABASE}: {error}") from error
    if verdict != [("ok",)]:
        raise FastsyncError(f"{DATABASE}: integrity check: {verdict[0][0]}")
    return rows
