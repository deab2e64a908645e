// SPDX-License-Identifier: GPL-2.0
/*
 * Eager syncing (eager_log.c): what a sync logs, and what it writes in place.
 *
 * Idea
 * ----
 *
 * A sync looks at what has changed since the last one, and chooses:
 *
 *   nothing			there is nothing to write
 *   more than the threshold	in place
 *   blocks that are new	log all: the transaction has their allocation
 *   blocks of which the log	log all: in place alone they might be undone by
 *   has copies			replay
 *   old blocks			in place: copies would cost a second write of each, and
 *				devices take several writes at a time
 *
 * What goes into place goes the way of stock ext4, by write-back, and what is
 * new is committed behind it.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - Who has written data in place for a sync looks afterwards for blocks that are
 *   still dirty and that the log has copies of, and if there are any has it
 *   settled. Write-back has left dirty what had an older copy then. A copy that was
 *   made later is not older, and its transaction is known by i_datasync_tid. A file
 *   that cannot be logged any more may have copies as well. One way past this: when
 *   the sync began no copy was there and none could be made (eager_hooks.h). If the
 *   option comes into force then, each copy has what the caller wrote. A new block
 *   has its transaction in i_datasync_tid before its folio is unlocked, which is
 *   before write-back could find it.
 * - Who logs has the mutex until all that has changed is queued, and until all
 *   write-back in the window has ended, be the page dirty again or not: what was
 *   submitted may still have to be converted, and i_datasync_tid is read behind
 *   that. A second sync finds an empty window only then.
 * - A window is given back if what it holds was not logged.
 * - The first sync of an inode that was read again while the log may have had copies
 *   of it has the log settled: its pages may have been dropped while they had
 *   to stay dirty.
 * - New blocks of a file that was mapped for writing are not logged. A direct read
 *   writes dirty pages back before it begins, and a later store to a hole, synced,
 *   would have it find a block that is allocated as written, and not been. Who
 *   writes otherwise holds i_rwsem, as the direct read does.
 * - Nothing is logged while the file system is frozen: it has no dirty page then,
 *   and who has seen one before asks for protection from freezing.
 *
 * Lock order
 * ----------
 *
 * i_rwsem, if it is held, then the inode's mutex. No lock is held while settling
 * is waited for, but i_rwsem, which settling does not take.
 */

#include <linux/pagemap.h>

#include "eager_internal.h"

/*
 * The threshold where a flush costs nothing: the copy of a block costs more of the
 * processor then than waiting for its place.
 */
#define EXT4_EAGER_PAGES_UNCACHED	2U

/* Whatever a device seems to make of it, so many are worth a flush. */
#define EXT4_EAGER_PAGES_ALWAYS		8U

/* What a sync would have to write. */
struct ext4_eager_work {
	unsigned int	blocks;		/* or more than the threshold: then at least */
	bool		fresh;		/* some are not allocated yet, or unwritten */
	bool		copied;		/* of some the log has older copies */
};

/* Add a locked folio's blocks. */
static void ext4_eager_add_folio(struct inode *inode, struct folio *folio,
				 struct ext4_eager_work *work)
{
	struct buffer_head *head = folio_buffers(folio), *bh = head;
	loff_t pos = folio_pos(folio), size = i_size_read(inode);

	if (folio->mapping != inode->i_mapping || !head)
		return;
	for (; pos < size; pos += bh->b_size) {
		if (ext4_eager_is_changed(inode->i_sb, bh)) {
			work->blocks++;
			work->fresh |= buffer_delay(bh) || buffer_unwritten(bh);
			work->copied |= !buffer_delay(bh) &&
				ext4_eager_has_copy(inode->i_sb, bh->b_blocknr);
		}
		bh = bh->b_this_page;
		if (bh == head)
			break;
	}
}

