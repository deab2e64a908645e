// SPDX-License-Identifier: GPL-2.0
/*
 * qasio - an I/O scheduler that boosts the asynchronous write somebody waits for
 *
 * Write-back is asynchronous: nobody waits for it, so a scheduler lets whatever
 * is synchronous pass.  Until a task wants to change a block that is on its
 * way, or has to know that a page is on the medium: it then waits for a request
 * that stands in a long queue as if nobody did.  qasio finds such a request by
 * the memory that it writes and moves it to the front.
 *
 * The queue
 *
 * Requests are of a level, their ioprio class, and within it of a kind:
 *
 *   boosted	writes somebody waits for; a few for each waiting task
 *   read	all reads
 *   sync	writes with REQ_SYNC, REQ_FUA or REQ_PREFLUSH, and swap
 *   file	other writes to a file that somebody waits for, see Boosting; and of memory
 *		that belongs to no file, for which nobody can be seen to wait
 *   meta	other writes with REQ_META or REQ_PRIO
 *   async	all other writes
 *
 * A kind is served when those above it have nothing queued.  What the driver has
 * been given can no longer be overtaken: of asynchronous writes, waited for or
 * not, it gets async_kib at a time.  meta and async, the backlog, obey three rules
 * more:
 *
 *  - The driver gets a single request of it as long as there was synchronous I/O
 *    in the last QASIO_RECENT.
 *
 *  - None is dispatched while anybody waits: while a request of the first four
 *    kinds is anywhere between its allocation and its completion (a flush does
 *    not pass through the scheduler, but what asked for it was allocated),
 *    nor for idle_us after that, or the mean time of a backlog request if that
 *    is less.  fsync() is a chain of requests, each sent when the last has
 *    returned, and a backlog request in a gap would cost the next one all the
 *    time that it occupies the device.
 *
 *  - One is dispatched nevertheless once none was for async_wait_ms.
 *
 * Somebody who waits for a request of a worse level does not count.  That request
 * stands behind all that this level has; if this level stood back for it, each
 * would wait for the other.
 *
 * Nothing starves:
 *
 *  - Of sync writes that wait behind reads, QASIO_SYNC_BATCH go every sync_wait_ms.
 *  - Of reads and sync writes that wait behind what is boosted, one goes every
 *    sync_wait_ms.
 *  - Of boosted and file requests, one goes every async_wait_ms.
 *  - Of the backlog, one goes every async_wait_ms, whatever the driver has.
 *  - Within the backlog a request is passed for QASIO_PASS_EXPIRE_MS at most.  So is
 *    a file request by boosted ones.
 *  - A level waits for those above it for prio_aging_ms at most.
 *

 *
 * Of those who wait, some want one small request after another and some a file
 * of many large ones, each of which would stand in the way of the former.  So a
 * boosted or file request larger than QASIO_SMALL leaves the device to reads and
 * sync writes for QASIO_TURN times the mean time of an asynchronous request since
 * the last one, if there are any, or were in the last idle_us.
 *
 * The backlog is served in the order of sectors, from where it was last served,
 * meta first; the other kinds in the order of arrival.
 *
 * Boosting
 *
 * wait.c sees that a wait begins.  It notes the wait in the table of table.c, then
 * boost.c looks through the asynchronous writes of each queue, and it looks into the
 * table when a request is inserted or grows by a merge.  One of the two finds the
 * request, however insertion and wait meet; why is at the head of boost.c.  A wait
 * that begins while the request is still in a plug or waits for a tag is not
 * missed.  A request that the driver has already is beyond help.
 *
 * A bio that is larger than a request was split, and its pages are done when all
 * its parts are: these are boosted together.
 *
 * If a task waits in fsync() or the like, it will wait for the other pages of
 * the file too.  Their requests become of the kind file: no longer held back as
 * the backlog is, but behind what is sync, as they may be very many, and someone
 * else's commit is small.
 *
 * Races
 *
 *  - Completion: a request cannot complete while it is queued, and the search
 *    looks at no others.
 *  - Requeueing: a request that comes back is dispatched first.
 *  - Merging: happens under qasio_queue::lock.  What is merged keeps the better
 *    kind.  After an insertion the kernel runs the queue, after the merge of a bio
 *    it does not: if a request may go now, qasio_bio_merge() does.
 *  - Searching: lets go of qasio_queue::lock now and then; who takes a request out
 *    of its list moves the searches that stand at it.
 *  - Switching schedulers: boost.c walks the list of queues under RCU, and
 *    qasio_exit_sched() waits for a grace period before it frees one.
 *  - Unloading: needs that no queue uses the module; qasio_unwatch() then waits
 *    for the last probe to return.
 *
 * Locks nest as follows: qasio_queue::lock, then that of the table.  Neither is
 * taken in interrupts; requests complete in interrupts and use atomic counters.
 *
 * In files: queue.c has the queue and its accounting, dispatch.c the rules above,
 * boost.c, table.c and wait.c what follows them; the rest is here.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/slab.h>

#include "compat.h"
#include "queue.h"

static const struct {
	unsigned int value, max;
} qasio_defaults[] = {
	[QASIO_BOOST]		= { 1, 1 },
	[QASIO_IDLE_US]		= { 4000, USEC_PER_SEC },
	[QASIO_ASYNC_WAIT_MS]	= { 100, 10 * MSEC_PER_SEC },
	[QASIO_ASYNC_KIB]	= { 1024, SZ_1M },
	[QASIO_SYNC_WAIT_MS]	= { 100, 10 * MSEC_PER_SEC },
	[QASIO_PRIO_AGING_MS]	= { 10 * MSEC_PER_SEC, 1000 * MSEC_PER_SEC },
};

static const char * const qasio_kind_names[] = {
	[QASIO_BOOSTED]		= "boosted",
	[QASIO_READ]		= "read",
	[QASIO_SYNC_WRITE]	= "sync",
	[QASIO_FILE_WRITE]	= "file",
	[QASIO_META_WRITE]	= "meta",
	[QASIO_ASYNC_WRITE]	= "async",
};

/*
 * Allocation and completion
 */

