// SPDX-License-Identifier: GPL-2.0
/*
 * Eager syncing (eager_log.c): whoever else frees, writes or moves a file's blocks.
 *
 * Idea
 * ----
 *
 * Recovery writes the latest copy of a block that the log has, wherever the block
 * belongs by then. So:
 *
 *   - who frees a block revokes its copies, in the handle that frees it. ext4 hands
 *     freed data out only when the transaction has committed: whoever gets the
 *     block logs it in a later one, to which the revoke does not apply;
 *   - write-back that writes something newer than the copy leaves the page dirty;
 *   - who changes blocks past the page cache, moves them, or leaves a part of a
 *     block behind the end of the file, holds the inode: its copies are settled,
 *     and syncs make none until it is released.
 *
 * A worked example. The last block of a file has a copy, of 4096 bytes:
 *
 *   truncate to 4000 bytes, and to 5000: the rest has to read as zero.
 *	Had the copy stayed, a crash would bring the rest back.
 *   So the truncation holds the inode first: the log is settled.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - The handle that frees has credits for revokes: for each block of the extent, or
 *   as many as there are copies. The pages have gone before, so there comes no
 *   other copy of these blocks meanwhile.
 * - A truncation drops pages, then frees their blocks, perhaps in several transactions.
 *   Before that what has copies is in its place (ext4_eager_hold_shrink()), so it does not
 *   matter if the truncation fails, or if a crash ends it. The orphan record would not
 *   do: once a file system has seen an error, neither the kernel nor e2fsck heeds it, and
 *   the blocks stay behind the file's end. Who makes it larger would read what another
 *   file has left there. An unlinked file nobody can read.
 * - Once the journal has been aborted what the log has is nowhere else but in the
 *   page cache, until write-back has put it in its place, which has what another file
 *   has left there. So no dirty page goes before: who holds an inode, and drops its pages
 *   or reads their places, asks whether it was settled.
 * - A page may be lost: its write has failed, or its memory is bad. Then nobody reads any
 *   place of a file that has copies (ext4_eager_check_read()): he might see what another
 *   file has left, or log that over the copy. This is known before the folio can be dropped,
 *   and each reader asks with the folio locked that he reads into, or once he has waited for
 *   its write.
 * - While a page is written back, only settling can change whether its block has a
 *   copy: all else needs the folio's lock, or the page gone. If settling forgets a
 *   copy meanwhile, the page stays dirty though it need not.
 * - Who holds an inode sets a flag of it and then looks for its struct
 *   ext4_eager_inode; who makes that looks at the flag afterwards, with its mutex
 *   held. So a sync that has not seen the flag is waited for.
 * - An inode is held and released with i_rwsem held for writing, so two do not meet.
 *   Direct writes, which share it, never release.
 *
 * Lock order
 * ----------
 *
 * i_rwsem, then the inode's mutex. ext4_eager_free_blocks() is called in a handle,
 * the two of write-back with the folio locked or in interrupt context: they wait
 * for nothing.
 */

#include <linux/bio.h>
#include <linux/blk-cgroup.h>
#include <linux/pagemap.h>
#include <linux/rmap.h>
#include <linux/writeback.h>

#include "eager_internal.h"

/*
 * No sync logs data of a file from now on. False: one that does would have to be waited
 * for, which @nowait forbids.
 */
static bool ext4_eager_stop_logging(struct inode *inode, bool nowait)
{
	struct ext4_eager_inode *ei;

	if (!ext4_test_inode_state(inode, EXT4_STATE_EAGER_NEVER))
		ext4_set_inode_state(inode, EXT4_STATE_EAGER_NEVER);
	/* Pairs with the cmpxchg() in ext4_eager_get(), whoever has set it. */
	smp_mb();
	ei = READ_ONCE(EXT4_I(inode)->i_eager);
	if (!ei)
		return true;
	/* Who logs now may not have seen the flag. */
	if (!mutex_trylock(&ei->mutex)) {
		if (nowait)
			return false;
		mutex_lock(&ei->mutex);
	}
	mutex_unlock(&ei->mutex);
	return true;
}

