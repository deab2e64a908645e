/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Coarse-grained mtime update (mtime_log.c): around all that writes to a raw inode.
 *
 * ext4 logs an inode some ten times for each new file. Without the option that must
 * cost no more than a look.
 */
#ifndef _EXT4_MTIME_FILL_H
#define _EXT4_MTIME_FILL_H

#include "ext4_jbd2.h"
#include "mtime_internal.h"

#ifndef __uninitialized
#define __uninitialized	__attribute__((__uninitialized__))
#endif

void ext4_mtime_keep_raw(struct inode *inode, const struct ext4_inode *raw_inode,
			 struct ext4_inode *before);
bool ext4_mtime_note_filled(handle_t *handle, struct inode *inode,
			    const struct ext4_inode *raw_inode,
			    struct ext4_inode *before, bool stamps_only);

/*
 * Does fsync commit the handle's transaction anyway? Then there is nothing to prove.
 * A handle that has aborted may be without one.
 */
static inline bool ext4_mtime_is_noted(handle_t *handle, struct inode *inode)
{
	return !is_handle_aborted(handle) &&
		READ_ONCE(EXT4_I(inode)->i_mtime_info.attr_tid) ==
		handle->h_transaction->t_tid;
}

/**
 * ext4_mtime_begin_fill - before the raw inode is filled in
 * @handle: what the inode is logged under
 * @inode: the inode
 * @raw_inode: its raw inode in the buffer
 * @before: where to keep the raw inode, if need be
 *
 * Context: i_raw_lock held.
 * Return: whether the handle claims to log stamps alone, and it matters.
 */
static inline bool ext4_mtime_begin_fill(handle_t *handle, struct inode *inode,
					 const struct ext4_inode *raw_inode,
					 struct ext4_inode *before)
{
	if (likely(!ext4_handle_valid(handle) ||
		   handle->h_type != EXT4_HT_STAMPS) ||
	    ext4_mtime_is_noted(handle, inode))
		return false;
	ext4_mtime_keep_raw(inode, raw_inode, before);
	return true;
}

/**
 * ext4_mtime_end_fill - after the raw inode has been filled in
 * @handle: what the inode is logged under
 * @inode: the inode
 * @raw_inode: its raw inode in the buffer
 * @before: what ext4_mtime_begin_fill() kept
 * @stamps_only: what ext4_mtime_begin_fill() returned
 *
 * Context: i_raw_lock held since ext4_mtime_begin_fill(), handle open.
 * Return: whether the claim is true.
 */
static inline bool ext4_mtime_end_fill(handle_t *handle, struct inode *inode,
				       const struct ext4_inode *raw_inode,
				       struct ext4_inode *before,
				       bool stamps_only)
{
	if (likely(!stamps_only && !ext4_mtime_takes_note(inode)))
		return false;
	return ext4_mtime_note_filled(handle, inode, raw_inode, before,
				      stamps_only);
}

#endif	/* _EXT4_MTIME_FILL_H */
