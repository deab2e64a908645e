"""A run of the explorer: record workloads, recover and judge crash states, keep what failed."""

import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from fastsync_lab.build import ModuleSet, build_flashdev, build_modules
from fastsync_lab.crash.case import (
    CONTROL,
    E2FSCK_CANNOT_REPLAY,
    Case,
    Failure,
    Outcome,
    Request,
)
from fastsync_lab.crash.guest import Found, Guest, build_programs, plan
from fastsync_lab.crash.judge import Judge
from fastsync_lab.crash.kinds import make_base
from fastsync_lab.crash.log import parse_log
from fastsync_lab.crash.recording import Recording, load_recording, write_sparse
from fastsync_lab.crash.script import Script
from fastsync_lab.crash.states import (
    State,
    all_states,
    find,
    first_event_after,
    sample,
    split_id,
)
from fastsync_lab.crash.trace import parse_trace
from fastsync_lab.errors import FastsyncError
from fastsync_lab.image import RootImage, root_image
from fastsync_lab.kernel_log import check_kernel_log
from fastsync_lab.kernels import KernelTree, fetch_kernel
from fastsync_lab.machine import VmConfig
from fastsync_lab.paths import build_dir, repo_root
from fastsync_lab.progress import Passing, Report, silent
from fastsync_lab.vm import Vm

BATCH = 40
CHUNK = 6  # cases
DELAY_SEED = "jbd2.delay_seed"  # of modules with delays_patch(); 0: none
SECOND_SHARE = 20  # of so many states one is cut again while it is recovered,
SECOND_MOST = 20  # but of a case no more than this: each takes seconds
SECOND_STATES = 6


@dataclass(frozen=True)
class Builds:
    """What a run needs: the modules that it explores, those that recover, the device model."""

    tree: KernelTree
    subject: ModuleSet
    stock: ModuleSet
    flashdev: Path
    image: RootImage


# --- one case ------------------------------------------------------------------------------------


