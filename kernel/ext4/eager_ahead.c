// SPDX-License-Identifier: GPL-2.0
/*
 * Eager syncing (eager_log.c): blocks ahead of the end of a file that grows by syncs.
 *
 * Idea
 * ----
 *
 * A log that is synced after each record takes a block now and then, each for itself:
 * the burst of such a sync has a bitmap and a group's descriptor beside the inode and
 * the data. So who does that a few times gets blocks ahead: unwritten ones behind the
 * end of the file, as fallocate() makes them with FALLOC_FL_KEEP_SIZE. Syncs use them
 * up (eager_log.c), and each changes the inode alone. XFS does likewise.
 *
 * What has not been used goes when the file is closed.
 *
 * A worked example, of blocks of 4 KiB:
 *
 *   Two appends, each of a block and synced. Each allocates one: the file has b0 and b1.
 *   The second allocates b2 to b65, too, unwritten, as a rule in its own T9.
 *	Power fails when T9 is on disk: behind its end the file has 64 blocks that read
 *	as zero to whoever makes it longer, as after fallocate().
 *   An append, synced: T10 has the data of b2, and that b2 is written.
 *	Power fails before T10 is on disk: the file ends with b1, and b2 is unwritten.
 *   The file is closed: b3 to b65 are free again.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - No block is freed that somebody else has asked for. Only blocks that are new when
 *   we ask for them become ours, and they are behind the end of the file. Whoever asks
 *   for others there, or moves blocks, holds i_rwsem for writing, and has ours freed
 *   first: fallocate() in each mode, and all those that call ext4_eager_hold(). They are
 *   forgotten then even if they could not be freed, and when the file is truncated, be it
 *   to the size that it has, or because a write has failed.
 * - No block is freed that lies below the end: only who holds i_rwsem for writing changes
 *   that, and it is held when blocks are freed.
 * - Blocks are not allocated while the file is truncated, which may let others in between
 *   two of its handles: i_rwsem is held then, too.
 * - No buffer keeps the number of a block that was freed: a write that failed halfway
 *   leaves some behind the end of the file, mapped. The pages' rest goes first.
 * - A block ahead is unwritten until it is logged, or written in place: none shows
 *   what it held before.
 * - Blocks ahead are few. Only a file that is open for writing has some: at most
 *   256 KiB, or as much as the file has, up to 1 MiB. All files together have at most
 *   a sixteenth of what is free when they are allocated; files that allocate at the
 *   same moment do not see each other's. There are none if little is free, or if
 *   quotas are in use: they would count as the user's.
 * - What cannot be freed does no harm: it stays behind the end, for whoever appends next.
 *   So after a crash, if the file is closed while the file system is frozen or i_rwsem
 *   is held, or by two at once, who each take the other for the last.
 *
 * Lock order
 * ----------
 *
 * i_rwsem, the inode's mutex, invalidate_lock, handle, i_data_sem. A sync, which has the
 * mutex, only tries for i_rwsem, and may be called with it.
 */

#include <linux/quotaops.h>
#include <linux/sizes.h>

#include "eager_internal.h"

/* So many syncs in a row have made the file longer, since it was opened. */
#define EXT4_EAGER_AHEAD_AFTER	2

/*
 * Bytes. Behind its first blocks, which ext4 allocates between those of other small files,
 * a file that grows beside others comes to 500 KiB with the four extents that fit into
 * an inode.
 */
#define EXT4_EAGER_AHEAD_MIN	SZ_256K
#define EXT4_EAGER_AHEAD_MAX	SZ_1M

/* The first block behind the end of a file. */
static ext4_lblk_t ext4_eager_eof(struct inode *inode)
{
	return (i_size_read(inode) + i_blocksize(inode) - 1) >>
		inode->i_blkbits;
}

/* May a file have blocks ahead? */
static bool ext4_eager_may_go_ahead(struct inode *inode)
{
	return atomic_read(&inode->i_writecount) > 0 && inode->i_nlink &&
		!ext4_test_inode_state(inode, EXT4_STATE_EAGER_MAPPED) &&
		ext4_eager_logs(inode) && !sb_any_quota_loaded(inode->i_sb);
}

