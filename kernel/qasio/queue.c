// SPDX-License-Identifier: GPL-2.0
/*
 * The requests of a queue: their accounting, insertion and merging.
 */
#include <linux/bio.h>
#include <linux/ioprio.h>

#include "queue.h"

/* The weight of the newest request in the mean service time is one in so many. */
#define QASIO_SERVICE_WEIGHT	8

static const u8 qasio_level_of_class[] = {
	[IOPRIO_CLASS_NONE]	= QASIO_BE,
	[IOPRIO_CLASS_RT]	= QASIO_RT,
	[IOPRIO_CLASS_BE]	= QASIO_BE,
	[IOPRIO_CLASS_IDLE]	= QASIO_IDLE,
};

unsigned int qasio_level_of(unsigned short ioprio)
{
	return qasio_level_of_class[IOPRIO_PRIO_CLASS(ioprio)];
}

/*
 * Accounting
 */

static void qasio_count(struct qasio_level *level, unsigned long flags, int by)
{
	if (flags & QASIO_RQ_ALIVE)
		atomic_add(by, &level->alive);
	if (flags & QASIO_RQ_WAITED_FOR)
		atomic_add(by, &level->waited_for);
	if (flags & QASIO_RQ_SYNC)
		atomic_add(by, &level->sync);
}

/* @rq is of a level from now on, and alive. */
void qasio_count_level(struct qasio_queue *qd, struct request *rq,
		       unsigned int level)
{
	unsigned long was = qasio_flags(rq);
	unsigned long flags = (was & ~QASIO_RQ_LEVEL) | level | QASIO_RQ_ALIVE;

	qasio_count(&qd->level[level], flags, 1);
	qasio_count(qasio_level_of_flags(qd, was), was, -1);
	qasio_set_flags(rq, flags);
}

void qasio_count_waited_for(struct qasio_queue *qd, struct request *rq)
{
	unsigned long flags = qasio_flags(rq);
	unsigned long more = QASIO_RQ_WAITED_FOR;

	if (flags & QASIO_RQ_WAITED_FOR)
		return;
	if (!qasio_is_async(rq))
		more |= QASIO_RQ_SYNC;
	qasio_count(qasio_level_of_flags(qd, flags), more, 1);
	qasio_set_flags(rq, flags | more);
}

void qasio_count_in_flight(struct qasio_queue *qd, struct request *rq)
{
	unsigned long sectors = blk_rq_sectors(rq);

	rq->fifo_time = ktime_get_ns();
	atomic_inc(&qd->in_flight);
	atomic_add(sectors, &qd->in_flight_sectors);
	qasio_set_flags(rq, qasio_flags(rq) | QASIO_RQ_IN_FLIGHT |
			    sectors << QASIO_RQ_SECTORS);
}

void qasio_uncount_in_flight(struct qasio_queue *qd, struct request *rq)
{
	unsigned long flags = qasio_flags(rq);

	if (!(flags & QASIO_RQ_IN_FLIGHT))
		return;
	atomic_sub(flags >> QASIO_RQ_SECTORS, &qd->in_flight_sectors);
	atomic_dec(&qd->in_flight);
	flags &= (1UL << QASIO_RQ_SECTORS) - 1;
	qasio_set_flags(rq, flags & ~QASIO_RQ_IN_FLIGHT);
}

/* @rq, asynchronous, is done: how long was the device busy with it alone? */
void qasio_learn(struct qasio_queue *qd, struct request *rq, u64 now)
{
	u64 since = max(rq->fifo_time, READ_ONCE(qd->last_done));
	u64 mean = READ_ONCE(qd->service_ns);

	WRITE_ONCE(qd->last_done, now);
	if (since < now)
		WRITE_ONCE(qd->service_ns,
			   mean + div_s64(now - since - mean,
					  QASIO_SERVICE_WEIGHT));
}

/*
 * Queueing
 */

/* Requests of the kinds that are served in order of arrival are not sorted. */
void qasio_enqueue(struct qasio_queue *qd, struct request *rq,
		   unsigned int level, enum qasio_kind kind)
{
	struct qasio_list *list = &qd->level[level].list[kind];

	list_add_tail(&rq->queuelist, &list->fifo);
	rq->elv.priv[1] = list;
	qd->queued++;
	if (!qasio_is_backlog(kind))
		qasio_count_waited_for(qd, rq);
	if (qasio_is_async(rq) && !qd->async++)
		qd->backlog_moved = ktime_get_ns();
}

