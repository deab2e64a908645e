// SPDX-License-Identifier: GPL-2.0
/*
 * Coarse-grained mtime update: fsync(2) at the cost of fdatasync(2).
 *
 * An overwrite of an allocated block changes nothing in the inode but mtime
 * and ctime, yet the fsync after it commits a transaction (descriptor, inode
 * table block, commit block) to make them durable. It is saved only if both
 * stamps were already there, which in stock ext4 means that two writes fell
 * into one timer tick. With the mount option mtime_update=N stamps count in
 * steps of N ms instead. mtime_mode says where the step is taken:
 *
 * truncate (Son et al., "Coarse-grained mtime Update for Better fsync()
 * Performance", SAC'17, algorithm 1): a write stamps the inode with the start
 * of the N ms interval that it falls into. If both stamps lie in that interval
 * the inode stays clean, and fsync finds nothing to commit.
 *
 *   - Only writes come here: ->update_time of regular files is called by
 *     file_modified() and file_update_time(). Every other stamp is set by its
 *     own code and stays exact. fallocate(2) calls file_modified() as well and
 *     puts its stamps right with ext4_mtime_fallocate().
 *   - A stamp never goes back. An mtime inside the current interval is kept,
 *     be it the rounded one or the exact one of create(2) or utimensat(2);
 *     ctime, which the user cannot set, never decreases. An mtime in any other
 *     interval, past or future, is replaced as in stock ext4.
 *   - On a kernel with multigrain timestamps the clock is the coarse one, but
 *     never before the floor, as for a file that nobody has stat()ed. Without
 *     the floor a fine-grained stamp could lie in an interval that the clock
 *     has not reached, and be set back; with a fine-grained clock a write could
 *     be stamped with an interval that the writes after it have not reached.
 *     So a write takes no fine-grained stamp, and leaves the floor of everybody
 *     else's stamps alone. Who has stat()ed a file sees its next write in the
 *     next interval; the mark that stat() leaves in ctime stays until ctime
 *     changes.
 *   - atime is exact, but with relatime the first read after each new mtime
 *     sets it. If nothing else has changed, it waits for the next commit as long
 *     as an mtime and a ctime of the current interval are on disk.
 *   - Two writers may get here at once (shared i_rwsem in direct I/O, page
 *     faults). Whoever changes a stamp reads the clock under i_lock, so the
 *     stamps follow the clock.
 *
 * defer: stamps are exact in memory and are logged into the running
 * transaction as ever. But an fsync of a file of which nothing but its stamps
 * has changed since its last commit does not force that transaction out, as
 * long as an mtime and a ctime younger than N ms are on disk. Hence after a
 * crash mtime and ctime may be older than those of the last synced write by
 * less than N ms, and everything else is as in stock ext4. atime is a stamp
 * here, too, and waits together with the other two, never alone: a file that is
 * only read has no young mtime, and its fsync commits. Multigrain timestamps are stock ext4's:
 * a write after stat() is always seen. Shortly before the stamps on disk get
 * too old an fsync starts a commit without waiting for it, which the flushes of
 * the next ones carry along (fs/jbd2/carrier.c): a file that is synced all the
 * time never waits for a commit of stamps at all.
 *
 * What fsync has to commit, in both modes:
 *
 *   - i_mtime_info.attr_tid is the transaction to commit if stamps do not
 *     count. It moves together with i_sync_tid, except for an update that was
 *     proved to log stamps alone. The proof has two parts. The handle claims
 *     it by its type, which only ext4_dirty_inode() gives, and only if the
 *     dirtier said that fdatasync does not need the change; utimensat(2) does
 *     not say so. And the raw inode differs in its stamps alone, compared
 *     under i_raw_lock; so a change of mode, owner, size, flags or blocks that
 *     travels along is seen. A change outside the raw inode (xattr, inline
 *     data, extent blocks) has a handle of another type. Whoever is in doubt
 *     commits.
 *   - attr_tid moves also when a block that belongs to the file is logged,
 *     whether or not somebody thinks of fsync there: EXT4_IOC_MOVE_EXT did not,
 *     and was saved by the stamps of the next write.
 *   - A write moves i_version only if somebody has queried it since it last
 *     moved. That shows in the raw inode, so it commits.
 *   - The stamps known to be durable are those of the last transaction that
 *     logged this inode and has committed, whoever asked for the commit, or of
 *     the last fsync that committed. "logged" changes under i_raw_lock while
 *     the handle is open: when its transaction has committed, stamps not older
 *     than it are on disk. A transaction starts only when the one before is
 *     committing, so two of them are kept apart. ext4_mtime_begin_sync() takes
 *     "logged", and the commit of its tid turns it into "durable". That also
 *     tells what a fast commit, which leaves its transaction running, has made
 *     durable: without it truncate would repeat the fast commit at each fsync.
 *   - A fast commit counts if it began after the fsync did. Stock ext4 is
 *     content with one that was under way, which may hold neither the inode nor
 *     a flush for the data. With the option off it is left at that.
 *   - j_commit_sequence moves for a transaction that is aborted, too. So fsync
 *     looks for an abort once it has found what it needs committed, and fails.
 *     An fsync that flushes, but does not commit, aborts the journal if the flush
 *     fails, as the commit that it stands for would have done.
 *   - An inode read from disk has no durable stamps, and attr_tid of the
 *     running transaction: it commits once.
 *   - Journalled data moves i_datasync_tid alone; in stock ext4 the stamp that
 *     comes with it moves i_sync_tid. So the later of the two counts.
 *
 * Without a journal there is no commit for defer to leave out, while truncate
 * saves the inode table write.
 *
 * Locking: i_lock and i_raw_lock are leaf locks here. The policy is one word,
 * read once per call: an update or fsync under way during remount takes the
 * old policy or the new one. attr_tid is kept while the option is off, too, so
 * that it can be switched on at any time; stamps logged meanwhile are unknown,
 * which makes those on record too old, and the next fsync commit.
 */

