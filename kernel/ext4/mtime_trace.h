/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ext4_mtime

#if !defined(_EXT4_MTIME_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _EXT4_MTIME_TRACE_H

#include <linux/tracepoint.h>

#include "mtime_internal.h"

TRACE_DEFINE_ENUM(EXT4_MTIME_UNCHANGED);
TRACE_DEFINE_ENUM(EXT4_MTIME_ATIME);
TRACE_DEFINE_ENUM(EXT4_MTIME_YOUNG);
TRACE_DEFINE_ENUM(EXT4_MTIME_OLD);
TRACE_DEFINE_ENUM(EXT4_MTIME_UNDER_WAY);
TRACE_DEFINE_ENUM(EXT4_MTIME_CHANGE);

#define show_mtime_reason(reason)				\
	__print_symbolic(reason,				\
			 { EXT4_MTIME_UNCHANGED, "unchanged" },	\
			 { EXT4_MTIME_ATIME, "atime" },		\
			 { EXT4_MTIME_YOUNG, "young" },		\
			 { EXT4_MTIME_OLD, "old" },		\
			 { EXT4_MTIME_UNDER_WAY, "under way" },	\
			 { EXT4_MTIME_CHANGE, "change" })

/*
 * An fsync leaves out a commit that stock ext4 would have made.  @tid: the last
 * transaction that has logged the inode.  @reason: why the stamps may wait.
 */
TRACE_EVENT(ext4_mtime_saved,

	TP_PROTO(struct inode *inode, tid_t tid, u8 reason),

	TP_ARGS(inode, tid, reason),

	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(ino_t, ino)
		__field(tid_t, tid)
		__field(u8, reason)
	),

	TP_fast_assign(
		__entry->dev = inode->i_sb->s_dev;
		__entry->ino = inode->i_ino;
		__entry->tid = tid;
		__entry->reason = reason;
	),

	TP_printk("dev %d,%d ino %lu tid %u by %s",
		  MAJOR(__entry->dev), MINOR(__entry->dev),
		  (unsigned long)__entry->ino, __entry->tid,
		  show_mtime_reason(__entry->reason))
);

/*
 * An fsync is going to wait for a commit.  @tid: of which transaction.
 * @reason: what has to be durable.
 */
TRACE_EVENT(ext4_mtime_wait,

	TP_PROTO(struct inode *inode, tid_t tid, bool datasync, u8 reason),

	TP_ARGS(inode, tid, datasync, reason),

	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(ino_t, ino)
		__field(tid_t, tid)
		__field(bool, datasync)
		__field(u8, reason)
	),

	TP_fast_assign(
		__entry->dev = inode->i_sb->s_dev;
		__entry->ino = inode->i_ino;
		__entry->tid = tid;
		__entry->datasync = datasync;
		__entry->reason = reason;
	),

	TP_printk("dev %d,%d ino %lu tid %u datasync %d for %s",
		  MAJOR(__entry->dev), MINOR(__entry->dev),
		  (unsigned long)__entry->ino, __entry->tid, __entry->datasync,
		  show_mtime_reason(__entry->reason))
);

#endif /* _EXT4_MTIME_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE mtime_trace
#include <trace/define_trace.h>
