"""A run of the explorer: record workloads, recover and judge crash states, keep what failed."""

import hashlib
import os
import re
import shutil
import struct
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

from fastsync_lab.build import ModuleSet, build_flashdev, build_modules
from fastsync_lab.crash.extfs import Image, Tree
from fastsync_lab.crash.guest import (
    Found,
    Guest,
    build_programs,
    built_program,
    make_base,
    plan,
)
from fastsync_lab.crash.log import Event, parse_log
from fastsync_lab.crash.mariadb import read_table
from fastsync_lab.crash.oracle import Oracle, Promise
from fastsync_lab.crash.sql import SqlOracle, read_sqlite
from fastsync_lab.crash.states import (
    State,
    all_states,
    apply_writes,
    durable_writes,
    find,
    first_event_after,
    sample,
    split_id,
)
from fastsync_lab.crash.trace import Op, parse_trace
from fastsync_lab.crash.workloads import Script, make_script
from fastsync_lab.errors import FastsyncError
from fastsync_lab.experiment import mtime_options
from fastsync_lab.kernel_log import check_kernel_log
from fastsync_lab.kernels import KernelTree, fetch_kernel
from fastsync_lab.paths import build_dir
from fastsync_lab.progress import Passing, Report, silent
from fastsync_lab.shell import Completed, run
from fastsync_lab.vm import Vm, VmConfig

MODES = ("off", "truncate", "defer")
CONTROL = "stock"  # the kernel's own modules, to tell whose a failure is
JOURNALS = ("ordered", "journal", "fast_commit")
# When a whole commit has overtaken the fast commits, e2fsck (1.47.0 to 1.47.4) calls their old
# transaction number invalid and throws the whole journal away; the kernel stops there.
E2FSCK_CANNOT_REPLAY = ("fast_commit",)
# When the kernel replays fast commits it counts an inode's blocks anew, and not that of its xattrs.
BLOCKS_WRONG = re.compile(r"Inode \d+, i_blocks is \d+, should be \d+\.  Fix\? no")
BATCH = 40
SECOND_SHARE = 20  # of so many states one is cut again while it is recovered,
SECOND_MOST = 20  # but of a case no more than this: each takes seconds
SECOND_STATES = 6
PAGE = 4096
MUCH_LATER_S = 4102444800  # the year 2100
UNREADABLE = (FastsyncError, ValueError, IndexError, struct.error)
# What e2fsck -fy says of a sound file system whose journal it has replayed.
QUIET_FSCK = (
    "recovering journal",
    "Pass ",
    "Clearing orphaned inode",
    "Truncating orphaned inode",
    "Setting free ",
    "Free blocks count wrong",
    "Free inodes count wrong",
    "FILE SYSTEM WAS MODIFIED",
    "files (",
    "Fix? yes",
    "could be shorter.  Optimize? yes",
    "could be narrower.  Optimize? yes",
)


@dataclass(frozen=True)
class Case:
    """What is explored: a workload in a mode (or "stock") with a kind of journal."""

    workload: str
    mode: str
    journal: str
    interval_ms: int = 100
    seed: int = 1

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.workload}-{self.mode}-{self.journal}-{self.interval_ms}-{self.seed}"

    @property
    def mount_options(self) -> str:
        """What it is mounted with."""
        words = [f"data={'journal' if self.journal == 'journal' else 'ordered'}"]
        if self.mode in ("truncate", "defer"):
            words.append(mtime_options(self.mode, self.interval_ms))
        return ",".join(words)

    @property
    def stock_says(self) -> bool:
        """Whether what is durable is for stock ext4's code to know.

        With the option off our modules take a fast commit that was under way before an fsync for
        the one it asked for, as stock does.
        """
        return self.mode == CONTROL or (self.mode == "off" and self.journal in E2FSCK_CANNOT_REPLAY)

    @property
    def promise(self) -> Promise:
        """What the mode promises of stamps."""
        return Promise.of(self.mode, self.interval_ms)

    def command(self, state: str) -> str:
        """The command line that looks at one state again."""
        words = ["./fastsync crash", self.workload, f"--mode {self.mode}"]
        words += [f"--journal {self.journal}", f"--seed {self.seed}"]
        if self.interval_ms != 100:
            words.append(f"--interval {self.interval_ms}")
        return " ".join([*words, f"--state {state}"])


