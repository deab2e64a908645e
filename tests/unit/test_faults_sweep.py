"""The I/O error sweep: a run of it in a guest that is played, and what is made of each answer."""

from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fastsync_lab.crash.builds import Builds
from fastsync_lab.crash.extfs import Tree
from fastsync_lab.faults import sweep
from fastsync_lab.faults.compare import Case, Effect, Fault, Result
from fastsync_lab.faults.guest import DEVICE_MIB, EVERYTHING, Injection, Ran
from fastsync_lab.faults.layout import (
    COMMIT_FLUSH,
    DATA,
    JOURNAL,
    RECORD,
    SYNC_FLUSH,
    Layout,
    Sent,
)
from fastsync_lab.faults.sweep import BATCH, Sweeper
from fastsync_lab.faults.workloads import make_script
from fastsync_lab.host.build import ModuleSet
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.host.progress import Passing
from fastsync_lab.machine.image import RootImage
from tests.unit.crashes import file, trace, written
from tests.unit.kernel_logs import BAD_LINES, FAILING

LAYOUT = Layout(frozenset(range(75, 1099)), 75, frozenset({1, 3, 4, 5}))
CASE = Case("overwrite", "defer", "remount-ro", dead=False)
FINE = Effect((), aborted=False, read_only=False, lost=False, unsound=False)
OPS = trace("create f", "write f 0 4096", "fsync f", "write f 0 4096", "fsync f")
NEW = file(12, written(1, 4096), stamp=OPS[1].mtime_ns)
WHOLE: Tree = {"f": file(12, written(3, 4096), stamp=OPS[3].mtime_ns)}


def ran(*sent: Sent, errors: dict[int, int] | None = None, **changed: Any) -> Ran:
    """A run of OPS in which these requests were made, or failed."""
    results = [(op, (errors or {}).get(op.number, 0)) for op in OPS]
    return replace(Ran(results, list(sent), "", (), (), WHOLE, 0), **changed)


FLUSH, RECORD_SENT = Sent("FF", 0, 0, 2), Sent("WFSM", 688, 8, 2)
SENT = [Sent("WS", 8792, 8, 2), FLUSH, RECORD_SENT, Sent("FF", 0, 0, 4), Sent("WSM", 672, 16, 4)]


def judged(first: int, one: Ran, case: Case = CASE) -> Fault:
    (fault,) = sweep.judge(case, LAYOUT, first, one, SENT)
    return fault


# --- one answer ----------------------------------------------------------------------------------


def test_a_request_that_was_never_made_is_no_fault() -> None:
    assert sweep.judge(CASE, LAYOUT, 4, ran(), SENT) == []


@pytest.mark.parametrize(
    ("first", "failed", "kind"),
    [
        (1, SENT[0], DATA),
        (2, FLUSH, COMMIT_FLUSH),  # as the request behind it shows
        (2, replace(FLUSH, sector=2**64 - 1), COMMIT_FLUSH),  # a flush has no place
        (3, RECORD_SENT, RECORD),
        (4, SENT[3], SYNC_FLUSH),
        (5, SENT[4], JOURNAL),  # the last one
        (5, replace(SENT[4], sectors=8), JOURNAL),  # the rest of it had not failed
        # Another request than the one that was recorded: what it is for is told by itself.
        (2, replace(FLUSH, mark=4), SYNC_FLUSH),
        (1, Sent("WSM", 672, 16, 2), JOURNAL),
        (1, Sent("WS", 672, 16, 2), JOURNAL),
        (3, replace(RECORD_SENT, sector=8800), DATA),
        (3, FLUSH, SYNC_FLUSH),
    ],
)
def test_what_failed(first: int, failed: Sent, kind: str) -> None:
    fault = judged(first, ran(failed, Sent("RM", 40, 8, 0)))
    assert fault == Fault(first, kind, failed.mark, FINE)


