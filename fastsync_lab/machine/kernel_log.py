"""What a guest's kernel says: which lines must not be there, and which to show with an error."""

import re

from fastsync_lab.host.debug.races import races_of_others
from fastsync_lab.host.shell import last_lines

# An oops with its registers and a call trace of twenty functions; more is in the console's log.
SHOWN_LINES = 60
ENDS = re.compile(r"---\[ end ")
# The agent's note that a script begins.
NOTE = re.compile(r"^.*\] fastsync: script (\d+)\n", re.MULTILINE)

# Before 8.1 QEMU may translate code while another processor patches it, and keep the breakpoint
# that stands there meanwhile (gitlab.com/qemu-project/qemu, commit deba78709ae8).
STALE_BREAKPOINT = re.compile(r"\bint3: 0000 ")

# Each word of these two has a line in tests/unit/test_kernel_log.py that no other finds.
# Bugs of the kernel, whatever its device does.
BUG_WORDS = (
    r"WARNING:", r"\bBUG\b", r"\bOops\b", r"Kernel panic", r"general protection fault",
    r"Call Trace:", r"lockdep", r"possible (circular|recursive|irq lock)",
    r"inconsistent lock state", r"suspicious RCU", r"bad unlock", r"held lock freed",
    r"lock held when returning", r"DEBUG_LOCKS", r"Voluntary context switch",
    r"Assertion failure in", r"Busy inodes after unmount", r"Objects remaining", r"hung_task",
    r"blocked for more than", r"soft lockup", r"rcu_.* stall", r"UBSAN", r"KASAN",
    r"KCSAN", r"ODEBUG", r"kmemleak: \d+ new suspected", r"list_(add|del) (corruption|double)",
    r"refcount_t:", r"use-after-free", r"sleeping function called", r"scheduling while atomic",
    r"\bRIP: ",
)  # fmt: skip
# What is said of a device that fails.
FAILURE_WORDS = (
    r"EXT4-fs error", r"EXT4-fs warning", r"EXT4-fs \([^)]*\): .*(error|corrupt)",
    r"JBD2: .*(error|Error)", r"I/O error",
)  # fmt: skip
BUGS = re.compile("|".join(BUG_WORDS))
BUGS_AND_FAILURES = re.compile("|".join((*BUG_WORDS, *FAILURE_WORDS)))
# Stock ext4 with EXT4_DEBUG: of a case that it then handles, and calls a TODO.
HARMLESS = re.compile(r"ext4_convert_unwritten_extents_endio:\d+: Inode \(\d+\) finished: ")


# What differs between two reports of one bug: the time, where the source lay, and numbers.
STAMP = re.compile(r"^(?:\[[^]]*\])+ ")
FOLDERS = re.compile(r"\S+/(?=\w+\.[ch]\b)")
NUMBER = re.compile(r"\b(?:0x)?[0-9a-f]*\d[0-9a-f]*\b")


def check_kernel_log(text: str, *, device_fails: bool = False) -> list[str]:
    """The lines of a kernel log that must not be there in a sound run.

    Of data races, those that are about our code. What the kernel says of its device may be there
    if that is to fail.
    """
    words = BUGS if device_fails else BUGS_AND_FAILURES
    lines = [line for line in text.splitlines() if not HARMLESS.search(line)]
    bad = [line for line in lines if words.search(line)]
    not_ours = races_of_others(text)
    return [line for line in bad if line not in not_ours]


def bugs_of(text: str) -> tuple[str, ...]:
    """The bugs that a kernel has logged on a device that fails, each once.

    Those of two runs, or of two builds of the modules, can be compared.
    """
    lines = [STAMP.sub("", line) for line in check_kernel_log(text, device_fails=True)]
    return tuple(dict.fromkeys(NUMBER.sub("#", FOLDERS.sub("", line)) for line in lines))


def is_emulators_fault(text: str) -> bool:
    """Whether a kernel died of what QEMU made of its code, not of the code."""
    return bool(STALE_BREAKPOINT.search(text))


def without_notes(text: str) -> str:
    """A kernel log without the agent's notes."""
    return NOTE.sub("", text)


def of_script(text: str, number: int) -> str:
    """The part of a kernel log since the script of that number began, until the next one does.

    A log that has been cleared since has no note of it.
    """
    parts = NOTE.split(text)  # what was before the first note, and each number with what follows
    following = dict(zip(parts[1::2], parts[2::2], strict=True))
    return following.get(str(number), parts[0])


def complaints(text: str) -> list[str]:
    """The first complaint of a kernel log and what follows it: of an oops, the whole report."""
    bad = check_kernel_log(text)
    if not bad:
        return []
    lines = text.splitlines()
    shown = lines[lines.index(bad[0]) :][:SHOWN_LINES]
    end = next((number for number, line in enumerate(shown) if ENDS.search(line)), len(shown))
    return shown[: end + 1]


def said_by_kernel(text: str) -> str:
    """The same for an error message, indented below it; without a complaint, the last lines."""
    found = complaints(text)
    if not found:
        return last_lines(text, 2) or "nothing"
    return "".join(f"\n    {line}" for line in found)
