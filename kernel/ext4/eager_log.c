// SPDX-License-Identifier: GPL-2.0
/*
 * Eager syncing: data of a file in the transaction that its fsync commits.
 *
 * Idea
 * ----
 *
 * A small sync does not write data in place and wait for it, then commit what
 * makes it readable behind a barrier. It copies the blocks that have changed into
 * the running transaction, beside the metadata, and commits that as one burst. The
 * page stays dirty, and ordinary write-back brings it to its place later. jbd2
 * takes a copy for a block of metadata: it gets a descriptor's tag, and its sum,
 * and recovery replays it. Five rules keep that safe:
 *
 *   Sync		While the log may have a copy of a block of a file, a sync of
 *		that file logs what has changed, or has the log settled first
 *		(eager_sync.c).
 *   Write-back	A block that has a copy in the log, and has changed since, is
 *		written in place and stays dirty: so the next sync finds it.
 *   Free	Who frees a block that has a copy revokes that. Truncate has it
 *		in its place before (eager_hold.c).
 *   Tail	The log's tail passes a transaction with copies only when their
 *		places have been written and flushed (eager_settle.c).
 *   Exclusion	Whoever changes a file's blocks past the page cache, or moves
 *		them, has the log settled first, and keeps syncs from logging
 *		(eager_hold.c).
 *
 * A worked example. b is a new block of a file, v1 and v2 what is written to it:
 *
 *   write v1; fsync: T5 holds the allocation, the larger size and v1.
 *	Power fails before T5's flush has ended: the old size, b is free; or T5 is
 *	whole, and has v1. Neither has been promised.
 *   T5 has committed, fsync returns. b itself has not been written.
 *	Power fails: T5 is replayed, and b is v1.
 *   write v2. Write-back writes b in place. It has a copy: its page stays dirty.
 *	Power fails: T5 is replayed. b is v1, the last that was promised.
 *   fsync finds the page dirty, and logs v2 in T7.
 *	Power fails: T5, then T7 are replayed. b is v2.
 *   Settling: b is written once more, and a flush ends. The tail passes T7.
 *	Power fails: nothing is replayed, and b is v2.
 *   truncate: had it come before the settling, it would have written b, and T8 have
 *   freed it and revoked its copies; who gets b next need not fear T5.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - A dirty buffer that is "Logged", and whose block the log has a copy of, is
 *   as the latest copy. The flag is set with the folio locked, once its mappings
 *   have been write-protected and the copy is queued. Whoever changes the buffer
 *   dirties it with the folio locked, and calls ext4_eager_changed(), or writes
 *   through a mapping, which faults first and comes to ->dirty_folio(). Who writes
 *   to a page that he has pinned need not: such a page is not logged.
 * - What has changed since the last sync lies in the inode's window, which
 *   ext4_eager_changed() widens, after it was made dirty: who takes the window
 *   finds the tag. What was dirty before the inode had a window is in its first.
 * - New blocks are allocated as written, in the handle that logs their contents,
 *   so the transaction exposes nothing. If the copy cannot be made then, the inode
 *   goes onto the transaction's list of ordered data, as on stock.
 * - A copy is zero behind the end of the file, and so are the page and what replay
 *   brings back.
 * - i_disksize grows in the handle that logs the data up to there. What lies between
 *   the old and the new size reads as zero, or was logged here or before, or has
 *   marked a transaction no later than this one when it was allocated.
 *
 * Lock order
 * ----------
 *
 * i_rwsem, the inode's mutex, s_writepages_rwsem, handle, folio lock, i_data_sem.
 * i_private_lock, the window's lock and those of the copies and the xarray are innermost.
 */

#include <linux/pagemap.h>
#include <linux/rmap.h>

#include "eager_internal.h"

/* --- which files, which blocks -------------------------------------------- */

/**
 * ext4_eager_logs - may data of a file be logged?
 * @inode: any inode of a journalled file system
 *
 * Not that of a file whose flag says that ext4 is to log it: it does not with delayed
 * allocation, but would after a remount, and has other rules for such pages and blocks.
 * Nor where khugepaged puts pages together of files that are open for reading only: they are
 * dropped when one is opened for writing, those too that write-back has left dirty because the
 * log has an older copy. (Kernels that do so for any file leave out what is dirty.)
 */
