// SPDX-License-Identifier: GPL-2.0
/*
 * Coarse-grained mtime update (mtime.h): what fsync commits, and what it flushes.
 *
 * Idea
 * ----
 *
 * Two questions decide: has more than stamps changed since the last commit
 * (attr_tid, mtime_log.c), and how old are the stamps on the medium
 * (mtime_durable.c)? An fsync commits
 *
 *   - attr_tid and i_datasync_tid, always;
 *   - in truncate what has logged an mtime or a ctime that is not durable. Most
 *     writes have logged none;
 *   - in defer what has logged a stamp that is not durable, if an mtime or a ctime
 *     on the medium is N ms old or older. If those that are being committed are
 *     young enough it waits for these.
 *
 * atime is exact in memory, and with relatime the first read after each new
 * mtime sets it. In both modes it is a stamp that waits together with the other
 * two, as long as those on the medium are young enough, and never alone: a file
 * that is only read has no young mtime, and its fsync commits.
 *
 * Shortly before the stamps on disk get too old an fsync in defer starts a
 * commit without waiting for it, which the flushes of the next ones carry along
 * (fs/jbd2/carrier.c): where files are synced all the time, and nothing else is,
 * nobody waits for a commit of stamps at all. It starts none if syncs wait for
 * commits that often: the next of these takes the stamps along, and would have to
 * wait for the carried commit before its own can begin.
 *
 * A worked example, defer with N = 100; durable are the stamps of 0, the times
 * are ms, and the file is written before each fsync:
 *
 *   40	fsync flushes the data and returns. T9 has the stamps of 40.
 *	Power fails: data of 40, stamps of 0.
 *   83	fsync flushes, finds durable 83 ms old and starts the commit of T9, which
 *	has the stamps of 83 by now. Its blocks are written.
 *   85	fsync flushes, and with its data the blocks of T9. The commit record is
 *	written without a barrier.
 *	Power fails: data of 85, and T9 whole or not at all: stamps of 83 or of 0.
 *   87	fsync flushes, and with its data the commit record. T9 has committed.
 *	Power fails: data of 87, stamps of 83.
 *   90	chmod and fsync: attr_tid is T10, and stamps do not matter. It commits.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - After a crash mtime and ctime are older than those of the last synced write
 *   by less than N ms, and everything else is as in stock ext4: in truncate the
 *   stamps are committed when they have changed, in defer when those on the
 *   medium are N ms old. Clock and age are looked at in the same moment as the
 *   stamps that are due, under i_raw_lock.
 * - A fast commit counts if it began after the fsync did. Stock ext4 is
 *   content with one that was under way, which may hold neither the inode nor
 *   a flush for the data. With the option off it is left at that.
 * - j_commit_sequence moves for a transaction that is aborted, too. So fsync
 *   looks for an abort once it has found what it needs committed, and fails.
 *   An fsync that flushes, but does not commit, aborts the journal if the flush
 *   fails, as the commit that it stands for would have done.
 * - No tid that is compared is 2^31 transactions old (ext4_mtime_recent()).
 * - An fsync follows one policy from its choice to its end, its flush included:
 *   who has left a commit out must learn of a failed flush, though the option
 *   may be off by then. A later fsync sees the new policy.
 *
 * Lock order
 * ----------
 *
 * i_raw_lock for the choice and its result. Nothing is held while a commit or a
 * flush is waited for.
 */

#include <linux/blkdev.h>
#include <linux/fs.h>

#include "ext4.h"
#include "ext4_jbd2.h"
#include "mtime_compat.h"
#include "mtime_internal.h"
#include "../jbd2/carrier.h"

#define CREATE_TRACE_POINTS
#include "mtime_trace.h"

/*
 * Start the carried commit when a fifth of the interval is left. It takes about
 * four fsyncs: at the default interval, enough for a device that flushes in 5 ms.
 */
#define EXT4_MTIME_LEAD_SHARE	5

static tid_t ext4_mtime_later(tid_t a, tid_t b)
{
	return tid_gt(a, b) ? a : b;
}

/* @tid, or of those that have ended the last: then all may be compared. */
static tid_t ext4_mtime_recent(const struct inode *inode, tid_t tid)
{
	journal_t *journal = EXT4_SB(inode->i_sb)->s_journal;

	return ext4_mtime_committed(inode, tid) ?
		READ_ONCE(journal->j_commit_sequence) : tid;
}

