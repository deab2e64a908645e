"""Judging recovered states by the batch, and keeping what failed."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice

from fastsync_lab.crash.case import E2FSCK_CANNOT_REPLAY, Case, Failure, Outcome
from fastsync_lab.crash.judge import NOTHING_COMPLETED, Completions, Judge
from fastsync_lab.crash.kept import crash_dir
from fastsync_lab.crash.recording import Recording, write_sparse
from fastsync_lab.crash.recover import Again, Found
from fastsync_lab.crash.states import State
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.paths import build_dir

BATCH = 100


@dataclass(frozen=True)
class Judged:
    """What came of a batch."""

    failures: list[Failure]
    e2fsck_wrong: int
    blocks_wrong: int


def judge_batch(
    case: Case,
    judge: Judge,
    recording: Recording,
    states: list[State],
    found: list[Found],
    completed: Completions = NOTHING_COMPLETED,
) -> Judged:
    """What is wrong with states of which the guest found this; `completed` as in verdict().

    Raises FastsyncError when these are others.
    """
    if [recording.prefix + state.id for state in states] != [one.id for one in found]:
        raise FastsyncError("the guest did not recover the states it was given")
    failures = []
    e2fsck_wrong = blocks_wrong = 0
    for state, image, one in zip(states, recording.images(states), found, strict=True):
        verdict = judge.verdict(image, one, recording.acknowledged(state), completed)
        problems = verdict.kernel
        if case.journal not in E2FSCK_CANNOT_REPLAY:
            problems += verdict.checked + verdict.e2fsck
        else:
            e2fsck_wrong += bool(verdict.e2fsck)
            blocks_wrong += verdict.blocks_wrong
            if not verdict.blocks_wrong:
                problems += verdict.checked
        if problems:
            failures.append(_keep(case, recording, state, image, problems))
    return Judged(failures, e2fsck_wrong, blocks_wrong)


def judge_again(case: Case, judge: Judge, cut: Again, found: list[Found]) -> Judged:
    """The same of a state whose recovery was cut: what is wrong with what that left."""
    completed = judge.completed_in(cut.recording.base)
    return judge_batch(case, judge, cut.recording, list(cut.states), found, completed)


def _keep(
    case: Case, recording: Recording, state: State, image: bytearray, problems: tuple[str, ...]
) -> Failure:
    name = recording.prefix + state.id
    path = crash_dir() / "failures" / f"{case.name}-{name.replace('/', '+')}.img"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_sparse(path, image)
    returned = recording.acknowledged(state)
    relative = path.relative_to(build_dir().parent)
    return Failure(name, len(returned), problems, case.command(name), str(relative))


def batches(states: Sequence[State]) -> Iterator[list[State]]:
    """The states, BATCH at a time."""
    iterator = iter(states)
    while batch := list(islice(iterator, BATCH)):
        yield batch


def add(outcome: Outcome, judged: Sequence[Future[Judged]]) -> None:
    """Wait for batches, and count what came of them."""
    for future in judged:
        outcome.failures += future.result().failures
        outcome.e2fsck_wrong += future.result().e2fsck_wrong
        outcome.blocks_wrong += future.result().blocks_wrong


def not_explored(case: Case, operations: int, why: str) -> Outcome:
    """What came of a case whose recording shows nothing."""
    return Outcome(case, operations, failures=[Failure("", 0, (why,), case.command(), "")])
