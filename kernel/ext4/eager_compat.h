/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Eager syncing: what differs between kernels.
 *
 * On 7.2 data of regular files has large folios, so what ext4 says of a folio's
 * credits is not for a page; a jbd2_inode's range is in pages, its end behind the
 * last; and pagevec.h has another name.
 */
#ifndef _EXT4_EAGER_COMPAT_H
#define _EXT4_EAGER_COMPAT_H

#include <linux/jbd2.h>
#include <linux/version.h>

#include "ext4.h"
#include "eager.h"

#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 2, 0)
#include <linux/pagevec.h>

/* Credits for allocating all blocks of a page of a file. */
static inline int ext4_eager_page_credits(struct inode *inode)
{
	return ext4_writepage_trans_blocks(inode);
}

static inline void ext4_eager_set_pages(struct jbd2_inode *jinode,
					struct ext4_eager_range pages)
{
	jinode->i_dirty_start = pages.first << PAGE_SHIFT;
	jinode->i_dirty_end = ext4_eager_end(pages);
}
#else
#include <linux/folio_batch.h>

static inline int ext4_eager_page_credits(struct inode *inode)
{
	int blocks = PAGE_SIZE >> inode->i_blkbits;

	return ext4_meta_trans_blocks(inode, blocks, blocks, blocks);
}

static inline void ext4_eager_set_pages(struct jbd2_inode *jinode,
					struct ext4_eager_range pages)
{
	jinode->i_dirty_start_page = pages.first;
	jinode->i_dirty_end_page = (ext4_eager_end(pages) >> PAGE_SHIFT) + 1;
}
#endif

#endif	/* _EXT4_EAGER_COMPAT_H */
