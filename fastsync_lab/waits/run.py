"""A whole run of the experiment, device by device."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastsync_lab.build import ModuleSet, build_flashdev, build_modules, build_qasio
from fastsync_lab.device import DeviceProfile, load_profile
from fastsync_lab.errors import FastsyncError
from fastsync_lab.experiment import (
    APPLETS,
    FORMAT,
    MKFS,
    TOOLS,
    Report,
    file_hash,
    kept_repetitions,
    key_of,
    sections,
    to_stderr,
    write_atomically,
)
from fastsync_lab.kernel_log import check_kernel_log
from fastsync_lab.kernels import KernelTree, fetch_kernel
from fastsync_lab.paths import results_dir
from fastsync_lab.shell import run
from fastsync_lab.vm import Vm, VmConfig, models_cpu
from fastsync_lab.waits.cells import Cell, cells_of
from fastsync_lab.waits.rows import NAME, Rows, load_rows
from fastsync_lab.workload import build_waitbench

CAPACITY_MIB = 768  # three files of the bulk writer
MEMORY_MIB = 3072
CELL_TIMEOUT_S = 1800.0


@dataclass(frozen=True)
class Setup:
    """What all guests of a run share."""

    tree: KernelTree
    stock: ModuleSet
    flashdev: Path
    qasio: Path
    waitbench: Path
    fio_version: str


def prepare(kernel: str, report: Report) -> Setup:
    """Fetch and build what the guests need."""
    tree = fetch_kernel(kernel)
    report(f"building qasio, the device model and waitbench for {tree.release}")
    return Setup(
        tree=tree,
        stock=build_modules(tree, stock=True),
        flashdev=build_flashdev(tree),
        qasio=build_qasio(tree),
        waitbench=build_waitbench(),
        fio_version=run(["fio", "--version"]).stdout.strip(),
    )


def describe(setup: Setup, profile: DeviceProfile) -> dict[str, Any]:
    """Everything that a figure depends on besides scheduler and benchmark."""
    config = VmConfig(setup.tree)
    stock = setup.stock
    files = (stock.jbd2, stock.ext4, setup.flashdev, setup.qasio, setup.waitbench)
    return {
        "kernel_release": setup.tree.release,
        "debian_version": setup.tree.debian_version,
        "sha256": {path.name: file_hash(path) for path in files},
        "fio": setup.fio_version,
        "device": asdict(profile),
        "capacity_mib": CAPACITY_MIB,
        "memory_mib": MEMORY_MIB,
        "icount_shift": config.icount_shift,
        "models_cpu": models_cpu(config.icount_shift),
        "mkfs": MKFS,
    }


def run_device(rows: Rows, device: str, setup: Setup, report: Report) -> Path:
    """Run what is missing on one device; the path of the whole result.

    Raises FastsyncError when a cell fails; cells finished before are kept.
    """
    profile = load_profile(device)
    environment = describe(setup, profile)
    stem = f"{NAME}-{'quick' if rows.quick else 'full'}-{setup.tree.series}-{device}"
    partial = results_dir() / f"{stem}.partial.json"
    kept = kept_repetitions(partial)
    result: dict[str, Any] = {
        "format": FORMAT,
        "experiment": NAME,
        "title": rows.title,
        "mode": "quick" if rows.quick else "full",
        "device": device,
        "complete": False,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment,
        "cells": [],
    }
    report(f"{stem}: booting {setup.tree.release}")
    with Vm(VmConfig(setup.tree, memory_mib=MEMORY_MIB)) as vm:
        waitbench = prepare_guest(vm, setup, profile)
        cells = cells_of(rows, rows.nr_requests.get(device), waitbench, vm.stage("fio"))
        for cell in cells:
            key = key_of(environment, cell.names, cell.script)
            repetitions = kept.get(key, [])[: rows.repetitions]
            result["cells"].append({"key": key, **cell.names, "repetitions": repetitions})
            while len(repetitions) < rows.repetitions:
                repetitions.append(run_cell(vm, cell))
                write_atomically(partial, result)
                report(
                    f"{stem} {len(result['cells'])}/{len(cells)}: {', '.join(cell.names.values())}"
                )
    path = results_dir() / f"{stem}.json"
    write_atomically(path, result | {"complete": True})
    partial.unlink(missing_ok=True)
    return path


def run_cell(vm: Vm, cell: Cell) -> dict[str, Any]:
    """Run one cell once. Raises FastsyncError when it fails or the kernel complains."""
    done = vm.run(cell.script, timeout_s=CELL_TIMEOUT_S)
    if complaints := check_kernel_log(vm.kernel_log()):
        raise FastsyncError(f"the kernel complained: {complaints[0]}")
    return cell.measure(sections(done.stdout))


def prepare_guest(vm: Vm, setup: Setup, profile: DeviceProfile) -> str:
    """Load modules and device, put the programs into memory; how waitbench is called."""
    vm.put_in_memory(TOOLS, applets=APPLETS)
    waitbench = vm.stage(str(setup.waitbench))
    vm.load_filesystem(setup.stock)
    vm.run(
        f"modprobe -a bfq kyber-iosched && insmod {shlex.quote(str(setup.qasio))} || exit\n"
        "mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug"
    )
    vm.load_device(profile, setup.flashdev, capacity_mib=CAPACITY_MIB)
    vm.kernel_log()
    return waitbench


def run_waits(
    *, quick: bool, kernel: str, devices: Sequence[str] | None, report: Report = to_stderr
) -> list[Path]:
    """Run the experiment; its result files, one for each device.

    Raises FastsyncError when anything fails; run again, it goes on with what is missing.
    """
    rows = load_rows(quick=quick)
    setup = prepare(kernel, report)
    return [run_device(rows, device, setup, report) for device in devices or rows.devices]
