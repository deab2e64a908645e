/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Eager syncing (eager.h): the hooks that ext4 calls for each write, write-back and
 * sync. Where there is nothing to be done for it a hook is a look, and no call.
 *
 * ext4.h includes it when it has said what a file and a file system are.
 */
#ifndef _EXT4_EAGER_HOOKS_H
#define _EXT4_EAGER_HOOKS_H

void ext4_eager_note_change(struct inode *inode, struct folio *folio, size_t from,
			    size_t to);
bool ext4_eager_note_in_place(struct inode *inode, struct buffer_head *bh,
			      const struct writeback_control *wbc);
void ext4_eager_choose_charge(struct ext4_io_submit *io, struct inode *inode,
			      struct folio *folio);
void ext4_eager_charge_root(struct ext4_io_submit *io);
int ext4_eager_log_or_write(struct file *file, loff_t start, loff_t end);

/**
 * ext4_eager_may_have_copies - may the log have copies of a file's blocks?
 * @inode: the file
 */
static inline bool ext4_eager_may_have_copies(struct inode *inode)
{
	return READ_ONCE(EXT4_I(inode)->i_eager_gen) >
		READ_ONCE(EXT4_SB(inode->i_sb)->s_eager.settled);
}

/**
 * ext4_eager_check_read - may places of a file be read?
 * @inode: the file, the folio to be read locked; or nobody writes the place meanwhile
 *
 * Return: 0; or -EIO if what the log has may never get there.
 */
static inline int ext4_eager_check_read(struct inode *inode)
{
	/* Who has seen that write-back has ended sees what it has left. */
	smp_rmb();
	return unlikely(READ_ONCE(EXT4_SB(inode->i_sb)->s_eager.lost)) &&
		ext4_eager_may_have_copies(inode) ? -EIO : 0;
}

/**
 * ext4_eager_check_map - may a buffer be mapped? It might be read then.
 * @inode: the file
 * @bh: the buffer, of a locked folio
 *
 * Return: as ext4_eager_check_read().
 */
static inline int ext4_eager_check_map(struct inode *inode,
				       struct buffer_head *bh)
{
	return folio_test_uptodate(bh->b_folio) ?
		0 : ext4_eager_check_read(inode);
}

/* Are commits bursts, so that data may be logged? */
static inline bool ext4_eager_in_force(struct super_block *sb)
{
	journal_t *journal = EXT4_SB(sb)->s_journal;

	return journal && jbd2_burst_on(journal);
}

/**
 * ext4_eager_has_logged - does the handle that logs a file's data have it up to a size?
 * @inode: what that handle changes: the file, its mutex held; or one of quota, or of a
 *	large attribute, of which no data are logged
 * @size: that the inode is to have
 *
 * Another may have raised i_disksize, and be about to log it by a handle of his own.
 */
static inline bool ext4_eager_has_logged(struct inode *inode, loff_t size)
{
	struct ext4_eager_inode *ei = EXT4_I(inode)->i_eager;

	return !ei || size <= ei->logged_to;
}

/* What write-back maps in a handle while somebody syncs, if it can. */
#define EXT4_EAGER_EXTENT_BYTES	SZ_1M

/**
 * ext4_eager_is_long_extent - is write-back to map what it has, and stop its handle?
 * @sb: the file system
 * @bh: the next buffer, for which it asks
 * @len: how many blocks it has for one extent
 *
 * It takes the processor, and the device, a while to map and submit the 2,048 blocks of
 * which an extent may consist, with the handle open. Somebody may sync meanwhile, and
 * waits for it. So an extent is shorter if somebody has synced of late (burst_short.c).
 *
 * A folio is mapped to its end in one handle, if there are credits and blocks, whatever
 * is said here. So none is begun any more, rather than cut in two.
 */
static inline bool ext4_eager_is_long_extent(struct super_block *sb,
					     struct buffer_head *bh, unsigned int len)
{
	return len >= EXT4_EAGER_EXTENT_BYTES >> sb->s_blocksize_bits &&
	       ext4_eager_in_force(sb) && bh == folio_buffers(bh->b_folio) &&
	       jbd2_burst_has_syncs(EXT4_SB(sb)->s_journal);
}

