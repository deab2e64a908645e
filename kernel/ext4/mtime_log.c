// SPDX-License-Identifier: GPL-2.0
/*
 * Coarse-grained mtime update (mtime.h): which updates have logged stamps alone.
 *
 * Idea
 * ----
 *
 * i_mtime_info.attr_tid is the transaction to commit if stamps do not count. To
 * set it at each place that changes more than stamps would take dozens of hooks,
 * and one that is forgotten loses an acknowledged change. So it is the other
 * way round: attr_tid moves together with i_sync_tid, except for an update that
 * was proved to log stamps alone. Whoever is in doubt commits.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - The proof has two parts. The handle claims it by its type, which only
 *   ext4_dirty_inode() gives, and only if the dirtier said that fdatasync does
 *   not need the change; utimensat(2) does not say so. And the raw inode differs
 *   in its stamps alone, compared under i_raw_lock, so a change of mode, owner,
 *   size, flags or blocks that travels along is seen. A change outside the raw
 *   inode (xattr, inline data, extent blocks) has a handle of another type.
 * - The proof is left out where attr_tid is the handle's transaction already, as it
 *   is for a new file: fsync commits that one whatever else it logs.
 * - attr_tid moves also when a block that belongs to the file is logged,
 *   whether or not somebody thinks of fsync there: EXT4_IOC_MOVE_EXT did not,
 *   and was saved by the stamps of the next write.
 * - An inode read from disk has attr_tid of the running transaction: it commits
 *   once (__ext4_iget()).
 * - Journalled data moves i_datasync_tid alone; in stock ext4 the stamp that
 *   comes with it moves i_sync_tid. So the later of the two counts
 *   (mtime_sync.c).
 * - A file's lazy stamps are logged for the file alone. Stock ext4 lets a
 *   neighbour's update write them into the block that they share, which leaves
 *   the file clean and its fsync without a transaction to commit. There it does
 *   no harm to mtime: each change moves i_version, too, which is not lazy.
 * - attr_tid is kept while the option is off, too.
 *
 * A worked example, defer: chmod(2) dirties the inode, and before that is logged
 * a write sets its stamps and dirties it with the type EXT4_HT_STAMPS. The raw
 * inode is filled from both. It differs in its mode, so the claim is not true,
 * attr_tid becomes the running transaction, and the fsync after the write
 * commits it. A crash right behind that fsync finds the new mode, though the
 * fsync of the chmod has never run.
 *
 * Lock order
 * ----------
 *
 * i_raw_lock, which is held from ext4_mtime_begin_fill() to
 * ext4_mtime_end_fill(), in an open handle. The tids are written without a lock,
 * as stock ext4 writes i_sync_tid.
 */

#include <linux/fs.h>

#include "ext4.h"
#include "ext4_jbd2.h"
#include "mtime_fill.h"

/**
 * ext4_mtime_handle_type - type of the handle for ext4_dirty_inode()
 * @inode: the inode to be logged
 * @dirty_flags: I_DIRTY_* from __mark_inode_dirty()
 *
 * Return: EXT4_HT_STAMPS if the option is on and the dirtier says that
 * fdatasync does not need the change, else EXT4_HT_INODE.
 */
int ext4_mtime_handle_type(struct inode *inode, int dirty_flags)
{
	if (likely(!ext4_mtime_policy(inode->i_sb)) ||
	    dirty_flags & I_DIRTY_DATASYNC || !S_ISREG(inode->i_mode))
		return EXT4_HT_INODE;
	return EXT4_HT_STAMPS;
}

/**
 * ext4_mtime_log_metadata - a block that describes a file has been logged
 * @handle: what it has been logged under
 * @inode: the file
 *
 * Its extents, indirect blocks, or xattrs. Most callers note the transaction for
 * fsync themselves; this is for the one that does not, or not yet.
 */
void ext4_mtime_log_metadata(handle_t *handle, struct inode *inode)
{
	if (!is_handle_aborted(handle))
		WRITE_ONCE(EXT4_I(inode)->i_mtime_info.attr_tid,
			   handle->h_transaction->t_tid);
}

/**
 * ext4_mtime_keeps_lazy - do a file's lazy stamps wait for the file?
 * @inode: the file
 *
 * Return: whether an update of another inode must leave them alone. Once the
 * option has been on, for they may be from then.
 */
bool ext4_mtime_keeps_lazy(const struct inode *inode)
{
	return READ_ONCE(EXT4_SB(inode->i_sb)->s_mtime.was_on);
}

static size_t ext4_mtime_raw_size(struct inode *inode)
{
	return min_t(size_t, sizeof(struct ext4_inode),
		     EXT4_INODE_SIZE(inode->i_sb));
}

/* Do two raw inodes differ in their stamps and the checksum alone? */
static bool ext4_mtime_same_but_stamps(struct ext4_inode *before,
				       const struct ext4_inode *after,
				       size_t size)
{
	before->i_atime = after->i_atime;
	before->i_mtime = after->i_mtime;
	before->i_ctime = after->i_ctime;
	before->i_checksum_lo = after->i_checksum_lo;
	if (size > EXT4_GOOD_OLD_INODE_SIZE) {
		before->i_atime_extra = after->i_atime_extra;
		before->i_mtime_extra = after->i_mtime_extra;
		before->i_ctime_extra = after->i_ctime_extra;
		before->i_checksum_hi = after->i_checksum_hi;
	}
	return !memcmp(before, after, size);
}

/* ext4_mtime_begin_fill(), where the handle claims to log stamps alone. */
void ext4_mtime_keep_raw(struct inode *inode, const struct ext4_inode *raw_inode,
			 struct ext4_inode *before)
{
	/* Sizes that the compiler knows: this is done for each write. */
	memcpy(before, raw_inode, EXT4_GOOD_OLD_INODE_SIZE);
	if (EXT4_INODE_SIZE(inode->i_sb) > EXT4_GOOD_OLD_INODE_SIZE)
		memcpy((char *)before + EXT4_GOOD_OLD_INODE_SIZE,
		       (const char *)raw_inode + EXT4_GOOD_OLD_INODE_SIZE,
		       sizeof(*before) - EXT4_GOOD_OLD_INODE_SIZE);
}

/* ext4_mtime_end_fill(), where there is something to note or to compare. */
bool ext4_mtime_note_filled(handle_t *handle, struct inode *inode,
			    const struct ext4_inode *raw_inode,
			    struct ext4_inode *before, bool stamps_only)
{
	if (ext4_handle_valid(handle))
		ext4_mtime_note_logged(handle, inode, raw_inode);
	return stamps_only &&
		ext4_mtime_same_but_stamps(before, raw_inode,
					   ext4_mtime_raw_size(inode));
}

/**
 * ext4_mtime_update_fsync_trans - note that stamps alone have been logged
 * @handle: what they have been logged under
 * @inode: the inode
 *
 * ext4_update_inode_fsync_trans() for an update that fsync may defer.
 */
void ext4_mtime_update_fsync_trans(handle_t *handle, struct inode *inode)
{
	if (!is_handle_aborted(handle))
		EXT4_I(inode)->i_sync_tid = handle->h_transaction->t_tid;
}