/* How many blocks a file may have ahead; 0: none, for there is no room. */
static u32 ext4_eager_room_ahead(struct inode *inode, struct ext4_eager_inode *ei)
{
	struct ext4_sb_info *sbi = EXT4_SB(inode->i_sb);
	s64 free = percpu_counter_read_positive(&sbi->s_freeclusters_counter);
	u32 min = EXT4_EAGER_AHEAD_MIN >> inode->i_blkbits;
	s64 others = (s64)atomic_read(&sbi->s_eager.nr_ahead) -
		ext4_eager_nr_ahead(ei);
	s64 room = free / 16 - others;

	if (free <= ext4_blocks_count(sbi->s_es) / 16 || room < min)
		return 0;
	return clamp_t(u32, ext4_eager_eof(inode), min,
		       min_t(s64, room, EXT4_EAGER_AHEAD_MAX >> inode->i_blkbits));
}

/* The blocks from @first up to @end are what a file has ahead. */
static void ext4_eager_set_ahead(struct inode *inode, struct ext4_eager_inode *ei,
				 ext4_lblk_t first, ext4_lblk_t end)
{
	atomic_add(end - first - ext4_eager_nr_ahead(ei),
		   &ext4_eager_of(inode->i_sb)->nr_ahead);
	ei->ahead = first;
	ei->ahead_end = end;
}

/* Allocate blocks behind the end of a file. Returns how many, or an error. */
static int ext4_eager_allocate(struct inode *inode, struct ext4_map_blocks *map)
{
	handle_t *handle;
	int ret;

	handle = ext4_journal_start(inode, EXT4_HT_MAP_BLOCKS,
				    ext4_chunk_trans_blocks(inode, map->m_len));
	if (IS_ERR(handle))
		return PTR_ERR(handle);
	ret = ext4_map_blocks(handle, inode, map,
			      EXT4_GET_BLOCKS_CREATE_UNWRIT_EXT);
	ext4_journal_stop(handle);
	return ret;
}

/*
 * Allocate ahead of a file, what the allocator gives in one piece. If it is nothing, or
 * not new, do not try again before the file is longer.
 */
static void ext4_eager_go_ahead(struct inode *inode, struct ext4_eager_inode *ei)
{
	ext4_lblk_t eof = ext4_eager_eof(inode);
	u32 nr = ext4_eager_room_ahead(inode, ei);
	struct ext4_map_blocks map = { .m_lblk = eof, .m_len = nr };
	int ret;

	if (!nr)
		return;
	ret = ext4_eager_allocate(inode, &map);
	if (ret > 0 && map.m_flags & EXT4_MAP_NEW) {
		ext4_eager_set_ahead(inode, ei, eof, eof + ret);
		atomic64_add(ret, &ext4_eager_of(inode->i_sb)->counts.ahead);
	} else {
		ext4_eager_set_ahead(inode, ei, eof + nr, eof + nr);
	}
}

/*
 * Is the end where the last growth left it? A write that fills the file's last block, or
 * a part of it, makes it longer on disk at once: no block is allocated for that.
 */
static bool ext4_eager_grows_on(struct inode *inode, loff_t from)
{
	loff_t grown_to = EXT4_I(inode)->i_eager->grown_to;

	return from >= grown_to &&
		from <= round_up(grown_to, i_blocksize(inode));
}

/**
 * ext4_eager_note_growth - a sync has logged data of a file
 * @inode: the file, its mutex held
 * @from: how long it was on disk before
 *
 * If others have made it shorter meanwhile, or longer by blocks, that does not count.
 */
void ext4_eager_note_growth(struct inode *inode, loff_t from)
{
	struct ext4_eager_inode *ei = EXT4_I(inode)->i_eager;
	loff_t to = READ_ONCE(EXT4_I(inode)->i_disksize);
	u32 grown = ext4_eager_grows_on(inode, from) ? ei->grown + 1 : 1;

	if (to <= from)
		return;
	/* Never 0 on the way: ext4_eager_trim() would not look at what is ahead. */
	WRITE_ONCE(ei->grown, grown);
	ei->grown_to = to;
	if (ei->ahead_end > ext4_eager_eof(inode))
		return;
	/* What it had has been used up: room for others. */
	ext4_eager_set_ahead(inode, ei, 0, 0);
	if (ei->grown < EXT4_EAGER_AHEAD_AFTER ||
	    !ext4_eager_may_go_ahead(inode) || !inode_trylock(inode))
		return;
	if (sb_start_intwrite_trylock(inode->i_sb)) {
		ext4_eager_go_ahead(inode, ei);
		sb_end_intwrite(inode->i_sb);
	}
	inode_unlock(inode);
}

