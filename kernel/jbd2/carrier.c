// SPDX-License-Identifier: GPL-2.0
/*
 * Carried commits: a commit that nobody waits for needs no barrier of its own.
 *
 * Idea
 * ----
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
 * Patience ends
 *
 *   - when somebody waits for the commit (jbd2_log_wait_commit());
 *   - when somebody wants the next one (__jbd2_log_start_commit()), or will soon:
 *     the running transaction is half full (add_transaction_credits()). Once it
 *     is full handles wait for its commit, which begins when this one has ended;
 *   - when the journal aborts, when no flush comes for a while, or at unmount.
 *
 * Then the commit thread flushes for itself, as it would have done in the first
 * place.
 *
 * A worked example; F1, F2... are flushes of fsyncs, numbered as they begin:
 *
 *   F1 begins; an fsync starts the commit of T9, whose blocks are written;
 *   F1 ends. It may have begun before the last block was there: T9 waits.
 *   F2 begins and ends. The blocks are durable, the record is written.
 *	Power fails: a record that tears, or is lost, ends the log before T9. One
 *	that is whole vouches for blocks that are there.
 *   F3 begins; the record has been written before that; F3 ends. T9 is committed.
 *
 * If F2 fails it may have dropped the blocks. F3 may begin and end well, and its
 * task run first. T9 sees that a flush has failed since it started, and aborts.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - The order on the medium is that of any other commit: the record is not sent
 *   before all that it vouches for is durable, and the transaction is not
 *   finished (j_commit_sequence, checkpointing, release of freed blocks) before
 *   the record is. A crash in between finds the transaction whole or not at all.
 * - Others may rely on a commit's flush for their data: those who were told so by
 *   jbd2_trans_will_send_data_barrier(), which says no from T_COMMIT_JFLUSH on.
 *   jbd2_carried() is called in that state. Who asked before is covered by a
 *   flush that begins later, who asks later flushes for himself.
 * - Nobody waits for a patient commit. It becomes patient under j_state_lock, and
 *   only if nobody has asked for it (j_commit_request). Who wants to wait has
 *   held j_state_lock before he gets to jbd2_carrier_hurry(), be it to ask for
 *   the commit or to see that it was asked for. If that was before it became
 *   patient, then the request was seen, and it did not. If it was after, the
 *   unlocked look at "patient" finds it. The same goes for who needs the next
 *   one, who fills it, and who aborts: each holds j_state_lock as he hurries. At
 *   unmount there is nobody left who could start one.
 * - The carrier is a part of what jbd2 allocates for a journal_t, so whoever may
 *   use the journal may use the carrier, and nothing has to be looked up,
 *   counted or locked to find it. It is initialized before anybody else knows of
 *   the journal, and freed with it, by the kfree() of its first member. It does
 *   nothing before it is attached.
 *
 * Lock order
 * ----------
 *
 * j_checkpoint_mutex, j_state_lock, then the carrier's lock, which is released
 * before anybody is woken, and taken when a flush ends, in interrupts.
 */

#include <linux/blkdev.h>
#include <linux/slab.h>

#include "carrier_internal.h"

#define CREATE_TRACE_POINTS
#include "carrier_trace.h"

/**
 * jbd2_carrier_alloc_journal - allocate a journal_t, zeroed, with its carrier
 *
 * Return: what kfree() takes, or NULL if there is no memory.
 */
journal_t *jbd2_carrier_alloc_journal(void)
{
	struct jbd2_carried_journal *wrapper;
	struct jbd2_carrier *carrier;

	wrapper = kzalloc(sizeof(*wrapper), GFP_KERNEL);
	if (!wrapper)
		return NULL;
	carrier = &wrapper->carrier;
	INIT_LIST_HEAD(&carrier->under_way);
	INIT_LIST_HEAD(&carrier->record.list);
	spin_lock_init(&carrier->lock);
	init_waitqueue_head(&carrier->wait);
	spin_lock_init(&wrapper->base.burst.lock);
	init_waitqueue_head(&wrapper->base.burst.wait);
	init_waitqueue_head(&wrapper->base.burst.pauses);
	return &wrapper->base.journal;
}

/* Is this transaction, which is being committed, to be carried? */
static bool jbd2_carrier_has(struct jbd2_carrier *carrier, tid_t tid)
{
	bool has;

	/* Whoever starts a carried commit has attached the carrier before. */
	if (likely(!READ_ONCE(carrier->carries)))
		return false;
	spin_lock_irq(&carrier->lock);
	has = carrier->carries && carrier->tid == tid;
	spin_unlock_irq(&carrier->lock);
	return has;
}

static void jbd2_carrier_set_patient(struct jbd2_carrier *carrier, bool patient)
{
	lockdep_assert_held(&carrier->lock);
	/* jbd2_carrier_hurry() looks without the lock. */
	WRITE_ONCE(carrier->patient, patient);
}

