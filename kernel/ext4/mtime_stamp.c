// SPDX-License-Identifier: GPL-2.0
/*
 * Coarse-grained mtime update (mtime.h): what a write does to the stamps.
 *
 * Idea
 * ----
 *
 * truncate: a write stamps the inode with the start of the N ms interval that
 * it falls into, and leaves it alone if both stamps lie in that interval. With
 * N = 100:
 *
 *	write at 1.034 s	mtime = ctime = 1.000 s, the inode is logged
 *	write at 1.071 s	nothing changes, nothing is logged
 *	write at 1.102 s	mtime = ctime = 1.100 s, the inode is logged
 *
 * defer: a write stamps the inode as in stock ext4, and logs it.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - Only writes come here: ->update_time of regular files is called by
 *   file_modified() and file_update_time(). Every other stamp is set by its
 *   own code and stays exact. fallocate(2) calls file_modified() as well and
 *   puts its stamps right with ext4_mtime_fallocate().
 * - In truncate a stamp never goes back. An mtime inside the current interval is
 *   kept, be it the rounded one or the exact one of create(2) or utimensat(2);
 *   ctime, which the user cannot set, never decreases. An mtime in any other
 *   interval, past or future, is replaced as in stock ext4.
 * - On a kernel with multigrain timestamps truncate's clock is the coarse one,
 *   but never before the floor, as for a file that nobody has stat()ed. Without
 *   the floor a fine-grained stamp could lie in an interval that the clock
 *   has not reached, and be set back; with a fine-grained clock a write could
 *   be stamped with an interval that the writes after it have not reached.
 *   So a write takes no fine-grained stamp, and leaves the floor of everybody
 *   else's stamps alone. Who has stat()ed a file sees its next write in the
 *   next interval; the mark that stat() leaves in ctime stays until ctime
 *   changes. In defer stamps are stock ext4's: a write after stat() is always
 *   seen.
 * - Two writers may get here at once (shared i_rwsem in direct I/O, page
 *   faults). Whoever changes a stamp in truncate reads the clock under i_lock,
 *   so the stamps follow the clock. Who finds them as they should be logs them
 *   all the same if the other has not done so yet: his own fsync relies on them.
 * - A write moves i_version only if somebody has queried it since it last
 *   moved, which is all that is promised. That shows in the raw inode, so it
 *   commits (mtime_log.c).
 *
 * Lock order
 * ----------
 *
 * i_lock, around the two stamps. A handle is started after it is released.
 */

#include <linux/fs.h>
#include <linux/iversion.h>
#include <linux/time64.h>

#include "ext4.h"
#include "mtime_compat.h"
#include "mtime_internal.h"
#include "mtime_round.h"

/*
 * Has somebody set the stamps, and not logged them yet? He may have to wait
 * before he can start a handle. Without a journal nobody waits.
 */
static bool ext4_mtime_unlogged(struct inode *inode)
{
	struct ext4_inode_info *ei = EXT4_I(inode);
	struct timespec64 mtime = inode_get_mtime(inode);
	struct timespec64 ctime = inode_get_ctime(inode);
	bool logged;

	if (!EXT4_SB(inode->i_sb)->s_journal)
		return false;
	spin_lock(&ei->i_raw_lock);
	logged = ext4_mtime_is_logged(&ei->i_mtime_info,
				      timespec64_to_ns(&mtime),
				      timespec64_to_ns(&ctime));
	spin_unlock(&ei->i_raw_lock);
	return !logged;
}

/*
 * What generic_update_time() does once the stamps are set, but i_version moves
 * only for those who look. Whoever starts a handle finds out that the journal
 * has aborted, so that his fsync fails; a write that would not starts one, too:
 * the stamps that it leaves as they are may have been in the transaction with
 * which the journal has aborted.
 */
static void ext4_mtime_mark_dirty(struct inode *inode, bool updated)
{
	struct ext4_mtime_sb *ms = &EXT4_SB(inode->i_sb)->s_mtime;
	int dirty_flags = 0;

	if (updated || unlikely(ext4_mtime_unlogged(inode)))
		dirty_flags = inode->i_sb->s_flags & SB_LAZYTIME ?
			I_DIRTY_TIME : I_DIRTY_SYNC;
	if (updated) {
		percpu_counter_inc(&ms->updates_done);
	} else {
		percpu_counter_inc(&ms->updates_skipped);
		if (!ext4_test_inode_state(inode, EXT4_STATE_MTIME_SKIPPED))
			ext4_set_inode_state(inode, EXT4_STATE_MTIME_SKIPPED);
		if (unlikely(ext4_mtime_journal_aborted(inode)))
			dirty_flags = I_DIRTY_SYNC;
	}
	if (IS_I_VERSION(inode) && inode_maybe_inc_iversion(inode, false))
		dirty_flags |= I_DIRTY_SYNC;
	if (dirty_flags)
		__mark_inode_dirty(inode, dirty_flags);
}

