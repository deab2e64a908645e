"""Experiments as rows of data: which workloads, on which variants of ext4, on which devices.

One guest for each experiment and device runs all variants side by side, each cell on a fresh file
system; two guests run at a time. Finished cells are kept in results/*.partial.json, each under a
hash of all that goes into it (kernel and modules included), so that an interrupted run goes on
where it stopped; results/*.json are whole runs only.
"""

import hashlib
import json
import threading
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastsync_lab.build import ModuleSet, build_flashdev, build_modules
from fastsync_lab.device import DeviceProfile, load_profile
from fastsync_lab.errors import FastsyncError
from fastsync_lab.image import RootImage, root_image
from fastsync_lab.kernel_log import check_kernel_log
from fastsync_lab.kernels import KernelTree, fetch_kernel, find_series
from fastsync_lab.machine import VmConfig, models_cpu
from fastsync_lab.measure import (
    Latency,
    Layout,
    Trace,
    account,
    lost_events,
    parse_fio,
    parse_layout,
    parse_neighbour,
    parse_sqlbench,
    parse_trace,
)
from fastsync_lab.paths import results_dir, write_whole
from fastsync_lab.progress import Report, Tally
from fastsync_lab.required import Requirement
from fastsync_lab.vm import Vm
from fastsync_lab.workload import (
    SQLITE_VERSION,
    SYNC_CALLS,
    GuestPaths,
    Programs,
    Workload,
    build_programs,
    fio_arguments,
    neighbour_files,
    prepare_script,
    run_command,
)

FORMAT = 1
DEFAULT_INTERVAL_MS = 100
CAPACITY_MIB = 512
MEMORY_MIB = 2048
PARALLEL_GUESTS = 2
CELL_TIMEOUT_S = 900.0
TRACE_BUFFER_KIB = 65536
MKFS = "mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0"
MOUNT_POINT = "/run/fastsync/mnt"
SECTION = "== fastsync section "
COUNTERS = ("mtime_updates_done", "mtime_updates_skipped", "mtime_commits_avoided")


# --- the rows ----------------------------------------------------------------------------------


def mtime_options(mode: str, interval_ms: int | None) -> str:
    """The mount options of a mode."""
    return f"mtime_update={interval_ms},mtime_mode={mode}"


@dataclass(frozen=True)
class Variant:
    """A way to make a sync cheap, or not: a module set, a sync call and mount options."""

    name: str
    modules: str  # "stock" or "fastsync"
    sync_call: str = "fsync"
    mode: str | None = None  # mtime_mode
    interval_ms: int | None = None

    @property
    def mount_options(self) -> str:
        """What `mount -o` gets."""
        if self.mode is None:
            return "defaults"
        return mtime_options(self.mode, self.interval_ms)


VARIANTS: Mapping[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant("stock", "stock"),
        Variant("ideal", "stock", sync_call="fdatasync"),
        Variant("truncate", "fastsync", mode="truncate", interval_ms=DEFAULT_INTERVAL_MS),
        Variant("defer", "fastsync", mode="defer", interval_ms=DEFAULT_INTERVAL_MS),
        Variant("off", "fastsync"),
    )
}


@dataclass(frozen=True)
class Experiment:
    """What is run: each workload on each variant on each device, `repetitions` times.

    `required`: what the figures must show.
    """

    name: str
    title: str
    devices: tuple[str, ...]
    variants: tuple[Variant, ...]
    workloads: tuple[Workload, ...]
    required: tuple[Requirement, ...]
    repetitions: int
    quick: bool

    @property
    def file_stem(self) -> str:
        """Result files begin with this."""
        return f"{self.name}-{'quick' if self.quick else 'full'}"


def experiments_dir() -> Path:
    """Where the rows lie."""
    return Path(__file__).parent / "experiments"


def experiment_names() -> list[str]:
    """The experiments there are."""
    return sorted(path.stem for path in experiments_dir().glob("*.toml"))


