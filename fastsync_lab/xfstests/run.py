"""A whole run: every test in every mode, in as few guests as can be."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock

from fastsync_lab.crash.builds import module_digest
from fastsync_lab.host.build import ModuleSet, build_flashdev, build_modules, source_digest
from fastsync_lab.host.debug.kernel import uml_kernel
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.fetch import fetch_kernel
from fastsync_lab.host.kernels import KernelTree, file_checksum
from fastsync_lab.host.options import CONTROL
from fastsync_lab.host.progress import Report, Tally
from fastsync_lab.host.shares import share_out
from fastsync_lab.machine.config import VmConfig
from fastsync_lab.machine.image import RootImage, root_image
from fastsync_lab.machine.vm import Vm
from fastsync_lab.xfstests.guest import (
    MACHINE,
    MEMORY_MIB,
    Guest,
    device_numbers,
    mount_options,
    prepare,
    scripts_digest,
)
from fastsync_lab.xfstests.results import DIED, FAIL, Key, Run, Store, still_to_run
from fastsync_lab.xfstests.tree import IMAGE, Tree, build_tree, recipe_digest

# So many tests run in one mode, then in the next: a run that is interrupted can be compared.
CHUNK = 16
ATTEMPTS = 2


@dataclass(frozen=True)
class Setting:
    """What a run needs; `source` is the digest of the sources that `subject` was built of."""

    tree: KernelTree
    source: str
    subject: ModuleSet
    stock: ModuleSet
    flashdev: Path
    image: RootImage
    suite: Tree
    archive: Path

    def modules(self, mode: str) -> ModuleSet:
        """The modules of a mode."""
        return self.stock if mode == CONTROL else self.subject

    def key(self, mode: str) -> Key:
        """What decides the verdicts of a mode."""
        return Key(
            kernel=self.tree.identity,
            modules_sha256=module_digest(self.modules(mode)),
            options=mount_options(mode),
            root_sha256=self.image.digest,
            flashdev_sha256=file_checksum(self.flashdev),
            device=device_numbers(),
            scripts_sha256=scripts_digest(),
            tree=self.suite.digest,
            recipe_sha256=recipe_digest(),
            machine=MACHINE,
        )


def make_setting(suite: Tree, kernel: str, report: Report) -> Setting:
    """Fetch and build what is missing."""
    tree = uml_kernel(fetch_kernel(kernel, report=report), report=report)
    return Setting(
        tree,
        source_digest(tree.series),
        build_modules(tree, report=report),
        build_modules(tree, stock=True, report=report),
        build_flashdev(tree, report=report),
        root_image(IMAGE, report=report),
        suite,
        build_tree(suite, report),
    )


class Machine:
    """A guest that is there when it is needed, and made anew once a test may have spoilt it."""

    def __init__(self, setting: Setting, out_dir: Path, report: Report) -> None:
        self._setting, self._out_dir, self._report = setting, out_dir, report
        self._stack = ExitStack()
        self._guest: Guest | None = None

    def run(self, mode: str, tests: Sequence[str], limit_s: float) -> Iterator[tuple[str, Run]]:
        """Run tests in a mode: each and its verdict, as soon as that is there.

        When a guest dies, the test may have ended just before and the next one killed it. So it is
        run again, alone. Raises FastsyncError when a test cannot be run in a new guest either.
        """
        left = deque(tests)
        attempts, alone = 0, False
        while left:
            some = (left[0],) if alone else tuple(left)
            alone = False
            try:
                for run in self._until_spoilt(mode, some, limit_s):
                    alone = run.verdict == DIED and len(some) > 1
                    if not alone:
                        attempts = 0
                        yield left.popleft(), run
            except FastsyncError as error:
                self.close()
                attempts += 1
                if attempts == ATTEMPTS:
                    raise FastsyncError(f"{mode} {left[0]}: {error}") from error

    def _until_spoilt(self, mode: str, tests: Sequence[str], limit_s: float) -> Iterator[Run]:
        """Run tests in the guest, which ends behind the first that may have spoilt it."""
        guest = self._ready()
        guest.use(mode, self._setting.modules(mode))
        for run in guest.run(tests, limit_s=limit_s):
            spoilt = run.verdict == FAIL or not guest.vm.running
            if spoilt:
                self.close()
            yield run
            if spoilt:
                return

    def _ready(self) -> Guest:
        if self._guest is None:
            self._report(f"booting {self._setting.tree.release}")
            config = VmConfig(self._setting.tree, MEMORY_MIB, root=IMAGE)
            vm = self._stack.enter_context(Vm(config, out_dir=self._out_dir))
            self._guest = prepare(vm, self._setting.archive, self._setting.flashdev)
        return self._guest

    def close(self) -> None:
        """End the guest at once: it holds nothing that is needed."""
        if self._guest is not None:
            self._guest.vm.kill()
        self._guest = None
        self._stack.close()


def in_chunks(tests: Sequence[str]) -> list[tuple[str, ...]]:
    """Tests, some at a time: what a guest runs in each mode before it takes more."""
    return [tuple(tests[start : start + CHUNK]) for start in range(0, len(tests), CHUNK)]


def next_of(pairs: Sequence[tuple[str, str]], modes: Sequence[str]) -> tuple[str, list[str]] | None:
    """The mode that is next, and its tests, of what (mode, test) is still to be run."""
    if not pairs:
        return None
    mode = min((mode for mode, _ in pairs), key=modes.index)
    return mode, [test for one, test in pairs if one == mode]


@dataclass
class Work:
    """What is asked for of tests, and who hears of it; guests share one.

    `finished` is called for one run at a time. `stop` ends all behind the test that they are at.
    """

    store: Store
    modes: Sequence[str]
    limit_s: float
    tally: Tally
    finished: Callable[[str, str, Run], None]
    lock: Lock = field(default_factory=Lock)
    stop: Event = field(default_factory=Event)

    def do(self, machine: Machine, tests: Sequence[str]) -> None:
        """Run what is not known of these tests; then what differs from stock again, on both."""
        while todo := next_of(still_to_run(self.store.runs, tests, self.modes), self.modes):
            mode, some = todo
            for test, run in machine.run(mode, some, self.limit_s):
                with self.lock:
                    self.store.add(mode, test, run)
                    self.finished(mode, test, run)
                    self.tally.add(f"{mode} {test}: {run.verdict}, {run.seconds} s")
                if self.stop.is_set():
                    return


def run_all(work: Work, machines: Sequence[Machine], tests: Sequence[str]) -> None:
    """Run what is not known yet, in as many guests at a time as there are machines.

    Raises FastsyncError when one of them cannot run a test at all.
    """

    def taker(machine: Machine) -> Callable[[Iterator[tuple[str, ...]]], None]:
        def take(some: Iterator[tuple[str, ...]]) -> None:
            try:
                for share in some:
                    work.do(machine, share)
            finally:
                machine.close()

        return take

    share_out(in_chunks(tests), [taker(machine) for machine in machines], work.stop)
