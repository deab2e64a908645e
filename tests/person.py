"""Somebody who sits at a terminal, for tests."""

import os
import pty
import select
import signal
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Person:
    """Somebody at a terminal with a program on it."""

    def __init__(self, master: int, limit_s: float) -> None:
        self.master = master
        self.limit_s = limit_s
        self.seen = ""

    def types(self, text: str) -> None:
        os.write(self.master, text.encode())

    def sees(self, text: str) -> None:
        """Wait for a text, and forget what came up to its end."""
        end = time.monotonic() + self.limit_s
        while text not in self.seen:
            left = end - time.monotonic()
            assert left > 0 and select.select([self.master], [], [], left)[0], self.seen
            self.seen += os.read(self.master, 1000).decode()
        self.seen = self.seen.partition(text)[2]


@contextmanager
def person_at(
    *command: str, rows: int = 33, columns: int = 111, limit_s: float = 60.0
) -> Iterator[tuple[int, Person]]:
    """A program with a terminal of that size: its process, and who sits there."""
    pid, master = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a script's `&` lets it be ignored
        os.execvp(command[0], command)
    try:
        termios.tcsetwinsize(master, (rows, columns))
        yield pid, Person(master, limit_s)
    finally:
        os.close(master)
