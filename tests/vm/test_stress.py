"""Much at once, on file systems that are remounted meanwhile; and faults that this has to find.

On Debian's kernel it is a few seconds; on a debug kernel it takes longer, and the log must stay
clean of what KASAN, KCSAN, lockdep and kmemleak report.
"""

import re
from pathlib import Path

import pytest

from fastsync_lab.host.build import ModuleSet, build_modules
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine.config import VmConfig
from fastsync_lab.machine.kernel_log import check_kernel_log
from fastsync_lab.machine.vm import Vm
from tests.vm.conftest import has_bursts
from tests.vm.guestfs import leaks
from tests.vm.planted import FAULTS
from tests.vm.stress import KINDS, check_rounds, stress_on

FOR_DEBUG = FAULTS / "debug"


# Of Debian's kernel a sample will do: what goes wrong there is found by the other tests, too.
@pytest.mark.parametrize("kind", KINDS)
def test_one_core(
    vm: Vm, modules: ModuleSet, flashdev: Path, tmp_path: Path, tree: KernelTree, kind: str
) -> None:
    if not tree.variant and kind not in ("ordered", "fast_commit"):
        pytest.skip("for a debug kernel")
    round_ms, most = (2000, None) if tree.variant else (500, 2)
    eager = has_bursts(tree)
    stress = stress_on(vm, modules, flashdev, tmp_path, round_ms=round_ms, eager=eager)
    check_rounds(stress, kind, stress.mounts(most))


@pytest.mark.parametrize("kind", KINDS)
def test_two_cores(
    two_cores: Vm, modules: ModuleSet, flashdev: Path, tmp_path: Path, tree: KernelTree, kind: str
) -> None:
    if not tree.variant and kind != "ordered":
        pytest.skip("for a debug kernel")
    round_ms, most = (20000, None) if tree.variant else (1500, 2)
    eager = has_bursts(tree)
    stress = stress_on(two_cores, modules, flashdev, tmp_path, round_ms=round_ms, eager=eager)
    check_rounds(stress, kind, stress.mounts(most))


# What each planted fault breaks: the debug kernel that has to report it, and how it does (a regex).
PLANTED = {
    "use-after-free": ("kasan", "BUG: KASAN: slab-use-after-free in"),
    "sleep-in-atomic": ("kasan", "BUG: sleeping function called from invalid context"),
    # The carrier's lock is taken in interrupts, too: which of the two is seen first is chance.
    "lock-order": (
        "kasan",
        "WARNING: possible (circular locking|irq lock inversion) dependency detected",
    ),
    "leak": ("kasan", r"kmemleak: \d+ new suspected memory leaks"),
    "data-race": ("kcsan", "BUG: KCSAN: data-race in ext4_mtime_handle_type"),
}
# All but the race are found in the first: KCSAN takes samples.
PLANTED_ROUNDS = 12  # the first report ends them; a busy host rarely runs both processors at once


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_fault_is_reported(
    tree: KernelTree, flashdev: Path, tmp_path: Path, fault: str
) -> None:
    """In a guest of its own: after one report lockdep and KASAN say no more."""
    variant, report = PLANTED[fault]
    if tree.variant != variant:
        pytest.skip(f"takes the {variant} kernel")
    broken = build_modules(tree, fault=FOR_DEBUG / f"{fault}.patch")
    log: list[str] = []
    with Vm(VmConfig(tree, cpus=2, real_time=True)) as guest:
        stress = stress_on(guest, broken, flashdev, tmp_path, round_ms=4000, eager=False)
        stress.mkfs("")
        for seed in range(PLANTED_ROUNDS):
            stress.round("mtime_update=20,mtime_mode=defer", seed)
            stress.reload()
            leaks(guest)
            log += check_kernel_log(guest.kernel_log())
            if re.search(report, "\n".join(log)):
                return
    pytest.fail(f"not reported: {report}; but: {log}")


def test_every_fault_is_looked_for() -> None:
    assert {path.stem for path in FOR_DEBUG.glob("*.patch")} == set(PLANTED)
