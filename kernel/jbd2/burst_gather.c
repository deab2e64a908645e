// SPDX-License-Identifier: GPL-2.0
/*
 * Burst commits (burst.c): a burst waits a moment for those who sync all the time.
 *
 * Idea
 * ----
 *
 * While a burst is written and flushed, others sync, and are in the next one. When
 * it ends, those that it has served go on, and the next one begins at once, without
 * them: half of the tasks in each burst, and each task waits for two. But a task
 * that writes and syncs in a loop is back in a moment. So the next burst begins when
 * all are there again, or when it is too late for that to be a gain.
 *
 * A worked example; A to H append and fsync, all the time:
 *
 *   A to D are in T7, which is being flushed; E to H have logged into T8, and wait.
 *   T7 ends. Eight are expected, and four are there: T8 waits.
 *   A to D append, log into T8, and wait for it. Eight are there: T8 is committed.
 *   T8 ends. Eight are expected. A is the first to come back, and asks for T9.
 *   T9 waits for B to H.
 *   H has ended. Seven are there, and T9 is committed when nobody has come in an
 *   eighth of what a flush takes. Seven are expected in T10.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - Whatever is counted, no promise depends on it: a commit begins a little later.
 *   Nobody has been told that it has ended, and handles start and stop meanwhile.
 * - Nobody waits long: until nobody comes any more, and at most until half the time of
 *   a flush after the last burst's. So not at all where syncs are rare, and who is
 *   alone all the time does not wait.
 * - Nobody is waited for twice: who has not come is not in the burst, and is not
 *   expected behind it.
 * - Beside a task that comes now and then, another waits in vain. After a wait in which
 *   nobody has come some chances pass, 1, 3, 7 and then 15 of them. Beside such a task
 *   several that are always there wait for an eighth or two in every second burst, which is
 *   less than it saves them.
 * - Who waits for a transaction has stopped his handle: what he has logged is in it.
 *
 * Context: the commit thread waits, with no lock, before it locks the transaction.
 * The lock of the marks is innermost here.
 */

#include <linux/blkdev.h>
#include <linux/ktime.h>
#include <linux/wait.h>

#include "burst.h"
#include "burst_trace.h"
#include "patience.h"

/* In so much of what a flush takes somebody has to come, or the wait ends. */
#define JBD2_BURST_QUIET_SHARE	8

#define JBD2_BURST_MAX_FUTILE	4

/* How many wait for a transaction. */
static unsigned int jbd2_burst_waiters(struct jbd2_burst *burst, tid_t tid)
{
	struct jbd2_burst_waiters *waiters = &burst->waiters[tid & 1];
	unsigned int nr;

	spin_lock(&burst->lock);
	nr = waiters->tid == tid ? waiters->nr : 0;
	spin_unlock(&burst->lock);
	return nr;
}

/* jbd2_burst_join(), where there are bursts. */
void jbd2_burst_add_waiter(journal_t *journal, tid_t tid)
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);
	struct jbd2_burst_waiters *waiters = &burst->waiters[tid & 1];
	bool complete = false;

	spin_lock(&burst->lock);
	/* Who comes late is not to take the place of the next but one. */
	if (tid_gt(tid, READ_ONCE(journal->j_commit_sequence))) {
		if (waiters->tid != tid)
			*waiters = (struct jbd2_burst_waiters) { .tid = tid };
		complete = ++waiters->nr == burst->expected;
	}
	spin_unlock(&burst->lock);
	if (complete && wq_has_sleeper(&burst->wait))
		wake_up(&burst->wait);
}

static void jbd2_burst_expect(struct jbd2_burst *burst, unsigned int nr)
{
	spin_lock(&burst->lock);
	burst->expected = nr;
	spin_unlock(&burst->lock);
}

/**
 * jbd2_burst_served - a burst has ended well
 * @journal: the journal
 * @tid: its transaction; those that wait for it have not been woken yet
 */
void jbd2_burst_served(journal_t *journal, tid_t tid)
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);

	jbd2_burst_expect(burst, jbd2_burst_waiters(burst, tid) +
				 jbd2_burst_waiters(burst, tid + 1));
	burst->ended = ktime_get();
}

/* Is there a flush to be saved, and can anybody join? Only at the start of a wait. */
static bool jbd2_burst_is_open(journal_t *journal)
{
	if (!bdev_write_cache(journal->j_fs_dev) || current != journal->j_task ||
	    is_journal_aborted(journal))
		return false;
	/* Beside whoever changes it: a wrong answer costs a wait, or saves one. */
	if (data_race(journal->j_barrier_count))
		return false;
	/* Without a memory barrier, for the same reason. */
	return !waitqueue_active(&journal->j_wait_transaction_locked);
}

/* Wait until all are there, or nobody comes any more. Returns how many are. */
static unsigned int jbd2_burst_wait(struct jbd2_burst *burst, tid_t tid,
				    unsigned int nr, ktime_t until)
{
	s64 quiet_ns = max(div_s64(burst->flush_ns, JBD2_BURST_QUIET_SHARE),
			   2 * jbd2_patience_min_ns());
	unsigned int last;
	ktime_t next;

	do {
		last = nr;
		next = ktime_add_ns(ktime_get(), quiet_ns);
		if (ktime_after(next, until))
			next = until;
		jbd2_wait_event_until(burst->wait,
				      jbd2_burst_waiters(burst, tid) >= burst->expected,
				      next);
		nr = max(jbd2_burst_waiters(burst, tid), last);
	} while (nr > last && nr < burst->expected);
	return nr;
}

/* A wait has ended. If it was in vain let some chances pass. */
static void jbd2_burst_note_wait(struct jbd2_burst *burst, unsigned int came)
{
	burst->stats.joined += came;
	burst->futile = came ? 0 : min(burst->futile + 1, JBD2_BURST_MAX_FUTILE);
	burst->pause = BIT(burst->futile) - 1;
}

/**
 * jbd2_burst_gather - wait for those that the last burst has served
 * @journal: the journal, with a running transaction that is to be committed
 */
void jbd2_burst_gather(journal_t *journal)
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);
	tid_t tid = journal->j_running_transaction->t_tid;
	ktime_t until = ktime_add_ns(burst->ended,
				     jbd2_patience_ns(burst->flush_ns));
	unsigned int before, after;
	ktime_t since;

	before = jbd2_burst_waiters(burst, tid);
	if (!before && jbd2_burst_is_cut(burst, tid))
		goto out;
	/* Who has asked for the commit may not have joined yet. */
	before = max(before, 1U);
	if (before >= burst->expected || jbd2_patience_ends(until) ||
	    !jbd2_burst_is_open(journal))
		goto out;
	if (burst->pause) {
		burst->pause--;
		goto out;
	}
	since = ktime_get();
	after = jbd2_burst_wait(burst, tid, before, until);
	burst->stats.join_ns += ktime_to_ns(ktime_sub(ktime_get(), since));
	jbd2_burst_note_wait(burst, after - before);
	trace_jbd2_burst_gather(journal, tid, burst->expected, before, after);
out:
	jbd2_burst_expect(burst, 0);
}