/* Keep a file's data out of the log. Returns what ext4_eager_hold_shared() does. */
static bool ext4_eager_keep_out(struct inode *inode)
{
	bool held;

	if (!S_ISREG(inode->i_mode) || !EXT4_SB(inode->i_sb)->s_journal)
		return false;
	held = ext4_test_inode_state(inode, EXT4_STATE_EAGER_NEVER);
	ext4_eager_stop_logging(inode, false);
	return !held;
}

/**
 * ext4_eager_settle_file - have what has been logged of a file settled
 * @inode: any inode
 *
 * For who asks where its blocks are: he may read them there, or write.
 */
void ext4_eager_settle_file(struct inode *inode)
{
	if (ext4_eager_may_have_copies(inode))
		ext4_eager_settle(inode->i_sb, EXT4_EAGER_PAST_CACHE);
}

/**
 * ext4_eager_hold_shared - keep a file's data out of the log, and have it settled
 * @inode: any inode, i_rwsem held, perhaps for reading
 *
 * If settling fails the journal has been aborted, and no handle starts any more. Who drops
 * pages or reads places before he starts one asks ext4_eager_check_settled() first.
 *
 * Return: whether ext4_eager_release() is to be called; if not another holds it
 * for good.
 */
bool ext4_eager_hold_shared(struct inode *inode)
{
	bool held = ext4_eager_keep_out(inode);

	ext4_eager_settle_file(inode);
	return held;
}

/**
 * ext4_eager_hold - the same, for who allocates or moves blocks
 * @inode: any inode, i_rwsem held for writing
 *
 * No blocks are ahead of the file either, until it is released (eager_ahead.c).
 *
 * Return: as ext4_eager_hold_shared().
 */
bool ext4_eager_hold(struct inode *inode)
{
	bool held = ext4_eager_hold_shared(inode);

	ext4_eager_trim(inode);
	return held;
}

/*
 * What the log has a copy of will never be in its place: recovery has to restore it. From
 * now on the place is not read. The settling that is under way, or the next one, aborts
 * the journal.
 */
static void ext4_eager_note_lost(struct super_block *sb)
{
	WRITE_ONCE(ext4_eager_of(sb)->lost, true);
	ext4_eager_ask(sb, EXT4_EAGER_LOST);
}

/* Put what the log has copies of behind a size in its place, without a flush. */
static void ext4_eager_write_behind(struct inode *inode, loff_t size)
{
	struct ext4_eager_inode *ei = EXT4_I(inode)->i_eager;
	struct ext4_eager_range range;

	/* Else it has not been logged since it was read: no page is dirty that has copies. */
	if (!ei)
		return;
	spin_lock(&ei->lock);
	range = ei->copied;
	ext4_eager_widen(&range, ei->settling);
	spin_unlock(&ei->lock);
	range.first = max_t(pgoff_t, range.first, size >> PAGE_SHIFT);
	if (ext4_eager_put_in_place(inode, range))
		ext4_eager_note_lost(inode->i_sb);
}

/**
 * ext4_eager_hold_shrink - ext4_eager_hold() for who is about to drop pages at the end
 * @inode: a regular file, i_rwsem held for writing
 * @size: what its size becomes
 *
 * At the end of a block nothing has to be settled. A write that fails is as any other
 * one of what has been logged.
 *
 * Return: as ext4_eager_hold_shared().
 */
bool ext4_eager_hold_shrink(struct inode *inode, loff_t size)
{
	bool held;

	if (size & (i_blocksize(inode) - 1))
		return ext4_eager_hold(inode);
	held = ext4_eager_keep_out(inode);
	if (ext4_eager_may_have_copies(inode))
		ext4_eager_write_behind(inode, size);
	return held;
}

/**
 * ext4_eager_begin_evict - an inode that has a name is about to lose its pages
 * @inode: any
 *
 * At an unmount dirty ones, too: write-back gives up where a block cannot be allocated,
 * and leaves what lies behind it. Of that the log may have copies.
 */
void ext4_eager_begin_evict(struct inode *inode)
{
	if (unlikely(mapping_tagged(inode->i_mapping, PAGECACHE_TAG_DIRTY)) &&
	    ext4_eager_may_have_copies(inode))
		ext4_eager_write_behind(inode, 0);
}

