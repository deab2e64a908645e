"""What a MariaDB server on the host finds in an image, and what it says."""

from pathlib import Path

import pytest

from fastsync_lab.crash import mariadb
from fastsync_lab.crash.extfs import Image
from fastsync_lab.crash.guest import build_programs, built_program
from fastsync_lab.crash.sql import UnsoundDatabaseError
from fastsync_lab.host.shell import run

SCRIPT = (
    "USE crash",
    "CREATE TABLE item(id INTEGER PRIMARY KEY, value VARCHAR(2500))",
    "INSERT INTO item VALUES(1,'a'),(2,'b')",
    "BEGIN; DELETE FROM item WHERE id=1; UPDATE item SET value='c d' WHERE id=2; COMMIT",
    "BEGIN; DELETE FROM item",
)

READER = mariadb.reader(built_program("crashmaria"))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data folder of a server that was killed after the last line."""
    build_programs({"crashmaria"})
    folder = tmp_path_factory.mktemp("killed")
    (folder / "root").mkdir()
    data, script = folder / "root" / mariadb.FOLDER, folder / "script"
    script.write_text("".join(f"{line}\n" for line in SCRIPT))
    mariadb.initialize(data, folder)
    server = [mariadb.SERVER, *mariadb.arguments(str(data), str(folder))]
    client = str(built_program("crashmaria"))
    run([client, "", str(folder / "socket"), str(script), *server], timeout_s=60)
    return folder


def image_of(folder: Path, target: Path) -> Image:
    with target.open("wb") as file:
        file.truncate(24 << 20)
    run(["/sbin/mkfs.ext4", "-q", "-F", "-b", "4096", "-d", str(folder / "root"), str(target)])
    return Image(target.read_bytes())


def test_committed_rows_are_there(killed: Path, tmp_path: Path) -> None:
    image = image_of(killed, tmp_path / "image")
    rows = READER.read(READER.files(image))
    assert rows == [(2, "c d")]


@pytest.mark.parametrize(("file", "problem"), [
    ("ib_logfile0", "InnoDB"),
    ("ibdata1", "InnoDB"),
    ("crash/item.frm", "item"),
])  # fmt: skip
def test_damage_is_found(killed: Path, tmp_path: Path, file: str, problem: str) -> None:
    copy = tmp_path / "copy"
    run(["cp", "-r", str(killed), str(copy)])
    (copy / "root" / mariadb.FOLDER / file).write_bytes(bytes(40000))
    image = image_of(copy, tmp_path / "image")
    with pytest.raises(UnsoundDatabaseError, match=problem):
        READER.read(READER.files(image))


def test_no_database(tmp_path: Path) -> None:
    build_programs({"crashmaria"})
    (tmp_path / "root").mkdir()
    image = image_of(tmp_path, tmp_path / "image")
    with pytest.raises(UnsoundDatabaseError, match="the server ended"):
        READER.read(READER.files(image))


def test_answer_of_a_sound_table() -> None:
    text = "crash.item\tcheck\tstatus\tOK\n1\ta\n22\tb c\n"
    assert mariadb.parse_answer(text) == [(1, "a"), (22, "b c")]
    assert mariadb.parse_answer("crash.item\tcheck\tstatus\tOK\n") == []


@pytest.mark.parametrize(
    "text",
    [
        "1\ta\n",
        "crash.item\tcheck\tError\tTable 'crash.item' doesn't exist\n"
        "crash.item\tcheck\tstatus\tOperation failed\n",
        "crash.item\tcheck\tWarning\tInnoDB: Index by_value has 3 entries, not 4\n"
        "crash.item\tcheck\tstatus\tOK\n",
    ],
)
def test_answer_of_a_broken_table(text: str) -> None:
    with pytest.raises(UnsoundDatabaseError, match="CHECK TABLE"):
        mariadb.parse_answer(text)


def test_errors_of_a_server() -> None:
    log = (
        "2026-01-01 0:00:00 0 [Note] InnoDB: Starting\n"
        "2026-01-01 0:00:00 0 [ERROR] InnoDB: Page 3 log sequence number is in the future\n"
        "2026-01-01 0:00:00 0 [Warning] no time zones\n"
    )
    assert mariadb.errors_in(log) == ["InnoDB: Page 3 log sequence number is in the future"]
