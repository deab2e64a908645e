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
 *   sync	writes with REQ_SYNC, REQ_FUA or REQ_PREFLUSH
 *   file	other writes to a file that somebody waits for, see Boosting
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
 * So nothing starves: of sync writes that wait behind reads QASIO_SYNC_BATCH go
 * every sync_wait_ms; of what is boosted or of the kind file one request goes every
 * async_wait_ms, and of the backlog another; within the latter, and a file request
 * by boosted ones, a request is passed for QASIO_PASS_EXPIRE_MS at most; and a level
 * waits for those above it for prio_aging_ms at most.
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
 * wait.c sees that a wait begins.  It notes the wait in a table, then looks
 * through the asynchronous writes of each queue; qasio_catch() looks into the
 * table when a request is inserted or grows by a merge.  Both is done with
 * qasio_queue::lock held, so one of the two finds the request, however insertion
 * and wait meet: a wait that begins while the request is still in a plug or waits
 * for a tag is not missed.  A request that the driver has already is beyond help.
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
 *  - Merging: happens under qasio_queue::lock.  What is merged into a boosted
 *    request, or a boosted one into another, keeps the better kind.
 *  - Switching schedulers: wait.c walks the list of queues under RCU, and
 *    qasio_exit_sched() waits for a grace period before it frees one.
 *  - Unloading: needs that no queue uses the module; qasio_unwatch() then waits
 *    for the last probe to return.
 *
 * Locks nest as follows: qasio_queue::lock, then that of the table.  Neither is
 * taken in interrupts; requests complete in interrupts and use atomic counters.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bio.h>
#include <linux/ioprio.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/rculist.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "compat.h"
#include "qasio.h"

/* For how long after synchronous I/O the next is expected. */
#define QASIO_RECENT		(HZ / 10)
/* For how long a request may be passed by others in sector order or boosted. */
#define QASIO_PASS_EXPIRE_MS	5000
/* So many sync writes follow each other before reads go first again. */
#define QASIO_SYNC_BATCH	16
/* Up to so many bytes a request that is waited for need not let others pass. */
#define QASIO_SMALL		SZ_64K
/* For how many times its own time a larger one does. */
#define QASIO_TURN		2
/* The weight of the newest request in the mean service time is one in so many. */
#define QASIO_SERVICE_WEIGHT	8

/*
 * What can be set under queue/iosched/, with defaults and the reasons for them
 * in docs/qasio.md.
 */
enum qasio_tunable {
	QASIO_BOOST,
	QASIO_IDLE_US,
	QASIO_ASYNC_WAIT_MS,
	QASIO_ASYNC_KIB,
	QASIO_SYNC_WAIT_MS,
	QASIO_PRIO_AGING_MS,
	QASIO_TUNABLES
};

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

enum qasio_kind {
	QASIO_BOOSTED,
	QASIO_READ,
	QASIO_SYNC_WRITE,
	QASIO_FILE_WRITE,
	QASIO_META_WRITE,
	QASIO_ASYNC_WRITE,
	QASIO_KINDS
};

static const char * const qasio_kind_names[] = {
	[QASIO_BOOSTED]		= "boosted",
	[QASIO_READ]		= "read",
	[QASIO_SYNC_WRITE]	= "sync",
	[QASIO_FILE_WRITE]	= "file",
	[QASIO_META_WRITE]	= "meta",
	[QASIO_ASYNC_WRITE]	= "async",
};

/* The levels, best first, and which ioprio class is of which. */
enum { QASIO_RT, QASIO_BE, QASIO_IDLE, QASIO_LEVELS };

static const u8 qasio_level_of_class[] = {
	[IOPRIO_CLASS_NONE]	= QASIO_BE,
	[IOPRIO_CLASS_RT]	= QASIO_RT,
	[IOPRIO_CLASS_BE]	= QASIO_BE,
	[IOPRIO_CLASS_IDLE]	= QASIO_IDLE,
};

/**
 * struct qasio_list - the queued requests of one level and kind
 * @fifo: in the order of arrival
 * @sort: those that can be merged, by sector
 * @kind: their kind
 */
