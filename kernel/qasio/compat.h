/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between the kernels that qasio is built for, and nothing else.
 */
#ifndef _QASIO_COMPAT_H
#define _QASIO_COMPAT_H

#include <linux/blk-mq.h>
#include <linux/hrtimer.h>
#include <linux/sbitmap.h>
#include <linux/version.h>

#include "elevator.h"
#include "blk.h"
#include "blk-mq.h"
#include "blk-mq-debugfs.h"
#include "blk-mq-sched.h"
#include "blk-wbt.h"

/* Of the requests that a queue may hold, those that are not for synchronous I/O alone. */
#define QASIO_ASYNC_PERCENT	75

static inline unsigned int qasio_share(unsigned int depth)
{
	return max(1U, depth * QASIO_ASYNC_PERCENT / 100);
}

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
static inline void
hrtimer_setup(struct hrtimer *timer,
	      enum hrtimer_restart (*function)(struct hrtimer *),
	      clockid_t clock, enum hrtimer_mode mode)
{
	hrtimer_init(timer, clock, mode);
	timer->function = function;
}
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 0, 0)

#define QASIO_ATTRS		static struct elv_fs_entry

/* Whoever switches schedulers removes files of the old one first, and waits for readers. */
static inline bool qasio_hold_elevator(struct request_queue *q,
				       const struct elevator_type *type)
{
	return true;
}

static inline void qasio_release_elevator(struct request_queue *q) {}

/*
 * Before 6.12.43 the depth that limits a request counts bits in each word of
 * the bitmap, of which a short bitmap has one that is not full.
 */
static inline unsigned int qasio_shallow_depth(struct blk_mq_hw_ctx *hctx)
{
	unsigned int depth = hctx->queue->nr_requests;

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 43)
	depth = min(depth, 1U << hctx->sched_tags->bitmap_tags.sb.shift);
#endif
	return qasio_share(depth);
}

static inline void qasio_limit_depth(struct blk_mq_alloc_data *data)
{
	data->shallow_depth = qasio_shallow_depth(data->hctx);
}

/* Called before nr_requests has its new value: the least that it may get. */
static inline void qasio_depth_updated(struct blk_mq_hw_ctx *hctx)
{
	sbitmap_queue_min_shallow_depth(&hctx->sched_tags->bitmap_tags, 1);
}

static int qasio_init_hctx(struct blk_mq_hw_ctx *hctx, unsigned int index)
{
	qasio_depth_updated(hctx);
	return 0;
}

#define QASIO_DEPTH_OPS				\
	.depth_updated	= qasio_depth_updated,	\
	.init_hctx	= qasio_init_hctx

static int qasio_start(struct request_queue *q, struct elevator_queue *eq);

static int qasio_init_sched(struct request_queue *q, struct elevator_type *e)
{
	struct elevator_queue *eq = elevator_alloc(q, e);
	int err;

	if (!eq)
		return -ENOMEM;
	err = qasio_start(q, eq);
	if (err) {
		kobject_put(&eq->kobj);
		return err;
	}
	set_bit(ELEVATOR_FLAG_DISABLE_WBT, &eq->flags);
	wbt_disable_default(q->disk);
	return 0;
}

static inline void qasio_give_back_wbt(struct elevator_queue *e,
				       struct request_queue *q)
{
	clear_bit(ELEVATOR_FLAG_DISABLE_WBT, &e->flags);
	wbt_enable_default(q->disk);
}

#else

#define QASIO_ATTRS		static const struct elv_fs_entry

/* A file outlives its scheduler for a moment: is there one of @type, and will it stay? */
static inline bool qasio_hold_elevator(struct request_queue *q,
				       const struct elevator_type *type)
{
	mutex_lock(&q->elevator_lock);
	if (q->elevator && q->elevator->type == type)
		return true;
	mutex_unlock(&q->elevator_lock);
	return false;
}

static inline void qasio_release_elevator(struct request_queue *q)
{
	mutex_unlock(&q->elevator_lock);
}

static inline void qasio_limit_depth(struct blk_mq_alloc_data *data)
{
	data->shallow_depth = data->q->async_depth;
}

static inline void qasio_depth_updated(struct request_queue *q)
{
	blk_mq_set_min_shallow_depth(q, q->async_depth);
}

#define QASIO_DEPTH_OPS				\
	.depth_updated	= qasio_depth_updated

static int qasio_start(struct request_queue *q, struct elevator_queue *eq);

static int qasio_init_sched(struct request_queue *q, struct elevator_queue *eq)
{
	int err = qasio_start(q, eq);

	if (err)
		return err;
	q->async_depth = qasio_share(q->nr_requests);
	qasio_depth_updated(q);
	blk_queue_flag_set(QUEUE_FLAG_DISABLE_WBT_DEF, q);
	wbt_disable_default(q->disk);
	return 0;
}

static inline void qasio_give_back_wbt(struct elevator_queue *e,
				       struct request_queue *q)
{
	blk_queue_flag_clear(QUEUE_FLAG_DISABLE_WBT_DEF, q);
	wbt_enable_default(q->disk);
}

#endif

#endif /* _QASIO_COMPAT_H */
