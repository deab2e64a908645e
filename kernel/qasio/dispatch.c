// SPDX-License-Identifier: GPL-2.0
/*
 * What the driver gets next: the rules at the head of sched.c.
 */
#include "queue.h"

static struct request *qasio_first(struct qasio_list *list)
{
	return list_first_entry_or_null(&list->fifo, struct request, queuelist);
}

static bool qasio_waits_since(struct request *rq, unsigned int ms)
{
	return time_is_before_eq_jiffies((unsigned long)rq->fifo_time +
					 msecs_to_jiffies(ms));
}

/* The request at or after @pos, else the first one. */
static struct request *qasio_next_sorted(struct qasio_list *list, sector_t pos)
{
	struct rb_node *node = list->sort.rb_node;
	struct request *best = NULL;

	while (node) {
		struct request *rq = rb_entry_rq(node);

		if (blk_rq_pos(rq) >= pos) {
			best = rq;
			node = node->rb_left;
		} else {
			node = node->rb_right;
		}
	}
	return best ?: qasio_first(list);
}

static struct request *qasio_next_backlog(struct qasio_queue *qd,
					  struct qasio_level *level)
{
	struct qasio_list *list = &level->list[QASIO_META_WRITE];
	struct request *rq = qasio_first(list);
	struct request *async = qasio_first(&level->list[QASIO_ASYNC_WRITE]);

	if (!rq || (async && qasio_waits_since(async, QASIO_PASS_EXPIRE_MS) &&
		    time_before((unsigned long)async->fifo_time,
				(unsigned long)rq->fifo_time))) {
		list = &level->list[QASIO_ASYNC_WRITE];
		rq = async;
	}
	if (!rq || qasio_waits_since(rq, QASIO_PASS_EXPIRE_MS))
		return rq;
	return qasio_next_sorted(list, qd->backlog_pos);
}

/* Whether it is time @at; if not, the queue will be run then. */
static bool qasio_reached(struct qasio_queue *qd, u64 at)
{
	u64 expires = ktime_to_ns(hrtimer_get_expires(&qd->timer));
	u64 now = ktime_get_ns();

	if (at <= now)
		return true;
	/* The earliest of several times, but not one that has come already. */
	if (!hrtimer_active(&qd->timer) || expires > at || expires <= now)
		hrtimer_start(&qd->timer, ns_to_ktime(at), HRTIMER_MODE_ABS);
	return false;
}

/* How long to wait for the next link of a chain: no longer than it could lose. */
static u64 qasio_idle_ns(struct qasio_queue *qd)
{
	return min((u64)qasio_get(qd, QASIO_IDLE_US) * NSEC_PER_USEC,
		   READ_ONCE(qd->service_ns));
}

/* Can the driver have one more asynchronous request at all? */
static bool qasio_has_tag(struct qasio_queue *qd)
{
	unsigned int in_flight = atomic_read(&qd->in_flight);

	return !in_flight || in_flight < qd->q->tag_set->queue_depth;
}

/* May the driver have @rq, which is asynchronous, as far as it has others? */
static bool qasio_has_room(struct qasio_queue *qd, struct request *rq)
{
	unsigned int kib = atomic_read(&qd->in_flight_sectors) / 2;

	return !atomic_read(&qd->in_flight) ||
	       (qasio_has_tag(qd) &&
		kib + blk_rq_bytes(rq) / SZ_1K <= qasio_get(qd, QASIO_ASYNC_KIB));
}

/*
 * struct qasio_waits - who waits, or did, for requests of a level or of a better one
 *
 * Those of a worse one do not count: they come behind whatever is of this level,
 * which must then not stand back for them.
 */
struct qasio_waits {
	bool waited_for;
	bool recent;
	bool sync;
	u64 last_waited_for;
	u64 last_sync;
};

static struct qasio_waits qasio_waits_of(struct qasio_queue *qd,
					 struct qasio_level *upto)
{
	struct qasio_waits waits = {};
	struct qasio_level *level;

	for (level = qd->level; level <= upto; level++) {
		waits.waited_for |= !!atomic_read(&level->waited_for);
		waits.recent |= time_is_after_jiffies(QASIO_RECENT +
				READ_ONCE(level->last_waited_for_jiffies));
		waits.sync |= !!atomic_read(&level->sync);
		waits.last_waited_for = max(waits.last_waited_for,
					    READ_ONCE(level->last_waited_for));
		waits.last_sync = max(waits.last_sync,
				      READ_ONCE(level->last_sync));
	}
	return waits;
}

