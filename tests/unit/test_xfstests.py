"""fastsync xfstests: what a checkout has, what a run says, what is compared and kept."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.host.chroot import Place
from fastsync_lab.host.errors import FastsyncError, TimeLimitError, UsageError
from fastsync_lab.host.options import CONTROL
from fastsync_lab.host.progress import Tally
from fastsync_lab.host.shell import Completed
from fastsync_lab.host.shell import run as shell_run
from fastsync_lab.xfstests import run as run_module
from fastsync_lab.xfstests.command import LIMIT_S, request
from fastsync_lab.xfstests.guest import Guest, mount_options, parse_part, part_of
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
    VARIES,
    WORSE,
    Key,
    Run,
    Runs,
    Store,
    compare,
    hung,
    parse_run,
    runs_json,
    still_to_run,
)
from fastsync_lab.xfstests.run import Work, next_of, run_all
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
    with pytest.raises(
        UsageError, match=r"no mode 'x' on Linux 6\.12: allowed are off, truncate, defer"
    ):
        request(tmp_path, [], ["x"], "6.12")


def test_stock_is_always_the_first_mode(tmp_path: Path) -> None:
    folder = checkout(tmp_path)
    assert request(folder, [], None, "6.1").modes == (CONTROL, "truncate", "defer")
    assert request(folder, [], None, "6.12").modes[-1] == "defer+eager"
    assert request(folder, ["log"], ["off", CONTROL], "6.12").modes == (CONTROL, "off")


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
        ("generic/001         7s\n", Run(PASS, 7)),
        ("generic/001 3s ...  7s\n", Run(PASS, 7)),
        ("generic/001       [not run] this test wants 7s\n", Run(NOT_RUN, 7)),
        (
            "generic/001 3s ... - output mismatch (see x)\n    --- 1\n    generic/002 7s\n",
            Run(FAIL, 7, "output"),
        ),
        (
            "generic/001 [failed, exit status 1]_check_generic_filesystem: filesystem on x is "
            "inconsistent\n_check_dmesg: something found in dmesg (see x)\n",
            Run(FAIL, 7, "status, kernel log, file system"),
        ),
        ("generic/001       _check_dmesg: something found in dmesg\n 7s\n",
         Run(FAIL, 7, "kernel log")),
        ("generic/001       [expunged]\n", Run(FAIL, 7)),
        ("generic/001       \n", Run(FAIL, 7)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("behind", ["generic/002 ", "ext4/001 ", "\nRan: generic/001\n"])
def test_verdict_of_what_check_says(said: str, expected: Run, behind: str) -> None:
    all_of_it = f"FSTYP -- ext4\n\ngeneric/0011  9s\n{said}{behind}"
    assert parse_part(part_of(all_of_it, "generic/001"), 7) == expected


def test_a_test_that_check_did_not_run_is_an_error() -> None:
    with pytest.raises(FastsyncError, match="did not run the test"):
        part_of("our local _scratch_mkfs routine ...\ncheck: failed\nEnded: 1\n", "generic/001")


def test_only_the_options_have_mount_options() -> None:
    assert mount_options(CONTROL) == mount_options("off") == ""
    assert mount_options("defer") == "-o mtime_update=100,mtime_mode=defer"
    assert mount_options("defer+eager") == "-o mtime_update=100,mtime_mode=defer,eager_sync"


class FakeVm:
    """A guest that fails as it is told to, once its suite has begun."""

    def __init__(self, out_dir: Path, error: FastsyncError, *, running: bool) -> None:
        self.out_dir, self.running, self._error = out_dir, running, error

    def run(self, script: str, *, timeout_s: float) -> Completed:
        if "begin_tests" in script:
            return Completed(0, "", "")
        assert timeout_s == 5
        raise self._error


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (TimeLimitError("no answer in time"), hung(5)),
        (FastsyncError("it ended by itself"), Run(DIED, 0)),
    ],
)
def test_a_lost_guest_is_a_verdict_and_what_it_said_is_kept(
    error: FastsyncError, verdict: Run, tmp_path: Path
) -> None:
    vm = FakeVm(tmp_path, error, running=False)
    guest = Guest(vm, "", "defer")  # type: ignore[arg-type]
    assert list(guest.run(["generic/001", "generic/002"], limit_s=5)) == [verdict]
    assert (tmp_path / "defer" / "generic-001" / "error").read_text() == f"{error}\n"


def test_a_script_that_fails_in_a_live_guest_is_an_error(tmp_path: Path) -> None:
    vm = FakeVm(tmp_path, FastsyncError("status 1"), running=True)
    with pytest.raises(FastsyncError, match="status 1"):
        list(Guest(vm, "", "defer").run(["generic/001"], limit_s=5))  # type: ignore[arg-type]


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
        ([PASSED, PASSED], [FAILED, PASSED], OPEN),
        ([PASSED] * 5, [FAILED, *[PASSED] * 3], OPEN),
        ([PASSED] * 4, [FAILED, *[PASSED] * 4], OPEN),
        ([PASSED] * 5, [FAILED, *[PASSED] * 4], VARIES),
        ([FAILED, PASSED], [FAILED, PASSED], FLAKY),
        ([FAILED, FAILED], [FAILED, PASSED], FLAKY),
        ([FAILED], [FAILED, PASSED], FLAKY),
        ([FAILED, PASSED], [PASSED], FLAKY),
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


def test_what_only_ours_fails_now_and_then_is_run_more_often() -> None:
    both = [(CONTROL, "a"), ("defer", "a")]
    runs: dict[str, Runs] = {CONTROL: {"a": [PASSED]}, "defer": {"a": [FAILED]}}
    rounds = 0
    while todo := still_to_run(runs, ["a"], MODES):
        assert todo == both
        runs[CONTROL]["a"].append(PASSED)
        runs["defer"]["a"].append(PASSED)
        rounds += 1
    assert (rounds, compare(runs[CONTROL]["a"], runs["defer"]["a"])) == (4, VARIES)


def test_what_does_not_apply_on_stock_is_not_tried_on_ours() -> None:
    runs: dict[str, Runs] = {CONTROL: {"a": [Run(NOT_RUN, 1)]}, "defer": {}}
    assert still_to_run(runs, ["a"], MODES) == []


def test_the_mode_that_is_next_is_the_first_one_that_has_tests() -> None:
    pairs = [("defer", "a"), (CONTROL, "b"), ("defer", "b"), (CONTROL, "c")]
    assert next_of(pairs, MODES) == (CONTROL, ["b", "c"])
    assert next_of([pair for pair in pairs if pair[0] == "defer"], MODES) == ("defer", ["a", "b"])
    assert next_of([], MODES) is None


# --- keeping


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
        run_with([first], Store(path, keys, {}, LIMIT_S), ["a"])
    assert first.closed
    second = FakeMachine({("defer", "a"): [FAILED] * 2, (CONTROL, "a"): [PASSED]})
    store = Store(path, keys, {}, LIMIT_S)
    reports = run_with([second], store, ["a"])
    assert store.runs == {CONTROL: {"a": [PASSED, PASSED]}, "defer": {"a": [FAILED, FAILED]}}
    assert reports[0] == "defer a: fail, 4 s"
    assert Store(path, keys, {}, LIMIT_S).runs == store.runs


def test_guests_share_the_tests_and_keep_all_verdicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "CHUNK", 2)
    tests = list("abcdefgh")
    store = Store(tmp_path / "xfstests.json", dict.fromkeys(MODES, KEY), {}, LIMIT_S)
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
    store = Store(tmp_path / "xfstests.json", dict.fromkeys(MODES, KEY), {}, LIMIT_S)
    work = work_for(store, [])
    work.stop.set()
    work.do(FakeMachine({(CONTROL, "a"): [PASSED]}), ["a", "b"])  # type: ignore[arg-type]
    assert store.runs == {CONTROL: {"a": [PASSED]}, "defer": {}}


@pytest.mark.parametrize("field", list(Key.__dataclass_fields__))
def test_results_of_another_key_do_not_count(field: str, tmp_path: Path) -> None:
    path = tmp_path / "xfstests.json"
    Store(path, {CONTROL: KEY, "defer": KEY}, {}, LIMIT_S).add("defer", "a", PASSED)
    other = {CONTROL: KEY, "defer": replace(KEY, **{field: "other"})}
    store = Store(path, other, {}, LIMIT_S)
    assert store.runs["defer"] == {}
    store.add(CONTROL, "a", PASSED)
    partial = json.loads((tmp_path / "xfstests.partial.json").read_text())
    assert partial["modes"]["defer"]["tests"] == {}


def test_what_was_kept_stays_until_all_of_it_is_known_anew(tmp_path: Path) -> None:
    path = tmp_path / "xfstests.json"
    old = Store(path, {CONTROL: KEY, "off": KEY, "defer": KEY}, {"built": 1}, LIMIT_S)
    for mode in (CONTROL, "off", "defer"):
        old.add(mode, "a", PASSED)
        old.add(mode, "b", PASSED)
    assert old.finish() and not path.with_suffix(".partial.json").exists()
    kept = path.read_text()
    keys = {CONTROL: KEY, "defer": replace(KEY, modules_sha256="other")}
    new = Store(path, keys, {"built": 2}, LIMIT_S)
    new.add("defer", "a", FAILED)
    assert not new.finish() and path.read_text() == kept
    again = Store(path, keys, {"built": 2}, LIMIT_S)
    assert again.runs == {CONTROL: {"a": [PASSED], "b": [PASSED]}, "defer": {"a": [FAILED]}}
    again.add("defer", "b", PASSED)
    assert again.finish()
    result = json.loads(path.read_text())
    assert (result["built"], list(result["modes"])) == (2, [CONTROL, "off", "defer"])
    assert result["modes"]["defer"]["tests"] == {"a": ["fail, 4 s, output"], "b": ["pass, 3 s"]}
    assert result["modes"]["off"]["tests"] == {"a": ["pass, 3 s"], "b": ["pass, 3 s"]}


def test_what_hung_counts_as_long_as_it_has_no_more_time(tmp_path: Path) -> None:
    path = tmp_path / "xfstests.json"
    store = Store(path, {CONTROL: KEY}, {}, 60)
    store.add(CONTROL, "a", hung(60))
    store.add(CONTROL, "b", PASSED)
    assert Store(path, {CONTROL: KEY}, {}, 60).runs == store.runs
    assert Store(path, {CONTROL: KEY}, {}, 61).runs == {CONTROL: {"b": [PASSED]}}


def test_modes_that_are_not_asked_for_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "xfstests.json"
    Store(path, {CONTROL: KEY, "off": KEY}, {}, LIMIT_S).add("off", "a", PASSED)
    Store(path, {CONTROL: KEY}, {}, LIMIT_S).add(CONTROL, "a", PASSED)
    assert Store(path, {"off": KEY}, {}, LIMIT_S).runs == {"off": {"a": [PASSED]}}


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
    assert Store(path, {CONTROL: KEY}, {}, LIMIT_S).runs == {CONTROL: {}}


@pytest.mark.parametrize("one", [PASSED, FAILED, Run(FAIL, 12, "status, kernel log")])
def test_a_run_is_a_line_in_the_file(one: Run) -> None:
    assert parse_run(runs_json({"a": [one]})["a"][0]) == one