bool ext4_eager_logs(struct inode *inode)
{
	struct super_block *sb = inode->i_sb;

	return IS_ENABLED(CONFIG_64BIT) &&
		!IS_ENABLED(CONFIG_READ_ONLY_THP_FOR_FS) && ext4_eager_in_force(sb) &&
		S_ISREG(inode->i_mode) && test_opt(sb, DELALLOC) &&
		inode->i_blkbits <= PAGE_SHIFT &&
		EXT4_SB(sb)->s_cluster_ratio == 1 &&
		ext4_test_inode_flag(inode, EXT4_INODE_EXTENTS) &&
		!ext4_should_journal_data(inode) &&
		!ext4_test_inode_flag(inode, EXT4_INODE_JOURNAL_DATA) &&
		!ext4_is_quota_file(inode) &&
		!IS_ENCRYPTED(inode) && !IS_DAX(inode) && !IS_VERITY(inode) &&
		!IS_SWAPFILE(inode) && !ext4_has_feature_inline_data(sb) &&
		!ext4_verity_in_progress(inode) &&
		!ext4_test_inode_state(inode, EXT4_STATE_EAGER_NEVER);
}

/**
 * ext4_eager_is_changed - would a sync have to make a buffer durable?
 * @sb: the file system
 * @bh: of a locked folio
 */
bool ext4_eager_is_changed(struct super_block *sb, struct buffer_head *bh)
{
	return buffer_dirty(bh) && buffer_mapped(bh) &&
		!(buffer_logged(bh) && !buffer_delay(bh) &&
		  ext4_eager_has_copy(sb, bh->b_blocknr));
}

/* ext4_eager_changed(), of a file that has been synced eagerly. */
void ext4_eager_note_change(struct inode *inode, struct folio *folio, size_t from,
			    size_t to)
{
	struct ext4_eager_inode *ei = READ_ONCE(EXT4_I(inode)->i_eager);
	struct buffer_head *head, *bh;

	/* The folio of a page table's last store may not be locked: reclaim has it. */
	spin_lock(&inode->i_mapping->i_private_lock);
	head = folio_buffers(folio);
	if (!head) {
		spin_unlock(&inode->i_mapping->i_private_lock);
		return;
	}
	bh = head;
	do {
		if (bh_offset(bh) < to && bh_offset(bh) + bh->b_size > from) {
			clear_buffer_logged(bh);
			if (buffer_unwritten(bh))
				ext4_eager_note_unwritten(inode);
		}
		bh = bh->b_this_page;
	} while (bh != head);
	spin_unlock(&inode->i_mapping->i_private_lock);
	spin_lock(&ei->lock);
	ext4_eager_widen(&ei->window, ext4_eager_range_of(folio));
	spin_unlock(&ei->lock);
}

/* As write-back, which may hold neither i_rwsem nor invalidate_lock. */
#define EXT4_EAGER_MAP_FLAGS	(EXT4_GET_BLOCKS_IO_SUBMIT | EXT4_EX_NOCACHE)

/* --- a page --------------------------------------------------------------- */

/* A page that is being logged. */
struct ext4_eager_page {
	struct inode		*inode;
	struct folio		*folio;
	size_t			from;	/* the byte of it with which the page begins */
	handle_t		*handle;
	struct list_head	copies;
	loff_t			end;	/* behind the last byte that is allocated */
	bool			mapped;	/* the inode's blocks may have changed */
};

/*
 * Change the inode's blocks. What that does to the inode goes into the log at the end:
 * see ext4_eager_updates_later().
 */
static int ext4_eager_map_blocks(struct ext4_eager_page *page,
				 struct ext4_map_blocks *map, int flags)
{
	page->mapped = true;
	map->m_len = 1;
	return ext4_map_blocks(page->handle, page->inode, map,
			       EXT4_EAGER_MAP_FLAGS | EXT4_GET_BLOCKS_CREATE |
			       EXT4_GET_BLOCKS_METADATA_NOFAIL |
			       EXT4_GET_BLOCKS_LOGGED | flags);
}