@pytest.mark.parametrize(
    ("one", "effect"),
    [
        (ran(FLUSH), FINE),
        (ran(FLUSH, errors={2: 5, 4: 30}, tree={}), replace(FINE, errors=((2, 5), (4, 30)))),
        (ran(FLUSH, errors={4: 5}, tree={}), replace(FINE, errors=((4, 5),), lost=True)),
        (ran(FLUSH, log="[ 1.0] Aborting journal on device flash0-8.\n"),
         replace(FINE, aborted=True)),
        (ran(FLUSH, log="[ 1.0] EXT4-fs (flash0): Remounting filesystem read-only\n"),
         replace(FINE, read_only=True)),
        (ran(FLUSH, log=FAILING), replace(FINE, aborted=True, read_only=True)),
        (ran(FLUSH, recovery_log=tuple(FAILING.splitlines())), FINE),
        (ran(FLUSH, fsck_status=4), replace(FINE, unsound=True)),
        (ran(FLUSH, recovery_errors=("mount failed with errno 117",), tree={}),
         replace(FINE, unsound=True)),
    ],
)  # fmt: skip
def test_what_came_of_it(one: Ran, effect: Effect) -> None:
    assert judged(2, one).effect == effect


LOCKS = "WARNING: possible circular locking dependency detected"


def test_a_bug_that_the_kernel_logged_came_of_it_whatever_the_calls_returned() -> None:
    """In the run, or in the recovery after it."""
    in_run = judged(2, ran(FLUSH, log=f"{FAILING}{BAD_LINES[0]}\n"))
    assert in_run.effect.bugs == ("WARNING: CPU: # PID: # at inode.c:# ext4_x+#/# [ext4]",)
    both = judged(2, ran(FLUSH, log="[ 1.0] kernel BUG at a.c:1!", recovery_log=("fine", LOCKS)))
    assert both.effect == replace(FINE, bugs=("kernel BUG at a.c:#!", LOCKS))


def test_what_was_promised_before_the_first_error_must_be_there() -> None:
    first: Tree = {"f": NEW}
    assert sweep.lost(CASE, ran(tree=WHOLE)) == []
    assert sweep.lost(CASE, ran(tree=first)) != []
    assert sweep.lost(CASE, ran(tree=first, errors={4: 5})) == []
    for first_error in (2, 3, 4):  # what came after that may be there
        assert sweep.lost(CASE, ran(tree=WHOLE, errors={first_error: 5})) == []
    assert sweep.lost(CASE, ran(tree={}, errors={4: 5})) != []
    assert sweep.lost(CASE, ran(tree={}, errors={2: 5, 4: 5})) == []
    assert sweep.lost(CASE, ran(tree={}, recovery_errors=("mount failed with errno 5",))) == []


def test_stamps_may_be_as_old_as_the_mode_says() -> None:
    """The two writes are 100 ms apart, less than the interval of 150."""
    older = ran(tree={"f": replace(WHOLE["f"], mtime_ns=NEW.mtime_ns, ctime_ns=NEW.ctime_ns)})
    assert sweep.lost(CASE, older) == []
    assert sweep.lost(replace(CASE, mode="off"), older) != []
    assert sweep.lost(replace(CASE, mode="stock"), older) != []
    assert sweep.lost(replace(CASE, mode="defer+eager"), older) == []


def test_what_a_case_is_mounted_with() -> None:
    common = "data=ordered,no_prefetch_block_bitmaps,errors=remount-ro,commit=300"
    assert sweep.mount_options(replace(CASE, mode="stock")) == common
    assert sweep.mount_options(CASE) == f"{common},mtime_update=150,mtime_mode=defer"
    periodic = Case("periodic", "eager", "continue", dead=True)
    assert sweep.mount_options(periodic) == (
        "data=ordered,no_prefetch_block_bitmaps,errors=continue,commit=1,eager_sync"
    )


def test_the_file_system_is_kept_without_the_zeros_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_base(path: Path, device_mib: int, *, extended: str) -> None:
        assert (device_mib, extended) == (DEVICE_MIB, ",packed_meta_blocks=1")
        path.write_bytes(b"\0X" * 3000 + bytes(50000))

    monkeypatch.setattr(sweep, "make_base", make_base)
    monkeypatch.setattr(
        sweep, "read_layout", lambda path: (path.name, len(path.read_bytes()), LAYOUT)
    )
    assert sweep.make_start(tmp_path) == ("base.img", 56000, LAYOUT)  # type: ignore[comparison-overlap]
    assert [path.name for path in tmp_path.iterdir()] == ["start.img"]
    assert (tmp_path / "start.img").read_bytes() == b"\0X" * 3000 + bytes(8192 - 6000)


# --- a run ---------------------------------------------------------------------------------------


@dataclass
class PlayedVm:
    """Remembers which modules were asked for."""

    used: list[str] = field(default_factory=list)

    def use_filesystem(self, modules: ModuleSet) -> None:
        self.used.append(modules.name)