#include <linux/blkdev.h>
#include <linux/fs.h>
#include <linux/fs_parser.h>
#include <linux/iversion.h>
#include <linux/seq_file.h>
#include <linux/sysfs.h>
#include <linux/time64.h>

#include "ext4.h"
#include "ext4_jbd2.h"
#include "mtime_compat.h"
#include "mtime_round.h"
#include "../jbd2/carrier.h"

/* Range and default are the paper's. The tick bounds what is of use below. */
#define EXT4_MTIME_MIN_MS	1
#define EXT4_MTIME_MAX_MS	1000
#define EXT4_MTIME_DEFAULT_MS	100

/*
 * Start the carried commit when a fifth of the interval is left. It takes about
 * four fsyncs: at the default interval, enough for a device that flushes in 5 ms.
 */
#define EXT4_MTIME_LEAD_SHARE	5

/* No file can have it: ext4 timestamps begin in 1901. */
#define EXT4_MTIME_NEVER	S64_MIN

/**
 * ext4_mtime_policy - what is in force for a file
 * @inode: the file
 *
 * Return: 0 for stock behaviour, else the interval in ms and EXT4_MTIME_DEFER.
 */
unsigned int ext4_mtime_policy(const struct inode *inode)
{
	return READ_ONCE(EXT4_SB(inode->i_sb)->s_mtime.policy);
}

/*
 * Mount options
 */

/**
 * ext4_mtime_parse_interval - take mtime_update or mtime_update=N
 * @opts: options seen so far, changed only if the interval is valid
 * @param: a flag, or a string with the interval in ms as typed
 *
 * Return: 0, or -EINVAL and a message.
 */