@dataclass(frozen=True)
class Request:
    """What a run is asked for; `state` looks at one state of what was recorded before."""

    cases: tuple[Case, ...]
    states: int = 200
    kernel: str = "6.12"
    state: str | None = None

    def script(self, case: Case) -> Script:
        """What is run in a case."""
        return make_script(case.workload, case.seed, self.states)


@dataclass(frozen=True)
class Failure:
    """A state that lost something; `image` is what was on the medium.

    `on_stock`: the stock modules lose the same, in the same workload.
    """

    state: str
    acknowledged: int
    problems: tuple[str, ...]
    command: str
    image: str
    on_stock: bool = False


@dataclass
class Outcome:
    """What came of a case. Times are s of the host; `cuts` are places, `states` images.

    `e2fsck_wrong` counts the states in which e2fsck alone failed to replay fast commits,
    `blocks_wrong` those in which the kernel did but for BLOCKS_WRONG.
    """

    case: Case
    operations: int = 0
    cuts: int = 0
    states: int = 0
    second_states: int = 0
    considered: int = 0
    e2fsck_wrong: int = 0
    blocks_wrong: int = 0
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)

    @property
    def own_failures(self) -> list[Failure]:
        """Those that the stock modules do not have."""
        return [failure for failure in self.failures if not failure.on_stock]


@dataclass(frozen=True)
class Recording:
    """A log, the image that it starts from, and what had returned when.

    Of the recovery of a state, `returned` is what had returned at the first cut.
    """

    folder: Path
    base: bytes
    log: bytes
    events: list[Event]
    prefix: str = ""
    returned: frozenset[int] | None = None

    def acknowledged(self, state: State) -> frozenset[int]:
        """What had returned before the cut."""
        if self.returned is not None:
            return self.returned
        return self.events[state.event].acknowledged

    def images(self, states: Iterable[State]) -> Iterator[bytearray]:
        """What is on the medium, of states in the order of their events."""
        durable = bytearray(self.base)
        applied = 0
        for state in states:
            apply_writes(durable, durable_writes(self.events, applied, state.event), self.log)
            applied = state.event
            image = bytearray(durable)
            apply_writes(image, state.extra, self.log)
            yield image


def load_recording(folder: Path) -> Recording:
    """What the guest left in a folder."""
    log = (folder / "log").read_bytes()
    return Recording(folder, (folder / "base.img").read_bytes(), log, parse_log(log))


@dataclass(frozen=True)
class Verdict:
    """What is wrong after the kernel has recovered a state, and after e2fsck has.

    `checked` is what e2fsck says of the kernel's work.
    """

    kernel: tuple[str, ...]
    checked: tuple[str, ...]
    e2fsck: tuple[str, ...]

    @property
    def blocks_wrong(self) -> bool:
        """Whether e2fsck says nothing but that numbers of blocks are wrong."""
        said = [line for line in self.checked if "still has errors" not in line]
        return bool(said) and all(BLOCKS_WRONG.search(line) for line in said)