/**
 * ext4_eager_release - a file's data may go into the log again
 * @inode: the inode, i_rwsem held for writing since ext4_eager_hold()
 * @held: what that has returned
 */
void ext4_eager_release(struct inode *inode, bool held)
{
	struct ext4_eager_inode *ei = EXT4_I(inode)->i_eager;

	if (!held)
		return;
	/* Whatever it was that has been done to the file. */
	if (ei) {
		spin_lock(&ei->lock);
		ei->window = EXT4_EAGER_ALL;
		spin_unlock(&ei->lock);
	}
	ext4_clear_inode_state(inode, EXT4_STATE_EAGER_NEVER);
}

/**
 * ext4_eager_check_settled - have the copies of a file that is held been settled?
 * @inode: the file, since ext4_eager_hold()
 *
 * Return: 0, or -EIO: the journal has been aborted, and the file's pages must not go.
 */
int ext4_eager_check_settled(struct inode *inode)
{
	return ext4_eager_may_have_copies(inode) ? -EIO : 0;
}

/**
 * ext4_eager_hold_direct - ext4_eager_hold() for a direct write
 * @inode: a regular file, i_rwsem held, perhaps for reading
 * @nowait: it must not wait
 *
 * Return: 0; -EAGAIN if it would have to wait; -EIO if the log could not be settled,
 * so that what is written might be undone.
 */
int ext4_eager_hold_direct(struct inode *inode, bool nowait)
{
	if (nowait) {
		if (!EXT4_SB(inode->i_sb)->s_journal)
			return 0;
		if (!ext4_eager_stop_logging(inode, true))
			return -EAGAIN;
		if (!ext4_eager_may_have_copies(inode))
			return 0;
		/* For who tries again. */
		ext4_eager_settle_soon(inode->i_sb, EXT4_EAGER_PAST_CACHE);
		return -EAGAIN;
	}
	ext4_eager_hold_shared(inode);
	return ext4_eager_check_settled(inode);
}

/**
 * ext4_eager_revoke_credits - how many revokes freeing blocks may take
 * @inode: whose they are
 * @blocks: how many, of data
 */
int ext4_eager_revoke_credits(struct inode *inode, int blocks)
{
	return min(blocks, atomic_read(&EXT4_SB(inode->i_sb)->s_eager.nr_logged));
}

/**
 * ext4_eager_free_blocks - blocks are about to be freed
 * @handle: the handle that frees them
 * @inode: whose they were
 * @block: the first
 * @count: how many
 */
void ext4_eager_free_blocks(handle_t *handle, struct inode *inode,
			    ext4_fsblk_t block, unsigned long count)
{
	struct ext4_eager_sb *eager = ext4_eager_of(inode->i_sb);
	unsigned long found;
	void *entry;
	int err = 0;

	if (likely(!atomic_read(&eager->nr_logged)) || !ext4_handle_valid(handle))
		return;
	xa_for_each_range(&eager->logged, found, entry, block,
			  block + count - 1) {
		err = jbd2_journal_revoke(handle, found, NULL);
		if (err)
			break;
		if (xa_erase(&eager->logged, found))
			atomic_dec(&eager->nr_logged);
		atomic64_inc(&eager->counts.revokes);
	}
	/* Else the block's next owner might lose what he writes. */
	if (err)
		jbd2_journal_abort(EXT4_SB(inode->i_sb)->s_journal, err);
}

/* A large folio that cannot be split stays where it is, whatever its memory has become. */
static bool ext4_eager_is_poisoned(struct buffer_head *bh)
{
	return PageHWPoison(folio_page(bh->b_folio,
				       bh_offset(bh) >> PAGE_SHIFT));
}