/* Nothing but atime has changed, if anything has. */
static bool ext4_mtime_same_cmtime(const struct ext4_mtime_behind *behind)
{
	return !behind->mtime_ns && !behind->ctime_ns;
}

/*
 * Which of the stamps on record have to be committed, if any? A crash leaves
 * what is durable or what is being committed.
 */
static enum ext4_mtime_reason
ext4_mtime_needed(const struct ext4_mtime_inode *mi, unsigned int policy,
		  bool *carry)
{
	s64 interval_ns = (policy & EXT4_MTIME_INTERVAL_MS) * NSEC_PER_MSEC;
	s64 lead_ns = interval_ns / EXT4_MTIME_LEAD_SHARE;
	const struct ext4_mtime_behind *durable = &mi->durable;
	const struct ext4_mtime_behind *next =
		mi->committing.pending ? &mi->committing : durable;
	bool same_cmtime = ext4_mtime_same_cmtime(durable) &&
		ext4_mtime_same_cmtime(next);
	bool young;
	s64 now_ns;

	if (same_cmtime && !durable->atime && !next->atime)
		return EXT4_MTIME_UNCHANGED;

	now_ns = ktime_get_real_ns();
	if (!ext4_mtime_younger(mi, next, now_ns, interval_ns))
		return EXT4_MTIME_OLD;
	young = ext4_mtime_younger(mi, durable, now_ns, interval_ns);
	if (!(policy & EXT4_MTIME_DEFER))
		return same_cmtime && young ? EXT4_MTIME_ATIME : EXT4_MTIME_OLD;
	if (!young)
		return EXT4_MTIME_UNDER_WAY;
	*carry = next == durable &&
		!ext4_mtime_younger(mi, durable, now_ns, interval_ns - lead_ns);
	return same_cmtime ? EXT4_MTIME_ATIME : EXT4_MTIME_YOUNG;
}

/*
 * Choose with i_raw_lock held; attr_tid is what is due in any case, logged_tid
 * if all stamps count.
 */
static void ext4_mtime_choose(struct ext4_mtime_inode *mi, unsigned int policy,
			      tid_t attr_tid, tid_t logged_tid,
			      struct ext4_mtime_sync *sync)
{
	sync->tid = ext4_mtime_later(sync->tid, logged_tid);
	sync->logged_tid = mi->logged_tid;
	sync->stamps = mi->logged;
	sync->reason = ext4_mtime_needed(mi, policy, &sync->carry);

	if (sync->reason == EXT4_MTIME_OLD || !tid_gt(sync->tid, attr_tid)) {
		sync->tracked = true;
	} else if (sync->reason == EXT4_MTIME_UNDER_WAY) {
		sync->tid = ext4_mtime_later(logged_tid - 1, attr_tid);
		sync->stamps = ext4_mtime_stamps_of(&mi->logged,
						    &mi->committing);
		sync->other_atime = mi->committing.atime;
		sync->tracked = true;
	} else {
		sync->tid = attr_tid;
	}
}

/*
 * A fast commit under way may have begun before this fsync's data and inode
 * were there, yet ext4_fc_commit() would wait for it and take it for the one
 * that was asked for.  Whichever is found once it has ended began later.
 */
static void ext4_mtime_outwait_fast_commit(struct super_block *sb)
{
	journal_t *journal = EXT4_SB(sb)->s_journal;
	atomic_t *done = &EXT4_SB(sb)->s_fc_subtid;
	int before = atomic_read(done);

	wait_event(journal->j_fc_wait,
		   !(READ_ONCE(journal->j_flags) & JBD2_FAST_COMMIT_ONGOING) ||
		   atomic_read(done) != before);
}

/* An fsync, in which stamps count as far as @policy says. */
static void ext4_mtime_choose_for(struct inode *inode, unsigned int policy,
				  struct ext4_mtime_sync *sync)
{
	struct ext4_inode_info *ei = EXT4_I(inode);
	struct ext4_mtime_inode *mi = &ei->i_mtime_info;
	bool skipped = ext4_test_inode_state(inode, EXT4_STATE_MTIME_SKIPPED);
	tid_t all_tid, attr_tid, data_tid, logged_tid;

