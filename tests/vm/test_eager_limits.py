"""eager_sync: nobody's settling waits for what another cgroup's limit holds up."""

import pytest

from tests.vm.eagerfs import OPTIONS
from tests.vm.guestfs import FILE, MNT, GuestFs, between_ms, parse_events, with_limit

pytestmark = pytest.mark.usefixtures("bursts")

# What a second lets through of the writes of a task that writes so many MiB.
BYTES, MIB = 1 << 20, 8
MOST_MS = 1000

WORK = {
    # Copies at both ends, sent to their places, and between them what has none.
    "ends": f"""
        limited $fsops {FILE} create falloc:0,0,{(MIB + 2) << 20} fsync overwrite:4096 fsync \\
            overwrite:4096,{(MIB + 1) << 20} fsync overwrite:{MIB << 20},{1 << 20} writeback
        wait
    """,
    # An old block has been sent, and changes, and is synced together with a new one.
    "sent": f"""
        limited $fsops {FILE} create overwrite:4096 fsync; wait
        limited $fsops {MNT} freeze thaw; wait
        limited $fsops {MNT}/large create overwrite:{MIB << 20} writeback; wait
        limited $fsops {FILE} open overwrite:4096 writeback overwrite:4096 append fsync; sleep 0.3
    """,
}

# Somebody without a limit, and what shows whether he has had the log settled.
DIRECT_WRITE = f"""
    past_cache() {{
        sed -n 's/^settlings_past_cache //p' /sys/fs/ext4/${{FASTSYNC_DEV##*/}}/eager_stats
    }}
    before=$(past_cache)
    $fsops {MNT}/other create append fsync clock dwrite clock || exit
    echo seen '{{"settled":' $(($(past_cache) - before)) ', "under_way":' \\
        $(sed -n 's/^file_writeback //p' /sys/fs/cgroup/limited/memory.stat) '}}'
"""


@pytest.mark.parametrize("work", WORK)
def test_a_limit_of_the_bandwidth_is_its_cgroups_own(slow_flushes: GuestFs, work: str) -> None:
    """A settling waits for the places of all copies that the log has."""
    vm, name = slow_flushes.vm, slow_flushes.node
    device = vm.run(f"cat /sys/block/{name}/dev").stdout.strip()
    with slow_flushes.mounted(OPTIONS):
        script = with_limit("io.max", f"{device} wbps={BYTES}", WORK[work] + DIRECT_WRITE)
        done = vm.run(f"fsops={slow_flushes.fsops_path}; {script}")
        *clocks, seen = parse_events(done.stdout)
        assert int(vm.run(f"stat -c %s {FILE}").stdout) > 0
    assert between_ms(*clocks) < MOST_MS
    # It has waited for a settling, while most of what the limit holds up was not written yet.
    assert seen["settled"] == 1
    assert seen["under_way"] > MIB << 19
