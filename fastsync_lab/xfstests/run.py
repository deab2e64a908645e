"""A whole run: every test in every mode, in as few guests as can be."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from fastsync_lab.crash.builds import module_digest
from fastsync_lab.host.build import ModuleSet, build_flashdev, build_modules
from fastsync_lab.host.debug.kernel import uml_kernel
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.fetch import fetch_kernel
from fastsync_lab.host.kernels import KernelTree, file_checksum
from fastsync_lab.host.options import CONTROL
from fastsync_lab.host.progress import Report
from fastsync_lab.machine.config import VmConfig
from fastsync_lab.machine.image import RootImage, root_image
from fastsync_lab.machine.vm import Vm
from fastsync_lab.xfstests.guest import MACHINE, MEMORY_MIB, Guest, prepare
from fastsync_lab.xfstests.results import FAIL, Key, Run, Store, still_to_run
from fastsync_lab.xfstests.tree import IMAGE, Tree, build_tree

# So many tests run in one mode, then in the next: a run that is interrupted can be compared.
CHUNK = 8
ATTEMPTS = 2


@dataclass(frozen=True)
class Setting:
    """What a run needs."""

    tree: KernelTree
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
            root_sha256=self.image.digest,
            flashdev_sha256=file_checksum(self.flashdev),
            tree=self.suite.digest,
            machine=MACHINE,
        )


def make_setting(suite: Tree, kernel: str, report: Report) -> Setting:
    """Fetch and build what is missing."""
    tree = uml_kernel(fetch_kernel(kernel, report=report), report=report)
    return Setting(
        tree,
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

    def run(self, mode: str, test: str, limit_s: float) -> Run:
        """Run a test in a mode; FastsyncError when it cannot be run in a new guest either."""
        for attempt in range(ATTEMPTS):
            try:
                guest = self._ready()
                guest.use(mode, self._setting.modules(mode))
                run = guest.run(test, limit_s=limit_s)
            except FastsyncError as error:
                self.close()
                if attempt + 1 == ATTEMPTS:
                    raise FastsyncError(f"{mode} {test}: {error}") from error
                continue
            if run.verdict == FAIL or not guest.vm.running:
                self.close()
            return run
        raise AssertionError

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


def in_chunks(
    pairs: Iterable[tuple[str, str]], tests: Sequence[str], modes: Sequence[str]
) -> list[tuple[str, str]]:
    """(mode, test) of these in an order that changes the mode only every CHUNK tests."""
    place = {test: number for number, test in enumerate(tests)}
    return sorted(
        pairs, key=lambda pair: (place[pair[1]] // CHUNK, modes.index(pair[0]), place[pair[1]])
    )


@dataclass
class Progress:
    """Tells what was done, what is left, and how long that may take."""

    report: Report
    done: int = 0
    started: float = 0.0

    def tell(self, mode: str, test: str, left: int) -> None:
        """A test begins; `left` with it."""
        self.started = self.started or time.monotonic()
        words = f"{mode} {test}: {self.done} done, {left} left"
        if self.done:
            minutes = (time.monotonic() - self.started) / self.done * left / 60
            words += f", about {minutes:.0f} min"
        self.report(words)


def run_all(
    machine: Machine,
    store: Store,
    tests: Sequence[str],
    modes: Sequence[str],
    *,
    limit_s: float,
    report: Report,
    finished: Callable[[str, str, Run], None],
) -> None:
    """Run what is not known yet; then what differs from stock a second time, on both."""
    progress = Progress(report)
    try:
        while pairs := in_chunks(still_to_run(store.runs, tests, modes), tests, modes):
            mode, test = pairs[0]
            progress.tell(mode, test, len(pairs))
            run = machine.run(mode, test, limit_s)
            store.add(mode, test, run)
            finished(mode, test, run)
            progress.done += 1
    finally:
        machine.close()
