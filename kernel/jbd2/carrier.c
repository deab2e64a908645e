// SPDX-License-Identifier: GPL-2.0
/*
 * Carried commits: a commit that nobody waits for needs no barrier of its own.
 *
 * A commit flushes the device before its commit record and writes the record
 * with FUA. If somebody waits that is the price of it. If nobody does, but
 * files are fsynced all the time, each fsync flushes the device anyway, and
 * such a flush can carry the commit along:
 *
 *   journal blocks written -> a flush of somebody's that began after that ends
 *   -> commit record written, plainly -> a flush that began after that ends
 *   -> the transaction is committed.
 *
 * The order on the medium is that of any other commit: the record is not sent
 * before all that it vouches for is durable, and the transaction is not
 * finished (j_commit_sequence, checkpointing, release of freed blocks) before
 * the record is. A crash in between finds the transaction whole or not at all.
 *
 * Flushes are numbered when they begin, before they are submitted. One with a
 * number above the last one begun at some moment is therefore submitted after
 * that moment, and covers every write that had completed by then.
 *
 * Others may rely on a commit's flush for their data: those who were told so by
 * jbd2_trans_will_send_data_barrier(), which says no from T_COMMIT_JFLUSH on.
 * jbd2_carried() is called in that state. Who asked before is covered by a flush
 * that begins later, who asks later flushes for himself.
 *
 * Patience ends when somebody waits for the commit (jbd2_log_wait_commit()),
 * when somebody wants a later one (__jbd2_log_start_commit(): a handle that
 * finds the running transaction full waits for its commit, which begins when
 * this one has ended), when the journal aborts, when no flush comes for a while,
 * or at unmount. Then the commit thread flushes for itself, as it would have
 * done in the first place.
 *
 * A flush that fails may lose all that the device had cached, and the next one
 * may still succeed. Any other commit flushes for itself, and a flush that fails
 * aborts the journal. So does one that fails, whoever sent it, between the start
 * of a carried commit and its end: its blocks may be gone.
 *
 * The file system attaches a carrier to a journal that is on its own device.
 * journal_t has no room for one, so they stand in a list, which is looked
 * through a few times a commit. Lock order: j_state_lock, jbd2_carriers_lock,
 * the carrier's lock.
 */

#include <linux/blkdev.h>
#include <linux/slab.h>
#include <linux/wait.h>

#include "carrier.h"

struct jbd2_carrier {
	struct list_head	list;
	journal_t		*journal;

	spinlock_t		lock;		/* of all that follows but wait */
	tid_t			tid;		/* the last that was to be carried */
	bool			patient;	/* nobody waits for it */
	unsigned long		patience;	/* jiffies to wait for a flush */
	u64			begun;		/* flushes that have begun */
	u64			carried;	/* latest of those that ended well */
	u64			failed;		/* how many have failed, */
	u64			failed_before;	/* before tid's commit started */

	wait_queue_head_t	wait;		/* the commit thread */
};

static LIST_HEAD(jbd2_carriers);
static DEFINE_SPINLOCK(jbd2_carriers_lock);

/*
 * The carrier stays while it is used: the callers are the commit thread, which
 * jbd2_journal_destroy() ends before it frees the carrier, and those who hurry
 * it, which hold the list's lock.
 */
static struct jbd2_carrier *jbd2_carrier_find(journal_t *journal)
{
	struct jbd2_carrier *carrier;

	lockdep_assert_held(&jbd2_carriers_lock);
	list_for_each_entry(carrier, &jbd2_carriers, list)
		if (carrier->journal == journal)
			return carrier;
	return NULL;
}

/* For the commit thread: a transaction that is being committed keeps the tid. */
static struct jbd2_carrier *jbd2_carrier_of(journal_t *journal, tid_t tid)
{
	struct jbd2_carrier *carrier;

	spin_lock(&jbd2_carriers_lock);
	carrier = jbd2_carrier_find(journal);
	if (carrier && READ_ONCE(carrier->tid) != tid)
		carrier = NULL;
	spin_unlock(&jbd2_carriers_lock);
	return carrier;
}

