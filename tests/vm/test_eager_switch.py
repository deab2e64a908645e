"""eager_sync: it is switched on while a task waits to begin a handle."""

import pytest

from tests.vm.guestfs import CRASH, FILE, MNT, NO_PERIODIC_COMMIT, GuestFs, between_ms, parse_events

pytestmark = pytest.mark.usefixtures("bursts")

AT_MS = 2000
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
