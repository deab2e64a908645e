"""fastsync xfstests: what a checkout has, what a run says, what is compared and kept."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.host.chroot import Place
from fastsync_lab.host.errors import FastsyncError, TimeLimitError, UsageError
from fastsync_lab.host.options import CONTROL
from fastsync_lab.host.shell import run as shell_run
from fastsync_lab.xfstests import run as run_module
from fastsync_lab.xfstests.command import request
from fastsync_lab.xfstests.guest import Guest, mount_options, parse_check
from fastsync_lab.xfstests.results import (
    BETTER,
    DIED,
    FAIL,
    FLAKY,
    HUNG,
    NOT_RUN,
    OPEN,
    OTHER,
    PASS,
    SAME,
    WORSE,
    Key,
    Run,
    Runs,
    Store,
    compare,
    parse_run,
    runs_json,
    still_to_run,
)
from fastsync_lab.xfstests.run import in_chunks, run_all
from fastsync_lab.xfstests.tree import compile_copy, find_tests, parse_groups, read_tree, select

PASSED, FAILED = Run(PASS, 3), Run(FAIL, 4, "output")
KEY = Key("6.12.1-1", "aa", "bb", "cc", "dd", "ee")
MODES = (CONTROL, "defer")
TESTS = {
    "generic/001": frozenset({"auto", "quick"}),
    "generic/002": frozenset({"auto", "log"}),
    "ext4/001": frozenset({"quick"}),
}


def checkout(folder: Path) -> Path:
    """A folder like a checkout, with the tests above."""
    for name, groups in TESTS.items():
        path = folder / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n_begin_fstest {' '.join(sorted(groups))}\n")
    (folder / "tests" / "generic" / "001.out").write_text("QA output\n")
    (folder / "check").write_text("#!/bin/bash\n")
    return folder


# --- the checkout


def test_tests_and_groups_come_from_the_tests_themselves(tmp_path: Path) -> None:
    assert find_tests(checkout(tmp_path)) == TESTS


def test_groups_end_with_a_comment() -> None:
    assert parse_groups("x\n_begin_fstest\tauto quick # rw\n") == {"auto", "quick"}
    assert parse_groups("echo _begin_fstest auto\n") == frozenset()


def test_words_mean_tests_groups_and_groups_of_a_suite() -> None:
    assert select(TESTS, []) == ["generic/001", "ext4/001"]
    assert select(TESTS, ["ext4/quick"]) == ["ext4/001"]
    assert select(TESTS, ["generic/002", "auto"]) == ["generic/002", "generic/001"]


@pytest.mark.parametrize("word", ["generic/999", "qick", "ext4/log", "xfs/quick", ""])
def test_a_bad_word_is_refused_in_one_line(word: str) -> None:
    with pytest.raises(UsageError) as error:
        select(TESTS, ["quick", word])
    assert f"no test or group {word!r}: allowed are tests like generic/001" in str(error.value)
    assert str(error.value).endswith("groups are auto, log, quick")
    assert "\n" not in str(error.value)


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no checkout of xfstests"):
        read_tree(tmp_path)


def test_bad_modes_are_refused_before_the_folder_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no mode 'x': allowed are stock, off, truncate, defer"):
        request(tmp_path, [], ["x"])


def test_stock_is_always_the_first_mode(tmp_path: Path) -> None:
    folder = checkout(tmp_path)
    assert request(folder, [], None).modes == (CONTROL, "truncate", "defer")
    assert request(folder, ["log"], ["off", CONTROL]).modes == (CONTROL, "off")


def test_the_digest_of_a_checkout_is_that_of_what_git_does_not_ignore(tmp_path: Path) -> None:
    folder = checkout(tmp_path)
    git = ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@y"]
    (folder / ".gitignore").write_text("*.o\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        shell_run([*git, *command])
    before = read_tree(folder)
    assert len(before.commit) == 12
    (folder / "built.o").write_text("x")
    assert read_tree(folder) == before
    (folder / "check").write_text("#!/bin/bash\n:\n")
    after = read_tree(folder)
    assert after.commit == before.commit + "+"
    assert after.digest != before.digest


def test_a_checkout_without_git_has_all_of_its_files(tmp_path: Path) -> None:
    tree = read_tree(checkout(tmp_path))
    assert tree.commit == "none"
    assert "tests/generic/001.out" in tree.files


MAKE = """\
sh -c 'echo "checking for gcc... gcc"; echo "Building src"; echo "    [CC]    dio-buf-fault"
echo "    [CC]    mkswap"; echo "mkswap.c:3: error: no" >&2; exit 2'
"""


def test_compiling_tells_how_far_it_is_and_why_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Place, "argv", lambda _place, _command: ["sh", "-c", MAKE])
    told: list[str] = []
    with pytest.raises(FastsyncError) as error:
        compile_copy(Place(), tmp_path, told.append)
    log = tmp_path / "build.log"
    assert str(error.value) == (
        f"xfstests does not compile: mkswap.c:3: error: no (all of it: {log})"
    )
    assert log.read_text().splitlines()[-2:] == ["    [CC]    mkswap", "mkswap.c:3: error: no"]
    assert told == [
        "compiling xfstests: configure is checking for gcc... gcc",
        "compiling xfstests: program 1, dio-buf-fault",
        "compiling xfstests: program 2, mkswap",
    ]


# --- what `check` says


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("generic/001  3s\nRan: generic/001\nPassed all 1 tests\n", Run(PASS, 7)),
        (
            "generic/001  [not run] why\nRan: generic/001\nNot run: generic/001\n"
            "Passed all 1 tests\n",
            Run(NOT_RUN, 7),
        ),
        (
            "generic/001 - output mismatch (see x)\nRan: generic/001\nFailures: generic/001\n"
            "Failed 1 of 1 tests\n",
            Run(FAIL, 7, "output"),
        ),
        (
            "generic/001 [failed, exit status 1]_check_generic_filesystem: filesystem on x is "
            "inconsistent\n_check_dmesg: something found in dmesg (see x)\nRan: generic/001\n"
            "Failures: generic/001\nFailed 1 of 1 tests\n",
            Run(FAIL, 7, "status, kernel log, file system"),
        ),
    ],
)
def test_verdict_of_what_check_says(said: str, expected: Run) -> None:
    assert parse_check(f"FSTYP -- ext4\n\n{said}", 7) == expected


def test_a_test_that_check_did_not_run_is_an_error() -> None:
    with pytest.raises(FastsyncError, match="did not run the test"):
        parse_check("our local _scratch_mkfs routine ...\ncheck: failed to mkfs\n", 0)


def test_only_the_options_have_mount_options() -> None:
    assert mount_options(CONTROL) == mount_options("off") == ""
    assert mount_options("defer") == "-o mtime_update=100,mtime_mode=defer"
    assert mount_options("defer+eager") == "-o mtime_update=100,mtime_mode=defer,eager_sync"


class FakeVm:
    """A guest that fails as it is told to."""

    def __init__(self, out_dir: Path, error: FastsyncError, *, running: bool) -> None:
        self.out_dir, self.running, self._error = out_dir, running, error

    def run(self, _script: str, *, timeout_s: float) -> None:
        assert timeout_s == 5
        raise self._error


@pytest.mark.parametrize(
    ("error", "verdict"),
    [(TimeLimitError("no answer in time"), HUNG), (FastsyncError("it ended by itself"), DIED)],
)
def test_a_lost_guest_is_a_verdict_and_what_it_said_is_kept(
    error: FastsyncError, verdict: str, tmp_path: Path
) -> None:
    vm = FakeVm(tmp_path, error, running=False)
    guest = Guest(vm, "", "defer")  # type: ignore[arg-type]
    assert guest.run("generic/001", limit_s=5) == Run(verdict, 0)
    assert (tmp_path / "defer" / "generic-001" / "error").read_text() == f"{error}\n"


def test_a_script_that_fails_in_a_live_guest_is_an_error(tmp_path: Path) -> None:
    vm = FakeVm(tmp_path, FastsyncError("status 1"), running=True)
    with pytest.raises(FastsyncError, match="status 1"):
        Guest(vm, "", "defer").run("generic/001", limit_s=5)  # type: ignore[arg-type]


# --- comparing


@pytest.mark.parametrize(
    ("stock", "ours", "expected"),
    [
        ([PASSED], [PASSED], SAME),
        ([FAILED], [FAILED], SAME),
        ([FAILED], [replace(FAILED, why="status")], SAME),
        ([Run(NOT_RUN, 1)], [], SAME),
        ([PASSED], [], OPEN),
        ([], [PASSED], OPEN),
        ([PASSED], [FAILED], OPEN),
        ([PASSED, PASSED], [FAILED], OPEN),
        ([PASSED, PASSED], [FAILED, FAILED], WORSE),
        ([FAILED, FAILED], [PASSED, PASSED], BETTER),
        ([FAILED, FAILED], [Run(HUNG, 0), Run(HUNG, 0)], OTHER),
        ([PASSED, PASSED], [FAILED, PASSED], FLAKY),
        ([FAILED, PASSED], [FAILED, FAILED], FLAKY),
    ],
)
def test_comparison_with_stock(stock: list[Run], ours: list[Run], expected: str) -> None:
    assert compare(stock, ours) == expected


def test_what_differs_is_run_once_more_on_both_and_then_no_more() -> None:
    runs: dict[str, Runs] = {mode: {} for mode in MODES}
    first = [(CONTROL, "a"), ("defer", "a"), (CONTROL, "b"), ("defer", "b")]
    assert still_to_run(runs, ["a", "b"], MODES) == first
    runs[CONTROL] = {"a": [PASSED], "b": [PASSED]}
    runs["defer"] = {"a": [PASSED], "b": [FAILED]}
    assert still_to_run(runs, ["a", "b"], MODES) == [(CONTROL, "b"), ("defer", "b")]
    runs[CONTROL]["b"].append(PASSED)
    assert still_to_run(runs, ["a", "b"], MODES) == [("defer", "b")]
    runs["defer"]["b"].append(FAILED)
    assert still_to_run(runs, ["a", "b"], MODES) == []
    again = {CONTROL: {"a": [PASSED], "b": [PASSED]}, "defer": {"a": [FAILED], "b": [FAILED]}}
    assert still_to_run(again, ["a", "b"], MODES) == first


def test_what_does_not_apply_on_stock_is_not_tried_on_ours() -> None:
    runs: dict[str, Runs] = {CONTROL: {"a": [Run(NOT_RUN, 1)]}, "defer": {}}
    assert still_to_run(runs, ["a"], MODES) == []


def test_chunks_change_the_mode_seldom_and_end_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left is done in the same order, wherever a run was interrupted."""
    monkeypatch.setattr(run_module, "CHUNK", 2)
    pairs = [(mode, test) for test in "abc" for mode in MODES]
    expected = [
        (CONTROL, "a"), (CONTROL, "b"), ("defer", "a"), ("defer", "b"),
        (CONTROL, "c"), ("defer", "c"),
    ]  # fmt: skip
    for done in range(len(pairs)):
        left = [pair for pair in pairs if pair in expected[done:]]
        assert in_chunks(left, "abc", MODES) == expected[done:]


