// SPDX-License-Identifier: GPL-2.0
/*
 * Eager syncing (eager_log.c): copies of data blocks in transactions.
 *
 * Idea
 * ----
 *
 * jbd2 takes a copy for a block of metadata that has just been allocated: it gets a
 * tag in a descriptor, and its share of the sum, and recovery replays it. Nothing
 * in jbd2 has to know better. What is remembered of it when it has been committed
 * is its block and the transaction, so that who frees the block revokes it, and
 * who writes the block in place knows that the log has something older.
 *
 * A worked example, of block 700:
 *
 *   T5 holds a copy; remembered: 700 in T5. T5 commits, the copy is freed.
 *   T8 holds another one; remembered: 700 in T8.
 *   The log's tail passes T7: nothing is forgotten. It passes T8: 700 is.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - A copy is private: a buffer head and a page that nobody else can find. jbd2
 *   frees neither. It is marked as freed, so jbd2 neither checkpoints it nor
 *   writes it in place; that is settling's. The two references that it has keep
 *   release_buffer_page() off. It goes when its transaction has been finished, or is
 *   kept to be used again: allocated anew it would be zeroed, and then overwritten.
 * - A block is logged twice in one transaction if it is synced twice meanwhile. The
 *   later copy has the later tag, and replay goes by tags.
 * - A block is remembered before its copy is queued, and forgotten when the tail has
 *   passed the transaction, or when the block is freed, with a revoke. An error in
 *   between leaves one remembered that has no copy, which costs a revoke.
 *
 * Lock order
 * ----------
 *
 * The lists' lock and the xarray's are innermost.
 */

#include <linux/pagemap.h>

#include "eager_internal.h"

/* A block of data in a transaction. */
struct ext4_eager_copy {
	struct list_head	list;
	struct buffer_head	*bh;
};

/* So many are kept when their transaction has committed: the next one needs as many. */
#define EXT4_EAGER_SPARE	16

/**
 * ext4_eager_has_copy - does the log have a copy of a block?
 * @sb: the file system
 * @block: of the file system
 *
 * Context: any. If it may be logged, freed or settled meanwhile, so may the answer.
 */
bool ext4_eager_has_copy(struct super_block *sb, ext4_fsblk_t block)
{
	struct ext4_eager_sb *eager = ext4_eager_of(sb);

	return unlikely(atomic_read(&eager->nr_logged)) &&
		xa_load(&eager->logged, block);
}

/**
 * ext4_eager_buffer_has_copy - has the log a copy of the block that a buffer is mapped to?
 * @sb: the file system
 * @bh: the buffer
 */
bool ext4_eager_buffer_has_copy(struct super_block *sb, struct buffer_head *bh)
{
	return buffer_mapped(bh) && ext4_eager_has_copy(sb, bh->b_blocknr);
}

/**
 * ext4_eager_folio_has_copies - has the log copies of blocks of a folio, or may it have?
 * @inode: the file
 * @folio: of it
 */
bool ext4_eager_folio_has_copies(struct inode *inode, struct folio *folio)
{
	struct address_space *mapping = inode->i_mapping;
	struct buffer_head *head, *bh;
	bool has;

	spin_lock(&mapping->i_private_lock);
	head = folio_buffers(folio);
	has = !head;
	for (bh = head; !has && bh; ) {
		has = ext4_eager_buffer_has_copy(inode->i_sb, bh);
		bh = bh->b_this_page == head ? NULL : bh->b_this_page;
	}
	spin_unlock(&mapping->i_private_lock);
	return has;
}

static void ext4_eager_free_copy(struct ext4_eager_copy *copy)
{
	jbd2_burst_free_buffer(copy->bh);
	kfree(copy);
}

/* As jbd2 is to find it. */
static void ext4_eager_init_copy(struct ext4_eager_copy *copy)
{
	copy->bh->b_state = 0;
	set_buffer_mapped(copy->bh);
	set_buffer_uptodate(copy->bh);
	/* There is nothing to be cancelled: see jbd2_journal_cancel_revoke(). */
	set_buffer_revokevalid(copy->bh);
}

static struct ext4_eager_copy *ext4_eager_take_spare(struct ext4_eager_sb *eager)
{
	struct ext4_eager_copy *copy;

	spin_lock(&eager->copies_lock);
	copy = list_first_entry_or_null(&eager->spare, struct ext4_eager_copy,
					list);
	if (copy) {
		list_del(&copy->list);
		eager->nr_spare--;
	}
	spin_unlock(&eager->copies_lock);
	return copy;
}

static struct ext4_eager_copy *ext4_eager_alloc_copy(struct super_block *sb)
{
	struct ext4_eager_copy *copy = ext4_eager_take_spare(ext4_eager_of(sb));

	if (!copy) {
		copy = kzalloc(sizeof(*copy), GFP_NOFS);
		if (!copy)
			return NULL;
		copy->bh = jbd2_burst_alloc_buffer(sb->s_bdev, sb->s_blocksize,
						   GFP_NOFS);
		if (!copy->bh) {
			kfree(copy);
			return NULL;
		}
	}
	ext4_eager_init_copy(copy);
	return copy;
}

/* Is it to be used again? */
static bool ext4_eager_keep_spare(struct ext4_eager_sb *eager,
				  struct ext4_eager_copy *copy)
{
	bool keeps;

	spin_lock(&eager->copies_lock);
	keeps = eager->nr_spare < EXT4_EAGER_SPARE;
	if (keeps) {
		list_add(&copy->list, &eager->spare);
		eager->nr_spare++;
	}
	spin_unlock(&eager->copies_lock);
	return keeps;
}

/**
 * ext4_eager_free_copies - free what has not been queued, or has been committed
 * @sb: the file system
 * @copies: a list, empty afterwards
 */
