"""The results of the explorer: a JSON file, a table on the terminal, a block in a document."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastsync_lab.crash.builds import Builds, deciding
from fastsync_lab.crash.case import E2FSCK_CANNOT_REPLAY, Case, Failure, Outcome, Request
from fastsync_lab.crash.compare import compared_with_stock
from fastsync_lab.host.kernels import files_digest
from fastsync_lab.host.options import CONTROL, EAGER_MODES
from fastsync_lab.host.paths import results_dir
from fastsync_lab.host.workload import programs_source
from fastsync_lab.study.grid import Grid, Part, print_parts
from fastsync_lab.study.keeper import Keeper, age_of, whole_results, write_blocks

DOCUMENT, BLOCK = "docs/power-cuts.md", "crash"
FORMAT = 3


def about(request: Request, builds: Builds) -> dict[str, Any]:
    """What holds for all of a run, as it is when the run begins."""
    return {
        "format": FORMAT,
        **builds.record,
        "recovered_by": builds.recovered_by,
        "explorer_sha256": explorer_digest(),
        "states_asked_for": request.states,
    }


def result_of(
    request: Request, outcomes: Sequence[Outcome], of_run: Mapping[str, Any]
) -> dict[str, Any]:
    """A run as JSON; `complete` once every case is there."""
    return {
        **of_run,
        "complete": {outcome.case for outcome in outcomes} == set(request.cases),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cases": [asdict(outcome) for outcome in compared_with_stock(outcomes)],
    }


def load_outcomes(result: Mapping[str, Any]) -> list[Outcome]:
    """The cases of a result, held against stock's as this tree does it."""
    outcomes = []
    for data in result["cases"]:
        failures = [
            Failure(**{**failure, "problems": tuple(failure["problems"])})
            for failure in data["failures"]
        ]
        outcomes.append(Outcome(**{**data, "case": Case(**data["case"]), "failures": failures}))
    return compared_with_stock(outcomes)


# What says which cases there are, and how they are shown.
NOT_DECIDING = ("table.py", "command.py", "compare.py", "summary.py")
# What decides, too, and lies elsewhere: which of the kernel's lines are complaints, what a mode is.
ALSO_DECIDING = (
    "machine/kernel_log.py",
    "host/options.py",
    "host/programs/dmmark.h",
    "host/programs/innodbsync.c",
    "host/programs/need.h",
)


def explorer_digest() -> str:
    """A hash of what runs the workloads and judges the states."""
    here = Path(__file__).parent
    files = [*here.glob("*.py"), *programs_source().glob("crash*")]
    files += [here.parent / name for name in ALSO_DECIDING]
    return files_digest(sorted(file for file in files if file.name not in NOT_DECIDING))


def result_path(name: str) -> Path:
    """Where the result of a run of that name lies."""
    return results_dir() / f"crash-{name}.json"


def keeper(name: str, request: Request, builds: Builds) -> Keeper[Outcome]:
    """Keeps the cases of a run of that name."""
    of_run = about(request, builds)
    return Keeper(
        result_path(name),
        lambda outcomes: result_of(request, outcomes, of_run),
        lambda result: [one for one in load_outcomes(result) if one.case in request.cases],
        deciding(of_run),
    )


def shortest(failures: Iterable[Failure]) -> Failure | None:
    """The failure after the fewest calls, of these the one that is called most simply."""
    return min(failures, key=lambda one: (one.acknowledged, len(one.state)), default=None)


def failure_lines(outcome: Outcome) -> list[str]:
    """How to see a case fail again, as shortly as possible."""
    failures = outcome.own_failures or outcome.failures
    first = shortest(failures)
    if first is None:
        return []
    return [
        f"{'as on stock' if first.on_stock else 'FAILED'}: {len(failures)} of "
        f"{outcome.states + outcome.second_states} states of {outcome.case.name}; "
        f"the first after {first.acknowledged} calls that returned:",
        *(f"    {problem}" for problem in first.problems[:5]),
        f"  again: {first.command}",
        *([f"  image: {first.image}"] if first.image else []),
    ]


# The titles, and what is added up of each case.
COLUMNS: Mapping[str, Callable[[Outcome], float]] = {
    "operations": lambda one: one.operations,
    "cuts": lambda one: one.cuts,
    "states": lambda one: one.states,
    "cut again": lambda one: one.second_states,
    "by ours": lambda one: one.own_states,
    "not on stock": lambda one: len(one.own_failures),
    "seconds": lambda one: one.seconds,
}
STOCK_COLUMNS: Mapping[str, Callable[[Outcome], float]] = {
    "workloads": lambda _one: 1,
    "states": lambda one: one.states + one.second_states,
    "failures": lambda one: len(one.failures),
    "not on stock": lambda one: len(one.own_failures),
}
E2FSCK_COLUMNS: Mapping[str, Callable[[Outcome], float]] = {
    "blocks wrong": lambda one: one.blocks_wrong,
    "e2fsck wrong": lambda one: one.e2fsck_wrong,
}


def numbers(
    outcomes: Sequence[Outcome], columns: Mapping[str, Callable[[Outcome], float]] = COLUMNS
) -> list[str]:
    """The columns' values for some cases together."""
    return [f"{sum(map(value, outcomes)):,.0f}" for value in columns.values()]


