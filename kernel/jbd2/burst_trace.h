/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM jbd2_burst

#if !defined(_JBD2_BURST_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _JBD2_BURST_TRACE_H

#include <linux/jbd2.h>
#include <linux/tracepoint.h>

#include "burst.h"

TRACE_DEFINE_ENUM(JBD2_BURST_ORDERED);
TRACE_DEFINE_ENUM(JBD2_BURST_ALLOCATED);
TRACE_DEFINE_ENUM(JBD2_BURST_CONVERTED);
TRACE_DEFINE_ENUM(JBD2_BURST_ZEROED);
TRACE_DEFINE_ENUM(JBD2_BURST_GROWN);
TRACE_DEFINE_ENUM(JBD2_BURST_MOVED);
TRACE_DEFINE_ENUM(JBD2_BURST_VERITY);
TRACE_DEFINE_ENUM(JBD2_BURST_NUMBER_0);

#define show_burst_reasons(reasons)					\
	__print_flags(reasons, "|",					\
		      { BIT(JBD2_BURST_ORDERED), "ordered" },		\
		      { BIT(JBD2_BURST_ALLOCATED), "allocated" },	\
		      { BIT(JBD2_BURST_CONVERTED), "converted" },	\
		      { BIT(JBD2_BURST_ZEROED), "zeroed" },		\
		      { BIT(JBD2_BURST_GROWN), "grown" },		\
		      { BIT(JBD2_BURST_MOVED), "moved" },		\
		      { BIT(JBD2_BURST_VERITY), "verity" },		\
		      { BIT(JBD2_BURST_NUMBER_0), "number_0" })

/*
 * A transaction is marked for the first time with this reason.  @ip: who has
 * done so.
 */
TRACE_EVENT(jbd2_burst_mark,

	TP_PROTO(journal_t *journal, tid_t tid, unsigned int reason,
		 unsigned long ip),

	TP_ARGS(journal, tid, reason, ip),

	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(tid_t, tid)
		__field(unsigned int, reason)
		__field(unsigned long, ip)
	),

	TP_fast_assign(
		__entry->dev = journal->j_fs_dev->bd_dev;
		__entry->tid = tid;
		__entry->reason = reason;
		__entry->ip = ip;
	),

	TP_printk("dev %d,%d tid %u %s by %pS",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->tid,
		  show_burst_reasons(BIT(__entry->reason)),
		  (void *)__entry->ip)
);

/*
 * Does a commit need barriers?  It does if it has reasons that no flush covers.
 */
TRACE_EVENT(jbd2_burst_decide,

	TP_PROTO(journal_t *journal, tid_t tid, unsigned int reasons,
		 bool covered),

	TP_ARGS(journal, tid, reasons, covered),

	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(tid_t, tid)
		__field(unsigned int, reasons)
		__field(bool, covered)
	),

	TP_fast_assign(
		__entry->dev = journal->j_fs_dev->bd_dev;
		__entry->tid = tid;
		__entry->reasons = reasons;
		__entry->covered = covered;
	),

	TP_printk("dev %d,%d tid %u %s for %s%s",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->tid,
		  __entry->reasons && !__entry->covered ? "barriers" : "burst",
		  __entry->reasons ? show_burst_reasons(__entry->reasons) :
		  "nothing", __entry->covered ? ", covered" : "")
);

/* A burst has been written and flushed.  @blocks: of the log. */
TRACE_EVENT(jbd2_burst_flush,

	TP_PROTO(journal_t *journal, tid_t tid, unsigned long blocks,
		 ktime_t took, int err),

	TP_ARGS(journal, tid, blocks, took, err),

	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(tid_t, tid)
		__field(unsigned long, blocks)
		__field(s64, took_us)
		__field(int, err)
	),

	TP_fast_assign(
		__entry->dev = journal->j_fs_dev->bd_dev;
		__entry->tid = tid;
		__entry->blocks = blocks;
		__entry->took_us = ktime_to_us(took);
		__entry->err = err;
	),

	TP_printk("dev %d,%d tid %u blocks %lu flushed in %lld us: %d",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->tid,
		  __entry->blocks, __entry->took_us, __entry->err)
);

/* A burst has waited.  @expected: tasks; @before: those that were there; @after: are. */
TRACE_EVENT(jbd2_burst_gather,

	TP_PROTO(journal_t *journal, tid_t tid, unsigned int expected,
		 unsigned int before, unsigned int after),

	TP_ARGS(journal, tid, expected, before, after),

	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(tid_t, tid)
		__field(unsigned int, expected)
		__field(unsigned int, before)
		__field(unsigned int, after)
	),

	TP_fast_assign(
		__entry->dev = journal->j_fs_dev->bd_dev;
		__entry->tid = tid;
		__entry->expected = expected;
		__entry->before = before;
		__entry->after = after;
	),

	TP_printk("dev %d,%d tid %u of %u there were %u, are %u",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->tid,
		  __entry->expected, __entry->before, __entry->after)
);

/* A transaction is to be committed, for it has enough blocks, and nobody has asked. */
TRACE_EVENT(jbd2_burst_cut,

	TP_PROTO(journal_t *journal, tid_t tid, unsigned int blocks,
		 unsigned int enough),

	TP_ARGS(journal, tid, blocks, enough),

	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(tid_t, tid)
		__field(unsigned int, blocks)
		__field(unsigned int, enough)
	),

	TP_fast_assign(
		__entry->dev = journal->j_fs_dev->bd_dev;
		__entry->tid = tid;
		__entry->blocks = blocks;
		__entry->enough = enough;
	),

	TP_printk("dev %d,%d tid %u blocks %u of %u",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->tid,
		  __entry->blocks, __entry->enough)
);

/* Commits are bursts from now on, or are so no more.  @tid: the next. */
TRACE_EVENT(jbd2_burst_switch,

	TP_PROTO(journal_t *journal, tid_t tid, bool on),

	TP_ARGS(journal, tid, on),

	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(tid_t, tid)
		__field(bool, on)
	),

	TP_fast_assign(
		__entry->dev = journal->j_fs_dev->bd_dev;
		__entry->tid = tid;
		__entry->on = on;
	),

	TP_printk("dev %d,%d tid %u %s",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->tid,
		  __entry->on ? "on" : "off")
);

#endif /* _JBD2_BURST_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE burst_trace
#include <trace/define_trace.h>
