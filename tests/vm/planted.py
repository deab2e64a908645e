"""Faults on purpose in our modules, for the explorer to find; and modules that delay."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from fastsync_lab.crash.builds import prepare
from fastsync_lab.crash.case import Case, Outcome, Request
from fastsync_lab.crash.explore import Explorer
from fastsync_lab.crash.script import Script
from fastsync_lab.crash.singles import SYNCS, changes_with_syncs
from fastsync_lab.host.paths import repo_root
from fastsync_lab.host.progress import silent
from fastsync_lab.machine.vm import Vm

FAULTS = repo_root() / "tests" / "planted"
DELAY_SEED = "/sys/module/jbd2/parameters/delay_seed"  # of modules with delays_patch(); 0: none
# What takes a moment that not every recording meets is looked for in several. Which moments one
# meets depends on what has run before in the same guest. Of eight seeds, so many show the fault:
SEEDS = {
    "carried-record-too-early": 4,  # all, but at few states
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


def patch_of(fault: str) -> Path:
    """What makes a fault."""
    return FAULTS / f"{fault}.patch"


def seed_delays(vm: Vm, seed: int) -> None:
    vm.run(f"echo {seed} >{DELAY_SEED}")


def outcome_with(explored: Explorer, fault: str, case: Case, states: int) -> Outcome:
    """The first outcome with a failure of the seeds from the case's on, or the last one.

    So many states are looked at, but where STATES has a number of the fault's own.
    """
    builds = prepare(explored.builds.tree.series, silent, fault=patch_of(fault))
    broken = replace(explored, builds=builds, until_failure=True)
    for seed in range(case.seed, case.seed + SEEDS.get(fault, 1)):
        (outcome,) = broken.run(Request((replace(case, seed=seed),), STATES.get(fault, states)))
        if outcome.failures:
            break
    return outcome


def outcome_without(
    explored: Explorer, case: Case, script: Script, states: int, parameters: Mapping[str, str]
) -> Outcome:
    """What the explorer says of a script when modules leave out what these parameters name.

    Each of these modules counts in its parameter `left_out` how often it has.
    """
    counters = {f"{name.partition('.')[0]}.left_out" for name in parameters}
    counted_from = {**parameters, **dict.fromkeys(counters, "0")}
    one = replace(explored, parameters=counted_from, until_failure=True)
    folder = one.record(case, replace(script, moves=()))  # what moves is what is left out
    counted = [int(one.recorder.parameter(counter)) for counter in counters]
    assert all(counted), f"{parameters}: nothing is left out here"
    return one.explore(case, script, folder, states)


def each(*changes: str) -> Script:
    """These changes, each with each sync."""
    return changes_with_syncs((change, sync) for change in changes for sync in SYNCS)


def functions_with(source: str, pattern: str) -> Iterator[str]:
    """The functions of a C file that have lines in which the pattern is found."""
    function = ""
    for line in source.splitlines():
        if match := re.match(r"(?:[a-z_][^;=()]*\W)?([a-z_]\w*)\(", line):
            function = match[1]
        elif re.search(pattern, line):
            yield function


def problems(outcome: Outcome) -> str:
    return "\n".join(problem for failure in outcome.failures for problem in failure.problems)
