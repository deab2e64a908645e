"""A whole run of the experiment, device by device."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastsync_lab.build import ModuleSet, build_flashdev, build_modules, build_qasio
from fastsync_lab.device import DeviceProfile, load_profile
from fastsync_lab.errors import FastsyncError
from fastsync_lab.experiment import (
    FORMAT,
    MKFS,
    file_hash,
    kept_repetitions,
    key_of,
    sections,
    write_atomically,
)
from fastsync_lab.image import RootImage, root_image
from fastsync_lab.kernel_log import check_kernel_log
from fastsync_lab.kernels import KernelTree, fetch_kernel
from fastsync_lab.machine import VmConfig, models_cpu
from fastsync_lab.paths import results_dir
from fastsync_lab.progress import Report, Tally
from fastsync_lab.vm import Vm
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
    image: RootImage


def prepare(kernel: str, report: Report) -> Setup:
    """Fetch and build what the guests need."""
    tree = fetch_kernel(kernel, report=report)
    return Setup(
        tree=tree,
        stock=build_modules(tree, stock=True, report=report),
        flashdev=build_flashdev(tree, report=report),
        qasio=build_qasio(tree, report=report),
        waitbench=build_waitbench(report),
        image=root_image(report=report),
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
        "root_sha256": setup.image.digest,
        "fio": f"fio-{setup.image.version('fio')}",
        "device": asdict(profile),
        "capacity_mib": CAPACITY_MIB,
        "memory_mib": MEMORY_MIB,
        "icount_shift": config.icount_shift,
        "models_cpu": models_cpu(config.icount_shift),
        "mkfs": MKFS,
    }


def runs_of(rows: Rows, device: str) -> int:
    """How many runs the experiment has on one device."""
    return len(cells_of(rows, rows.nr_requests.get(device), "", "")) * rows.repetitions


def rows_of_cells(
    cells: Sequence[Cell],
    environment: Mapping[str, Any],
    kept: Mapping[str, list[dict[str, Any]]],
    repetitions: int,
) -> list[dict[str, Any]]:
    """All cells as a result has them, each with what is there of it from an interrupted run.

    They are all in the result from the start: a cell that is run anew drops no later one.
    """
    keys = [key_of(environment, cell.names, cell.script) for cell in cells]
    return [
        {"key": key, **cell.names, "repetitions": kept.get(key, [])[:repetitions]}
        for key, cell in zip(keys, cells, strict=True)
    ]


def run_device(rows: Rows, device: str, setup: Setup, report: Report, tally: Tally) -> Path:
    """Run what is missing on one device; the path of the whole result.

    Raises FastsyncError when a cell fails; cells finished before are kept.
    """
    profile = load_profile(device)
    environment = describe(setup, profile)
    stem = f"{NAME}-{'quick' if rows.quick else 'full'}-{setup.tree.series}-{device}"
    partial = results_dir() / f"{stem}.partial.json"
    result: dict[str, Any] = {
        "format": FORMAT,
        "experiment": NAME,
        "title": rows.title,
        "mode": "quick" if rows.quick else "full",
        "device": device,
        "complete": False,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment,
    }
    report(f"{stem}: booting {setup.tree.release}")
    with Vm(VmConfig(setup.tree, memory_mib=MEMORY_MIB)) as vm:
        waitbench = prepare_guest(vm, setup, profile)
        cells = cells_of(rows, rows.nr_requests.get(device), waitbench, "fio")
        found = rows_of_cells(cells, environment, kept_repetitions(partial), rows.repetitions)
        result["cells"] = found
        tally.keep(sum(len(row["repetitions"]) for row in found))
        for number, (cell, row) in enumerate(zip(cells, found, strict=True), 1):
            while len(row["repetitions"]) < rows.repetitions:
                row["repetitions"].append(run_cell(vm, cell))
                write_atomically(partial, result)
                tally.add(f"{stem} {number}/{len(cells)}: {', '.join(cell.names.values())}")
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
    waitbench = vm.stage(setup.waitbench)
    vm.load_filesystem(setup.stock)
    vm.run(
        f"modprobe -a bfq kyber-iosched && insmod {vm.stage(setup.qasio)} || exit\n"
        "mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug"
    )
    vm.load_device(profile, setup.flashdev, capacity_mib=CAPACITY_MIB)
    vm.kernel_log()
    return waitbench


def run_waits(
    *, quick: bool, kernel: str, devices: Sequence[str] | None, report: Report
) -> list[Path]:
    """Run the experiment; its result files, one for each device.

    Raises FastsyncError when anything fails; run again, it goes on with what is missing.
    """
    rows = load_rows(quick=quick)
    setup = prepare(kernel, report)
    chosen = list(devices or rows.devices)
    tally = Tally(sum(runs_of(rows, device) for device in chosen), "runs", report)
    return [run_device(rows, device, setup, report, tally) for device in chosen]
