/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How long one waits for others to share a flush: burst_gather.c in jbd2, mtime_group.c
 * in ext4.
 */
#ifndef _JBD2_PATIENCE_H
#define _JBD2_PATIENCE_H

#include <linux/hrtimer.h>
#include <linux/wait.h>

/* One waits no longer than that, and does not wait for less. */
#define JBD2_PATIENCE_MAX_NS	(20 * NSEC_PER_MSEC)
#define JBD2_PATIENCE_MIN_NS	(20 * NSEC_PER_USEC)

static inline s64 jbd2_patience_min_ns(void)
{
	return max_t(s64, JBD2_PATIENCE_MIN_NS, hrtimer_resolution);
}

/* Half of what a flush takes: who comes too late for it waits for all of it. */
static inline s64 jbd2_patience_ns(s64 flush_ns)
{
	return min_t(s64, flush_ns / 2, JBD2_PATIENCE_MAX_NS);
}

static inline bool jbd2_patience_ends(ktime_t until)
{
	return ktime_to_ns(ktime_sub(until, ktime_get())) < jbd2_patience_min_ns();
}

/*
 * Wait for something until then; it is true if that has come. Without the task's
 * slack, which may be anything.
 */
#define jbd2_wait_event_until(wq_head, condition, until)			\
({										\
	ktime_t __until = (until);						\
	bool __expired = jbd2_patience_ends(__until);				\
	bool __done;								\
										\
	might_sleep();								\
	(void)___wait_event(wq_head, (__done = (condition)) || __expired,	\
			    TASK_UNINTERRUPTIBLE, 0, 0,				\
			    __expired = !schedule_hrtimeout_range(&__until, 0,	\
							HRTIMER_MODE_ABS));	\
	__done;									\
})

#endif	/* _JBD2_PATIENCE_H */
