"""Kernel logs: lines that are complaints, and lines that are none."""

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