static void qasio_limit(blk_opf_t opf, struct blk_mq_alloc_data *data)
{
	if (qasio_is_backlog(qasio_kind_of(opf)))
		qasio_limit_depth(data);
}

static void qasio_prepare_request(struct request *rq)
{
	rq->elv.priv[0] = NULL;
	rq->elv.priv[1] = NULL;
	if (op_is_flush(rq->cmd_flags))
		qasio_count_waited_for(qasio_of(rq->q), rq);
}

/* A driver may send it again without asking us: its completion wakes nobody then. */
static void qasio_requeue_request(struct request *rq)
{
	struct qasio_queue *qd = qasio_of(rq->q);

	if (qasio_flags(rq) & QASIO_RQ_IN_FLIGHT) {
		qasio_uncount_in_flight(qd, rq);
		qasio_wake(qd);
	}
}

static void qasio_finish_request(struct request *rq)
{
	struct qasio_queue *qd = qasio_of(rq->q);
	unsigned long flags = qasio_flags(rq);
	struct qasio_level *level = qasio_level_of_flags(qd, flags);
	bool wake = false;

	if (flags & QASIO_RQ_IN_FLIGHT) {
		qasio_learn(qd, rq, ktime_get_ns());
		qasio_uncount_in_flight(qd, rq);
		wake = true;
	}
	if (flags & QASIO_RQ_WAITED_FOR) {
		WRITE_ONCE(level->last_waited_for_jiffies, jiffies);
		if (READ_ONCE(qd->async)) {
			u64 now = ktime_get_ns();

			WRITE_ONCE(level->last_waited_for, now);
			if (flags & QASIO_RQ_SYNC)
				WRITE_ONCE(level->last_sync, now);
		}
		if (flags & QASIO_RQ_SYNC && atomic_dec_and_test(&level->sync))
			wake = true;
		if (atomic_dec_and_test(&level->waited_for))
			wake = true;
	}
	if (flags & QASIO_RQ_ALIVE && atomic_dec_and_test(&level->alive))
		wake = true;
	/* The driver has sent it again by itself: another may stand behind its level. */
	if (!(flags & (QASIO_RQ_IN_FLIGHT | QASIO_RQ_WAITED_FOR)))
		wake = true;
	qasio_set_flags(rq, 0);
	if (wake)
		qasio_wake(qd);
}

