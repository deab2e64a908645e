"""Which cells a run has, what a figure of one depends on, and the bash that runs it."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fastsync_lab.host.build import ModuleSet
from fastsync_lab.host.kernels import KernelTree, file_checksum
from fastsync_lab.machine.device import DeviceProfile, load_profile
from fastsync_lab.machine.image import RootImage
from fastsync_lab.machine.initramfs import guest_scripts
from fastsync_lab.machine.processor import (
    DEFAULT_MIPS,
    SPEEDS,
    Processor,
    load_processor,
    models_cpu,
)
from fastsync_lab.machine.qemu import KERNEL_PARAMETERS, SCRIPT, qemu_version
from fastsync_lab.machine.trace import TRACE_SH
from fastsync_lab.study.contract import Cell, Scheduler, Script, Study
from fastsync_lab.study.reading import reading_digest
from fastsync_lab.study.store import key_of, stem

CELL_SH = Path(__file__).with_name("cell.sh")
SECTION = "== fastsync section "
WBT_ON_US, WBT_OFF_US = 2000, 0  # the kernel's default for flash; none
# Of an environment, for a reader: in no key.
TOOLS = "tools"
WORDS = (TOOLS, "models_cpu")
WORDS_OF_DEVICE = ("description", "about", "rank", "real", "sources")
MAKERS = {"ext4": "e2fsprogs", "xfs": "xfsprogs", "btrfs": "btrfs-progs", "f2fs": "f2fs-tools"}
DEFAULT_MAX_SECTORS = 0  # what the kernel takes for its default


@dataclass(frozen=True)
class Job:
    """One study on one kernel series and one device: what one guest runs."""

    study: Study[Any]
    series: str
    profile: DeviceProfile
    quick: bool
    mips: int = DEFAULT_MIPS

    @property
    def name(self) -> str:
        """The stem of its result file."""
        where = (self.study.name, self.series, self.profile.name)
        return stem(*where, quick=self.quick, mips=self.mips)

    @property
    def cells(self) -> list[Cell[Any]]:
        """What it runs."""
        cells = self.study.cells(self.profile.name, quick=self.quick)
        return [cell for cell in cells if cell.system.is_on(self.series)]

    def runs_of(self, cell: Cell[Any]) -> int:
        """How often it runs a cell."""
        return self.study.runs_of(cell, quick=self.quick)

    @property
    def runs(self) -> int:
        """How many runs it has."""
        return sum(self.runs_of(cell) for cell in self.cells)


def plan(
    studies: Sequence[Study[Any]],
    *,
    series: str,
    quick: bool,
    devices: Sequence[str] | None,
    mips: int = DEFAULT_MIPS,
) -> list[Job]:
    """The jobs of these studies, on their own devices or on these."""
    return [
        Job(study, series, load_profile(device), quick, mips)
        for study in studies
        for device in dict.fromkeys(devices or study.axes(quick=quick).devices)
    ]


@dataclass(frozen=True)
class Setting:
    """What all guests of a run share: what was fetched and built, by name."""

    tree: KernelTree
    pairs: Mapping[str, ModuleSet]
    modules: Mapping[str, Path]
    programs: Mapping[str, Path]
    images: Mapping[str, RootImage]
    sources: Mapping[str, str]  # digests when modules were built
    processor: Processor = field(default_factory=load_processor)


def describe(job: Job, setting: Setting) -> dict[str, Any]:
    """Everything that a figure depends on besides the cell's own inputs."""
    study = job.study
    files = {
        f"{name}/{path.name}": path
        for name in dict.fromkeys(cell.system.modules for cell in job.cells)
        for path in (setting.pairs[name].jbd2, setting.pairs[name].ext4)
    }
    files |= {f"{name}.ko": setting.modules[name] for name in ("flashdev", *study.modules)}
    files |= {program.name: setting.programs[program.name] for program in study.programs}
    scripts = (CELL_SH, TRACE_SH, *guest_scripts(SCRIPT).values())
    image = setting.images[study.image]
    versions = [f"{name}-{image.version(name)}" for name in study.packages]
    versions += [program.version for program in study.programs if program.version]
    return {
        "kernel_release": setting.tree.release,
        "debian_version": setting.tree.debian_version,
        "sha256": {name: file_checksum(path) for name, path in files.items()},
        "root_sha256": image.digest,
        "scripts_sha256": [file_checksum(script) for script in scripts],
        "versions": list(dict.fromkeys(versions)),
        "device": asdict(job.profile),
        "capacity_mib": study.capacity_mib,
        "memory_mib": study.memory_mib,
        "icount_shift": SPEEDS[job.mips],
        "models_cpu": models_cpu(SPEEDS[job.mips]),
        "processor": setting.processor.record,
        "kernel_parameters": KERNEL_PARAMETERS,
        "setup": study.setup,
        "traced": study.traced,
        "reading_sha256": reading_digest(study.read),
        TOOLS: tools_of(job, image),
    }


