"""This process's terminal, when a program elsewhere takes it over."""

import os
import shlex
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

DEFAULT_TERM = "linux"


def is_there() -> bool:
    """Whether stdin and stdout are a terminal."""
    return os.isatty(0) and os.isatty(1)


@contextmanager
def raw() -> Iterator[None]:
    """Pass each key on as it is, Ctrl-C too, for the time of a `with`."""
    before = termios.tcgetattr(0)
    try:
        tty.setraw(0)
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def on_terminal(command: Sequence[str]) -> list[str]:
    """A command that runs `command` on a terminal of its own, of this one's kind and size.

    Its streams may be pipes. Its exit status is that of `command`.
    """
    size = os.get_terminal_size(1)
    term = os.environ.get("TERM", DEFAULT_TERM)
    line = f"stty rows {size.lines} cols {size.columns}; exec {shlex.join(command)}"
    there = ["script", "--quiet", "--return", "--flush", "--echo", "always", "--command", line]
    return ["env", f"TERM={term}", *there, "/dev/null"]
