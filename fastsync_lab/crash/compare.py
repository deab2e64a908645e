"""Whose a failure is: ours, or one that the stock modules have in the same place."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from fastsync_lab.crash.case import Case, Failure, Outcome
from fastsync_lab.crash.junk import without_sector
from fastsync_lab.crash.recover import failed
from fastsync_lab.host.options import CONTROL

# What a problem of a state that does not mount begins with; all others follow from it.
NO_MOUNT = failed("mount")
# A record that is torn over what an earlier lap of the log has left: the kernel takes it for whole,
# for its sum is that of the first part; e2fsck 1.47.0 replays nothing from there on.
REPLAY_ABORTED = re.compile(
    r"e2fsck -fy .*: Journal transaction \d+ was corrupt, replay was aborted"
)
# What judge.py says of a file, or of a name, where the two recoveries differ.
DISAGREE = re.compile(r": (the kernel and e2fsck disagree: |there only after recovery by )")


def compared_with_stock(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The same cases, with each failure marked whose every problem the stock modules have, too.

    A problem names file, place and operation; it is looked for in the same workload and journal,
    and of junk it does not matter which sector's it is.
    That a state does not mount, or that e2fsck gives up where the kernel does not, names none of
    these, and is looked for in each workload on that kind of file system. What e2fsck has found of
    promises then counts all the same.
    """
    on_stock: dict[Case, set[str]] = {}
    unmountable: dict[str, set[str]] = {}
    aborting: set[str] = set()
    for one in outcomes:
        if one.case.mode == CONTROL:
            found = {problem for failure in one.failures for problem in _places(failure)}
            on_stock[one.case] = found
            unmountable.setdefault(one.case.journal, set()).update(_no_mount(found))
            if any(map(REPLAY_ABORTED.match, found)):
                aborting.add(one.case.journal)

    def is_known(case: Case, failure: Failure) -> bool:
        if causes := _no_mount(failure.problems):
            return unmountable.get(case.journal, set()).issuperset(causes)
        places = set(_places(failure))
        if case.journal in aborting and any(map(REPLAY_ABORTED.match, places)):
            places = {
                one for one in places if not REPLAY_ABORTED.match(one) and not DISAGREE.search(one)
            }
        return on_stock.get(replace(case, mode=CONTROL), set()).issuperset(places)

    def marked(one: Outcome) -> Outcome:
        failures = [
            replace(failure, on_stock=is_known(one.case, failure)) for failure in one.failures
        ]
        return replace(one, failures=failures)

    return [marked(one) for one in outcomes]


def _places(failure: Failure) -> Iterator[str]:
    return map(without_sector, failure.problems)


def _no_mount(problems: Iterable[str]) -> set[str]:
    """Those of the problems that say that the state does not mount, and why."""
    return {problem for problem in problems if problem.startswith(NO_MOUNT)}
