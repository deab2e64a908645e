"""Does the first `make demo` of a stranger work, and how long does it take? `make first-runs`.

Each run has a clone of HEAD, an empty cache and no .venv, and calls the demo twice. Beside every
second first call, packages are installed on the host, one time after the other. What came of it is
kept in results/, and said in docs/lab.md (study/first_runs.py). An interrupted series goes on.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.interrupt import guarded
from fastsync_lab.host.paths import build_dir, repo_root
from fastsync_lab.host.shell import last_lines, run, spawn
from fastsync_lab.study.first_runs import (
    FORMAT,
    FirstRun,
    failures,
    path,
    runs_of,
    sentence,
    write_first_runs,
)
from fastsync_lab.study.keeper import Keeper

RUNS = 10
LIMIT_S = 3600.0  # of one call: then it hangs
# Small ones that `make setup` installs. Each turn is a line. It ends between two turns, when the
# file is gone. apt is never interrupted: no signal of ours reaches the session that it is in.
INSTALLER = """
while [ -e "$0" ]; do
    setsid --wait $SUDO env DEBIAN_FRONTEND=noninteractive \\
        apt-get -q -y install --reinstall bc flex >&2 || exit
    echo done
done
"""


@contextmanager
def installing(folder: Path) -> Iterator[None]:
    """Packages are installed all the time; folder/installed has a line for each turn.

    Raises FastsyncError when that fails.
    """
    busy = folder / "busy"
    busy.touch()
    sudo = {"SUDO": "" if os.geteuid() == 0 else "sudo"}
    with (folder / "installed").open("wb") as out, (folder / "apt.log").open("wb") as err:
        process = spawn(["sh", "-c", INSTALLER, str(busy)], env=sudo, stdout=out, stderr=err)
        try:
            yield
        finally:
            busy.unlink()
            status = process.wait()
        if status != 0:
            raise FastsyncError(f"apt-get failed: {last_lines((folder / 'apt.log').read_text())}")


def timed_demo(clone: Path, cache: Path, log: Path) -> float | None:
    """The seconds that `make demo` takes in a clone, its output in `log`; None when it fails.

    It fails, too, when it takes longer than LIMIT_S. It knows nothing of a make that called us.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    try:
        done = run(
            ["sh", "-c", 'unset MAKEFLAGS MAKELEVEL; exec make demo >"$0" 2>&1', str(log)],
            cwd=clone,
            env={"FASTSYNC_CACHE": str(cache)},
            timeout_s=LIMIT_S,
            check=False,
        )
    except FastsyncError as error:
        with log.open("a") as said:
            print(error, file=said)
        return None
    taken = time.monotonic() - begin
    return taken if done.status == 0 else None


def size_mib(folder: Path) -> int:
    """What the files under a folder occupy."""
    return sum(one.lstat().st_blocks for one in folder.rglob("*")) // 2048


def one_run(number: int, commit: str, logs: Path) -> FirstRun:
    """A first run of a clone, and a second one of the same."""
    with tempfile.TemporaryDirectory(prefix="first-run-") as name:
        folder = Path(name)
        clone, cache = folder / "fastsync", folder / "cache"
        run(["git", "clone", "--quiet", str(repo_root()), str(clone)])
        run(["git", "checkout", "--quiet", commit], cwd=clone)
        first_log, again_log = (logs / f"{number}-{which}.log" for which in ("first", "again"))
        if number % 2:
            first_s = timed_demo(clone, cache, first_log)
            installed = 0
        else:
            with installing(folder):
                first_s = timed_demo(clone, cache, first_log)
            installed = len((folder / "installed").read_text().splitlines())
        cache_mib = size_mib(cache)
        return FirstRun(installed, first_s, timed_demo(clone, cache, again_log), cache_mib)


def main() -> None:
    """Make the runs that are missing, write the documents; status 1 if a call failed."""
    try:
        commit = run(["git", "rev-parse", "HEAD"], cwd=repo_root()).stdout.strip()

        def result_of(runs: Sequence[FirstRun]) -> dict[str, Any]:
            return {
                "format": FORMAT,
                "commit": commit,
                "processors": os.cpu_count(),
                "runs": [asdict(one) for one in runs],
            }

        kept = Keeper(path(), result_of, runs_of, ("format", "commit"))
        logs = build_dir() / "first-runs"
        if not kept.parts:
            shutil.rmtree(logs, ignore_errors=True)
        for number in range(len(kept.parts) + 1, RUNS + 1):
            kept.add(one_run(number, commit, logs))
            print(f"{number} of {RUNS}: {kept.parts[-1]}", flush=True)
        kept.finish()
        write_first_runs()
    except FastsyncError as error:
        sys.exit(f"fastsync: {error}")
    print(sentence(result_of(kept.parts)))
    sys.exit(f"fastsync: what failed said why in {logs}" if failures(kept.parts) else 0)


if __name__ == "__main__":
    guarded(main)