/*
 * Coming and going
 */

static enum hrtimer_restart qasio_timer_fn(struct hrtimer *timer)
{
	qasio_wake(container_of(timer, struct qasio_queue, timer));
	return HRTIMER_NORESTART;
}

static int qasio_start(struct request_queue *q, struct elevator_queue *eq)
{
	struct qasio_queue *qd;
	unsigned int i;

	qd = kzalloc_node(sizeof(*qd), GFP_KERNEL, q->node);
	if (!qd)
		return -ENOMEM;
	qd->q = q;
	spin_lock_init(&qd->lock);
	INIT_LIST_HEAD(&qd->dispatch);
	INIT_LIST_HEAD(&qd->scans);
	for (i = 0; i < QASIO_LEVELS * QASIO_KINDS; i++) {
		struct qasio_list *list = &qd->level[i / QASIO_KINDS]
					      .list[i % QASIO_KINDS];

		INIT_LIST_HEAD(&list->fifo);
		list->sort = RB_ROOT;
		list->kind = i % QASIO_KINDS;
	}
	hrtimer_setup(&qd->timer, qasio_timer_fn, CLOCK_MONOTONIC,
		      HRTIMER_MODE_ABS);
	for (i = 0; i < QASIO_LEVELS; i++)
		qd->level[i].last_waited_for_jiffies = jiffies - QASIO_RECENT;
	qd->sync_moved = jiffies;
	qd->passed_moved = jiffies;
	qd->waited_for_moved = jiffies;

	for (i = 0; i < QASIO_TUNABLES; i++)
		qd->tunable[i] = qasio_defaults[i].value;

	eq->elevator_data = qd;
	q->elevator = eq;
	blk_queue_flag_set(QUEUE_FLAG_SQ_SCHED, q);

	qasio_add_queue(qd);
	return 0;
}

static void qasio_exit_sched(struct elevator_queue *e)
{
	struct qasio_queue *qd = e->elevator_data;

	qasio_remove_queue(qd);
	hrtimer_cancel(&qd->timer);
	WARN_ON_ONCE(qd->queued || atomic_read(&qd->in_flight) ||
		     qasio_waited_for(qd));
	qasio_give_back_wbt(e, qd->q);
	kfree(qd);
}

/*
 * What can be seen and set
 */

static ssize_t qasio_show(struct elevator_queue *e, char *page,
			  enum qasio_tunable which)
{
	struct qasio_queue *qd = e->elevator_data;

	return sysfs_emit(page, "%u\n", qd->tunable[which]);
}

static ssize_t qasio_store(struct elevator_queue *e, const char *page,
			   size_t count, enum qasio_tunable which)
{
	struct qasio_queue *qd = e->elevator_data;
	unsigned int value;
	int err = kstrtouint(page, 0, &value);

	if (err)
		return err;
	if (value > qasio_defaults[which].max)
		return -EINVAL;
	WRITE_ONCE(qd->tunable[which], value);
	if (which == QASIO_BOOST)
		qasio_boost_is_set();
	return count;
}

#define QASIO_SHOW(name, which)						\
static ssize_t qasio_##name##_show(struct elevator_queue *e, char *page)	\
{										\
	return qasio_show(e, page, which);					\
}

#define QASIO_STORE(name, which)						\
static ssize_t qasio_##name##_store(struct elevator_queue *e,			\
				    const char *page, size_t count)		\
{										\
	return qasio_store(e, page, count, which);				\
}

