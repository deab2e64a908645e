/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM qasio

#if !defined(_QASIO_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _QASIO_TRACE_H

#include <linux/blk-mq.h>
#include <linux/tracepoint.h>

#include "qasio.h"

TRACE_DEFINE_ENUM(QASIO_META);
TRACE_DEFINE_ENUM(QASIO_DATA);
TRACE_DEFINE_ENUM(QASIO_SYNC);

/*
 * A request is moved ahead of the asynchronous ones.  @late: the wait began
 * before it was queued, and current is who queues it, not who waits.
 */
TRACE_EVENT(qasio_boost,

	TP_PROTO(struct request *rq, enum qasio_type type, bool late,
		 unsigned int ahead),

	TP_ARGS(rq, type, late, ahead),

	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(sector_t, sector)
		__field(unsigned int, sectors)
		__field(int, type)
		__field(bool, late)
		__field(unsigned int, ahead)
	),

	TP_fast_assign(
		__entry->dev = rq->q->disk ? disk_devt(rq->q->disk) : 0;
		__entry->sector = blk_rq_pos(rq);
		__entry->sectors = blk_rq_sectors(rq);
		__entry->type = type;
		__entry->late = late;
		__entry->ahead = ahead;
	),

	TP_printk("%d,%d %s %llu + %u%s, %u ahead",
		  MAJOR(__entry->dev), MINOR(__entry->dev),
		  __print_symbolic(__entry->type, { QASIO_META, "meta" },
				   { QASIO_DATA, "data" },
				   { QASIO_SYNC, "sync" }),
		  (unsigned long long)__entry->sector, __entry->sectors,
		  __entry->late ? " late" : "", __entry->ahead)
);

#endif /* _QASIO_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE qasio_trace
#include <trace/define_trace.h>
