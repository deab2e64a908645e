// SPDX-License-Identifier: GPL-2.0
/*
 * Boosting: who waits and the request he waits for find each other.
 *
 * It does not matter which of the two comes first:
 *
 *	who waits			who inserts or merges a request
 *
 *	note the wait in the table	spin_lock(&qd->lock)
 *	spin_lock(&qd->lock)		queue the request
 *	search the queue		look into the table
 *	spin_unlock(&qd->lock)		spin_unlock(&qd->lock)
 *
 * One of them has the lock first.  If that is who inserts, the search finds the
 * request, unless the driver has it already.  If it is who waits, his note came
 * before his unlock, and who has the lock next sees all that came before: the
 * look into the table finds the wait, and so does the look without the table's
 * lock that tells whether there are any waits.
 *
 * The lock is taken even if nothing is queued.  To look at qasio_queue::async
 * first would be to store the note and load that, while the other stores that
 * and loads the note, with nothing to keep a processor from loading before its
 * store is seen (x86 does so, and an unlock does not end it there): both could
 * find nothing.  There is no test of this: no order of the four steps makes it
 * happen, but a store that is seen late, and a delay would give that store the
 * time to be seen.  As a litmus test, with async and note 0 at first,
 *
 *	lock(table); note = 1; unlock(table);	lock(qd); async = 1;
 *	r1 = async;				r2 = note; unlock(qd);
 *
 * may end with r1 == 0 and r2 == 0.  With lock(qd) before r1 = async, and
 * unlock(qd) after it, it may not.
 *
 * A search lets go of the lock after each QASIO_BATCH requests, so that nobody
 * waits long for it.  Still nothing is missed: what is queued, or grows, later
 * than the note is looked for in the table, and what leaves its place in a list
 * takes the searches that would have gone on from there to its successor.
 *
 * A task in fsync() waits for one page after the other.  Once the queues were
 * searched for the first, and as long as its wait stays in the table, all
 * requests of the file are of the kind file or boosted.  The search for the next
 * page is among the first QASIO_AGAIN of those alone: they are queued in the
 * order in which the task waits for them.  Requests of other files that somebody
 * waits for do not count: they may be hundreds, of a file that is being removed,
 * and what comes after them is found in no other way.
 *
 * One case is missed: a wait that begins before qasio has taken over the queue,
 * or just then.
 */
#include <linux/rculist.h>

#include "queue.h"

/* So many requests are looked at before others get the lock. */
#define QASIO_BATCH		64
/* So many of a file's own are looked at by who waits for its next page. */
#define QASIO_AGAIN		16

static LIST_HEAD(qasio_queues);
static DEFINE_SPINLOCK(qasio_queues_lock);

/* How often @boost of any queue was set, which makes searches forget others. */
static atomic_t qasio_boost_set = ATOMIC_INIT(0);

/**
 * struct qasio_search - a search in a queue, under way
 * @node: in qasio_queue::scans
 * @list: the number of the list that it has come to
 * @next: where it goes on there
 * @looked_at: so many requests
 * @of_file: of these, those of the file that is waited for
 * @found: the best match
 */
struct qasio_search {
	struct list_head node;
	unsigned int list;
	struct list_head *next;
	unsigned int looked_at;
	unsigned int of_file;
	enum qasio_match found;
};