def parse_experiment(name: str, text: str, *, quick: bool) -> Experiment:
    """An experiment from its TOML; with `quick`, what its [quick] table says replaces the rest.

    Raises FastsyncError when a key or a variant is not known.
    """
    rows = tomllib.loads(text)
    workloads = rows.pop("workload")
    quick_rows = rows.pop("quick", {})
    workload_keys = {field.name for field in fields(Workload)}
    overrides = {k: quick_rows.pop(k) for k in list(quick_rows) if k in workload_keys}
    if quick:
        rows |= quick_rows
        workloads = [workload | overrides for workload in workloads]
    names = [*rows["variants"], *rows.get("sweep_variants", [])]
    if unknown := [n for n in names if n not in VARIANTS]:
        raise FastsyncError(f"{name}.toml: no variant {unknown[0]!r}; there are {list(VARIANTS)}")
    variants = [VARIANTS[n] for n in rows.pop("variants")]
    for variant in rows.pop("sweep_variants", []):
        variants += [replace(VARIANTS[variant], interval_ms=ms) for ms in rows["sweep_ms"]]
    rows.pop("sweep_ms", None)
    required = rows.pop("required", [])
    try:
        return Experiment(
            name=name,
            quick=quick,
            title=rows.pop("title"),
            devices=tuple(rows.pop("devices")),
            variants=tuple(variants),
            workloads=tuple(Workload(**workload) for workload in workloads),
            required=tuple(Requirement(**requirement) for requirement in required),
            **rows,
        )
    except TypeError as error:
        raise FastsyncError(f"{name}.toml: {error}") from error


def load_experiment(name: str, *, quick: bool) -> Experiment:
    """The experiment called `name`. Raises FastsyncError when there is none."""
    path = experiments_dir() / f"{name}.toml"
    if not path.exists():
        raise FastsyncError(f"no experiment {name!r}; there are {', '.join(experiment_names())}")
    return parse_experiment(name, path.read_text(), quick=quick)


# --- one cell in the guest ---------------------------------------------------------------------


def layout_script() -> str:
    """Bash that makes a file system and prints where its metadata lies, as sections."""
    return f"""
{MKFS} $FASTSYNC_DEV || exit
echo "{SECTION}dumpe2fs"; dumpe2fs $FASTSYNC_DEV 2>/dev/null
printf 'blocks <8>\n' >commands
echo "{SECTION}journal"; debugfs -f commands $FASTSYNC_DEV 2>/dev/null
printf 'blocks <2>\nblocks <11>\n' >commands
echo "{SECTION}directories"; debugfs -f commands $FASTSYNC_DEV 2>/dev/null
rm commands
"""


def cell_script(workload: Workload, variant: Variant, guest: GuestPaths) -> str:
    """Bash for one cell: fresh file system, traced run; the trace goes to $FASTSYNC_OUT/trace.

    The rest is printed as sections. The file rests for 6 s before the run, so that nothing of its
    making is left to write; the journal is not emptied (the run takes it as the making left it).
    """
    name = "${FASTSYNC_DEV##*/}"
    return f"""
T=/sys/kernel/tracing
mkdir -p {MOUNT_POINT} || exit
! mountpoint -q {MOUNT_POINT} || umount {MOUNT_POINT} || exit
{MKFS} $FASTSYNC_DEV || exit
mount -t ext4 -o {variant.mount_options} $FASTSYNC_DEV {MOUNT_POINT} || exit
cd {MOUNT_POINT} || exit
{{
{prepare_script(workload, guest)}
}} || exit
echo 0 >$T/tracing_on
echo mono >$T/trace_clock
echo {TRACE_BUFFER_KIB} >$T/buffer_size_kb
echo >$T/trace
echo 1 >$T/events/block/block_rq_issue/enable
echo 1 >$T/events/block/block_rq_complete/enable
echo "{SECTION}result"
echo 1 >$T/tracing_on
{run_command(workload, variant.sync_call, guest)}
status=$?
echo 0 >$T/tracing_on
echo 0 >$T/events/block/enable
[ $status = 0 ] || exit $status
echo "{SECTION}stats"; for f in $T/per_cpu/cpu*/stats; do echo "$(<$f)"; done
echo "{SECTION}mounted"; while read -r line; do
    case $line in *" {MOUNT_POINT} "*) echo "$line";; esac
done </proc/mounts
echo "{SECTION}neighbour"; [ ! -e {guest.neighbour_log} ] || cat {guest.neighbour_log}
rm -f {guest.neighbour_log}
echo "{SECTION}counters"; for c in {" ".join(COUNTERS)}; do
    [ ! -e /sys/fs/ext4/{name}/$c ] || echo $c $(</sys/fs/ext4/{name}/$c)
done
cat $T/trace >$FASTSYNC_OUT/trace
cd / && umount {MOUNT_POINT}
"""