# --- keeping


class Interrupted(BaseException):
    """As KeyboardInterrupt, which would end pytest."""


class FakeMachine:
    """Runs nothing; `verdicts` by mode and test are used up, and a missing one interrupts."""

    def __init__(self, verdicts: dict[tuple[str, str], list[Run]]) -> None:
        self.verdicts, self.closed = verdicts, False

    def run(self, mode: str, test: str, _limit_s: float) -> Run:
        if not self.verdicts.get((mode, test)):
            raise Interrupted
        return self.verdicts[mode, test].pop(0)

    def close(self) -> None:
        self.closed = True


def run_with(machine: FakeMachine, store: Store, tests: list[str]) -> list[str]:
    """What run_all() reports."""
    reports: list[str] = []
    run_all(
        machine,  # type: ignore[arg-type]
        store,
        tests,
        MODES,
        limit_s=1,
        report=reports.append,
        finished=lambda *_: None,
    )
    return reports


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "xfstests.json"
    keys = dict.fromkeys(MODES, KEY)
    first = FakeMachine({(CONTROL, "a"): [PASSED]})
    with pytest.raises(Interrupted):
        run_with(first, Store(path, keys, {}), ["a"])
    assert first.closed
    second = FakeMachine({("defer", "a"): [FAILED, PASSED], (CONTROL, "a"): [PASSED]})
    store = Store(path, keys, {})
    reports = run_with(second, store, ["a"])
    assert store.runs == {CONTROL: {"a": [PASSED, PASSED]}, "defer": {"a": [FAILED, PASSED]}}
    assert reports[0] == "defer a: 0 done, 1 left"
    assert Store(path, keys, {}).runs == store.runs


