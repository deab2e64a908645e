"""What a study declares. Everything else is the runner's.

A study is a value of `Study` in a file of fastsync_lab/studies/: its axes, its programs, the script
of a cell, and how the output of that becomes figures. A cell is one point of the axes: a workload
on a file system under an I/O scheduler, on a device and a kernel.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from fastsync_lab.host.progress import Report
from fastsync_lab.machine.device import real_profiles
from fastsync_lab.machine.image import DEFAULT
from fastsync_lab.study.grid import Part
from fastsync_lab.study.judge import Requirement
from fastsync_lab.study.rows import Line, Subjects, check_metrics

STOCK, FASTSYNC = "stock", "fastsync"
FLASH = real_profiles()
HEADLINE_RUNS = 5  # in a full run, of a cell whose figures a reader sees first


# --- the axes ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileSystem:
    """A file system as it is made and mounted, and the call that makes a write durable on it.

    `kind` is what `mount -t` takes, or empty for the device itself, with nothing on it. `modules`
    is the pair of jbd2 and ext4 that is loaded meanwhile. Of one that is not `durable`, a write
    may be lost after its sync call has returned; its name says so. `kernels` are the series that
    have it, all if there are none.
    """

    name: str
    says: str
    kind: str = "ext4"
    mkfs: str = "mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0"
    options: str = "defaults"
    modules: str = STOCK
    sync_call: str = "fsync"
    interval_ms: int | None = None
    durable: bool = True
    kernels: tuple[str, ...] = ()

    def is_on(self, series: str) -> bool:
        """Whether kernels of a series have it."""
        return not self.kernels or series in self.kernels

    @property
    def record(self) -> dict[str, Any]:
        """What decides its figures on a kernel that has it."""
        return {name: value for name, value in asdict(self).items() if name != "kernels"}


@dataclass(frozen=True)
class Scheduler:
    """An I/O scheduler and its settings; an empty `scheduler` leaves the queue as it is.

    `wbt`: whether write-back is throttled; `nr_requests`: what the queue may hold, and
    `max_sectors_kb`: the most that a request may have, where it is not the kernel's own.
    """

    name: str
    scheduler: str = ""
    wbt: bool = False
    nr_requests: int | None = None
    max_sectors_kb: int | None = None
    tunables: tuple[tuple[str, int], ...] = ()


AS_IT_IS = Scheduler("default")


@dataclass(frozen=True)
class Workload:
    """What runs. A study has a dataclass of its own, with what its script needs to know."""

    name: str


W = TypeVar("W", bound=Workload)


@dataclass(frozen=True)
class Axes(Generic[W]):
    """How far a run goes on each axis; the kernel is chosen on the command line.

    Each cell has `runs`, which begin at different phases of the tick.
    """

    title: str
    devices: tuple[str, ...]
    systems: tuple[FileSystem, ...]
    workloads: tuple[W, ...]
    schedulers: tuple[Scheduler, ...] = (AS_IT_IS,)
    runs: int = 1


@dataclass(frozen=True)
class Cell(Generic[W]):
    """One point of the axes, on a device."""

    system: FileSystem
    workload: W
    scheduler: Scheduler
    device: str

    @property
    def name(self) -> str:
        """The cell in words, without the device."""
        parts = [self.workload.name, self.system.name]
        if self.system.interval_ms is not None:
            parts[1] += f" {self.system.interval_ms} ms"
        if self.scheduler != AS_IT_IS:
            parts[1:] = [self.scheduler.name]
        return ", ".join(parts)


# --- a cell in the guest -----------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """What is compiled for the guest; `version` is that of what it is made of, if one tells."""

    name: str
    build: Callable[[Report], Path]
    version: str = ""


# The path of a program in the guest, by its name. The same function gives a command as a person
# would type it, where it gives the name back.
Paths = Callable[[str], str]


@dataclass(frozen=True)
class Script:
    """Bash for a cell. `run` is what is measured; `prepare` comes before it, and then a rest.

    Both run in the top folder of the new file system. study/cell.sh has the functions that they
    may call: `measured SUBJECT COMMAND...` marks a part of the run, `section NAME` begins a part
    of the output.
    """

    run: str
    prepare: str = ":"


@dataclass(frozen=True)
class Output:
    """What a cell's script printed: `result` from its `run`, and the sections that it began."""

    result: str
    sections: Mapping[str, str] = field(default_factory=dict)


# --- what is shown -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A line for each place and each name that is compared there: these metrics.

    The first one is shown also over that of each name in `over`. A line without any has none.
    """

    metrics: tuple[str, ...]
    over: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises FastsyncError for a metric that there is not."""
        check_metrics(self.metrics)


@dataclass(frozen=True)
class SideBySide:
    """A line for each place, with the names that are compared beside each other.

    One metric of each of `names`, then ratios of two of them, then other metrics of some.
    """

    metric: str
    names: tuple[str, ...]
    ratios: tuple[tuple[str, str], ...] = ()
    also: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __post_init__(self) -> None:
        """Raises FastsyncError for a metric that there is not."""
        check_metrics([self.metric, *(metric for metric, _ in self.also)])


