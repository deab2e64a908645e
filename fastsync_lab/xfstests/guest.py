"""Running tests in the virtual machine, on devices for tests, for scratch and for logged writes."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from fastsync_lab.host.build import ModuleSet
from fastsync_lab.host.errors import FastsyncError, TimeLimitError
from fastsync_lab.host.options import mode_options
from fastsync_lab.machine.device import load_profile
from fastsync_lab.machine.vm import Vm
from fastsync_lab.xfstests.results import DIED, FAIL, HUNG, NOT_RUN, PASS, Run

PROFILE = "nvme"
DEVICES = 3
CAPACITY_MIB = 4096  # of each; what is written to takes memory
MEMORY_MIB = 6144
MACHINE = (
    f"User-Mode Linux, {MEMORY_MIB} MiB, {DEVICES} devices of {CAPACITY_MIB} MiB, {PROFILE}, "
    "real time"
)
PREPARE_LIMIT_S = 240
FUNCTIONS = Path(__file__).with_name("guest.sh")
# What the suite says when something went wrong, and what we call it.
REASONS = (
    ("output", re.compile(r"output mismatch")),
    ("status", re.compile(r"\[failed, exit status")),
    ("kernel log", re.compile(r"_check_dmesg: something found")),
    ("file system", re.compile(r"is inconsistent")),
)


def parse_check(text: str, seconds: int) -> Run:
    """The verdict of `check` on the one test that it was given.

    Raises FastsyncError when it did not come so far as to run it.
    """
    if "\nRan: " not in text and "\nNot run: " not in text:
        raise FastsyncError("`check` of xfstests did not run the test")
    if "\nNot run: " in text:
        return Run(NOT_RUN, seconds)
    if "\nPassed all 1 tests" in text:
        return Run(PASS, seconds)
    return Run(FAIL, seconds, ", ".join(why for why, pattern in REASONS if pattern.search(text)))


def mount_options(mode: str) -> str:
    """What a mode adds to the suite's own mount options."""
    options = ",".join(mode_options(mode))
    return f"-o {options}" if options else ""


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
        self._call("umount -q $scratch_dir $test_dir; true")
        self.vm.use_filesystem(modules)
        self._call(f"configure {shlex.quote(mount_options(mode))}")
        self.mode = mode

    def run(self, test: str, *, limit_s: float) -> Run:
        """Run a test; its guest is gone if it hung, or killed the guest.

        `limit_s` is in seconds of the host's processor. Raises FastsyncError when the suite did not
        run it at all. What the test left is in `vm.out_dir`/MODE/TEST.
        """
        folder = f"{self.mode}/{test.replace('/', '-')}"
        try:
            said = self._call(
                f"begin=$EPOCHSECONDS; run_test {test} $FASTSYNC_OUT/{folder}\n"
                "echo; echo $((EPOCHSECONDS - begin))",
                limit_s,
            )
        except TimeLimitError as error:
            return self._lost(folder, HUNG, error)
        except FastsyncError as error:
            if self.vm.running:
                raise
            return self._lost(folder, DIED, error)
        text, _, seconds = said.rstrip().rpartition("\n")
        return parse_check(text, int(seconds))

    def _lost(self, folder: str, verdict: str, error: FastsyncError) -> Run:
        """The guest has gone; what its console said is kept."""
        place = self.vm.out_dir / folder
        place.mkdir(parents=True, exist_ok=True)
        (place / "error").write_text(f"{error}\n")
        return Run(verdict, 0)

    def _call(self, script: str, limit_s: float = PREPARE_LIMIT_S) -> str:
        return self.vm.run(f"{self.functions}\n{script}", timeout_s=limit_s).stdout


def prepare(vm: Vm, archive: Path, flashdev: Path) -> Guest:
    """Put the suite into a machine that has just booted."""
    guest = Guest(vm, FUNCTIONS.read_text())
    vm.load_device(load_profile(PROFILE), flashdev, capacity_mib=CAPACITY_MIB, devices=DEVICES)
    vm.run(f"{guest.functions}\ninstall_suite {vm.stage(archive)}", timeout_s=PREPARE_LIMIT_S)
    return guest