/*
 * The start of an interval as this file system can store it: inodes of 128
 * bytes have whole seconds, and ext4 ends in 2446.
 */
static struct timespec64 ext4_mtime_interval_start(struct inode *inode,
						   struct timespec64 t,
						   unsigned int interval_ms)
{
	return timestamp_truncate(ext4_mtime_round(t, interval_ms), inode);
}

/*
 * Start of the current interval, by the clock of a file that nobody has
 * stat()ed: the buddy cache's inode has no name to do so.
 */
static struct timespec64 ext4_mtime_current_start(struct inode *inode,
						  unsigned int interval_ms)
{
	struct inode *unseen = EXT4_SB(inode->i_sb)->s_buddy_cache;

	return ext4_mtime_interval_start(inode, current_time(unseen),
					 interval_ms);
}

static bool ext4_mtime_is_stale(struct inode *inode, struct timespec64 start,
				unsigned int interval_ms)
{
	struct timespec64 mtime = inode_get_mtime(inode);

	mtime = ext4_mtime_interval_start(inode, mtime, interval_ms);
	return !timespec64_equal(&mtime, &start);
}

static bool ext4_ctime_is_stale(struct inode *inode, struct timespec64 start)
{
	struct timespec64 ctime = inode_get_ctime(inode);

	return timespec64_compare(&ctime, &start) < 0;
}

/* With i_lock held. Was a stamp changed? */
static bool ext4_truncate_stamp(struct inode *inode, unsigned int interval_ms)
{
	struct timespec64 start = ext4_mtime_current_start(inode, interval_ms);
	bool mtime_stale = ext4_mtime_is_stale(inode, start, interval_ms);
	bool ctime_stale = ext4_ctime_is_stale(inode, start);

	if (mtime_stale)
		inode_set_mtime_to_ts(inode, start);
	if (ctime_stale)
		ext4_mtime_raise_ctime(inode, start);
	return mtime_stale || ctime_stale;
}

static int ext4_truncate_update_time(struct inode *inode,
				     unsigned int interval_ms, bool nowait)
{
	struct timespec64 start = ext4_mtime_current_start(inode, interval_ms);
	bool stale = ext4_mtime_is_stale(inode, start, interval_ms) ||
		ext4_ctime_is_stale(inode, start);

	if (nowait && (stale || ext4_mtime_unlogged(inode) ||
		       (IS_I_VERSION(inode) && inode_iversion_need_inc(inode))))
		return -EAGAIN;
	if (stale) {
		spin_lock(&inode->i_lock);
		stale = ext4_truncate_stamp(inode, interval_ms);
		spin_unlock(&inode->i_lock);
	}
	ext4_mtime_mark_dirty(inode, stale);
	return 0;
}

static int ext4_defer_update_time(struct inode *inode, bool nowait)
{
	struct timespec64 mtime, ctime, now;
	bool mtime_changed;

	/* The VFS does not call unless something is out of date. */
	if (nowait)
		return -EAGAIN;
	mtime = inode_get_mtime(inode);
	ctime = inode_get_ctime(inode);
	now = inode_set_ctime_current(inode);
	mtime_changed = !timespec64_equal(&now, &mtime);
	if (mtime_changed)
		inode_set_mtime_to_ts(inode, now);
	ext4_mtime_mark_dirty(inode, mtime_changed ||
			      !timespec64_equal(&now, &ctime));
	return 0;
}

/**
 * ext4_mtime_update - stamp a regular file that is written to
 * @inode: the file
 * @policy: what ext4_mtime_policy() returned, not 0
 * @nowait: do not block
 *
 * Context: a write has access to the mount; i_rwsem may be held exclusive,
 * shared or not at all (page fault). Starts a handle.
 * Return: 0, or -EAGAIN if @nowait and a handle would be needed
 */
int ext4_mtime_update(struct inode *inode, unsigned int policy, bool nowait)
{
	if (policy & EXT4_MTIME_DEFER)
		return ext4_defer_update_time(inode, nowait);
	return ext4_truncate_update_time(inode, policy & EXT4_MTIME_INTERVAL_MS,
					 nowait);
}

/**
 * ext4_mtime_fallocate - give a file the exact stamps of fallocate(2)
 * @file: has just gone through file_modified(), which took it for a write
 *
 * Context: i_rwsem held exclusive, mount write access held.
 */
void ext4_mtime_fallocate(struct file *file)
{
	struct inode *inode = file_inode(file);
	unsigned int policy = ext4_mtime_policy(inode->i_sb);

	if (likely(!policy) || policy & EXT4_MTIME_DEFER)
		return;
	if (IS_NOCMTIME(inode) || file->f_mode & FMODE_NOCMTIME)
		return;
	ext4_mtime_update_exact(inode);
}