@dataclass
class PlayedGuest:
    """Answers with what it was given: a recording, and for each request that is to fail a run."""

    recording: Ran
    vm: PlayedVm = field(default_factory=PlayedVm)
    asked: list[Any] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    makes: int = 10**9  # of the requests of a batch that are to fail, the first ones

    def record(self, folder: Path, options: str) -> Ran:
        assert (folder / "start.img").exists()
        self.scripts.append((folder / "script").read_text())
        self.asked.append(("record", folder.name, options))
        return self.recording

    def inject(self, folder: Path, options: str, injections: Iterable[Injection]) -> list[Ran]:
        wanted = list(injections)
        self.asked.append((folder.name, options, wanted))
        failed = [self.recording.sent[:1] if one < self.makes else [] for one in range(len(wanted))]
        return [replace(self.recording, sent=sent) for sent in failed]


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builds:
    """Modules that are not there; everything that a sweep writes goes into tmp_path."""

    def make_start(folder: Path) -> Layout:
        (folder / "start.img").write_text("fs")
        return LAYOUT

    monkeypatch.setattr(sweep, "build_dir", lambda: tmp_path / "build")
    monkeypatch.setattr(sweep, "make_start", make_start)
    tree = KernelTree("6.12", "6.12.1", "6.12.1-1", tmp_path, tmp_path, tmp_path, tmp_path)
    ours, stock = (ModuleSet(name, tmp_path, tmp_path) for name in ("fastsync", "stock"))
    return Builds(
        tree, ours, stock, tmp_path / "flashdev.ko", RootImage(tmp_path, tmp_path, "a", {})
    )


def build_of(builds: Builds) -> Path:
    """What build_dir() is for them."""
    return builds.flashdev.parent / "build"


def sweeper(builds: Builds, recording: Ran) -> tuple[Sweeper, PlayedGuest, list[str]]:
    guest, told = PlayedGuest(recording), list[str]()
    folder = build_of(builds)
    folder.mkdir(exist_ok=True)
    return Sweeper(guest, builds, folder, told.append), guest, told  # type: ignore[arg-type]


SCRIPT = make_script("overwrite")
READY = SCRIPT.prepared


def recorded(count: int, mark: int = READY, log: str = "", error: int = 0) -> Ran:
    """A recording of all of the script's calls, with so many requests after it was ready."""
    ops = trace(*(line.split(maxsplit=1)[1] for line in SCRIPT.lines))
    results = [(op, error if op.number == 3 else 0) for op in ops]
    early = Sent("WS", 8792, 8, READY - 1)
    sent = [early, *(Sent("WS", 8800 + 8 * number, 8, mark) for number in range(count))]
    return Ran(results, sent, log, (), (), {}, 0)


def test_every_request_after_the_beginning_fails_once(builds: Builds) -> None:
    one, guest, told = sweeper(builds, recorded(BATCH + 2))
    result = one.sweep(CASE)
    options, name = sweep.mount_options(CASE), CASE.name
    assert guest.vm.used == ["fastsync"]
    assert guest.asked == [
        ("record", name, options),
        (name, options, [Injection(first, 1) for first in range(1, BATCH + 1)]),
        (name, options, [Injection(BATCH + 1, 1), Injection(BATCH + 2, 1)]),
    ]
    assert told == [f"{name}: recording", f"{name}: 0 of 22 requests", f"{name}: 20 of 22 requests"]
    assert all(isinstance(line, Passing) for line in told)
    assert guest.scripts == [SCRIPT.text] and not list(build_of(builds).iterdir())
    assert (result.case, result.calls[:2], len(result.calls)) == (
        CASE, ("create", "write"), len(SCRIPT.lines),
    )  # fmt: skip
    assert [fault.first for fault in result.faults] == list(range(1, BATCH + 3))
    assert {(fault.kind, fault.op) for fault in result.faults} == {(DATA, READY - 1)}


@pytest.mark.parametrize(("makes", "made"), [(BATCH, BATCH + 2), (2, 4), (1, 2)])
def test_a_case_knows_how_many_requests_were_to_fail_and_how_many_did(
    builds: Builds, makes: int, made: int
) -> None:
    one, guest, _ = sweeper(builds, recorded(BATCH + 2))
    guest.makes = makes
    result = one.sweep(CASE)
    assert (result.asked, result.made) == (BATCH + 2, made)
    assert [fault.first for fault in result.faults] == [
        *range(1, min(makes, BATCH) + 1),
        *range(BATCH + 1, BATCH + 1 + min(makes, 2)),
    ]


