// SPDX-License-Identifier: GPL-2.0
/*
 * Eager syncing (eager_log.c): settling in step with bursts.
 *
 * Idea
 * ----
 *
 * Settling writes as much as was logged since the last one, which may be megabytes. A
 * device serves requests as they come: the next burst would stand behind all of it. So
 * settling sends a few pages, and pauses until the next burst has been written and
 * is about to be flushed:
 *
 *   [burst] flush	   [burst] flush	    [burst] flush
 *	     16 pages		     16 pages		      16 pages
 *
 * Each burst waits for a little of it, and none for all. Where no bursts come
 * settling has time: it pauses for two ticks.
 *
 * The pages between two pauses are one plug: new files often lie side by side, and
 * one request then has the pages of many.
 *
 * A worked example; 100 pages have copies, somebody appends and syncs all the time:
 *
 *   Settling begins, sends 16 pages, and pauses.
 *   A burst is written: 16 pages are sent beside its flush. Three more like that.
 *   Somebody unlinks the file: its eviction waits for settling. No more pauses.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - What is written is what would be without pauses: each page of the range that is
 *   dirty, and has a copy, when the search comes to it. The search does not turn back,
 *   and a page that had to be written when settling began stays dirty until it is met,
 *   or until others have begun to write it. A file may have any number of other dirty
 *   pages between its copies: they are left to write-back.
 * - A copy that this settling is about is found: it is in s_eager.logged from before its
 *   transaction commits until the tail has passed it, or its block is freed. The buffer
 *   of a dirty page names the block; without buffers the page is written.
 * - Nobody waits for a pause. Who waits for settling says so first (waiting), which ends
 *   the pause and keeps settling from making another. Who waits until fewer pages are
 *   dirty does not know what he waits for: write-back tells (ext4_eager_keeps_often()).
 * - The log does not fill up for it: from three eighths on, or of the copies that
 *   there may be, there are no pauses. At a half data goes into place (eager_sync.c).
 *
 * Lock order
 * ----------
 *
 * The worker pauses with no lock. Only eviction waits for the file that it is at. A
 * truncation, which holds i_rwsem, writes the same way without pauses
 * (ext4_eager_put_in_place()).
 */

#include <linux/pagemap.h>

#include "eager_internal.h"

/*
 * So many pages at a time. On a model of a UFS device eight tasks that append log no
 * more than 8 in a burst, and settling gets on.
 */
#define EXT4_EAGER_PACE_PAGES	16

/* Is there no time to pause? */
static bool ext4_eager_in_haste(journal_t *journal)
{
	struct ext4_eager_sb *eager = ext4_eager_of(journal->j_private);

	return atomic_read(&eager->waiting) || ext4_eager_keeps_often(eager) ||
		is_journal_aborted(journal) || READ_ONCE(eager->lost) ||
		jbd2_burst_held(journal) > journal->j_total_len / 8 * 3 ||
		atomic_read(&eager->nr_logged) > eager->max_logged / 4 * 3;
}

/*
 * The first pages of @batch, at most @limit, that have copies, with no dirty page between
 * them that has none. Returns how many.
 */
static unsigned int ext4_eager_pick_pages(struct inode *inode,
					  struct folio_batch *batch,
					  unsigned int limit,
					  struct ext4_eager_range *pages)
{
	unsigned int i, nr = 0;

	for (i = 0; i < folio_batch_count(batch) && nr < limit; i++) {
		struct folio *folio = batch->folios[i];

		if (ext4_eager_folio_has_copies(inode, folio)) {
			ext4_eager_widen(pages, ext4_eager_range_of(folio));
			nr += folio_nr_pages(folio);
		} else if (nr) {
			break;
		}
	}
	return nr;
}

/* Send what the plug holds. */
static void ext4_eager_unplug(struct blk_plug *plug)
{
	blk_finish_plug(plug);
	blk_start_plug(plug);
}

/* The next pages of a range that have to be written. 0: there are none; or how many. */
static unsigned int ext4_eager_next_pages(struct inode *inode,
					  struct ext4_eager_range range,
					  unsigned int limit,
					  struct blk_plug *plug,
					  struct ext4_eager_range *pages)
{
	struct folio_batch batch;
	unsigned int nr = 0;

