// SPDX-License-Identifier: GPL-2.0
/*
 * Burst commits (burst.c): data in the log, and how far the log's tail may move.
 *
 * Idea
 * ----
 *
 * A transaction may hold data of files, too, which goes to its place later, by
 * ordinary write-back. jbd2 knows nothing of that: it would move the tail past
 * such a transaction as soon as its metadata has been checkpointed. So there is
 * a floor, the first transaction with data whose places may be stale, and the
 * tail stays there. The file system settles: it writes the places, has the
 * metadata up to there checkpointed, and lets the floor move on.
 *
 *   jbd2_burst_settle_begin()	what has been logged so far is one generation
 *   (the file system writes the places and waits for them)
 *   jbd2_burst_settle_end()	checkpoint, flush, move the tail
 *
 * A worked example, the tids of transactions with data being 5, 7 and 9:
 *
 *   T5 and T7 commit: the floor is T5.
 *   A settling begins, for all up to T7; what comes now is the next generation.
 *   T9 commits: the next generation's floor is T9.
 *   The places of T5 and T7 have been written.
 *	Power fails: the log begins at T5 or before. Both are replayed.
 *   The floor is T9. A flush, and the superblock says that the log begins there.
 *	Power fails: T5's and T7's data is in its place.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - The tail does not pass the floor. Whoever moves it has asked
 *   jbd2_journal_get_log_tail(), which knows the floor.
 * - A transaction with data is at or behind a floor from the moment that it is the
 *   committing one; before, jbd2 itself keeps the tail from passing it. Both in
 *   one critical section of j_state_lock.
 * - Two floors are enough. There is one settling at a time, and a generation's
 *   floor is the first of its transactions. If a settling fails the journal has been
 *   aborted, and no tail moves any more.
 * - The tail moves behind a flush that began after the places had been written:
 *   that of jbd2_cleanup_journal_tail(), or that of a commit that looked the
 *   tail up when the floor had moved. If it has failed, or another of the file
 *   system's has that may have taken the places before, the journal aborts and the
 *   tail stays (carrier_flush.c).
 *
 * Lock order
 * ----------
 *
 * j_checkpoint_mutex, j_state_lock, j_list_lock, which guards the floors.
 */

#include <linux/jbd2.h>

#include "burst.h"

/**
 * jbd2_burst_data - a handle logs a file's data
 * @handle: of the file system, in a transaction that is not to be ended yet
 */
void jbd2_burst_data(handle_t *handle)
{
	transaction_t *transaction = handle->h_transaction;
	struct jbd2_burst *burst = jbd2_burst_of(transaction->t_journal);

	spin_lock(&burst->lock);
	WRITE_ONCE(burst->data_tids[transaction->t_tid & 1], transaction->t_tid);
	spin_unlock(&burst->lock);
}
EXPORT_SYMBOL(jbd2_burst_data);

/* jbd2_burst_log_starts(), where there are bursts. */
void jbd2_burst_set_floor(journal_t *journal, transaction_t *transaction)
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);
	tid_t tid = transaction->t_tid;

	/* Zero in both is no data; at worst the number 0 has a floor for nothing. */
	if (burst->data_tids[tid & 1] != tid)
		return;
	spin_lock(&journal->j_list_lock);
	burst->last_data_tid = tid;
	if (!burst->next_floor.is_set) {
		burst->next_floor.tid = tid;
		burst->next_floor.block = transaction->t_log_start;
		burst->next_floor.is_set = true;
	}
	spin_unlock(&journal->j_list_lock);
}

static struct jbd2_burst_floor *jbd2_burst_lowest(struct jbd2_burst *burst)
{
	return burst->floor.is_set ? &burst->floor : &burst->next_floor;
}

/**
 * jbd2_burst_limit_tail - keep the tail from passing the floor
 * @journal: the journal, j_list_lock held
 * @tid: where the log could begin
 * @block: where that is
 */
void jbd2_burst_limit_tail(journal_t *journal, tid_t *tid, unsigned long *block)
{
	struct jbd2_burst_floor *floor = jbd2_burst_lowest(jbd2_burst_of(journal));

	if (likely(!floor->is_set) || !tid_gt(*tid, floor->tid))
		return;
	*tid = floor->tid;
	*block = floor->block;
}

/**
 * jbd2_burst_holds_tail - does data keep the tail from moving?
 * @journal: the journal
 */
