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
 *   blocks that are new	log them: the transaction has their allocation
 *   blocks of a file of which	log them: in place alone they might be undone by
 *   the log has copies		replay
 *   several runs of blocks	log them: one write, not several
 *   one run of old blocks	in place: a copy would cost a descriptor, too
 *   more than the threshold	in place
 *
 * What goes into place goes the way of stock ext4, by write-back, and what is
 * new is committed behind it.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - Data is written in place for a sync only while the log has no copy of any
 *   block of the file, and none is made: the sync holds the inode (held), and has
 *   the log settled first if there may be copies. Syncs that hold one inode at the
 *   same time do so in parallel.
 * - Who logs has the mutex until all that has changed is queued, and until the
 *   write-back of what the flusher has taken meanwhile has ended: a second sync finds
 *   an empty window only then. It learns of the transaction by i_datasync_tid.
 * - A window is given back if what it holds was not logged.
 *
 * Lock order
 * ----------
 *
 * i_rwsem, if it is held, then the inode's mutex. No lock is held while settling
 * is waited for, but i_rwsem, which settling does not take.
 */

#include <linux/pagemap.h>
#include <linux/pagevec.h>

#include "eager_internal.h"

/* What a sync would have to write. */
struct ext4_eager_work {
	unsigned int	blocks;		/* or more than the threshold: then at least */
	unsigned int	runs;		/* of adjoining ones */
	bool		fresh;		/* some are not allocated yet */
	bool		unwritten;	/* some were preallocated */
};

/* Add a locked folio's blocks. @next: the block behind those seen so far. */
static void ext4_eager_add_folio(struct inode *inode, struct folio *folio,
				 struct ext4_eager_work *work, ext4_lblk_t *next)
{
	struct buffer_head *head = folio_buffers(folio), *bh = head;
	loff_t pos = folio_pos(folio), size = i_size_read(inode);
	ext4_lblk_t lblk = pos >> inode->i_blkbits;