/**
 * jbd2_carrier_attach - count a journal's flushes, and let commits be carried
 * @journal: a journal that has been loaded
 *
 * Commits are not carried if the journal is on another device, or has fast or
 * asynchronous commits. The latter are no obstacle where burst.c has them.
 *
 * Return: the carrier, which is there as long as the journal is.
 */
struct jbd2_carrier *jbd2_carrier_attach(journal_t *journal)
{
	struct jbd2_carrier *carrier = jbd2_carrier_of(journal);

	spin_lock_irq(&carrier->lock);
	carrier->tid = READ_ONCE(journal->j_commit_sequence);
	/* A commit may be under way that has not seen that flushes count. */
	carrier->record.failed_before = carrier->failed;
	/* Once for a journal; their readers take no lock. */
	WRITE_ONCE(carrier->counts, true);
	WRITE_ONCE(carrier->carries, journal->j_dev == journal->j_fs_dev &&
		   !jbd2_has_feature_fast_commit(journal) &&
		   (!jbd2_has_feature_async_commit(journal) ||
		    jbd2_burst_on(journal)));
	spin_unlock_irq(&carrier->lock);
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
	journal_t *journal = jbd2_journal_of(carrier);
	bool start;

	if (!carrier->carries)
		return;
	write_lock(&journal->j_state_lock);
	start = journal->j_flags & JBD2_BARRIER &&
		!(journal->j_flags & JBD2_ABORT) &&
		!journal->j_committing_transaction &&
		journal->j_running_transaction &&
		journal->j_running_transaction->t_tid == tid &&
		journal->j_commit_request != tid;
	if (start) {
		spin_lock_irq(&carrier->lock);
		start = !carrier->broken;
		if (start) {
			carrier->tid = tid;
			jbd2_carrier_set_patient(carrier, true);
			carrier->patience = patience;
			carrier->failed_before = carrier->failed;
		}
		spin_unlock_irq(&carrier->lock);
	}
	write_unlock(&journal->j_state_lock);
	if (!start)
		return;
	trace_jbd2_carrier_start(journal, tid, jiffies_to_msecs(patience));
	jbd2_log_start_commit(journal, tid);
}
EXPORT_SYMBOL(jbd2_carrier_start_commit);

static bool jbd2_carrier_done(struct jbd2_carrier *carrier, u64 begun)
{
	bool done;

	spin_lock_irq(&carrier->lock);
	done = jbd2_carrier_has_carried(carrier, begun) || !carrier->patient ||
	       jbd2_carrier_has_lost(carrier, carrier->failed_before);
	spin_unlock_irq(&carrier->lock);
	return done;
}

/*
 * How the wait for a flush has ended, with the lock held. Not whether one has by now:
 * those beside it would have to be waited for.
 */
static enum jbd2_carried jbd2_carrier_outcome(struct jbd2_carrier *carrier,
					      bool flushed)
{
	lockdep_assert_held(&carrier->lock);
	if (jbd2_carrier_has_lost(carrier, carrier->failed_before))
		return JBD2_CARRIED_LOST;
	if (flushed)
		return JBD2_CARRIED_FLUSHED;
	return carrier->patient ? JBD2_CARRIED_ALONE : JBD2_CARRIED_HURRIED;
}

/*
 * Has a flush that began after @begun ended well? Then those that had begun by then
 * have ended, too, when this returns: the device may have had one before it that failed.
 */
static bool jbd2_carrier_outwait_others(struct jbd2_carrier *carrier, u64 begun)
{
	bool flushed;
	u64 others;

	spin_lock_irq(&carrier->lock);
	flushed = jbd2_carrier_has_carried(carrier, begun);
	others = carrier->begun;
	spin_unlock_irq(&carrier->lock);
	if (flushed)
		wait_event(carrier->wait,
			   jbd2_carrier_all_ended(carrier, others));
	return flushed;
}

/*
 * Wait for a flush that begins from now on, as long as patience lasts. The commit
 * is not to be charged for the time: sync handles sleep as long as commits take
 * on average, to be joined by others.
 */
