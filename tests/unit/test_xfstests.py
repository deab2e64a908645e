"""fastsync xfstests: what a checkout has, what a run says, what is compared and kept."""

from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.host.chroot import Place
from fastsync_lab.host.errors import FastsyncError, TimeLimitError, UsageError
from fastsync_lab.host.options import CONTROL
from fastsync_lab.host.shell import Completed
from fastsync_lab.host.shell import run as shell_run
from fastsync_lab.xfstests.command import request
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
    Run,
    Runs,
    compare,
    hung,
    still_to_run,
)
from fastsync_lab.xfstests.run import next_of
from fastsync_lab.xfstests.tree import compile_copy, find_tests, parse_groups, read_tree, select
from tests.unit.suites import BY_CHECK, BY_LOG, FAILED, MODES, PASSED, TESTS, checkout

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
    left = tmp_path / "defer" / "generic-001"
    left.mkdir(parents=True)
    (left / "check.out").write_text("what failed the last time")
    vm = FakeVm(tmp_path, error, running=False)
    guest = Guest(vm, "", "defer")  # type: ignore[arg-type]
    assert list(guest.run(["generic/001", "generic/002"], limit_s=5)) == [verdict]
    assert [(file.name, file.read_text()) for file in left.iterdir()] == [("error", f"{error}\n")]


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
        ([FAILED], [BY_LOG], OPEN),
        ([FAILED] * 2, [BY_LOG] * 2, OTHER),
        ([FAILED] * 2, [BY_CHECK] * 2, OTHER),
        ([FAILED] * 2, [FAILED, BY_CHECK], OTHER),
        ([BY_LOG] * 2, [BY_CHECK] * 2, OTHER),
        ([BY_LOG, FAILED], [FAILED, BY_LOG], SAME),
        ([BY_CHECK], [FAILED], SAME),
        ([Run(HUNG, 0)] * 2, [BY_LOG] * 2, OTHER),
        ([FAILED, PASSED], [BY_LOG, BY_LOG], OPEN),
        ([FAILED, *[PASSED] * 4], [BY_LOG, *[PASSED] * 4], OTHER),
        ([BY_LOG, PASSED], [BY_LOG, BY_LOG], FLAKY),
        ([PASSED] * 2, [BY_LOG] * 2, WORSE),
        ([PASSED] * 5, [BY_LOG, *[PASSED] * 4], VARIES),
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


BOTH = [(CONTROL, "a"), ("defer", "a")]


def passing_from_now_on(runs: dict[str, Runs]) -> tuple[int, str]:
    """How often "a" is still run, on both each time, if it passes; and what is known then."""
    rounds = 0
    while todo := still_to_run(runs, ["a"], MODES):
        assert todo == BOTH
        for mode in MODES:
            runs[mode]["a"].append(PASSED)
        rounds += 1
    return rounds, compare(runs[CONTROL]["a"], runs["defer"]["a"])


def test_what_only_ours_fails_now_and_then_is_run_more_often() -> None:
    runs: dict[str, Runs] = {CONTROL: {"a": [PASSED]}, "defer": {"a": [FAILED]}}
    assert passing_from_now_on(runs) == (4, VARIES)


def test_what_fails_more_gravely_than_on_stock_is_run_until_that_is_known() -> None:
    runs: dict[str, Runs] = {CONTROL: {"a": [FAILED]}, "defer": {"a": [BY_LOG]}}
    assert still_to_run(runs, ["a"], MODES) == BOTH
    runs[CONTROL]["a"].append(BY_LOG)
    assert still_to_run(runs, ["a"], MODES) == []
    runs = {CONTROL: {"a": [FAILED, PASSED]}, "defer": {"a": [BY_LOG, BY_LOG]}}
    assert passing_from_now_on(runs) == (3, OTHER)


def test_what_does_not_apply_on_stock_is_not_tried_on_ours() -> None:
    runs: dict[str, Runs] = {CONTROL: {"a": [Run(NOT_RUN, 1)]}, "defer": {}}
    assert still_to_run(runs, ["a"], MODES) == []


def test_the_mode_that_is_next_is_the_first_one_that_has_tests() -> None:
    pairs = [("defer", "a"), (CONTROL, "b"), ("defer", "b"), (CONTROL, "c")]
    assert next_of(pairs, MODES) == (CONTROL, ["b", "c"])
    assert next_of([pair for pair in pairs if pair[0] == "defer"], MODES) == ("defer", ["a", "b"])
    assert next_of([], MODES) is None
