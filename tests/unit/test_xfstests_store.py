"""fastsync xfstests: what is kept of runs, and how guests share them."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.host.options import CONTROL
from fastsync_lab.host.progress import Tally
from fastsync_lab.xfstests import run as run_module
from fastsync_lab.xfstests.command import LIMIT_S
from fastsync_lab.xfstests.results import FAIL, NOT_RUN, Key, Run, Store, hung, parse_run, runs_json
from fastsync_lab.xfstests.run import Work, run_all
from tests.unit.suites import FAILED, KEY, MODES, PASSED


def store_at(
    path: Path, keys: dict[str, Key], *, limit_s: float = LIMIT_S, source: str = "src"
) -> Store:
    """A store whose modules are of such sources."""
    return Store(path, keys, source, {"tree_commit": "1234"}, limit_s)


class Interrupted(BaseException):
    """As KeyboardInterrupt, which would end pytest."""


class FakeMachine:
    """Runs nothing; `verdicts` by mode and test are used up, and a missing one interrupts."""

    def __init__(self, verdicts: dict[tuple[str, str], list[Run]]) -> None:
        self.verdicts, self.closed, self.ran = verdicts, False, [(CONTROL, "")]

    def run(self, mode: str, tests: list[str], _limit_s: float) -> Iterator[tuple[str, Run]]:
        for test in tests:
            if not self.verdicts.get((mode, test)):
                raise Interrupted
            self.ran.append((mode, test))
            yield test, self.verdicts[mode, test].pop(0)

    def close(self) -> None:
        self.closed = True


def work_for(store: Store, reports: list[str]) -> Work:
    """Work that tells of itself."""
    return Work(store, MODES, 1, Tally(9, "runs", reports.append), lambda *_: None)


def run_with(machines: list[FakeMachine], store: Store, tests: list[str]) -> list[str]:
    """What run_all() reports."""
    reports: list[str] = []
    run_all(work_for(store, reports), machines, tests)  # type: ignore[arg-type]
    return reports


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "xfstests.json"
    keys = dict.fromkeys(MODES, KEY)
    first = FakeMachine({(CONTROL, "a"): [PASSED]})
    with pytest.raises(Interrupted):
        run_with([first], store_at(path, keys), ["a"])
    assert first.closed
    second = FakeMachine({("defer", "a"): [FAILED] * 2, (CONTROL, "a"): [PASSED]})
    store = store_at(path, keys)
    reports = run_with([second], store, ["a"])
    assert store.runs == {CONTROL: {"a": [PASSED, PASSED]}, "defer": {"a": [FAILED, FAILED]}}
    assert reports[0] == "defer a: fail, 4 s"
    assert store_at(path, keys).runs == store.runs


def test_guests_share_the_tests_and_keep_all_verdicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "CHUNK", 2)
    tests = list("abcdefgh")
    store = store_at(tmp_path / "xfstests.json", dict.fromkeys(MODES, KEY))
    machines = [
        FakeMachine({(mode, test): [PASSED] for mode in MODES for test in tests}) for _ in range(3)
    ]
    reports = run_with(machines, store, tests)
    assert store.runs == {mode: {test: [PASSED] for test in tests} for mode in MODES}
    assert all(machine.closed for machine in machines)
    done = [pair for machine in machines for pair in machine.ran[1:]]
    assert sorted(done) == sorted((mode, test) for mode in MODES for test in tests)
    assert reports[-1] == "16 of 9 runs done"


def test_a_guest_that_cannot_go_on_ends_the_others_behind_their_test(tmp_path: Path) -> None:
    store = store_at(tmp_path / "xfstests.json", dict.fromkeys(MODES, KEY))
    work = work_for(store, [])
    work.stop.set()
    work.do(FakeMachine({(CONTROL, "a"): [PASSED]}), ["a", "b"])  # type: ignore[arg-type]
    assert store.runs == {CONTROL: {"a": [PASSED]}, "defer": {}}


@pytest.mark.parametrize("field", list(Key.__dataclass_fields__))
def test_results_of_another_key_do_not_count(field: str, tmp_path: Path) -> None:
    path = tmp_path / "xfstests.json"
    store_at(path, {CONTROL: KEY, "defer": KEY}).add("defer", "a", PASSED)
    other = {CONTROL: KEY, "defer": replace(KEY, **{field: "other"})}
    store = store_at(path, other)
    assert store.runs["defer"] == {}
    store.add(CONTROL, "a", PASSED)
    partial = json.loads((tmp_path / "xfstests.partial.json").read_text())
    assert partial["modes"]["defer"]["tests"] == {}


def test_what_was_kept_stays_until_all_of_it_is_known_anew(tmp_path: Path) -> None:
    path = tmp_path / "xfstests.json"
    old = store_at(path, {CONTROL: KEY, "off": KEY, "defer": KEY})
    for mode in (CONTROL, "off", "defer"):
        old.add(mode, "a", PASSED)
        old.add(mode, "b", PASSED)
    assert old.finish() and not path.with_suffix(".partial.json").exists()
    kept = path.read_text()
    keys = {CONTROL: KEY, "defer": replace(KEY, modules_sha256="other")}
    new = store_at(path, keys)
    new.add("defer", "a", FAILED)
    assert not new.finish() and path.read_text() == kept
    again = store_at(path, keys)
    assert again.runs == {CONTROL: {"a": [PASSED], "b": [PASSED]}, "defer": {"a": [FAILED]}}
    again.add("defer", "b", PASSED)
    assert again.finish()
    result = json.loads(path.read_text())
    assert (result["tree_commit"], list(result["modes"])) == ("1234", [CONTROL, "off", "defer"])
    assert result["modes"]["defer"]["tests"] == {"a": ["fail, 4 s, output"], "b": ["pass, 3 s"]}
    assert result["modes"]["off"]["tests"] == {"a": ["pass, 3 s"], "b": ["pass, 3 s"]}


def test_what_does_not_apply_on_stock_any_more_is_not_missed_on_ours(tmp_path: Path) -> None:
    path = tmp_path / "xfstests.json"
    store = store_at(path, {CONTROL: KEY, "defer": KEY})
    for mode, test in ((CONTROL, "a"), ("defer", "a"), (CONTROL, "b"), ("defer", "b")):
        store.add(mode, test, PASSED)
    assert store.finish()
    other = replace(KEY, root_sha256="other")
    again = store_at(path, {CONTROL: other, "defer": other})
    again.add(CONTROL, "a", Run(NOT_RUN, 1))
    again.add(CONTROL, "b", PASSED)
    assert not again.finish()
    again.add("defer", "b", PASSED)
    assert again.finish()


def test_sources_are_said_of_the_modes_that_are_made_of_them(tmp_path: Path) -> None:
    path = tmp_path / "xfstests.json"
    store = store_at(path, {CONTROL: KEY, "defer": KEY, "off": KEY}, source="old")
    store.add("defer", "a", PASSED)
    assert store.finish()
    for keys in ({CONTROL: KEY}, {CONTROL: KEY, "off": KEY}):
        newer = store_at(path, keys, source="new")
        newer.add(CONTROL, "a", PASSED)
        assert newer.finish()
    modes = json.loads(path.read_text())["modes"]
    sources = {mode: data.get("source_sha256") for mode, data in modes.items()}
    assert sources == {CONTROL: None, "defer": "old", "off": "new"}


def test_what_hung_counts_as_long_as_it_has_no_more_time(tmp_path: Path) -> None:
    path = tmp_path / "xfstests.json"
    store = store_at(path, {CONTROL: KEY}, limit_s=60)
    store.add(CONTROL, "a", hung(60))
    store.add(CONTROL, "b", PASSED)
    store.add(CONTROL, "c", PASSED)
    store.add(CONTROL, "c", hung(60))
    assert store_at(path, {CONTROL: KEY}, limit_s=60).runs == store.runs
    assert store_at(path, {CONTROL: KEY}, limit_s=61).runs == {CONTROL: {"b": [PASSED]}}


@pytest.mark.parametrize("whole", [False, True])
def test_what_hung_stays_until_that_test_is_run_with_more_time(whole: bool, tmp_path: Path) -> None:
    path = tmp_path / "xfstests.json"
    keys = dict.fromkeys(MODES, KEY)
    store = store_at(path, keys, limit_s=60)
    store.add("defer", "a", hung(60))
    store.add("defer", "b", PASSED)
    store.add("defer", "b", hung(60))
    if whole:
        assert store.finish()
    more = store_at(path, keys, limit_s=61)
    more.add(CONTROL, "c", PASSED)
    assert more.finish()
    kept = json.loads(path.read_text())["modes"]["defer"]["tests"]
    assert kept == {
        "a": ["hung, 0 s, 60 s were over"],
        "b": ["pass, 3 s", "hung, 0 s, 60 s were over"],
    }
    again = store_at(path, keys, limit_s=61)
    again.add("defer", "a", hung(61))
    again.add("defer", "b", FAILED)
    assert again.runs["defer"] == {"a": [hung(61)], "b": [PASSED, FAILED]}
    assert again.finish()
    assert store_at(path, keys, limit_s=60).runs == again.runs


def test_tests_that_came_to_the_file_meanwhile_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "xfstests.json"
    store_at(path, {CONTROL: KEY, "off": KEY}).add("off", "b", PASSED)
    text = path.with_suffix(".partial.json").read_text()
    path.write_text(text.replace('"b"', '"a"'))
    assert store_at(path, {CONTROL: KEY}).finish()
    assert list(json.loads(path.read_text())["modes"]["off"]["tests"]) == ["a", "b"]


def test_modes_that_are_not_asked_for_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "xfstests.json"
    store_at(path, {CONTROL: KEY, "off": KEY}).add("off", "a", PASSED)
    store_at(path, {CONTROL: KEY}).add(CONTROL, "a", PASSED)
    assert store_at(path, {"off": KEY}).runs == {"off": {"a": [PASSED]}}


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", '{"format": 1}'),
        *('{"format": 0, "modes": {"stock": 5}}', '{"format": 1, "modes": ["stock"]}'),
    ],
)
def test_a_file_that_cannot_be_read_is_begun_anew(text: str, tmp_path: Path) -> None:
    path = tmp_path / "xfstests.json"
    path.write_text(text)
    assert store_at(path, {CONTROL: KEY}).runs == {CONTROL: {}}


@pytest.mark.parametrize("one", [PASSED, FAILED, Run(FAIL, 12, "status, kernel log")])
def test_a_run_is_a_line_in_the_file(one: Run) -> None:
    assert parse_run(runs_json({"a": [one]})["a"][0]) == one