/* ext4_eager_keeps_dirty(), where the log has copies. */
bool ext4_eager_note_in_place(struct inode *inode, struct buffer_head *bh,
			      const struct writeback_control *wbc)
{
	struct ext4_eager_sb *eager = ext4_eager_of(inode->i_sb);
	bool as_copy = buffer_logged(bh);
	unsigned long flags;

	if (likely(!ext4_eager_has_copy(inode->i_sb, bh->b_blocknr)))
		return false;
	clear_buffer_logged(bh);
	if (unlikely(ext4_eager_is_poisoned(bh)))
		ext4_eager_note_lost(inode->i_sb);
	if (as_copy)
		return false;
	/* The settling that has begun, if one has, may have written it before. */
	spin_lock_irqsave(&eager->lock, flags);
	eager->kept = eager->begun + 1;
	spin_unlock_irqrestore(&eager->lock, flags);
	/* Else who has it written knows what he waits for. It may be settling. */
	if (wbc->sync_mode == WB_SYNC_NONE) {
		atomic_inc(&eager->nr_kept);
		if (unlikely(ext4_eager_keeps_often(eager)))
			ext4_eager_settle_soon(inode->i_sb, EXT4_EAGER_KEPT);
	}
	return true;
}

/*
 * ext4_eager_charge_folio(), where the log has copies. A settling waits for the writes of
 * what has copies, and for it who has no room in the log: no limit of a cgroup may hold
 * them up. A bio is charged as a whole.
 */
void ext4_eager_choose_charge(struct ext4_io_submit *io, struct inode *inode,
			      struct folio *folio)
{
	bool logged = ext4_eager_folio_has_copies(inode, folio);

	if (logged != io->io_logged)
		ext4_io_submit(io);
	io->io_logged = logged;
}

/* ext4_eager_charge_bio(), of what has copies. */
void ext4_eager_charge_root(struct ext4_io_submit *io)
{
	bio_associate_blkg_from_css(io->io_bio, blkcg_root_css);
}

/**
 * ext4_eager_write_failed - a buffer could not be written in place
 * @inode: the file
 * @bh: the buffer
 *
 * Context: any.
 */
void ext4_eager_write_failed(struct inode *inode, struct buffer_head *bh)
{
	if (ext4_eager_has_copy(inode->i_sb, bh->b_blocknr))
		ext4_eager_note_lost(inode->i_sb);
}

/* A buffer that is not all of its folio goes. What has no place reads as zero from now on. */
static void ext4_eager_discard(struct folio *folio, struct buffer_head *bh)
{
	if (buffer_delay(bh) || buffer_unwritten(bh))
		folio_zero_range(folio, bh_offset(bh), bh->b_size);
	block_invalidate_folio(folio, bh_offset(bh), bh->b_size);
}

/* Has the log copies of a folio's blocks? Quick where it has none of the file's. */
static bool ext4_eager_is_logged(struct inode *inode, struct folio *folio)
{
	return unlikely(ext4_eager_may_have_copies(inode)) &&
		ext4_eager_folio_has_copies(inode, folio);
}

/**
 * ext4_eager_keeps_folio - a dirty folio is to be given up: a block cannot be allocated
 * @inode: the file
 * @folio: of it, locked
 *
 * What has copies in the log stays, dirty, or it would be lost but for these. The rest of the
 * folio goes, as all of it does on stock.
 *
 * Return: whether the folio has copies, and that has been done.
 */
bool ext4_eager_keeps_folio(struct inode *inode, struct folio *folio)
{
	struct buffer_head *head = folio_buffers(folio), *bh = head;

	if (!head || !ext4_eager_is_logged(inode, folio))
		return false;
	if (bh->b_size == folio_size(folio))
		return true;
	/* Who stores to what has gone is to fault. */
	folio_mkclean(folio);
	do {
		if (!ext4_eager_buffer_has_copy(inode->i_sb, bh))
			ext4_eager_discard(folio, bh);
		bh = bh->b_this_page;
	} while (bh != head);
	return true;
}

/**
 * ext4_eager_error_remove - ->error_remove_folio(): the memory of a folio is bad
 * @mapping: the file's
 * @folio: locked
 *
 * Return: 0 or an error, as of generic_error_remove_folio().
 */
int ext4_eager_error_remove(struct address_space *mapping, struct folio *folio)
{
	struct inode *inode = mapping->host;

	if (folio_test_dirty(folio) && ext4_eager_is_logged(inode, folio))
		ext4_eager_note_lost(inode->i_sb);
	return generic_error_remove_folio(mapping, folio);
}