struct qasio_list {
	struct list_head fifo;
	struct rb_root sort;
	enum qasio_kind kind;
};

/**
 * struct qasio_level - the requests of one ioprio class
 * @list: those queued, by kind
 * @alive: those inserted and not yet completed
 */
struct qasio_level {
	struct qasio_list list[QASIO_KINDS];
	atomic_t alive;
};

/**
 * struct qasio_queue - the scheduler of one request queue
 * @q: the request queue
 * @node: in qasio_queues
 * @lock: protects what is not atomic and not read by others
 * @dispatch: requests that the driver gave back
 * @level: all other queued requests
 * @queued: how many are queued
 * @async: how many of these are asynchronous writes, of any kind
 * @blocked: a dispatch found nothing that may go; completion or @timer ends it
 * @timer: runs the queue when time has made something dispatchable
 * @backlog_pos: where the last backlog request ended
 * @sync_left: how many sync writes may still pass the reads
 * @sync_moved: when one last did, in jiffies
 * @waited_for_moved: when a boosted or file request last did, in jiffies
 * @backlog_moved: when one was last dispatched, or the first was queued, in ns
 * @in_flight: asynchronous writes that the driver has
 * @in_flight_sectors: what they write
 * @waited_for: requests alive that somebody waits for
 * @last_waited_for: when the last of these completed, in ns, if anything
 *		     asynchronous was queued then
 * @last_waited_for_jiffies: the same, coarser, in any case
 * @sync: of those waited for, the synchronous ones
 * @last_sync: as @last_waited_for, for these
 * @last_done: when the last asynchronous request completed, in ns
 * @service_ns: mean time for which one occupies the device
 * @tunable: what can be set
 */
struct qasio_queue {
	struct request_queue *q;
	struct list_head node;

	spinlock_t lock; /* see the head of this file */
	struct list_head dispatch;
	struct qasio_level level[QASIO_LEVELS];
	unsigned int queued;
	unsigned int async;
	bool blocked;
	struct hrtimer timer;
	sector_t backlog_pos;
	unsigned int sync_left;
	unsigned long sync_moved;
	unsigned long waited_for_moved;
	u64 backlog_moved;

	atomic_t in_flight;
	atomic_t in_flight_sectors;
	atomic_t waited_for;
	u64 last_waited_for;
	unsigned long last_waited_for_jiffies;
	atomic_t sync;
	u64 last_sync;
	u64 last_done;
	u64 service_ns;

	unsigned int tunable[QASIO_TUNABLES];
};

static LIST_HEAD(qasio_queues);
static DEFINE_SPINLOCK(qasio_queues_lock);

/*
 * What a request is accounted for, kept in rq->elv.priv[0]; the list that it is
 * queued in, or NULL, is in rq->elv.priv[1].
 *
 * rq->fifo_time is when it was inserted, in jiffies, and for an asynchronous one
 * that the driver has, when it was dispatched, in ns.
 */
#define QASIO_RQ_LEVEL		0x3UL		/* its level; valid if ALIVE */
#define QASIO_RQ_ALIVE		0x4UL		/* in qasio_level::alive */
#define QASIO_RQ_WAITED_FOR	0x8UL		/* in qasio_queue::waited_for */
#define QASIO_RQ_SYNC		0x10UL		/* in qasio_queue::sync */
#define QASIO_RQ_IN_FLIGHT	0x20UL		/* in qasio_queue::in_flight */
#define QASIO_RQ_SECTORS	8		/* shift: sectors in flight */

static unsigned long qasio_flags(struct request *rq)
{
	return (unsigned long)rq->elv.priv[0];
}

static void qasio_set_flags(struct request *rq, unsigned long flags)
{
	rq->elv.priv[0] = (void *)flags;
}

static struct qasio_list *qasio_list_of(struct request *rq)
{
	return rq->elv.priv[1];
}

static enum qasio_kind qasio_kind_of(blk_opf_t opf)
{
	if (!op_is_write(opf))
		return QASIO_READ;
	if (op_is_sync(opf))
		return QASIO_SYNC_WRITE;
	return opf & (REQ_META | REQ_PRIO) ? QASIO_META_WRITE :
					     QASIO_ASYNC_WRITE;
}