/*
 * May the driver have @rq, of the backlog of @level?  If only time is in the way,
 * the timer is set.
 */
static bool qasio_backlog_may_go(struct qasio_queue *qd,
				 struct qasio_level *level, struct request *rq)
{
	struct qasio_waits waits = qasio_waits_of(qd, level);
	u64 at;

	if (!waits.waited_for && !waits.recent)
		return qasio_has_room(qd, rq);

	/* Then what the driver has of others is no reason. */
	at = qd->backlog_moved +
	     (u64)qasio_get(qd, QASIO_ASYNC_WAIT_MS) * NSEC_PER_MSEC;
	if (qasio_reached(qd, at))
		return qasio_has_tag(qd);
	if (waits.waited_for || atomic_read(&qd->in_flight))
		return false;
	return qasio_reached(qd, waits.last_waited_for + qasio_idle_ns(qd));
}

/* May the driver have @rq of @level, which is asynchronous and waited for? */
static bool qasio_boosted_may_go(struct qasio_queue *qd,
				 struct qasio_level *level, struct request *rq)
{
	struct qasio_waits waits;
	u64 at;

	if (blk_rq_bytes(rq) <= QASIO_SMALL)
		return true;
	if (!qasio_has_room(qd, rq))
		return false;
	at = READ_ONCE(qd->last_done) + QASIO_TURN * READ_ONCE(qd->service_ns);
	waits = qasio_waits_of(qd, level);
	if (!waits.sync)
		at = min(at, waits.last_sync + qasio_idle_ns(qd));
	return qasio_reached(qd, at);
}

/* The first boosted request that may go: a large one does not hold up others. */
static struct request *qasio_next_boosted(struct qasio_queue *qd,
					  struct qasio_level *level)
{
	struct request *rq;

	list_for_each_entry(rq, &level->list[QASIO_BOOSTED].fifo, queuelist)
		if (qasio_boosted_may_go(qd, level, rq))
			return rq;
	return NULL;
}

/* Has @rq waited for @ms, and is it as long ago that one of its kind @moved? */
static bool qasio_is_due(struct request *rq, unsigned int ms, unsigned long moved)
{
	return qasio_waits_since(rq, ms) &&
	       time_is_before_eq_jiffies(moved + msecs_to_jiffies(ms));
}

/* A boosted or file request that has let others pass for long enough. */
static struct request *qasio_next_due(struct qasio_queue *qd,
				      struct qasio_level *level)
{
	struct request *rq = qasio_first(&level->list[QASIO_BOOSTED]);
	struct request *file = qasio_first(&level->list[QASIO_FILE_WRITE]);
	unsigned int ms = qasio_get(qd, QASIO_ASYNC_WAIT_MS);

	if (!rq || (file && qasio_waits_since(file, QASIO_PASS_EXPIRE_MS)))
		rq = file;
	if (!rq || !qasio_has_room(qd, rq) ||
	    !qasio_is_due(rq, ms, qd->waited_for_moved))
		return NULL;
	qd->waited_for_moved = jiffies;
	return rq;
}

/* The oldest request of a level that is of one of these kinds. */
static struct request *qasio_oldest(struct qasio_level *level,
				    enum qasio_kind from, enum qasio_kind to)
{
	struct request *oldest = NULL;
	enum qasio_kind kind;

	for (kind = from; kind <= to; kind++) {
		struct request *rq = qasio_first(&level->list[kind]);

		if (rq && (!oldest || time_before((unsigned long)rq->fifo_time,
						  (unsigned long)oldest->fifo_time)))
			oldest = rq;
	}
	return oldest;
}

/* A read or sync write that has stood behind what is boosted for long enough. */
static struct request *qasio_next_passed(struct qasio_queue *qd,
					 struct qasio_level *level)
{
	struct request *rq = qasio_oldest(level, QASIO_READ, QASIO_SYNC_WRITE);

