// SPDX-License-Identifier: GPL-2.0
/*
 * Eager syncing (eager_log.c): settling, after which the log's tail may move.
 *
 * Idea
 * ----
 *
 * Settling writes the places of all data that the log has copies of, waits for
 * them, and lets the tail pass those copies (fs/jbd2/burst_tail.c). One worker of a
 * file system does it, one settling after the other: some time after the first copy
 * was logged, when much of the log is held, when the log is to be emptied, and
 * whenever somebody has to be sure that the log has no copies of what was logged
 * before.
 *
 * A worked example. Settlings are numbered; number 3 runs:
 *
 *   a file is listed, and may have copies until number 4 has ended;
 *   somebody wants to write the file past the page cache: he asks for number 4;
 *   number 3 ends, number 4 begins: whatever had been logged is in it;
 *   the file's dirty pages are written in place, and waited for;
 *   what is running commits, the log's metadata is checkpointed, a flush ends, the
 *   superblock is written: number 4 has ended, and the file has no copies.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - The place of each copy that a settling is about holds what the copy does, or
 *   newer, or the file does not have the block any more. The page of a copy was
 *   dirty when it was logged. It is clean: then write-back has written it, which is
 *   waited for. It is dirty: then it is written here. It was dropped: by reclaim, after
 *   write-back as well; by eviction, or because the file shrinks, after it was written
 *   (eager_hold.c); for its memory is bad, which counts as a write that has failed; or
 *   because the file goes, and has no name by then. What says so was logged before, and
 *   is committed before the tail moves.
 * - An inode with copies is listed as long as it may have dirty pages. It is listed
 *   before the first copy is queued, and leaves the list by settling, or when it
 *   is evicted and its pages have gone.
 * - If the write of a block fails that has a copy, fsync has returned 0 for it. The
 *   log still has it: a settling that has not moved the tail yet aborts the journal, and
 *   recovery restores the block. If the tail was just moving, the copy had been put in its
 *   place before, and a newer write has failed, as it may on stock; the next settling
 *   aborts. Until then syncs go on, and log. Nobody reads the place (eager_hold.c).
 * - A settling that fails has aborted the journal. Who waits learns of that.
 * - Hardly anybody's limit holds a settling up. It waits for the writes of folios with
 *   copies alone. These are charged to the root cgroup. And no folio is logged that is on
 *   its way already (eager_log.c). What is left: a folio that shares an io_end with an
 *   extent that has to be converted counts as written when all of that is. And a settling
 *   commits, so it waits for the handle of write-back that waits for a page, as all do on
 *   stock.
 *
 * Lock order
 * ----------
 *
 * The worker starts no handle, and takes folio locks and j_checkpoint_mutex. So
 * nobody who waits for it may hold one of these, or a handle. s_eager.lock is
 * innermost.
 */

#include <linux/pagemap.h>
#include <linux/sched/mm.h>
#include <linux/writeback.h>

#include "eager_internal.h"

/* At most so many blocks of data in the log; 9 MiB of nodes if all are far apart. */
#define EXT4_EAGER_MAX_LOGGED	16384

/* --- one settling --------------------------------------------------------- */

/* Start to write what is dirty of what was logged of a file. */
static int ext4_eager_write_places(struct ext4_eager_inode *ei)
{
	spin_lock(&ei->lock);
	ei->settling = ei->copied;
	ei->copied = EXT4_EAGER_NONE;
	spin_unlock(&ei->lock);
	return ext4_eager_write_range(ei->inode, ei->settling);
}

static int ext4_eager_wait_for_places(struct ext4_eager_inode *ei)
{
	ext4_eager_wait_for_range(ei->inode, ei->settling);
	return 0;
}

/* The next file of @from, busy, which goes to @to; NULL: all of them have. */
static struct ext4_eager_inode *ext4_eager_next(struct ext4_eager_sb *eager,
						struct list_head *from,
						struct list_head *to)
{
	struct ext4_eager_inode *ei;

	spin_lock_irq(&eager->lock);
	ei = list_first_entry_or_null(from, struct ext4_eager_inode, list);
	if (ei) {
		ei->busy = true;
		list_move_tail(&ei->list, to);
	}
	spin_unlock_irq(&eager->lock);
	return ei;
}

