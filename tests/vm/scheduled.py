"""An ext4 on a slow device under the scheduler qasio, and what the tests say of it.

Between two scripts the guest is idle, and its time then runs as fast as the host lets it: half a
minute may pass, and with it whatever the kernel does by itself. So what depends on time is in one
script, and that calls only what is in the guest's memory.
"""

from dataclasses import dataclass, replace

from fastsync_lab.machine.vm import Vm
from fastsync_lab.studies.qasio import WAITS, parse_waits
from tests.vm.guestfs import FILE, NODE, UNIFORM, GuestFs, between_ms

QUEUE = f"/sys/block/{NODE}/queue"
STATE = f"/sys/kernel/debug/block/{NODE}/sched/state"
SLOW_DEVICE = replace(
    UNIFORM,
    name="slow",
    write_mib_s=10,
    read_mib_s=100,
    discard_ns=500_000_000,
    queue_depth=32,
)
SLOW_MIB = 64
LARGE_MIB = 512  # XFS takes no less than 300
REQUEST_MS = 50  # of 512 KiB
BACKLOG = "backlog:8"
BACKLOG_MS = 800
# The two requests that the driver may have of the backlog, and the own one.
BOOSTED_MS = 4 * REQUEST_MS

Counters = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Scheduled:
    """A mounted ext4 on the slow device under qasio."""

    fs: GuestFs

    @property
    def vm(self) -> Vm:
        return self.fs.vm

    def waits(self) -> Counters:
        return parse_waits(self.vm.run(f"cat {WAITS}").stdout)

    def passed(self, why: str) -> int:
        """How many requests passed the backlog as of the "same_file" or "same_bio".

        Or were "looked_at" to find out.
        """
        return int(self.vm.run(f"awk '/^{why}/ {{ print $2 }}' {WAITS}").stdout)

    def tune(self, name: str, value: int) -> None:
        self.vm.run(f"echo {value} >{QUEUE}/iosched/{name}")

    def timed_ms(self, *words: str, call: str, file: str = FILE) -> float:
        """Do `words`, then `call`; how long that took, in ms."""
        return between_ms(*self.fs.ops(*words, "clock", call, "clock", file=file))

    def gained(self, kind: str, before: Counters) -> dict[str, int]:
        after = self.waits()[kind]
        return {name: value - before[kind][name] for name, value in after.items()}


def settled(sched: Scheduled, *words: str) -> None:
    """A file of 64 KiB, wholly on the medium, and `words` done to it."""
    sched.vm.run(f"dd if=/dev/zero of={FILE} bs=64k count=1 conv=fsync status=none; sync")
    if words:
        sched.fs.ops("open", *words)
    sched.vm.run("sync; echo 3 >/proc/sys/vm/drop_caches; sleep 1")