def tools_of(job: Job, image: RootImage) -> list[str]:
    """What runs the guests and makes their file systems, with versions, for a reader.

    They are in no cell's key: root_sha256 covers what is in the image, and a newer QEMU on the host
    alone is no reason to measure everything anew.
    """
    kinds = dict.fromkeys(cell.system.kind for cell in job.cells if cell.system.kind)
    makers = [MAKERS[kind] for kind in kinds]
    return [f"QEMU {qemu_version()}", *(f"{name} {image.version(name)}" for name in makers)]


def seen_by(cell: Cell[Any], environment: Mapping[str, Any]) -> dict[str, Any]:
    """An environment as a figure of this cell depends on it.

    Of module pairs it has only the cell's own, and nothing that is for a reader alone.
    """
    files = environment.get("sha256", {})
    own = {
        name: digest
        for name, digest in files.items()
        if "/" not in name or name.startswith(f"{cell.system.modules}/")
    }
    device = without(WORDS_OF_DEVICE, environment.get("device", {}))
    return {**without(WORDS, environment), "sha256": own, "device": device}


def without(names: Iterable[str], record: Mapping[str, Any]) -> dict[str, Any]:
    """A record without the entries of these names."""
    return {name: value for name, value in record.items() if name not in names}


def cell_record(job: Job, cell: Cell[Any], environment: Mapping[str, Any]) -> dict[str, Any]:
    """A cell without runs, as a result file has it: its key, its place, how it is made."""
    script = job.study.script(cell, str)
    inputs = {
        "filesystem": cell.system.record,
        "queue": queue_script(job.study, cell),
        "prepare": script.prepare,
        "command": script.run,
    }
    return {
        "key": key_of(seen_by(cell, environment), inputs),
        "workload": cell.workload.name,
        "system": cell.system.name,
        "interval_ms": cell.system.interval_ms,
        "scheduler": cell.scheduler.name,
        **inputs,
        "runs": [],
    }


# --- bash --------------------------------------------------------------------------------------


def queue_script(study: Study[Any], cell: Cell[Any]) -> str:
    """Bash that gives the device a scheduler and its settings; $QUEUE is where they are."""
    one: Scheduler = cell.scheduler
    if not one.scheduler:
        return ":"
    settings = [
        ("none", "scheduler"),  # whichever was there loses its own settings
        (one.scheduler, "scheduler"),
        (WBT_ON_US if one.wbt else WBT_OFF_US, "wbt_lat_usec"),
        (one.max_sectors_kb or DEFAULT_MAX_SECTORS, "max_sectors_kb"),
    ]
    wanted = one.nr_requests or study.nr_requests.get(cell.device)
    if wanted and one.scheduler != "none":
        settings.append((wanted, "nr_requests"))
    settings += [(value, f"iosched/{name}") for name, value in one.tunables]
    return " &&\n".join(f'echo {value} >"$QUEUE/{name}"' for value, name in settings)


def bash_of(job: Job, cell: Cell[Any], script: Script, cell_sh: str, *, run: int, runs: int) -> str:
    """Bash for run number `run` (from 0) of `runs` of a cell."""
    values = {
        "FS_KIND": cell.system.kind,
        "FS_MKFS": cell.system.mkfs,
        "FS_OPTIONS": cell.system.options,
        "PHASE": run,
        "PHASES": runs,
        "TRACED": int(job.study.traced),
    }
    functions = {
        "set_queue": queue_script(job.study, cell),
        "prepare": script.prepare,
        "run": script.run,
    }
    lines = [f"{name}={shlex.quote(str(value))}" for name, value in values.items()]
    lines += [f"{name}() {{\n{body}\n}}" for name, body in functions.items()]
    return "\n".join([*lines, TRACE_SH.read_text(), f". {cell_sh}"])


def sections(text: str) -> dict[str, str]:
    """The parts of a script's output, by the names after SECTION."""
    parts = text.split(SECTION)[1:]
    return {head: body for head, _, body in (part.partition("\n") for part in parts)}