	*pages = EXT4_EAGER_NONE;
	folio_batch_init(&batch);
	while (!nr && !ext4_eager_is_empty(range) &&
	       filemap_get_folios_tag(inode->i_mapping, &range.first, range.last,
				      PAGECACHE_TAG_DIRTY, &batch)) {
		nr = ext4_eager_pick_pages(inode, &batch, limit, pages);
		folio_batch_release(&batch);
		/* Somebody may wait for what is in the plug, and the search may be long. */
		if (!nr)
			ext4_eager_unplug(plug);
		cond_resched();
	}
	return nr;
}

static int ext4_eager_submit_pages(struct inode *inode,
				   struct ext4_eager_range pages)
{
	struct jbd2_inode jinode = { .i_vfs_inode = inode };
	int err;

	ext4_eager_set_pages(&jinode, pages);
	/* Without the memory for it nobody can settle, and the log fills up. */
	while ((err = ext4_normal_submit_inode_data_buffers(&jinode)) == -ENOMEM)
		schedule_timeout_uninterruptible(HZ / 50);
	return err;
}

/**
 * ext4_eager_write_range - start to write what is dirty of a range of pages
 * @inode: the file, which is not evicted meanwhile
 * @range: pages
 *
 * Context: the worker, with no lock; pauses.
 * Return: 0 or an error.
 */
int ext4_eager_write_range(struct inode *inode, struct ext4_eager_range range)
{
	struct super_block *sb = inode->i_sb;
	struct ext4_eager_sb *eager = ext4_eager_of(sb);
	struct ext4_eager_range pages;
	unsigned int nr;
	int err = 0;

	while (!err) {
		if (eager->paced >= EXT4_EAGER_PACE_PAGES) {
			eager->paced = 0;
			blk_finish_plug(&eager->plug);
			jbd2_burst_pause(EXT4_SB(sb)->s_journal,
					 ext4_eager_in_haste);
			blk_start_plug(&eager->plug);
		}
		nr = ext4_eager_next_pages(inode, range,
					   EXT4_EAGER_PACE_PAGES - eager->paced,
					   &eager->plug, &pages);
		if (!nr)
			break;
		err = ext4_eager_submit_pages(inode, pages);
		eager->paced += nr;
		range.first = pages.last + 1;
	}
	return err;
}

/**
 * ext4_eager_wait_for_range - wait for the writes of a range's blocks that have copies
 * @inode: the file, which is not evicted meanwhile
 * @range: pages
 *
 * Not for those of other blocks: somebody may write ahead of us for ever, or with a limit
 * of his cgroup. Who asked for the writes learns of their errors.
 */
void ext4_eager_wait_for_range(struct inode *inode, struct ext4_eager_range range)
{
	struct folio_batch batch;
	unsigned int i;

	folio_batch_init(&batch);
	while (!ext4_eager_is_empty(range) &&
	       filemap_get_folios_tag(inode->i_mapping, &range.first, range.last,
				      PAGECACHE_TAG_WRITEBACK, &batch)) {
		for (i = 0; i < folio_batch_count(&batch); i++)
			if (ext4_eager_folio_has_copies(inode, batch.folios[i]))
				folio_wait_writeback(batch.folios[i]);
		folio_batch_release(&batch);
		cond_resched();
	}
}

/**
 * ext4_eager_put_in_place - have what settling would write of a range in its place now
 * @inode: the file
 * @range: pages
 *
 * Without a pause or a flush, and the log still has the copies. If a write fails a
 * settling learns of it.
 *
 * Context: no handle, no folio locked.
 * Return: 0, or an error if not all of it could be sent.
 */
int ext4_eager_put_in_place(struct inode *inode, struct ext4_eager_range range)
{
	struct ext4_eager_range rest = range, pages;
	struct blk_plug plug;
	int err = 0;

	blk_start_plug(&plug);
	while (!err &&
	       ext4_eager_next_pages(inode, rest, UINT_MAX, &plug, &pages)) {
		err = ext4_eager_submit_pages(inode, pages);
		rest.first = pages.last + 1;
	}
	blk_finish_plug(&plug);
	ext4_eager_wait_for_range(inode, range);
	return err;
}
