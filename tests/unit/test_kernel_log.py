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

CLEAN_LOG = """\
[   12.0] jbd2: loading out-of-tree module taints kernel.
[   12.1] jbd2: module verification failed: signature and/or required key missing - tainting kernel
[   13.0] EXT4-fs (flash0): mounted filesystem 3f1d r/w with ordered data mode. Quota mode: none.
[   14.0] EXT4-fs: mtime_update=1001: allowed are 1 to 1000 ms
[   14.5] Warning: unable to open an initial console.
[   15.0] EXT4-fs (flash0): unmounting filesystem 3f1d.
[  352.433918] EXT4-fs warning (device flash0): ext4_convert_unwritten_extents_endio:38: \
Inode (13) finished: extent
"""
BAD_LINES = [
    "[    9.1] WARNING: CPU: 0 PID: 1 at fs/ext4/inode.c:1 ext4_x+0x1/0x2 [ext4]",
    "[    9.1] WARNING: fs/ext4/inode.c:1 at ext4_x+0x1/0x2 [ext4], CPU#0: ls/1",
    "[    9.1] BUG: kernel NULL pointer dereference, address: 0000000000000000",
    "[    9.1] kernel BUG at fs/jbd2/commit.c:1!",
    "[    9.1] Oops: 0000 [#1] PREEMPT SMP",
    "[    9.1] Kernel panic - not syncing: Attempted to kill init!",
    "[    9.1] WARNING: possible circular locking dependency detected",
    "[    9.1] EXT4-fs error (device flash0): ext4_lookup:1: inode #2: comm ls: deleted inode",
    "[    9.1] EXT4-fs warning (device flash0): dx_probe:1: Unrecognised inode hash code 9",
    "[    9.1] INFO: task jbd2/flash0-8:99 blocked for more than 120 seconds.",
    "[    9.1] watchdog: BUG: soft lockup - CPU#0 stuck for 22s!",
    "[    9.1] Buffer I/O error on dev flash0, logical block 0, lost async page write",
    "[    9.1] refcount_t: underflow; use-after-free.",
    "[    9.1] BUG: KASAN: slab-use-after-free in jbd2_carrier_done+0x1/0x2 [jbd2]",
    "[    9.1] UBSAN: array-index-out-of-bounds in fs/ext4/mtime.c:1:2",
    "[    9.1] kmemleak: 1 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
    "[    9.1] WARNING: possible recursive locking detected",
    "[    9.1] WARNING: possible irq lock inversion dependency detected",
    "[    9.1] WARNING: inconsistent lock state",
    "[    9.1] WARNING: bad unlock balance detected!",
    "[    9.1] WARNING: held lock freed!",
    "[    9.1] WARNING: suspicious RCU usage",
    "[    9.1] DEBUG_LOCKS_WARN_ON(1)",
    "[    9.1] BUG: sleeping function called from invalid context at mm/slab.h:1",
    "[    9.1] BUG: scheduling while atomic: fio/1/0x00000002",
    "[    9.1] Assertion failure in jbd2_journal_commit_transaction() at fs/jbd2/commit.c:1: x",
    "[    9.1] ODEBUG: free active (active state 0) object: 1 object type: work_struct",
    "[    9.1] list_del corruption. prev->next should be 1, but was 2. (prev=3)",
    "[    9.1] BUG ext4_inode_cache (Tainted: G O): Objects remaining on __kmem_cache_shutdown()",
    "[    9.1] VFS: Busy inodes after unmount of flash0 (ext4)",
    # By one word alone: what a log may have where the first line of a report is lost.
    "[    9.1] traps: ls[1] general protection fault ip:1 sp:2 error:0",
    "[    9.1] Call Trace:",
    "[    9.1] INFO: lockdep is turned off.",
    "[    9.1] possible circular locking dependency detected",
    "[    9.1] inconsistent lock state",
    "[    9.1] suspicious RCU usage",
    "[    9.1] bad unlock balance detected!",
    "[    9.1] held lock freed!",
    "[    9.1] lock held when returning to user space!",
    "[    9.1] Voluntary context switch within RCU read-side critical section!",
    "[    9.1] EXT4-fs (flash0): recovery failed with error -5",
    "[    9.1] EXT4-fs (flash0): group descriptors corrupted!",
    "[    9.1] JBD2: recovery Error -5",
    "[    9.1] JBD2: journal checksum error",
    "[    9.1] Objects remaining in ext4_inode_cache on __kmem_cache_shutdown()",
    "[    9.1] Kernel: hung_task: blocked tasks",
    "[    9.1] watchdog: soft lockup - CPU#0 stuck for 22s!",
    "[    9.1] rcu: INFO: rcu_preempt detected stalls? rcu_preempt self-detected stall on CPU",
    "[    9.1] KASAN: null-ptr-deref in range [0x0-0x7]",
    "[    9.1] KCSAN: data-race in ext4_x / jbd2_y",
    "[    9.1] refcount_t: underflow",
    "[    9.1] slab-use-after-free in jbd2_x",
    "[    9.1] sleeping function called from invalid context at mm/slab.h:1",
    "[    9.1] scheduling while atomic: fio/1/0x00000002",
    "[    9.1] RIP: 0033:crashing_init+0xc/0x1000 [crashing]",
]


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


# What stock ext4 says when the device fails its requests.
FAILING = """\
[   21.0] I/O error, dev flash0, sector 688 op 0x1:(WRITE) flags 0x9800 phys_seg 1 prio class 2
[   21.1] Buffer I/O error on dev flash0, logical block 0, lost sync page write
[   21.2] Aborting journal on device flash0-8.
[   21.3] JBD2: I/O error when updating journal superblock for flash0-8.
[   21.4] EXT4-fs error (device flash0): ext4_journal_check_start:83: Detected aborted journal
[   21.5] EXT4-fs (flash0): I/O error while writing superblock
[   21.6] EXT4-fs (flash0): Remounting filesystem read-only
[   21.7] EXT4-fs warning (device flash0): ext4_end_bio:343: I/O error 10 writing to inode 13
"""
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
