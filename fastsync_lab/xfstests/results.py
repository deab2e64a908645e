"""Verdicts of tests, the comparison with stock ext4, and the file that keeps them.

The file has names, verdicts and seconds, and none of the suite's words.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fastsync_lab.host.options import CONTROL
from fastsync_lab.host.paths import write_json

FORMAT = 1
PASS = "pass"
FAIL = "fail"
NOT_RUN = "not run"  # the test says that it does not apply here
HUNG = "hung"
DIED = "guest died"

# What a mode has in a test, against stock.
SAME = "as on stock"
WORSE = "passes on stock only"
BETTER = "passes on ours only"
OTHER = "otherwise than on stock"
FLAKY = "flaky"
VARIES = "varies on ours only"
OPEN = "not known yet"

# So often is run what differs from stock, and what stock always passes and ours now and then.
TWICE, MOST_RUNS = 2, 5


@dataclass(frozen=True)
class Run:
    """A test was run: its verdict, the seconds of the guest's clock, why it failed.

    `why` is "output", "status", "kernel log", "file system" or several, and empty if it did not.
    """

    verdict: str
    seconds: int
    why: str = ""


@dataclass(frozen=True)
class Key:
    """All that decides a verdict beside the test; results of another key do not count."""

    kernel: str
    modules_sha256: str
    root_sha256: str
    flashdev_sha256: str
    tree: str
    machine: str


Runs = dict[str, list[Run]]


class Store:
    """The runs of each mode, in `path`'s *.partial.json, which is written after each.

    They take the place of what `path` has when all are over.
    """

    def __init__(
        self, path: Path, keys: Mapping[str, Key], about: Mapping[str, Any], limit_s: float
    ) -> None:
        """`keys` by mode. Runs of another key, and those that hung sooner, do not count."""
        self._path, self._partial = path, path.with_suffix(".partial.json")
        self._keys, self._about = keys, about
        self._kept, self._begun = read_modes(path), read_modes(self._partial)
        self.runs: dict[str, Runs] = {
            mode: known_runs(self._kept, mode, key, limit_s)
            | known_runs(self._begun, mode, key, limit_s)
            for mode, key in keys.items()
        }

    def add(self, mode: str, test: str, run: Run) -> None:
        """A run is over."""
        self.runs[mode].setdefault(test, []).append(run)
        self._write(self._partial, self._modes())

    def finish(self) -> bool:
        """All are over; whether they have taken their place.

        Not if what is kept of a mode, with another key, has a test that these have not.
        """
        modes = self._modes()
        for name, mine in modes.items():
            kept = self._kept.get(name, mine)
            if kept["key"] != mine["key"] and not kept["tests"].keys() <= mine["tests"].keys():
                return False
        self._write(self._path, {**self._kept, **modes})
        self._partial.unlink(missing_ok=True)
        return True

    def _modes(self) -> dict[str, Any]:
        """What has been run, of other modes as well."""
        mine = {
            name: {"key": asdict(key), "tests": runs_json(self.runs[name])}
            for name, key in self._keys.items()
        }
        return {**self._begun, **mine}

    def _write(self, path: Path, modes: Mapping[str, Any]) -> None:
        write_json(path, {"format": FORMAT, **self._about, "modes": modes})


def known_runs(modes: Mapping[str, Any], mode: str, key: Key, limit_s: float) -> Runs:
    """The runs of a mode that hold for a key, and with such a time limit."""
    if mode not in modes or modes[mode]["key"] != asdict(key):
        return {}
    found = {
        test: [one for one in of if one.verdict != HUNG or hung_after_s(one) >= limit_s]
        for test, of in runs_of(modes[mode]).items()
    }
    return {test: of for test, of in found.items() if of}


def hung(limit_s: float) -> Run:
    """A test did not end in time."""
    return Run(HUNG, 0, f"{limit_s:g} s were over")


def hung_after_s(run: Run) -> float:
    """The time limit of a run that hung, in s."""
    return float(run.why.partition(" ")[0])


def read_modes(path: Path) -> dict[str, Any]:
    """The modes of a result file; none when it cannot be read."""
    try:
        result = json.loads(path.read_text())
        modes = result["modes"]
        return modes if result["format"] == FORMAT and isinstance(modes, dict) else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def runs_of(mode: Mapping[str, Any]) -> Runs:
    """The runs of a mode in a result file: "verdict, seconds" or "verdict, seconds, why"."""
    return {test: [parse_run(text) for text in runs] for test, runs in mode["tests"].items()}


def parse_run(text: str) -> Run:
    """A run as runs_json() has it."""
    verdict, seconds, *why = text.split(", ", 2)
    return Run(verdict, int(seconds.removesuffix(" s")), *why)


def runs_json(runs: Runs) -> dict[str, list[str]]:
    """Runs as a result file has them, a line a test."""
    return {
        test: [", ".join(filter(None, (one.verdict, f"{one.seconds} s", one.why))) for one in of]
        for test, of in sorted(runs.items())
    }


# --- comparing ---------------------------------------------------------------------------------


def verdict_of(runs: Sequence[Run]) -> str:
    """The verdict that all runs have; FLAKY if they differ, OPEN if there is none."""
    verdicts = {one.verdict for one in runs}
    return verdicts.pop() if len(verdicts) == 1 else FLAKY if verdicts else OPEN


def compare(stock: Sequence[Run], ours: Sequence[Run]) -> str:
    """What a mode has in a test, against stock.

    A difference counts once both were run TWICE and each had the same verdict both times; or once
    ours has failed now and then in MOST_RUNS, and stock never. What does not apply on stock is not
    tried on ours.
    """
    verdicts = (verdict_of(stock), verdict_of(ours))
    if verdicts == (NOT_RUN, OPEN):
        return SAME
    if OPEN in verdicts:
        return OPEN
    only_ours = verdicts == (PASS, FLAKY)
    if FLAKY in verdicts and not only_ours:
        return FLAKY
    if verdicts[0] == verdicts[1]:
        return SAME
    if min(len(stock), len(ours)) < runs_wanted(stock, ours):
        return OPEN
    if only_ours:
        return VARIES
    if verdicts[0] == PASS:
        return WORSE
    return BETTER if verdicts[1] == PASS else OTHER


def runs_wanted(stock: Sequence[Run], ours: Sequence[Run]) -> int:
    """How often a test that differs has to be run on both."""
    only_ours = (verdict_of(stock), verdict_of(ours)) == (PASS, FLAKY)
    return MOST_RUNS if only_ours else TWICE


def still_to_run(
    runs: Mapping[str, Runs], tests: Iterable[str], modes: Sequence[str]
) -> list[tuple[str, str]]:
    """What (mode, test) has to be run next; a test that differs from stock once more on both."""
    once, again = [], []
    for test in tests:
        mine = {mode: runs[mode].get(test, []) for mode in modes}
        stock = mine[CONTROL]
        if missing := [mode for mode in modes if not mine[mode]]:
            if verdict_of(stock) != NOT_RUN:
                once += [(mode, test) for mode in missing]
            continue
        wanted = {
            mode: runs_wanted(stock, mine[mode])
            for mode in modes
            if mode != CONTROL and compare(stock, mine[mode]) == OPEN
        }
        if wanted:
            wanted = {CONTROL: max(wanted.values()), **wanted}
        again += [(mode, test) for mode, most in wanted.items() if len(mine[mode]) < most]
    return once + again
