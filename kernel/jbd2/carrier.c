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
 * Patience ends when somebody does wait (jbd2_carrier_hurry()), when no flush
 * comes for a while, or at unmount. Then the commit thread flushes for itself,
 * as it would have done in the first place.
 *
 * The file system attaches a carrier to a journal that is on its own device.
 * journal_t has no room for one, so they stand in a list, which is looked
 * through once a commit. Lock order: jbd2_carriers_lock or j_state_lock, then
 * the carrier's lock.
 */

#include <linux/blkdev.h>
#include <linux/slab.h>
#include <linux/wait.h>

#include "carrier.h"

struct jbd2_carrier {
	struct list_head	list;
	journal_t		*journal;

	spinlock_t		lock;		/* of the five that follow */
	bool			patient;	/* nobody waits for ... */
	tid_t			patient_tid;	/* ... this transaction */
	unsigned long		patience;	/* jiffies to wait for a flush */
	u64			begun;		/* flushes that have begun */
	u64			carried;	/* latest of those that ended well */

	wait_queue_head_t	wait;		/* the commit thread */
};

static LIST_HEAD(jbd2_carriers);
static DEFINE_SPINLOCK(jbd2_carriers_lock);

/*
 * The carrier stays while it is used: the callers are the commit thread, which
 * jbd2_journal_destroy() ends before it frees the carrier, and waiters, which
 * hold the list's lock.
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

static struct jbd2_carrier *jbd2_carrier_patient(journal_t *journal, tid_t tid)
{
	struct jbd2_carrier *carrier;

	spin_lock(&jbd2_carriers_lock);
	carrier = jbd2_carrier_find(journal);
	if (carrier && !(READ_ONCE(carrier->patient) &&
			 READ_ONCE(carrier->patient_tid) == tid))
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
		!journal->j_committing_transaction &&
		journal->j_running_transaction &&
		journal->j_running_transaction->t_tid == tid &&
		journal->j_commit_request != tid;
	if (start) {
		spin_lock(&carrier->lock);
		carrier->patient = true;
		carrier->patient_tid = tid;
		carrier->patience = patience;
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
 * jbd2_carrier_end_flush - the device has been flushed without an error
 * @carrier: of the journal on that device
 * @flush: what jbd2_carrier_begin_flush() returned
 */
void jbd2_carrier_end_flush(struct jbd2_carrier *carrier, u64 flush)
{
	spin_lock(&carrier->lock);
	if (carrier->carried < flush)
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
	done = carrier->carried > begun || !carrier->patient;
	spin_unlock(&carrier->lock);
	return done;
}

/* Has a flush that begins from now on ended before patience did? */
static bool jbd2_carrier_wait(struct jbd2_carrier *carrier)
{
	unsigned long patience;
	bool carried;
	u64 begun;

	spin_lock(&carrier->lock);
	begun = carrier->begun;
	patience = carrier->patience;
	spin_unlock(&carrier->lock);

	wait_event_timeout(carrier->wait, jbd2_carrier_done(carrier, begun),
			   patience);

	spin_lock(&carrier->lock);
	carried = carrier->carried > begun;
	if (!carried)
		carrier->patient = false;
	spin_unlock(&carrier->lock);
	return carried;
}

/**
 * jbd2_carried - may the commit record go without barriers?
 * @journal: the journal
 * @tid: the transaction, in T_COMMIT_JFLUSH, with all but its record written
 *
 * Context: the commit thread; waits as long as patience lasts.
 * Return: true if a flush has made all that was written durable. Then
 * jbd2_carried_harden() must be called once the record is written.
 */
bool jbd2_carried(journal_t *journal, tid_t tid)
{
	struct jbd2_carrier *carrier = jbd2_carrier_patient(journal, tid);

	return carrier && jbd2_carrier_wait(carrier);
}

/**
 * jbd2_carried_harden - make a commit record durable that went without barriers
 * @journal: the journal
 * @tid: the transaction, its record written
 *
 * Context: the commit thread; waits as long as patience lasts.
 * Return: 0 or the error of the flush.
 */
int jbd2_carried_harden(journal_t *journal, tid_t tid)
{
	struct jbd2_carrier *carrier = jbd2_carrier_patient(journal, tid);
	int err = 0;

	if (!carrier || !jbd2_carrier_wait(carrier))
		err = blkdev_issue_flush(journal->j_dev);
	else
		jbd2_carrier_stop_waiting(carrier);
	return err;
}

/**
 * jbd2_carrier_hurry - somebody waits for a transaction
 * @journal: the journal
 * @tid: the transaction, which is not committed before those that precede it
 */
void jbd2_carrier_hurry(journal_t *journal, tid_t tid)
{
	struct jbd2_carrier *carrier;

	if (list_empty(&jbd2_carriers))
		return;
	spin_lock(&jbd2_carriers_lock);
	carrier = jbd2_carrier_find(journal);
	if (carrier && READ_ONCE(carrier->patient) &&
	    tid_geq(tid, READ_ONCE(carrier->patient_tid)))
		jbd2_carrier_stop_waiting(carrier);
	spin_unlock(&jbd2_carriers_lock);
}

/**
 * jbd2_carrier_detach - no commit of a journal is to be carried any more
 * @journal: the journal, about to be destroyed
 *
 * Return: its carrier or NULL, to be freed once the commit thread has ended.
 */
struct jbd2_carrier *jbd2_carrier_detach(journal_t *journal)
{
	struct jbd2_carrier *carrier;

	spin_lock(&jbd2_carriers_lock);
	carrier = jbd2_carrier_find(journal);
	if (carrier)
		list_del(&carrier->list);
	spin_unlock(&jbd2_carriers_lock);
	if (carrier)
		jbd2_carrier_stop_waiting(carrier);
	return carrier;
}

/**
 * jbd2_carrier_free - free what jbd2_carrier_detach() returned
 * @carrier: a carrier that nobody uses, or NULL
 */
void jbd2_carrier_free(struct jbd2_carrier *carrier)
{
	kfree(carrier);
}