static void ext4_eager_put_busy(struct ext4_eager_sb *eager,
				struct ext4_eager_inode *ei)
{
	spin_lock_irq(&eager->lock);
	ei->busy = false;
	spin_unlock_irq(&eager->lock);
	wake_up_all(&eager->wait);
}

/* Do something with each file of @from, which go to @to; all do, after an error. */
static int ext4_eager_for_each(struct ext4_eager_sb *eager,
			       struct list_head *from, struct list_head *to,
			       int (*action)(struct ext4_eager_inode *ei))
{
	struct ext4_eager_inode *ei;
	int err = 0;

	while (!err) {
		ei = ext4_eager_next(eager, from, to);
		if (!ei)
			break;
		err = action(ei);
		ext4_eager_put_busy(eager, ei);
	}
	spin_lock_irq(&eager->lock);
	list_splice_tail_init(from, to);
	spin_unlock_irq(&eager->lock);
	return err;
}

/* Write the places of all files that are listed; these go to @settled. */
static int ext4_eager_write_all(struct super_block *sb, struct list_head *settled)
{
	struct ext4_eager_sb *eager = ext4_eager_of(sb);
	LIST_HEAD(listed);
	LIST_HEAD(written);
	int err, err2;

	/* Not those that are listed from now on: they might never end. */
	spin_lock_irq(&eager->lock);
	list_splice_init(&eager->inodes, &listed);
	spin_unlock_irq(&eager->lock);
	ext4_eager_begin_places(sb);
	err = ext4_eager_for_each(eager, &listed, &written,
				  ext4_eager_write_places);
	ext4_eager_end_places(sb);
	err2 = ext4_eager_for_each(eager, &written, settled,
				   ext4_eager_wait_for_places);
	return err ?: err2;
}

/* Settling number @number has ended: who has nothing newer leaves the list. */
static void ext4_eager_unlist(struct ext4_eager_sb *eager,
			      struct list_head *settled, u64 number)
{
	struct ext4_eager_inode *ei, *next;

	spin_lock_irq(&eager->lock);
	list_for_each_entry_safe(ei, next, settled, list)
		if (EXT4_I(ei->inode)->i_eager_gen <= number)
			list_del_init(&ei->list);
	list_splice_tail_init(settled, &eager->inodes);
	spin_unlock_irq(&eager->lock);
}

/**
 * ext4_eager_abort - no more is to be committed, and ext4 is to know
 * @sb: the file system
 * @why: for the kernel's log
 */
void ext4_eager_abort(struct super_block *sb, const char *why)
{
	journal_t *journal = EXT4_SB(sb)->s_journal;

	/* First: who finds that ext4 has given up is to find this, too. */
	if (!is_journal_aborted(journal)) {
		/* Who starts a handle meanwhile has ext4 abort before we do, and not for this. */
		ext4_msg(sb, KERN_CRIT, "%s", why);
		jbd2_journal_abort(journal, -EIO);
	}
	ext4_abort(sb, EIO, "%s", why);
}

/*
 * The journal is of no use any more. That somebody has shut the file system down is no
 * error of it; but ext4 may have done so for one.
 */
static void ext4_eager_give_up(struct super_block *sb, int err)
{
	journal_t *journal = EXT4_SB(sb)->s_journal;

	if (ext4_forced_shutdown(sb) &&
	    !(EXT4_SB(sb)->s_mount_state & EXT4_ERROR_FS))
		err = -ESHUTDOWN;
	if (READ_ONCE(ext4_eager_of(sb)->lost))
		ext4_eager_abort(sb, "synced data cannot be written in place");
	else if (!is_journal_aborted(journal))
		jbd2_journal_abort(journal, err);
}

/* Settling number @number has ended well. */
static void ext4_eager_note_settled(struct super_block *sb, u64 number)
{
	struct ext4_eager_sb *eager = ext4_eager_of(sb);
	unsigned long ino;
	void *gen;

	ext4_eager_settled(sb, READ_ONCE(EXT4_SB(sb)->s_journal->j_tail_sequence));
	WRITE_ONCE(eager->settled, number);
	atomic_set(&eager->nr_kept, 0);
	xa_for_each(&eager->gone, ino, gen)
		if (xa_to_value(gen) <= number)
			xa_cmpxchg(&eager->gone, ino, gen, NULL, 0);
}

