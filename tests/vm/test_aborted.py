"""A journal that has been aborted: no sync succeeds, and recovery finds what had been promised."""

import errno
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.host.build import ModuleSet
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine.vm import Vm
from tests.vm import eagerfs
from tests.vm.conftest import need_bursts, other_fs
from tests.vm.guestfs import (
    CAPACITY_MIB,
    CRASH,
    CRASH_IMAGE,
    FAIL_A_FLUSH,
    FAIL_ONE,
    FILE,
    MNT,
    MODES,
    MS,
    NO_PERIODIC_COMMIT,
    UNIFORM,
    GuestFs,
    parse_events,
    sound_log,
)
from tests.vm.tracing import trace_requests

POLICIES = {**MODES, "eager": eagerfs.OPTIONS}
OTHER, FOLDER = f"{MNT}/other", f"{MNT}/folder"


@pytest.fixture(params=POLICIES)
def options(request: pytest.FixtureRequest, tree: KernelTree) -> str:
    if request.param == "eager":
        need_bursts(tree)
    return POLICIES[request.param]


@pytest.fixture(params=["keeps", "loses"])
def failing(
    request: pytest.FixtureRequest, vm: Vm, fsops: str, modules: ModuleSet, flashdev: Path
) -> Iterator[GuestFs]:
    """A flush that fails may leave in the cache what is in it, or not; the log may tell of it."""
    loses = request.param == "loses"
    profile = replace(UNIFORM, flush_ns=5 * MS)
    with other_fs(vm, fsops, modules, flashdev, profile, CAPACITY_MIB, lose_cache=loses) as fs:
        yield fs
    sound_log(vm, device_fails=True)


def start(fs: GuestFs, options: str) -> None:
    """Two files, wholly on the medium, of which the log has no copies."""
    fs.mkfs()
    fs.mount(options)
    fs.prepare()
    fs.vm.run(f"cp {FILE} {OTHER}; sync; {fs.fsops_path} {MNT} freeze thaw")


@pytest.mark.parametrize("what", ["folder", "syncfs"])
def test_no_sync_finds_that_nothing_is_left_to_do(
    failing: GuestFs, options: str, what: str
) -> None:
    """The transaction that has the folder is aborted; stock takes it for one that has ended."""
    start(failing, options)
    fsops = failing.fsops_path
    call = f"sync {FOLDER}" if what == "folder" else f"{fsops} {MNT}/f open syncfs"
    done = failing.vm.run(
        f"mkdir {FOLDER}; ({FAIL_A_FLUSH}); {fsops} {OTHER} open chmod:601 '?fsync' || exit 3\n"
        f"{call} && exit 4; exit 0"
    )
    assert parse_events(done.stdout)[0]["errno"] != 0


def flushes_at_unmount(fs: GuestFs, number: int) -> list[bool]:
    """Unmount with something in the log, and crash; which of the flushes has failed.

    The one of that number is to fail, or none if it is 0.
    """
    start(fs, eagerfs.OPTIONS)
    fsops = fs.fsops_path
    traced = trace_requests(
        fs.vm,
        f"({FAIL_A_FLUSH}; echo {number} >fail_from); umount {MNT}; {fsops} {fs.device} {CRASH}",
        before=f"{fsops} {FILE} open chmod:600 fsync || exit",
    )
    ended = re.findall(r"block_rq_complete: \S+ FF \(\) .*\[(-?\d+)\]", traced.text)
    return [error != "0" for error in ended]


@pytest.mark.usefixtures("bursts")
def test_the_log_is_kept_if_a_flush_fails_at_unmount(failing: GuestFs) -> None:
    """Each of its flushes, one after the other; then power is cut, or the next mount comes.

    A log that is not empty is to be recovered.
    """
    sound = flushes_at_unmount(failing, 0)
    assert sound and not any(sound)
    for number in range(1, len(sound) + 1):
        ended = flushes_at_unmount(failing, number)
        assert ended.count(True) == 1 and ended[number - 1], number
        features = failing.vm.run(f"dumpe2fs -h {CRASH_IMAGE} 2>/dev/null").stdout
        empty = eagerfs.journal(failing, CRASH_IMAGE)["Journal start"] == "0"
        assert empty or "needs_recovery" in features, number
        assert failing.crashed().mode == 0o600, number
        failing.mount(NO_PERIODIC_COMMIT)
        assert failing.vm.run(f"stat -c %a {FILE}").stdout == "600\n", number
        failing.umount()


@pytest.mark.parametrize("how", ["discard", "fstrim"])
@pytest.mark.parametrize("failing", ["loses"], indirect=True)
def test_blocks_that_an_aborted_transaction_has_freed_are_not_discarded(
    failing: GuestFs, options: str, how: str
) -> None:
    """Recovery gives the file back, with its data."""
    start(failing, f"{'discard' if how == 'discard' else 'nodiscard'},{options}")
    failing.vm.run(f"printf N >{FILE}; sync; {failing.fsops_path} {MNT} freeze thaw")
    fsops = failing.fsops_path
    traced = trace_requests(
        failing.vm,
        f"rm {FILE}; ({FAIL_A_FLUSH}); {fsops} {OTHER} open chmod:601 '?fsync'; sleep 1"
        + (f"; fstrim {MNT} && exit 3" if how == "fstrim" else ""),
    )
    assert parse_events(traced.printed) == [{"errno": errno.EIO}]
    assert not any(one.is_discard for one in traced.requests), traced.text
    failing.umount()
    failing.mount()
    assert failing.vm.run(f"cat {FILE}").stdout == "N"


@pytest.mark.usefixtures("bursts")
def test_syncfs_does_not_promise_what_recovery_undoes(failing: GuestFs) -> None:
    """A block is logged, and again, in a transaction that fails; write-back then has it in place.

    Recovery restores the first copy, so a syncfs that has not failed would have lied.
    """
    start(failing, eagerfs.OPTIONS)
    fsops = failing.fsops_path
    done = failing.vm.run(
        f"{fsops} {MNT}/g create append fsync overwrite:4096 || exit 3\n"
        f"({FAIL_ONE.format('write')}); {fsops} {MNT}/g open '?fsync' '?syncfs'"
    )
    assert [event["errno"] != 0 for event in parse_events(done.stdout)] == [True, True]


def test_a_remount_to_read_only_is_not_kept_from_it(failing: GuestFs, options: str) -> None:
    start(failing, options)
    fsops = failing.fsops_path
    done = failing.vm.run(
        f"({FAIL_A_FLUSH}); {fsops} {OTHER} open chmod:601 '?fsync'; mount -o remount,ro {MNT}"
    )
    assert parse_events(done.stdout)[0]["errno"] != 0
    assert "ro" in failing.shown_options()
    assert "Aborting journal" in sound_log(failing.vm, device_fails=True)
