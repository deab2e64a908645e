/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Eager syncing: what ext4 keeps of it and calls. The idea is in eager.c, that of
 * data in the log in eager_log.c.
 */
#ifndef _EXT4_EAGER_H
#define _EXT4_EAGER_H

#include <linux/blkdev.h>
#include <linux/buffer_head.h>
#include <linux/jbd2.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "../jbd2/burst.h"

struct ext4_sb_info;
struct fs_parameter;
struct seq_file;
struct super_block;

/* Type of a handle that logs data, the first but one that stock ext4 leaves. */
#define EXT4_HT_LOG_DATA	(EXT4_HT_MAX + 1)

/* Why a sync has written data in place. */
enum ext4_eager_in_place {
	EXT4_EAGER_LARGE,	/* more than the threshold */
	EXT4_EAGER_NO_NEW,	/* no new blocks, and none with older copies */
	EXT4_EAGER_MAPPED,	/* new blocks of a file that is mapped for writing */
	EXT4_EAGER_HELD,	/* something else changes the file's blocks */
	EXT4_EAGER_FULL,	/* too much of the log is held by data */
	EXT4_EAGER_FAILED,	/* allocation, or memory */
	EXT4_EAGER_IN_PLACE,
};

/* Why the log is settled. */
enum ext4_eager_settle_why {
	EXT4_EAGER_AGED,	/* the oldest copy is so old */
	EXT4_EAGER_FILLING,	/* much of the log is held by data */
	EXT4_EAGER_EMPTIED,	/* jbd2 needs room, or an empty log */
	EXT4_EAGER_SYNCED,	/* fsync of a file that has copies, but is not logged */
	EXT4_EAGER_PAST_CACHE,	/* a direct write, or something else that holds a file */
	EXT4_EAGER_KEPT,	/* write-back has left many blocks dirty */
	EXT4_EAGER_SYNC_FS,	/* sync, a freeze, or unmount */
	EXT4_EAGER_LOST,	/* what has a copy will not be in place: the journal aborts */
	EXT4_EAGER_SETTLE_WHYS,
};

/* Numbers for a person. */
struct ext4_eager_counts {
	atomic64_t	syncs;		/* whose data went into the log */
	atomic64_t	blocks;		/* of data */
	atomic64_t	in_place[EXT4_EAGER_IN_PLACE];
	atomic64_t	settlings[EXT4_EAGER_SETTLE_WHYS];
	atomic64_t	settle_max_us;
	atomic64_t	waits;		/* for settling, ... */
	atomic64_t	waits_us;	/* ... so long in all */
	atomic64_t	revokes;
	atomic64_t	ahead;		/* blocks allocated */
};

/* Beside the threshold, in the same word: it is lower where that is better. */
#define EXT4_EAGER_ADAPTS	0x00010000

/* How far settling has got, for those who log meanwhile. Written by the worker. */
struct ext4_eager_pace {
	unsigned int	sent;	/* blocks of pages, and of the next ones; 0: it sends none */
	unsigned int	held;	/* blocks of the log, when it began, ... */
	unsigned int	logged;	/* ... and copies, but at least a part of what there may be */
};

/* In struct ext4_sb_info. */
struct ext4_eager_sb {
	unsigned int	pages;		/* the threshold; 0: the option is off */

	/* What the log has of files' data (eager_log.c). */
	struct xarray	logged;		/* block: tid of the latest copy */
	atomic_t	nr_logged;	/* blocks in it */
	unsigned int	max_logged;
	spinlock_t	copies_lock;	/* of these; who ends a tid looks without */
	struct list_head copies[2];	/* by parity of their transaction's tid */
	struct list_head spare;		/* copies to be used again */
	unsigned int	nr_spare;

	/* Settling (eager_settle.c). */
	spinlock_t	lock;		/* of all up to lost */
	struct list_head inodes;	/* struct ext4_eager_inode */
	u64		wanted;		/* settlings, by number: asked for, */
	u64		begun;		/* begun, */
	u64		done;		/* ended, well or not, */
	u64		settled;	/* and ended well */
	u64		kept;		/* needed: write-back has left pages dirty; */
	u64		clean;		/* they were written again after this one */
	enum ext4_eager_settle_why why;	/* who was the first to ask for it */
	bool		lost;		/* a block in the log is not in its place */
	unsigned long	since;		/* jiffies of the first copy since number */
	u64		since_number;	/* since_number - 1 began */
	struct xarray	gone;		/* evicted, by number: see i_eager_gen */
	u64		gone_unknown;	/* the same of some whose number is lost */
	atomic_t	waiting; /* for settling, which makes haste then */
	atomic_t	nr_kept; /* times that blocks were, since one ended well */
	atomic_t	nr_ahead; /* blocks that files have ahead, or have used up */
	unsigned int	paced;	/* pages since the worker has paused, */
	struct blk_plug	plug;	/* which it holds until it does */
	struct ext4_eager_pace pace;
	atomic_t	behind;	/* who wait until it has caught up, ... */
	wait_queue_head_t catches_up; /* ... here */
	wait_queue_head_t wait;
	struct workqueue_struct *queue;
	struct delayed_work work;