@pytest.mark.parametrize("field", list(Key.__dataclass_fields__))
def test_results_of_another_key_do_not_count(field: str, tmp_path: Path) -> None:
    path = tmp_path / "xfstests.json"
    Store(path, {CONTROL: KEY, "defer": KEY}, {}).add("defer", "a", PASSED)
    other = {CONTROL: KEY, "defer": replace(KEY, **{field: "other"})}
    store = Store(path, other, {})
    assert store.runs["defer"] == {}
    store.add(CONTROL, "a", PASSED)
    assert json.loads(path.read_text())["modes"]["defer"]["tests"] == {}


def test_modes_that_are_not_asked_for_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "xfstests.json"
    Store(path, {CONTROL: KEY, "off": KEY}, {}).add("off", "a", PASSED)
    Store(path, {CONTROL: KEY}, {}).add(CONTROL, "a", PASSED)
    assert Store(path, {"off": KEY}, {}).runs == {"off": {"a": [PASSED]}}


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
    assert Store(path, {CONTROL: KEY}, {}).runs == {CONTROL: {}}


@pytest.mark.parametrize("one", [PASSED, FAILED, Run(FAIL, 12, "status, kernel log")])
def test_a_run_is_a_line_in_the_file(one: Run) -> None:
    assert parse_run(runs_json({"a": [one]})["a"][0]) == one
