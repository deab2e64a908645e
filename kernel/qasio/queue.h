/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The scheduler of one request queue: what queue.c, dispatch.c and sched.c share.
 * The idea, and the order of locks, are at the head of sched.c.
 */
#ifndef _QASIO_QUEUE_H
#define _QASIO_QUEUE_H

#include <linux/blk-mq.h>
#include <linux/hrtimer.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/sizes.h>

#include "elevator.h"
#include "blk.h"
#include "blk-mq.h"
#include "blk-mq-sched.h"

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

enum qasio_kind {
	QASIO_BOOSTED,
	QASIO_READ,
	QASIO_SYNC_WRITE,
	QASIO_FILE_WRITE,
	QASIO_META_WRITE,
	QASIO_ASYNC_WRITE,
	QASIO_KINDS
};

/* The levels, best first; which ioprio class is of which is in queue.c. */
enum { QASIO_RT, QASIO_BE, QASIO_IDLE, QASIO_LEVELS };

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
 * @waited_for: requests alive that somebody waits for
 * @last_waited_for: when the last of these completed, in ns, if anything
 *		     asynchronous was queued then
 * @last_waited_for_jiffies: the same, coarser, in any case
 * @sync: of those waited for, the synchronous ones
 * @last_sync: as @last_waited_for, for these
 */
struct qasio_level {
	struct qasio_list list[QASIO_KINDS];
	atomic_t alive;
	atomic_t waited_for;
	u64 last_waited_for;
	unsigned long last_waited_for_jiffies;
	atomic_t sync;
	u64 last_sync;
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
 * @blocked: a dispatch found nothing that may go.  Who ends this sees to it that
 *	     the queue is run: completion and @timer do, and whoever promotes a
 *	     request in another way than by insertion, after which the kernel does
 * @timer: runs the queue when time has made something dispatchable
 * @scans: searches that let go of @lock now and then
 * @grown: what the last merge made larger, until qasio_settle_merges()
 * @grown_kind: the kind that it is to be of
 * @grown_by: the bio that it got, or NULL if that was a request
 * @backlog_pos: where the last backlog request ended
 * @sync_left: how many sync writes may still pass the reads
 * @sync_moved: when one last did, in jiffies
 * @passed_moved: when a read or sync write last passed what is boosted, in jiffies
 * @waited_for_moved: when a boosted or file request last did, in jiffies
 * @backlog_moved: when one was last dispatched, or the first was queued, in ns
 * @in_flight: asynchronous writes that the driver has
 * @in_flight_sectors: what they write
 * @last_done: when the last asynchronous request completed, in ns
 * @service_ns: mean time for which one occupies the device
 * @tunable: what can be set
 */
struct qasio_queue {
	struct request_queue *q;
	struct list_head node;

	spinlock_t lock; /* see the head of sched.c */
	struct list_head dispatch;
	struct qasio_level level[QASIO_LEVELS];
	unsigned int queued;
	unsigned int async;
	bool blocked;
	struct hrtimer timer;
	struct list_head scans;
	struct request *grown;
	enum qasio_kind grown_kind;
	struct bio *grown_by;
	sector_t backlog_pos;
	unsigned int sync_left;
	unsigned long sync_moved;
	unsigned long passed_moved;
	unsigned long waited_for_moved;
	u64 backlog_moved;

	atomic_t in_flight;
	atomic_t in_flight_sectors;
	u64 last_done;
	u64 service_ns;