static void jbd2_carrier_stop_waiting(struct jbd2_carrier *carrier)
{
	spin_lock(&carrier->lock);
	carrier->patient = false;
	spin_unlock(&carrier->lock);
	wake_up(&carrier->wait);
}

/**
 * jbd2_carrier_attach - let commits of a journal be carried
 * @journal: a journal that has been loaded
 *
 * Return: the carrier, which jbd2_journal_destroy() frees; or NULL where it
 * would be of no use (a journal on another device, fast or asynchronous
 * commits) or there is no memory.
 */
struct jbd2_carrier *jbd2_carrier_attach(journal_t *journal)
{
	struct jbd2_carrier *carrier;

	if (journal->j_dev != journal->j_fs_dev ||
	    jbd2_has_feature_fast_commit(journal) ||
	    jbd2_has_feature_async_commit(journal))
		return NULL;
	carrier = kzalloc(sizeof(*carrier), GFP_KERNEL);
	if (!carrier)
		return NULL;
	carrier->journal = journal;
	carrier->tid = READ_ONCE(journal->j_commit_sequence);
	spin_lock_init(&carrier->lock);
	init_waitqueue_head(&carrier->wait);
	spin_lock(&jbd2_carriers_lock);
	list_add(&carrier->list, &jbd2_carriers);
	spin_unlock(&jbd2_carriers_lock);
	return carrier;
}
EXPORT_SYMBOL(jbd2_carrier_attach);

/**
 * jbd2_carrier_start_commit - start a commit that may take its time
 * @carrier: of the journal
 * @tid: the transaction; nothing is done unless it is running, nobody has
 *	 asked for its commit yet and no other is being committed
 * @patience: jiffies to wait for each of the two flushes at most
 */
void jbd2_carrier_start_commit(struct jbd2_carrier *carrier, tid_t tid,
			       unsigned long patience)
{
	journal_t *journal = carrier->journal;
	bool start;

	write_lock(&journal->j_state_lock);
	start = journal->j_flags & JBD2_BARRIER &&
		!(journal->j_flags & JBD2_ABORT) &&
		!journal->j_committing_transaction &&
		journal->j_running_transaction &&
		journal->j_running_transaction->t_tid == tid &&
		journal->j_commit_request != tid;
	if (start) {
		spin_lock(&carrier->lock);
		WRITE_ONCE(carrier->tid, tid);
		carrier->patient = true;
		carrier->patience = patience;
		carrier->failed_before = carrier->failed;
		spin_unlock(&carrier->lock);
	}
	write_unlock(&journal->j_state_lock);
	if (start)
		jbd2_log_start_commit(journal, tid);
}
EXPORT_SYMBOL(jbd2_carrier_start_commit);

/**
 * jbd2_carrier_begin_flush - the device is about to be flushed
 * @carrier: of the journal on that device
 *
 * Return: number of the flush, for jbd2_carrier_end_flush().
 */
u64 jbd2_carrier_begin_flush(struct jbd2_carrier *carrier)
{
	u64 flush;

	spin_lock(&carrier->lock);
	flush = ++carrier->begun;
	spin_unlock(&carrier->lock);
	return flush;
}
EXPORT_SYMBOL(jbd2_carrier_begin_flush);

/**
 * jbd2_carrier_end_flush - a flush of the device has ended
 * @carrier: of the journal on that device
 * @flush: what jbd2_carrier_begin_flush() returned
 * @err: what came of it
 */
void jbd2_carrier_end_flush(struct jbd2_carrier *carrier, u64 flush, int err)
{
	spin_lock(&carrier->lock);
	if (err)
		carrier->failed++;
	else if (carrier->carried < flush)
		carrier->carried = flush;
	spin_unlock(&carrier->lock);
	if (wq_has_sleeper(&carrier->wait))
		wake_up(&carrier->wait);
}
EXPORT_SYMBOL(jbd2_carrier_end_flush);

static bool jbd2_carrier_done(struct jbd2_carrier *carrier, u64 begun)
{
	bool done;

	spin_lock(&carrier->lock);
	done = carrier->carried > begun || !carrier->patient ||
	       carrier->failed != carrier->failed_before;
	spin_unlock(&carrier->lock);
	return done;
}