/* What has changed in a range of pages; stops counting above @limit blocks. */
static void ext4_eager_look(struct inode *inode, struct ext4_eager_range range,
			    unsigned int limit, struct ext4_eager_work *work)
{
	pgoff_t index = range.first;
	struct folio_batch batch;
	unsigned int i;

	*work = (struct ext4_eager_work) {};
	folio_batch_init(&batch);
	while (work->blocks <= limit &&
	       filemap_get_folios_tag(inode->i_mapping, &index, range.last,
				      PAGECACHE_TAG_DIRTY, &batch)) {
		for (i = 0; i < folio_batch_count(&batch); i++) {
			folio_lock(batch.folios[i]);
			ext4_eager_add_folio(inode, batch.folios[i], work);
			folio_unlock(batch.folios[i]);
		}
		folio_batch_release(&batch);
		cond_resched();
	}
}

/* Has write-back for a sync of @range left anything behind that replay might undo? */
static bool ext4_eager_may_be_undone(struct inode *inode,
				     struct ext4_eager_range range)
{
	struct ext4_eager_inode *ei = READ_ONCE(EXT4_I(inode)->i_eager);
	struct ext4_eager_work work;

	if (likely(!ext4_eager_may_have_copies(inode)))
		return false;
	if (!ei)
		return true;
	/* Who logs has taken the window, and his transaction is to be known. */
	mutex_lock(&ei->mutex);
	spin_lock(&ei->lock);
	range.first = max(range.first, ei->window.first);
	range.last = min(range.last, ei->window.last);
	spin_unlock(&ei->lock);
	ext4_eager_look(inode, range, UINT_MAX, &work);
	mutex_unlock(&ei->mutex);
	return work.copied;
}

static struct ext4_eager_range ext4_eager_take_window(struct ext4_eager_inode *ei)
{
	struct ext4_eager_range window;

	spin_lock(&ei->lock);
	window = ei->window;
	ei->window = EXT4_EAGER_NONE;
	spin_unlock(&ei->lock);
	return window;
}

static void ext4_eager_give_back(struct ext4_eager_inode *ei,
				 struct ext4_eager_range window)
{
	spin_lock(&ei->lock);
	ext4_eager_widen(&ei->window, window);
	spin_unlock(&ei->lock);
}

/*
 * Is so much of the log held by data that no more should come to it? Handles wait
 * for room when two thirds of it are used.
 */
static bool ext4_eager_is_full(struct super_block *sb, unsigned int blocks)
{
	struct ext4_eager_sb *eager = ext4_eager_of(sb);
	journal_t *journal = EXT4_SB(sb)->s_journal;
	unsigned long held = jbd2_burst_held(journal);
	unsigned int nr = atomic_read(&eager->nr_logged);
	unsigned int total = journal->j_total_len;

	/* It takes a while, in which a small log fills up. */
	if (held > total / 4 || nr > min(eager->max_logged / 2, total / 16))
		ext4_eager_settle_soon(sb, EXT4_EAGER_FILLING);
	return held > total / 2 ||
		nr + blocks > eager->max_logged;
}

static bool ext4_eager_has_changed(struct ext4_eager_inode *ei)
{
	bool changed;

	spin_lock(&ei->lock);
	changed = !ext4_eager_is_empty(ei->window);
	spin_unlock(&ei->lock);
	return changed;
}

/*
 * Wait until settling keeps up with what is logged, and if the log is full of data
 * nevertheless, until one settling has ended. In place the sync would wait for that and
 * for another, if the log has copies of the file.
 */
static void ext4_eager_wait_for_room(struct ext4_eager_inode *ei)
{
	struct super_block *sb = ei->inode->i_sb;
	struct ext4_eager_sb *eager = ext4_eager_of(sb);
	u64 done;

	if (!ext4_eager_may_have_copies(ei->inode) || !ext4_eager_has_changed(ei))
		return;
	ext4_eager_keep_pace(sb);
	done = READ_ONCE(eager->done);
	if (unlikely(ext4_eager_is_full(sb, 0)))
		ext4_eager_wait_event(sb, READ_ONCE(eager->done) > done);
}