/**
 * ext4_eager_changed - buffers of a folio have been made dirty
 * @inode: the file
 * @folio: locked, or kept from being freed by a mapping's page table; that does not
 *	keep its buffers
 * @from: the first byte that may have changed
 * @to: behind the last
 */
static inline void ext4_eager_changed(struct inode *inode, struct folio *folio,
				      size_t from, size_t to)
{
	if (unlikely(READ_ONCE(EXT4_I(inode)->i_eager)))
		ext4_eager_note_change(inode, folio, from, to);
}

/**
 * ext4_eager_note_unwritten - a block is to be written that is allocated, but unwritten
 * @inode: the file
 *
 * A hint for syncs: such blocks are not among those that are reserved.
 */
static inline void ext4_eager_note_unwritten(struct inode *inode)
{
	if (ext4_eager_in_force(inode->i_sb) &&
	    !ext4_test_inode_state(inode, EXT4_STATE_EAGER_UNWRITTEN))
		ext4_set_inode_state(inode, EXT4_STATE_EAGER_UNWRITTEN);
}

/**
 * ext4_eager_may_have_unwritten - may unwritten blocks of a file be dirty?
 * @inode: the file
 */
static inline bool ext4_eager_may_have_unwritten(struct inode *inode)
{
	return ext4_test_inode_state(inode, EXT4_STATE_EAGER_UNWRITTEN) &&
		ext4_eager_in_force(inode->i_sb);
}

/**
 * ext4_eager_keeps_dirty - a buffer is about to be written in place
 * @inode: the file
 * @bh: the buffer, dirty, of a locked folio
 * @wbc: what writes it
 *
 * Return: whether it has to stay dirty: the log has a copy of it which is older.
 */
static inline bool ext4_eager_keeps_dirty(struct inode *inode,
					  struct buffer_head *bh,
					  const struct writeback_control *wbc)
{
	return unlikely(atomic_read(&EXT4_SB(inode->i_sb)->s_eager.nr_logged)) &&
		ext4_eager_note_in_place(inode, bh, wbc);
}

/**
 * ext4_eager_charge_folio - the blocks of a folio are about to be sent to their places
 * @io: what sends them
 * @inode: the file
 * @folio: the folio, locked
 */
static inline void ext4_eager_charge_folio(struct ext4_io_submit *io,
					   struct inode *inode, struct folio *folio)
{
	if (unlikely(atomic_read(&EXT4_SB(inode->i_sb)->s_eager.nr_logged) ||
		     io->io_logged))
		ext4_eager_choose_charge(io, inode, folio);
}

/**
 * ext4_eager_charge_bio - charge the bio of what has copies to the root cgroup
 * @io: what sends it
 */
static inline void ext4_eager_charge_bio(struct ext4_io_submit *io)
{
	if (unlikely(io->io_logged))
		ext4_eager_charge_root(io);
}

/**
 * ext4_eager_write_and_wait - have data of a file written, or logged
 * @file: any file
 * @start: the first byte that has to be durable in the end
 * @end: the last
 *
 * What is logged is not durable before its transaction has committed, which
 * i_sync_tid and i_datasync_tid name.
 *
 * If the option comes into force meanwhile, what is logged then has all that the
 * caller wrote.
 *
 * Return: 0 or an error. Context: no handle, no folio locked.
 */
static inline int ext4_eager_write_and_wait(struct file *file, loff_t start,
					    loff_t end)
{
	struct inode *inode = file->f_mapping->host;

	if (likely(!ext4_eager_in_force(inode->i_sb) &&
		   !ext4_eager_may_have_copies(inode)))
		return ext4_mtime_write_and_wait(file, start, end);
	return ext4_eager_log_or_write(file, start, end);
}

/**
 * ext4_eager_end_sync - all that a sync waits for has come
 * @inode: the file
 *
 * Return: 0, or -EIO if the option is in force and the journal has been aborted.
 */
static inline int ext4_eager_end_sync(struct inode *inode)
{
	/* What was logged is nowhere else. */
	return likely(!ext4_eager_in_force(inode->i_sb)) ?
		0 : ext4_mtime_check_abort(inode->i_sb);
}

#endif	/* _EXT4_EAGER_HOOKS_H */