/* Make a block that was preallocated a written one. */
static int ext4_eager_convert(struct ext4_eager_page *page,
			      struct buffer_head *bh,
			      struct ext4_map_blocks *map)
{
	struct inode *inode = page->inode;
	int ret;

	if (!(map->m_flags & EXT4_MAP_UNWRITTEN) ||
	    map->m_pblk != bh->b_blocknr ||
	    ext4_test_inode_state(inode, EXT4_STATE_EAGER_MAPPED))
		return -EAGAIN;
	ret = ext4_eager_map_blocks(page, map, EXT4_GET_BLOCKS_LOGS_UNWRIT);
	if (ret < 0)
		return ret;
	if (unlikely(!(map->m_flags & EXT4_MAP_MAPPED) ||
		     map->m_pblk != bh->b_blocknr)) {
		ext4_eager_mark(page->handle, JBD2_BURST_ALLOCATED);
		EXT4_ERROR_INODE(inode, "block %u has moved", map->m_lblk);
		return -EFSCORRUPTED;
	}
	clear_buffer_unwritten(bh);
	return 0;
}

/*
 * Allocate a block that was put off, as written. Or see that it is written: after
 * a write that has failed its buffer looks as if it were.
 */
static int ext4_eager_map(struct ext4_eager_page *page, struct buffer_head *bh,
			  ext4_lblk_t lblk)
{
	struct ext4_map_blocks map = { .m_lblk = lblk, .m_len = 1 };
	struct inode *inode = page->inode;
	int ret;

	ret = ext4_map_blocks(NULL, inode, &map, EXT4_EAGER_MAP_FLAGS);
	if (ret < 0)
		return ret;
	if (buffer_unwritten(bh) && !(map.m_flags & EXT4_MAP_MAPPED))
		return ext4_eager_convert(page, bh, &map);
	if (!buffer_delay(bh)) {
		if (!(map.m_flags & EXT4_MAP_MAPPED) ||
		    map.m_pblk != bh->b_blocknr)
			return -EAGAIN;
		/* Who has converted a neighbour may have zeroed it. */
		clear_buffer_unwritten(bh);
		return 0;
	}
	/* Preallocated since, or to be read past the page cache: eager_sync.c. */
	if (ret || ext4_test_inode_state(inode, EXT4_STATE_EAGER_MAPPED))
		return -EAGAIN;
	ret = ext4_eager_map_blocks(page, &map, 0);
	if (ret < 0)
		return ret;
	/* Preallocated meanwhile: it is left as it is, and so are its neighbours. */
	if (!(map.m_flags & EXT4_MAP_MAPPED))
		return -EAGAIN;
	clear_buffer_delay(bh);
	bh->b_blocknr = map.m_pblk;
	return 0;
}

/* A block is allocated, and will not be logged: as on stock, then. */
static int ext4_eager_order(struct ext4_eager_page *page, ext4_lblk_t lblk)
{
	struct inode *inode = page->inode;

	ext4_eager_mark(page->handle, JBD2_BURST_ALLOCATED);
	return ext4_jbd2_inode_add_write(page->handle, inode,
					 (loff_t)lblk << inode->i_blkbits,
					 i_blocksize(inode));
}

