"""Faults on purpose in our modules, for the explorer to find."""

from dataclasses import replace

from fastsync_lab.crash.builds import prepare
from fastsync_lab.crash.case import Case, Outcome, Request
from fastsync_lab.crash.explore import Explorer
from fastsync_lab.host.paths import repo_root
from fastsync_lab.host.progress import silent

FAULTS = repo_root() / "tests" / "planted"
# What takes a moment that not every recording meets is looked for in several. Which moments one
# meets depends on what has run before in the same guest. Of eight seeds, so many show the fault:
SEEDS = {
    "carried-record-too-early": 4,  # all, but at few states
    "eager-ahead-written": 10,  # three
    "eager-no-floor": 4,  # seven
    "eager-not-revoked": 4,  # seven
    "eager-places-not-written": 6,  # six
    "eager-settled-without-commit": 4,  # all, but at few states
}


# What few states show takes more of them.
STATES = {
    "burst-before-flush": 300,
    "carried-record-too-early": 300,
    "eager-copy-missing": 300,
    "eager-no-floor": 800,
}


def outcome_with(explored: Explorer, fault: str, case: Case, states: int) -> Outcome:
    """The first outcome with a failure of the seeds from the case's on, or the last one.

    So many states are looked at, but where STATES has a number of the fault's own.
    """
    builds = prepare(explored.builds.tree.series, silent, fault=FAULTS / f"{fault}.patch")
    broken = replace(explored, builds=builds)
    for seed in range(case.seed, case.seed + SEEDS.get(fault, 1)):
        (outcome,) = broken.run(Request((replace(case, seed=seed),), STATES.get(fault, states)))
        if outcome.failures:
            break
    return outcome


def problems(outcome: Outcome) -> str:
    return "\n".join(problem for failure in outcome.failures for problem in failure.problems)
