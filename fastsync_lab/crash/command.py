"""What `./fastsync crash` does: from its options to cases, from cases to a result file."""

import os
from collections.abc import Sequence
from dataclasses import replace

from fastsync_lab.crash.builds import check_machine, delays_patch, prepare
from fastsync_lab.crash.case import Outcome, Request
from fastsync_lab.crash.compare import compared_with_stock
from fastsync_lab.crash.session import explore
from fastsync_lab.crash.states import split_id
from fastsync_lab.crash.summary import keeper
from fastsync_lab.crash.table import choose, is_whole
from fastsync_lab.host.errors import UsageError
from fastsync_lab.host.kernels import UML
from fastsync_lab.host.progress import Report, Tally


def request(
    workload: str,
    *,
    modes: Sequence[str] | None,
    journals: Sequence[str] | None,
    states: int,
    seed: int,
    interval_ms: int,
    delays: int = 0,
    kernel: str,
    state: str | None,
    recover_in: str = UML,
) -> Request:
    """The cases that the options ask for. Raises UsageError for a name that there is not."""
    check_machine(recover_in)
    cases = choose(
        workload,
        modes=modes,
        journals=journals,
        seed=seed,
        interval_ms=interval_ms,
        delays=delays,
        kernel=kernel,
    )
    if state is not None:
        split_id(state)
        if len(cases) > 1:
            raise UsageError("--state is about one workload, mode and journal")
    return Request(cases, states, kernel, state, recover_in)


def result_name(asked: Request, series: str) -> str:
    """The series alone for a run of everything; else it says quick, and what was run.

    With fewer states of each case than by default it is not everything.
    """
    if asked.states >= Request.states and is_whole(asked.cases, series):
        return series
    names = dict.fromkeys((asked.cases[0].name, asked.cases[-1].name))
    return f"quick-{series}-{'-to-'.join(names)}"


def run(asked: Request, *, report: Report, jobs: int | None = None) -> list[Outcome]:
    """Explore in `jobs` guests at a time, by default as many as there are processors.

    The result is kept under results/, case by case, unless it is about one state.
    """
    delays = any(case.delays for case in asked.cases)
    fault = delays_patch() if delays else None
    builds = prepare(asked.kernel, report, fault=fault, recover_in=asked.recover_in)
    if asked.state:
        return explore(asked, builds, report=report)
    name = result_name(asked, builds.tree.series)
    kept = keeper(name, asked, builds)
    done = {outcome.case for outcome in kept.parts}
    left = tuple(case for case in asked.cases if case not in done)
    if left:
        rest = replace(asked, cases=left)
        tally = Tally(len(asked.cases), "cases", report)
        tally.keep(len(kept.parts))

        def finished(outcome: Outcome) -> None:
            kept.add(outcome)
            failed = len(outcome.failures)
            tally.add(f"{outcome.case.name}: {outcome.states} states, {failed or 'none'} failed")

        explore(rest, builds, report=report, finished=finished, jobs=jobs or os.cpu_count() or 1)
    kept.finish()
    outcomes = sorted(kept.parts, key=lambda outcome: asked.cases.index(outcome.case))
    return compared_with_stock(outcomes)
