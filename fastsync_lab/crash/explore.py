"""The explorer: record workloads, recover and judge crash states, keep what failed."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from fastsync_lab.crash.batch import (
    BATCH,
    Judged,
    add,
    batches,
    judge_again,
    judge_batch,
    not_explored,
)
from fastsync_lab.crash.builds import Builds, module_digest
from fastsync_lab.crash.case import Case, Outcome, Request
from fastsync_lab.crash.guest import Recorder, UnsoundRecordingError, check_moved
from fastsync_lab.crash.judge import Judge
from fastsync_lab.crash.kept import keep_recording, take_recording
from fastsync_lab.crash.kinds import make_base
from fastsync_lab.crash.recording import Recording, load_recording
from fastsync_lab.crash.recover import (
    Again,
    Recoverer,
    plan,
    plan_again,
    recording_plan,
    recoveries,
)
from fastsync_lab.crash.script import Script
from fastsync_lab.crash.states import (
    OURS,
    State,
    all_states,
    find,
    first_event_after,
    sample,
    sample_again,
    split_id,
    spread,
)
from fastsync_lab.crash.trace import parse_trace
from fastsync_lab.host.options import CONTROL, EAGER_MODES
from fastsync_lab.host.progress import Passing, Report
from fastsync_lab.machine.kernel_log import check_kernel_log

DELAY_SEED = "jbd2.delay_seed"  # of modules with delays_patch(); 0: none
SECOND_SHARE = 20  # of so many states one is cut again while it is recovered,
SECOND_MOST = 20  # but of a case no more than this
SECOND_STATES = 8
OWN_SHARE = 10  # of so many states one is recovered by our own modules, too,
OWN_MOST = 20  # but of a case no more than this
BY_OURS = "where our modules recover:"


@dataclass
class Explorer:
    """Explores cases in a guest that records and one that recovers, which may be the same.

    The first one is booted when something has to be recorded. `parameters` of the modules that are
    explored, like ext4.name, are set before each recording. With `until_failure` a case ends with
    the batch of states that has one.
    """

    boot_recorder: Callable[[], Recorder]
    recoverer: Recoverer
    builds: Builds
    work: Path
    pool: ThreadPoolExecutor
    report: Report
    parameters: Mapping[str, str] = field(default_factory=dict)
    until_failure: bool = False

    @property
    def recorder(self) -> Recorder:
        """The guest in which workloads run."""
        return self.boot_recorder()

    def run(
        self, request: Request, finished: Callable[[Outcome], None] = lambda _outcome: None
    ) -> list[Outcome]:
        """First record all cases, then recover their states, so that modules change once.

        A case whose recording shows nothing has failed, and others go on.
        """
        if request.state:
            (case,) = request.cases
            outcome = self._look_again(case, request.script(case), request.state)
            finished(outcome)
            return [outcome]
        recorded: dict[Case, Path | UnsoundRecordingError] = {}
        for case in sorted(request.cases, key=lambda case: case.mode == CONTROL):
            try:
                recorded[case] = self.record(case, request.script(case))
            except UnsoundRecordingError as error:
                recorded[case] = error
        outcomes = []
        for case in request.cases:
            script, folder = request.script(case), recorded[case]
            if isinstance(folder, UnsoundRecordingError):
                outcome = not_explored(case, len(script.lines), str(folder))
            else:
                outcome = self.explore(case, script, folder, request.states)
                keep_recording(folder)
            outcomes.append(outcome)
            finished(outcome)
        return outcomes

    def record(self, case: Case, script: Script) -> Path:
        """Run the case's workload; the folder with what it left.

        Raises UnsoundRecordingError if the kernel complained, or what it is for did not happen.
        """
        folder = self._folder(case)
        folder.mkdir()
        self.recoverer.forget(folder)  # what a case that failed has left in the guest
        self.report(Passing(f"{case.name}: recording {len(script.lines)} operations"))
        make_base(folder / "base.img", script.device_mib, kind=case.kind, with_junk=True)
        (folder / "script").write_text(script.text)
        self.recorder.vm.use_filesystem(
            self.builds.stock if case.mode == CONTROL else self.builds.subject
        )
        delays = {DELAY_SEED: str(case.delays)} if case.delays and case.mode != CONTROL else {}
        self.recorder.set_parameters({**self.parameters, **delays})
        self.recorder.vm.kernel_log()
        self.recorder.record(folder, case.mount_options, script, case.kind)
        self.recorder.set_parameters(dict.fromkeys(delays, "0"))
        log = self.recorder.vm.kernel_log()
        if check_kernel_log(log):
            raise UnsoundRecordingError(f"the kernel complained: {self.recorder.vm.said(log)}")
        if case.mode in EAGER_MODES:
            check_moved(script.moves, (folder / "stats").read_text())
        (folder / "modules").write_text(module_digest(self.builds.subject))
        return folder

    def _folder(self, case: Case) -> Path:
        """Where the guests find the case's recording; what is there of another one is gone."""
        folder = self.recoverer.vm.out_dir / case.name
        shutil.rmtree(folder, ignore_errors=True)
        return folder

    def _look_again(self, case: Case, script: Script, state: str) -> Outcome:
        """One state of what an earlier run of the same operations and modules has kept, or of a
        recording that is made, and kept, now.
        """
        folder = self._folder(case)
        wanted = {"modules": module_digest(self.builds.subject), "script": script.text}
        if take_recording(folder, wanted):
            return self.look_at(case, script, folder, state)
        outcome = self.look_at(case, script, self.record(case, script), state)
        keep_recording(folder)
        return outcome

    def explore(self, case: Case, script: Script, folder: Path, limit: int) -> Outcome:
        """Recover and judge all boundaries of what was recorded, and `limit` other states."""
        started = time.monotonic()
        self._use_stock()
        recording, judge = self._open(case, script, folder)
        first = first_event_after(recording.events, script.prepared - 1)
        considered = all_states(recording.events, first=first, seed=case.seed)
        states = sample(considered, limit, case.seed)
        outcome = Outcome(case, operations=len(script.lines), considered=len(considered))
        outcome.cuts = len(recording.events) - first
        outcome.states = len(states)
        self._check(outcome, judge, recording, states)
        if not (self.until_failure and outcome.failures):
            self._check_some_more(outcome, judge, recording, states)
        self.recoverer.forget(recording.folder)
        outcome.seconds = round(time.monotonic() - started, 1)
        return outcome

    def _check_some_more(
        self, outcome: Outcome, judge: Judge, recording: Recording, states: Sequence[State]
    ) -> None:
        """Cut the recovery of some of the sound ones, and have ours recover some."""
        failed = {failure.state for failure in outcome.failures}
        sound = [state for state in states if state.id not in failed]
        again = spread(sound, max(1, min(len(states) // SECOND_SHARE, SECOND_MOST)))
        self._explore_again(outcome, judge, recording, again)
        if outcome.case.mode != CONTROL:
            mine = spread(sound, max(1, min(len(states) // OWN_SHARE, OWN_MOST)))
            self._check_ours(outcome, judge, recording, mine)

    def look_at(self, case: Case, script: Script, folder: Path, wanted: str) -> Outcome:
        """Recover and judge one state."""
        outer, inner = split_id(wanted)
        self._use_stock()
        recording, judge = self._open(case, script, folder)
        state = find(all_states(recording.events, first=0, seed=case.seed), outer)
        outcome = Outcome(case, operations=len(script.lines), cuts=1, states=1, considered=1)
        if inner:
            by_ours = inner.startswith(OURS)
            (cut,) = self._cut_again(case, recording, [state], len(recording.log), by_ours=by_ours)
            found = replace(cut, states=[find(cut.states, inner.removeprefix(OURS))])
            self._check_again(outcome, judge, recording, [found])
        else:
            self._check(outcome, judge, recording, [state])
            if case.mode != CONTROL:
                self._check_ours(outcome, judge, recording, [state])
        self.recoverer.forget(recording.folder)
        return outcome

    def _use_stock(self) -> None:
        """Have the stock modules where states are recovered."""
        self.recoverer.vm.use_filesystem(self.builds.recover_by.stock)

    def _check_ours(
        self, outcome: Outcome, judge: Judge, recording: Recording, states: Sequence[State]
    ) -> None:
        """The same by our own modules, which mount with the mode's options, as their users do."""
        case = outcome.case
        self.report(Passing(f"{case.name}: recovering {len(states)} by ours"))
        self.recoverer.vm.use_filesystem(self.builds.recover_by.ours)
        text = plan(recording.events, states)
        found = self.recoverer.recover(recording.folder, text, case.kind, case.mode_options)
        judged = judge_batch(case, judge, recording, list(states), found)
        outcome.own_states = len(states)
        outcome.failures += [
            replace(one, problems=(BY_OURS, *one.problems)) for one in judged.failures
        ]

    def _open(self, case: Case, script: Script, folder: Path) -> tuple[Recording, Judge]:
        ops = [] if script.sql else parse_trace((folder / "trace").read_text())
        return load_recording(folder), Judge(case, script, ops, self.work)

    def _explore_again(
        self, outcome: Outcome, judge: Judge, recording: Recording, states: Sequence[State]
    ) -> None:
        """Cut the recovery of these states, too, and recover and judge what that leaves.

        After eager_sync ours is cut as well, and the kernel's own at boundaries alone: that has a
        hole there (docs/eager.md).
        """
        case, log_at = outcome.case, len(recording.log)
        eager = case.mode in EAGER_MODES
        for by_ours in (False, True) if eager else (False,):
            self.report(Passing(f"{case.name}: cutting {len(states)} recoveries"))
            cut = self._cut_again(case, recording, states, log_at, by_ours=by_ours)
            in_part = by_ours or not eager
            cut = [
                replace(one, states=sample_again(one.states, SECOND_STATES, case.seed, in_part))
                for one in cut
            ]
            log_at += sum(len(one.recording.log) for one in cut[:1])  # they share it
            outcome.second_states += sum(len(one.states) for one in cut)
            self._check_again(outcome, judge, recording, cut)

    def _cut_again(
        self,
        case: Case,
        recording: Recording,
        states: Sequence[State],
        log_at: int,
        *,
        by_ours: bool,
    ) -> list[Again]:
        """Log the recovery of each of the states; with all states that it may leave in turn."""
        text = recording_plan(recording.events, states)
        options: Sequence[str] = ()
        if by_ours:
            options = case.mode_options
            self.recoverer.vm.use_filesystem(self.builds.recover_by.ours)
        log = self.recoverer.log_recoveries(recording.folder, text, case.kind, options)
        self._use_stock()
        images = recording.images(states)
        return [
            Again(
                state,
                Recording(
                    recording.folder,
                    bytes(image),
                    log,
                    events,
                    f"{state.id}/{OURS if by_ours else ''}",
                    recording.acknowledged(state),
                ),
                all_states(events, first=0, seed=case.seed),
                log_at,
            )
            for state, image, events in zip(
                states, images, recoveries(log, len(states)), strict=True
            )
        ]

    def _check(
        self, outcome: Outcome, judge: Judge, recording: Recording, states: Sequence[State]
    ) -> None:
        """The kernel recovers a batch while the one before is judged."""
        name = outcome.case.name
        judged: list[Future[Judged]] = []
        for number, batch in enumerate(batches(states)):
            self.report(Passing(f"{name}: {number * BATCH} of {len(states)} states"))
            text = plan(recording.events, batch)
            found = self.recoverer.recover(recording.folder, text, outcome.case.kind)
            job = self.pool.submit(judge_batch, outcome.case, judge, recording, batch, found)
            judged.append(job)
            if self.until_failure and any(one.done() and one.result().failures for one in judged):
                break
        add(outcome, judged)

    def _check_again(
        self, outcome: Outcome, judge: Judge, recording: Recording, cut: Sequence[Again]
    ) -> None:
        """The same with the states of second cuts."""
        case = outcome.case
        text = plan_again(recording.events, cut)
        found = iter(self.recoverer.recover(recording.folder, text, case.kind))
        judged = [
            self.pool.submit(judge_again, case, judge, one, list(islice(found, len(one.states))))
            for one in cut
        ]
        add(outcome, judged)