/* How many blocks may be logged for a sync. */
static unsigned int ext4_eager_limit(struct super_block *sb)
{
	unsigned int pages = READ_ONCE(ext4_eager_of(sb)->pages);

	return ext4_eager_blocks(sb, pages & ~EXT4_EAGER_ADAPTS);
}

/**
 * ext4_eager_worth - above how many blocks is it better to write them in place?
 * @sb: a file system with eager_sync in force
 *
 * As many as the threshold says, if somebody has said it. Those of which the log has
 * older copies are logged up to that in any case.
 */
unsigned int ext4_eager_worth(struct super_block *sb)
{
	unsigned int worth = ext4_eager_blocks(sb, EXT4_EAGER_PAGES_UNCACHED);

	if (!(READ_ONCE(ext4_eager_of(sb)->pages) & EXT4_EAGER_ADAPTS))
		return ext4_eager_limit(sb);
	if (bdev_write_cache(sb->s_bdev))
		worth = max(jbd2_burst_worth(EXT4_SB(sb)->s_journal),
			    ext4_eager_blocks(sb, EXT4_EAGER_PAGES_ALWAYS));
	return min(worth, ext4_eager_limit(sb));
}

/* Data of a sync goes into place, and why. */
static void ext4_eager_count(struct super_block *sb, enum ext4_eager_in_place why)
{
	struct ext4_eager_sb *eager = ext4_eager_of(sb);

	atomic64_inc(&eager->counts.in_place[why]);
	if (why == EXT4_EAGER_LARGE && READ_ONCE(eager->pages) & EXT4_EAGER_ADAPTS)
		jbd2_burst_not_worth(EXT4_SB(sb)->s_journal);
}

/* Log, or write in place, and if so, why? */
static bool ext4_eager_choose(struct inode *inode,
			      const struct ext4_eager_work *work,
			      unsigned int limit, enum ext4_eager_in_place *why)
{
	if (work->blocks > limit ||
	    (!work->copied && work->blocks > ext4_eager_worth(inode->i_sb)))
		*why = EXT4_EAGER_LARGE;
	else if (!ext4_eager_logs(inode))
		*why = EXT4_EAGER_HELD;
	else if (!work->fresh && !work->copied)
		*why = EXT4_EAGER_NO_NEW;
	else if (work->fresh &&
		 ext4_test_inode_state(inode, EXT4_STATE_EAGER_MAPPED))
		*why = EXT4_EAGER_MAPPED;
	else if (ext4_eager_is_full(inode->i_sb, work->blocks))
		*why = EXT4_EAGER_FULL;
	else
		return true;
	return false;
}

/* Write-back comes first so often, and then all goes into place. */
#define EXT4_EAGER_TRIES	8

/*
 * Log pages that are on their way to their places when they have got there. Nobody but
 * syncs of this file waits for that with us.
 */
static int ext4_eager_log_when_written(struct inode *inode,
				       struct ext4_eager_range window,
				       unsigned int limit)
{
	int tries, err = -EBUSY;

	for (tries = 0; err == -EBUSY && tries < EXT4_EAGER_TRIES; tries++) {
		if (tries)
			ext4_eager_wait(inode, window);
		if (!sb_start_intwrite_trylock(inode->i_sb))
			return -EAGAIN;
		/* A page has a block or more. */
		err = ext4_eager_log_range(inode, window, limit);
		sb_end_intwrite(inode->i_sb);
	}
	return err;
}

/* Log what has changed in a window. False: it has to go into place. */
static bool ext4_eager_log_window(struct inode *inode,
				  struct ext4_eager_range window)
{
	unsigned int limit = ext4_eager_limit(inode->i_sb);
	enum ext4_eager_in_place why = EXT4_EAGER_FAILED;
	bool unwritten = ext4_eager_may_have_unwritten(inode);
	struct ext4_eager_work work;
	int err = -EAGAIN;

