"""The oracle of databases."""

from pathlib import Path

import pytest

from fastsync_lab.crash.extfs import Image
from fastsync_lab.crash.kinds import make_base
from fastsync_lab.crash.sql import NO_CHANGE, Rows, SqlOracle, rows_after
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
    oracle = SqlOracle(LINES, lambda _image, _folder: rows)
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
        assert "it was never like that" in problems(image, rows, 4)[0]


def test_broken_database(image: Image) -> None:
    def fails(_image: Image, _folder: Path) -> Rows:
        raise FastsyncError("page 3 is torn")

    oracle = SqlOracle(LINES, fails)
    assert oracle.problems(image, frozenset({4})) == ["page 3 is torn"]


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
