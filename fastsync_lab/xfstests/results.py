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
from fastsync_lab.study.keeper import PARTIAL

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

# So often is run what differs from stock, and what fails now and then as it never does on stock.
TWICE, MOST_RUNS = 2, 5
# Why a test failed. These two are a difference where stock fails as well, but never for them.
KERNEL_LOG, FILE_SYSTEM = "kernel log", "file system"
GRAVE = {KERNEL_LOG, FILE_SYSTEM}


@dataclass(frozen=True)
class Run:
    """A test was run: its verdict, the seconds that it took by the host's clock, why it failed.

    `why` is "output", "status", "kernel log", "file system" or several, "900 s were over" of a test
    that hung, else empty. A test that was lost with its guest has 0 seconds.
    """

    verdict: str
    seconds: int
    why: str = ""


@dataclass(frozen=True)
class Key:
    """All that decides a verdict beside the test; results of another key do not count.

    `options` are what the mode adds to the suite's mount options, `device` the numbers of the
    devices. `scripts_sha256` is of what the lab runs in the guest, `recipe_sha256` of the Debian
    that the checkout `tree` was compiled in.
    """

    kernel: str
    modules_sha256: str
    options: str
    root_sha256: str
    flashdev_sha256: str
    device: str
    scripts_sha256: str
    tree: str
    recipe_sha256: str
    machine: str


OF_MODE = ("modules_sha256", "options")  # what of a key differs between modes of one setting

Runs = dict[str, list[Run]]


class Store:
    """The runs of each mode, in `path`'s *.partial.json, which is written after each.

    They take the place of what `path` has when all are over.
    """

    def __init__(
        self,
        path: Path,
        keys: Mapping[str, Key],
        source: str,
        about: Mapping[str, Any],
        limit_s: float,
    ) -> None:
        """`keys` by mode; `source` is the digest of the sources that our modules are made of.

        Runs of another key do not count. Nor does a test that has hung sooner than after `limit_s`,
        until it is run again; the file keeps what is known of it.
        """
        self._path, self._partial = path, path.with_suffix(PARTIAL)
        self._keys, self._source, self._about, self._limit_s = keys, source, about, limit_s
        self._kept, self._begun = read_modes(path), read_modes(self._partial)
        self.runs: dict[str, Runs] = {}
        self._waiting: dict[str, Runs] = {}
        for mode, key in keys.items():
            found = known_runs(self._kept, mode, key) | known_runs(self._begun, mode, key)
            waiting = {test for test, of in found.items() if of != self._in_time(of)}
            self.runs[mode] = {test: of for test, of in found.items() if test not in waiting}
            self._waiting[mode] = {test: found[test] for test in waiting}

    def add(self, mode: str, test: str, run: Run) -> None:
        """A run is over. It takes the place of those that hung in less time."""
        before = self._in_time(self._waiting[mode].pop(test, []))
        self.runs[mode].setdefault(test, before).append(run)
        self._write(self._partial, self._modes())

    def finish(self) -> bool:
        """All are over; whether they have taken their place.

        Not if what is kept of a mode, with another key, has a test that is not known anew.
        """
        modes = self._modes()
        if any(not_known_anew(kept, name, modes) for name, kept in self._kept.items()):
            return False
        joined = {name: with_kept(mine, self._kept.get(name)) for name, mine in modes.items()}
        self._write(self._path, {**self._kept, **joined})
        self._partial.unlink(missing_ok=True)
        return True

    def _in_time(self, runs: Sequence[Run]) -> list[Run]:
        """Runs without those that hung and had less time than a test has now."""
        return [one for one in runs if one.verdict != HUNG or hung_after_s(one) >= self._limit_s]

    def _modes(self) -> dict[str, Any]:
        """What has been run, of other modes as well."""
        mine = {
            name: {
                "key": asdict(key),
                **({} if name == CONTROL else {"source_sha256": self._source}),
                "tests": runs_json(self._waiting[name] | self.runs[name]),
            }
            for name, key in self._keys.items()
        }
        return {**self._begun, **mine}

    def _write(self, path: Path, modes: Mapping[str, Any]) -> None:
        write_json(path, {"format": FORMAT, **self._about, "modes": modes})


def known_runs(modes: Mapping[str, Any], mode: str, key: Key) -> Runs:
    """The runs of a mode that hold for a key."""
    if mode not in modes or modes[mode]["key"] != asdict(key):
        return {}
    return runs_of(modes[mode])


def not_known_anew(kept: Mapping[str, Any], name: str, modes: Mapping[str, Any]) -> set[str]:
    """The tests of a mode of that name that are kept, and that `modes` has not with another key.

    What does not apply on stock is not tried on ours, so it is not missed.
    """
    if name not in modes or kept["key"] == modes[name]["key"]:
        return set()
    stock = runs_of(modes[CONTROL]) if CONTROL in modes else {}
    off = {test for test, of in stock.items() if verdict_of(of) == NOT_RUN}
    return set(kept["tests"]) - set(modes[name]["tests"]) - off


def with_kept(mine: Mapping[str, Any], kept: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """A mode with the tests that are kept of it, if the key is the same."""
    if kept is None or kept["key"] != mine["key"]:
        return mine
    return {**mine, "tests": dict(sorted({**kept["tests"], **mine["tests"]}.items()))}


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
    ours has failed now and then in MOST_RUNS, and stock never. That ours is_graver() is one, too.
    What does not apply on stock is not tried on ours.
    """
    verdicts = (verdict_of(stock), verdict_of(ours))
    if verdicts == (NOT_RUN, OPEN):
        return SAME
    if OPEN in verdicts:
        return OPEN
    only_ours = verdicts == (PASS, FLAKY)
    graver = is_graver(stock, ours)
    if FLAKY in verdicts and not (only_ours or graver):
        return FLAKY
    if verdicts[0] == verdicts[1] and not graver:
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
    verdicts = (verdict_of(stock), verdict_of(ours))
    varies = verdicts == (PASS, FLAKY) or (FLAKY in verdicts and is_graver(stock, ours))
    return MOST_RUNS if varies else TWICE


def is_graver(stock: Sequence[Run], ours: Sequence[Run]) -> bool:
    """Whether ours has failed for a reason of GRAVE that stock never had."""
    on_stock, on_ours = ({why for one in of for why in one.why.split(", ")} for of in (stock, ours))
    return bool((on_ours & GRAVE) - on_stock)


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
