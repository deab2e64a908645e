/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Eager syncing: what its files call of each other.
 */
#ifndef _EXT4_EAGER_INTERNAL_H
#define _EXT4_EAGER_INTERNAL_H

#include <linux/pagemap.h>

#include "ext4.h"
#include "ext4_jbd2.h"
#include "eager.h"

/*
 * Of a dirty buffer: the log has its contents. The bit between is one of
 * EXT4_MAP_FLAGS on newer kernels: mapping a buffer clears it.
 */
#define BH_LOGGED	(BH_BITMAP_UPTODATE + 2)
BUFFER_FNS(LOGGED, logged)

#define EXT4_EAGER_NONE	((struct ext4_eager_range) { .first = ULONG_MAX })
#define EXT4_EAGER_ALL	((struct ext4_eager_range) { .last = ULONG_MAX })

static inline void ext4_eager_widen(struct ext4_eager_range *range,
				    struct ext4_eager_range by)
{
	range->first = min(range->first, by.first);
	range->last = max(range->last, by.last);
}

/* Behind the last byte but one of a range. */
static inline loff_t ext4_eager_end(struct ext4_eager_range range)
{
	return range.last < LLONG_MAX >> PAGE_SHIFT ?
		((loff_t)(range.last + 1) << PAGE_SHIFT) - 1 : LLONG_MAX;
}

static inline bool ext4_eager_is_empty(struct ext4_eager_range range)
{
	return range.last < range.first;
}

static inline struct ext4_eager_range ext4_eager_range_of(struct folio *folio)
{
	return (struct ext4_eager_range) {
		.first = folio->index,
		.last = folio_next_index(folio) - 1,
	};
}

/* Wait for write-back; fsync's caller, not we, learns of its errors. */
static inline void ext4_eager_wait(struct inode *inode,
				   struct ext4_eager_range range)
{
	if (!ext4_eager_is_empty(range))
		filemap_fdatawait_range_keep_errors(inode->i_mapping,
						    range.first << PAGE_SHIFT,
						    ext4_eager_end(range));
}

#include "eager_compat.h"

static inline struct ext4_eager_sb *ext4_eager_of(struct super_block *sb)
{
	return &EXT4_SB(sb)->s_eager;
}

static inline void ext4_eager_note_wait(struct ext4_eager_sb *eager, ktime_t since)
{
	atomic64_inc(&eager->counts.waits);
	atomic64_add(ktime_us_delta(ktime_get(), since), &eager->counts.waits_us);
}

/*
 * Wait until a condition holds that settling brings about. It makes haste meanwhile.
 */
#define ext4_eager_wait_event(sb, condition)				\
do {									\
	struct ext4_sb_info *__sbi = EXT4_SB(sb);			\
	ktime_t __since = ktime_get();					\
									\
	atomic_inc(&__sbi->s_eager.waiting);				\
	jbd2_burst_end_pause(__sbi->s_journal);				\
	wait_event(__sbi->s_eager.wait, condition);			\
	atomic_dec(&__sbi->s_eager.waiting);				\
	ext4_eager_note_wait(&__sbi->s_eager, __since);			\
} while (0)

static inline unsigned int ext4_eager_blocks(struct super_block *sb,
					     unsigned int pages)
{
	/* Blocks may be larger than pages; such files are not logged. */
	return ((u64)pages << PAGE_SHIFT) >> sb->s_blocksize_bits;
}

/* How long copies may stay in the log, as write-back's interval: 5 s. */
#define EXT4_EAGER_SETTLE_AFTER	(5 * HZ)

/* Write-back may leave blocks dirty so often before settling makes haste for it. */
#define EXT4_EAGER_KEPT_MOST	256

/*
 * Has write-back left blocks dirty often? Who waits for fewer dirty pages has it write the
 * same ones over and over: only settling helps.
 */
static inline bool ext4_eager_keeps_often(struct ext4_eager_sb *eager)
{
	return atomic_read(&eager->nr_kept) >= EXT4_EAGER_KEPT_MOST;
}

/* How many blocks a file was given ahead, used up or not. */
static inline u32 ext4_eager_nr_ahead(struct ext4_eager_inode *ei)
{
	return ei->ahead_end - ei->ahead;
}

/* eager_ahead.c */
void ext4_eager_note_growth(struct inode *inode, loff_t from);

/* eager_copy.c */
bool ext4_eager_has_copy(struct super_block *sb, ext4_fsblk_t block);
bool ext4_eager_buffer_has_copy(struct super_block *sb, struct buffer_head *bh);
bool ext4_eager_folio_has_copies(struct inode *inode, struct folio *folio);
int ext4_eager_alloc_copies(struct super_block *sb, unsigned int nr,
			    struct list_head *copies);
void ext4_eager_free_copies(struct super_block *sb, struct list_head *copies);
int ext4_eager_queue_copy(handle_t *handle, struct inode *inode,
			  struct folio *folio, struct buffer_head *bh,
			  struct list_head *copies);
void ext4_eager_settled(struct super_block *sb, tid_t tail);

/* eager_log.c */
bool ext4_eager_logs(struct inode *inode);
bool ext4_eager_is_changed(struct super_block *sb, struct buffer_head *bh);
int ext4_eager_log_range(struct inode *inode, struct ext4_eager_range range,
			 unsigned int limit);

/* eager_inode.c */
struct ext4_eager_inode *ext4_eager_get(struct inode *inode);
void ext4_eager_list(struct inode *inode);

/* eager_pace.c */
void ext4_eager_keep_pace(struct super_block *sb);
void ext4_eager_begin_places(struct super_block *sb);
void ext4_eager_end_places(struct super_block *sb);
int ext4_eager_write_range(struct inode *inode, struct ext4_eager_range range);
void ext4_eager_wait_for_range(struct inode *inode, struct ext4_eager_range range);
int ext4_eager_put_in_place(struct inode *inode, struct ext4_eager_range range);

/* eager_settle.c */
void ext4_eager_abort(struct super_block *sb, const char *why);
u64 ext4_eager_ask(struct super_block *sb, enum ext4_eager_settle_why why);
int ext4_eager_settle(struct super_block *sb, enum ext4_eager_settle_why why);
void ext4_eager_settle_soon(struct super_block *sb,
			    enum ext4_eager_settle_why why);

#endif	/* _EXT4_EAGER_INTERNAL_H */
