"""What `./fastsync crash` does: from its options to cases, from cases to a result file."""

from collections.abc import Sequence

from fastsync_lab.crash.explore import (
    CONTROL,
    E2FSCK_CANNOT_REPLAY,
    JOURNALS,
    MODES,
    Case,
    Outcome,
    Request,
    explore,
    prepare,
)
from fastsync_lab.crash.states import split_id
from fastsync_lab.crash.summary import compared_with_stock, keeper
from fastsync_lab.crash.workloads import workload_names
from fastsync_lab.errors import UsageError, check_names
from fastsync_lab.progress import Report, Tally

ALL = "all"


def request(
    workload: str,
    *,
    modes: Sequence[str] | None,
    journals: Sequence[str] | None,
    states: int,
    seed: int,
    interval_ms: int,
    kernel: str,
    state: str | None,
) -> Request:
    """The cases that the options ask for. Raises UsageError for a name that there is not."""
    workloads = workload_names() if workload == ALL else [workload]
    check_names("workload", workloads, [ALL, *workload_names()])
    check_names("mode", modes or (), [*MODES, CONTROL])
    journals = journals or (JOURNALS if workload == ALL else ["ordered"])
    check_names("journal", journals, JOURNALS)
    cases = tuple(
        Case(name, mode, journal, interval_ms, seed)
        for name in workloads
        for journal in journals
        for mode in modes or default_modes(workload, journal)
    )
    if state is not None:
        split_id(state)
        if len(cases) > 1:
            raise UsageError("--state is about one workload, mode and journal")
    return Request(cases, states, kernel, state)


def default_modes(workload: str, journal: str) -> Sequence[str]:
    """Of `all` ours; and stock, where e2fsck may be wrong without our doing."""
    if workload != ALL:
        return ("defer",)
    return (*MODES, CONTROL) if journal in E2FSCK_CANNOT_REPLAY else MODES


def result_name(asked: Request, series: str) -> str:
    """The series alone for a run of everything; else it says quick, and what was run."""
    whole = {
        (name, mode, journal) for name in workload_names() for mode in MODES for journal in JOURNALS
    }
    if whole <= {(case.workload, case.mode, case.journal) for case in asked.cases}:
        return series
    first = asked.cases[0]
    last = asked.cases[-1]
    names = dict.fromkeys((first.name, last.name))
    return f"quick-{series}-{'-to-'.join(names)}"


def run(asked: Request, *, report: Report) -> list[Outcome]:
    """Explore; the result is kept under results/, case by case, unless it is about one state."""
    builds = prepare(asked.kernel, report)
    if asked.state:
        return explore(asked, builds, report=report)
    name = result_name(asked, builds.tree.series)
    kept = keeper(name, asked, builds.tree, builds.subject)
    done = {outcome.case for outcome in kept.parts}
    left = tuple(case for case in asked.cases if case not in done)
    if left:
        rest = Request(left, asked.states, asked.kernel)
        tally = Tally(len(asked.cases), "cases", report)
        tally.keep(len(kept.parts))

        def finished(outcome: Outcome) -> None:
            kept.add(outcome)
            failed = len(outcome.failures)
            tally.add(f"{outcome.case.name}: {outcome.states} states, {failed or 'none'} failed")

        explore(rest, builds, report=report, finished=finished)
    kept.finish()
    outcomes = sorted(kept.parts, key=lambda outcome: asked.cases.index(outcome.case))
    return compared_with_stock(outcomes)
