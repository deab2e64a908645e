"""The first runs of a stranger: what `make first-runs` has kept, and documents say of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from fastsync_lab.host.paths import repo_root, results_dir
from fastsync_lab.study.grid import Grid, Part
from fastsync_lab.study.keeper import Result, read_results, write_tables

FORMAT = 1
DOCUMENT, BLOCK = "docs/lab.md", "first-runs"


@dataclass(frozen=True)
class FirstRun:
    """A run: how often packages were installed meanwhile, the two calls, what the cache then had.

    A call that failed has no time.
    """

    installed: int
    first_s: float | None
    again_s: float | None
    cache_mib: int


def failures(runs: Sequence[FirstRun]) -> int:
    """How many calls failed."""
    return sum(taken is None for one in runs for taken in (one.first_s, one.again_s))


def minutes(times_s: Sequence[float | None]) -> str:
    """The median of some calls and the longest; those that failed are left out."""
    there = [taken / 60 for taken in times_s if taken is not None]
    return f"{median(there):.1f} minutes, at most {max(there):.1f}" if there else "nothing"


def sentence(result: Result) -> str:
    """What a result says."""
    runs = runs_of(result)
    busy = sum(one.installed > 0 for one in runs)
    return (
        f"The first `make demo` of a fresh clone takes {minutes([one.first_s for one in runs])}; "
        f"a second one {minutes([one.again_s for one in runs])}. Its cache has "
        f"{max(one.cache_mib for one in runs)} MiB. Of {2 * len(runs)} calls {failures(runs)} "
        f"failed; packages were installed on the host during {busy} of the {len(runs)} first ones. "
        f"The host had {result['processors']} processors; the commit was {result['commit'][:12]}."
    )


def runs_of(result: Result) -> list[FirstRun]:
    """The runs of a result."""
    return [FirstRun(**one) for one in result["runs"]]


def path() -> Path:
    """Where the last whole series is kept."""
    return results_dir() / "first-runs.json"


def load() -> list[Result]:
    """The last whole series, if there was one."""
    return read_results([path()], FORMAT)


def parts(result: Result) -> list[Part]:
    """A sentence, and a line for each run."""
    rows = [
        [
            str(number),
            str(one.installed),
            *map(seconds, (one.first_s, one.again_s)),
            f"{one.cache_mib:,}",
        ]
        for number, one in enumerate(runs_of(result), 1)
    ]
    titles = ["run", "packages installed beside it", "first s", "second s", "cache MiB"]
    return [sentence(result), Grid(titles, rows, texts=0)]


def seconds(taken_s: float | None) -> str:
    """How long a call took."""
    return "failed" if taken_s is None else f"{taken_s:.0f}"


def write_first_runs() -> None:
    """Write results/first-runs.json into docs/lab.md.

    Raises FastsyncError when the document lacks the marks.
    """
    write_tables(repo_root() / DOCUMENT, BLOCK, load(), parts)
