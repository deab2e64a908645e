"""What tracefs and dumpe2fs print, made up."""

# One stock ext4 fsync of an overwrite: data, descriptor + inode table block, flush, commit block.
TRACE = """\
# tracer: nop
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
sh-101 [000] ..... 10.000001: tracing_mark_write: fastsync begin overwrite
fio-182 [000] ..... 10.000100: block_rq_issue: 259,0 WS 4096 () 2048 + 8 be,0,4 [fio]
idle-0 [000] ..s1. 10.000150: block_rq_complete: 259,0 WS () 2048 + 8 none,0,0 [0]
jbd2-77 [000] ..... 10.000200: block_rq_issue: 259,0 WS 8192 () 800 + 16 none,0,0 [jbd2]
idle-0 [000] ..s1. 10.000260: block_rq_complete: 259,0 WS () 800 + 16 none,0,0 [0]
kworker-51 [000] ..... 10.000300: block_rq_issue: 259,0 FF 0 () 0 + 0 none,0,0 [kworker]
idle-0 [000] ..s1. 10.001300: block_rq_complete: 259,0 FF () 18446744073709551615 + 0 none,0,0 [0]
jbd2-77 [000] ..... 10.001310: block_rq_issue: 259,0 WFS 4096 () 816 + 8 none,0,0 [jbd2]
idle-0 [000] ..s1. 10.003310: block_rq_complete: 259,0 WFS () 816 + 8 none,0,0 [0]
sh-101 [000] ..... 10.004000: tracing_mark_write: fastsync end overwrite
fio-182 [000] ..... 10.005000: block_rq_issue: 259,0 R 4096 () 2048 + 8 be,0,4 [fio]
"""

DUMPE2FS = """\
Filesystem features:      has_journal ext_attr
Block size:               4096
Journal inode:            8

Group 0: (Blocks 0-32767) csum 0x1234 [ITABLE_ZEROED]
  Primary superblock at 0, Group descriptors at 1-1
  Reserved GDT blocks at 2-63
  Block bitmap at 64 (+64), csum 0x1
  Inode bitmap at 68 (+68), csum 0x2
  Inode table at 72-583 (+72)
  23000 free blocks, 8181 free inodes
Group 1: (Blocks 32768-65535) csum 0x99 [INODE_UNINIT]
  Backup superblock at 32768, Group descriptors at 32769-32769
  Block bitmap at 65 (bg #0 + 65), csum 0x3
"""
