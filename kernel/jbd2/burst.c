// SPDX-License-Identifier: GPL-2.0
/*
 * Burst commits: a transaction is one write into the log and one flush.
 *
 * Idea
 * ----
 *
 * jbd2 writes a transaction's blocks, waits for them, and sends the commit
 * record with a flush before it and FUA. The first barrier keeps a record from
 * being there without its blocks. A record that holds a sum of its blocks needs
 * no such barrier: one that is there without them ends the log, like one that
 * is not there. So descriptors, blocks and record are written together, and one
 * flush makes all of them durable:
 *
 *   [revokes] [descriptor, blocks]... [record], flush.
 *
 * The sum is that of JBD2_FEATURE_COMPAT_CHECKSUM, and
 * JBD2_FEATURE_INCOMPAT_ASYNC_COMMIT tells recovery that a wrong one is no
 * damage. Every jbd2 and e2fsck knows both. While the log is empty its
 * superblock shows the features that it had without bursts.
 *
 * What the first barrier does beside that is to make durable what a transaction
 * exposes and the log does not hold: ordered data, zeroes, data whose blocks are
 * converted. Whoever logs such a change marks the transaction, and it is
 * committed with jbd2's own barriers; unless what it exposes had been written
 * when it was marked, and a flush that began later has ended (carrier_flush.c).
 *
 * A worked example. T9 is a rename, T10 an append of a page:
 *
 *   fsync of the folder. T9's blocks and record are sent.
 *	Power fails: some of the blocks are there, and perhaps the record. The
 *	sum is wrong, or the record is missing: recovery ends before T9.
 *   The flush ends: T9 is committed.
 *   The page is written, and its extent converted, which marks T10.
 *   fsync of the file. T10's blocks are sent and waited for.
 *	Power fails: there is no record of T10. The page may be lost.
 *   T10's record is sent after a flush, which covers the page, and with FUA.
 *	Power fails: if the record is there, the page is.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - Only the last burst may be torn. Recovery takes a torn one with a whole one
 *   behind it for damage. The commit thread sends nothing of a transaction
 *   before the flush of the one before has ended well; if it fails, the journal
 *   aborts, and no record is sent any more.
 * - The superblock says where the log begins before the first burst is sent: it
 *   is written with FUA. If it was lost, a whole record might lie in a log that
 *   counts as empty, and the next mount would use its number again.
 * - The features change only while the log is empty and its superblock says so,
 *   which is when JBD2_FLUSHED is set. Then nothing is written: the first commit
 *   writes features, sequence and start at once, in one sector.
 * - The sum has no age and no UUID. What an older file system has left in the log
 *   is harmless if its sequence numbers differ: ours jump by a large random number
 *   when bursts are first switched on. Later mounts jump by a little, past those that
 *   were in use before a crash. So numbers rise, for some 3,500 mounts until they
 *   begin anew. They jump once in a mount: inodes in memory know tids, which are
 *   compared by difference.
 * - The sum leaves out revoke blocks. One that is torn may lose records behind
 *   its first sector, of which alone devices promise that it is written whole. So
 *   there are none behind it.
 * - A marked transaction has barriers, and its marks are complete when that is
 *   decided: whoever marks has a handle in it, and all of them have been stopped.
 *   There are two sets of marks: a transaction is marked while it is running or
 *   locked, and decided before the one after it can be locked.
 * - A flush covers a mark only if it began after the mark and has ended well, all
 *   flushes that had begun by its end have ended, too, and none has failed since the
 *   mark. Once one has failed that is to abort the journal, no flush covers anything.
 *   Where the data may be yet to be written when the mark is made, no flush covers that.
 * - On a device without a volatile cache every mark counts as covered. The block
 *   layer drops flushes there, so jbd2's barriers make durable what has been written
 *   when the record is sent. What a mark is about has been: its handle comes behind
 *   the write, or the commit has waited for it, as ordered data, before it chooses.
 *   The one thing that a burst writes beside its record is the log, which has sums.
 * - A burst's flush is sent in T_COMMIT_JFLUSH. Who was told before that
 *   (jbd2_trans_will_send_data_barrier()) that a flush will come, and had written
 *   his data, is covered by it; who asks later flushes for himself. In
 *   jbd2_journal_commit_transaction() the tail is looked up before that, so what
 *   has been checkpointed by then is durable when the tail moves.
 * - A flush counts only if none has failed since the commit began, whosever it
 *   was: a device may drop all that it has cached, and the next one succeed.
 *
 * Lock order
 * ----------
 *
 * The marks' lock, then the carrier's. Switching is serialized by s_umount, with
 * updates locked and the journal flushed. Counters are the commit thread's,
 * but for that of burst_short.c.
 */