/*
 * Has a flush that begins from now on ended before patience did? 1, 0, or -EIO
 * if one has failed. The commit is not to be charged for the time: sync handles
 * sleep as long as commits take on average, to be joined by others.
 */
static int jbd2_carrier_wait(struct jbd2_carrier *carrier, ktime_t *start_time)
{
	ktime_t since = ktime_get();
	unsigned long patience;
	u64 begun;
	int ret;

	spin_lock(&carrier->lock);
	begun = carrier->begun;
	patience = carrier->patience;
	spin_unlock(&carrier->lock);

	wait_event_timeout(carrier->wait, jbd2_carrier_done(carrier, begun),
			   patience);
	*start_time = ktime_add(*start_time, ktime_sub(ktime_get(), since));

	spin_lock(&carrier->lock);
	ret = carrier->carried > begun;
	if (carrier->failed != carrier->failed_before)
		ret = -EIO;
	if (ret <= 0)
		carrier->patient = false;
	spin_unlock(&carrier->lock);
	return ret;
}

/**
 * jbd2_carried - may the commit record go without barriers?
 * @journal: the journal
 * @tid: the transaction, in T_COMMIT_JFLUSH, with all but its record written
 * @start_time: when its commit began, put off by the time that this waits
 *
 * Context: the commit thread; waits as long as patience lasts.
 * Return: 1 if a flush has made all that was written durable. Then
 * jbd2_carried_harden() must be called once the record is written. 0 if the
 * record has to have its own barriers. -EIO if blocks may be lost: no record
 * may be written.
 */
int jbd2_carried(journal_t *journal, tid_t tid, ktime_t *start_time)
{
	struct jbd2_carrier *carrier = jbd2_carrier_of(journal, tid);

	return carrier ? jbd2_carrier_wait(carrier, start_time) : 0;
}

/**
 * jbd2_carried_harden - make a commit record durable that went without barriers
 * @journal: the journal
 * @tid: the transaction, its record written
 * @start_time: when its commit began, put off by the time that this waits
 *
 * Context: the commit thread; waits as long as patience lasts.
 * Return: 0 or the error of a flush, after which the record may be lost.
 */
int jbd2_carried_harden(journal_t *journal, tid_t tid, ktime_t *start_time)
{
	struct jbd2_carrier *carrier = jbd2_carrier_of(journal, tid);
	int ret = jbd2_carrier_wait(carrier, start_time);

	if (!ret) {
		u64 flush = jbd2_carrier_begin_flush(carrier);

		ret = blkdev_issue_flush(journal->j_dev);
		jbd2_carrier_end_flush(carrier, flush, ret);
		/* Another may have failed while this one was under way. */
		if (!ret)
			ret = jbd2_carrier_wait(carrier, start_time);
	}
	jbd2_carrier_stop_waiting(carrier);
	return min(ret, 0);
}

/**
 * jbd2_carrier_hurry - somebody waits for a transaction
 * @journal: the journal
 * @tid: the transaction; those that precede it are committed before it
 *
 * Whoever waits for a commit to begin waits for the transaction before it.
 * Context: j_state_lock may be held.
 */
void jbd2_carrier_hurry(journal_t *journal, tid_t tid)
{
	struct jbd2_carrier *carrier;

	if (list_empty(&jbd2_carriers))
		return;
	spin_lock(&jbd2_carriers_lock);
	carrier = jbd2_carrier_find(journal);
	if (carrier && tid_geq(tid, READ_ONCE(carrier->tid)))
		jbd2_carrier_stop_waiting(carrier);
	spin_unlock(&jbd2_carriers_lock);
}

/**
 * jbd2_carrier_detach - free a journal's carrier, if it has one
 * @journal: the journal, whose commit thread has ended
 */
void jbd2_carrier_detach(journal_t *journal)
{
	struct jbd2_carrier *carrier;

	spin_lock(&jbd2_carriers_lock);
	carrier = jbd2_carrier_find(journal);
	if (carrier)
		list_del(&carrier->list);
	spin_unlock(&jbd2_carriers_lock);
	kfree(carrier);
}