class Judge:
    """Says what is wrong with a recovered state."""

    def __init__(self, case: Case, script: Script, ops: list[Op], work: Path) -> None:
        self._work = work
        self._last_ns = max((op.stop_ns for op in ops), default=0)
        read = read_sqlite
        if script.flushing:
            read = partial(read_table, client=built_program(script.program))
        self._sql = SqlOracle(script.lines, read) if script.sql else None
        self._files = None if script.sql else Oracle(ops, case.promise)

    def verdict(self, state_image: bytearray, found: Found, returned: frozenset[int]) -> Verdict:
        """Each recovery is held against the promises, and e2fsck's against the kernel's."""
        recovered = bytearray(state_image)
        for page, data in found.pages.items():
            recovered[page * PAGE : (page + 1) * PAGE] = data
        kernel = [*found.errors]
        kernel += [f"kernel: {line}" for line in check_kernel_log("\n".join(found.log))]
        image = self._work / "image"
        write_sparse(image, recovered)
        checked = tuple(_fsck_clean(image, "the kernel"))
        write_sparse(image, state_image)
        e2fsck = [*_fsck_repair(image), *_fsck_clean(image, "e2fsck")]
        repaired = image.read_bytes()
        kernel += self._broken_promises("the kernel", recovered, found.tree, returned)
        try:
            by_e2fsck = Image(repaired).tree()
        except UNREADABLE as error:
            unreadable = f"after e2fsck the image cannot be read: {error}"
            return Verdict(tuple(kernel), checked, (*e2fsck, unreadable))
        if wrong := differences(found.tree, by_e2fsck, self._last_ns):
            e2fsck += wrong
            e2fsck += self._broken_promises("e2fsck", repaired, by_e2fsck, returned)
        return Verdict(tuple(kernel), checked, tuple(e2fsck))

    def _broken_promises(
        self, whose: str, image: bytes | bytearray, tree: Tree, returned: frozenset[int]
    ) -> list[str]:
        problems: list[str] = []
        try:
            if self._files:
                problems = self._files.problems(tree, returned)
            if self._sql and returned:
                problems = self._sql.problems(Image(image), returned)
        except UNREADABLE as error:
            problems = [f"the image cannot be read: {error}"]
        return [f"after recovery by {whose}: {text}" for text in problems]


def differences(by_kernel: Tree, by_fsck: Tree, last_ns: int) -> list[str]:
    """Where the two recoveries disagree.

    The kernel, but not e2fsck, stamps a file whose truncation it completes: later than `last_ns`.
    """
    problems = [
        f"{path}: there only after recovery by {'e2fsck' if path in by_fsck else 'the kernel'}"
        for path in sorted(by_kernel.keys() ^ by_fsck.keys())
    ]
    for path in sorted(by_kernel.keys() & by_fsck.keys()):
        one, other = vars(by_kernel[path]).copy(), vars(by_fsck[path])
        if min(one["mtime_ns"], one["ctime_ns"]) > last_ns > 0:
            one |= {key: other[key] for key in ("mtime_ns", "ctime_ns")}
        wrong = [key for key in one if one[key] != other[key]]
        if wrong:
            what = ", ".join(f"{key} {one[key]} and {other[key]}"[:120] for key in wrong)
            problems.append(f"{path}: the kernel and e2fsck disagree: {what}")
    return problems


def _e2fsck(options: str, path: Path) -> Completed:
    """The guest's clock may be ahead of ours, so e2fsck gets a later one."""
    env = {"E2FSCK_TIME": str(MUCH_LATER_S), "LC_ALL": "C.UTF-8"}
    return run(["/sbin/e2fsck", options, str(path)], env=env, check=False, timeout_s=60)


def _fsck_clean(image: Path, whose: str) -> list[str]:
    done = _e2fsck("-fn", image)
    if done.status == 0:
        return []
    said = _complaints(done.stdout) or [f"status {done.status}"]
    return [f"after recovery by {whose}, e2fsck -fn: {line}" for line in said]


def _fsck_repair(image: Path) -> list[str]:
    done = _e2fsck("-fy", image)
    complaint = " | ".join(_complaints(done.stdout)[:3])
    if done.status > 1 or complaint:
        return [f"e2fsck -fy ended with {done.status}: {complaint or done.stdout[-300:]}"]
    return []


def _complaints(output: str) -> list[str]:
    """What e2fsck says that it does not say of a sound file system."""
    lines = [line.strip() for line in output.splitlines()]
    return [line for line in lines if line and not any(quiet in line for quiet in QUIET_FSCK)]


@dataclass(frozen=True)
class Builds:
    """What a run needs: the modules that it explores, those that recover, the device model."""

    tree: KernelTree
    subject: ModuleSet
    stock: ModuleSet
    flashdev: Path


# --- one case ------------------------------------------------------------------------------------


