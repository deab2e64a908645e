"""A run of the sweep: record each case's requests, then fail them one after the other."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fastsync_lab.crash.builds import Builds
from fastsync_lab.crash.guest import build_programs
from fastsync_lab.crash.kinds import make_base
from fastsync_lab.crash.oracle import Oracle, Promise
from fastsync_lab.faults.compare import Case, Effect, Fault, Result
from fastsync_lab.faults.guest import DEVICE_MIB, EVERYTHING, Guest, Injection, Ran
from fastsync_lab.faults.layout import Layout, Sent, read_layout
from fastsync_lab.faults.workloads import INTERVAL_MS, commit_s, faulty_unmount, make_script
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.options import CONTROL, mode_options, mtime_mode
from fastsync_lab.host.paths import build_dir
from fastsync_lab.host.progress import Passing, Report, silent
from fastsync_lab.machine.config import VmConfig
from fastsync_lab.machine.kernel_log import bugs_of, check_kernel_log, said_by_kernel
from fastsync_lab.machine.vm import Vm

# (errors=, does the device stay dead)
VARIANTS = (("remount-ro", False), ("remount-ro", True), ("continue", False))
BATCH = 20
BLOCK = 4096


@dataclass
class Sweeper:
    """Runs cases in one guest."""

    guest: Guest
    builds: Builds
    folder: Path
    report: Report

    def run(
        self, cases: Sequence[Case], finished: Callable[[Result], None] = lambda _result: None
    ) -> list[Result]:
        """Fail every request of every case. The module pair changes as seldom as can be."""
        results = []
        for case in sorted(cases, key=lambda case: case.mode != CONTROL):
            results.append(self.sweep(case))
            finished(results[-1])
        return results

    def sweep(self, case: Case) -> Result:
        """Record a case, then fail each of its requests.

        Raises FastsyncError if it fails, or has the kernel complain, by itself.
        """
        started = time.monotonic()
        folder = self.folder / case.name
        folder.mkdir()
        try:
            result = self._sweep(case, folder)
        finally:
            shutil.rmtree(folder)
        result.seconds = round(time.monotonic() - started, 1)
        return result

    def _sweep(self, case: Case, folder: Path) -> Result:
        layout = make_start(folder)
        script = make_script(case.workload)
        (folder / "script").write_text(script.text)
        self.guest.vm.use_filesystem(
            self.builds.stock if case.mode == CONTROL else self.builds.subject
        )
        options = mount_options(case)
        self.report(Passing(f"{case.name}: recording"))
        recording = self.guest.record(folder, options)
        if failed := [op for op, error in recording.results if error]:
            raise FastsyncError(f"{case.name}: operation {failed[0].number} failed without a fault")
        if check_kernel_log(log := log_of(recording)):
            raise FastsyncError(
                f"{case.name}: the kernel complained without a fault: {said_by_kernel(log)}"
            )
        result = Result(case, tuple(op.name for op, _ in recording.results))
        sent = [one for one in recording.sent if one.mark >= script.prepared]
        count = sum(faulty_unmount(case.workload) or one.mark < len(result.calls) for one in sent)
        result.asked = count
        for start in range(0, count, BATCH):
            self.report(Passing(f"{case.name}: {start} of {count} requests"))
            batch = range(start + 1, min(start + BATCH, count) + 1)
            injections = [Injection(first, EVERYTHING if case.dead else 1) for first in batch]
            for first, ran in enumerate(self.guest.inject(folder, options, injections), start + 1):
                result.faults += judge(case, layout, first, ran, sent)
        if count and not result.faults:
            raise FastsyncError(f"{case.name}: none of its {count} requests was made a second time")
        return result


def make_start(folder: Path) -> Layout:
    """`folder`/start.img: a fresh file system as far as it is not zeros."""
    image = folder / "base.img"
    make_base(image, DEVICE_MIB, extended=",packed_meta_blocks=1")
    layout = read_layout(image)
    data = image.read_bytes().rstrip(b"\0")
    (folder / "start.img").write_bytes(data.ljust(-(-len(data) // BLOCK) * BLOCK, b"\0"))
    image.unlink()
    return layout


def mount_options(case: Case) -> str:
    """What a case is mounted with; bitmaps are not read ahead at a time that chance decides."""
    words = ["data=ordered", "no_prefetch_block_bitmaps", f"errors={case.errors}"]
    words.append(f"commit={commit_s(case.workload)}")
    return ",".join([*words, *mode_options(case.mode, INTERVAL_MS)])


def judge(case: Case, layout: Layout, first: int, ran: Ran, sent: Sequence[Sent]) -> list[Fault]:
    """The fault that a run had in which request `first` was to fail; none if it was never made."""
    if not ran.sent:
        return []
    failed = ran.sent[0]
    recorded = sent[first - 1]
    following = sent[first] if first < len(sent) else None
    same = _same_place(failed, recorded)
    kind = layout.kind(recorded if same else failed, following if same else None)
    errors = tuple((op.number, error) for op, error in ran.results if error)
    effect = Effect(
        errors=errors,
        aborted="Aborting journal" in ran.log,
        read_only="Remounting filesystem read-only" in ran.log,
        lost=bool(lost(case, ran)),
        unsound=bool(ran.recovery_errors) or ran.fsck_status != 0,
        bugs=bugs_of(log_of(ran)),
    )
    return [Fault(first, kind, failed.mark, effect)]


def log_of(ran: Ran) -> str:
    """All that the kernel logged of a run, and of the recovery after it."""
    return "\n".join([ran.log, *ran.recovery_log])


def _same_place(failed: Sent, recorded: Sent) -> bool:
    """Is the request that failed the one that was recorded? A flush has no place."""
    if (failed.flags, failed.mark) != (recorded.flags, recorded.mark):
        return False
    return not failed.sectors or failed.sector == recorded.sector


def lost(case: Case, ran: Ran) -> list[str]:
    """What is missing of that which had been promised before the first error."""
    if ran.recovery_errors:
        return []
    numbers = [op.number for op, _ in ran.results]
    end = min((op.number for op, error in ran.results if error), default=len(numbers))
    oracle = Oracle([op for op, _ in ran.results], Promise.of(mtime_mode(case.mode), INTERVAL_MS))
    return oracle.problems(ran.tree, frozenset(numbers[:end]), frozenset(numbers))


@contextmanager
def sweeper(builds: Builds, *, report: Report = silent) -> Iterator[Sweeper]:
    """A sweeper in a guest of its own."""
    build_programs([])
    build_dir().mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory("", "faults-", build_dir()) as name:
        folder = Path(name)
        report(f"booting {builds.tree.release}")
        with Vm(VmConfig(builds.tree), out_dir=folder) as vm:
            yield Sweeper(Guest(vm, builds.flashdev), builds, folder, report)
