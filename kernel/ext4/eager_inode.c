// SPDX-License-Identifier: GPL-2.0
/*
 * Eager syncing (eager_log.c): what is kept of an inode.
 *
 * Idea
 * ----
 *
 * A file that is synced eagerly has a window of what has changed, and a range of what
 * was logged. Settlings are numbered, and the inode has the number of the one that
 * has to end well before the log is sure to have no copies of its blocks.
 *
 * A worked example: settling 3 has ended, number 4 runs.
 *
 *   A file is logged: it is listed, and may have copies until number 5 has ended. Its
 *   pages are written, and it is evicted: the number 5 is kept beside its own.
 *   It is read again: it may have copies until number 5 has ended.
 *   Number 5 ends well: no file has copies that was not logged since it began.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - An inode that has been evicted may have copies. Until a settling has ended well
 *   that began later (i_eager_gen) its number is kept (gone), and an inode that
 *   is read with that number may have copies as well. If there is no memory for it,
 *   any inode that is read may (gone_unknown): eviction may be memory reclaim's.
 * - An inode is not evicted while it is being settled: eviction waits (busy). It needs
 *   no reference for that, which could be the last and would be put here. Nobody
 *   holds a folio of an inode that is being evicted, so that wait ends.
 * - An inode is listed with a handle, and the next settling to begin commits that
 *   handle's transaction first: so that one covers its copies.
 *
 * Lock order
 * ----------
 *
 * s_eager.lock, taken in interrupt context, too, is innermost.
 */

#include "eager_internal.h"

/**
 * ext4_eager_get - what is kept of an inode for eager syncing
 * @inode: a regular file, not being evicted
 *
 * Return: NULL if there is no memory.
 */
struct ext4_eager_inode *ext4_eager_get(struct inode *inode)
{
	struct ext4_inode_info *info = EXT4_I(inode);
	struct ext4_eager_inode *ei = READ_ONCE(info->i_eager), *old;

	if (likely(ei))
		return ei;
	if (!info->jinode && ext4_inode_attach_jinode(inode))
		return NULL;
	ei = kzalloc(sizeof(*ei), GFP_NOFS);
	if (!ei)
		return NULL;
	ei->inode = inode;
	mutex_init(&ei->mutex);
	spin_lock_init(&ei->lock);
	INIT_LIST_HEAD(&ei->list);
	ei->copied = EXT4_EAGER_NONE;
	ei->settling = EXT4_EAGER_NONE;
	/*
	 * Whatever is dirty by now. Who dirties a page and does not find this
	 * has tagged it before: there is a barrier in __mark_inode_dirty().
	 */
	ei->window = EXT4_EAGER_ALL;
	old = cmpxchg(&info->i_eager, NULL, ei);
	if (!old)
		return ei;
	kfree(ei);
	return old;
}

/**
 * ext4_eager_read_inode - an inode is read into memory
 * @inode: which may have been there before
 */
void ext4_eager_read_inode(struct inode *inode)
{
	struct ext4_eager_sb *eager = ext4_eager_of(inode->i_sb);
	void *gen = xa_load(&eager->gone, inode->i_ino);

	if (S_ISREG(inode->i_mode))
		EXT4_I(inode)->i_eager_gen = max(READ_ONCE(eager->gone_unknown),
						 (u64)(gen ? xa_to_value(gen) : 0));
}

/* Keep the number of an inode that goes, or that one of any number has gone. */
static void ext4_eager_note_gone(struct ext4_eager_sb *eager,
				 struct inode *inode)
{
	u64 gen = EXT4_I(inode)->i_eager_gen;

	if (!xa_err(xa_store(&eager->gone, inode->i_ino, xa_mk_value(gen),
			     GFP_NOFS | __GFP_NOWARN)))
		return;
	spin_lock_irq(&eager->lock);
	WRITE_ONCE(eager->gone_unknown, max(eager->gone_unknown, gen));
	spin_unlock_irq(&eager->lock);
}

/**
 * ext4_eager_list - copies of a file's blocks are about to be logged
 * @inode: the file, its mutex held, and a handle: the next settling to begin commits
 *	the handle's transaction first
 */
void ext4_eager_list(struct inode *inode)
{
	struct ext4_eager_sb *eager = ext4_eager_of(inode->i_sb);
	struct ext4_eager_inode *ei = EXT4_I(inode)->i_eager;

	spin_lock_irq(&eager->lock);
	if (eager->since_number <= eager->begun) {
		eager->since_number = eager->begun + 1;
		eager->since = jiffies;
	}
	WRITE_ONCE(EXT4_I(inode)->i_eager_gen, eager->begun + 1);
	if (list_empty(&ei->list))
		list_add_tail(&ei->list, &eager->inodes);
	spin_unlock_irq(&eager->lock);
	queue_delayed_work(eager->queue, &eager->work, EXT4_EAGER_SETTLE_AFTER);
}

/* Take an inode off the list, unless it is being settled. */
static bool ext4_eager_unlist_idle(struct ext4_eager_sb *eager,
				   struct ext4_eager_inode *ei)
{
	bool idle;

	spin_lock_irq(&eager->lock);
	idle = !ei->busy;
	if (idle)
		list_del_init(&ei->list);
	spin_unlock_irq(&eager->lock);
	return idle;
}

/**
 * ext4_eager_evict - an inode goes
 * @inode: any; its pages have gone, and all writes of them have ended
 */
void ext4_eager_evict(struct inode *inode)
{
	struct ext4_eager_sb *eager = ext4_eager_of(inode->i_sb);
	struct ext4_eager_inode *ei = EXT4_I(inode)->i_eager;

	if (likely(!ei))
		return;
	if (inode->i_nlink && ext4_eager_may_have_copies(inode))
		ext4_eager_note_gone(eager, inode);
	if (!ext4_eager_unlist_idle(eager, ei))
		ext4_eager_wait_event(inode->i_sb,
				      ext4_eager_unlist_idle(eager, ei));
	EXT4_I(inode)->i_eager = NULL;
	atomic_sub(ext4_eager_nr_ahead(ei), &eager->nr_ahead);
	kfree(ei);
}