@dataclass
class Explorer:
    """Explores cases in one guest.

    `parameters` of the modules that are explored, like ext4.name, are set before each recording.
    """

    guest: Guest
    builds: Builds
    work: Path
    pool: ThreadPoolExecutor
    report: Report
    parameters: Mapping[str, str] = field(default_factory=dict)

    def run(
        self, request: Request, finished: Callable[[Outcome], None] = lambda _outcome: None
    ) -> list[Outcome]:
        """First record all cases, then recover their states, so that modules change once."""
        folders = {}
        for case in sorted(request.cases, key=lambda case: case.mode == CONTROL):
            script = request.script(case)
            kept = _kept_recording(case, script, self.builds.subject) if request.state else None
            folders[case] = kept or self.record(case, script)
        outcomes = []
        for case in request.cases:
            script, folder = request.script(case), folders[case]
            if request.state:
                outcome = self.look_at(case, script, folder, request.state)
            else:
                outcome = self.explore(case, script, folder, request.states)
            outcomes.append(outcome)
            finished(outcome)
        return outcomes

    def record(self, case: Case, script: Script) -> Path:
        """Run the case's workload; the folder with what it left."""
        folder = crash_dir() / case.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.report(Passing(f"{case.name}: recording {len(script.lines)} operations"))
        make_base(folder / "base.img", script.device_mib, kind=case.kind)
        (folder / "script").write_text(script.text)
        self.guest.vm.use_filesystem(
            self.builds.stock if case.mode == CONTROL else self.builds.subject
        )
        delays = {DELAY_SEED: str(case.delays)} if case.delays and case.mode != CONTROL else {}
        self.guest.set_parameters({**self.parameters, **delays})
        self.guest.vm.kernel_log()
        self.guest.record(folder, case.mount_options, script, case.kind)
        self.guest.set_parameters(dict.fromkeys(delays, "0"))
        if bad := check_kernel_log(self.guest.vm.kernel_log()):
            raise FastsyncError(f"{case.name}: the kernel complained: {bad[0]}")
        (folder / "modules").write_text(module_digest(self.builds.subject))
        return folder

    def explore(self, case: Case, script: Script, folder: Path, limit: int) -> Outcome:
        """Recover and judge about `limit` states of what was recorded."""
        started = time.monotonic()
        self.guest.vm.use_filesystem(self.builds.stock)
        recording, judge = self._open(case, script, folder)
        first = first_event_after(recording.events, script.prepared - 1)
        considered = all_states(recording.events, first=first, seed=case.seed)
        states = sample(considered, limit, case.seed)
        outcome = Outcome(case, operations=len(script.lines), considered=len(considered))
        outcome.cuts = len(recording.events) - first
        outcome.states = len(states)
        self._check(outcome, judge, recording, states)
        failed = {failure.state for failure in outcome.failures}
        sound = [state for state in states if state.id not in failed]
        again = _spread(sound, max(1, min(len(states) // SECOND_SHARE, SECOND_MOST)))
        for number, state in enumerate(again):
            self.report(Passing(f"{case.name}: cutting recoveries, {number + 1} of {len(again)}"))
            second = self._second(case, recording, state)
            inner = all_states(second.events, first=0, seed=case.seed)
            inner = sample(inner, SECOND_STATES, case.seed)
            inner = _spread(inner, SECOND_STATES)
            outcome.second_states += len(inner)
            self._check(outcome, judge, second, inner)
            self._forget(second)
        self._forget(recording)
        outcome.seconds = round(time.monotonic() - started, 1)
        return outcome

    def look_at(self, case: Case, script: Script, folder: Path, wanted: str) -> Outcome:
        """Recover and judge one state."""
        outer, inner = split_id(wanted)
        self.guest.vm.use_filesystem(self.builds.stock)
        recording, judge = self._open(case, script, folder)
        state = find(all_states(recording.events, first=0, seed=case.seed), outer)
        if inner:
            recording = self._second(case, recording, state)
            state = find(all_states(recording.events, first=0, seed=case.seed), inner)
        outcome = Outcome(case, operations=len(script.lines), cuts=1, states=1, considered=1)
        self._check(outcome, judge, recording, [state])
        return outcome

    def _open(self, case: Case, script: Script, folder: Path) -> tuple[Recording, Judge]:
        ops = [] if script.sql else parse_trace((folder / "trace").read_text())
        return load_recording(folder), Judge(case, script, ops, self.work)

    def _second(self, case: Case, recording: Recording, state: State) -> Recording:
        target = recording.folder.with_name(f"{recording.folder.name}-second")
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        text = plan(recording.events, [state], "m")
        self.guest.record_recovery(recording.folder, text, target, case.kind)
        log = (target / "log").read_bytes()
        base = bytes(next(recording.images([state])))
        returned = recording.acknowledged(state)
        return Recording(target, base, log, parse_log(log), f"{state.id}/", returned)

    def _forget(self, recording: Recording) -> None:
        self.guest.forget(recording.folder)
        if recording.prefix:
            shutil.rmtree(recording.folder)

    def _check(
        self, outcome: Outcome, judge: Judge, recording: Recording, states: Sequence[State]
    ) -> None:
        """The kernel recovers a batch while the one before is judged."""
        name = outcome.case.name
        judged: list[Future[Judged]] = []
        for number, batch in enumerate(_batches(states)):
            self.report(Passing(f"{name}: {number * BATCH} of {len(states)} states"))
            text = plan(recording.events, batch)
            found = self.guest.recover(recording.folder, text, outcome.case.kind)
            job = self.pool.submit(_judge_batch, outcome.case, judge, recording, batch, found)
            judged.append(job)
        for future in judged:
            outcome.failures += future.result().failures
            outcome.e2fsck_wrong += future.result().e2fsck_wrong
            outcome.blocks_wrong += future.result().blocks_wrong


def _batches(states: Sequence[State]) -> Iterator[list[State]]:
    iterator = iter(states)
    while batch := list(islice(iterator, BATCH)):
        yield batch


def _spread(states: Sequence[State], count: int) -> list[State]:
    """`count` of the states, evenly from the first to the last."""
    if len(states) <= count:
        return list(states)
    return [states[index * len(states) // count] for index in range(count)]


@dataclass(frozen=True)
class Judged:
    """What came of a batch."""

    failures: list[Failure]
    e2fsck_wrong: int
    blocks_wrong: int


def _judge_batch(
    case: Case, judge: Judge, recording: Recording, states: list[State], found: list[Found]
) -> Judged:
    if [state.id for state in states] != [one.id for one in found]:
        raise FastsyncError("the guest did not recover the states it was given")
    failures = []
    e2fsck_wrong = blocks_wrong = 0
    for state, image, one in zip(states, recording.images(states), found, strict=True):
        verdict = judge.verdict(image, one, recording.acknowledged(state))
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


def memory_dir() -> Path | None:
    """Where images are made and repaired: in memory, for e2fsck syncs what it writes."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else None


def crash_dir() -> Path:
    """Recordings, and the images of states that failed."""
    return build_dir() / "crash"


# --- a run ---------------------------------------------------------------------------------------


def module_digest(modules: ModuleSet) -> str:
    """A hash of a pair of modules."""
    return hashlib.sha256(modules.jbd2.read_bytes() + modules.ext4.read_bytes()).hexdigest()[:16]


def delays_patch() -> Path:
    """What makes modules delay, by DELAY_SEED, what they do with what they have chosen."""
    return repo_root() / "tests" / "delays.patch"


def prepare(kernel: str, report: Report, *, fault: Path | None = None) -> Builds:
    """Fetch and build what is missing; `fault` is a patch that breaks the subject."""
    tree = fetch_kernel(kernel, report=report)
    return Builds(
        tree,
        build_modules(tree, fault=fault, report=report),
        build_modules(tree, stock=True, report=report),
        build_flashdev(tree, report=report),
        root_image(report=report),
    )


@contextmanager
def _one_thread() -> Iterator[ThreadPoolExecutor]:
    """A thread for judging; what it has not begun is dropped when the run is interrupted."""
    pool = ThreadPoolExecutor(1)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def explorer(
    builds: Builds,
    programs: Collection[str] = (),
    *,
    report: Report = silent,
    stop: threading.Event | None = None,
) -> Iterator[Explorer]:
    """An explorer in a guest of its own, for workloads that `programs` run.

    The guest dies once another thread sets `stop`.
    """
    build_programs(programs)
    crash_dir().mkdir(parents=True, exist_ok=True)
    report(f"booting {builds.tree.release}")
    with (
        tempfile.TemporaryDirectory(prefix="fastsync-crash-", dir=memory_dir()) as work,
        _one_thread() as pool,
        Vm(VmConfig(builds.tree), out_dir=crash_dir(), stop=stop) as vm,
    ):
        yield Explorer(Guest(vm, builds.flashdev), builds, Path(work), pool, report)


def explore(
    request: Request,
    builds: Builds,
    *,
    report: Report = silent,
    finished: Callable[[Outcome], None] = lambda _outcome: None,
    jobs: int = 1,
) -> list[Outcome]:
    """Explore the cases of a request in as many guests as `jobs`, which are booted for it.

    `finished` is called for one case at a time. Raises FastsyncError when a guest or a workload
    fails; what the other guests do is dropped then.
    """
    build_programs({request.script(case).program for case in request.cases})
    shares = deque(chunks(request.cases, jobs))
    lock = threading.Lock()
    stop = threading.Event()

    def keep(outcome: Outcome) -> None:
        with lock:
            finished(outcome)

    def take() -> tuple[Case, ...]:
        with lock:
            return shares.popleft() if shares else ()

    def work() -> list[Outcome]:
        outcomes: list[Outcome] = []
        with explorer(builds, report=report, stop=stop) as one:
            for share in iter(take, ()):
                outcomes += one.run(replace(request, cases=share), keep)
        return outcomes

    with ThreadPoolExecutor(jobs) as pool:
        guests = [pool.submit(work) for _ in range(min(jobs, len(shares)))]
        try:
            return [outcome for one in as_completed(guests) for outcome in one.result()]
        finally:
            stop.set()


def chunks(cases: Sequence[Case], jobs: int) -> list[tuple[Case, ...]]:
    """What one of `jobs` guests records before it recovers any, for the modules change in between.

    A large case is alone, so that no guest is left with many.
    """
    most = min(CHUNK, -(-len(cases) // jobs))
    taken: list[list[Case]] = []
    for case in cases:
        if not taken or len(taken[-1]) == most or case.is_large or taken[-1][-1].is_large:
            taken.append([])
        taken[-1].append(case)
    return [tuple(some) for some in taken]


def _kept_recording(case: Case, script: Script, subject: ModuleSet) -> Path | None:
    """What an earlier run of the same operations with the same modules has left."""
    folder = crash_dir() / case.name
    kept = [folder / "modules", folder / "script"]
    if not all(path.is_file() for path in kept):
        return None
    same = [path.read_text() for path in kept] == [module_digest(subject), script.text]
    return folder if same else None