static enum jbd2_carried jbd2_carrier_wait(journal_t *journal, tid_t tid,
					   bool record, ktime_t *start_time)
{
	struct jbd2_carrier *carrier = jbd2_carrier_of(journal);
	ktime_t since = ktime_get();
	enum jbd2_carried outcome;
	unsigned long patience;
	bool flushed;
	ktime_t waited;
	u64 begun;

	spin_lock_irq(&carrier->lock);
	begun = carrier->begun;
	patience = carrier->patience;
	spin_unlock_irq(&carrier->lock);

	wait_event_timeout(carrier->wait, jbd2_carrier_done(carrier, begun),
			   patience);
	flushed = jbd2_carrier_outwait_others(carrier, begun);
	waited = ktime_sub(ktime_get(), since);
	*start_time = ktime_add(*start_time, waited);

	spin_lock_irq(&carrier->lock);
	outcome = jbd2_carrier_outcome(carrier, flushed);
	if (outcome != JBD2_CARRIED_FLUSHED)
		jbd2_carrier_set_patient(carrier, false);
	spin_unlock_irq(&carrier->lock);
	trace_jbd2_carrier_wait(journal, tid, record, outcome, waited);
	return outcome;
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
 * record has to have its own barriers; then jbd2_carrier_end_record() must be.
 * -EIO if blocks may be lost: no record may be written.
 */
int jbd2_carried(journal_t *journal, tid_t tid, ktime_t *start_time)
{
	struct jbd2_carrier *carrier = jbd2_carrier_of(journal);

	if (likely(!READ_ONCE(carrier->counts)))
		return 0;
	if (!jbd2_carrier_has(carrier, tid))
		return jbd2_carrier_begin_record(journal);
	switch (jbd2_carrier_wait(journal, tid, false, start_time)) {
	case JBD2_CARRIED_FLUSHED:
		return 1;
	case JBD2_CARRIED_LOST:
		return -EIO;
	default:
		return jbd2_carrier_begin_record(journal);
	}
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
	struct jbd2_carrier *carrier = jbd2_carrier_of(journal);
	int err = 0;

	switch (jbd2_carrier_wait(journal, tid, true, start_time)) {
	case JBD2_CARRIED_FLUSHED:
		break;
	case JBD2_CARRIED_LOST:
		err = -EIO;
		break;
	default:
		err = jbd2_carrier_flush(journal);
		/* One may have failed after the wait and before this began. */
		if (!err && jbd2_carrier_lost(carrier, carrier->failed_before))
			err = -EIO;
	}
	spin_lock_irq(&carrier->lock);
	jbd2_carrier_set_patient(carrier, false);
	spin_unlock_irq(&carrier->lock);
	return err;
}

/**
 * jbd2_carrier_flush_burst - make a commit durable that was written at once
 * @journal: the journal
 * @tid: the transaction, its blocks and its record written
 * @start_time: when its commit began, put off by the time that this waits
 * @failed: what jbd2_carrier_numbers() said before the first block was written
 *
 * Context: the commit thread; waits as long as patience lasts.
 * Return: 0 or an error, after which the blocks may be lost.
 */
int jbd2_carrier_flush_burst(journal_t *journal, tid_t tid,
			     ktime_t *start_time, u64 failed)
{
	struct jbd2_carrier *carrier = jbd2_carrier_of(journal);
	int err;

	if (jbd2_carrier_has(carrier, tid))
		err = jbd2_carried_harden(journal, tid, start_time);
	else
		err = jbd2_carrier_flush(journal);
	if (!err && jbd2_carrier_lost(carrier, failed))
		err = -EIO;
	return err;
}

/**
 * jbd2_carrier_flush_async - make an asynchronous commit durable that is no burst
 * @journal: the journal
 * @err: what came of its blocks and its record, which have been written
 *
 * Stock jbd2 does not heed what comes of that flush. But others count on it, and it may
 * be one that was sent behind one that has failed.
 *
 * Return: @err; or, if flushes count, an error after which the commit may be lost.
 */
int jbd2_carrier_flush_async(journal_t *journal, int err)
{
	struct jbd2_carrier *carrier = jbd2_carrier_of(journal);
	int flush_err;

	if (likely(!READ_ONCE(carrier->counts))) {
		blkdev_issue_flush(journal->j_dev);
		return err;
	}
	/* A flush of a device of the journal's own covers no data. */
	if (journal->j_dev != journal->j_fs_dev)
		flush_err = blkdev_issue_flush(journal->j_dev);
	else
		flush_err = jbd2_carrier_flush(journal);
	if (!flush_err &&
	    jbd2_carrier_lost(carrier, carrier->record.failed_before))
		flush_err = -EIO;
	return err ?: flush_err;
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
	struct jbd2_carrier *carrier = jbd2_carrier_of(journal);
	tid_t carried;
	bool hurries;

	if (likely(!READ_ONCE(carrier->patient)))
		return;
	spin_lock_irq(&carrier->lock);
	carried = carrier->tid;
	hurries = carrier->patient && tid_geq(tid, carried);
	if (hurries)
		jbd2_carrier_set_patient(carrier, false);
	spin_unlock_irq(&carrier->lock);
	if (!hurries)
		return;
	wake_up_all(&carrier->wait);
	trace_jbd2_carrier_hurry(journal, carried, tid, _RET_IP_);
}

/**
 * jbd2_carrier_check_abort - may one who waits for nothing count on what was committed?
 * @journal: the journal
 *
 * jbd2 takes a transaction that was aborted for one that has ended, and finds nothing
 * to commit then.
 *
 * Return: 0; or -EIO if the journal has been aborted, where flushes count.
 */
int jbd2_carrier_check_abort(journal_t *journal)
{
	if (likely(!READ_ONCE(jbd2_carrier_of(journal)->counts)))
		return 0;
	/* The flag is set before the tid counts as committed. */
	smp_rmb();
	return is_journal_aborted(journal) ? -EIO : 0;
}
EXPORT_SYMBOL(jbd2_carrier_check_abort);
