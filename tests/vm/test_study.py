"""A study's cells in a guest: every file system of the axis, and the phases of the tick."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.host.build import ModuleSet
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine.config import VmConfig
from fastsync_lab.machine.device import load_profile
from fastsync_lab.machine.vm import Vm
from fastsync_lab.study import fio
from fastsync_lab.study.contract import AS_IT_IS, Axes, Cell, FileSystem, Script, Study
from fastsync_lab.study.filesystems import FIVE, PEERS, RAW
from fastsync_lab.study.plan import Job, Setting
from fastsync_lab.study.rows import Values
from fastsync_lab.study.runner import Guest

DEVICE = "uniform-100us"
WORK = fio.Overwrites("random", file_mib=1, seconds=1)
AXES = Axes("t", (DEVICE,), (*FIVE, *PEERS), (WORK,))
STUDY = Study("try", "s", AXES, AXES, fio.script, fio.read)
TICK_US = 4000
PHASES = 4


@pytest.fixture(scope="module")
def vm(tree: KernelTree) -> Iterator[Vm]:
    """A guest of its own: others keep their device."""
    with Vm(VmConfig(tree)) as machine:
        yield machine


@pytest.fixture
def setting(
    tree: KernelTree, modules: ModuleSet, stock_modules: ModuleSet, flashdev: Path
) -> Setting:
    pairs = {"stock": stock_modules, "fastsync": modules}
    return Setting(tree, pairs, {"flashdev": flashdev}, {}, {}, {})


@pytest.mark.parametrize("system", AXES.systems, ids=lambda system: system.name)
def test_every_file_system_of_the_axis_is_measured(
    vm: Vm, setting: Setting, system: FileSystem
) -> None:
    guest = Guest(vm, Job(STUDY, setting.tree.series, load_profile(DEVICE), True), setting)
    run = guest.run_cell(Cell(system, WORK, AS_IT_IS, DEVICE), 0)
    values = run["subjects"][""]
    _, _, kind, options, *_ = run["mounted"].split()
    assert kind == system.kind
    shown = {"defaults": "rw", "data=journal": "data=journal"}.get(system.options, system.options)
    assert set(shown.split(",")) <= {*options.split(",")}
    assert values["operations"] > 100 and values["kib"] >= 4
    assert values["kib_unsorted"] == (0 if kind == "ext4" else values["kib"])
    # Whoever says that a write is durable has flushed the device's cache for it, or sent it past.
    barriers = values["flushes"] + values["fua"]
    assert barriers >= 0.99 if system.durable else barriers < 0.01


def test_runs_begin_at_different_phases_of_the_tick(vm: Vm, setting: Setting) -> None:
    def when(_cell: object, output: object) -> dict[str, Values]:
        return {"": {"elapsed_s": float(getattr(output, "result", ""))}}

    axes = replace(AXES, systems=(RAW,), runs=PHASES)
    study = replace(STUDY, full=axes, quick=axes, traced=False, read=when)
    study = replace(study, script=lambda *_: Script("echo $((${EPOCHREALTIME/./} % 4000))"))
    guest = Guest(vm, Job(study, setting.tree.series, load_profile(DEVICE), True), setting)
    cell = Cell(RAW, WORK, AS_IT_IS, DEVICE)
    starts = [guest.run_cell(cell, run)["subjects"][""]["elapsed_s"] for run in range(PHASES)]
    for run, start in enumerate(starts):
        late = (start - starts[0] - run * TICK_US / PHASES + TICK_US / 2) % TICK_US - TICK_US / 2
        assert abs(late) < TICK_US / PHASES / 4, starts