int ext4_mtime_parse_interval(struct ext4_mtime_options *opts,
			      const struct fs_parameter *param)
{
	unsigned int interval_ms = EXT4_MTIME_DEFAULT_MS;

	if (param->type == fs_value_is_string &&
	    (kstrtouint(param->string, 10, &interval_ms) ||
	     interval_ms < EXT4_MTIME_MIN_MS ||
	     interval_ms > EXT4_MTIME_MAX_MS)) {
		ext4_msg(NULL, KERN_ERR,
			 "mtime_update=%s: the interval must be a whole number of milliseconds from %d to %d",
			 param->string, EXT4_MTIME_MIN_MS, EXT4_MTIME_MAX_MS);
		return -EINVAL;
	}
	opts->interval_ms = interval_ms;
	opts->interval_given = true;
	return 0;
}

/**
 * ext4_mtime_parse_mode - take mtime_mode=truncate or mtime_mode=defer
 * @opts: options seen so far, changed only if the mode is valid
 * @param: a string with the mode as typed, or a flag, which is no mode
 *
 * Return: 0, or -EINVAL and a message.
 */
int ext4_mtime_parse_mode(struct ext4_mtime_options *opts,
			  const struct fs_parameter *param)
{
	static const char * const modes[] = { "truncate", "defer" };
	const char *arg = param->type == fs_value_is_string ?
		param->string : "";
	int mode = match_string(modes, ARRAY_SIZE(modes), arg);

	if (mode < 0) {
		ext4_msg(NULL, KERN_ERR,
			 "mtime_mode=%s: the mode must be truncate or defer",
			 arg);
		return -EINVAL;
	}
	opts->defer = mode;
	opts->mode_given = true;
	return 0;
}

/**
 * ext4_mtime_parse_off - take un_mtime_update
 * @opts: options seen so far; what they said of mtime is taken back
 */
void ext4_mtime_parse_off(struct ext4_mtime_options *opts)
{
	*opts = (struct ext4_mtime_options) { .reset = true };
}

static unsigned int ext4_mtime_merge(unsigned int policy,
				     const struct ext4_mtime_options *opts)
{
	if (opts->reset)
		policy = 0;
	if (opts->interval_given)
		policy = opts->interval_ms | (policy & EXT4_MTIME_DEFER);
	if (opts->mode_given) {
		policy &= ~EXT4_MTIME_DEFER;
		if (opts->defer)
			policy |= EXT4_MTIME_DEFER;
	}
	return policy;
}

/**
 * ext4_mtime_check_options - do the options go together?
 * @sbi: holds what is in force, from a mount or from the superblock's defaults
 * @opts: what is asked for now
 *
 * Return: 0, or -EINVAL and a message if a mode is given without mtime_update.
 */
int ext4_mtime_check_options(const struct ext4_sb_info *sbi,
			     const struct ext4_mtime_options *opts)
{
	unsigned int policy = ext4_mtime_merge(sbi->s_mtime.policy, opts);

	if (opts->mode_given && !(policy & EXT4_MTIME_INTERVAL_MS)) {
		ext4_msg(NULL, KERN_ERR,
			 "mtime_mode=%s: needs mtime_update or mtime_update=%d...%d",
			 opts->defer ? "defer" : "truncate",
			 EXT4_MTIME_MIN_MS, EXT4_MTIME_MAX_MS);
		return -EINVAL;
	}
	return 0;
}

/**
 * ext4_mtime_attach_carrier - let the journal's commits be carried, if need be
 * @sbi: the file system, which may not have loaded its journal yet
 *
 * The carrier stays until jbd2_journal_destroy(), so that an fsync may use it
 * at any time, also after defer has been switched off.
 */
void ext4_mtime_attach_carrier(struct ext4_sb_info *sbi)
{
	struct ext4_mtime_sb *ms = &sbi->s_mtime;

	if (sbi->s_journal && ms->policy & EXT4_MTIME_DEFER && !ms->carrier)
		/* Whoever sees the carrier sees it initialized. */
		smp_store_release(&ms->carrier,
				  jbd2_carrier_attach(sbi->s_journal));
}

