"""What a kernel log must not have in a sound run."""

import re

from fastsync_lab.debug.races import races_of_others

# Each has a line in tests/unit/test_kernel_log.py that no other finds.
BAD_WORDS = (
    r"WARNING:", r"\bBUG\b", r"\bOops\b", r"Kernel panic", r"general protection fault",
    r"Call Trace:", r"lockdep", r"possible (circular|recursive|irq lock)",
    r"inconsistent lock state", r"suspicious RCU", r"bad unlock", r"held lock freed",
    r"lock held when returning", r"DEBUG_LOCKS", r"Voluntary context switch", r"EXT4-fs error",
    r"EXT4-fs warning", r"EXT4-fs \([^)]*\): .*(error|corrupt)", r"JBD2: .*(error|Error)",
    r"Assertion failure in", r"Busy inodes after unmount", r"Objects remaining", r"I/O error",
    r"hung_task", r"blocked for more than", r"soft lockup", r"rcu_.* stall", r"UBSAN", r"KASAN",
    r"KCSAN", r"ODEBUG", r"kmemleak: \d+ new suspected", r"list_(add|del) (corruption|double)",
    r"refcount_t:", r"use-after-free", r"sleeping function called", r"scheduling while atomic",
)  # fmt: skip
BAD_KERNEL_LOG = re.compile("|".join(BAD_WORDS))
# Stock ext4 with EXT4_DEBUG: of a case that it then handles, and calls a TODO.
HARMLESS = re.compile(r"ext4_convert_unwritten_extents_endio:\d+: Inode \(\d+\) finished: ")


def check_kernel_log(text: str) -> list[str]:
    """The lines of a kernel log that must not be there in a sound run.

    Of data races, those that are about our code.
    """
    lines = [line for line in text.splitlines() if not HARMLESS.search(line)]
    bad = [line for line in lines if BAD_KERNEL_LOG.search(line)]
    not_ours = races_of_others(text)
    return [line for line in bad if line not in not_ours]
