"""What `./fastsync xfstests` does: from its options to tests and modes, from these to results."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fastsync_lab.host.kernels import find_series
from fastsync_lab.host.options import CONTROL
from fastsync_lab.host.paths import build_dir, claim, results_dir
from fastsync_lab.host.progress import Report, Tally
from fastsync_lab.xfstests.results import NOT_RUN, PASS, Run, Store, still_to_run
from fastsync_lab.xfstests.run import Machine, Setting, Work, make_setting, run_all
from fastsync_lab.xfstests.tree import Tree, read_tree, select

DEFAULT_MODES = ("truncate", "defer", "defer+eager")
LIMIT_S = 900


@dataclass(frozen=True)
class Request:
    """What is asked for: tests of a checkout, in modes of which the first is stock."""

    suite: Tree
    tests: tuple[str, ...]
    modes: tuple[str, ...]


def request(
    folder: Path, words: Sequence[str], modes: Sequence[str] | None, kernel: str
) -> Request:
    """What the options ask for; stock, to compare with, is always among the modes.

    Raises UsageError for a folder, a test, a group or a mode that there is not, or not on this
    kernel.
    """
    series = find_series(kernel)
    series.check_modes(modes or (), CONTROL)
    suite = read_tree(folder)
    ours = modes or [mode for mode in DEFAULT_MODES if mode in series.modes]
    chosen = dict.fromkeys((CONTROL, *ours))
    return Request(suite, tuple(select(suite.tests, words)), tuple(chosen))


def result_path(series: str) -> Path:
    """The results on a kernel."""
    return results_dir() / f"xfstests-{series}.json"


def left_dir(series: str) -> Path:
    """What tests have left, by mode and test: their output and the kernel's log."""
    return build_dir() / "xfstests" / f"left-{series}"


def store_of(setting: Setting, modes: Sequence[str], limit_s: float) -> Store:
    """The results of these modes that still hold."""
    about = {"kernel_release": setting.tree.release, "tree_commit": setting.suite.commit}
    keys = {mode: setting.key(mode) for mode in modes}
    return Store(result_path(setting.tree.series), keys, setting.source, about, limit_s)


def run(
    asked: Request, kernel: str, *, limit_s: float, report: Report, jobs: int | None = None
) -> tuple[Store, list[tuple[str, str, Path]]]:
    """Run what is not known yet. The results, and what did not pass now: mode, test, what it left.

    There are `jobs` guests at a time, by default as many as there are processors. Raises
    FastsyncError when something cannot be built, a test cannot be run at all, or another run on the
    same kernel is under way.
    """
    series = find_series(kernel).name
    left = left_dir(series)
    failed: dict[tuple[str, str, Path], None] = {}

    def finished(mode: str, test: str, one: Run) -> None:
        if one.verdict not in (PASS, NOT_RUN):
            failed[mode, test, left / mode / test.replace("/", "-")] = None

    with claim(result_path(series)):
        setting = make_setting(asked.suite, kernel, report)
        store = store_of(setting, asked.modes, limit_s)
        todo = len(still_to_run(store.runs, asked.tests, asked.modes))
        work = Work(store, asked.modes, limit_s, Tally(todo, "runs", report), finished)
        machines = [Machine(setting, left, report) for _ in range(jobs or os.cpu_count() or 1)]
        run_all(work, machines, asked.tests)
        if not store.finish():
            report(
                f"{result_path(series).name} has more tests, run otherwise: it stays until these "
                "have been run again, too"
            )
    return store, list(failed)