def test_a_case_none_of_whose_requests_is_made_again_is_an_error(builds: Builds) -> None:
    one, guest, _ = sweeper(builds, recorded(2))
    guest.makes = 0
    with pytest.raises(FastsyncError) as error:
        one.sweep(CASE)
    assert str(error.value) == f"{CASE.name}: none of its 2 requests was made a second time"


def test_a_case_is_timed(builds: Builds, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 102.26])
    monkeypatch.setattr(sweep, "time", SimpleNamespace(monotonic=lambda: next(times)))
    assert sweeper(builds, recorded(1))[0].sweep(CASE).seconds == 2.3


def test_on_a_device_that_stays_dead_all_behind_it_fail(builds: Builds) -> None:
    dead = replace(CASE, dead=True, mode="stock")
    one, guest, _ = sweeper(builds, recorded(2))
    assert [fault.first for fault in one.sweep(dead).faults] == [1, 2]
    assert guest.vm.used == ["stock"]
    assert guest.asked[1][2] == [Injection(1, EVERYTHING), Injection(2, EVERYTHING)]


@pytest.mark.parametrize(("workload", "count"), [("overwrite", 0), ("periodic", 3)])
def test_requests_of_the_unmount_fail_only_if_the_workload_says_so(
    builds: Builds, workload: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "faulty_unmount", lambda name: name == "periodic")
    monkeypatch.setattr(sweep, "make_script", lambda _name: SCRIPT)
    one, _, _ = sweeper(builds, recorded(3, mark=len(SCRIPT.lines)))
    result = one.sweep(replace(CASE, workload=workload))
    assert (result.asked, result.made) == (count, count)


def test_a_recording_must_work_and_leave_a_clean_log(builds: Builds) -> None:
    broken, _, _ = sweeper(builds, recorded(1, error=28))
    with pytest.raises(FastsyncError) as error:
        broken.sweep(CASE)
    assert str(error.value) == f"{CASE.name}: operation 3 failed without a fault"
    for line in (BAD_LINES[0], "[   21.0] EXT4-fs warning (device flash0): odd"):
        complained, guest, _ = sweeper(builds, recorded(1, log=f"fine\n{line}\n"))
        with pytest.raises(FastsyncError) as error:
            complained.sweep(CASE)
        assert str(error.value) == (
            f"{CASE.name}: the kernel complained without a fault: \n    {line}"
        )
        assert len(guest.asked) == 1
    recovered = replace(recorded(1), recovery_log=(LOCKS,))
    with pytest.raises(FastsyncError, match="possible circular"):
        sweeper(builds, recovered)[0].sweep(CASE)


def test_stock_runs_first_and_each_case_is_told_when_it_is_finished(builds: Builds) -> None:
    modes = ("defer", "stock", "off")
    cases = [replace(CASE, mode=mode) for mode in modes]
    told: list[Result] = []
    one, guest, _ = sweeper(builds, recorded(1))
    results = one.run(cases, told.append)
    assert results == told
    assert [result.case.mode for result in results] == ["stock", "defer", "off"]
    assert guest.vm.used == ["stock", "fastsync", "fastsync"]
    assert [result.case.mode for result in one.run(cases[:1])] == ["defer"]


def test_a_sweeper_has_a_guest_of_its_own(builds: Builds, monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[Any] = []

    @contextmanager
    def vm(config: Any, *, out_dir: Path) -> Any:
        assert out_dir.is_dir()
        happened.append((config.tree, out_dir))
        yield "vm"
        happened.append("gone")

    monkeypatch.setattr(sweep, "Vm", vm)
    monkeypatch.setattr(sweep, "build_programs", happened.append)
    monkeypatch.setattr(sweep, "Guest", lambda vm, flashdev: (vm, flashdev))
    for _ in range(2):  # the folder may be there
        happened.clear()
        with sweep.sweeper(builds, report=happened.append) as one:
            assert one.guest == ("vm", builds.flashdev)  # type: ignore[comparison-overlap]
            assert one.builds == builds
            assert one.report == happened.append
            folder = one.folder
            assert folder.parent == build_of(builds) and folder.is_dir()
        assert happened == [[], "booting 6.12.1", (builds.tree, folder), "gone"]
        assert not folder.exists()
