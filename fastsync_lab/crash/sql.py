"""Is every committed transaction of a SQLite database there after a crash?"""

import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from fastsync_lab.crash.extfs import Image

DATABASE = "base.db"
DUMP = "SELECT id, value FROM item ORDER BY id"

Rows = list[tuple[int, str]]


class SqlOracle:
    """Knows what the table holds after each line of a script."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._rows: list[Rows] = []
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
            for line in lines:
                if not line.startswith("PRAGMA"):
                    database.execute(line)
                created = any(text.startswith("CREATE") for text in lines[: len(self._rows) + 1])
                self._rows.append(database.execute(DUMP).fetchall() if created else [])

    def problems(self, image: Image, acknowledged: frozenset[int]) -> list[str]:
        """What is wrong with the database in a recovered image."""
        files = {
            path: image.contents(file.ino)
            for path, file in image.tree().items()
            if file.is_regular and path.startswith(DATABASE)
        }
        if DATABASE not in files:
            return [f"{DATABASE} is not there"]
        with tempfile.TemporaryDirectory() as folder:
            for path, contents in files.items():
                (Path(folder) / path).write_bytes(contents)
            try:
                return self._compare(Path(folder) / DATABASE, max(acknowledged))
            except sqlite3.Error as error:
                return [f"{DATABASE}: {error}"]

    def _compare(self, path: Path, last: int) -> list[str]:
        with closing(sqlite3.connect(path)) as database:
            verdict = database.execute("PRAGMA integrity_check").fetchall()
            rows = database.execute(DUMP).fetchall()
        if verdict != [("ok",)]:
            return [f"{DATABASE}: integrity check: {verdict[0][0]}"]
        allowed = self._rows[last : last + 2]  # the next one may have been committed
        if rows not in allowed:
            after = [number for number, there in enumerate(self._rows) if there == rows]
            is_there = (
                f"what is there is that of {after[-1]}" if after else "it was never like that"
            )
            return [f"{DATABASE}: transaction {last} was committed, {is_there}"]
        return []