static struct jbd2_carrier *ext4_mtime_carrier(struct super_block *sb)
{
	/* Pairs with ext4_mtime_attach_carrier(). */
	return smp_load_acquire(&EXT4_SB(sb)->s_mtime.carrier);
}

/**
 * ext4_mtime_apply_options - put checked options into force
 * @sbi: the file system
 * @opts: what is asked for; what it does not mention stays as it is
 */
void ext4_mtime_apply_options(struct ext4_sb_info *sbi,
			      const struct ext4_mtime_options *opts)
{
	WRITE_ONCE(sbi->s_mtime.policy,
		   ext4_mtime_merge(sbi->s_mtime.policy, opts));
	ext4_mtime_attach_carrier(sbi);
}

/**
 * ext4_mtime_show_options - print what is in force, if anything is
 * @seq: /proc/mounts or the options file
 * @sbi: the file system
 * @sep: what to print before each option
 */
void ext4_mtime_show_options(struct seq_file *seq,
			     const struct ext4_sb_info *sbi, char sep)
{
	unsigned int policy = READ_ONCE(sbi->s_mtime.policy);

	if (policy & EXT4_MTIME_INTERVAL_MS)
		seq_printf(seq, "%cmtime_update=%u%cmtime_mode=%s", sep,
			   policy & EXT4_MTIME_INTERVAL_MS, sep,
			   policy & EXT4_MTIME_DEFER ? "defer" : "truncate");
}

/*
 * State of a file system and of an inode
 */

/**
 * ext4_mtime_init_sb - allocate the counters
 * @sbi: the file system
 *
 * Return: 0 or -ENOMEM; ext4_mtime_destroy_sb() is right after both.
 */
int ext4_mtime_init_sb(struct ext4_sb_info *sbi)
{
	struct ext4_mtime_sb *ms = &sbi->s_mtime;
	int err;

	err = percpu_counter_init(&ms->updates_done, 0, GFP_KERNEL);
	if (!err)
		err = percpu_counter_init(&ms->updates_skipped, 0, GFP_KERNEL);
	if (!err)
		err = percpu_counter_init(&ms->commits_avoided, 0, GFP_KERNEL);
	return err;
}

/**
 * ext4_mtime_destroy_sb - free the counters
 * @sbi: the file system
 */
void ext4_mtime_destroy_sb(struct ext4_sb_info *sbi)
{
	struct ext4_mtime_sb *ms = &sbi->s_mtime;

	percpu_counter_destroy(&ms->updates_done);
	percpu_counter_destroy(&ms->updates_skipped);
	percpu_counter_destroy(&ms->commits_avoided);
}

/**
 * ext4_mtime_show_counter - ->show() of a counter in /sys/fs/ext4/DEV
 * @counter: the percpu_counter
 * @buf: the page to print into
 *
 * Return: number of bytes printed.
 */
ssize_t ext4_mtime_show_counter(void *counter, char *buf)
{
	return sysfs_emit(buf, "%lld\n", percpu_counter_sum(counter));
}

/**
 * ext4_mtime_init_inode - prepare a newly allocated inode
 * @ei: the inode, of which nothing is known yet
 */
void ext4_mtime_init_inode(struct ext4_inode_info *ei)
{
	struct ext4_mtime_inode *mi = &ei->i_mtime_info;

	memset(mi, 0, sizeof(*mi));
	mi->logged.stamps.mtime_ns = EXT4_MTIME_NEVER;
	mi->committing.stamps.mtime_ns = EXT4_MTIME_NEVER;
	mi->durable.mtime_ns = EXT4_MTIME_NEVER;
}

/*
 * Stamping
 */

/*
 * Stamps that a write leaves as they are may have been in the transaction with
 * which the journal has aborted.
 */
static bool ext4_mtime_journal_aborted(const struct inode *inode)
{
	journal_t *journal = EXT4_SB(inode->i_sb)->s_journal;

	return journal && READ_ONCE(journal->j_flags) & JBD2_ABORT;
}