#include <linux/blkdev.h>
#include <linux/random.h>

#include "burst.h"
#include "burst_compat.h"
#include "carrier.h"

#define CREATE_TRACE_POINTS
#include "burst_trace.h"

/* What a device writes whole. */
#define JBD2_BURST_SECTOR	512

/*
 * How far sequence numbers jump: by the first, and by up to the second besides as long
 * as they are below the first: above that so many transactions have been logged, or it
 * has jumped. Some 2^30 with the room, at most: a file's number from before is
 * then one of the past for as many transactions again.
 */
#define JBD2_BURST_JUMP_MIN	0x00100000U
#define JBD2_BURST_JUMP_SPREAD	0x20000000U
/* So many transactions are left then until the number 0. */
#define JBD2_BURST_ROOM		0x20000000U

/* --- what a transaction exposes ------------------------------------------- */

/* May what it exposes be written only after the mark has been made? */
static bool jbd2_burst_comes_later(enum jbd2_burst_reason reason)
{
	return reason != JBD2_BURST_CONVERTED && reason != JBD2_BURST_ZEROED;
}

/* jbd2_burst_mark_transaction(), where there are bursts. */
void jbd2_burst_add_mark(transaction_t *transaction,
			 enum jbd2_burst_reason reason)
{
	journal_t *journal = transaction->t_journal;
	struct jbd2_burst *burst = jbd2_burst_of(journal);
	tid_t tid = transaction->t_tid;
	struct jbd2_burst_mark *mark = &burst->marks[tid & 1];
	bool is_new;
	u64 failed;

	spin_lock(&burst->lock);
	if (mark->tid != tid)
		*mark = (struct jbd2_burst_mark) { .tid = tid };
	is_new = !(mark->reasons & BIT(reason));
	jbd2_carrier_numbers(journal, &mark->begun, &failed);
	if (!mark->reasons)
		mark->failed = failed;
	mark->reasons |= BIT(reason);
	mark->open |= jbd2_burst_comes_later(reason);
	spin_unlock(&burst->lock);
	if (is_new)
		trace_jbd2_burst_mark(journal, tid, reason, _RET_IP_);
}
EXPORT_SYMBOL(jbd2_burst_add_mark);

/* --- the commit ----------------------------------------------------------- */

/* jbd2_burst_begin(), where there are bursts. */
void jbd2_burst_prepare(journal_t *journal)
{
	u64 begun;

	jbd2_burst_gather(journal);
	jbd2_burst_of(journal)->cached = false;
	jbd2_carrier_numbers(journal, &begun, &jbd2_burst_of(journal)->failed);
}

/**
 * jbd2_burst_sb_flags - how to write the superblock when the log is empty no more
 * @journal: the journal
 */
blk_opf_t jbd2_burst_sb_flags(journal_t *journal)
{
	return jbd2_burst_on(journal) ? REQ_FUA : 0;
}

/*
 * Is what a marked transaction exposes durable? Without a volatile cache what has
 * been written is, and nobody sends a flush for the barriers.
 */
static bool jbd2_burst_is_covered(journal_t *journal,
				  const struct jbd2_burst_mark *mark)
{
	if (!bdev_write_cache(journal->j_fs_dev))
		return true;
	return !mark->open &&
		jbd2_carrier_covers(journal, mark->begun, mark->failed);
}

/* jbd2_burst_commits_async(), where there are bursts. */
bool jbd2_burst_decide(journal_t *journal, tid_t tid)
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);
	struct jbd2_burst_mark mark = {};
	bool covered;
	int i;

	spin_lock(&burst->lock);
	if (burst->marks[tid & 1].tid == tid)
		mark = burst->marks[tid & 1];
	spin_unlock(&burst->lock);
	covered = mark.reasons && jbd2_burst_is_covered(journal, &mark);
	/* Recovery takes this number for "none", and would replay a torn burst that has it. */
	if (unlikely(!tid)) {
		mark.reasons |= BIT(JBD2_BURST_NUMBER_0);
		covered = false;
	}
	trace_jbd2_burst_decide(journal, tid, mark.reasons, covered);
	if (!mark.reasons || covered) {
		burst->stats.covered += covered;
		return true;
	}
	burst->stats.barriers++;
	for (i = 0; i < JBD2_BURST_REASONS; i++)
		burst->stats.by_reason[i] += !!(mark.reasons & BIT(i));
	return false;
}

