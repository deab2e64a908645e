"""A run of the explorer: the guests it is given, and how a request is shared out among some."""

import tempfile
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

from fastsync_lab.crash.builds import Builds
from fastsync_lab.crash.case import Case, Outcome, Request, chunks
from fastsync_lab.crash.explore import Explorer
from fastsync_lab.crash.guest import Recorder, build_programs
from fastsync_lab.crash.kept import folder_of_run
from fastsync_lab.crash.recording import memory_dir
from fastsync_lab.crash.recover import Recoverer
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.host.progress import Report, silent
from fastsync_lab.host.shares import share_out
from fastsync_lab.machine.config import VmConfig
from fastsync_lab.machine.vm import Vm


@contextmanager
def _one_thread() -> Iterator[ThreadPoolExecutor]:
    """A thread for judging; what it has not begun is dropped when the run is interrupted."""
    pool = ThreadPoolExecutor(1)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def explorer(
    builds: Builds,
    programs: Collection[str] = (),
    *,
    report: Report = silent,
    stop: threading.Event | None = None,
) -> Iterator[Explorer]:
    """An explorer in a guest of its own, for workloads that `programs` run.

    The guest dies once another thread sets `stop`.
    """
    build_programs(programs)
    with ExitStack() as stack:
        work = Path(
            stack.enter_context(tempfile.TemporaryDirectory("", "fastsync-crash-", memory_dir()))
        )
        recordings = stack.enter_context(folder_of_run())
        pool = stack.enter_context(_one_thread())

        def boot(tree: KernelTree) -> Vm:
            report(f"booting {tree.release}")
            return stack.enter_context(Vm(VmConfig(tree), out_dir=recordings, stop=stop))

        @cache
        def recorder() -> Recorder:
            return Recorder(boot(builds.tree), builds.flashdev)

        recovering = boot(builds.recovery.tree) if builds.recovery else recorder().vm
        yield Explorer(recorder, Recoverer(recovering), builds, work, pool, report)


def explore(
    request: Request,
    builds: Builds,
    *,
    report: Report = silent,
    finished: Callable[[Outcome], None] = lambda _outcome: None,
    jobs: int = 1,
) -> list[Outcome]:
    """Explore the cases of a request in as many guests as `jobs`, which are booted for it.

    `finished` is called for one case at a time. Raises FastsyncError when a guest or a workload
    fails; what the other guests do is dropped then.
    """
    build_programs({request.script(case).program for case in request.cases})
    shares = chunks(request.cases, jobs)
    lock = threading.Lock()
    stop = threading.Event()

    def keep(outcome: Outcome) -> None:
        with lock:
            finished(outcome)

    def work(some: Iterator[tuple[Case, ...]]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        with explorer(builds, report=report, stop=stop) as one:
            for share in some:
                outcomes += one.run(replace(request, cases=share), keep)
        return outcomes

    done = share_out(shares, [work] * min(jobs, len(shares)), stop)
    return [outcome for outcomes in done for outcome in outcomes]