static bool qasio_is_backlog(enum qasio_kind kind)
{
	return kind >= QASIO_META_WRITE;
}

/* Whether it was sent by write-back, waited for or not. */
static bool qasio_is_async(struct request *rq)
{
	return qasio_is_backlog(qasio_kind_of(rq->cmd_flags));
}

static unsigned int qasio_level_of(unsigned short ioprio)
{
	return qasio_level_of_class[IOPRIO_PRIO_CLASS(ioprio)];
}

static struct qasio_queue *qasio_of(struct request_queue *q)
{
	return q->elevator->elevator_data;
}

static unsigned int qasio_get(struct qasio_queue *qd, enum qasio_tunable which)
{
	return READ_ONCE(qd->tunable[which]);
}

/*
 * Accounting
 */

static void qasio_count_level(struct qasio_queue *qd, struct request *rq,
			      unsigned int level)
{
	unsigned long flags = qasio_flags(rq);

	if (flags & QASIO_RQ_ALIVE)
		atomic_dec(&qd->level[flags & QASIO_RQ_LEVEL].alive);
	atomic_inc(&qd->level[level].alive);
	flags &= ~QASIO_RQ_LEVEL;
	qasio_set_flags(rq, flags | level | QASIO_RQ_ALIVE);
}

static void qasio_count_waited_for(struct qasio_queue *qd, struct request *rq)
{
	unsigned long flags = qasio_flags(rq);

	if (flags & QASIO_RQ_WAITED_FOR)
		return;
	atomic_inc(&qd->waited_for);
	flags |= QASIO_RQ_WAITED_FOR;
	if (!qasio_is_async(rq)) {
		atomic_inc(&qd->sync);
		flags |= QASIO_RQ_SYNC;
	}
	qasio_set_flags(rq, flags);
}

static void qasio_count_in_flight(struct qasio_queue *qd, struct request *rq)
{
	unsigned long sectors = blk_rq_sectors(rq);

	rq->fifo_time = ktime_get_ns();
	atomic_inc(&qd->in_flight);
	atomic_add(sectors, &qd->in_flight_sectors);
	qasio_set_flags(rq, qasio_flags(rq) | QASIO_RQ_IN_FLIGHT |
			    sectors << QASIO_RQ_SECTORS);
}

