"""eager_sync: nobody's settling waits for what another cgroup's limit holds up."""

import pytest

from tests.vm.eagerfs import OPTIONS
from tests.vm.guestfs import FILE, MNT, GuestFs, between_ms, parse_events

pytestmark = pytest.mark.usefixtures("bursts")

# What a second lets through of the writes of a task that writes so many MiB.
BYTES, MIB = 1 << 20, 8
MOST_MS = 1000
LIMITED = "/sys/fs/cgroup/limited"

WORK = {
    # Copies at both ends, sent to their places, and between them what has none.
    "ends": f"""
        limited {FILE} create falloc:0,0,{(MIB + 2) << 20} fsync overwrite:4096 fsync \\
            overwrite:4096,{(MIB + 1) << 20} fsync overwrite:{MIB << 20},{1 << 20} writeback
        wait
    """,
    # An old block has been sent, and changes, and is synced together with a new one.
    "sent": f"""
        limited {FILE} create overwrite:4096 fsync; wait; limited {MNT} freeze thaw; wait
        limited {MNT}/large create overwrite:{MIB << 20} writeback; wait
        limited {FILE} open overwrite:4096 writeback overwrite:4096 append fsync; sleep 0.3
    """,
}


@pytest.mark.parametrize("work", WORK)
def test_a_limit_of_the_bandwidth_is_its_cgroups_own(slow_flushes: GuestFs, work: str) -> None:
    """A settling waits for the places of all copies that the log has."""
    program = slow_flushes.fsops_path
    with slow_flushes.mounted(OPTIONS):
        done = slow_flushes.vm.run(
            f"""
            cd /sys/fs/cgroup && echo +io +memory >cgroup.subtree_control && mkdir {LIMITED} || exit
            device=$(cat /sys/block/{slow_flushes.device.removeprefix("/dev/")}/dev)
            echo "$device wbps={BYTES}" >{LIMITED}/io.max || exit
            limited() {{ ( echo $BASHPID >{LIMITED}/cgroup.procs; exec {program} "$@" ) & }}
            {WORK[work]}
            {program} {MNT}/other create append fsync clock dwrite clock || exit
            echo "$device wbps=max" >{LIMITED}/io.max; wait; rmdir {LIMITED}
            echo -io -memory >cgroup.subtree_control
            """
        )
        took_ms = between_ms(*parse_events(done.stdout))
        assert int(slow_flushes.vm.run(f"stat -c %s {FILE}").stdout) > 0
    assert took_ms < MOST_MS
