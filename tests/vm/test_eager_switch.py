"""eager_sync is switched on while a task waits to begin a handle, and off with the barriers."""

import errno
import json

import pytest

from tests.vm.eagerfs import OPTIONS, journal, requests, run
from tests.vm.guestfs import (
    CRASH,
    CRASH_IMAGE,
    FAIL_A_FLUSH,
    FILE,
    MNT,
    NO_PERIODIC_COMMIT,
    GuestFs,
    between_ms,
    parse_events,
)

pytestmark = pytest.mark.usefixtures("bursts")

AT_MS = 2000
EIO = json.dumps({"errno": errno.EIO})
# A handle of a bigalloc file system has credits for as many revokes as a cluster has blocks, or
# more, and for the blocks that they take: with bursts there are fewer in a block.
CLUSTERS = "-O bigalloc -C 65536"


@pytest.mark.short
@pytest.mark.parametrize("options", ["eager_sync", "eager_sync,mtime_update,mtime_mode=defer"])
def test_a_handle_that_has_waited_for_the_switch_has_enough_credits(
    slow_flushes: GuestFs, options: str
) -> None:
    fsops, other = slow_flushes.fsops_path, f"{MNT}/other"
    with slow_flushes.mounted(f"{NO_PERIODIC_COMMIT},errors=continue", mkfs=CLUSTERS):
        slow_flushes.prepare()
        text = slow_flushes.vm.run(
            f"{fsops} {other} create append align:{AT_MS} && "
            f"{{ {fsops} {MNT} remount:{options} & }}; "
            f"{fsops} {FILE} open sleep:10 clock chmod:600 clock fsync {CRASH} || exit; wait"
        ).stdout
        before, after = parse_events(text)[-2:]
        assert between_ms(before, after) > 10  # it has waited
        assert slow_flushes.crashed().mode == 0o600


def lose_cache(fs: GuestFs) -> str:
    """A script: what is in the device's cache is lost, and an image has what is left."""
    flush = f"{fs.fsops_path} {fs.device} open '?fsync'"
    return f"( {FAIL_A_FLUSH} ); [ \"$({flush})\" = 'try {EIO}' ] || exit 10; o $f crash:$img"


def test_a_log_that_goes_with_the_barriers_is_durably_empty(losing: GuestFs) -> None:
    """Else a crash might replay a part of it, over what has been written in place since."""
    with losing.mounted(OPTIONS):
        losing.prepare()
        quiet = "mount -o remount,nobarrier $m 2>/dev/null || exit 4"
        run(losing, f"settle; o $f open append fsync; {quiet}; {lose_cache(losing)}")
        assert journal(losing, CRASH_IMAGE)["Journal start"] == "0"


def test_barriers_stay_until_the_log_is_empty(fs: GuestFs) -> None:
    """What has been synced is there alone, and its places are flushed before the tail moves."""
    with fs.mounted(OPTIONS):
        fs.prepare()
        quiet = f"mount -o remount,nobarrier {MNT} 2>/dev/null"
        kinds = [kind for kind, _ in requests(fs, quiet, before="settle; o $f open append fsync")]
        assert "FF" in kinds and any("F" in kind and "W" in kind for kind in kinds), kinds
        without = [kind for kind, _ in requests(fs, f"{fs.fsops_path} {FILE} open append fsync")]
    assert not any("F" in kind for kind in without), without


def test_what_was_recovered_is_in_place_without_barriers_too(losing: GuestFs) -> None:
    with losing.mounted(OPTIONS):
        losing.prepare()
        run(losing, "settle; o $f open append fsync; cut f")
    write_back = f"dd if={CRASH_IMAGE} of={losing.device} bs=1M conv=fsync status=none"
    losing.vm.run(f"{write_back}; blockdev --flushbufs {losing.device}")
    losing.mount("nobarrier")
    run(losing, f"{lose_cache(losing)}; same f")
    losing.umount()
