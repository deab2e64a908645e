/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM jbd2_carrier

#if !defined(_JBD2_CARRIER_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _JBD2_CARRIER_TRACE_H

#include <linux/jbd2.h>
#include <linux/tracepoint.h>

#include "carrier.h"

TRACE_DEFINE_ENUM(JBD2_CARRIED_FLUSHED);
TRACE_DEFINE_ENUM(JBD2_CARRIED_HURRIED);
TRACE_DEFINE_ENUM(JBD2_CARRIED_ALONE);
TRACE_DEFINE_ENUM(JBD2_CARRIED_LOST);

/*
 * A commit starts that nobody waits for.  @patience_ms: how long it waits for
 * each of its two flushes.
 */
TRACE_EVENT(jbd2_carrier_start,

	TP_PROTO(journal_t *journal, tid_t tid, unsigned int patience_ms),

	TP_ARGS(journal, tid, patience_ms),

	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(tid_t, tid)
		__field(unsigned int, patience_ms)
	),

	TP_fast_assign(
		__entry->dev = journal->j_fs_dev->bd_dev;
		__entry->tid = tid;
		__entry->patience_ms = patience_ms;
	),

	TP_printk("dev %d,%d tid %u patience %u ms",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->tid,
		  __entry->patience_ms)
);

/*
 * It has waited for a flush.  @record: for its commit record, or else for the
 * blocks before that.
 */
TRACE_EVENT(jbd2_carrier_wait,

	TP_PROTO(journal_t *journal, tid_t tid, bool record,
		 enum jbd2_carried outcome, ktime_t waited),

	TP_ARGS(journal, tid, record, outcome, waited),

	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(tid_t, tid)
		__field(bool, record)
		__field(u8, outcome)
		__field(s64, waited_us)
	),

	TP_fast_assign(
		__entry->dev = journal->j_fs_dev->bd_dev;
		__entry->tid = tid;
		__entry->record = record;
		__entry->outcome = outcome;
		__entry->waited_us = ktime_to_us(waited);
	),

	TP_printk("dev %d,%d tid %u %s %s in %lld us",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->tid,
		  __entry->record ? "record" : "blocks",
		  __print_symbolic(__entry->outcome,
				   { JBD2_CARRIED_FLUSHED, "flushed" },
				   { JBD2_CARRIED_HURRIED, "hurried" },
				   { JBD2_CARRIED_ALONE, "alone" },
				   { JBD2_CARRIED_LOST, "lost" }),
		  __entry->waited_us)
);

/*
 * Somebody waits for it after all.  @wanted: for which transaction, or one
 * before.  @ip: why.
 */
TRACE_EVENT(jbd2_carrier_hurry,

	TP_PROTO(journal_t *journal, tid_t tid, tid_t wanted, unsigned long ip),

	TP_ARGS(journal, tid, wanted, ip),

	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(tid_t, tid)
		__field(tid_t, wanted)
		__field(unsigned long, ip)
	),

	TP_fast_assign(
		__entry->dev = journal->j_fs_dev->bd_dev;
		__entry->tid = tid;
		__entry->wanted = wanted;
		__entry->ip = ip;
	),

	TP_printk("dev %d,%d tid %u wanted %u by %pS",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->tid,
		  __entry->wanted, (void *)__entry->ip)
);

#endif /* _JBD2_CARRIER_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE carrier_trace
#include <trace/define_trace.h>