SPEED = Table(
    ("ops_per_s", "kib_data", "kib_journal", "kib_metadata", "kib_unsorted", "flushes", "p50_ns",
     "p99_ns"),
    over=("stock", "ideal"),
)  # fmt: skip
SPEED_BESIDE = SideBySide(
    "ops_per_s",
    ("stock", "ideal", "truncate", "defer"),
    ratios=(("truncate", "ideal"), ("defer", "ideal"), ("defer", "stock")),
    also=(("kib_journal", ("stock", "truncate", "defer")),),
)


# --- a study -----------------------------------------------------------------------------------


def nothing(_lines: Sequence[Line]) -> list[Any]:
    """There is nothing to say."""
    return []


def every(_cell: Cell[Any]) -> bool:
    """All cells are wanted."""
    return True


@dataclass(frozen=True)
class Study(Generic[W]):
    """One question, and how it is measured.

    says        in one line, what is measured
    full, quick how far `run --full` and `run --quick` go
    script      the bash of a cell
    read        what its output says of each subject: "" is the run itself
    wants       which points of the axes are run
    programs    what is compiled for it
    packages    those of the root image whose version a figure depends on
    image       the root image that its guests boot from
    modules     modules of kernel/ that are loaded, beside the device's
    setup       bash that is run once, when the guest has booted
    traced      whether block requests are traced and counted for each subject
    nr_requests what a queue may hold on a device where the model's number of tags would give
                another figure than drivers do
    capacity_mib, memory_mib
                of the device, and of the guest
    limit_s     of one run, in seconds of the host's processor
    required    what the figures must show
    compared    the axis whose names stand beside each other
    tables      its tables, each of some metrics
    beside      what stands beside each other in the headline's table, and in which ratios
    headline    workload and subject of the lines that a reader sees first
    drawn       workload and subject of the lines that have figures, if not the headline's
    remarks     sentences below the tables of some of its lines
    says_headline
                what is said of all lines on one kernel beside the headline's table
    front       docs/FRONT.md, whose block NAME is what a reader sees first; if empty it is
                docs/results.md
    """

    name: str
    says: str
    full: Axes[W]
    quick: Axes[W]
    script: Callable[[Cell[W], Paths], Script]
    read: Callable[[Cell[W], Output], Subjects]
    wants: Callable[[Cell[W]], bool] = every
    programs: tuple[Program, ...] = ()
    packages: tuple[str, ...] = ()
    image: str = DEFAULT
    modules: tuple[str, ...] = ()
    setup: str = ":"
    traced: bool = True
    nr_requests: Mapping[str, int] = field(default_factory=dict)
    capacity_mib: int = 512
    memory_mib: int = 2048
    limit_s: float = 900.0
    required: tuple[Requirement, ...] = ()
    compared: Literal["system", "scheduler"] = "system"
    tables: tuple[Table, ...] = (SPEED,)
    beside: SideBySide | None = SPEED_BESIDE
    headline: tuple[tuple[str, str], ...] = ()
    drawn: tuple[tuple[str, str], ...] = ()
    remarks: Callable[[Sequence[Line]], list[str]] = nothing
    says_headline: Callable[[Sequence[Line]], list[Part]] = nothing
    front: str = ""

    def axes(self, *, quick: bool) -> Axes[W]:
        """How far a run goes."""
        return self.quick if quick else self.full

    def not_on(self, series: str) -> set[str]:
        """The names of file systems that kernels of a series do not have."""
        return {one.name for one in self.full.systems if not one.is_on(series)}

    def cells(self, device: str, *, quick: bool) -> Iterator[Cell[W]]:
        """The cells on one device, in the order that swaps modules least."""
        axes = self.axes(quick=quick)
        for modules in dict.fromkeys(system.modules for system in axes.systems):
            points = product(axes.workloads, axes.systems, axes.schedulers)
            for workload, system, scheduler in points:
                cell = Cell(system, workload, scheduler, device)
                if system.modules == modules and self.wants(cell):
                    yield cell

    def runs_of(self, cell: Cell[W], *, quick: bool) -> int:
        """How often a cell is run.

        In a full run the headline's workloads have HEADLINE_RUNS on each file system that stands
        beside others or that a requirement names.
        """
        runs = self.axes(quick=quick).runs
        shown = {*(self.beside.names if self.beside else ())}
        shown |= {name for one in self.required for name in (*one.where.systems, *one.over.systems)}
        in_headline = any(workload == cell.workload.name for workload, _ in self.headline)
        more = in_headline and cell.system.name in shown and not quick
        return max(runs, HEADLINE_RUNS) if more else runs


def required_of(studies: Mapping[str, Study[Any]]) -> dict[str, Sequence[Requirement]]:
    """What the figures of these studies must show."""
    return {name: study.required for name, study in studies.items()}