	struct ext4_eager_counts counts;
};

/* Pages that lie in here; none if last is below first. */
struct ext4_eager_range {
	pgoff_t	first;
	pgoff_t	last;
};

/* Of a regular file that has been synced eagerly, or might be. */
struct ext4_eager_inode {
	struct inode	*inode;
	struct mutex	mutex;		/* who logs its data; of what has grown, too */
	spinlock_t	lock;		/* of both ranges */
	struct ext4_eager_range window;	/* what has changed since it was synced */
	struct ext4_eager_range copied;	/* what was logged since it was settled */
	struct ext4_eager_range settling; /* by the worker: what it writes */
	loff_t		logged_to;	/* by the handle that logs data now */
	unsigned int	grown;		/* so often in a row by syncs, ... */
	loff_t		grown_to;	/* ... the last time to this size */
	ext4_lblk_t	ahead;		/* blocks behind the end, as allocated: from here ... */
	ext4_lblk_t	ahead_end;	/* ... up to here; none if it is 0 */
	struct list_head list;		/* s_eager.inodes, by its lock */
	bool		busy;		/* by that lock, too: being settled */
};

/* In struct ext4_fs_context: what the options ask for. */
struct ext4_eager_options {
	bool		given;
	unsigned int	pages;
};

/* eager.c */
int ext4_eager_parse(struct ext4_eager_options *opts,
		     const struct fs_parameter *param);
void ext4_eager_parse_off(struct ext4_eager_options *opts);
void ext4_eager_apply_options(struct ext4_sb_info *sbi,
			      const struct ext4_eager_options *opts);
void ext4_eager_show_options(struct seq_file *seq,
			     const struct ext4_sb_info *sbi, char sep);
int ext4_eager_load(struct super_block *sb);
void ext4_eager_remount(struct super_block *sb);
ssize_t ext4_eager_show_stats(struct ext4_sb_info *sbi, char *buf);

/* eager_ahead.c */
void ext4_eager_trim(struct inode *inode);
void ext4_eager_forget_ahead(struct inode *inode);
void ext4_eager_close(struct inode *inode, struct file *file);

/* eager_copy.c */
void ext4_eager_committed(struct super_block *sb, tid_t tid);
void ext4_eager_free_spare(struct ext4_eager_sb *eager);

/* eager_sync.c */
unsigned int ext4_eager_worth(struct super_block *sb);

/* eager_inode.c */
void ext4_eager_read_inode(struct inode *inode);
void ext4_eager_evict(struct inode *inode);

/* eager_settle.c */
void ext4_eager_init_sb(struct ext4_sb_info *sbi);
int ext4_eager_start(struct super_block *sb);
void ext4_eager_stop(struct super_block *sb);
void ext4_eager_destroy_sb(struct ext4_sb_info *sbi);
int ext4_eager_sync_fs(struct super_block *sb);

/* eager_hold.c */
bool ext4_eager_hold_shared(struct inode *inode);
bool ext4_eager_hold(struct inode *inode);
bool ext4_eager_hold_shrink(struct inode *inode, loff_t size);
void ext4_eager_settle_file(struct inode *inode);
void ext4_eager_begin_evict(struct inode *inode);
void ext4_eager_release(struct inode *inode, bool held);
int ext4_eager_check_settled(struct inode *inode);
int ext4_eager_hold_direct(struct inode *inode, bool nowait);
int ext4_eager_revoke_credits(struct inode *inode, int blocks);
void ext4_eager_free_blocks(handle_t *handle, struct inode *inode,
			    ext4_fsblk_t block, unsigned long count);
void ext4_eager_write_failed(struct inode *inode, struct buffer_head *bh);
bool ext4_eager_keeps_folio(struct inode *inode, struct folio *folio);
int ext4_eager_error_remove(struct address_space *mapping, struct folio *folio);

#endif	/* _EXT4_EAGER_H */