QASIO_SHOW(boost, QASIO_BOOST)
QASIO_STORE(boost, QASIO_BOOST)
QASIO_SHOW(idle_us, QASIO_IDLE_US)
QASIO_STORE(idle_us, QASIO_IDLE_US)
QASIO_SHOW(async_wait_ms, QASIO_ASYNC_WAIT_MS)
QASIO_STORE(async_wait_ms, QASIO_ASYNC_WAIT_MS)
QASIO_SHOW(async_kib, QASIO_ASYNC_KIB)
QASIO_STORE(async_kib, QASIO_ASYNC_KIB)
QASIO_SHOW(sync_wait_ms, QASIO_SYNC_WAIT_MS)
QASIO_STORE(sync_wait_ms, QASIO_SYNC_WAIT_MS)
QASIO_SHOW(prio_aging_ms, QASIO_PRIO_AGING_MS)
QASIO_STORE(prio_aging_ms, QASIO_PRIO_AGING_MS)

#define QASIO_ATTR(name)	\
	__ATTR(name, 0644, qasio_##name##_show, qasio_##name##_store)

QASIO_ATTRS qasio_attrs[] = {
	QASIO_ATTR(boost),
	QASIO_ATTR(idle_us),
	QASIO_ATTR(async_wait_ms),
	QASIO_ATTR(async_kib),
	QASIO_ATTR(sync_wait_ms),
	QASIO_ATTR(prio_aging_ms),
	__ATTR_NULL
};

#ifdef CONFIG_BLK_DEBUG_FS
static struct elevator_type qasio_type;

static int qasio_state_show(void *data, struct seq_file *m)
{
	struct request_queue *q = data;
	struct qasio_queue *qd;
	enum qasio_kind kind;
	unsigned int i;

	if (!qasio_hold_elevator(q, &qasio_type))
		return 0;
	qd = qasio_of(q);
	spin_lock(&qd->lock);
	for (kind = 0; kind < QASIO_KINDS; kind++) {
		unsigned int queued = 0;

		for (i = 0; i < QASIO_LEVELS; i++)
			queued += list_count_nodes(&qd->level[i].list[kind].fifo);
		seq_printf(m, "%s %u\n", qasio_kind_names[kind], queued);
	}
	spin_unlock(&qd->lock);
	seq_printf(m, "in_flight %d\n", atomic_read(&qd->in_flight));
	seq_printf(m, "waited_for %d\n", qasio_waited_for(qd));
	seq_printf(m, "service_us %llu\n",
		   div_u64(READ_ONCE(qd->service_ns), NSEC_PER_USEC));
	qasio_release_elevator(q);
	return 0;
}

static const struct blk_mq_debugfs_attr qasio_debugfs_attrs[] = {
	{ "state", 0400, qasio_state_show },
	{ },
};
#endif

static struct elevator_type qasio_type = {
	.ops = {
		QASIO_DEPTH_OPS,
		.init_sched		= qasio_init_sched,
		.exit_sched		= qasio_exit_sched,
		.limit_depth		= qasio_limit,
		.prepare_request	= qasio_prepare_request,
		.insert_requests	= qasio_insert_requests,
		.dispatch_request	= qasio_dispatch_request,
		.has_work		= qasio_has_work,
		.requeue_request	= qasio_requeue_request,
		.finish_request		= qasio_finish_request,
		.allow_merge		= qasio_allow_merge,
		.bio_merge		= qasio_bio_merge,
		.request_merge		= qasio_request_merge,
		.request_merged		= qasio_request_merged,
		.requests_merged	= qasio_requests_merged,
		.next_request		= elv_rb_latter_request,
		.former_request		= elv_rb_former_request,
	},
#ifdef CONFIG_BLK_DEBUG_FS
	.queue_debugfs_attrs	= qasio_debugfs_attrs,
#endif
	.elevator_attrs		= qasio_attrs,
	.elevator_name		= "qasio",
	.elevator_owner		= THIS_MODULE,
};
MODULE_ALIAS("qasio-iosched");

static int __init qasio_init(void)
{
	int err = elv_register(&qasio_type);

	if (!err)
		qasio_watch();
	return err;
}

static void __exit qasio_exit(void)
{
	elv_unregister(&qasio_type);
	qasio_unwatch();
}

module_init(qasio_init);
module_exit(qasio_exit);

MODULE_DESCRIPTION("I/O scheduler that boosts asynchronous writes somebody waits for");
MODULE_LICENSE("GPL");
