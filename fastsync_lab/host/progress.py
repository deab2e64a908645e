"""How long work tells what it is doing.

Work calls a Report with a message. A plain one names a step that begins; `Finished` is a result,
and `Passing` says how far the step has come, of which only the last one counts.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

Report = Callable[[str], None]

PASSING_EACH_S = 30.0  # on what is no terminal
MB = 1_000_000


class Passing(str):
    """How far a step has come; the next message takes its place."""

    __slots__ = ()


class Finished(str):
    """What came of something; it stays to be read."""

    __slots__ = ()


class Screen(Protocol):
    """A terminal: lines that stay, and below them what is under way."""

    def keep(self, line: str) -> None:
        """Show a line for good."""

    def status(self, text: str, *, new_step: bool) -> None:
        """Show what is under way, with the time since the step began."""


def silent(_message: str) -> None:
    """Report progress to nobody."""


def plain_lines(write: Callable[[str], None], clock: Callable[[], float]) -> Report:
    """A report in lines, for a log: of passing messages one in PASSING_EACH_S seconds."""
    last_s = clock()

    def report(message: str) -> None:
        nonlocal last_s
        if isinstance(message, Passing) and clock() - last_s < PASSING_EACH_S:
            return
        last_s = clock()
        write(f"fastsync: {message}")

    return report


class OnScreen:
    """A report on a terminal: steps and results stay above the line of what is under way."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._step = ""

    def __call__(self, message: str) -> None:
        if isinstance(message, Finished):
            self.close()
            self._screen.keep(message)
        elif isinstance(message, Passing):
            self._screen.status(message, new_step=False)
        else:
            self.close()
            self._step = message
            self._screen.status(message, new_step=True)

    def close(self) -> None:
        """The step is over: it stays."""
        if self._step:
            self._screen.keep(self._step)
            self._step = ""


class Terminal:
    """stderr, by rich."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self.live = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self.live.add_task("starting", total=None)

    def keep(self, line: str) -> None:
        """Show a line for good."""
        self.live.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def status(self, text: str, *, new_step: bool) -> None:
        """Show what is under way, with the time since the step began."""
        if new_step:
            self.live.reset(self._task)
        self.live.update(self._task, description=text)


@contextmanager
def progress() -> Iterator[Report]:
    """Report on stderr: what is under way below what is done on a terminal, else plain lines."""
    if not sys.stderr.isatty():
        yield plain_lines(lambda line: print(line, file=sys.stderr, flush=True), time.monotonic)
        return
    terminal = Terminal()
    report = OnScreen(terminal)
    with terminal.live:
        try:
            yield report
        finally:
            report.close()


# --- how far -----------------------------------------------------------------------------------


def in_words(seconds: float) -> str:
    """A time that is left, as exact as an estimate can be."""
    if seconds < 60:
        return "less than a minute"
    minutes = round(seconds / 60)
    return f"about {minutes} min" if minutes < 120 else f"about {minutes / 60:.1f} h"


class Tally:
    """How many of the parts of a run are done, and how long the rest takes at this pace.

    Threads may share one.
    """

    def __init__(
        self, total: int, what: str, report: Report, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`what` are the parts, in the plural; the time begins to count now."""
        self._total = total
        self._what = what
        self._report = report
        self._clock = clock
        self._start_s = clock()
        self._kept = 0
        self._done = 0
        self._lock = threading.Lock()

    def keep(self, count: int) -> None:
        """So many are there from an earlier run: they took no time."""
        with self._lock:
            self._kept += count

    def add(self, line: str) -> None:
        """One more is done; `line` is what came of it."""
        with self._lock:
            self._done += 1
        self._report(Finished(line))
        self._report(Passing(str(self)))

    def __str__(self) -> str:
        there = self._kept + self._done
        text = f"{there} of {self._total} {self._what} done"
        if not self._done or there >= self._total:
            return text
        pace_s = (self._clock() - self._start_s) / self._done
        return f"{text}, {in_words(pace_s * (self._total - there))} left"