static void qasio_make_mergeable(struct request_queue *q, struct request *rq)
{
	elv_rb_add(&qasio_list_of(rq)->sort, rq);
	if (rq_mergeable(rq)) {
		elv_rqhash_add(q, rq);
		if (!q->last_merge)
			q->last_merge = rq;
	}
}

void qasio_dequeue(struct qasio_queue *qd, struct request *rq)
{
	struct request_queue *q = qd->q;
	struct qasio_list *list = qasio_list_of(rq);

	qasio_leave_place(qd, rq);
	list_del_init(&rq->queuelist);
	if (!RB_EMPTY_NODE(&rq->rb_node))
		elv_rb_del(&list->sort, rq);
	elv_rqhash_del(q, rq);
	if (q->last_merge == rq)
		q->last_merge = NULL;
	rq->elv.priv[1] = NULL;
	qd->queued--;
	if (qasio_is_async(rq))
		qd->async--;
}

/*
 * Merging
 */

int qasio_request_merge(struct request_queue *q, struct request **rq,
			struct bio *bio)
{
	struct qasio_queue *qd = qasio_of(q);
	struct qasio_level *level = &qd->level[qasio_level_of(bio->bi_ioprio)];
	struct qasio_list *list = &level->list[qasio_kind_of(bio->bi_opf)];
	struct request *next = elv_rb_find(&list->sort, bio_end_sector(bio));

	if (!next || !elv_bio_merge_ok(next, bio))
		return ELEVATOR_NO_MERGE;
	*rq = next;
	return blk_discard_mergable(next) ? ELEVATOR_DISCARD_MERGE :
					    ELEVATOR_FRONT_MERGE;
}

bool qasio_allow_merge(struct request_queue *q, struct request *rq,
		       struct bio *bio)
{
	return qasio_kind_of(rq->cmd_flags) == qasio_kind_of(bio->bi_opf);
}

/*
 * Do what the merges of a bio or request, if there were any, are reason for.  This
 * cannot be done when the kernel tells of each: it goes on to enter the request
 * into q->last_merge and the hash of those that take part in merges.
 */
static void qasio_settle_merges(struct qasio_queue *qd,
				struct qasio_caught *caught)
{
	struct request *rq = qd->grown;

	if (!rq)
		return;
	qd->grown = NULL;
	if (qd->grown_kind < qasio_list_of(rq)->kind) {
		qasio_promote(qd, rq, qd->grown_kind, QASIO_IDLE);
		caught->promoted = true;
	}
	qasio_catch(qd, rq, qd->grown_by, caught);
}

bool qasio_bio_merge(struct request_queue *q, struct bio *bio,
		     unsigned int nr_segs)
{
	struct qasio_queue *qd = qasio_of(q);
	struct qasio_caught caught = {};
	struct request *free = NULL;
	bool merged;

	spin_lock(&qd->lock);
	merged = blk_mq_sched_try_merge(q, bio, nr_segs, &free);
	qasio_settle_merges(qd, &caught);
	spin_unlock(&qd->lock);

	if (free)
		blk_mq_free_request(free);
	if (caught.parts)
		qasio_boost_parts(qd, &caught.wait);
	/* Nobody else does, as he does after an insertion. */
	if (caught.promoted)
		blk_mq_run_hw_queues(q, true);
	return merged;
}

void qasio_request_merged(struct request_queue *q, struct request *rq,
			  enum elv_merge type)
{
	struct qasio_queue *qd = qasio_of(q);

	if (type == ELEVATOR_FRONT_MERGE && !RB_EMPTY_NODE(&rq->rb_node)) {
		elv_rb_del(&qasio_list_of(rq)->sort, rq);
		elv_rb_add(&qasio_list_of(rq)->sort, rq);
	}
	qd->grown = rq;
	qd->grown_kind = qasio_list_of(rq)->kind;
	qd->grown_by = type == ELEVATOR_FRONT_MERGE ? rq->bio : rq->biotail;
}