def sections(text: str) -> dict[str, str]:
    """The parts of a script's output, by the names after SECTION."""
    parts = text.split(SECTION)[1:]
    return {head: body for head, _, body in (part.partition("\n") for part in parts)}


def measure_cell(
    workload: Workload, parts: Mapping[str, str], trace: Trace, layout: Layout
) -> dict[str, Any]:
    """One repetition's figures. Raises FastsyncError when the trace lost events."""
    if lost := lost_events(parts["stats"]):
        raise FastsyncError(f"the trace buffer overran: {lost} events lost")
    latency: Mapping[str, Latency] = (
        parse_sqlbench(parts["result"])
        if workload.kind == "sqlite"
        else {workload.phases()[0]: parse_fio(parts["result"])}
    )
    counters = dict(line.split() for line in parts["counters"].splitlines())
    neighbour = parse_neighbour(parts["neighbour"]) if workload.neighbour else None
    return {
        "mounted": parts["mounted"].strip(),
        "counters": {name: int(value) for name, value in counters.items()},
        **({"neighbour": neighbour} if neighbour else {}),
        "phases": {
            phase: {
                **latency[phase].as_json(),
                "blocks": account(trace.phase(phase), layout).as_json(),
            }
            for phase in workload.phases()
        },
    }


# --- an experiment on one device ---------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """What all guests of a run share."""

    tree: KernelTree
    modules: Mapping[str, ModuleSet]
    flashdev: Path
    programs: Programs
    image: RootImage
    icount_shift: int = 1


@dataclass(frozen=True)
class Job:
    """One experiment on one kernel and one device."""

    experiment: Experiment
    series: str
    profile: DeviceProfile

    @property
    def name(self) -> str:
        """The stem of its result file."""
        return f"{self.experiment.file_stem}-{self.series}-{self.profile.name}"


