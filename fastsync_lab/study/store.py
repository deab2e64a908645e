"""Result files: one for each study, kernel series and device, replaced when a run is whole.

Cells of an interrupted run are kept in results/*.partial.json, each under a hash of all that goes
into it. A full run takes up those of its last result as well: it measures what has changed.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fastsync_lab.host.build import OURS, source_digest
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.kernels import upstream_version
from fastsync_lab.host.paths import results_dir, write_json
from fastsync_lab.machine.processor import DEFAULT_MIPS, label, speed
from fastsync_lab.study.keeper import PARTIAL, read_result, result_files
from fastsync_lab.study.rows import Line, Place, Row, lines_of, machine_name, series_name

FORMAT = 2
DIGITS = 6  # behind the point; a nanosecond of a second, a byte of a MiB


# A cell in a result: workload, file system, interval, scheduler.
CellKey = tuple[str, str, int | None, str]


@dataclass(frozen=True)
class Steps:
    """How a cell was made: bash and mount options, empty where the result does not say."""

    mkfs: str = ""
    options: str = ""
    queue: str = ""
    prepare: str = ""
    command: str = ""

    @property
    def text(self) -> str:
        """The same as a person would type it."""
        parts = (
            self.mkfs and f"{self.mkfs} $FASTSYNC_DEV",
            self.options and f"mount -o {self.options} $FASTSYNC_DEV /mnt; cd /mnt",
            self.queue,
            self.prepare,
            self.command,
        )
        return "\n".join(part for part in parts if part and part != ":")


@dataclass(frozen=True)
class Result:
    """A whole run of a study on one kernel and device, and what its figures depend on.

    `sources` are the digests of the sources of our modules_of() it, by module; empty of an older
    result.
    """

    study: str
    title: str
    kernel: str
    device: str
    environment: Mapping[str, Any]
    rows: tuple[Row, ...]
    date: str = ""
    steps: Mapping[CellKey, Steps] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    def steps_of(self, place: Place) -> Steps:
        """How the cell of a place was made."""
        return self.steps.get(cell_key(place), Steps())

    @property
    def series(self) -> str:
        """The kernel's series."""
        return series_name(self.kernel)

    @property
    def processor(self) -> str:
        """The processor, where it is not the one that guests have now."""
        return label(self.environment)

    @property
    def mips(self) -> float:
        """Its speed, in millions of instructions a second."""
        return speed(self.environment)

    @property
    def machine(self) -> str:
        """Kernel and, where it is another, processor."""
        return machine_name(self.kernel, self.processor)

    @cached_property  # all sources are read for it
    def is_old(self) -> bool:
        """Whether its modules are older than those that this tree makes now."""
        now = {name: source_digest(self.series, name) for name in modules_of(self.environment)}
        return self.sources != now

    @property
    def lines(self) -> list[Line]:
        """Its figures."""
        return lines_of(self.rows)


def modules_of(environment: Mapping[str, Any]) -> list[str]:
    """Our modules that were loaded, as source_digest() has them; the device's model is none."""
    files = environment["sha256"]
    pair = [OURS] if f"{OURS}/ext4.ko" in files else []
    alone = [name.removesuffix(".ko") for name in files if "/" not in name and name.endswith(".ko")]
    return [*pair, *(name for name in alone if name != "flashdev")]


def key_of(*inputs: object) -> str:
    """A hash of all that goes into a cell."""
    return hashlib.sha256(json.dumps([FORMAT, *inputs], sort_keys=True).encode()).hexdigest()[:16]


def stem(study: str, series: str, device: str, *, quick: bool, mips: int = DEFAULT_MIPS) -> str:
    """The stem of a result file."""
    ending = "" if mips == DEFAULT_MIPS else f"-{mips}mips"
    return f"{study}-{'quick' if quick else 'full'}-{series}-{device}{ending}"


def write_result(name: str, result: Mapping[str, Any]) -> Path:
    """Keep a whole result; the partial one goes."""
    path = results_dir() / f"{name}.json"
    write_json(path, {**result, "complete": True})
    partial_path(name).unlink(missing_ok=True)
    return path


