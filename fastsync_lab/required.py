"""What the figures must show: [[required]] rows of an experiment's file, and verdicts on them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fastsync_lab.errors import FastsyncError
from fastsync_lab.figures import COMPARED, LABELS, Row, sweeps
from fastsync_lab.measure import JOURNAL

FIGURES = ("speed", "journal bytes saved", "worst step of speed", "worst step of volume")


@dataclass(frozen=True)
class Requirement:
    """A figure of some variants must be at least `least` and at most `most`.

    `figure` is "speed" (operations a second over those of the base), "journal bytes saved" (the
    share of the base's that is not written; asked for only where the base writes `base_kib` KiB or
    more for each operation), or a sweep's "worst step" of speed or volume (the smallest ratio of a
    value to that at the next shorter interval; of volumes, the inverse).

    The base is variant `base` on workload `base_workload`; where one is left out, the same as the
    figure's own. The rest says where the requirement holds; what is left out: everywhere. A list of
    `phases` counts for SQLite.
    """

    figure: str
    variants: Sequence[str]
    least: float
    most: float | None = None
    base: str | None = None
    base_workload: str | None = None
    base_kib: float = 0.0
    kernels: Sequence[str] = ()
    devices: Sequence[str] = ()
    workloads: Sequence[str] = ()
    phases: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Raises FastsyncError for a figure or a variant that there is not."""
        if self.figure not in FIGURES:
            raise FastsyncError(f"no figure {self.figure!r}: there are {', '.join(FIGURES)}")
        for variant in (*self.variants, *([self.base] if self.base else [])):
            if variant not in COMPARED:
                raise FastsyncError(f"no variant {variant!r}: there are {', '.join(COMPARED)}")

    def is_for(self, row: Row) -> bool:
        """Whether it asks for a figure of this row."""
        scopes = (
            (self.kernels, row.series),
            (self.devices, row.device),
            (self.workloads, row.workload),
            (self.phases, row.phase),
        )
        return row.variant in self.variants and all(
            not allowed or value in allowed for allowed, value in scopes
        )

    def describe(self, variant: str) -> str:
        """The figure in words."""
        base = self.base or variant
        over = LABELS.get(base, base) + (f" {self.base_workload}" if self.base_workload else "")
        names = {
            "speed": f"{variant}, speed over {over}",
            "journal bytes saved": f"{variant}, share of {over}'s journal bytes saved",
            "worst step of volume": f"{variant}, worst step of volume (inverse)",
        }
        return names.get(self.figure, f"{variant}, {self.figure}")


def within(figure: float, least: float, most: float | None) -> bool:
    """Whether a figure is at least one bar and, if there is another, at most that."""
    return least <= figure and (most is None or figure <= most)


@dataclass(frozen=True)
class Verdict:
    """A required figure: it must be at least `least` and at most `most`."""

    kernel: str
    device: str
    name: str
    what: str
    figure: float
    least: float
    most: float | None = None

    @property
    def passed(self) -> bool:
        """Whether it is as required."""
        return within(self.figure, self.least, self.most)

    def __str__(self) -> str:
        state = "pass " if self.passed else "SHORT"
        needs = [f"at least {self.least:g}"] if self.least or not self.most else []
        needs += [f"at most {self.most:g}"] if self.most else []
        need = ", ".join(needs)
        return (
            f"{state} {self.figure:.4f} ({need}) {self.kernel}, {self.device}, {self.name}: "
            f"{self.what}"
        )


def worst_step(values: Sequence[float]) -> float:
    """The smallest ratio of a value to the one before it: 1 or more when they never fall."""
    return min((b / a for a, b in pairwise(values) if a), default=1.0)


def sweep_verdicts(requirement: Requirement, rows: Sequence[Row]) -> list[Verdict]:
    """The verdicts on sweeps of the interval on one kernel, one for each device and mode."""
    found = []
    for (device, variant), series in sweeps(filter(requirement.is_for, rows)).items():
        values = (
            [row.ops_per_s for row in series]
            if requirement.figure == "worst step of speed"
            else [1 / row.total_kib for row in series if row.total_kib]
        )
        found.append(
            Verdict(
                series[0].kernel,
                device,
                f"interval {series[0].interval_ms} to {series[-1].interval_ms} ms",
                requirement.describe(variant),
                worst_step(values),
                requirement.least,
                requirement.most,
            )
        )
    return found


def compared_figure(requirement: Requirement, row: Row, base: Row) -> float | None:
    """A row's figure over its base; None where the base is too small to ask for it."""
    if requirement.figure == "speed":
        return row.ops_per_s / base.ops_per_s
    base_kib = base.kib_per_op[JOURNAL]
    if not base_kib or base_kib < requirement.base_kib:
        return None
    return 1 - row.kib_per_op[JOURNAL] / base_kib


def compared_verdicts(requirement: Requirement, rows: Sequence[Row]) -> list[Verdict]:
    """The verdicts on variants on one kernel; a row whose base was not run gets none."""
    by_place = {(row.device, row.workload, row.phase, row.variant): row for row in rows}
    found = []
    for row in filter(requirement.is_for, rows):
        workload = requirement.base_workload or row.workload
        base = by_place.get((row.device, workload, row.phase, requirement.base or row.variant))
        figure = compared_figure(requirement, row, base) if base else None
        if figure is not None:
            found.append(
                Verdict(
                    row.kernel,
                    row.device,
                    row.name,
                    requirement.describe(row.variant),
                    figure,
                    requirement.least,
                    requirement.most,
                )
            )
    return found


def judge(required: Mapping[str, Sequence[Requirement]], rows: Iterable[Row]) -> list[Verdict]:
    """Every required figure that these rows can show; `required` has the rows by experiment."""
    blocks: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        blocks.setdefault((row.series, row.experiment), []).append(row)
    found: list[Verdict] = []
    for (_, experiment), block in blocks.items():
        for requirement in required.get(experiment, ()):
            is_step = requirement.figure.startswith("worst step")
            found += (sweep_verdicts if is_step else compared_verdicts)(requirement, block)
    return found