@dataclass
class Explorer:
    """Explores cases in one guest."""

    guest: Guest
    builds: Builds
    work: Path
    pool: ThreadPoolExecutor
    report: Report

    def run(
        self, request: Request, finished: Callable[[Outcome], None] = lambda _outcome: None
    ) -> list[Outcome]:
        """First record all cases, then recover their states, so that modules change once."""
        folders = {}
        for case in sorted(request.cases, key=lambda case: case.mode == CONTROL):
            kept = _kept_recording(case, self.builds.subject) if request.state else None
            folders[case] = kept or self.record(case, request.script(case))
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
        fast_commit = case.journal == "fast_commit"
        make_base(folder / "base.img", script.device_mib, fast_commit=fast_commit)
        (folder / "script").write_text(script.text)
        self.guest.vm.use_filesystem(
            self.builds.stock if case.mode == CONTROL else self.builds.subject
        )
        self.guest.vm.kernel_log()
        self.guest.record(folder, case.mount_options, script)
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
            second = self._second(recording, state)
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
            recording = self._second(recording, state)
            state = find(all_states(recording.events, first=0, seed=case.seed), inner)
        outcome = Outcome(case, operations=len(script.lines), cuts=1, states=1, considered=1)
        self._check(outcome, judge, recording, [state])
        return outcome

    def _open(self, case: Case, script: Script, folder: Path) -> tuple[Recording, Judge]:
        ops = [] if script.sql else parse_trace((folder / "trace").read_text())
        return load_recording(folder), Judge(case, script, ops, self.work)

    def _second(self, recording: Recording, state: State) -> Recording:
        target = recording.folder.with_name(f"{recording.folder.name}-second")
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        text = plan(recording.events, [state], "m")
        self.guest.record_recovery(recording.folder, text, target)
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
            found = self.guest.recover(recording.folder, plan(recording.events, batch))
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


def write_sparse(path: Path, image: bytes | bytearray) -> None:
    """Write a file whose blocks of zeros take no room."""
    empty = bytes(PAGE)
    with path.open("wb") as file:
        file.truncate(len(image))
        for start in range(0, len(image), PAGE):
            if image[start : start + PAGE] != empty:
                file.seek(start)
                file.write(image[start : start + PAGE])


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


def prepare(kernel: str, report: Report, *, fault: Path | None = None) -> Builds:
    """Fetch and build what is missing; `fault` is a patch that breaks the subject."""
    tree = fetch_kernel(kernel, report=report)
    return Builds(
        tree,
        build_modules(tree, fault=fault, report=report),
        build_modules(tree, stock=True, report=report),
        build_flashdev(tree, report=report),
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
    builds: Builds, programs: Collection[str] = (), *, report: Report = silent
) -> Iterator[Explorer]:
    """An explorer in a guest of its own, for workloads that `programs` run."""
    build_programs(programs)
    crash_dir().mkdir(parents=True, exist_ok=True)
    report(f"booting {builds.tree.release}")
    with (
        tempfile.TemporaryDirectory(prefix="fastsync-crash-", dir=memory_dir()) as work,
        _one_thread() as pool,
        Vm(VmConfig(builds.tree), out_dir=crash_dir()) as vm,
    ):
        yield Explorer(Guest(vm, builds.flashdev), builds, Path(work), pool, report)


def explore(
    request: Request,
    builds: Builds,
    *,
    report: Report = silent,
    finished: Callable[[Outcome], None] = lambda _outcome: None,
) -> list[Outcome]:
    """Explore the cases of a request in a guest that is booted for it.

    Raises FastsyncError when the guest or a workload fails.
    """
    programs = {request.script(case).program for case in request.cases}
    with explorer(builds, programs, report=report) as one:
        return one.run(request, finished)


def _kept_recording(case: Case, subject: ModuleSet) -> Path | None:
    """What an earlier run of the case with the same modules has left."""
    folder = crash_dir() / case.name
    digest = folder / "modules"
    whole = digest.is_file() and digest.read_text() == module_digest(subject)
    return folder if whole else None
