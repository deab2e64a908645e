"""Whether the explorer finds a fault on purpose."""

from dataclasses import replace

from fastsync_lab.crash.case import Case, Outcome, Request
from fastsync_lab.crash.explore import Explorer

SEEDS = 4


def found(explored: Explorer, case: Case, states: int, *, seeds: int = 1) -> Outcome | None:
    """The first outcome with a failure, of as many seeds from the case's on; None: there is none.

    What takes a moment that not every recording meets is looked for in several. Which moments one
    meets depends on what has run before in the same guest.
    """
    for seed in range(case.seed, case.seed + seeds):
        (outcome,) = explored.run(Request((replace(case, seed=seed),), states))
        if outcome.failures:
            return outcome
    return None