void ext4_eager_free_copies(struct super_block *sb, struct list_head *copies)
{
	struct ext4_eager_copy *copy, *next;

	list_for_each_entry_safe(copy, next, copies, list) {
		list_del(&copy->list);
		/* jbd2 has let go of it: nobody else knows of it. */
		if (WARN_ON_ONCE(buffer_jbd(copy->bh) ||
				 atomic_read(&copy->bh->b_count) != 1))
			kfree(copy);
		else if (!ext4_eager_keep_spare(ext4_eager_of(sb), copy))
			ext4_eager_free_copy(copy);
	}
}

/**
 * ext4_eager_free_spare - the option is switched off, or the file system goes
 * @eager: of it
 */
void ext4_eager_free_spare(struct ext4_eager_sb *eager)
{
	struct ext4_eager_copy *copy, *next;
	LIST_HEAD(spare);

	spin_lock(&eager->copies_lock);
	list_splice_init(&eager->spare, &spare);
	eager->nr_spare = 0;
	spin_unlock(&eager->copies_lock);
	list_for_each_entry_safe(copy, next, &spare, list)
		ext4_eager_free_copy(copy);
}

/**
 * ext4_eager_alloc_copies - before a handle is started
 * @sb: the file system
 * @nr: how many
 * @copies: a list, to be freed by ext4_eager_free_copies() after an error, too
 *
 * Return: 0 or -ENOMEM.
 */
int ext4_eager_alloc_copies(struct super_block *sb, unsigned int nr,
			    struct list_head *copies)
{
	struct ext4_eager_copy *copy;

	while (nr--) {
		copy = ext4_eager_alloc_copy(sb);
		if (!copy)
			return -ENOMEM;
		list_add(&copy->list, copies);
	}
	return 0;
}

/**
 * ext4_eager_committed - a transaction has been committed, or given up
 * @sb: the file system
 * @tid: the transaction, which jbd2 is done with but for its checkpoint lists
 */
void ext4_eager_committed(struct super_block *sb, tid_t tid)
{
	struct ext4_eager_sb *eager = ext4_eager_of(sb);
	LIST_HEAD(copies);

	/*
	 * Of its parity there is none but this until the callback returns, and its
	 * handles have stopped: nobody adds to the list.
	 */
	if (likely(list_empty(&eager->copies[tid & 1])))
		return;
	spin_lock(&eager->copies_lock);
	list_splice_init(&eager->copies[tid & 1], &copies);
	spin_unlock(&eager->copies_lock);
	ext4_eager_free_copies(sb, &copies);
}

/**
 * ext4_eager_settled - the log has no copies of before any more
 * @sb: the file system
 * @tail: where the log begins
 */
void ext4_eager_settled(struct super_block *sb, tid_t tail)
{
	struct ext4_eager_sb *eager = ext4_eager_of(sb);
	XA_STATE(xas, &eager->logged, 0);
	unsigned int seen = 0;
	void *entry;

	xas_lock(&xas);
	xas_for_each(&xas, entry, ULONG_MAX) {
		if (tid_gt(tail, (tid_t)xa_to_value(entry))) {
			xas_store(&xas, NULL);
			atomic_dec(&eager->nr_logged);
		}
		if (++seen % XA_CHECK_SCHED)
			continue;
		xas_pause(&xas);
		xas_unlock(&xas);
		cond_resched();
		xas_lock(&xas);
	}
	xas_unlock(&xas);
}

/* Remember that the running transaction has a copy of a block. */
static int ext4_eager_remember(struct super_block *sb, ext4_fsblk_t block,
			       tid_t tid)
{
	struct ext4_eager_sb *eager = ext4_eager_of(sb);
	void *old;

	old = xa_store(&eager->logged, block, xa_mk_value(tid),
		       GFP_NOFS | __GFP_NOFAIL);
	if (xa_is_err(old))
		return xa_err(old);
	if (!old)
		atomic_inc(&eager->nr_logged);
	return 0;
}

/**
 * ext4_eager_queue_copy - put a buffer's contents into the running transaction
 * @handle: with a credit for it
 * @inode: the file
 * @folio: locked, its mappings write-protected
 * @bh: of the folio, allocated, dirty
 * @copies: takes one of these, unless it fails early
 *
 * Return: 0, then the buffer is Logged, or an error.
 */
int ext4_eager_queue_copy(handle_t *handle, struct inode *inode,
			  struct folio *folio, struct buffer_head *bh,
			  struct list_head *copies)
{
	struct super_block *sb = inode->i_sb;
	struct ext4_eager_sb *eager = ext4_eager_of(sb);
	struct ext4_eager_copy *copy =
		list_first_entry(copies, struct ext4_eager_copy, list);
	tid_t tid = handle->h_transaction->t_tid;
	int err;

	memcpy_from_folio(copy->bh->b_data, folio, bh_offset(bh), bh->b_size);
	copy->bh->b_blocknr = bh->b_blocknr;

	err = ext4_eager_remember(sb, bh->b_blocknr, tid);
	if (err)
		return err;
	jbd2_burst_data(handle);
	lock_buffer(copy->bh);
	err = ext4_journal_get_create_access(handle, sb, copy->bh,
					     EXT4_JTR_NONE);
	unlock_buffer(copy->bh);
	if (err)
		return err;
	/* From here on jbd2 knows it, and it stays until the commit has ended. */
	spin_lock(&eager->copies_lock);
	list_move_tail(&copy->list, &eager->copies[tid & 1]);
	spin_unlock(&eager->copies_lock);
	set_buffer_freed(copy->bh);
	err = ext4_handle_dirty_metadata(handle, NULL, copy->bh);
	if (!err)
		set_buffer_logged(bh);
	return err;
}