def file_hash(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def describe(setting: Setting, profile: DeviceProfile) -> dict[str, Any]:
    """Everything that a figure depends on besides workload and variant."""
    modules = {
        f"{name}/{path.name}": file_hash(path)
        for name, pair in setting.modules.items()
        for path in (pair.jbd2, pair.ext4)
    }
    return {
        "kernel_release": setting.tree.release,
        "debian_version": setting.tree.debian_version,
        "modules_sha256": modules,
        "flashdev_sha256": file_hash(setting.flashdev),
        "programs_sha256": setting.programs.digest(),
        "root_sha256": setting.image.digest,
        "fio": f"fio-{setting.image.version('fio')}",
        "sqlite": SQLITE_VERSION,
        "device": asdict(profile),
        "capacity_mib": CAPACITY_MIB,
        "memory_mib": MEMORY_MIB,
        "cpus": 1,
        "icount_shift": setting.icount_shift,
        "models_cpu": models_cpu(setting.icount_shift),
        "mkfs": MKFS,
    }


def key_of(*inputs: object) -> str:
    """A hash of all that goes into a cell."""
    return hashlib.sha256(json.dumps([FORMAT, *inputs], sort_keys=True).encode()).hexdigest()[:16]


def cell_key(environment: Mapping[str, Any], workload: Workload, variant: Variant) -> str:
    """The hash of a cell of these experiments."""
    return key_of(environment, asdict(workload), asdict(variant))


def write_atomically(path: Path, value: Mapping[str, Any]) -> None:
    """Replace a JSON file in one step."""
    write_whole(path, json.dumps(value, indent=1) + "\n")


def kept_repetitions(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The repetitions by cell key in an interrupted run's file; none when it cannot be read."""
    try:
        cells = json.loads(path.read_text())["cells"]
        return {cell["key"]: cell["repetitions"] for cell in cells}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def commands(workload: Workload, variant: Variant) -> str:
    """The command line of a cell as a person would type it."""
    if workload.kind == "sqlite":
        return (
            f"sqlbench-{variant.sync_call} item.db {workload.journal_mode} "
            f"{workload.operations} {workload.rows}"
        )
    shim = "LD_PRELOAD=statwrite.so " if workload.stat_first else ""
    guest = GuestPaths(fio="", sqlbench={}, statwrite="")
    neighbour = (
        f"neighbour {' '.join(neighbour_files(workload, guest))} {workload.neighbour_us} & "
        if workload.neighbour
        else ""
    )
    return f"{neighbour}{shim}fio {' '.join(fio_arguments(workload, variant.sync_call))}"


def empty_cells(experiment: Experiment, environment: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A cell for each workload and variant, without figures."""
    return [
        {
            "key": cell_key(environment, workload, variant),
            "workload": workload.name,
            "parameters": asdict(workload),
            "variant": variant.name,
            "interval_ms": variant.interval_ms,
            "mount_options": variant.mount_options,
            "command": commands(workload, variant),
            "repetitions": [],
        }
        for workload in experiment.workloads
        for variant in experiment.variants
    ]


def by_modules(experiment: Experiment) -> Iterator[tuple[str, list[tuple[Workload, Variant]]]]:
    """The cells in the order that swaps modules least."""
    for modules in dict.fromkeys(v.modules for v in experiment.variants):
        yield (
            modules,
            [
                (workload, variant)
                for workload in experiment.workloads
                for variant in experiment.variants
                if variant.modules == modules
            ],
        )


def summary(repetition: Mapping[str, Any]) -> str:
    """A repetition in a few words."""
    return ", ".join(
        f"{figures['ops_per_s']:,.0f} {'op' if len(repetition['phases']) == 1 else phase}/s"
        for phase, figures in repetition["phases"].items()
    )


def runs_of(experiment: Experiment) -> int:
    """How many runs an experiment has on one device."""
    return len(experiment.workloads) * len(experiment.variants) * experiment.repetitions


def run_job(
    job: Job, setting: Setting, stop: threading.Event, report: Report, tally: Tally
) -> Path:
    """Run what is missing of one experiment on one device; the path of the whole result.

    `stop` is set when another job has failed. Raises FastsyncError when a cell fails; cells
    finished before are kept.
    """
    experiment = job.experiment
    environment = describe(setting, job.profile)
    partial = results_dir() / f"{job.name}.partial.json"
    cells = empty_cells(experiment, environment)
    kept = kept_repetitions(partial)
    for cell in cells:
        cell["repetitions"] = kept.get(cell["key"], [])[: experiment.repetitions]
    result: dict[str, Any] = {
        "format": FORMAT,
        "experiment": experiment.name,
        "title": experiment.title,
        "mode": "quick" if experiment.quick else "full",
        "device": job.profile.name,
        "complete": False,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment,
        "cells": cells,
    }
    by_key = {cell["key"]: cell for cell in cells}
    total = runs_of(experiment)
    done = sum(len(cell["repetitions"]) for cell in cells)
    tally.keep(done)
    if done:
        report(f"{job.name}: {done} of {total} runs are there from an interrupted run")
    if done < total:
        config = VmConfig(
            setting.tree, memory_mib=MEMORY_MIB, cpus=1, icount_shift=setting.icount_shift
        )
        report(f"{job.name}: booting {setting.tree.release}")
        with Vm(config) as vm:
            guest = Guest(vm, job, setting)
            for modules, pairs in by_modules(experiment):
                vm.load_filesystem(setting.modules[modules])
                for workload, variant in pairs:
                    cell = by_key[cell_key(environment, workload, variant)]
                    while len(cell["repetitions"]) < experiment.repetitions:
                        if stop.is_set():
                            raise FastsyncError(f"{job.name}: stopped after {done} of {total} runs")
                        repetition = guest.run_cell(workload, variant)
                        cell["repetitions"].append(repetition)
                        write_atomically(partial, result)
                        done += 1
                        interval = f" {variant.interval_ms} ms" if variant.interval_ms else ""
                        tally.add(
                            f"{job.name} {done}/{total}: {workload.name}, "
                            f"{variant.name}{interval}: {summary(repetition)}"
                        )
    path = results_dir() / f"{job.name}.json"
    write_atomically(path, result | {"complete": True})
    partial.unlink(missing_ok=True)
    return path


class Guest:
    """A booted guest with the device and the programs that its experiment needs."""

    def __init__(self, vm: Vm, job: Job, setting: Setting) -> None:
        self._vm = vm
        kinds = {workload.kind for workload in job.experiment.workloads}
        beside = any(workload.neighbour for workload in job.experiment.workloads)
        bench = setting.programs.sqlbench
        self._paths = GuestPaths(
            fio="fio",
            sqlbench={c: vm.stage(bench[c]) for c in SYNC_CALLS if "sqlite" in kinds},
            statwrite=vm.stage(setting.programs.statwrite),
            neighbour=vm.stage(setting.programs.neighbour) if beside else "",
        )
        vm.kernel_log()  # what the boot left
        vm.load_device(job.profile, setting.flashdev, capacity_mib=CAPACITY_MIB)
        parts = sections(vm.run(layout_script()).stdout)
        self._layout = parse_layout(parts["dumpe2fs"], parts["journal"], parts["directories"])

    def run_cell(self, workload: Workload, variant: Variant) -> dict[str, Any]:
        """Run one cell once. Raises FastsyncError when it fails or the kernel complains."""
        vm, trace = self._vm, self._vm.out_dir / "trace"
        done = vm.run(cell_script(workload, variant, self._paths), timeout_s=CELL_TIMEOUT_S)
        if complaints := check_kernel_log(vm.kernel_log()):
            raise FastsyncError(f"the kernel complained in {workload.name}: {complaints[0]}")
        text = trace.read_text(errors="replace")
        trace.unlink()
        return measure_cell(workload, sections(done.stdout), parse_trace(text), self._layout)


# --- all of it ---------------------------------------------------------------------------------


def prepare_setting(kernel: str, report: Report) -> Setting:
    """Fetch and build what the guests need."""
    tree = fetch_kernel(kernel, report=report)
    modules = {
        "stock": build_modules(tree, stock=True, report=report),
        "fastsync": build_modules(tree, stock=False, report=report),
    }
    flashdev = build_flashdev(tree, report=report)
    return Setting(
        tree=tree,
        modules=modules,
        flashdev=flashdev,
        programs=build_programs(report),
        image=root_image(report=report),
    )


def plan(
    names: Sequence[str], *, series: str, quick: bool, devices: Sequence[str] | None
) -> list[Job]:
    """The jobs for these experiments. Raises FastsyncError when a name is not known."""
    experiments = [load_experiment(name, quick=quick) for name in dict.fromkeys(names)]
    return [
        Job(experiment, series, load_profile(device))
        for experiment in experiments
        for device in (devices or experiment.devices)
    ]


def run_experiments(
    names: list[str],
    *,
    quick: bool,
    kernel: str,
    devices: list[str] | None,
    json_path: Path | None,
    report: Report,
) -> list[Path]:
    """Run experiments and return their result files, one for each experiment and device.

    `json_path`: all results in one file, besides. Raises FastsyncError when anything fails; run
    again, it goes on with what is missing.
    """
    series = find_series(kernel).name
    jobs = plan(names, series=series, quick=quick, devices=devices)
    setting = prepare_setting(kernel, report)
    stop = threading.Event()
    tally = Tally(sum(runs_of(job.experiment) for job in jobs), "runs", report)
    with ThreadPoolExecutor(PARALLEL_GUESTS) as pool:
        futures = [pool.submit(run_job, job, setting, stop, report, tally) for job in jobs]
        try:
            paths = [future.result() for future in futures]
        except BaseException:
            stop.set()
            for future in futures:
                future.cancel()
            raise
    if json_path is not None:
        results = [json.loads(path.read_text()) for path in paths]
        write_atomically(json_path, {"format": FORMAT, "results": results})
    return paths
