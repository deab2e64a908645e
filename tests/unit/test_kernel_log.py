"""Which lines of a kernel log are complaints, and which of them an error shows."""

import re

import pytest

from fastsync_lab.machine.kernel_log import (
    BUG_WORDS,
    FAILURE_WORDS,
    SHOWN_LINES,
    bugs_of,
    check_kernel_log,
    complaints,
    is_emulators_fault,
    of_script,
    said_by_kernel,
    without_notes,
)
from tests.unit.kernel_logs import BAD_LINES, CLEAN_LOG, FAILING


def test_clean_kernel_log_has_nothing_bad() -> None:
    assert check_kernel_log(CLEAN_LOG) == []


@pytest.mark.parametrize("line", BAD_LINES)
def test_bad_lines_of_a_kernel_log_are_found(line: str) -> None:
    assert check_kernel_log(CLEAN_LOG + line + "\n") == [line]


OOPS = """\
[   20.100000] flashdev: loading
[   20.200000] BUG: kernel NULL pointer dereference, address: 0000000000000000
[   20.200001] #PF: supervisor write access in kernel mode
[   20.200002] Oops: 0002 [#1] PREEMPT SMP NOPTI
[   20.200003] CPU: 0 UID: 0 PID: 77 Comm: insmod Tainted: G           OE
[   20.200004] RIP: 0010:flash_init+0x1/0x2 [flashdev]
[   20.200005] Call Trace:
[   20.200006]  <TASK>
[   20.200007]  do_one_initcall+0x58/0x300
[   20.200008]  </TASK>
[   20.200009] ---[ end trace 0000000000000000 ]---
[   20.300000] something else
"""


def test_of_an_oops_the_whole_report_is_shown() -> None:
    shown = complaints(OOPS)
    assert shown == OOPS.splitlines()[1:-1]
    assert said_by_kernel(OOPS) == "".join(f"\n    {line}" for line in shown)


def test_a_report_without_an_end_is_cut() -> None:
    text = OOPS.split("---[ end")[0] + "[   20.9]  more\n" * 100
    assert len(complaints(text)) == SHOWN_LINES


def test_without_a_complaint_the_last_lines_are_shown() -> None:
    assert said_by_kernel("a\nb\nc\n") == "b | c"
    assert said_by_kernel("") == "nothing"
    assert complaints(CLEAN_LOG) == []


def test_what_was_said_before_is_left_out() -> None:
    log = "".join(f"[    {n}.0] fastsync: script {n}\n[    {n}.5] of {n}\n" for n in (8, 9, 10))
    assert of_script(f"[    0.1] boot\n{log}", 9) == "[    9.5] of 9\n"
    assert of_script(log, 10) == "[    10.5] of 10\n"
    assert without_notes(log) == "[    8.5] of 8\n[    9.5] of 9\n[    10.5] of 10\n"


def test_of_a_log_that_was_cleared_all_counts_until_the_next_script() -> None:
    assert of_script("[    9.7] x\n[   10.0] fastsync: script 10\n", 9) == "[    9.7] x\n"
    assert of_script(OOPS, 9) == OOPS


BAD_WORDS = (*BUG_WORDS, *FAILURE_WORDS)


@pytest.mark.parametrize("word", BAD_WORDS)
def test_every_word_finds_a_line_that_no_other_finds(word: str) -> None:
    others = "|".join(other for other in BAD_WORDS if other != word)
    assert [line for line in BAD_LINES if re.search(word, line) and not re.search(others, line)]


def test_a_log_is_judged_line_by_line() -> None:
    log = f"{BAD_LINES[3]}\n{CLEAN_LOG}{BAD_LINES[4]}\n"
    assert check_kernel_log(log) == [BAD_LINES[3], BAD_LINES[4]]
    assert check_kernel_log("") == []


ON_A_FAILING_DEVICE = [line for line in BAD_LINES if re.search("|".join(BUG_WORDS), line)]


def test_what_a_device_that_fails_is_said_to_do_is_no_bug() -> None:
    assert bugs_of(FAILING) == bugs_of(CLEAN_LOG) == ()
    assert len(check_kernel_log(FAILING)) == 6
    assert check_kernel_log(FAILING, device_fails=True) == []


@pytest.mark.parametrize("line", ON_A_FAILING_DEVICE)
def test_bugs_are_found_beside_a_device_that_fails(line: str) -> None:
    assert check_kernel_log(f"{FAILING}{line}\n", device_fails=True) == [line]
    assert len(bugs_of(f"{line}\n{FAILING}")) == 1


@pytest.mark.parametrize(
    ("line", "bug"),
    [
        (BAD_LINES[0], "WARNING: CPU: # PID: # at inode.c:# ext4_x+#/# [ext4]"),
        (BAD_LINES[0].removeprefix("[    9.1] ").replace("fs/", "/a-b/c_1/"),
         "WARNING: CPU: # PID: # at inode.c:# ext4_x+#/# [ext4]"),
        ("[    9.1][   T77] kernel BUG at fs/jbd2/commit.c:2512!", "kernel BUG at commit.c:#!"),
        ("[19.1] BUG: unable to handle page fault for address: ffff8881deadbeef in e2fs/8 jbd2-x",
         "BUG: unable to handle page fault for address: # in e2fs/# jbd2-x"),
    ],
)  # fmt: skip
def test_a_bug_is_told_without_what_differs_from_run_to_run(line: str, bug: str) -> None:
    assert bugs_of(line) == (bug,)


def test_each_bug_is_told_once() -> None:
    later = BAD_LINES[0].replace("9.1", "19.25").replace("PID: 1 ", "PID: 77 ")
    other = BAD_LINES[18]
    text = "\n".join([BAD_LINES[0], other, later, other])
    assert bugs_of(text) == (bugs_of(BAD_LINES[0])[0], "WARNING: inconsistent lock state")


def test_what_qemu_made_of_the_code_is_told_from_the_code() -> None:
    assert is_emulators_fault("[    9.1] int3: 0000 [#1] PREEMPT SMP NOPTI\n")
    assert not is_emulators_fault("[    9.1] Oops: 0000 [#1] PREEMPT SMP\n")
    assert not is_emulators_fault("")