/**
 * jbd2_burst_flush - make an asynchronous commit durable
 * @journal: the journal
 * @transaction: the transaction, its blocks and its record written
 * @start_time: when its commit began, put off by the time that this waits
 * @err: what came of that
 *
 * Return: @err or that of the flush, after which the journal has to be aborted.
 * Where there are no bursts that counts only if flushes do.
 */
int jbd2_burst_flush(journal_t *journal, transaction_t *transaction,
		     ktime_t *start_time, int err)
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);
	ktime_t since = ktime_get(), began = *start_time;
	unsigned long blocks;

	if (likely(!jbd2_burst_on(journal)))
		return jbd2_carrier_flush_async(journal, err);
	if (err || is_journal_aborted(journal))
		return err;
	blocks = journal->j_head - transaction->t_log_start;
	if (journal->j_head < transaction->t_log_start)
		blocks += journal->j_last - journal->j_first;
	jbd2_burst_flush_begins(journal);
	err = jbd2_carrier_flush_burst(journal, transaction->t_tid, start_time,
				       burst->failed);
	trace_jbd2_burst_flush(journal, transaction->t_tid, blocks,
			       ktime_sub(ktime_get(), since), err);
	if (!err) {
		if (*start_time == began)
			jbd2_burst_learn(journal, blocks, since - began,
					 ktime_get() - since);
		burst->stats.bursts++;
		burst->stats.blocks += blocks;
		jbd2_burst_served(journal, transaction->t_tid);
	}
	return err;
}

/**
 * jbd2_burst_revoke_blocks - how many blocks revokes take where there are bursts
 * @journal: the journal
 * @revokes: that a handle has credits for
 */
unsigned int jbd2_burst_revoke_blocks(journal_t *journal, unsigned int revokes)
{
	unsigned int size = jbd2_has_feature_64bit(journal) ? 8 : 4;

	return DIV_ROUND_UP(revokes, (JBD2_BURST_SECTOR -
				      sizeof(jbd2_journal_revoke_header_t)) / size);
}
EXPORT_SYMBOL(jbd2_burst_revoke_blocks);

/**
 * jbd2_burst_revoke_space - how much of a revoke block may be used
 * @journal: the journal
 * @space: bytes behind its header
 */
int jbd2_burst_revoke_space(journal_t *journal, int space)
{
	if (likely(!jbd2_burst_on(journal)))
		return space;
	return min_t(int, space, JBD2_BURST_SECTOR -
				 sizeof(jbd2_journal_revoke_header_t));
}

/* --- the log's features --------------------------------------------------- */

static void jbd2_burst_set_features(journal_t *journal, u32 compat, u32 incompat)
{
	journal_superblock_t *sb = journal->j_superblock;
	const u32 compats = JBD2_FEATURE_COMPAT_CHECKSUM;
	const u32 incompats = JBD2_FEATURE_INCOMPAT_ASYNC_COMMIT |
			      JBD2_FEATURE_INCOMPAT_CSUM_V2 |
			      JBD2_FEATURE_INCOMPAT_CSUM_V3;

	sb->s_feature_compat &= ~cpu_to_be32(compats);
	sb->s_feature_compat |= cpu_to_be32(compat & compats);
	sb->s_feature_incompat &= ~cpu_to_be32(incompats);
	sb->s_feature_incompat |= cpu_to_be32(incompat & incompats);
}

/**
 * jbd2_burst_show_empty - have the superblock say what it said without bursts
 * @journal: the journal, its superblock's buffer locked, its log empty
 *
 * jbd2 asks for the driver, not for the feature, to see which sums there are.
 */
void jbd2_burst_show_empty(journal_t *journal)
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);

	if (!jbd2_burst_on(journal))
		return;
	jbd2_burst_set_features(journal, burst->compat, burst->incompat);
	jbd2_burst_set_driver(journal, burst->driver);
}

/**
 * jbd2_burst_show_log - have the superblock say again what the log will hold
 * @journal: the journal, its superblock's buffer locked: an abort may write it
 */