static void qasio_uncount_in_flight(struct qasio_queue *qd, struct request *rq)
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
static void qasio_learn(struct qasio_queue *qd, struct request *rq, u64 now)
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
static void qasio_enqueue(struct qasio_queue *qd, struct request *rq,
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

static void qasio_dequeue(struct qasio_queue *qd, struct request *rq)
{
	struct request_queue *q = qd->q;
	struct qasio_list *list = qasio_list_of(rq);

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

/* Make @rq, which is queued, of a better kind; it takes part in no more merges. */
static void qasio_promote(struct qasio_queue *qd, struct request *rq,
			  enum qasio_kind kind, unsigned int level)
{
	level = min_t(unsigned int, level, qasio_flags(rq) & QASIO_RQ_LEVEL);
	qasio_dequeue(qd, rq);
	qasio_count_level(qd, rq, level);
	rq->fifo_time = jiffies;
	qasio_enqueue(qd, rq, level, kind);
	WRITE_ONCE(qd->blocked, false);
}

/*
 * @rq, which is asynchronous, has to do with @wait as @match says; @ahead others
 * would go before it.
 */
static void qasio_boost(struct qasio_queue *qd, struct request *rq,
			const struct qasio_wait *wait, enum qasio_match match,
			bool late, unsigned int ahead)
{
	unsigned int level = qasio_level_of(wait->ioprio);

	if (match >= QASIO_SAME_BIO) {
		qasio_promote(qd, rq, QASIO_BOOSTED, level);
		qasio_count_boost(rq, wait, match, late, ahead,
				  ahead * READ_ONCE(qd->service_ns));
	} else if (match == QASIO_SAME_FILE &&
		   qasio_is_backlog(qasio_list_of(rq)->kind)) {
		qasio_promote(qd, rq, QASIO_FILE_WRITE, level);
		qasio_count_same_file();
	}
}

/* Boost what of the queued has to do with @wait; the best match found. */
static enum qasio_match qasio_boost_all(struct qasio_queue *qd,
					struct qasio_wait *wait)
{
	enum qasio_match found = QASIO_NO_MATCH;
	unsigned int ahead = 0, i;

	for (i = 0; i < QASIO_LEVELS * QASIO_KINDS && qd->async; i++) {
		struct qasio_list *list = &qd->level[i / QASIO_KINDS]
					      .list[i % QASIO_KINDS];
		struct request *rq, *next;

		if (list->kind < QASIO_FILE_WRITE)
			continue;
		list_for_each_entry_safe(rq, next, &list->fifo, queuelist) {
			enum qasio_match match = qasio_match(rq, wait);

			found = max(found, match);
			qasio_boost(qd, rq, wait, match, false, ahead++);
			if (match == QASIO_MATCH && !wait->whole_file)
				return found;
		}
	}
	return found;
}

/* @wait is for a bio that was split: boost its other parts, now and when they come. */
static void qasio_boost_parts(struct qasio_queue *qd, struct qasio_wait *wait)
{
	qasio_boost_all(qd, wait);
	qasio_note_split(wait);
}

/*
 * @rq, which is queued, writes something that was not in the queue before: is
 * it waited for already?
 */
static void qasio_catch(struct qasio_queue *qd, struct request *rq)
{
	enum qasio_match match;
	struct qasio_wait wait;

	if (!qasio_is_backlog(qasio_list_of(rq)->kind) ||
	    !qasio_get(qd, QASIO_BOOST) || !qasio_waits_pending())
		return;
	match = qasio_find_wait(rq, &wait);
	if (match == QASIO_NO_MATCH)
		return;
	qasio_boost(qd, rq, &wait, match, true, qd->async - 1);
	if (match == QASIO_MATCH && wait.split)
		qasio_boost_parts(qd, &wait);
}

/*
 * Merging
 */

static int qasio_request_merge(struct request_queue *q, struct request **rq,
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

static bool qasio_allow_merge(struct request_queue *q, struct request *rq,
			      struct bio *bio)
{
	return qasio_kind_of(rq->cmd_flags) == qasio_kind_of(bio->bi_opf);
}

static bool qasio_bio_merge(struct request_queue *q, struct bio *bio,
			    unsigned int nr_segs)
{
	struct qasio_queue *qd = qasio_of(q);
	struct request *free = NULL;
	bool merged;

	spin_lock(&qd->lock);
	merged = blk_mq_sched_try_merge(q, bio, nr_segs, &free);
	spin_unlock(&qd->lock);

	if (free)
		blk_mq_free_request(free);
	return merged;
}

static void qasio_request_merged(struct request_queue *q, struct request *rq,
				 enum elv_merge type)
{
	if (type == ELEVATOR_FRONT_MERGE && !RB_EMPTY_NODE(&rq->rb_node)) {
		elv_rb_del(&qasio_list_of(rq)->sort, rq);
		elv_rb_add(&qasio_list_of(rq)->sort, rq);
	}
	qasio_catch(qasio_of(q), rq);
}

/* @next, queued or about to be, became a part of @rq. */
static void qasio_requests_merged(struct request_queue *q, struct request *rq,
				  struct request *next)
{
	struct qasio_queue *qd = qasio_of(q);
	struct qasio_list *list = qasio_list_of(next);
	enum qasio_kind kind = list ? list->kind :
				      qasio_kind_of(next->cmd_flags);

	lockdep_assert_held(&qd->lock);

	if (list) {
		if (list == qasio_list_of(rq) &&
		    time_before((unsigned long)next->fifo_time,
				(unsigned long)rq->fifo_time)) {
			list_move(&rq->queuelist, &next->queuelist);
			rq->fifo_time = next->fifo_time;
		}
		qasio_dequeue(qd, next);
	}
	if (kind < qasio_list_of(rq)->kind)
		qasio_promote(qd, rq, kind, QASIO_IDLE);
	qasio_catch(qd, rq);
}

/*
 * Insertion
 */

static void qasio_insert_request(struct qasio_queue *qd, struct request *rq,
				 blk_insert_t flags, struct list_head *free)
{
	enum qasio_kind kind = qasio_kind_of(rq->cmd_flags);
	unsigned int level = qasio_level_of(req_get_ioprio(rq));
	struct request_queue *q = qd->q;

	lockdep_assert_held(&qd->lock);

	if (blk_mq_sched_try_insert_merge(q, rq, free)) {
		WRITE_ONCE(qd->blocked, false);
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

	/* More backlog on a blocked one changes nothing. */
	if (!qasio_is_backlog(kind) || !qd->async)
		WRITE_ONCE(qd->blocked, false);
	qasio_enqueue(qd, rq, level, kind);
	qasio_make_mergeable(q, rq);

	qasio_catch(qd, rq);
}

static void qasio_insert_requests(struct blk_mq_hw_ctx *hctx,
				  struct list_head *list, blk_insert_t flags)
{
	struct qasio_queue *qd = qasio_of(hctx->queue);
	LIST_HEAD(free);

	spin_lock(&qd->lock);
	while (!list_empty(list)) {
		struct request *rq = list_first_entry(list, struct request,
						      queuelist);

		list_del_init(&rq->queuelist);
		qasio_insert_request(qd, rq, flags, &free);
	}
	spin_unlock(&qd->lock);

	blk_mq_free_requests(&free);
}

/*
 * Boosting
 */

static enum qasio_match qasio_boost_in(struct qasio_queue *qd,
				       struct qasio_wait *wait)
{
	enum qasio_match found;

	spin_lock(&qd->lock);
	found = qasio_boost_all(qd, wait);
	if (found == QASIO_MATCH && wait->split)
		qasio_boost_parts(qd, wait);
	spin_unlock(&qd->lock);
	return found;
}

/**
 * qasio_boost_queued() - boost the request that a task waits for
 * @wait: the wait
 *
 * Context: Process context, may be called with preemption disabled.
 * Return: whether it was in a queue.
 */
bool qasio_boost_queued(struct qasio_wait *wait)
{
	enum qasio_match match;
	struct qasio_queue *qd;
	bool found = false;

	rcu_read_lock();
	list_for_each_entry_rcu(qd, &qasio_queues, node) {
		if (!qasio_get(qd, QASIO_BOOST) || !READ_ONCE(qd->async))
			continue;
		match = qasio_boost_in(qd, wait);
		if (match != QASIO_NO_MATCH)
			blk_mq_run_hw_queues(qd->q, true);
		if (match == QASIO_MATCH)
			found = true;
	}
	rcu_read_unlock();
	return found;
}

/* Whether there is anything to boost in. */
bool qasio_in_use(void)
{
	return !list_empty(&qasio_queues);
}

/*
 * Dispatch
 */

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

	if (!rq) {
		list = &level->list[QASIO_ASYNC_WRITE];
		rq = qasio_first(list);
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

/* May the driver have @rq, which is asynchronous, as far as it has others? */
static bool qasio_has_room(struct qasio_queue *qd, struct request *rq)
{
	unsigned int in_flight = atomic_read(&qd->in_flight);
	unsigned int kib = atomic_read(&qd->in_flight_sectors) / 2;

	return !in_flight ||
	       (in_flight < qd->q->tag_set->queue_depth &&
		kib + blk_rq_bytes(rq) / SZ_1K <= qasio_get(qd, QASIO_ASYNC_KIB));
}

/*
 * May the driver have @rq, of the backlog?  If only time is in the way, the
 * timer is set.
 */
static bool qasio_backlog_may_go(struct qasio_queue *qd, struct request *rq)
{
	bool recent = time_is_after_jiffies(READ_ONCE(qd->last_waited_for_jiffies) +
					    QASIO_RECENT);
	bool waited_for = atomic_read(&qd->waited_for);
	u64 at;

	if (!qasio_has_room(qd, rq) ||
	    (atomic_read(&qd->in_flight) && (recent || waited_for)))
		return false;
	if (!waited_for && !recent)
		return true;

	at = qd->backlog_moved +
	     (u64)qasio_get(qd, QASIO_ASYNC_WAIT_MS) * NSEC_PER_MSEC;
	if (!waited_for)
		at = min(at, READ_ONCE(qd->last_waited_for) + qasio_idle_ns(qd));
	return qasio_reached(qd, at);
}

/* May the driver have @rq, which is asynchronous and waited for? */
static bool qasio_boosted_may_go(struct qasio_queue *qd, struct request *rq)
{
	u64 at;

	if (blk_rq_bytes(rq) <= QASIO_SMALL)
		return true;
	if (!qasio_has_room(qd, rq))
		return false;
	at = READ_ONCE(qd->last_done) + QASIO_TURN * READ_ONCE(qd->service_ns);
	if (!atomic_read(&qd->sync))
		at = min(at, READ_ONCE(qd->last_sync) + qasio_idle_ns(qd));
	return qasio_reached(qd, at);
}

/* The first boosted request that may go: a large one does not hold up others. */
static struct request *qasio_next_boosted(struct qasio_queue *qd,
					  struct qasio_level *level)
{
	struct request *rq;

	list_for_each_entry(rq, &level->list[QASIO_BOOSTED].fifo, queuelist)
		if (qasio_boosted_may_go(qd, rq))
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

static struct request *qasio_next_of_level(struct qasio_queue *qd,
					   struct qasio_level *level)
{
	struct request *waited_for;
	struct request *read = qasio_first(&level->list[QASIO_READ]);
	struct request *sync = qasio_first(&level->list[QASIO_SYNC_WRITE]);
	struct request *file = qasio_first(&level->list[QASIO_FILE_WRITE]);
	struct request *backlog = qasio_next_backlog(qd, level);

	/* With nothing else queued this also sets the timer. */
	if (backlog && qasio_backlog_may_go(qd, backlog))
		return backlog;
	waited_for = qasio_next_boosted(qd, level) ?: qasio_next_due(qd, level);
	if (waited_for)
		return waited_for;
	if (!read && !sync)
		return file && qasio_boosted_may_go(qd, file) ? file : NULL;
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

/* The oldest request of a level. */
static struct request *qasio_oldest(struct qasio_level *level)
{
	struct request *oldest = NULL;
	enum qasio_kind kind;

	for (kind = 0; kind < QASIO_KINDS; kind++) {
		struct request *rq = qasio_first(&level->list[kind]);

		if (rq && (!oldest || time_before((unsigned long)rq->fifo_time,
						  (unsigned long)oldest->fifo_time)))
			oldest = rq;
	}
	return oldest;
}

static struct request *qasio_next(struct qasio_queue *qd)
{
	struct request *rq;
	unsigned int i;

	for (i = QASIO_BE; i < QASIO_LEVELS; i++) {
		if (!atomic_read(&qd->level[i - 1].alive) &&
		    !atomic_read(&qd->level[QASIO_RT].alive))
			continue;
		rq = qasio_oldest(&qd->level[i]);
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

static struct request *qasio_dispatch_request(struct blk_mq_hw_ctx *hctx)
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

static bool qasio_has_work(struct blk_mq_hw_ctx *hctx)
{
	struct qasio_queue *qd = qasio_of(hctx->queue);

	return READ_ONCE(qd->queued) && !READ_ONCE(qd->blocked);
}

/* Something changed in the counters that a dispatch has looked at. */
static void qasio_wake(struct qasio_queue *qd)
{
	/* Pairs with that in qasio_dispatch_request(). */
	smp_mb();
	if (READ_ONCE(qd->blocked)) {
		WRITE_ONCE(qd->blocked, false);
		blk_mq_run_hw_queues(qd->q, true);
	}
}

static enum hrtimer_restart qasio_timer_fn(struct hrtimer *timer)
{
	qasio_wake(container_of(timer, struct qasio_queue, timer));
	return HRTIMER_NORESTART;
}

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

static void qasio_requeue_request(struct request *rq)
{
	qasio_uncount_in_flight(qasio_of(rq->q), rq);
}

static void qasio_finish_request(struct request *rq)
{
	struct qasio_queue *qd = qasio_of(rq->q);
	unsigned long flags = qasio_flags(rq);
	bool wake = false;

	if (flags & QASIO_RQ_IN_FLIGHT) {
		qasio_learn(qd, rq, ktime_get_ns());
		qasio_uncount_in_flight(qd, rq);
		wake = true;
	}
	if (flags & QASIO_RQ_WAITED_FOR) {
		WRITE_ONCE(qd->last_waited_for_jiffies, jiffies);
		if (READ_ONCE(qd->async)) {
			u64 now = ktime_get_ns();

			WRITE_ONCE(qd->last_waited_for, now);
			if (flags & QASIO_RQ_SYNC)
				WRITE_ONCE(qd->last_sync, now);
		}
		if (flags & QASIO_RQ_SYNC && atomic_dec_and_test(&qd->sync))
			wake = true;
		if (atomic_dec_and_test(&qd->waited_for))
			wake = true;
	}
	if (flags & QASIO_RQ_ALIVE &&
	    atomic_dec_and_test(&qd->level[flags & QASIO_RQ_LEVEL].alive))
		wake = true;
	qasio_set_flags(rq, 0);
	if (wake)
		qasio_wake(qd);
}

/*
 * Coming and going
 */

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
	for (i = 0; i < QASIO_LEVELS * QASIO_KINDS; i++) {
		struct qasio_list *list = &qd->level[i / QASIO_KINDS]
					      .list[i % QASIO_KINDS];

		INIT_LIST_HEAD(&list->fifo);
		list->sort = RB_ROOT;
		list->kind = i % QASIO_KINDS;
	}
	hrtimer_setup(&qd->timer, qasio_timer_fn, CLOCK_MONOTONIC,
		      HRTIMER_MODE_ABS);
	qd->last_waited_for_jiffies = jiffies - QASIO_RECENT;
	qd->sync_moved = jiffies;
	qd->waited_for_moved = jiffies;

	for (i = 0; i < QASIO_TUNABLES; i++)
		qd->tunable[i] = qasio_defaults[i].value;

	eq->elevator_data = qd;
	q->elevator = eq;
	blk_queue_flag_set(QUEUE_FLAG_SQ_SCHED, q);

	spin_lock(&qasio_queues_lock);
	list_add_rcu(&qd->node, &qasio_queues);
	spin_unlock(&qasio_queues_lock);
	return 0;
}

static void qasio_exit_sched(struct elevator_queue *e)
{
	struct qasio_queue *qd = e->elevator_data;

	spin_lock(&qasio_queues_lock);
	list_del_rcu(&qd->node);
	spin_unlock(&qasio_queues_lock);
	synchronize_rcu();

	hrtimer_cancel(&qd->timer);
	WARN_ON_ONCE(qd->queued || atomic_read(&qd->in_flight) ||
		     atomic_read(&qd->waited_for));
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
static int qasio_state_show(void *data, struct seq_file *m)
{
	struct request_queue *q = data;
	struct qasio_queue *qd = qasio_of(q);
	enum qasio_kind kind;
	unsigned int i;

	spin_lock(&qd->lock);
	for (kind = 0; kind < QASIO_KINDS; kind++) {
		unsigned int queued = 0;

		for (i = 0; i < QASIO_LEVELS; i++)
			queued += list_count_nodes(&qd->level[i].list[kind].fifo);
		seq_printf(m, "%s %u\n", qasio_kind_names[kind], queued);
	}
	spin_unlock(&qd->lock);
	seq_printf(m, "in_flight %d\n", atomic_read(&qd->in_flight));
	seq_printf(m, "waited_for %d\n", atomic_read(&qd->waited_for));
	seq_printf(m, "service_us %llu\n",
		   div_u64(READ_ONCE(qd->service_ns), NSEC_PER_USEC));
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