/* Make @rq, which is queued, of a better kind; it takes part in no more merges. */
void qasio_promote(struct qasio_queue *qd, struct request *rq,
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
 * would go before it.  Whether it was promoted.
 */
static bool qasio_boost(struct qasio_queue *qd, struct request *rq,
			const struct qasio_wait *wait, enum qasio_match match,
			bool late, unsigned int ahead)
{
	unsigned int level = qasio_level_of(wait->ioprio);

	if (match >= QASIO_SAME_BIO) {
		qasio_promote(qd, rq, QASIO_BOOSTED, level);
		qasio_count_boost(rq, wait, match, late, ahead,
				  ahead * READ_ONCE(qd->service_ns));
		return true;
	}
	if (match == QASIO_SAME_FILE &&
	    qasio_is_backlog(qasio_list_of(rq)->kind)) {
		qasio_promote(qd, rq, QASIO_FILE_WRITE, level);
		qasio_count_same_file();
		return true;
	}
	return false;
}

/*
 * Searching
 */

/* The list of a number; the better the level, the less that is. */
static struct qasio_list *qasio_nth_list(struct qasio_queue *qd, unsigned int n)
{
	return &qd->level[n / QASIO_KINDS].list[n % QASIO_KINDS];
}

static bool qasio_is_searched(struct qasio_list *list,
			      const struct qasio_wait *wait)
{
	return wait->again ? list->kind == QASIO_FILE_WRITE :
			     list->kind >= QASIO_FILE_WRITE;
}

/* The next request to look at, or NULL. */
static struct request *qasio_search_next(struct qasio_queue *qd,
					 struct qasio_search *search,
					 const struct qasio_wait *wait)
{
	for (;;) {
		struct qasio_list *list = qasio_nth_list(qd, search->list);
		struct list_head *next = search->next;

		if (qasio_is_searched(list, wait) && next != &list->fifo) {
			search->next = next->next;
			return list_entry(next, struct request, queuelist);
		}
		if (search->list + 1 == QASIO_LEVELS * QASIO_KINDS)
			return NULL;
		search->list++;
		search->next = qasio_nth_list(qd, search->list)->fifo.next;
	}
}

/* @rq is about to leave its place in a list. */
void qasio_leave_place(struct qasio_queue *qd, struct request *rq)
{
	struct qasio_search *search;

	list_for_each_entry(search, &qd->scans, node)
		if (search->next == &rq->queuelist)
			search->next = rq->queuelist.next;
}

/* Look at some requests; whether the search is at its end. */
static bool qasio_search_some(struct qasio_queue *qd,
			      struct qasio_search *search,
			      struct qasio_wait *wait)
{
	unsigned int left = QASIO_BATCH;

	while (left--) {
		struct request *rq = qd->async ?
			qasio_search_next(qd, search, wait) : NULL;
		enum qasio_match match;

		if (!rq)
			return true;
		match = qasio_match(rq, wait);
		search->found = max(search->found, match);
		qasio_boost(qd, rq, wait, match, false, search->looked_at++);
		if (match == QASIO_MATCH && (!wait->whole_file || wait->again))
			return true;
		if (match != QASIO_NO_MATCH)
			search->of_file++;
		if (wait->again && search->of_file == QASIO_AGAIN)
			return true;
	}
	return false;
}

/* Boost what of the queued has to do with @wait; the best match found. */
static enum qasio_match qasio_boost_all(struct qasio_queue *qd,
					struct qasio_wait *wait)
{
	struct qasio_search search = { .found = QASIO_NO_MATCH };

	spin_lock(&qd->lock);
	search.next = qasio_nth_list(qd, 0)->fifo.next;
	list_add(&search.node, &qd->scans);
	while (!qasio_search_some(qd, &search, wait)) {
		spin_unlock(&qd->lock);
		cpu_relax();
		spin_lock(&qd->lock);
	}
	list_del(&search.node);
	spin_unlock(&qd->lock);

	qasio_count_looks(search.looked_at);
	return search.found;
}

/* @wait is for a bio that was split: boost its other parts, when they come and now. */
void qasio_boost_parts(struct qasio_queue *qd, struct qasio_wait *wait)
{
	qasio_note_split(wait);
	qasio_boost_all(qd, wait);
}

/*
 * @rq, which is queued, writes something that was not in the queue before, in
 * @bio or, if that is NULL, in any of its bios: is it waited for already?
 */
void qasio_catch(struct qasio_queue *qd, struct request *rq, struct bio *bio,
		 struct qasio_caught *caught)
{
	enum qasio_match match;

	lockdep_assert_held(&qd->lock);

	if (!qasio_is_backlog(qasio_list_of(rq)->kind) ||
	    !qasio_get(qd, QASIO_BOOST) || !qasio_waits_pending())
		return;
	match = qasio_find_wait(rq, bio, &caught->wait);
	if (match == QASIO_NO_MATCH)
		return;
	caught->promoted |= qasio_boost(qd, rq, &caught->wait, match, true,
					qd->async - 1);
	caught->parts = match == QASIO_MATCH && caught->wait.split;
}

/* The tunable was set: what was true of all requests of a file need not be now. */
void qasio_boost_is_set(void)
{
	atomic_inc(&qasio_boost_set);
}

/**
 * qasio_boost_generation() - a number that is another one after each setting of boost
 */
unsigned int qasio_boost_generation(void)
{
	return atomic_read(&qasio_boost_set);
}

/**
 * qasio_boost_queued() - boost the request that a task waits for
 * @wait: the wait, which is noted
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
		if (!qasio_get(qd, QASIO_BOOST))
			continue;
		match = qasio_boost_all(qd, wait);
		if (match == QASIO_MATCH) {
			found = true;
			if (wait->split)
				qasio_boost_parts(qd, wait);
		}
		if (match != QASIO_NO_MATCH)
			blk_mq_run_hw_queues(qd->q, true);
	}
	rcu_read_unlock();
	return found;
}

/*
 * The queues
 */

/* Whether there is anything to boost in. */
bool qasio_in_use(void)
{
	return !list_empty(&qasio_queues);
}

/* From now on waits are looked for in @qd. */
void qasio_add_queue(struct qasio_queue *qd)
{
	spin_lock(&qasio_queues_lock);
	list_add_rcu(&qd->node, &qasio_queues);
	spin_unlock(&qasio_queues_lock);
}

/* Return when nobody looks at @qd any more. */
void qasio_remove_queue(struct qasio_queue *qd)
{
	spin_lock(&qasio_queues_lock);
	list_del_rcu(&qd->node);
	spin_unlock(&qasio_queues_lock);
	synchronize_rcu();
}