	/* Nothing unwritten is dirty once this has been logged, but what is dirtied since. */
	if (unwritten)
		ext4_clear_inode_state(inode, EXT4_STATE_EAGER_UNWRITTEN);
	ext4_eager_look(inode, window, limit, &work);
	if (!work.blocks)
		return true;
	if (ext4_eager_choose(inode, &work, limit, &why))
		err = ext4_eager_log_when_written(inode, window, limit);
	if (!err) {
		atomic64_inc(&ext4_eager_of(inode->i_sb)->counts.syncs);
		return true;
	}
	if (unwritten)
		ext4_eager_note_unwritten(inode);
	ext4_eager_count(inode->i_sb, err == -E2BIG ? EXT4_EAGER_LARGE : why);
	return false;
}

/* A sync has not looked at the pages, but knows where they go. */
static void ext4_eager_count_in_place(struct inode *inode,
				      enum ext4_eager_in_place why)
{
	if (mapping_tagged(inode->i_mapping, PAGECACHE_TAG_DIRTY))
		ext4_eager_count(inode->i_sb, why);
}

/*
 * In place, without a look? What the log may have copies of is to be looked at; of
 * the rest, the new blocks have been counted.
 */
static bool ext4_eager_need_not_look(struct inode *inode,
				     enum ext4_eager_in_place *why)
{
	unsigned int fresh = READ_ONCE(EXT4_I(inode)->i_reserved_data_blocks);

	*why = fresh ? EXT4_EAGER_LARGE : EXT4_EAGER_NO_NEW;
	return (!fresh || fresh > ext4_eager_worth(inode->i_sb)) &&
		!ext4_eager_may_have_unwritten(inode) &&
		!ext4_eager_may_have_copies(inode);
}

/* Log what has changed since the last sync. False: it has to go into place. */
static bool ext4_eager_log_data(struct inode *inode)
{
	struct ext4_eager_inode *ei;
	struct ext4_eager_range window;
	enum ext4_eager_in_place why;
	bool logged = true;
	loff_t size;

	if (ext4_eager_need_not_look(inode, &why)) {
		ext4_eager_count_in_place(inode, why);
		return false;
	}
	ei = ext4_eager_get(inode);
	if (!ei)
		return false;
	ext4_eager_wait_for_room(ei);
	mutex_lock(&ei->mutex);
	window = ext4_eager_take_window(ei);
	if (!ext4_eager_is_empty(window)) {
		size = READ_ONCE(EXT4_I(inode)->i_disksize);
		logged = ext4_eager_log_window(inode, window);
		if (logged) {
			ext4_eager_wait(inode, window);
			ext4_eager_note_growth(inode, size);
		} else {
			ext4_eager_give_back(ei, window);
		}
	}
	mutex_unlock(&ei->mutex);
	return logged;
}

/* ext4_eager_write_and_wait(), where data may be logged, or has been. */
int ext4_eager_log_or_write(struct file *file, loff_t start, loff_t end)
{
	struct ext4_eager_range range = {
		.first = start >> PAGE_SHIFT,
		.last = end >> PAGE_SHIFT,
	};
	struct inode *inode = file->f_mapping->host;
	int ret, err = 0;

	if (unlikely(ext4_eager_may_have_copies(inode) &&
		     !READ_ONCE(EXT4_I(inode)->i_eager))) {
		err = ext4_eager_settle(inode->i_sb, EXT4_EAGER_SYNCED);
		if (err)
			return err;
	}
	if (ext4_eager_logs(inode)) {
		if (ext4_eager_log_data(inode))
			return 0;
	} else if (unlikely(ext4_test_inode_state(inode, EXT4_STATE_EAGER_NEVER))) {
		ext4_eager_count_in_place(inode, EXT4_EAGER_HELD);
	}
	ret = ext4_mtime_write_and_wait(file, start, end);
	if (unlikely(ext4_eager_may_be_undone(inode, range)))
		err = ext4_eager_settle(inode->i_sb, EXT4_EAGER_SYNCED);
	return ret ?: err;
}
