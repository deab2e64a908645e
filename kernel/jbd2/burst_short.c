// SPDX-License-Identifier: GPL-2.0
/*
 * Burst commits (burst.c): transactions stay short where somebody syncs now and then.
 *
 * Idea
 * ----
 *
 * A sync commits the running transaction, with all that others have logged into it.
 * Beside a task that creates files and never syncs that is some hundred blocks in a
 * second, each of which is copied, checksummed and written while the sync waits. But one
 * knows how often somebody has synced of late. So a few times before the next sync is
 * to be expected the running transaction is cut: committed, if writing its blocks would
 * take about as long as a flush does.
 *
 * A worked example; a flush takes 1.6 ms, a block 30 us, so some 40 blocks are enough:
 *
 *   A has synced once a second of late. C creates files, 150 blocks in a second.
 *   A syncs. For a quarter of a second nothing is cut.
 *   T7 has 40 blocks when C stops a handle: its commit is asked for. T8 runs. So it goes
 *	with T8 and T9.
 *   A has logged into T10, which has 30 blocks, and waits for it: 2.5 ms, not 6.
 *	Had T9 been on its way then, A would have waited for the rest of it, too.
 *   A goes. Two seconds after its last sync nothing is cut any more.
 *
 * A sync also waits for the handles that are open when it comes. Those of write-back
 * are long, so ext4 maps less in each of them meanwhile: ext4_eager_is_long_extent().
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - No promise depends on it: a commit begins sooner than it would have.
 * - What is cut logs again what changes all the time, and changes at random are gathered
 *   for a shorter time. That has a price, so there are at most seven cuts for a sync: one
 *   in a quarter of the time between two syncs, until twice that time has passed. And
 *   that time is at least eight times what a cut may take, with barriers if the
 *   transaction is marked. Where that is not known nothing is cut.
 * - Syncs that come closer together are one: a group, as databases have them. What counts
 *   is the time between two groups. If a group goes on for longer than that it is none:
 *   somebody syncs all the time, and nothing is cut.
 * - If that is longer than periodic commits usually take to come nothing is cut, either.
 *   Such a sync finds what has been logged since the last commit, as in stock jbd2.
 * - What counts is a fsync, of a file or a folder, that waits for a transaction for which
 *   none has waited before. One that finds all committed does not count: what a cut has
 *   committed would make it count, and that the next cut. Settling, checkpoints and
 *   sync(2) wait for commits, too, and do not count; nor do handles that are synchronous
 *   themselves.
 * - A commit waits for all handles, and new ones wait for it. So a transaction is cut
 *   only by the last handle that is open, and there is nothing to wait for.
 * - A transaction that has data of a sync is left alone: the sync is about to commit it.
 *   So is one behind a commit that is under way: the cut would be of no use to who
 *   waits for that, and would end a carried commit's patience.
 * - It bounds no handle. One that is extended again and again, a truncation, makes a
 *   transaction as large as it does in stock jbd2.
 *
 * The marks' lock guards what is known of syncs. What is read without it may be old, or
 * on a 32-bit machine torn: that costs a cut, or spares one.
 */

#include <linux/ktime.h>

#include "burst.h"
#include "burst_trace.h"

/* A cut is due after that part of the time between two syncs ... */
#define JBD2_BURST_SHORT_PART		4
/* ... if that time is at least so many times what a cut may take: two barriers. */
#define JBD2_BURST_SHORT_COSTS		8

/* Who syncs less often than periodic commits usually come is not waited for. */
#define JBD2_BURST_SHORT_MAX_NS		(5LL * NSEC_PER_SEC)

/* How much a new gap between two syncs counts for the average. */
#define JBD2_BURST_SHORT_WEIGHT		4

/* The shortest time between two syncs that is worth cuts; S64_MAX if not known. */
static s64 jbd2_burst_least_gap(struct jbd2_burst *burst)
{
	/* The commit thread may change them: any values of late will do. */
	s64 flush_ns = data_race(burst->flush_ns), block_ns = data_race(burst->block_ns);
	unsigned int enough = READ_ONCE(burst->enough);

	if (!enough)
		return S64_MAX;
	return JBD2_BURST_SHORT_COSTS * (2 * flush_ns + enough * block_ns);
}