/*
 * What generic_update_time() does once the stamps are set, but i_version moves
 * only for those who look. Whoever starts a handle finds out that the journal
 * has aborted, so that his fsync fails; a write that would not starts one, too.
 */
static void ext4_mtime_mark_dirty(struct inode *inode, bool updated)
{
	struct ext4_mtime_sb *ms = &EXT4_SB(inode->i_sb)->s_mtime;
	int dirty_flags = 0;

	if (updated) {
		dirty_flags = inode->i_sb->s_flags & SB_LAZYTIME ?
			I_DIRTY_TIME : I_DIRTY_SYNC;
		percpu_counter_inc(&ms->updates_done);
	} else {
		percpu_counter_inc(&ms->updates_skipped);
		WRITE_ONCE(EXT4_I(inode)->i_mtime_info.skipped, true);
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

	if (nowait && (stale || (IS_I_VERSION(inode) &&
				 inode_iversion_need_inc(inode))))
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
	unsigned int policy = ext4_mtime_policy(inode);

	if (likely(!policy) || policy & EXT4_MTIME_DEFER)
		return;
	if (IS_NOCMTIME(inode) || file->f_mode & FMODE_NOCMTIME)
		return;
	ext4_mtime_update_exact(inode);
}

/*
 * Logging
 */

/**
 * ext4_mtime_handle_type - type of the handle for ext4_dirty_inode()
 * @inode: the inode to be logged
 * @dirty_flags: I_DIRTY_* from __mark_inode_dirty()
 *
 * Return: EXT4_HT_STAMPS if the option is on and the dirtier says that
 * fdatasync does not need the change, else EXT4_HT_INODE.
 */
int ext4_mtime_handle_type(struct inode *inode, int dirty_flags)
{
	if (likely(!ext4_mtime_policy(inode)) ||
	    dirty_flags & I_DIRTY_DATASYNC || !S_ISREG(inode->i_mode))
		return EXT4_HT_INODE;
	return EXT4_HT_STAMPS;
}

/**
 * ext4_mtime_log_metadata - a block that describes a file has been logged
 * @handle: what it has been logged under
 * @inode: the file
 *
 * Its extents, indirect blocks, or xattrs. Most callers note the transaction for
 * fsync themselves; this is for the one that does not, or not yet.
 */
void ext4_mtime_log_metadata(handle_t *handle, struct inode *inode)
{
	if (!is_handle_aborted(handle))
		WRITE_ONCE(EXT4_I(inode)->i_mtime_info.attr_tid,
			   handle->h_transaction->t_tid);
}

static size_t ext4_mtime_raw_size(struct inode *inode)
{
	return min_t(size_t, sizeof(struct ext4_inode),
		     EXT4_INODE_SIZE(inode->i_sb));
}

/* Do two raw inodes differ in their stamps and the checksum alone? */
static bool ext4_mtime_same_but_stamps(struct ext4_inode *before,
				       const struct ext4_inode *after,
				       size_t size)
{
	before->i_atime = after->i_atime;
	before->i_mtime = after->i_mtime;
	before->i_ctime = after->i_ctime;
	before->i_checksum_lo = after->i_checksum_lo;
	if (size > EXT4_GOOD_OLD_INODE_SIZE) {
		before->i_atime_extra = after->i_atime_extra;
		before->i_mtime_extra = after->i_mtime_extra;
		before->i_ctime_extra = after->i_ctime_extra;
		before->i_checksum_hi = after->i_checksum_hi;
	}
	return !memcmp(before, after, size);
}

static bool ext4_mtime_committed(struct inode *inode, tid_t tid)
{
	journal_t *journal = EXT4_SB(inode->i_sb)->s_journal;

	return tid_geq(READ_ONCE(journal->j_commit_sequence), tid);
}

static bool ext4_mtime_is_durable(struct inode *inode,
				  const struct ext4_mtime_logged *logged)
{
	return logged->stamps.mtime_ns != EXT4_MTIME_NEVER &&
		ext4_mtime_committed(inode, logged->tid);
}

/* What is logged becomes durable once its transaction has committed. */
static void ext4_mtime_settle(struct inode *inode, struct ext4_mtime_inode *mi)
{
	lockdep_assert_held(&EXT4_I(inode)->i_raw_lock);

	if (ext4_mtime_is_durable(inode, &mi->committing)) {
		mi->durable = mi->committing.stamps;
		mi->committing.stamps.mtime_ns = EXT4_MTIME_NEVER;
	}
	if (ext4_mtime_is_durable(inode, &mi->logged))
		mi->durable = mi->logged.stamps;
}

static void ext4_mtime_log(handle_t *handle, struct inode *inode,
			   const struct ext4_inode *raw_inode)
{
	struct ext4_mtime_inode *mi = &EXT4_I(inode)->i_mtime_info;
	tid_t tid = handle->h_transaction->t_tid;

	ext4_mtime_settle(inode, mi);
	if (mi->logged.tid != tid)
		mi->committing = mi->logged;
	mi->logged.tid = tid;
	ext4_mtime_get_stamps(inode, raw_inode, &mi->logged.stamps);
}

/**
 * ext4_mtime_begin_fill - before the raw inode is filled in
 * @handle: what the inode is logged under
 * @inode: the inode
 * @raw_inode: its raw inode in the buffer
 * @before: where to keep the raw inode, if need be
 *
 * Context: i_raw_lock held.
 * Return: whether the handle claims to log stamps alone.
 */
bool ext4_mtime_begin_fill(handle_t *handle, struct inode *inode,
			   const struct ext4_inode *raw_inode,
			   struct ext4_inode *before)
{
	if (likely(!ext4_handle_valid(handle) ||
		   handle->h_type != EXT4_HT_STAMPS))
		return false;
	/* Sizes that the compiler knows: this is done for each write. */
	memcpy(before, raw_inode, EXT4_GOOD_OLD_INODE_SIZE);
	if (EXT4_INODE_SIZE(inode->i_sb) > EXT4_GOOD_OLD_INODE_SIZE)
		memcpy((char *)before + EXT4_GOOD_OLD_INODE_SIZE,
		       (const char *)raw_inode + EXT4_GOOD_OLD_INODE_SIZE,
		       sizeof(*before) - EXT4_GOOD_OLD_INODE_SIZE);
	return true;
}

/**
 * ext4_mtime_end_fill - after the raw inode has been filled in
 * @handle: what the inode is logged under
 * @inode: the inode
 * @raw_inode: its raw inode in the buffer
 * @before: what ext4_mtime_begin_fill() kept
 * @stamps_only: what ext4_mtime_begin_fill() returned
 *
 * Context: i_raw_lock held since ext4_mtime_begin_fill(), handle open.
 * Return: whether the claim is true.
 */
bool ext4_mtime_end_fill(handle_t *handle, struct inode *inode,
			 const struct ext4_inode *raw_inode,
			 struct ext4_inode *before, bool stamps_only)
{
	/* Stamps that count are on record, also if the option has gone since. */
	if (stamps_only ||
	    (unlikely(ext4_mtime_policy(inode)) && ext4_handle_valid(handle)))
		ext4_mtime_log(handle, inode, raw_inode);
	return stamps_only &&
		ext4_mtime_same_but_stamps(before, raw_inode,
					   ext4_mtime_raw_size(inode));
}

/**
 * ext4_mtime_update_fsync_trans - note that stamps alone have been logged
 * @handle: what they have been logged under
 * @inode: the inode
 *
 * ext4_update_inode_fsync_trans() for an update that fsync may defer.
 */
void ext4_mtime_update_fsync_trans(handle_t *handle, struct inode *inode)
{
	if (!is_handle_aborted(handle))
		EXT4_I(inode)->i_sync_tid = handle->h_transaction->t_tid;
}

/*
 * Syncing
 */

static tid_t ext4_mtime_later(tid_t a, tid_t b)
{
	return tid_gt(a, b) ? a : b;
}

/* Is a crash at time @now_ns free to leave stamps that are @age_ns old? */
static bool ext4_mtime_younger(const struct ext4_mtime_stamps *stamps,
			       s64 now_ns, s64 age_ns)
{
	return stamps->mtime_ns > now_ns - age_ns &&
	       stamps->mtime_ns <= now_ns &&
	       stamps->ctime_ns > now_ns - age_ns &&
	       stamps->ctime_ns <= now_ns;
}

static bool ext4_mtime_same_cmtime(const struct ext4_mtime_stamps *a,
				   const struct ext4_mtime_stamps *b)
{
	return a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}

static bool ext4_mtime_equal(const struct ext4_mtime_stamps *a,
			     const struct ext4_mtime_stamps *b)
{
	return a->atime_ns == b->atime_ns && ext4_mtime_same_cmtime(a, b);
}

/* Which of the logged stamps have to be committed? NULL if none. */
static const struct ext4_mtime_logged *
ext4_mtime_needed(const struct ext4_mtime_inode *mi, unsigned int policy,
		  struct ext4_mtime_sync *sync)
{
	s64 interval_ns = (policy & EXT4_MTIME_INTERVAL_MS) * NSEC_PER_MSEC;
	s64 lead_ns = interval_ns / EXT4_MTIME_LEAD_SHARE;
	bool young, atime_alone;
	s64 now_ns;

	if (ext4_mtime_equal(&mi->durable, &mi->logged.stamps))
		return NULL;

	now_ns = ktime_get_real_ns();
	young = ext4_mtime_younger(&mi->durable, now_ns, interval_ns);
	if (!(policy & EXT4_MTIME_DEFER)) {
		atime_alone = ext4_mtime_same_cmtime(&mi->durable,
						     &mi->logged.stamps);
		return atime_alone && young ? NULL : &mi->logged;
	}
	if (young) {
		sync->carry = mi->committing.stamps.mtime_ns ==
			EXT4_MTIME_NEVER &&
			!ext4_mtime_younger(&mi->durable, now_ns,
					    interval_ns - lead_ns);
		return NULL;
	}
	if (ext4_mtime_younger(&mi->committing.stamps, now_ns, interval_ns))
		return &mi->committing;
	return &mi->logged;
}

/* Choose with i_raw_lock held; attr_tid is what is due in any case. */
static void ext4_mtime_choose(struct ext4_mtime_inode *mi, unsigned int policy,
			      tid_t attr_tid, struct ext4_mtime_sync *sync)
{
	const struct ext4_mtime_logged *needed;

	sync->tid = ext4_mtime_later(sync->tid, mi->logged.tid);
	sync->carried_tid = mi->logged.tid;
	needed = ext4_mtime_needed(mi, policy, sync);

	if (needed == &mi->logged || !tid_gt(sync->tid, attr_tid)) {
		sync->stamps = mi->logged.stamps;
		sync->tracked = true;
	} else if (needed) {
		sync->tid = ext4_mtime_later(needed->tid, attr_tid);
		sync->stamps = needed->stamps;
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
	bool skipped = READ_ONCE(mi->skipped);
	tid_t all_tid, attr_tid;

	if (skipped)
		WRITE_ONCE(mi->skipped, false);

	attr_tid = ext4_mtime_later(READ_ONCE(mi->attr_tid),
				    ei->i_datasync_tid);
	sync->tid = ext4_mtime_later(sync->tid, attr_tid);
	all_tid = sync->tid;
	spin_lock(&ei->i_raw_lock);
	if (mi->logged.stamps.mtime_ns != EXT4_MTIME_NEVER) {
		ext4_mtime_settle(inode, mi);
		all_tid = ext4_mtime_later(all_tid, mi->logged.tid);
		ext4_mtime_choose(mi, policy, attr_tid, sync);
	}
	spin_unlock(&ei->i_raw_lock);

	/* Stock ext4 would commit, for stamps not written or not due. */
	if (ext4_mtime_committed(inode, sync->tid) &&
	    (skipped || !ext4_mtime_committed(inode, all_tid)))
		percpu_counter_inc(&EXT4_SB(inode->i_sb)->s_mtime.commits_avoided);
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
	unsigned int policy = ext4_mtime_policy(inode);

	sync->policy = policy;
	sync->carry = false;
	sync->tracked = false;
	sync->tid = datasync ? ei->i_datasync_tid : ei->i_sync_tid;
	if (likely(!policy))
		return;

	if (!datasync)
		ext4_mtime_choose_for(inode, policy, sync);
	if (test_opt2(inode->i_sb, JOURNAL_FAST_COMMIT) &&
	    !ext4_mtime_committed(inode, sync->tid))
		ext4_mtime_outwait_fast_commit(inode->i_sb);
}

static void ext4_mtime_start_carried(struct inode *inode, tid_t tid)
{
	struct jbd2_carrier *carrier = ext4_mtime_carrier(inode->i_sb);
	unsigned int interval_ms = ext4_mtime_policy(inode) &
		EXT4_MTIME_INTERVAL_MS;

	if (carrier)
		jbd2_carrier_start_commit(carrier, tid,
					  msecs_to_jiffies(interval_ms));
}

/**
 * ext4_mtime_end_sync - the chosen transaction has been committed
 * @inode: the file
 * @sync: the choice that ext4_mtime_begin_sync() made
 * @err: what the commit returned
 *
 * A fast commit does not move j_commit_sequence, so ext4_mtime_settle() would
 * not see it.
 *
 * Return: @err, or -EIO if the option is on and the journal has been aborted:
 * jbd2 takes a transaction that ended so for a committed one.
 */
int ext4_mtime_end_sync(struct inode *inode,
			const struct ext4_mtime_sync *sync, int err)
{
	struct ext4_inode_info *ei = EXT4_I(inode);

	if (likely(!sync->policy))
		return err;
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
		ext4_mtime_start_carried(inode, sync->carried_tid);
	if (sync->tracked) {
		spin_lock(&ei->i_raw_lock);
		ei->i_mtime_info.durable = sync->stamps;
		spin_unlock(&ei->i_raw_lock);
	}
	return 0;
}

/**
 * ext4_mtime_flush - flush the device, so that a commit may be carried
 * @sb: the file system
 *
 * Return: what blkdev_issue_flush() does.
 */
int ext4_mtime_flush(struct super_block *sb)
{
	struct jbd2_carrier *carrier = ext4_mtime_carrier(sb);
	u64 flush;
	int err;

	if (likely(!carrier))
		return blkdev_issue_flush(sb->s_bdev);
	flush = jbd2_carrier_begin_flush(carrier);
	err = blkdev_issue_flush(sb->s_bdev);
	jbd2_carrier_end_flush(carrier, flush, err);
	return err;
}

/**
 * ext4_mtime_flush_for - flush the device for an fsync
 * @inode: the file
 * @datasync: fdatasync(2)
 *
 * A device may drop all that it had cached when a flush fails, other files'
 * data too, and the next flush may succeed. In stock ext4 fsync's flush is that
 * of a commit, and the journal aborts. So it does for the flush that has taken
 * its place: nobody's later fsync returns 0.
 *
 * Return: what blkdev_issue_flush() does.
 */
int ext4_mtime_flush_for(struct inode *inode, bool datasync)
{
	journal_t *journal = EXT4_SB(inode->i_sb)->s_journal;
	int err = ext4_mtime_flush(inode->i_sb);

	if (unlikely(err) && journal && !datasync && ext4_mtime_policy(inode))
		jbd2_journal_abort(journal, err);
	return err;
}