void jbd2_burst_show_log(journal_t *journal)
{
	if (!jbd2_burst_on(journal))
		return;
	jbd2_burst_set_features(journal, JBD2_FEATURE_COMPAT_CHECKSUM,
				JBD2_FEATURE_INCOMPAT_ASYNC_COMMIT);
	jbd2_burst_set_driver(journal, NULL);
}

/*
 * No number that may be in this log is used again. The number 0, which is to have barriers,
 * is jumped over well before.
 */
static void jbd2_burst_jump(journal_t *journal)
{
	tid_t tid;

	write_lock(&journal->j_state_lock);
	tid = journal->j_transaction_sequence;
	if (tid < JBD2_BURST_JUMP_MIN)
		tid += get_random_u32_below(JBD2_BURST_JUMP_SPREAD);
	tid += JBD2_BURST_JUMP_MIN;
	if (!tid || tid > -JBD2_BURST_ROOM)
		tid += JBD2_BURST_ROOM;
	journal->j_transaction_sequence = tid;
	journal->j_tail_sequence = tid;
	WRITE_ONCE(journal->j_commit_sequence, tid - 1);
	journal->j_commit_request = tid - 1;
	write_unlock(&journal->j_state_lock);
}

/**
 * jbd2_burst_switch - have commits be bursts, or be so no more
 * @journal: a journal that has been flushed, and that nobody else can use
 * @on: what is wanted
 *
 * Return: 0, or an error if the log is not empty or the journal has aborted.
 */
int jbd2_burst_switch(journal_t *journal, bool on)
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);
	journal_superblock_t *sb = journal->j_superblock;

	if (jbd2_burst_on(journal) == on)
		return 0;
	if (is_journal_aborted(journal))
		return -EIO;
	if (WARN_ON_ONCE(sb->s_start || !(journal->j_flags & JBD2_FLUSHED) ||
			 journal->j_running_transaction ||
			 journal->j_committing_transaction))
		return -EBUSY;

	if (on && !burst->jumped) {
		jbd2_burst_jump(journal);
		burst->jumped = true;
	}
	lock_buffer(journal->j_sb_buffer);
	if (on) {
		burst->compat = be32_to_cpu(sb->s_feature_compat);
		burst->incompat = be32_to_cpu(sb->s_feature_incompat);
		burst->driver = jbd2_burst_driver(journal);
		WRITE_ONCE(burst->on, true);
		jbd2_burst_show_log(journal);
	} else {
		jbd2_burst_show_empty(journal);
		WRITE_ONCE(burst->on, false);
		jbd2_burst_free_buffers(journal);
	}
	unlock_buffer(journal->j_sb_buffer);
	/* Have jbd2 look anew at how large tags and revoke blocks are. */
	jbd2_journal_clear_features(journal, 0, 0, 0);
	trace_jbd2_burst_switch(journal, journal->j_transaction_sequence, on);
	return 0;
}
EXPORT_SYMBOL(jbd2_burst_switch);

/**
 * jbd2_burst_loaded - a journal has been loaded, and recovered if need be
 * @journal: the journal
 */
void jbd2_burst_loaded(journal_t *journal)
{
	jbd2_burst_of(journal)->left = journal->j_superblock->s_start &&
		jbd2_has_feature_async_commit(journal);
}

/**
 * jbd2_burst_left - does the superblock on disk ask for asynchronous commits?
 * @journal: the journal, just loaded
 *
 * After a crash it does, and points to an empty log. Nothing else may be logged
 * before it is written.
 */
bool jbd2_burst_left(journal_t *journal)
{
	return jbd2_burst_of(journal)->left;
}
EXPORT_SYMBOL(jbd2_burst_left);

/**
 * jbd2_burst_destroy - a journal goes; nothing is written any more
 * @journal: the journal
 */
void jbd2_burst_destroy(journal_t *journal)
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);

	if (jbd2_burst_on(journal))
		jbd2_burst_set_driver(journal, burst->driver);
	jbd2_burst_free_buffers(journal);
}

/**
 * jbd2_burst_stats - what has come of it
 * @journal: the journal
 * @stats: is filled; its values need not be of the same moment
 */
void jbd2_burst_stats(journal_t *journal, struct jbd2_burst_stats *stats)
{
	/* Read beside the commit thread: numbers for a person. */
	*stats = data_race(jbd2_burst_of(journal)->stats);
}
EXPORT_SYMBOL(jbd2_burst_stats);