static void ext4_eager_settle_once(struct super_block *sb, u64 number)
{
	struct ext4_eager_sb *eager = ext4_eager_of(sb);
	journal_t *journal = EXT4_SB(sb)->s_journal;
	LIST_HEAD(settled);
	int ret, err;
	tid_t tid;

	ret = jbd2_burst_settle_begin(journal, &tid);
	if (ret < 0) {
		ext4_eager_give_up(sb, ret);
		return;
	}
	err = ext4_eager_write_all(sb, &settled);
	if (!err && ret)
		err = jbd2_burst_settle_end(journal, tid, &eager->lost);
	/* Since, or if there was nothing to end. */
	if (!err && READ_ONCE(eager->lost))
		err = -EIO;
	if (err)
		ext4_eager_give_up(sb, err);
	else
		ext4_eager_note_settled(sb, number);
	ext4_eager_unlist(eager, &settled, err ? 0 : number);
}

/* Begin another one? If somebody waits for it, or copies are old enough. */
static bool ext4_eager_begin(struct ext4_eager_sb *eager,
			     enum ext4_eager_settle_why *why)
{
	bool begins;

	*why = EXT4_EAGER_AGED;

	spin_lock_irq(&eager->lock);
	begins = eager->since_number > eager->begun &&
		time_after_eq(jiffies, eager->since + EXT4_EAGER_SETTLE_AFTER);
	if (eager->wanted > eager->begun) {
		begins = true;
		*why = eager->why;
	}
	eager->begun += begins;
	spin_unlock_irq(&eager->lock);
	return begins;
}

static void ext4_eager_work(struct work_struct *work)
{
	struct ext4_eager_sb *eager =
		container_of(to_delayed_work(work), struct ext4_eager_sb, work);
	struct ext4_sb_info *sbi =
		container_of(eager, struct ext4_sb_info, s_eager);
	unsigned int flags = memalloc_nofs_save();
	enum ext4_eager_settle_why why;
	ktime_t since;
	s64 us;

	while (ext4_eager_begin(eager, &why)) {
		since = ktime_get();
		ext4_eager_settle_once(sbi->s_sb, eager->begun);
		us = ktime_us_delta(ktime_get(), since);
		atomic64_inc(&eager->counts.settlings[why]);
		if (us > atomic64_read(&eager->counts.settle_max_us))
			atomic64_set(&eager->counts.settle_max_us, us);
		WRITE_ONCE(eager->done, eager->begun);
		wake_up_all(&eager->wait);
	}
	/* What has come since is not old enough yet. */
	if (READ_ONCE(eager->since_number) > READ_ONCE(eager->begun))
		queue_delayed_work(eager->queue, &eager->work,
				   EXT4_EAGER_SETTLE_AFTER);
	memalloc_nofs_restore(flags);
}

/* --- who asks for it ------------------------------------------------------ */

/**
 * ext4_eager_ask - have the log settled by the next settling to begin
 * @sb: the file system
 * @why: for the counters
 *
 * Context: any. Does not wait.
 * Return: its number.
 */
u64 ext4_eager_ask(struct super_block *sb, enum ext4_eager_settle_why why)
{
	struct ext4_eager_sb *eager = ext4_eager_of(sb);
	unsigned long flags;
	u64 number;

	spin_lock_irqsave(&eager->lock, flags);
	number = eager->begun + 1;
	if (eager->wanted < number) {
		eager->wanted = number;
		eager->why = why;
	}
	spin_unlock_irqrestore(&eager->lock, flags);
	mod_delayed_work(eager->queue, &eager->work, 0);
	return number;
}

/**
 * ext4_eager_settle_soon - have the log settled, but do not wait
 * @sb: the file system
 * @why: for the counters
 *
 * Context: any. If it is being settled, that will do.
 */
void ext4_eager_settle_soon(struct super_block *sb,
			    enum ext4_eager_settle_why why)
{
	struct ext4_eager_sb *eager = ext4_eager_of(sb);

	if (READ_ONCE(eager->begun) == READ_ONCE(eager->done))
		ext4_eager_ask(sb, why);
}

/**
 * ext4_eager_settle - have all settled that has been logged so far, and wait
 * @sb: the file system
 * @why: for the counters
 *
 * Return: 0, or -EIO if the journal has aborted: the log may have copies then.
 */
int ext4_eager_settle(struct super_block *sb, enum ext4_eager_settle_why why)
{
	struct ext4_eager_sb *eager = ext4_eager_of(sb);
	u64 number = ext4_eager_ask(sb, why);

	ext4_eager_wait_event(sb, READ_ONCE(eager->done) >= number);
	return is_journal_aborted(EXT4_SB(sb)->s_journal) ? -EIO : 0;
}

