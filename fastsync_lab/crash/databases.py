"""Transactions of SQLite and MariaDB."""

import random
from collections.abc import Iterable

from fastsync_lab.crash.script import Script

MARIADB_MIB = 24
SQLITE_MODES = ("delete", "truncate", "persist", "wal")


def sqlite(rng: random.Random, mode: str) -> Script:
    """Transactions on one table; synchronous=EXTRA, so that each survives its COMMIT."""
    script = Script(sql=True)
    script.lines += [
        f"PRAGMA journal_mode={mode}",
        "PRAGMA synchronous=EXTRA",
        "PRAGMA wal_autocheckpoint=12",
        "CREATE TABLE item(id INTEGER PRIMARY KEY, value TEXT)",
    ]
    script.lines.append(f"INSERT INTO item VALUES {_rows(range(20), 'x' * 100)}")
    script.prepared = len(script.lines)
    for number in range(30):
        row = rng.randrange(20)
        script.lines.append(
            rng.choice(
                [
                    f"INSERT INTO item VALUES({100 + number},'{number:0300}')",
                    f"UPDATE item SET value='{number:0150}' WHERE id={row}",
                    f"DELETE FROM item WHERE id={row}",
                    f"UPDATE item SET value=value||'{number}' WHERE id<10",
                ]
            )
        )
    return script


def mariadb(rng: random.Random, limit: int, flushing: str) -> Script:
    """Transactions of one or several statements on a table with an index; it grows and shrinks.

    Each makes some four places to cut: there are an eighth as many as states.
    """
    script = Script(sql=True, flushing=flushing, device_mib=MARIADB_MIB)
    script.lines += [
        "USE crash",
        "CREATE TABLE item(id INTEGER PRIMARY KEY, value VARCHAR(2500))",
        "CREATE INDEX by_value ON item(value)",
        f"INSERT INTO item VALUES {_rows(range(20), 'x' * 100)}",
        "DO SLEEP(1.5)",
    ]
    script.prepared = len(script.lines)
    for number in range(max(6, limit // 8)):
        row = rng.randrange(20)
        script.lines.append(
            rng.choice(
                [
                    f"INSERT INTO item VALUES {_rows([100 + number], f'{number:0300}')}",
                    f"UPDATE item SET value='{number:0150}' WHERE id={row}",
                    f"DELETE FROM item WHERE id={row}",
                    f"UPDATE item SET value='{number:01900}' WHERE id<10",
                    f"BEGIN; DELETE FROM item WHERE id={row}; "
                    f"INSERT INTO item VALUES {_rows([200 + number], f'{number:02000}')}; COMMIT",
                    "BEGIN; DELETE FROM item WHERE id>=1000; INSERT INTO item VALUES "
                    f"{_rows(range(1000, 1040), f'{number:0300}')}; COMMIT",
                ]
            )
        )
        if rng.random() < 0.3:  # the server writes pages
            script.lines.append(f"DO SLEEP({rng.choice([0.02, 0.15, 1.1])})")
    return script


def _rows(ids: Iterable[int], value: str) -> str:
    return ",".join(f"({row},'{value}{row}')" for row in ids)
