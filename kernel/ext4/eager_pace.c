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
 * Who syncs one burst after the other may log faster than places are written. Until the
 * log is full he would notice nothing, and then wait for all that is left. So he may use
 * as large a share of the room in the log as settling has sent of its pages, and waits
 * for a few of them at each sync.
 *
 * A worked example; 100 pages have copies, somebody appends and syncs all the time:
 *
 *   Settling begins, sends 16 pages, and pauses.
 *   A burst is written: 16 pages are sent beside its flush. Three more like that.
 *   Somebody unlinks the file: its eviction waits for settling. No more pauses.
 *
 * Another one; settling has 600 pages, the log has room for 600 blocks, and somebody
 * writes 20 of these pages anew before each sync:
 *
 *   16 blocks may be logged before the first page has been sent, and 16 for 16 pages.
 *   16 pages are sent at once, and 16 with each burst: each takes him 4 blocks further.
 *   His tenth sync finds 180 blocks, and 176 may have been logged. It waits, so there is
 *   no pause: 16 pages are sent, and it goes on.
 *   All pages have been sent: nobody waits any more.
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
 * - The log does not fill up for it: from three eighths on, or three quarters of the
 *   copies that there may be, there are no pauses. At a half data goes into place
 *   (eager_sync.c).
 * - Who waits until settling has caught up waits for a few batches, or until it sends no
 *   more. It sends more, for he says that he waits (behind): then there is no pause,
 *   except for one that begins as he learns that it has caught up. He holds nothing that
 *   it needs: who waits for a settling to end holds as much.
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

/* Who logs waits for no more than this at a sync: others may have filled the log. */
#define EXT4_EAGER_WAIT_PAGES	(4 * EXT4_EAGER_PACE_PAGES)

/*
 * What may be used now of something, of which there is @most, if @used was when settling
 * began, and it has sent @sent of @all? What settling does not decide is left to others.
 */
static unsigned int ext4_eager_may_use(unsigned int used, unsigned int most,
				       unsigned int sent, unsigned int all)
{
	if (used >= most || sent >= all)
		return UINT_MAX;
	return used + mult_frac(most - used, sent, all);
}

/* Is more logged than settling keeps up with? */
static bool ext4_eager_is_ahead(struct super_block *sb)
{
	struct ext4_eager_sb *eager = ext4_eager_of(sb);
	const struct ext4_eager_pace *pace = &eager->pace;
	journal_t *journal = EXT4_SB(sb)->s_journal;
	/*
	 * About so many are to be sent: some are clean by now, some that were logged
	 * meanwhile lie where the search has been.
	 */
	unsigned int all = atomic_read(&eager->nr_logged);
	/* The rest is of this settling then: see ext4_eager_begin_places(). */
	unsigned int sent = smp_load_acquire(&pace->sent);

	if (!sent)
		return false;
	return jbd2_burst_held(journal) >
		ext4_eager_may_use(READ_ONCE(pace->held),
				   journal->j_total_len / 16 * 7, sent, all) ||
		all > ext4_eager_may_use(READ_ONCE(pace->logged),
					 eager->max_logged / 8 * 7, sent, all);
}

/* Has settling sent enough since @sent for one sync to wait for, or all? */
static bool ext4_eager_has_sent(struct ext4_eager_sb *eager, unsigned int sent,
				unsigned int enough)
{
	return READ_ONCE(eager->pace.sent) - sent >= enough;
}

/**
 * ext4_eager_keep_pace - wait until settling keeps up with what is logged
 * @sb: the file system
 *
 * Not longer than until it has sent EXT4_EAGER_WAIT_PAGES, or sends no more.
 */
void ext4_eager_keep_pace(struct super_block *sb)
{
	struct ext4_eager_sb *eager = ext4_eager_of(sb);
	unsigned int enough = ext4_eager_blocks(sb, EXT4_EAGER_WAIT_PAGES);
	unsigned int sent = READ_ONCE(eager->pace.sent);
	u64 begun = READ_ONCE(eager->begun);
	ktime_t since;

	if (likely(!ext4_eager_is_ahead(sb)))
		return;
	since = ktime_get();
	atomic_inc(&eager->behind);
	jbd2_burst_end_pause(EXT4_SB(sb)->s_journal);
	wait_event(eager->catches_up, !ext4_eager_is_ahead(sb) ||
		   ext4_eager_has_sent(eager, sent, enough) ||
		   READ_ONCE(eager->begun) != begun);
	atomic_dec(&eager->behind);
	ext4_eager_note_wait(eager, since);
}

/* Is there no time to pause? */
static bool ext4_eager_in_haste(journal_t *journal)
{
	struct super_block *sb = journal->j_private;
	struct ext4_eager_sb *eager = ext4_eager_of(sb);

	return atomic_read(&eager->waiting) || ext4_eager_keeps_often(eager) ||
		is_journal_aborted(journal) || READ_ONCE(eager->lost) ||
		(atomic_read(&eager->behind) && ext4_eager_is_ahead(sb)) ||
		jbd2_burst_held(journal) > journal->j_total_len / 8 * 3 ||
		atomic_read(&eager->nr_logged) > eager->max_logged / 4 * 3;
}

/**
 * ext4_eager_begin_places - settling is about to write places
 * @sb: the file system
 */
void ext4_eager_begin_places(struct super_block *sb)
{
	struct ext4_eager_sb *eager = ext4_eager_of(sb);
	struct ext4_eager_pace *pace = &eager->pace;
	journal_t *journal = EXT4_SB(sb)->s_journal;
	unsigned int held = jbd2_burst_held(journal);
	unsigned int nr = atomic_read(&eager->nr_logged);

	WRITE_ONCE(pace->held, max(held, journal->j_total_len / 8));
	WRITE_ONCE(pace->logged, max(nr, eager->max_logged / 4));
	/* Nobody waits for the first pages. */
	smp_store_release(&pace->sent,
			  ext4_eager_blocks(sb, EXT4_EAGER_PACE_PAGES));
	eager->paced = 0;
	blk_start_plug(&eager->plug);
}

/**
 * ext4_eager_end_places - settling sends no more
 * @sb: the file system
 */
void ext4_eager_end_places(struct super_block *sb)
{
	struct ext4_eager_sb *eager = ext4_eager_of(sb);

	blk_finish_plug(&eager->plug);
	WRITE_ONCE(eager->pace.sent, 0);
	wake_up_all(&eager->catches_up);
}

/* Send what has been collected, and pause. */
static void ext4_eager_send(struct super_block *sb)
{
	struct ext4_eager_sb *eager = ext4_eager_of(sb);

	blk_finish_plug(&eager->plug);
	WRITE_ONCE(eager->pace.sent,
		   eager->pace.sent + ext4_eager_blocks(sb, eager->paced));
	wake_up_all(&eager->catches_up);
	eager->paced = 0;
	jbd2_burst_pause(EXT4_SB(sb)->s_journal, ext4_eager_in_haste);
	blk_start_plug(&eager->plug);
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
		if (eager->paced >= EXT4_EAGER_PACE_PAGES)
			ext4_eager_send(sb);
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
