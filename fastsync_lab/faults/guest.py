"""Running a workload on a device that fails, in the virtual machine."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastsync_lab.crash.extfs import Tree
from fastsync_lab.crash.guest import built_program
from fastsync_lab.crash.recover import parse_found
from fastsync_lab.crash.trace import Op, parse_results
from fastsync_lab.faults.layout import Sent
from fastsync_lab.faults.workloads import FIRST_MARK, PARAMETERS
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.machine.device import load_profile
from fastsync_lab.machine.vm import Vm

DEVICE = "/dev/flash0"
DEVICE_MIB = 12
PROFILE = "uniform-100us"
MEMORY = "/dev/shm/faults"  # in the guest
TRACING = "/sys/kernel/tracing"
BATCH_TIMEOUT_S = 600
EVERYTHING = 10**9  # requests: the device is dead
EVENT = re.compile(
    r"(?P<name>block_rq_issue|block_rq_complete): \d+,\d+ (?P<flags>\S+) (?:\d+ )?\(.*?\) "
    r"(?P<sector>\d+) \+ (?P<sectors>\d+)"
)
MARK = re.compile(r"tracing_mark_write: mark (\d+)")
BEGINS = "fastsync: a run begins"  # in the kernel's log, behind the recovery of the run before


@dataclass(frozen=True)
class Injection:
    """Requests that fail: `count` of them from number `first` on (1 is the first; 0: none)."""

    first: int
    count: int


@dataclass(frozen=True)
class Ran:
    """What came of a run: calls with their errnos, messages, and what was left afterwards.

    `log` is the kernel's until the unmount, `recovery_log` that of the recovery after it.
    `sent` are the requests of a run in which none was to fail, else those that have failed.
    """

    results: list[tuple[Op, int]]
    sent: list[Sent]
    log: str
    recovery_errors: tuple[str, ...]
    recovery_log: tuple[str, ...]
    tree: Tree
    fsck_status: int


def parse_requests(text: str) -> Iterator[Sent]:
    """The requests of a trace, each with the number of operations that had returned."""
    mark = 0
    for line in text.splitlines():
        if match := MARK.search(line):
            mark = int(match[1]) + 1
        elif match := EVENT.search(line):
            sector = int(match["sector"])
            yield Sent(match["flags"], sector, int(match["sectors"]), mark)


def parse_runs(text: str) -> Iterator[Ran]:
    """The runs of a batch. Raises FastsyncError when a part is missing."""
    for run_text in text.split("=== run\n")[1:]:
        parts = run_text.split("=== part\n")
        if len(parts) != 5:
            raise FastsyncError(f"the guest's answer has {len(parts)} parts: {run_text[-300:]}")
        results, trace, log, found, status = parts
        recovered, _ = parse_found(found, b"", 0)
        yield Ran(
            parse_results(results),
            list(parse_requests(trace)),
            log.rpartition(f"{BEGINS}\n")[2],
            recovered.errors,
            recovered.log,
            recovered.tree,
            int(status),
        )


class Guest:
    """The booted machine as the sweep uses it; `vm.out_dir` has the folders of the cases."""

    def __init__(self, vm: Vm, flashdev: Path) -> None:
        self.vm = vm
        self._ops = vm.stage(built_program("crashops"))
        self._check = vm.stage(built_program("crashcheck"))
        vm.run(
            f"mkdir -p {MEMORY}; dmesg -n 1; cd {TRACING} || exit\n"
            "echo 0 >events/enable; echo 1024 >buffer_size_kb"
        )
        vm.load_device(load_profile(PROFILE), flashdev, capacity_mib=DEVICE_MIB)

    def record(self, folder: Path, options: str) -> Ran:
        """Run `folder`/script on `folder`/start.img; every request is traced and none fails."""
        (ran,) = self._runs(folder, options, [Injection(0, 1)], "block_rq_issue", "1")
        return ran

    def inject(self, folder: Path, options: str, injections: Sequence[Injection]) -> list[Ran]:
        """The same once for each injection; the requests that fail are traced."""
        return self._runs(folder, options, injections, "block_rq_complete", "error != 0")

    def _runs(
        self, folder: Path, options: str, injections: Sequence[Injection], event: str, which: str
    ) -> list[Ran]:
        """A run for each injection. Raises FastsyncError when the guest answers for fewer."""
        here = f"$FASTSYNC_OUT/{folder.name}"
        events = f"{TRACING}/events/block/{event}"
        script_filter = "" if which == "1" else f"echo {shlex.quote(which)} >{events}/filter\n"
        lines = "".join(f"run {one.first} {one.count}\n" for one in injections)
        self.vm.run(
            f"cp {here}/start.img {here}/script {MEMORY}/ || exit\n"
            f"echo 'c x' >{MEMORY}/plan; script=$(<{MEMORY}/script)$'\\n'; dmesg -c >/dev/null\n"
            f"{script_filter}echo 1 >{events}/enable\n"
            f"run() {{\n{self._one_run(options)}}}\n"
            f"{{ {lines}}} >{MEMORY}/out || exit\n"
            f"echo 0 >{events}/enable; cp {MEMORY}/out {here}/out",
            timeout_s=BATCH_TIMEOUT_S,
        )
        runs = list(parse_runs((folder / "out").read_text(errors="replace")))
        if len(runs) != len(injections):
            raise FastsyncError(
                f"{folder.name}: the guest answered for {len(runs)} of {len(injections)} runs"
            )
        return runs

    def _one_run(self, options: str) -> str:
        """Bash: what is done for one injection; $1 and $2 are its numbers.

        It starts as few programs as it can: each takes longer than the workload. A static busybox
        starts at a fraction of what the others take.
        """
        return (
            f"echo '{BEGINS}' >/dev/kmsg\n"
            "echo 1 >/sys/kernel/debug/clear_warn_once\n"  # each run logs its own warnings
            f"busybox blkdiscard {DEVICE} || exit\n"
            f"busybox dd if={MEMORY}/start.img of={DEVICE} bs=512K conv=fsync 2>/dev/null || exit\n"
            f"echo >{TRACING}/trace\n"
            f"busybox mount -t ext4 -o {options} {DEVICE} /mnt || exit\n"
            f"echo $2 >{PARAMETERS}/fail_count\n"
            f'printf "%s" "${{script//{FIRST_MARK}/$1}}" >{MEMORY}/script.now\n'
            "echo '=== run'\n"
            f"(cd /mnt && exec {self._ops} - {MEMORY}/script.now) || exit\n"
            "busybox umount /mnt || exit\n"
            f"echo 0 >{PARAMETERS}/fail_from\n"
            f"echo '=== part'; echo \"$(<{TRACING}/trace)\"; echo '=== part'; busybox dmesg -c\n"
            "echo '=== part'\n"
            f"{self._check} - - {MEMORY}/plan - {DEVICE} /mnt /dev/null || exit\n"
            f"e2fsck -fn {DEVICE} >{MEMORY}/fsck 2>&1\n"
            "status=$?; echo '=== part'; echo $status\n"
        )
