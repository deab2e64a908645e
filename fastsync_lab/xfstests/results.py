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
OPEN = "not known yet"


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
    """The runs of each mode, in a file that is written after each."""

    def __init__(self, path: Path, keys: Mapping[str, Key], about: Mapping[str, Any]) -> None:
        """`keys` by mode. What the file has of another key is left out; `about` is kept with it."""
        self._path, self._keys, self._about = path, keys, about
        self._kept = read_modes(path)
        self.runs: dict[str, Runs] = {
            mode: runs_of(self._kept[mode])
            if mode in self._kept and self._kept[mode]["key"] == asdict(key)
            else {}
            for mode, key in keys.items()
        }

    def add(self, mode: str, test: str, run: Run) -> None:
        """A run is over."""
        self.runs[mode].setdefault(test, []).append(run)
        modes = {mode: data for mode, data in self._kept.items() if mode not in self._keys}
        for name, key in self._keys.items():
            modes[name] = {"key": asdict(key), "tests": runs_json(self.runs[name])}
        write_json(self._path, {"format": FORMAT, **self._about, "modes": modes})


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

    A difference counts once both were run twice and each had the same verdict both times. What does
    not apply on stock is not tried on ours.
    """
    verdicts = (verdict_of(stock), verdict_of(ours))
    if verdicts == (NOT_RUN, OPEN):
        return SAME
    if OPEN in verdicts:
        return OPEN
    if FLAKY in verdicts:
        return FLAKY
    if verdicts[0] == verdicts[1]:
        return SAME
    if min(len(stock), len(ours)) < 2:
        return OPEN
    if verdicts[0] == PASS:
        return WORSE
    return BETTER if verdicts[1] == PASS else OTHER


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
        different = [
            mode for mode in modes if mode != CONTROL and compare(stock, mine[mode]) == OPEN
        ]
        both = [CONTROL, *different] if different else []
        again += [(mode, test) for mode in both if len(mine[mode]) < 2]
    return once + again