bool jbd2_burst_holds_tail(journal_t *journal)
{
	bool holds;

	spin_lock(&journal->j_list_lock);
	holds = jbd2_burst_lowest(jbd2_burst_of(journal))->is_set;
	spin_unlock(&journal->j_list_lock);
	return holds;
}
EXPORT_SYMBOL(jbd2_burst_holds_tail);

/**
 * jbd2_burst_held - how much of the log is kept for its data's sake
 * @journal: the journal
 *
 * Return: blocks from the floor on, with all that has been logged behind it.
 */
unsigned long jbd2_burst_held(journal_t *journal)
{
	struct jbd2_burst_floor *floor;
	unsigned long blocks = 0;

	read_lock(&journal->j_state_lock);
	spin_lock(&journal->j_list_lock);
	floor = jbd2_burst_lowest(jbd2_burst_of(journal));
	if (floor->is_set) {
		blocks = journal->j_head - floor->block;
		if (journal->j_head < floor->block)
			blocks += journal->j_last - journal->j_first;
	}
	spin_unlock(&journal->j_list_lock);
	read_unlock(&journal->j_state_lock);
	return blocks;
}
EXPORT_SYMBOL(jbd2_burst_held);

/**
 * jbd2_burst_make_room - have the file system settle, for the log is full of data
 * @journal: the journal; no lock of it is held, and no handle
 *
 * Return: whether the tail may have moved. If not it never was kept, or the
 * journal has aborted.
 */
bool jbd2_burst_make_room(journal_t *journal)
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);

	if (!jbd2_burst_holds_tail(journal) || is_journal_aborted(journal))
		return false;
	return !burst->settle(journal);
}

/**
 * jbd2_burst_empty_log - have all data settled, for the log is to be emptied
 * @journal: the journal; updates are locked, or nobody starts any
 *
 * Return: 0, or an error, after which the log must not be emptied.
 */
int jbd2_burst_empty_log(journal_t *journal)
{
	/* It may be let go of meanwhile: only settling says whether it could not be. */
	while (jbd2_burst_holds_tail(journal))
		if (is_journal_aborted(journal) ||
		    jbd2_burst_of(journal)->settle(journal))
			return -EIO;
	return 0;
}

/**
 * jbd2_burst_check_empty - the log is about to be called empty
 * @journal: the journal, j_checkpoint_mutex held or nobody else using it
 *
 * Return: 0, or -EIO if that would lose data; the journal has been aborted then.
 */
int jbd2_burst_check_empty(journal_t *journal)
{
	if (likely(!jbd2_burst_holds_tail(journal)))
		return 0;
	WARN_ON_ONCE(!is_journal_aborted(journal));
	jbd2_journal_abort(journal, -EIO);
	return -EIO;
}

/* Commit what is running, and wait for that and for what was committing. */
static int jbd2_burst_commit_running(journal_t *journal)
{
	tid_t tid;
	int err = 0;

	if (jbd2_journal_start_commit(journal, &tid))
		err = jbd2_log_wait_commit(journal, tid);
	return is_journal_aborted(journal) ? -EIO : err;
}

/**
 * jbd2_burst_settle_begin - what has been logged so far is to be settled
 * @journal: the journal
 * @tid: is set to the last transaction of these with data; it is committed
 *
 * Return: 1, or 0 if there is none with data, or an error: then nothing has
 * begun, and the journal has been aborted.
 */
int jbd2_burst_settle_begin(journal_t *journal, tid_t *tid)
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);
	bool is_set;
	int err;

	err = jbd2_burst_commit_running(journal);
	if (err)
		return err;
	spin_lock(&journal->j_list_lock);
	if (!burst->floor.is_set) {
		burst->floor = burst->next_floor;
		burst->next_floor.is_set = false;
	}
	is_set = burst->floor.is_set;
	*tid = burst->last_data_tid;
	spin_unlock(&journal->j_list_lock);
	if (!is_set)
		return 0;
	/* It may be one that has begun to commit since. */
	err = jbd2_log_wait_commit(journal, *tid);
	if (is_journal_aborted(journal))
		err = -EIO;
	return err ?: 1;
}
EXPORT_SYMBOL(jbd2_burst_settle_begin);

/*
 * Has the first transaction of which the log has metadata come to its end? While its
 * callback runs it stays, though all of it may have been written.
 */
