"""Running tests in the virtual machine, on devices for tests, for scratch and for logged writes."""

import re
import shlex
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastsync_lab.host.build import ModuleSet
from fastsync_lab.host.errors import FastsyncError, TimeLimitError
from fastsync_lab.host.kernels import files_digest
from fastsync_lab.host.options import mode_options
from fastsync_lab.machine.device import load_profile
from fastsync_lab.machine.initramfs import guest_scripts
from fastsync_lab.machine.uml import KERNEL_PARAMETERS, SCRIPT
from fastsync_lab.machine.vm import Vm
from fastsync_lab.xfstests.results import (
    DIED,
    FAIL,
    FILE_SYSTEM,
    KERNEL_LOG,
    NOT_RUN,
    PASS,
    Run,
    hung,
)

PROFILE = "nvme"
DEVICES = 3
CAPACITY_MIB = 4096  # of each; what is written to takes memory
MEMORY_MIB = 6144
MACHINE = f"User-Mode Linux, {MEMORY_MIB} MiB, {' '.join(KERNEL_PARAMETERS)}"
PREPARE_LIMIT_S = 240
FUNCTIONS = Path(__file__).with_name("guest.sh")
# What the suite says when something went wrong, and what we call it.
REASONS = (
    ("output", re.compile(r"output mismatch")),
    ("status", re.compile(r"\[failed, exit status")),
    (KERNEL_LOG, re.compile(r"_check_dmesg: something found")),
    (FILE_SYSTEM, re.compile(r"is inconsistent")),
)


def part_of(said: str, test: str) -> str:
    """What the suite said of a test: from its name on, up to the next one or to the summary.

    Raises FastsyncError when it did not come so far as to run it.
    """
    match = re.search(
        rf"^{re.escape(test)}\s.*?(?=^(?:generic|ext4)/\d+\s|^Ran: |^Ended:|\Z)",
        said,
        re.MULTILINE | re.DOTALL,
    )
    if match is None:
        raise FastsyncError("`check` of xfstests did not run the test")
    return match[0]


def parse_part(part: str, seconds: int) -> Run:
    """The verdict on a test, from what the suite said of it. Of a test that passed it says so."""
    first = part.split("\n", 1)[0]
    if "[not run]" in first:
        return Run(NOT_RUN, seconds)
    if re.fullmatch(r"\S+\s+(?:\d+s \.\.\.\s+)?\d+s\s*", first):
        return Run(PASS, seconds)
    return Run(FAIL, seconds, ", ".join(why for why, pattern in REASONS if pattern.search(part)))


def mount_options(mode: str) -> str:
    """What a mode adds to the suite's own mount options."""
    options = ",".join(mode_options(mode))
    return f"-o {options}" if options else ""


def device_numbers() -> str:
    """The numbers of the devices, as their driver takes them."""
    return " ".join(load_profile(PROFILE).module_parameters(CAPACITY_MIB, devices=DEVICES))


def scripts_digest() -> str:
    """A hash of what the lab runs in the guest; FUNCTIONS has the suite's configuration."""
    return files_digest([FUNCTIONS, *guest_scripts(SCRIPT).values()])


@dataclass
class Guest:
    """A booted machine with the suite in it."""

    vm: Vm
    functions: str
    mode: str = ""

    def use(self, mode: str, modules: ModuleSet) -> None:
        """Load the modules of a mode, and make everything anew for it."""
        if mode == self.mode:
            return
        self._call("unmount")
        self.vm.use_filesystem(modules)
        self._call(f"configure {shlex.quote(mount_options(mode))}")
        self.mode = mode

    def run(self, tests: Sequence[str], *, limit_s: float) -> Iterator[Run]:
        """Run tests one after the other; the verdict of each as soon as it is there.

        The guest is gone, and nothing more comes, if a test hung or killed the guest. `limit_s` is
        for a test, in seconds of the host's processor. Raises FastsyncError when the suite did not
        run a test at all. What one left that did not pass is in `vm.out_dir`/MODE/TEST.
        """
        self._call(f"begin_tests {' '.join(tests)}")
        for test, following in zip(tests, [*tests[1:], "Ended:"], strict=True):
            begin_s = time.monotonic()
            try:
                said = self._call(f"await_test {following}", limit_s)
            except TimeLimitError as error:
                yield self._lost(test, hung(limit_s), error)
                return
            except FastsyncError as error:
                if self.vm.running:
                    raise
                yield self._lost(test, Run(DIED, 0), error)
                return
            part = part_of(said, test)
            run = parse_part(part, round(time.monotonic() - begin_s))
            if run.verdict == FAIL:
                self._keep(test, part)
            yield run

    def _keep(self, test: str, said: str) -> None:
        """Keep what a test that failed has left, and what the suite said of it."""
        self._call(f"keep_left {test} $FASTSYNC_OUT/{self._left(test)}")
        (self.vm.out_dir / self._left(test) / "check.out").write_text(said)

    def _left(self, test: str) -> str:
        return f"{self.mode}/{test.replace('/', '-')}"

    def _lost(self, test: str, run: Run, error: FastsyncError) -> Run:
        """The guest has gone; what its console said is kept."""
        place = self.vm.out_dir / self._left(test)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        (place / "error").write_text(f"{error}\n")
        return run

    def _call(self, script: str, limit_s: float = PREPARE_LIMIT_S) -> str:
        return self.vm.run(f"{self.functions}\n{script}", timeout_s=limit_s).stdout


def prepare(vm: Vm, archive: Path, flashdev: Path) -> Guest:
    """Put the suite into a machine that has just booted."""
    guest = Guest(vm, FUNCTIONS.read_text())
    vm.load_device(load_profile(PROFILE), flashdev, capacity_mib=CAPACITY_MIB, devices=DEVICES)
    vm.run(f"{guest.functions}\ninstall_suite {vm.stage(archive)}", timeout_s=PREPARE_LIMIT_S)
    return guest