	if (skipped)
		ext4_clear_inode_state(inode, EXT4_STATE_MTIME_SKIPPED);

	attr_tid = ext4_mtime_recent(inode, READ_ONCE(mi->attr_tid));
	data_tid = ext4_mtime_recent(inode, READ_ONCE(ei->i_datasync_tid));
	attr_tid = ext4_mtime_later(attr_tid, data_tid);
	sync->tid = ext4_mtime_later(sync->tid, attr_tid);
	all_tid = sync->tid;
	spin_lock(&ei->i_raw_lock);
	if (ext4_mtime_on_record(mi)) {
		ext4_mtime_settle(inode, mi);
		logged_tid = ext4_mtime_recent(inode, mi->logged_tid);
		all_tid = ext4_mtime_later(all_tid, logged_tid);
		ext4_mtime_choose(mi, policy, attr_tid, logged_tid, sync);
	}
	spin_unlock(&ei->i_raw_lock);
	if (!ext4_mtime_committed(inode, attr_tid))
		sync->reason = EXT4_MTIME_CHANGE;

	/* Stock ext4 would commit, for stamps not written or not due. */
	if (ext4_mtime_committed(inode, sync->tid) &&
	    (skipped || !ext4_mtime_committed(inode, all_tid))) {
		percpu_counter_inc(&EXT4_SB(inode->i_sb)->s_mtime.commits_avoided);
		trace_ext4_mtime_saved(inode, all_tid, sync->reason);
	}
}

/**
 * ext4_mtime_begin_sync - choose the transaction that fsync has to commit
 * @inode: the file, its data written and waited for
 * @datasync: fdatasync(2)
 * @sync: the choice; to be handed to ext4_mtime_end_sync()
 *
 * Context: journalled file system. Process context, may sleep.
 */
void ext4_mtime_begin_sync(struct inode *inode, bool datasync,
			   struct ext4_mtime_sync *sync)
{
	struct ext4_inode_info *ei = EXT4_I(inode);
	unsigned int policy = ext4_mtime_policy(inode->i_sb);

	sync->policy = policy;
	sync->carry = false;
	sync->tracked = false;
	sync->other_atime = false;
	sync->reason = datasync ? EXT4_MTIME_CHANGE : EXT4_MTIME_UNCHANGED;
	sync->tid = datasync ? ei->i_datasync_tid : ei->i_sync_tid;
	/* With eager_sync tids get old soon: it has them jump, and more come. */
	if (policy || ext4_mtime_has_bursts(inode->i_sb))
		sync->tid = ext4_mtime_recent(inode, sync->tid);
	if (likely(!policy))
		return;
	if (!datasync)
		ext4_mtime_choose_for(inode, policy, sync);
	if (ext4_mtime_committed(inode, sync->tid))
		return;
	WRITE_ONCE(EXT4_SB(inode->i_sb)->s_mtime.waited_ns, ktime_get_ns());
	trace_ext4_mtime_wait(inode, sync->tid, datasync, sync->reason);
	if (test_opt2(inode->i_sb, JOURNAL_FAST_COMMIT))
		ext4_mtime_outwait_fast_commit(inode->i_sb);
}

/*
 * Will a sync that waits for a commit take the stamps along in time, by how long ago
 * the last one came? If none does, the file's next fsync waits for its own.
 */
static bool ext4_mtime_commits_come(struct super_block *sb, unsigned int interval_ms)
{
	s64 lead_ns = (s64)interval_ms * (NSEC_PER_MSEC / EXT4_MTIME_LEAD_SHARE);
	s64 ago_ns = ktime_get_ns() - READ_ONCE(EXT4_SB(sb)->s_mtime.waited_ns);

	return ago_ns < lead_ns;
}

static void ext4_mtime_start_carried(struct inode *inode,
				     const struct ext4_mtime_sync *sync)
{
	struct jbd2_carrier *carrier = ext4_mtime_carrier(inode->i_sb);
	unsigned int interval_ms = sync->policy & EXT4_MTIME_INTERVAL_MS;

	if (carrier && !ext4_mtime_commits_come(inode->i_sb, interval_ms))
		jbd2_carrier_start_commit(carrier, sync->logged_tid,
					  msecs_to_jiffies(interval_ms));
}

