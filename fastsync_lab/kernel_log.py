"""What a kernel log must not have in a sound run."""

import re

from fastsync_lab.debug.races import races_of_others

BAD_KERNEL_LOG = re.compile(
    r"WARNING:|\bBUG\b|\bOops\b|Kernel panic|general protection fault|Call Trace:|lockdep"
    r"|possible (circular|recursive|irq lock)|inconsistent lock state|suspicious RCU|bad unlock"
    r"|held lock freed|lock held when returning|DEBUG_LOCKS|Voluntary context switch"
    r"|EXT4-fs error|EXT4-fs warning|EXT4-fs \([^)]*\): .*(error|corrupt)|JBD2: .*(error|Error)"
    r"|Assertion failure in|Busy inodes after unmount|Objects remaining"
    r"|I/O error|hung_task|blocked for more than|soft lockup|rcu_.* stall|UBSAN|KASAN|KCSAN|ODEBUG"
    r"|kmemleak: \d+ new suspected|list_(add|del) (corruption|double)|refcount_t:|use-after-free"
    r"|sleeping function called|scheduling while atomic"
)
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
