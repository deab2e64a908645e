"""A program for test_interrupt.py: it says "up" on stdout in the phase that its argument names."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fastsync_lab.host import shell
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.interrupt import SIGNALS, STOP, guarded
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.host.paths import locked
from fastsync_lab.host.progress import Passing, progress
from fastsync_lab.machine import vm
from fastsync_lab.machine.config import Machine, VmConfig

FOLDER = Path(sys.argv[-1])  # the test imports PHASES from here, with arguments of its own
SLEEP = ["sh", "-c", f"echo $$ >>{FOLDER}/pids; sleep 100 & echo $! >>{FOLDER}/pids; wait"]
STUBBORN = ["sh", "-c", f"trap '' TERM; echo $$ >>{FOLDER}/pids; while :; do sleep 1; done"]


def say_up() -> None:
    """Tell the test that the phase is reached, which is when the children have begun."""
    print("up", flush=True)


def when_children_run(count: int) -> None:
    """Say "up" once `count` processes have written their number."""

    def watch() -> None:
        pids = FOLDER / "pids"
        while not pids.exists() or len(pids.read_text().split()) < count:
            time.sleep(0.01)
        say_up()

    threading.Thread(target=watch, daemon=True).start()


def child() -> None:
    """The main thread waits for a child."""
    when_children_run(2)
    shell.run(SLEEP)


def stubborn_child() -> None:
    """The child ignores SIGTERM."""
    when_children_run(1)
    shell.run(STUBBORN)


def followed_child() -> None:
    """The main thread reads a child's lines, as a build does."""
    when_children_run(2)
    shell.follow(SLEEP, lambda _line: None)


def threads() -> None:
    """Two threads wait for children, more wait for their turn."""
    when_children_run(4)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(shell.run, [SLEEP] * 6))


def swallowing() -> None:
    """Whoever takes every failure for a verdict, as the explorer does, does not take this one."""
    when_children_run(2)
    for _ in range(1000):
        try:
            shell.run(SLEEP)
        except (FastsyncError, ValueError, OSError):
            continue


def lock() -> None:
    """Another process has the lock, and a thread waits for it."""
    say_up()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(wait_for_lock).result()


def wait_for_lock() -> None:
    """The test holds it."""
    with locked(FOLDER / "lock"):
        print("got the lock", flush=True)


def boot() -> None:
    """A thread waits for a guest that has not said yet that it is ready."""
    when_children_run(2)
    played = {"root_image": None, "describe": Machine(SLEEP, "")}
    vars(vm).update(
        {name: lambda *_, answer=answer, **__: answer for name, answer in played.items()}
    )
    tree = KernelTree("6.12", "r", "v", FOLDER, FOLDER, FOLDER, FOLDER)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(vm.Vm(VmConfig(tree)).__enter__).result()


def judge() -> None:
    """A thread computes and looks at nothing."""
    say_up()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(compute).result()


def compute() -> None:
    """Without end."""
    while True:
        sum(range(1000))


def starting() -> None:
    """A thread is about to start, which cannot be waited for yet."""
    worker = threading.Thread(target=compute)
    threading._limbo[worker] = worker  # type: ignore[attr-defined]  # as Thread.start() does
    say_up()
    shell.run(["sleep", "100"])


def elsewhere() -> None:
    """The kernel may give the signal to any thread; here it has to, and the main thread waits."""
    threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    say_up()
    threading.Event().wait()


def untidy() -> None:
    """Tidying up fails, because of the interruption."""
    try:
        say_up()
        shell.run(["sleep", "100"])
    finally:
        raise OSError("cannot tidy up")


def held() -> None:
    """The main thread does what must not be half done, and takes too long."""
    with STOP.held():
        say_up()
        time.sleep(100)


def short_hold() -> None:
    """The main thread ends what must not be half done."""
    with STOP.held():
        say_up()
        time.sleep(0.5)
        (FOLDER / "whole").write_text("whole")
    (FOLDER / "after").write_text("after")


def loading() -> None:
    """A large module is being loaded."""
    say_up()
    import tests.unit.slow_to_load  # noqa: F401


def shown() -> None:
    """Work that tells how far it is."""
    with progress() as report:
        report("a step [not markup]")
        report(Passing("1 of 2 done"))
        report("another step")
        when_children_run(2)
        shell.run(SLEEP)


PHASES: Mapping[str, Callable[[], None]] = {
    phase.__name__: phase
    for phase in (child, stubborn_child, followed_child, threads, swallowing, lock, boot, judge,
                  starting, elsewhere, untidy, held, short_hold, loading, shown)
}  # fmt: skip

if __name__ == "__main__":
    guarded(PHASES[sys.argv[1]])