	unsigned int tunable[QASIO_TUNABLES];
};

/*
 * What a request is accounted for, kept in rq->elv.priv[0]; the list that it is
 * queued in, or NULL, is in rq->elv.priv[1].
 *
 * rq->fifo_time is when it was inserted, in jiffies, and for an asynchronous one
 * that the driver has, when it was dispatched, in ns.
 */
#define QASIO_RQ_LEVEL		0x3UL		/* its level; the best until it is ALIVE */
#define QASIO_RQ_ALIVE		0x4UL		/* in qasio_level::alive */
#define QASIO_RQ_WAITED_FOR	0x8UL		/* in qasio_level::waited_for */
#define QASIO_RQ_SYNC		0x10UL		/* in qasio_level::sync */
#define QASIO_RQ_IN_FLIGHT	0x20UL		/* in qasio_queue::in_flight */
#define QASIO_RQ_SECTORS	8		/* shift: sectors in flight */

static inline unsigned long qasio_flags(struct request *rq)
{
	return (unsigned long)rq->elv.priv[0];
}

static inline void qasio_set_flags(struct request *rq, unsigned long flags)
{
	rq->elv.priv[0] = (void *)flags;
}

static inline struct qasio_level *qasio_level_of_flags(struct qasio_queue *qd,
						       unsigned long flags)
{
	return &qd->level[flags & QASIO_RQ_LEVEL];
}

static inline int qasio_waited_for(struct qasio_queue *qd)
{
	int waited_for = 0;
	unsigned int i;

	for (i = 0; i < QASIO_LEVELS; i++)
		waited_for += atomic_read(&qd->level[i].waited_for);
	return waited_for;
}

static inline struct qasio_list *qasio_list_of(struct request *rq)
{
	return rq->elv.priv[1];
}

static inline enum qasio_kind qasio_kind_of(blk_opf_t opf)
{
	if (!op_is_write(opf))
		return QASIO_READ;
	/* Reclaim waits for swap, in ways that wait.c does not see. */
	if (op_is_sync(opf) || opf & REQ_SWAP)
		return QASIO_SYNC_WRITE;
	return opf & (REQ_META | REQ_PRIO) ? QASIO_META_WRITE :
					     QASIO_ASYNC_WRITE;
}

static inline bool qasio_is_backlog(enum qasio_kind kind)
{
	return kind >= QASIO_META_WRITE;
}

/* Whether it was sent by write-back, waited for or not. */
static inline bool qasio_is_async(struct request *rq)
{
	return qasio_is_backlog(qasio_kind_of(rq->cmd_flags));
}

static inline struct qasio_queue *qasio_of(struct request_queue *q)
{
	return q->elevator->elevator_data;
}

static inline unsigned int qasio_get(struct qasio_queue *qd, enum qasio_tunable which)
{
	return READ_ONCE(qd->tunable[which]);
}

/**
 * struct qasio_caught - what became of a request for which somebody waited already
 * @promoted: it is of a better kind now
 * @parts: it is a part of a bio that @wait is for, and qasio_boost_parts() is to be
 *	   called when the lock is dropped
 * @wait: see @parts
 */
struct qasio_caught {
	bool promoted;
	bool parts;
	struct qasio_wait wait;
};

/* queue.c */
unsigned int qasio_level_of(unsigned short ioprio);
void qasio_count_level(struct qasio_queue *qd, struct request *rq,
		       unsigned int level);
void qasio_count_waited_for(struct qasio_queue *qd, struct request *rq);
void qasio_count_in_flight(struct qasio_queue *qd, struct request *rq);
void qasio_uncount_in_flight(struct qasio_queue *qd, struct request *rq);
void qasio_learn(struct qasio_queue *qd, struct request *rq, u64 now);
void qasio_enqueue(struct qasio_queue *qd, struct request *rq,
		   unsigned int level, enum qasio_kind kind);
void qasio_dequeue(struct qasio_queue *qd, struct request *rq);
int qasio_request_merge(struct request_queue *q, struct request **rq,
			struct bio *bio);
bool qasio_allow_merge(struct request_queue *q, struct request *rq,
		       struct bio *bio);
bool qasio_bio_merge(struct request_queue *q, struct bio *bio,
		     unsigned int nr_segs);
void qasio_request_merged(struct request_queue *q, struct request *rq,
			  enum elv_merge type);
void qasio_requests_merged(struct request_queue *q, struct request *rq,
			   struct request *next);
void qasio_insert_requests(struct blk_mq_hw_ctx *hctx, struct list_head *list,
			   blk_insert_t flags);

/* boost.c */
void qasio_promote(struct qasio_queue *qd, struct request *rq,
		   enum qasio_kind kind, unsigned int level);
void qasio_leave_place(struct qasio_queue *qd, struct request *rq);
void qasio_catch(struct qasio_queue *qd, struct request *rq, struct bio *bio,
		 struct qasio_caught *caught);
void qasio_boost_parts(struct qasio_queue *qd, struct qasio_wait *wait);
void qasio_boost_is_set(void);
void qasio_add_queue(struct qasio_queue *qd);
void qasio_remove_queue(struct qasio_queue *qd);

/* dispatch.c */
struct request *qasio_dispatch_request(struct blk_mq_hw_ctx *hctx);
bool qasio_has_work(struct blk_mq_hw_ctx *hctx);
void qasio_wake(struct qasio_queue *qd);

#endif /* _QASIO_QUEUE_H */