	if (folio->mapping != inode->i_mapping || !head)
		return;
	for (; pos < size; pos += bh->b_size, lblk++) {
		if (ext4_eager_is_changed(inode->i_sb, bh)) {
			work->blocks++;
			work->runs += !work->runs || lblk != *next;
			work->fresh |= !!buffer_delay(bh);
			work->unwritten |= !!buffer_unwritten(bh);
			*next = lblk + 1;
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
	ext4_lblk_t next = 0;
	unsigned int i;

	*work = (struct ext4_eager_work) {};
	folio_batch_init(&batch);
	while (work->blocks <= limit &&
	       filemap_get_folios_tag(inode->i_mapping, &index, range.last,
				      PAGECACHE_TAG_DIRTY, &batch)) {
		for (i = 0; i < folio_batch_count(&batch); i++) {
			folio_lock(batch.folios[i]);
			ext4_eager_add_folio(inode, batch.folios[i], work, &next);
			folio_unlock(batch.folios[i]);
		}
		folio_batch_release(&batch);
		cond_resched();
	}
}

static struct ext4_eager_range ext4_eager_take_window(struct ext4_eager_inode *ei)
{
	struct ext4_eager_range range;

	spin_lock(&ei->lock);
	range = (struct ext4_eager_range) { ei->first, ei->last };
	ei->first = ULONG_MAX;
	ei->last = 0;
	spin_unlock(&ei->lock);
	return range;
}

static void ext4_eager_give_back(struct ext4_eager_inode *ei,
				 struct ext4_eager_range range)
{
	spin_lock(&ei->lock);
	ei->first = min(ei->first, range.first);
	ei->last = max(ei->last, range.last);
	spin_unlock(&ei->lock);
}

static void ext4_eager_wait(struct inode *inode, struct ext4_eager_range range)
{
	loff_t end = LLONG_MAX;

	if (range.last < LLONG_MAX >> PAGE_SHIFT)
		end = ((loff_t)(range.last + 1) << PAGE_SHIFT) - 1;
	filemap_fdatawait_range_keep_errors(inode->i_mapping,
					    (loff_t)range.first << PAGE_SHIFT,
					    end);
}

/* Is so much of the log held by data that no more should come to it? */
static bool ext4_eager_is_full(struct super_block *sb, unsigned int blocks)
{
	struct ext4_eager_sb *eager = ext4_eager_of(sb);
	journal_t *journal = EXT4_SB(sb)->s_journal;
	unsigned long held = jbd2_burst_held(journal);
	unsigned int nr = atomic_read(&eager->nr_logged);

	if (held > journal->j_total_len / 2 || nr > eager->max_logged / 2)
		ext4_eager_settle_soon(sb, 0);
	return held > journal->j_total_len / 4 * 3 ||
		nr + blocks > eager->max_logged;
}

/* Log, or write in place, and if so, why? */
static bool ext4_eager_choose(struct inode *inode, struct ext4_eager_inode *ei,
			      const struct ext4_eager_work *work,
			      unsigned int limit, enum ext4_eager_in_place *why)
{
	if (work->blocks > limit)
		*why = EXT4_EAGER_LARGE;
	else if (work->unwritten)
		*why = EXT4_EAGER_UNWRITTEN;
	else if (ei->held || !ext4_eager_logs(inode))
		*why = EXT4_EAGER_HELD;
	else if (!work->fresh && work->runs == 1 &&
		 !ext4_eager_may_have_copies(inode))
		*why = EXT4_EAGER_OVERWRITE;
	else if (ext4_eager_is_full(inode->i_sb, work->blocks))
		*why = EXT4_EAGER_FULL;
	else
		return true;
	return false;
}

/*
 * Log what has changed, with the mutex held. Return: 0, an error, or 1 if the
 * data has to go into place; the inode is held then.
 */
static int ext4_eager_try(struct inode *inode, struct ext4_eager_inode *ei)
{
	struct ext4_eager_counts *counts = &ext4_eager_of(inode->i_sb)->counts;
	unsigned int limit = READ_ONCE(ext4_eager_of(inode->i_sb)->pages)
		<< (PAGE_SHIFT - inode->i_blkbits);
	struct ext4_eager_range window = ext4_eager_take_window(ei);
	enum ext4_eager_in_place why = EXT4_EAGER_FAILED;
	struct ext4_eager_work work;

	if (window.last < window.first)
		return 0;
	ext4_eager_look(inode, window, limit, &work);
	if (work.blocks) {
		if (!ext4_eager_choose(inode, ei, &work, limit, &why))
			goto in_place;
		if (ext4_eager_log_range(inode, window))
			goto in_place;
		atomic64_inc(&counts->syncs);
	}
	/* What the flusher has taken is not dirty, and may be on its way. */
	ext4_eager_wait(inode, window);
	return 0;

in_place:
	ext4_eager_give_back(ei, window);
	atomic64_inc(&counts->in_place[why]);
	ei->held++;
	return 1;
}

/**
 * ext4_eager_write_and_wait - have data of a file written, or logged
 * @file: any file of a journalled file system
 * @start: the first byte that has to be durable in the end
 * @end: the last
 *
 * What is logged is not durable before its transaction has committed, which
 * i_sync_tid and i_datasync_tid name.
 *
 * Return: 0 or an error. Context: no handle, no folio locked.
 */
int ext4_eager_write_and_wait(struct file *file, loff_t start, loff_t end)
{
	struct inode *inode = file->f_mapping->host;
	struct ext4_eager_inode *ei;
	int ret, err = 0;

	if (likely(!ext4_eager_logs(inode)))
		return file_write_and_wait_range(file, start, end);
	ei = ext4_eager_get(inode);
	if (!ei)
		return -ENOMEM;

	mutex_lock(&ei->mutex);
	ret = ext4_eager_try(inode, ei);
	mutex_unlock(&ei->mutex);
	if (!ret)
		return 0;
	if (ext4_eager_may_have_copies(inode))
		err = ext4_eager_settle(inode->i_sb);
	ret = file_write_and_wait_range(file, start, end);
	mutex_lock(&ei->mutex);
	ei->held--;
	mutex_unlock(&ei->mutex);
	return err ?: ret;
}