/* Log what has changed of a page, its folio locked. */
static int ext4_eager_log_buffers(struct ext4_eager_page *page)
{
	struct buffer_head *head = folio_buffers(page->folio), *bh = head;
	struct inode *inode = page->inode;
	loff_t size = i_size_read(inode), pos = folio_pos(page->folio);
	ext4_lblk_t lblk = pos >> inode->i_blkbits;
	size_t to = page->from + PAGE_SIZE;
	int err;

	/* As write-back does: what is mapped may be stored to behind the end. */
	if (pos + page->from < size && size < pos + to)
		folio_zero_segment(page->folio, size - pos, to);
	for (; pos < size && bh_offset(bh) < to; pos += bh->b_size, lblk++) {
		if (bh_offset(bh) >= page->from &&
		    ext4_eager_is_changed(inode->i_sb, bh)) {
			err = ext4_eager_map(page, bh, lblk);
			if (err)
				return err;
			/* It is allocated: nobody else would raise i_disksize. */
			page->end = min(pos + (loff_t)bh->b_size, size);
			err = ext4_eager_queue_copy(page->handle, inode,
						    page->folio, bh,
						    &page->copies);
			if (err) {
				ext4_eager_order(page, lblk);
				return err;
			}
			atomic64_inc(&ext4_eager_of(inode->i_sb)->counts.blocks);
		}
		bh = bh->b_this_page;
		if (bh == head)
			break;
	}
	return 0;
}

/*
 * No store is missed from now on: each comes to ->dirty_folio(). But for those of who
 * has pinned the page, by DMA or by the kernel's own mapping: he tells when he is done,
 * and only if the page is clean by then. So it has to go into place, which makes it so.
 */
static bool ext4_eager_clean_mappings(struct folio *folio)
{
	if (folio_mkclean(folio))
		folio_mark_dirty(folio);
	/* Who pins a page looks at the mapping once more: he or we see the other. */
	smp_mb();
	return !folio_maybe_dma_pinned(folio);
}

/* As write-back does once it has allocated blocks. True: the file grows. */
static bool ext4_eager_grow(struct inode *inode, loff_t end)
{
	struct ext4_inode_info *ei = EXT4_I(inode);

	if (end <= READ_ONCE(ei->i_disksize))
		return false;
	down_write(&ei->i_data_sem);
	end = min(end, i_size_read(inode));
	if (end > ei->i_disksize)
		ei->i_disksize = end;
	up_write(&ei->i_data_sem);
	return true;
}

/*
 * Log the inode, once for all that the page has changed of it. If that fails, what has been
 * logged cannot be reached, and nothing else would log the inode: so nobody is to be told
 * that it is durable.
 */
static int ext4_eager_update_inode(struct ext4_eager_page *page)
{
	bool grows = ext4_eager_grow(page->inode, page->end);
	int err;

	if (!grows && !page->mapped)
		return 0;
	/* Zero to the block's end: so far others may make the file larger. */
	EXT4_I(page->inode)->i_eager->logged_to =
		round_up(page->end, i_blocksize(page->inode));
	err = ext4_mark_inode_dirty(page->handle, page->inode);
	if (err)
		jbd2_journal_abort(EXT4_SB(page->inode->i_sb)->s_journal, err);
	return err;
}

static void ext4_eager_note_copied(struct inode *inode, struct folio *folio)
{
	struct ext4_eager_inode *ei = EXT4_I(inode)->i_eager;

	spin_lock(&ei->lock);
	ext4_eager_widen(&ei->copied, ext4_eager_range_of(folio));
	spin_unlock(&ei->lock);
}

/*
 * -EBUSY: it is on its way to its place, or about to be. That may take long, with a limit
 * of somebody's cgroup. Once the log had a copy a settling would wait for it, and now a
 * commit would, for this handle.
 */
