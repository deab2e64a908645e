"""How a signal ends the lab: within two seconds, with one line, whatever its threads wait for.

A signal is the process's own, so there is one `Stop` for the process, STOP, and all that waits
looks at it: child processes (shell.py), guests (vm.py) and file locks (paths.py). When a signal
comes, the handler

- sets STOP, so that no child is started any more and every check() raises Interrupted;
- asks all children to end (SIGTERM to their groups), which wakes the threads that wait for them;
- raises Interrupted in the main thread, unless that is within held(), which raises at its end.

The kernel may have any thread take a signal, and Python runs the handler in the main thread alone,
which may wait in a lock for hours. So a thread of ours wakes it.

The threads' own `with` blocks then remove what is half made. What still runs DEADLINE_S after the
signal is killed. Nothing here loads a large module: Ctrl-C counts from the first import on.
"""

import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WAKING = signal.SIGURG  # ends what the main thread waits in, and does nothing else
EXIT_STATUS = 130
DEADLINE_S = 1.5  # to tidy up; then all is killed
DYING_S = 0.1
MESSAGE = "fastsync: interrupted; what is finished is kept, run the same command to go on"

Child = subprocess.Popen[bytes]


class Interrupted(BaseException):
    """A signal ends the process. No `except Exception` takes it for a failure of its own."""


def signal_group(child: Child, number: int) -> None:
    """Send a signal to a child's process group, if the child was not waited for yet."""
    if child.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)


class Stop:
    """Whether the process was told to end, and the children that have to end first."""

    def __init__(self) -> None:
        self._set = threading.Event()
        self._lock = threading.Lock()  # no child is missed: started, or seen by set()
        self._children: weakref.WeakSet[Child] = weakref.WeakSet()
        self._holds = 0  # of the main thread
        self._dying = threading.Lock()

    def is_set(self) -> bool:
        """Whether it was."""
        return self._set.is_set()

    def check(self) -> None:
        """Raise Interrupted once the process was told to end."""
        if self._set.is_set():
            raise Interrupted

    def sleep(self, seconds: float) -> None:
        """Wait; Interrupted ends it."""
        self._set.wait(seconds)
        self.check()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Do something that must not be half done: a signal has to wait for the end of it."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            if not self._holds and self._set.is_set():
                self._signal_children(signal.SIGTERM)
        if not self._holds:
            self.check()

    def start(self, start: Callable[[], Child]) -> Child:
        """Start a child, in a process group of its own. Raises Interrupted in place of that."""
        self.check()
        with self.held(), self._lock:
            if self._set.is_set():
                raise Interrupted
            child = start()
            self._children.add(child)
            return child

    def handle(self, _number: int, _frame: FrameType | None) -> None:
        """What a signal does: the first as the module says, the next ends the process at once."""
        if self._set.is_set():
            self.die()
        self._set.set()
        watch = threading.Timer(DEADLINE_S, self.die)
        watch.daemon = True
        watch.start()
        if not self._holds:
            self._signal_children(signal.SIGTERM)
            raise Interrupted

    def die(self) -> None:
        """Kill all children and end the process, with the line."""
        if not self._dying.acquire(blocking=False):  # another thread is at it
            time.sleep(DYING_S)
            os._exit(EXIT_STATUS)
        say()
        self._signal_children(signal.SIGKILL)
        os._exit(EXIT_STATUS)

    def _signal_children(self, number: int) -> None:
        """Send a signal to all; the time limit is for die() within start(), in the same thread."""
        locked = self._lock.acquire(timeout=DYING_S)
        try:
            children = list(self._children)
        finally:
            if locked:
                self._lock.release()
        for child in children:
            signal_group(child, number)

    def join_threads(self) -> None:
        """Wait for the threads that work, which end by themselves; DEADLINE_S is the limit."""
        main = threading.main_thread()
        workers = [t for t in threading.enumerate() if t is not main and not t.daemon]
        end = time.monotonic() + DEADLINE_S
        for worker in workers:
            with suppress(RuntimeError):  # the signal came when it was about to start
                worker.join(max(0.0, end - time.monotonic()))


STOP = Stop()


def say() -> None:
    """Print the line; on a terminal in place of ^C and of a status line, with the cursor back."""
    clean = "\r\x1b[K\x1b[?25h" if os.isatty(2) else ""
    with suppress(OSError):
        os.write(2, f"{clean}{MESSAGE}\n".encode())


def _wake_main_thread(signals: int) -> None:
    """Wake it each time Python writes to the pipe `signals` that a signal has come."""
    main = threading.main_thread().ident
    assert main is not None
    while number := os.read(signals, 1):
        if number[0] != WAKING:
            signal.pthread_kill(main, WAKING)


def guarded(main: Callable[[], None]) -> None:
    """Run a program; a signal ends it with one line on stderr and EXIT_STATUS.

    A signal that the caller has told to ignore (nohup; `&` in a script) stays ignored.
    """
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, STOP.handle)
    signal.signal(WAKING, lambda _number, _frame: None)
    signals, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    threading.Thread(target=_wake_main_thread, args=(signals,), daemon=True).start()
    try:
        main()
    except BaseException:
        if not STOP.is_set():
            raise
        STOP.join_threads()  # whatever tidying up has led to: the signal is what ended it
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        STOP.die()