static int ext4_eager_settle_journal(journal_t *journal)
{
	return ext4_eager_settle(journal->j_private, EXT4_EAGER_EMPTIED);
}

/**
 * ext4_eager_sync_fs - sync(2) promises what has been written in place, too
 * @sb: the file system, all of its dirty pages written, s_umount held
 *
 * A block that had changed since it was logged is in place now, but replay would
 * restore its copy. Its page has been left dirty. No page may be when the file
 * system is frozen, so they are written once more, also if the log has been settled
 * meanwhile: that does not make them clean.
 *
 * Return: 0 or an error.
 */
int ext4_eager_sync_fs(struct super_block *sb)
{
	struct ext4_eager_sb *eager = ext4_eager_of(sb);
	u64 kept = READ_ONCE(eager->kept);
	int err = 0;

	if (likely(kept == READ_ONCE(eager->clean)))
		return 0;
	if (kept > READ_ONCE(eager->settled))
		err = ext4_eager_settle(sb, EXT4_EAGER_SYNC_FS);
	if (err)
		return err;
	sync_inodes_sb(sb);
	WRITE_ONCE(eager->clean, kept);
	return 0;
}

/* --- a file system -------------------------------------------------------- */

/**
 * ext4_eager_init_sb - before a file system is mounted
 * @sbi: the file system
 */
void ext4_eager_init_sb(struct ext4_sb_info *sbi)
{
	struct ext4_eager_sb *eager = &sbi->s_eager;

	xa_init(&eager->logged);
	xa_init(&eager->gone);
	spin_lock_init(&eager->copies_lock);
	INIT_LIST_HEAD(&eager->copies[0]);
	INIT_LIST_HEAD(&eager->copies[1]);
	INIT_LIST_HEAD(&eager->spare);
	spin_lock_init(&eager->lock);
	INIT_LIST_HEAD(&eager->inodes);
	init_waitqueue_head(&eager->wait);
	init_waitqueue_head(&eager->catches_up);
	INIT_DELAYED_WORK(&eager->work, ext4_eager_work);
}

/**
 * ext4_eager_start - bursts are about to be switched on
 * @sb: the file system
 *
 * Return: 0 or -ENOMEM.
 */
int ext4_eager_start(struct super_block *sb)
{
	struct ext4_eager_sb *eager = ext4_eager_of(sb);
	journal_t *journal = EXT4_SB(sb)->s_journal;

	if (!eager->queue) {
		eager->queue = alloc_workqueue("ext4-eager/%s",
					       WQ_MEM_RECLAIM | WQ_UNBOUND, 1,
					       sb->s_id);
		if (!eager->queue)
			return -ENOMEM;
	}
	eager->max_logged = min_t(unsigned int, EXT4_EAGER_MAX_LOGGED,
				  journal->j_total_len / 4);
	jbd2_burst_attach(journal, ext4_eager_settle_journal);
	return 0;
}

/**
 * ext4_eager_stop - have all settled, and end the worker
 * @sb: the file system, with no inode in memory but its own, its journal loaded
 */
void ext4_eager_stop(struct super_block *sb)
{
	struct ext4_eager_sb *eager = ext4_eager_of(sb);
	journal_t *journal = EXT4_SB(sb)->s_journal;

	if (!eager->queue)
		return;
	if (jbd2_burst_holds_tail(journal) && !is_journal_aborted(journal))
		ext4_eager_settle(sb, EXT4_EAGER_SYNC_FS);
	cancel_delayed_work_sync(&eager->work);
}

/**
 * ext4_eager_destroy_sb - a file system goes, its journal has gone
 * @sbi: the file system
 */
void ext4_eager_destroy_sb(struct ext4_sb_info *sbi)
{
	struct ext4_eager_sb *eager = &sbi->s_eager;

	if (eager->queue) {
		cancel_delayed_work_sync(&eager->work);
		destroy_workqueue(eager->queue);
	}
	eager->queue = NULL;
	WARN_ON_ONCE(!list_empty(&eager->copies[0]) ||
		     !list_empty(&eager->copies[1]) ||
		     !list_empty(&eager->inodes));
	ext4_eager_free_spare(eager);
	xa_destroy(&eager->logged);
	xa_destroy(&eager->gone);
}