def partial_path(name: str) -> Path:
    """Where what is finished of an interrupted run is kept."""
    return results_dir() / f"{name}{PARTIAL}"


def kept_runs(name: str, *, whole: bool) -> dict[str, list[dict[str, Any]]]:
    """The runs by cell key in an interrupted run's file; with `whole` in the last result, too.

    None from a file that is not there, or cannot be read.
    """
    kept = runs_in(results_dir() / f"{name}.json") if whole else {}
    return kept | runs_in(partial_path(name))


def kept_date(name: str, *, whole: bool) -> str | None:
    """When the last of kept_runs() was finished; None where there is none."""
    files = [partial_path(name), *([results_dir() / f"{name}.json"] if whole else [])]
    return next((str(json.loads(one.read_text())["date"]) for one in files if runs_in(one)), None)


def runs_in(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The runs by cell key in a file of this format."""
    try:
        cells = json.loads(path.read_text())["cells"]
        return {cell["key"]: cell["runs"] for cell in cells if cell["runs"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


# --- reading -----------------------------------------------------------------------------------


def full_results() -> list[Path]:
    """The files of whole full runs."""
    return result_files("*-full-*")


def load_result(path: Path) -> Result:
    """A whole result. Raises FastsyncError when it cannot be read, or is not whole."""
    data = read_result(path, FORMAT)
    if not data.get("complete"):
        raise FastsyncError(f"{path} is of an interrupted run; run it again to complete it")
    try:
        return parse_result(data)
    except (KeyError, TypeError, ValueError) as error:
        raise FastsyncError(f"{path} is no result as this version writes it: {error!r}") from error


def parse_result(data: Mapping[str, Any]) -> Result:
    """A result from its JSON. Raises KeyError, TypeError or ValueError when it is none."""
    kernel = upstream_version(data["environment"]["debian_version"])
    return Result(
        study=data["study"],
        title=data["title"],
        kernel=kernel,
        device=data["device"],
        environment=data["environment"],
        rows=tuple(rows_in(data, kernel)),
        date=data["date"][:10],
        steps=dict(steps_in(data)),
        sources=sources_in(data),
    )


def sources_in(data: Mapping[str, Any]) -> dict[str, str]:
    """The digests of a result's modules' sources; none where it has one digest of all."""
    sources = data.get("source_sha256", {})
    return dict(sources) if isinstance(sources, Mapping) else {}


def cell_key(place: Place) -> CellKey:
    """The cell that a place belongs to."""
    return place.workload, place.system, place.interval_ms, place.scheduler


def steps_in(data: Mapping[str, Any]) -> Iterator[tuple[CellKey, Steps]]:
    """How the cells of a result were made."""
    for cell in data["cells"]:
        made = cell["filesystem"]
        steps = Steps(
            mkfs=made["mkfs"],
            options=made["options"],
            queue=cell["queue"],
            prepare=cell["prepare"],
            command=cell["command"],
        )
        yield (cell["workload"], cell["system"], cell["interval_ms"], cell["scheduler"]), steps


def rows_in(data: Mapping[str, Any], kernel: str) -> Iterator[Row]:
    """The rows of a result's cells."""
    processor = label(data["environment"])
    for cell in data["cells"]:
        for number, run in enumerate(cell["runs"]):
            for subject, values in run["subjects"].items():
                place = Place(
                    kernel=kernel,
                    study=data["study"],
                    device=data["device"],
                    workload=cell["workload"],
                    subject=subject,
                    scheduler=cell["scheduler"],
                    system=cell["system"],
                    interval_ms=cell["interval_ms"],
                    processor=processor,
                )
                yield Row(place, number, values)


def write_rows(path: Path, results: Sequence[Result]) -> None:
    """All rows in one file, flat: axes, number of the run and metrics are keys of one object."""
    environments = [result.environment for result in results]
    write_json(path, {"format": FORMAT, "environments": environments, "rows": tidy(results)})


def tidy(results: Iterable[Result]) -> list[dict[str, Any]]:
    """The rows as objects."""
    return [
        {**asdict(row.place), "run": row.run, **row.values}
        for result in results
        for row in result.rows
    ]
