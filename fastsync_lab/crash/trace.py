"""What a workload did: its script, and the trace that programs/crashops.c makes of it."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from fastsync_lab.host.errors import FastsyncError

SECTOR = 512
UNITS = 32  # in a sector


@dataclass(frozen=True)
class Op:
    """An operation: what was called, when, and what stat() said of its file afterwards.

    `begin` and `end` order the operations of all threads; times are ns since the epoch. `ino` is 0
    if no file was left to look at.
    """

    number: int
    thread: int
    words: tuple[str, ...]
    begin: int
    end: int
    start_ns: int
    stop_ns: int
    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @property
    def name(self) -> str:
        """What was called: write, fsync, rename, ..."""
        return self.words[0]

    @property
    def path(self) -> str:
        """The first path."""
        return self.words[1]

    def integer(self, index: int) -> int:
        """An argument that is a number, in Python's or C's notation."""
        text = self.words[index]
        octal = len(text) > 1 and text.startswith("0") and text.isdigit()
        return int(text, 8 if octal else 0)


def parse_trace(text: str) -> list[Op]:
    """The operations, by number. Raises FastsyncError if one of them failed."""
    results = parse_results(text)
    for op, error in results:
        if error:
            line = " ".join(op.words)
            raise FastsyncError(f"operation {op.number} ({line}) failed with errno {error}")
    return [op for op, _ in results]


def parse_results(text: str) -> list[tuple[Op, int]]:
    """The operations, by number, and the errno of each, 0 if it succeeded."""
    lines = [json.loads(line) for line in text.splitlines()]
    return [(_op(data), int(data["errno"])) for data in lines]


def _op(data: dict[str, int | str]) -> Op:
    line = str(data["line"])
    number = {key: int(value) for key, value in data.items() if key != "line"}
    return Op(
        number["op"],
        number["thread"],
        tuple(line.split()),
        number["begin"],
        number["end"],
        number["start_ns"],
        number["stop_ns"],
        number["ino"],
        number["size"],
        number["mtime_ns"],
        number["ctime_ns"],
    )


def begun(ops: Iterable[Op], acknowledged: frozenset[int]) -> frozenset[int]:
    """The operations that may have begun: those that returned, and the next of each thread."""
    threads: set[int] = set()
    started = set(acknowledged)
    for op in ops:
        if op.number not in acknowledged and op.thread not in threads:
            threads.add(op.thread)
            started.add(op.number)
    return frozenset(started)


def sector_contents(number: int, sector: int) -> bytes:
    """What operation `number` writes to a whole sector of a file."""
    return f"{number:06x} {sector:08x}\n".encode() * UNITS