/* @next, queued or about to be, became a part of @rq. */
void qasio_requests_merged(struct request_queue *q, struct request *rq,
			   struct request *next)
{
	struct qasio_queue *qd = qasio_of(q);
	struct qasio_list *list = qasio_list_of(next);
	enum qasio_kind kind = list ? list->kind :
				      qasio_kind_of(next->cmd_flags);

	lockdep_assert_held(&qd->lock);

	if (next == qd->grown)
		kind = min(kind, qd->grown_kind);
	if (list) {
		if (list == qasio_list_of(rq) &&
		    time_before((unsigned long)next->fifo_time,
				(unsigned long)rq->fifo_time)) {
			qasio_leave_place(qd, rq);
			list_move(&rq->queuelist, &next->queuelist);
			rq->fifo_time = next->fifo_time;
		}
		qasio_dequeue(qd, next);
	}
	qd->grown = rq;
	qd->grown_kind = min(kind, qasio_list_of(rq)->kind);
	qd->grown_by = NULL;
}

/*
 * Insertion
 */

/*
 * Memory of no file is a copy of what somebody may wait for, as of dm-crypt or of a
 * snapshot. No wait for it can be seen, so it is not held back either.
 */
static enum qasio_kind qasio_kind_at_insertion(struct request *rq)
{
	enum qasio_kind kind = qasio_kind_of(rq->cmd_flags);

	if (qasio_is_backlog(kind) && rq->bio && bio_has_data(rq->bio) &&
	    !qasio_about(rq->bio))
		return QASIO_FILE_WRITE;
	return kind;
}

static bool qasio_has_backlog(struct qasio_level *level)
{
	return !list_empty(&level->list[QASIO_META_WRITE].fifo) ||
	       !list_empty(&level->list[QASIO_ASYNC_WRITE].fifo);
}

static void qasio_insert_request(struct qasio_queue *qd, struct request *rq,
				 blk_insert_t flags, struct list_head *free,
				 struct qasio_caught *caught)
{
	enum qasio_kind kind = qasio_kind_at_insertion(rq);
	unsigned int level = qasio_level_of(req_get_ioprio(rq));
	struct request_queue *q = qd->q;

	lockdep_assert_held(&qd->lock);

	/*
	 * Discards may be merged with those of another kind: the kernel asks of bios alone,
	 * and would go on to merge what is queued without telling.
	 */
	if (!blk_discard_mergable(rq) &&
	    blk_mq_sched_try_insert_merge(q, rq, free)) {
		WRITE_ONCE(qd->blocked, false);
		qasio_settle_merges(qd, caught);
		return;
	}

	qasio_count_level(qd, rq, level);
	rq->fifo_time = jiffies;
	if (flags & BLK_MQ_INSERT_AT_HEAD) {
		list_add(&rq->queuelist, &qd->dispatch);
		qd->queued++;
		WRITE_ONCE(qd->blocked, false);
		return;
	}

	/* More backlog on one that is blocked changes nothing. */
	if (!qasio_is_backlog(kind) || !qasio_has_backlog(&qd->level[level]))
		WRITE_ONCE(qd->blocked, false);
	qasio_enqueue(qd, rq, level, kind);
	qasio_make_mergeable(q, rq);

	qasio_catch(qd, rq, NULL, caught);
}

/*
 * The kernel runs the queue afterwards, so who only is to end qasio_queue::blocked
 * need not.
 */
void qasio_insert_requests(struct blk_mq_hw_ctx *hctx, struct list_head *list,
			   blk_insert_t flags)
{
	struct qasio_queue *qd = qasio_of(hctx->queue);
	LIST_HEAD(free);

	/* Without the lock, nothing of ours may be left in the queue to keep @qd. */
	rcu_read_lock();
	spin_lock(&qd->lock);
	while (!list_empty(list)) {
		struct request *rq = list_first_entry(list, struct request,
						      queuelist);
		struct qasio_caught caught = {};

		list_del_init(&rq->queuelist);
		qasio_insert_request(qd, rq, flags, &free, &caught);
		if (caught.parts) {
			spin_unlock(&qd->lock);
			qasio_boost_parts(qd, &caught.wait);
			spin_lock(&qd->lock);
		}
	}
	spin_unlock(&qd->lock);
	rcu_read_unlock();

	blk_mq_free_requests(&free);
}
