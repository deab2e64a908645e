"""What fsync() of our file costs while another process stats and writes a file of its own.

On Linux 6.13 and later each such write after the first in a tick takes a fine-grained stamp and so
moves the floor under every stamp of the system: our file, which nobody asks about, gets a new
stamp at its next write, too. The control does the same calls, but asks about a file that nobody
writes.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.study import fio
from fastsync_lab.study.contract import FLASH, Axes, Cell, Output, Paths, Script, Study
from fastsync_lab.study.filesystems import FIVE, FOUR, MODES
from fastsync_lab.study.grid import Part
from fastsync_lab.study.judge import Requirement, Where
from fastsync_lab.study.programs import NEIGHBOUR
from fastsync_lab.study.rows import Line, Subjects, machines_of
from fastsync_lab.study.show import pairs_of

PERIOD_US = 1000
TMPFS = "/run/fastsync"


@dataclass(frozen=True)
class WithNeighbour(fio.Overwrites):
    """fio beside a process that writes a file in `folder`, and stats it or, as the control, not."""

    folder: str = ""
    stats: bool = False

    @property
    def files(self) -> tuple[str, str]:
        """The file that the neighbour writes, and the one whose stamps it asks for."""
        written = f"{self.folder}/neighbour-written"
        return written, written if self.stats else f"{self.folder}/neighbour-asked"


def script(cell: Cell[WithNeighbour], paths: Paths) -> Script:
    """The neighbour runs while fio does. Its files have their block: no write allocates one."""
    plain = fio.script(cell, paths)
    if not cell.workload.folder:
        return plain
    made = [
        f"dd if=/dev/zero of={file} bs=4k count=1 conv=fsync 2>&1 &&\n"
        for file in dict.fromkeys(cell.workload.files)
    ]
    run = (
        f"{paths(NEIGHBOUR.name)} {' '.join(cell.workload.files)} {PERIOD_US} "
        f">{TMPFS}/neighbour &\n"
        f"{plain.run} || return\nkill $! && wait $! && section neighbour && cat {TMPFS}/neighbour"
    )
    return Script(run, "".join(made) + plain.prepare)


def rounds_per_s(text: str) -> float:
    """How often the neighbour asked and wrote. Raises FastsyncError when it did nothing."""
    try:
        result = json.loads(text)
        if not result["rounds"]:
            raise ValueError("no round")
        return float(int(result["rounds"]) * 1e9 / int(result["elapsed_ns"]))
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise FastsyncError(f"the neighbour printed no result: {error!r}") from error


def read(cell: Cell[WithNeighbour], output: Output) -> Subjects:
    """fio's figures, and the neighbour's rounds."""
    values = fio.values_of(output.result)
    if not cell.workload.folder:
        return {"": values}
    return {"": {**values, "neighbour_per_s": rounds_per_s(output.sections["neighbour"])}}


def worst(lines: Sequence[Line]) -> list[Part]:
    """How far rates fall where they fall most."""
    found = pairs_of(STUDY, lines).values()
    if not found:
        return []
    shares = {
        name: min(
            x.value("ops_per_s") / y.value("ops_per_s") for x, y in (one[name] for one in found)
        )
        for name in ("stock", *MODES)
    }
    return [
        f"Linux {machines_of(lines)}: the fsync rate of a file beside a process that calls "
        "`stat()` and writes another file all the time, divided by the rate beside a process that "
        "only writes, on the worst device: "
        f"{', '.join(f'{name} {share:.3f}' for name, share in shares.items())}."
    ]


FULL = Axes(
    title="4 KiB random overwrite + fsync, 20 MB file, beside a process that writes another file",
    devices=(*FLASH, "uniform-100us"),
    systems=FIVE,
    workloads=(
        WithNeighbour("alone", file_mib=20),
        WithNeighbour("beside writes", file_mib=20, folder="."),
        WithNeighbour("beside stat + writes", file_mib=20, folder=".", stats=True),
        WithNeighbour("beside writes on tmpfs", file_mib=20, folder=TMPFS),
        WithNeighbour("beside stat + writes on tmpfs", file_mib=20, folder=TMPFS, stats=True),
    ),
)

STUDY = Study(
    name="neighbour",
    says="fio: random overwrites beside a process that stats and writes a file of its own",
    full=FULL,
    quick=replace(FULL, devices=("ufs",), systems=FOUR),
    script=script,
    read=read,
    programs=(NEIGHBOUR,),
    packages=("fio",),
    required=tuple(
        Requirement(
            "ops_per_s",
            where=Where(systems=MODES, workloads=(f"beside stat + writes{where}",)),
            over=Where(workloads=(f"beside writes{where}",)),
            least=0.97,
        )
        for where in ("", " on tmpfs")
    ),
    says_headline=worst,
)
