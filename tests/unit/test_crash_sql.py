"""The oracle of databases."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from fastsync_lab.crash.extfs import DIRECTORY, REGULAR, Image
from fastsync_lab.crash.kinds import make_base
from fastsync_lab.crash.sql import (
    NO_CHANGE,
    SQLITE,
    Reader,
    Rows,
    SqlOracle,
    UnsoundDatabaseError,
    rows_after,
)
from fastsync_lab.crash.workloads import make_script, workload_names
from fastsync_lab.host.errors import FastsyncError

LINES = (
    "USE crash",
    "CREATE TABLE item(id INTEGER PRIMARY KEY, value VARCHAR(2000))",
    "INSERT INTO item VALUES(1,'a')",
    "DO SLEEP(1)",
    "BEGIN; DELETE FROM item WHERE id=1; INSERT INTO item VALUES(2,'b'); COMMIT",
    "UPDATE item SET value='c' WHERE id=2",
)
AFTER_2, AFTER_4, AFTER_5 = [(1, "a")], [(2, "b")], [(2, "c")]


@pytest.fixture
def image(tmp_path: Path) -> Image:
    make_base(tmp_path / "image", 12)
    return Image((tmp_path / "image").read_bytes())


def problems(image: Image, rows: Rows, last: int) -> list[str]:
    oracle = SqlOracle(LINES, Reader(bool, lambda _folder: rows))
    return oracle.problems(image, frozenset(range(last + 1)))


def test_last_transaction_or_the_next(image: Image) -> None:
    assert problems(image, AFTER_2, 2) == []
    assert problems(image, AFTER_2, 3) == []
    assert problems(image, AFTER_4, 3) == []
    assert problems(image, AFTER_4, 4) == []
    assert problems(image, AFTER_5, 4) == []
    assert problems(image, AFTER_5, 5) == []


def test_lost_transaction(image: Image) -> None:
    assert "transaction 4 was committed, what is there is that of 3" in problems(
        image, AFTER_2, 4
    )[0]  # fmt: skip
    assert "what is there is that of 5" in problems(image, AFTER_5, 3)[0]


def test_half_a_transaction(image: Image) -> None:
    for rows in ([(1, "b")], [(1, "a"), (2, "b")]):
        assert problems(image, rows, 4) == [
            "the table: transaction 4 was committed, it was never like that"
        ]


def test_broken_database(image: Image) -> None:
    def fails(_folder: Path) -> Rows:
        raise UnsoundDatabaseError("page 3 is torn")

    oracle = SqlOracle(LINES, Reader(bool, fails))
    for _ in range(2):
        assert oracle.problems(image, frozenset({4})) == ["page 3 is torn"]


def test_a_server_that_does_not_answer_says_nothing_of_the_files(image: Image) -> None:
    answers = MagicMock(side_effect=[FastsyncError("the server took too long"), AFTER_5])
    oracle = SqlOracle(LINES, Reader(bool, answers))
    with pytest.raises(FastsyncError, match="too long"):
        oracle.problems(image, frozenset({5}))
    assert oracle.problems(image, frozenset({5})) == []


class Files:
    """An image with these files, folders where there are no contents, and a symbolic link."""

    def __init__(self, files: Mapping[str, bytes | None]) -> None:
        self._files = files

    def paths(self) -> list[tuple[str, str]]:
        return [(name, name) for name in (*self._files, "base.db-link")]

    def kind(self, ino: str) -> int:
        if ino not in self._files:
            return 0o120000
        return DIRECTORY if self._files[ino] is None else REGULAR

    def contents(self, ino: str) -> bytes:
        contents = self._files[ino]
        assert contents is not None
        return contents


def test_a_database_is_read_once_for_all_images_that_have_the_same_files() -> None:
    """Its own files and folders count, by name and by what is in them, and no others."""
    read = []

    def rows(folder: Path) -> Rows:
        there = sorted(folder.rglob("*"))
        read.append({path.name: path.is_file() and path.read_bytes() for path in there})
        return AFTER_2

    oracle = SqlOracle(LINES, Reader(lambda path: path.startswith("base.db"), rows))
    different: list[dict[str, bytes | None]] = [
        {"base.db": b"ab"},
        {"base.db": b"a"},
        {"base.db": b"a", "base.db-wal": b""},
        {"base.db": b"", "base.db-wal": b"a"},
        {"base.db": None, "base.db/f": b"a"},
        {"base.db": None, "base.db/g": b"a"},
    ]
    for others in ({}, {"other": b"x"}, {"other": b"y"}):
        for files in different:
            image: Any = Files({**files, **others})
            assert oracle.problems(image, frozenset({2})) == []
    assert read[:4] == different[:4]
    assert read[4:] == [{"base.db": False, "f": b"a"}, {"base.db": False, "g": b"a"}]


def database(folder: Path, *, journal: str = "DELETE") -> dict[str, bytes]:
    """The files of a database with the last of the rows above, as a crash leaves them."""
    path = folder / "base.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as made:
        made.execute(f"PRAGMA journal_mode={journal}")
        for line in LINES[1:]:
            if not line.startswith(NO_CHANGE):
                made.executescript(line)
        return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_a_database_is_read_with_what_lies_beside_it(journal: str, tmp_path: Path) -> None:
    files = database(tmp_path, journal=journal)
    assert len(files) == (3 if journal == "WAL" else 1)
    image: Any = Files({"other": b"", **files})
    assert SQLITE.read(SQLITE.files(image)) == AFTER_5
    assert SQLITE.files(image) == files


def test_a_database_that_is_broken_or_not_there_is_an_error(
    tmp_path: Path,
) -> None:
    (whole,) = database(tmp_path).values()
    five_free = whole[:36] + (5).to_bytes(4) + whole[40:]  # so many free pages, says the header
    for files, message in (
        ({}, "base.db is not there"),
        ({"base.db": b"no database " * 100}, "base.db: file is not a database"),
        ({"base.db": five_free}, "base.db: integrity check: *** in database main ***"),
    ):
        image: Any = Files(files)
        with pytest.raises(UnsoundDatabaseError) as caught:
            SQLITE.read(SQLITE.files(image))
        assert str(caught.value).startswith(message)


@pytest.mark.parametrize("name", [n for n in workload_names() if make_script(n, 1, 100).sql])
@pytest.mark.parametrize("seed", range(3))
def test_transactions_change_the_table(name: str, seed: int) -> None:
    """The loss of one that does not would not be seen: most have to."""
    script = make_script(name, seed, 200)
    rows = rows_after(script.lines)
    transactions = [
        number
        for number in range(script.prepared, len(rows))
        if not script.lines[number].startswith(NO_CHANGE)
    ]
    changed = [number for number in transactions if rows[number] != rows[number - 1]]
    assert len(changed) > 0.7 * len(transactions) > 10