/*
 * Free blocks of a file, of which no page has a buffer. After an error some are left, as
 * after a crash.
 */
static void ext4_eager_remove(struct inode *inode, ext4_lblk_t first,
			      ext4_lblk_t end)
{
	struct ext4_inode_info *info = EXT4_I(inode);
	handle_t *handle;

	handle = ext4_journal_start(inode, EXT4_HT_TRUNCATE,
				    ext4_chunk_trans_blocks(inode, end - first));
	if (IS_ERR(handle))
		return;
	down_write(&info->i_data_sem);
	ext4_discard_preallocations(inode);
	ext4_ext_remove_space(inode, first, end - 1);
	/* Behind it: where the handle was restarted others have looked. */
	ext4_es_remove_extent(inode, first, end - first);
	up_write(&info->i_data_sem);
	ext4_mark_inode_dirty(handle, inode);
	ext4_journal_stop(handle);
}

/* Free what is ahead of a file, or forget it, with its mutex held. */
static void ext4_eager_free_ahead(struct inode *inode,
				  struct ext4_eager_inode *ei)
{
	struct super_block *sb = inode->i_sb;
	ext4_lblk_t first = max(ei->ahead, ext4_eager_eof(inode));
	ext4_lblk_t end = ei->ahead_end;

	ext4_eager_set_ahead(inode, ei, 0, 0);
	if (first >= end || sb_rdonly(sb) || ext4_forced_shutdown(sb) ||
	    !sb_start_intwrite_trylock(sb))
		return;
	ext4_eager_remove(inode, first, end);
	sb_end_intwrite(sb);
}

/**
 * ext4_eager_trim - free what has been allocated ahead of a file
 * @inode: any inode, i_rwsem held for writing; no handle
 *
 * It is forgotten if the file system is frozen.
 */
void ext4_eager_trim(struct inode *inode)
{
	struct ext4_eager_inode *ei = READ_ONCE(EXT4_I(inode)->i_eager);

	if (!ei || !READ_ONCE(ei->grown))
		return;
	/* A sync that is about to allocate has it. */
	mutex_lock(&ei->mutex);
	WRITE_ONCE(ei->grown, 0);
	if (ei->ahead_end) {
		filemap_invalidate_lock(inode->i_mapping);
		truncate_pagecache(inode, i_size_read(inode));
		ext4_eager_free_ahead(inode, ei);
		filemap_invalidate_unlock(inode->i_mapping);
	}
	mutex_unlock(&ei->mutex);
}

/**
 * ext4_eager_forget_ahead - all blocks behind the end of a file are about to be freed
 * @inode: any inode, i_rwsem held for writing; no handle
 */
void ext4_eager_forget_ahead(struct inode *inode)
{
	struct ext4_eager_inode *ei = READ_ONCE(EXT4_I(inode)->i_eager);

	if (!ei || !READ_ONCE(ei->grown))
		return;
	mutex_lock(&ei->mutex);
	WRITE_ONCE(ei->grown, 0);
	ext4_eager_set_ahead(inode, ei, 0, 0);
	mutex_unlock(&ei->mutex);
}

/**
 * ext4_eager_close - a file is closed
 * @inode: the file's
 * @file: the file
 */
void ext4_eager_close(struct inode *inode, struct file *file)
{
	struct ext4_eager_inode *ei = READ_ONCE(EXT4_I(inode)->i_eager);

	if (likely(!ei || !READ_ONCE(ei->grown)) ||
	    !(file->f_mode & FMODE_WRITE) ||
	    atomic_read(&inode->i_writecount) != 1)
		return;
	/* Whoever has it may wait for something that the caller is to do. */
	if (!inode_trylock(inode))
		return;
	ext4_eager_trim(inode);
	inode_unlock(inode);
}