static bool jbd2_burst_first_is_finished(journal_t *journal)
{
	transaction_t *transaction;
	bool finished;

	spin_lock(&journal->j_list_lock);
	transaction = journal->j_checkpoint_transactions;
	finished = !transaction || transaction->t_state == T_FINISHED;
	spin_unlock(&journal->j_list_lock);
	return finished;
}

/* Write in place what the log has of metadata up to a transaction. */
static int jbd2_burst_checkpoint(journal_t *journal, tid_t tid)
{
	transaction_t *transaction;
	int err = 0;

	spin_lock(&journal->j_list_lock);
	while (!err) {
		transaction = journal->j_checkpoint_transactions;
		if (!transaction || tid_gt(transaction->t_tid, tid))
			break;
		spin_unlock(&journal->j_list_lock);
		wait_event(journal->j_wait_done_commit,
			   jbd2_burst_first_is_finished(journal));
		err = jbd2_log_do_checkpoint(journal);
		spin_lock(&journal->j_list_lock);
	}
	spin_unlock(&journal->j_list_lock);
	return err;
}

/**
 * jbd2_burst_settle_end - the places of the data have been written
 * @journal: the journal
 * @tid: what jbd2_burst_settle_begin() has said
 * @lost: whether data that the log has is not in its place after all; may change
 *
 * Commits once more before the tail moves: what has dropped pages that were to
 * be written, a truncation or an unlink, is durable then.
 *
 * Return: 0 if the log begins behind @tid, durably; or an error, after which the
 * journal has been aborted.
 */
int jbd2_burst_settle_end(journal_t *journal, tid_t tid, const bool *lost)
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);
	int err;

	err = jbd2_burst_commit_running(journal);
	if (err)
		return err;
	mutex_lock_io(&journal->j_checkpoint_mutex);
	err = jbd2_burst_checkpoint(journal, tid);
	if (!err && READ_ONCE(*lost))
		err = -EIO;
	if (!err) {
		spin_lock(&journal->j_list_lock);
		burst->floor.is_set = false;
		spin_unlock(&journal->j_list_lock);
		err = jbd2_cleanup_journal_tail(journal);
	}
	mutex_unlock(&journal->j_checkpoint_mutex);
	/* Larger than 0: a commit has moved the tail before. */
	if (err >= 0 && !WARN_ON_ONCE(!tid_gt(journal->j_tail_sequence, tid)))
		return is_journal_aborted(journal) ? -EIO : 0;
	if (!is_journal_aborted(journal))
		jbd2_journal_abort(journal, -EIO);
	return -EIO;
}
EXPORT_SYMBOL(jbd2_burst_settle_end);

/* Without a burst settling goes on after so many jiffies. */
#define JBD2_BURST_PAUSE	2

/**
 * jbd2_burst_pause - while it writes places settling pauses until a burst is flushed
 * @journal: the journal
 * @ends: whether there is to be no pause; may take j_state_lock
 *
 * Ends by itself soon after, too: the bursts may have ended.
 */
void jbd2_burst_pause(journal_t *journal, bool (*ends)(journal_t *journal))
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);
	unsigned int flushes = READ_ONCE(burst->flushes);

	wait_event_timeout(burst->pauses,
			   READ_ONCE(burst->flushes) != flushes || ends(journal),
			   JBD2_BURST_PAUSE);
}
EXPORT_SYMBOL(jbd2_burst_pause);

/**
 * jbd2_burst_end_pause - who pauses is to look again whether he has to
 * @journal: the journal
 */
void jbd2_burst_end_pause(journal_t *journal)
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);

	if (wq_has_sleeper(&burst->pauses))
		wake_up(&burst->pauses);
}
EXPORT_SYMBOL(jbd2_burst_end_pause);

/**
 * jbd2_burst_flush_begins - a burst has been written, and is about to be flushed
 * @journal: the journal
 */
void jbd2_burst_flush_begins(journal_t *journal)
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);

	WRITE_ONCE(burst->flushes, burst->flushes + 1);
	jbd2_burst_end_pause(journal);
}

/**
 * jbd2_burst_attach - who settles; bursts are about to be switched on
 * @journal: the journal, with no data in its log
 * @settle: settles all that has been logged before it is called, and waits;
 *	returns 0 or an error, after which the journal has been aborted
 */
void jbd2_burst_attach(journal_t *journal, int (*settle)(journal_t *journal))
{
	jbd2_burst_of(journal)->settle = settle;
	jbd2_burst_alloc_buffers(journal);
}
EXPORT_SYMBOL(jbd2_burst_attach);