def print_outcomes(outcomes: Sequence[Outcome]) -> None:
    """A line a case, a line for all, and how to repeat what failed."""
    lines = [
        [one.case.workload, one.case.mode, one.case.journal, *numbers([one])] for one in outcomes
    ]
    if len(outcomes) > 1:
        lines.append(["together", "", "", *numbers(outcomes)])
    print_parts([Grid(["workload", "mode", "journal", *COLUMNS], lines, texts=3)])
    for one in outcomes:
        print(*failure_lines(one), sep="\n", end="\n" if one.failures else "")


def parts(result: Mapping[str, Any]) -> list[Part]:
    """What documents show: a line a workload over all of our modes, and what the control did."""
    outcomes = load_outcomes(result)
    ours = [outcome for outcome in outcomes if not outcome.case.stock_says]
    cases = [outcome.case for outcome in ours]
    modes = sorted({case.mode for case in cases})
    seeds = ", ".join(str(seed) for seed in sorted({case.seed for case in cases}))
    lines = []
    for name in dict.fromkeys(case.workload for case in cases):
        mine = [outcome for outcome in ours if outcome.case.workload == name]
        lines.append([name, *numbers(mine)])
    return [
        f"Kernel {result['kernel_release']}, modules {result['modules_sha256']} "
        f"({_age(result)}), seed {seeds}, {result['date'][:10]}; modes {', '.join(modes)}.",
        Grid(["workload", *COLUMNS], [*lines, ["together", *numbers(ours)]], texts=1),
        _kinds(ours),
        *_beside_stock(outcomes),
    ]


def _kinds(ours: Sequence[Outcome]) -> Grid:
    """A table with a line a kind of file system."""
    lines = []
    for kind in dict.fromkeys(one.case.journal for one in ours):
        mine = [one for one in ours if one.case.journal == kind]
        workloads = {one.case.workload for one in mine}
        lines.append([kind, str(len(workloads)), *numbers(mine)])
    return Grid(["kind", "workloads", *COLUMNS], lines, texts=1)


def _beside_stock(outcomes: Sequence[Outcome]) -> list[Part]:
    """A table for each kind on which stock was run, too: of these workloads, a line a mode."""
    tables: list[Part] = []
    controls = [one.case for one in outcomes if one.case.mode == CONTROL]
    for kind in dict.fromkeys(case.journal for case in controls):
        workloads = {case.workload for case in controls if case.journal == kind}
        mine = [one for one in outcomes if one.case.journal == kind]
        tables.append(_modes_of(kind, [one for one in mine if one.case.workload in workloads]))
    return tables


def _modes_of(kind: str, outcomes: Sequence[Outcome]) -> Grid:
    columns = {**STOCK_COLUMNS, **(E2FSCK_COLUMNS if kind in E2FSCK_CANNOT_REPLAY else {})}
    lines = []
    for mode in sorted({one.case.mode for one in outcomes}):
        mine = [one for one in outcomes if one.case.mode == mode]
        lines.append([mode, *numbers(mine, columns)])
    return Grid([kind, *columns], lines, texts=1)


def sentence(result: Mapping[str, Any]) -> str:
    """The README's line on a kernel; it names what it does not count."""
    outcomes = load_outcomes(result)
    ours = [one for one in outcomes if not one.case.stock_says]
    eager = [one for one in ours if one.case.mode in EAGER_MODES]
    with_eager = f" ({_states(eager):,} of them with eager_sync)" if eager else ""
    own = sum(len(one.own_failures) for one in ours)
    inherited = sum(len(one.failures) for one in ours) - own
    as_on_stock = f" {inherited:,} fail as on stock." if inherited else ""
    return (
        f"Power cuts, on Linux {result['kernel_release']} (modules {_age(result)}): "
        f"{_states(ours):,} states{with_eager} were recovered and checked, after "
        f"{sum(one.cuts for one in ours):,} cuts in "
        f"{sum(one.operations for one in ours):,} operations. "
        f"{own:,} fail a check that stock ext4 passes in the same workload"
        f"{' (docs/power-cuts.md says which)' * bool(own)}."
        f"{as_on_stock}{_not_counted(outcomes)}"
    )


def _age(result: Mapping[str, Any]) -> str:
    """Whether modules and explorer are those of this tree, in words."""
    return age_of(result, explorer=explorer_digest())


def _states(outcomes: Sequence[Outcome]) -> int:
    """How many images were judged, those after a second cut with them."""
    return sum(one.states + one.second_states for one in outcomes)


def _not_counted(outcomes: Sequence[Outcome]) -> str:
    """A sentence on our modules where what is durable is for stock's code to know."""
    mine = [one for one in outcomes if one.case.stock_says and one.case.mode != CONTROL]
    if not mine:
        return ""
    pairs = dict.fromkeys(f"{one.case.mode} with {one.case.journal}" for one in mine)
    own = sum(len(one.own_failures) for one in mine)
    return (
        f" Not counted, because there stock code decides what is durable: {', '.join(pairs)}, with "
        f"{sum(len(one.failures) for one in mine):,} of {_states(mine):,} states that fail, "
        f"{own:,} of them with our modules alone."
    )


def load() -> list[Mapping[str, Any]]:
    """The results of whole runs, one for each kernel series."""
    return whole_results("crash", FORMAT)


def write_crash() -> None:
    """Write results/crash-SERIES.json into docs/power-cuts.md, and a sentence into README.md."""
    write_blocks(DOCUMENT, BLOCK, load(), parts, sentence)