	if (!rq || list_empty(&level->list[QASIO_BOOSTED].fifo) ||
	    !qasio_is_due(rq, qasio_get(qd, QASIO_SYNC_WAIT_MS),
			  qd->passed_moved))
		return NULL;
	qd->passed_moved = jiffies;
	return rq;
}

static struct request *qasio_next_of_level(struct qasio_queue *qd,
					   struct qasio_level *level)
{
	struct request *waited_for;
	struct request *read = qasio_first(&level->list[QASIO_READ]);
	struct request *sync = qasio_first(&level->list[QASIO_SYNC_WRITE]);
	struct request *file = qasio_first(&level->list[QASIO_FILE_WRITE]);
	struct request *backlog = qasio_next_backlog(qd, level);

	/* With nothing else queued this also sets the timer. */
	if (backlog && qasio_backlog_may_go(qd, level, backlog))
		return backlog;
	waited_for = qasio_next_passed(qd, level) ?:
		     qasio_next_boosted(qd, level) ?: qasio_next_due(qd, level);
	if (waited_for)
		return waited_for;
	if (!read && !sync)
		return file && qasio_boosted_may_go(qd, level, file) ? file : NULL;
	if (!read || !sync)
		return read ?: sync;

	if (!qd->sync_left) {
		if (!qasio_is_due(sync, qasio_get(qd, QASIO_SYNC_WAIT_MS), qd->sync_moved))
			return read;
		qd->sync_left = QASIO_SYNC_BATCH;
	}
	qd->sync_left--;
	qd->sync_moved = jiffies;
	return sync;
}

static struct request *qasio_next(struct qasio_queue *qd)
{
	struct request *rq;
	unsigned int i;

	for (i = QASIO_BE; i < QASIO_LEVELS; i++) {
		if (!atomic_read(&qd->level[i - 1].alive) &&
		    !atomic_read(&qd->level[QASIO_RT].alive))
			continue;
		rq = qasio_oldest(&qd->level[i], 0, QASIO_KINDS - 1);
		if (rq && qasio_waits_since(rq, qasio_get(qd, QASIO_PRIO_AGING_MS)))
			return rq;
	}
	for (i = 0; i < QASIO_LEVELS; i++) {
		rq = qasio_next_of_level(qd, &qd->level[i]);
		if (rq || atomic_read(&qd->level[i].alive))
			return rq;
	}
	return NULL;
}

static struct request *qasio_take(struct qasio_queue *qd)
{
	struct request *rq = list_first_entry_or_null(&qd->dispatch,
						      struct request, queuelist);
	bool backlog = false;

	if (rq) {
		list_del_init(&rq->queuelist);
		qd->queued--;
	} else {
		rq = qasio_next(qd);
		if (!rq)
			return NULL;
		backlog = qasio_is_backlog(qasio_list_of(rq)->kind);
		qasio_dequeue(qd, rq);
	}
	if (qasio_is_async(rq))
		qasio_count_in_flight(qd, rq);
	if (backlog) {
		qd->backlog_pos = blk_rq_pos(rq) + blk_rq_sectors(rq);
		qd->backlog_moved = rq->fifo_time;
	}
	rq->rq_flags |= RQF_STARTED;
	return rq;
}

struct request *qasio_dispatch_request(struct blk_mq_hw_ctx *hctx)
{
	struct qasio_queue *qd = qasio_of(hctx->queue);
	struct request *rq;

	spin_lock(&qd->lock);
	rq = qasio_take(qd);
	if (!rq && qd->queued) {
		WRITE_ONCE(qd->blocked, true);
		/* Pairs with that in qasio_wake(). */
		smp_mb();
		rq = qasio_take(qd);
		if (rq)
			WRITE_ONCE(qd->blocked, false);
	}
	spin_unlock(&qd->lock);
	return rq;
}

bool qasio_has_work(struct blk_mq_hw_ctx *hctx)
{
	struct qasio_queue *qd = qasio_of(hctx->queue);

	return READ_ONCE(qd->queued) && !READ_ONCE(qd->blocked);
}

/* Something changed in the counters that a dispatch has looked at. */
void qasio_wake(struct qasio_queue *qd)
{
	/* Pairs with that in qasio_dispatch_request(). */
	smp_mb();
	if (READ_ONCE(qd->blocked)) {
		WRITE_ONCE(qd->blocked, false);
		blk_mq_run_hw_queues(qd->q, true);
	}
}