/* Somebody has synced, and this is not the first. When are cuts of use now? */
static void jbd2_burst_expect_sync(struct jbd2_burst *burst, s64 now)
{
	s64 gap_ns = now - burst->synced_ns;
	s64 least_ns = jbd2_burst_least_gap(burst);

	if (gap_ns >= least_ns) {
		burst->gap_ns = jbd2_burst_average(burst->gap_ns,
						   min(gap_ns, 2 * JBD2_BURST_SHORT_MAX_NS),
						   JBD2_BURST_SHORT_WEIGHT,
						   JBD2_BURST_SHORT_WEIGHT);
		burst->group_ns = now;
	} else if (now - burst->group_ns > burst->gap_ns) {
		/* No group: there is no next one to be expected. */
		burst->gap_ns = 0;
	}
	gap_ns = burst->gap_ns;
	if (gap_ns < least_ns || gap_ns >= JBD2_BURST_SHORT_MAX_NS)
		gap_ns = 0;
	WRITE_ONCE(burst->due_ns, now + gap_ns / JBD2_BURST_SHORT_PART);
	WRITE_ONCE(burst->until_ns, now + 2 * gap_ns);
}

/* jbd2_burst_note_sync(), where there are bursts. */
void jbd2_burst_add_sync(journal_t *journal, tid_t tid)
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);
	s64 now;

	/* Who finds it committed waits for nothing. */
	if (tid_geq(READ_ONCE(journal->j_commit_sequence), tid))
		return;
	spin_lock(&burst->lock);
	now = ktime_get();
	/* Those who wait for one commit are one sync. */
	if (!burst->synced_ns || tid_gt(tid, burst->synced_tid)) {
		if (burst->synced_ns)
			jbd2_burst_expect_sync(burst, now);
		WRITE_ONCE(burst->synced_ns, now);
		burst->synced_tid = tid;
	}
	spin_unlock(&burst->lock);
}
EXPORT_SYMBOL(jbd2_burst_add_sync);

/**
 * jbd2_burst_has_syncs - does somebody sync now and then, so that others should be brief?
 * @journal: the journal, with bursts
 */
bool jbd2_burst_has_syncs(journal_t *journal)
{
	s64 synced_ns = READ_ONCE(jbd2_burst_of(journal)->synced_ns);

	return synced_ns && ktime_get() < synced_ns + JBD2_BURST_SHORT_MAX_NS;
}
EXPORT_SYMBOL(jbd2_burst_has_syncs);

/* Only one of those who ask at once is told so. */
static bool jbd2_burst_is_due(struct jbd2_burst *burst, tid_t tid)
{
	s64 now = ktime_get();
	bool is_due;

	if (now < READ_ONCE(burst->due_ns) || now >= READ_ONCE(burst->until_ns))
		return false;
	spin_lock(&burst->lock);
	is_due = now >= burst->due_ns;
	if (is_due) {
		WRITE_ONCE(burst->due_ns, now + burst->gap_ns / JBD2_BURST_SHORT_PART);
		burst->cut_tid = tid;
		burst->stats.cut++;
	}
	spin_unlock(&burst->lock);
	return is_due;
}

/* jbd2_burst_is_enough(), where there are bursts. */
bool jbd2_burst_has_enough(transaction_t *transaction)
{
	journal_t *journal = transaction->t_journal;
	struct jbd2_burst *burst = jbd2_burst_of(journal);
	unsigned int enough = READ_ONCE(burst->enough);
	/* Beside those who file buffers: a few more do not matter. */
	unsigned int blocks = data_race(transaction->t_nr_buffers);
	tid_t tid = transaction->t_tid;

	if (blocks < enough || READ_ONCE(burst->data_tids[tid & 1]) == tid ||
	    atomic_read(&transaction->t_updates) > 1)
		return false;
	/* Without j_state_lock: a wrong answer is a cut that was of no use. */
	if (data_race(journal->j_commit_request == tid ||
		      journal->j_committing_transaction))
		return false;
	if (!jbd2_burst_is_due(burst, tid))
		return false;
	trace_jbd2_burst_cut(journal, tid, blocks, enough);
	return true;
}

/**
 * jbd2_burst_is_cut - has nobody but a cut asked for a commit?
 * @burst: of the journal
 * @tid: the transaction, of which a commit begins, and for which nobody waits
 */
bool jbd2_burst_is_cut(struct jbd2_burst *burst, tid_t tid)
{
	bool is_cut;

	spin_lock(&burst->lock);
	is_cut = burst->cut_tid == tid;
	spin_unlock(&burst->lock);
	return is_cut;
}