/* ext4_mtime_end_sync(), of a sync that had the option on. */
int ext4_mtime_note_synced(struct inode *inode,
			   const struct ext4_mtime_sync *sync, int err)
{
	struct ext4_inode_info *ei = EXT4_I(inode);

	/*
	 * The flag is set before the tid counts as committed, each under
	 * j_state_lock, so whoever has seen the second sees the first.
	 */
	smp_rmb();
	if (!err && unlikely(ext4_mtime_journal_aborted(inode)))
		err = -EIO;
	if (err)
		return err;
	if (unlikely(sync->carry))
		ext4_mtime_start_carried(inode, sync);
	if (sync->tracked) {
		spin_lock(&ei->i_raw_lock);
		ext4_mtime_note_durable(&ei->i_mtime_info, sync);
		spin_unlock(&ei->i_raw_lock);
	}
	return 0;
}

/*
 * Flush the device, so that a commit may be carried. @aborts: the caller aborts
 * the journal if that fails. @relies: he is to learn of another's that fails.
 */
static int ext4_mtime_flush_device(struct super_block *sb, unsigned int policy,
				   bool aborts, bool relies)
{
	struct jbd2_carrier *carrier = ext4_mtime_carrier(sb);

	if (ext4_mtime_is_grouped(sb, policy))
		return ext4_mtime_group_flush(sb, aborts);
	if (likely(!carrier))
		return blkdev_issue_flush(sb->s_bdev);
	return jbd2_carrier_flush_device(carrier, sb->s_bdev, aborts, relies);
}

/**
 * ext4_mtime_count_flush - flush the device for one who does not rely on it
 * @sb: the file system
 *
 * Those who do learn if it fails. Waits for nobody's flush but its own.
 */
void ext4_mtime_count_flush(struct super_block *sb)
{
	ext4_mtime_flush_device(sb, 0, false, false);
}

/**
 * ext4_mtime_flush - flush the device, so that a commit may be carried
 * @sb: the file system
 *
 * Return: what blkdev_issue_flush() does; if an option is on, -EIO also if a
 * flush of another task's, which began earlier, has failed meanwhile.
 */
int ext4_mtime_flush(struct super_block *sb)
{
	unsigned int policy = ext4_mtime_policy(sb);

	return ext4_mtime_flush_device(sb, policy, false,
				       policy || ext4_mtime_has_bursts(sb));
}

/**
 * ext4_mtime_flush_for - flush the device for an fsync
 * @inode: the file
 * @datasync: fdatasync(2)
 * @sync: the choice that ext4_mtime_begin_sync() made; zero if it was not asked
 *
 * A device may drop all that it had cached when a flush fails, other files'
 * data too, and the next flush may succeed. In stock ext4 fsync's flush is that
 * of a commit, and the journal aborts. So it does for the flush that has taken
 * its place, whether or not it has in this case: nobody's later fsync returns 0.
 *
 * Return: what blkdev_issue_flush() does; if an option is on, -EIO also if
 * another flush has failed meanwhile, or the journal has been aborted.
 */
int ext4_mtime_flush_for(struct inode *inode, bool datasync,
			 const struct ext4_mtime_sync *sync)
{
	journal_t *journal = EXT4_SB(inode->i_sb)->s_journal;
	unsigned int policy = sync->policy;
	bool aborts = journal && !datasync && policy;
	int err;

	err = ext4_mtime_flush_device(inode->i_sb, policy, aborts,
				      policy || ext4_mtime_has_bursts(inode->i_sb));
	if (unlikely(err) && aborts)
		jbd2_journal_abort(journal, err);
	if (!err && policy && unlikely(ext4_mtime_journal_aborted(inode)))
		err = -EIO;
	return err;
}

/**
 * ext4_mtime_check_abort - may a sync succeed that has waited for nothing?
 * @sb: the file system
 *
 * Return: 0; or -EIO if the journal has been aborted, and an option has been on.
 */
int ext4_mtime_check_abort(struct super_block *sb)
{
	journal_t *journal = EXT4_SB(sb)->s_journal;

	return journal ? jbd2_carrier_check_abort(journal) : 0;
}
