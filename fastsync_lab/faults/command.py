"""What `./fastsync faults` does: from its options to cases, from cases to a result file."""

from collections.abc import Sequence

from fastsync_lab.crash.builds import QEMU, Builds, prepare
from fastsync_lab.faults.compare import Case, Result
from fastsync_lab.faults.summary import keeper
from fastsync_lab.faults.sweep import VARIANTS, sweeper
from fastsync_lab.faults.workloads import workload_names
from fastsync_lab.host.errors import check_names
from fastsync_lab.host.kernels import find_series
from fastsync_lab.host.options import CONTROL
from fastsync_lab.host.progress import Report, Tally

ALL = "all"
# With `all`, the workloads that have every kind of request; the others run in the first variant.
EVERY_VARIANT = ("overwrite", "append", "periodic")


def cases_of(workload: str, modes: Sequence[str] | None, kernel: str) -> list[Case]:
    """The cases that the options ask for, and all of stock's, with which they are compared.

    With the options off the same requests fail as on stock: one variant shows that. Raises
    UsageError for a name that there is not, or not on this kernel.
    """
    names = workload_names()
    check_names("workload", [workload], [ALL, *names])
    series = find_series(kernel)
    series.check_modes(modes or ())
    return [
        Case(name, mode, errors, dead)
        for errors, dead in VARIANTS
        for name in names
        for mode in dict.fromkeys((CONTROL, *(modes or series.modes)))
        if (mode == CONTROL or workload in (ALL, name))
        and (
            (errors, dead) == VARIANTS[0] or (mode != "off" and name in (*EVERY_VARIANT, workload))
        )
    ]


def result_name(cases: Sequence[Case], series: str) -> str:
    """The series alone for a run of everything, or of more; else quick, and what was run."""
    if set(cases) >= set(cases_of(ALL, None, series)):
        return series
    ours = [case for case in cases if case.mode != CONTROL]
    parts = {case.workload: None for case in ours} | {case.mode: None for case in ours}
    return f"quick-{series}-{'-'.join(parts)}"


def run(cases: Sequence[Case], kernel: str, *, report: Report) -> list[Result]:
    """Sweep; the result is kept under results/, case by case."""
    builds: Builds = prepare(kernel, report, recover_in=QEMU)
    kept = keeper(result_name(cases, builds.tree.series), cases, builds)
    done = {result.case for result in kept.parts}
    left = [case for case in cases if case not in done]
    if left:
        tally = Tally(len(cases), "cases", report)
        tally.keep(len(kept.parts))

        def finished(result: Result) -> None:
            kept.add(result)
            tally.add(f"{result.case.name}: {result.made} of {result.asked} requests failed")

        with sweeper(builds, report=report) as one:
            one.run(left, finished)
    kept.finish()
    return sorted(kept.parts, key=lambda result: cases.index(result.case))