static int ext4_eager_log_page(struct inode *inode, struct folio *folio,
			       size_t from)
{
	struct ext4_eager_page page = {
		.inode = inode,
		.folio = folio,
		.from = from,
		.copies = LIST_HEAD_INIT(page.copies),
	};
	unsigned int nr = PAGE_SIZE >> inode->i_blkbits;
	handle_t *handle;
	int err, err2;

	err = ext4_eager_alloc_copies(inode->i_sb, nr, &page.copies);
	if (err)
		goto out;
	handle = ext4_journal_start(inode, EXT4_HT_LOG_DATA,
				    ext4_eager_page_credits(inode) + nr);
	if (IS_ERR(handle)) {
		err = PTR_ERR(handle);
		goto out;
	}
	page.handle = handle;
	/* Switched off while updates were locked? Then nothing is to be logged. */
	if (!jbd2_burst_on(handle->h_transaction->t_journal)) {
		err = -EAGAIN;
		goto stop;
	}
	EXT4_I(inode)->i_eager->logged_to = 0;
	ext4_eager_list(inode);
	if (!folio_trylock(folio)) {
		err = -EBUSY;
		goto stop;
	}
	if (folio_contain_hwpoisoned_page(folio)) {
		err = -EAGAIN;
	} else if (folio_test_writeback(folio)) {
		err = -EBUSY;
	} else if (folio->mapping == inode->i_mapping &&
		   folio_test_dirty(folio) && folio_buffers(folio)) {
		err = -EAGAIN;
		if (ext4_eager_clean_mappings(folio))
			err = ext4_eager_log_buffers(&page);
	}
	/* Who finds that nothing is dirty asks which transaction to wait for. */
	if (page.end)
		ext4_update_inode_fsync_trans(handle, inode, 1);
	folio_unlock(folio);
	/* Now that it is queued: a settling that finds it writes that. */
	if (page.end)
		ext4_eager_note_copied(inode, folio);
	err2 = ext4_eager_update_inode(&page);
	err = err ?: err2;
stop:
	err2 = ext4_journal_stop(handle);
	err = err ?: err2;
out:
	ext4_eager_free_copies(inode->i_sb, &page.copies);
	return err;
}

/*
 * Is there anything to be logged? Most pages of a range have been. @from: the byte
 * of the folio to begin at; becomes that of the first page that has changed.
 */
static bool ext4_eager_find_changed(struct inode *inode, struct folio *folio,
				    size_t *from)
{
	loff_t size = i_size_read(inode);
	struct buffer_head *head, *bh;
	bool changed = false;

	folio_lock(folio);
	head = folio_buffers(folio);
	bh = folio->mapping == inode->i_mapping ? head : NULL;
	while (bh && !changed && folio_pos(folio) + bh_offset(bh) < size) {
		changed = bh_offset(bh) >= *from &&
			ext4_eager_is_changed(inode->i_sb, bh);
		if (changed)
			*from = round_down(bh_offset(bh), PAGE_SIZE);
		bh = bh->b_this_page == head ? NULL : bh->b_this_page;
	}
	folio_unlock(folio);
	return changed;
}

/*
 * Log what has changed of a folio, a handle for each page: a large one may need more
 * credits than a transaction has. What changes behind us is the next sync's. @left:
 * how many pages may still be logged.
 */
static int ext4_eager_log_folio(struct inode *inode, struct folio *folio,
				unsigned int *left)
{
	size_t from = 0;
	int err = 0;

	while (!err && ext4_eager_find_changed(inode, folio, &from)) {
		if (!*left)
			return -E2BIG;
		(*left)--;
		err = ext4_eager_log_page(inode, folio, from);
		from += PAGE_SIZE;
	}
	return err;
}

/**
 * ext4_eager_log_range - log what has changed of a range of pages
 * @inode: the file, its mutex held
 * @range: pages
 * @limit: how many of them at most: others may change more of them ahead of us, for ever
 *
 * Return: 0; -E2BIG if there are more; -EBUSY if write-back has come first; or another
 * error. After an error any part may have been logged.
 */
int ext4_eager_log_range(struct inode *inode, struct ext4_eager_range range,
			 unsigned int limit)
{
	pgoff_t index = range.first;
	struct folio_batch batch;
	int err = 0, alloc_ctx;
	unsigned int i;

	alloc_ctx = ext4_writepages_down_read(inode->i_sb);
	folio_batch_init(&batch);
	while (!err && filemap_get_folios_tag(inode->i_mapping, &index,
					      range.last, PAGECACHE_TAG_DIRTY,
					      &batch)) {
		for (i = 0; !err && i < folio_batch_count(&batch); i++)
			err = ext4_eager_log_folio(inode, batch.folios[i],
						   &limit);
		folio_batch_release(&batch);
		cond_resched();
	}
	ext4_writepages_up_read(inode->i_sb, alloc_ctx);
	return err;
}
