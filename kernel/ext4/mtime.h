/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Coarse-grained mtime update: fsync(2) at the cost of fdatasync(2). This is
 * what the rest of ext4 embeds and calls.
 *
 * Idea
 * ----
 *
 * An overwrite of an allocated block changes nothing in the inode but mtime
 * and ctime, yet the fsync after it commits a transaction (descriptor, inode
 * table block, commit block) to make them durable. It is saved only if both
 * stamps were already there, which in stock ext4 means that two writes fell
 * into one timer tick. With the mount option mtime_update=N stamps count in
 * steps of N ms instead. mtime_mode says where the step is taken:
 *
 * truncate (Son et al., "Coarse-grained mtime Update for Better fsync()
 * Performance", SAC'17, algorithm 1): a write stamps the inode with the start
 * of the N ms interval that it falls into. If both stamps lie in that interval
 * the inode stays clean, and fsync finds nothing to commit.
 *
 * defer: stamps are exact in memory and are logged into the running
 * transaction as ever. But an fsync of a file of which nothing but its stamps
 * has changed since its last commit does not force that transaction out, as
 * long as an mtime and a ctime younger than N ms are on disk.
 *
 * Without a journal there is no commit for defer to leave out, while truncate
 * saves the inode table write.
 *
 * Rooms
 * -----
 *
 *   mtime_options.c	mount options, what is in force, counters
 *   mtime_stamp.c	what a write does to the stamps of a file
 *   mtime_log.c	which updates of an inode have logged stamps alone
 *   mtime_durable.c	which stamps are on the medium if power fails now
 *   mtime_sync.c	what fsync commits, and what it flushes
 *   mtime_group.c	fsyncs that come together share one flush
 *
 * Each says at its head what it relies on, and why that holds.
 *
 * Lock order
 * ----------
 *
 * i_lock and i_raw_lock are leaf locks here, and never held together. What is
 * in force (the policy) is one word, read once per call without a lock: an
 * update or fsync under way during remount takes the old policy or the new one.
 * The locks of carried commits are in fs/jbd2/carrier.c.
 */
#ifndef _EXT4_MTIME_H
#define _EXT4_MTIME_H

#include <linux/jbd2.h>
#include <linux/percpu_counter.h>
#include <linux/types.h>

struct ext4_inode;
struct ext4_inode_info;
struct ext4_mtime_member;
struct ext4_sb_info;
struct file;
struct fs_parameter;
struct inode;
struct jbd2_carrier;
struct seq_file;
struct super_block;

/*
 * What is in force, in one word so that readers need no lock: the interval in
 * ms (0: stock behaviour), and whether mtime_mode is defer.
 */
#define EXT4_MTIME_INTERVAL_MS	0x0000ffff
#define EXT4_MTIME_DEFER	0x00010000

/* fsyncs that share a flush (mtime_group.c). */
struct ext4_mtime_group {
	spinlock_t		lock;		/* of all but wait; irqs off */
	struct list_head	members;	/* those that wait for a flush to begin */
	struct ext4_mtime_member *leader;	/* one of them, who is to begin it ... */
	unsigned long		overdue;	/* ... before then, in jiffies */
	bool			flushing;	/* one is under way */
	unsigned int		writing;	/* how many have yet to come, */
	u64			turn;		/* begun in this turn */
	wait_queue_head_t	wait;		/* for writing to be 0 */
	s64			flush_ns;	/* moving average */
};

/* In struct ext4_sb_info. */
struct ext4_mtime_sb {
	unsigned int		policy;		/* in force */
	unsigned int		asked;		/* to be, by s_umount */
	bool			was_on;		/* in this mount, or is */
	struct jbd2_carrier	*carrier;	/* of the journal, or NULL */
	u64			waited_ns;	/* when a sync last went to wait for a commit */
	struct ext4_mtime_group	group;
	struct percpu_counter	updates_done;	/* stamps changed by a write */
	struct percpu_counter	updates_skipped; /* stamps left by a write */
	struct percpu_counter	commits_avoided; /* fsyncs that saved a commit */
	struct percpu_counter	flushes_shared;	/* fsyncs that saved a flush */
};

/* In struct ext4_fs_context: what the options ask for. */
struct ext4_mtime_options {
	bool		reset;		/* un_mtime_update; the rest came later */
	bool		interval_given;
	bool		mode_given;
	unsigned int	interval_ms;
	bool		defer;
};

/* ns since the epoch */
struct ext4_mtime_stamps {
	s64	atime_ns;
	s64	mtime_ns;
	s64	ctime_ns;
};

/* Earlier stamps, by how far they are behind those that were logged last. */
struct ext4_mtime_behind {
	u32	mtime_ns:31;	/* EXT4_MTIME_FAR, in both: nobody knows */
	u32	atime:1;	/* has atime changed since? */
	u32	ctime_ns:31;
	u32	pending:1;	/* being committed, as far as is known */
};

/* In struct ext4_inode_info; all but the first by i_raw_lock. */
struct ext4_mtime_inode {
	/*
	 * Transaction to commit for fsync(2) if stamps did not count. Written
	 * like i_sync_tid, beside which it stands.
	 */
	tid_t				attr_tid;
	tid_t				logged_tid;	/* has logged */
	struct ext4_mtime_stamps	logged;		/* these, the latest; */
	struct ext4_mtime_behind	committing;	/* the one before, */
	struct ext4_mtime_behind	durable;	/* not newer than on disk */
};

/* Half of what it took before stamps were kept as distances. */
static_assert(sizeof(struct ext4_mtime_inode) <= 48);

/* What an fsync has to commit, and what is durable when it has. */
struct ext4_mtime_sync {
	unsigned int		policy;		/* 0: as stock ext4 would */
	tid_t			tid;
	tid_t			logged_tid;	/* the last that logged stamps; */
	bool			carry;		/* start a carried commit of it */
	bool			tracked;	/* stamps will be durable then, */
	bool			other_atime;	/* with an earlier atime */
	u8			reason;		/* enum ext4_mtime_reason */
	struct ext4_mtime_stamps stamps;
};

/*
 * Type of a handle that was started to log stamps and nothing else. The first
 * value that no handle of stock ext4 has.
 */
#define EXT4_HT_STAMPS		EXT4_HT_MAX

/* mtime_options.c */
int ext4_mtime_parse_interval(struct ext4_mtime_options *opts,
			      const struct fs_parameter *param);
int ext4_mtime_parse_mode(struct ext4_mtime_options *opts,
			  const struct fs_parameter *param);
void ext4_mtime_parse_off(struct ext4_mtime_options *opts);
int ext4_mtime_check_options(const struct ext4_sb_info *sbi,
			     const struct ext4_mtime_options *opts);
void ext4_mtime_apply_options(struct ext4_sb_info *sbi,
			      const struct ext4_mtime_options *opts);
void ext4_mtime_show_options(struct seq_file *seq,
			     const struct ext4_sb_info *sbi, char sep);
int ext4_mtime_init_sb(struct ext4_sb_info *sbi);
void ext4_mtime_destroy_sb(struct ext4_sb_info *sbi);
void ext4_mtime_enforce(struct ext4_sb_info *sbi);
ssize_t ext4_mtime_show_counter(void *counter, char *buf);

/* mtime_stamp.c */
int ext4_mtime_update(struct inode *inode, unsigned int policy, bool nowait);
void ext4_mtime_fallocate(struct file *file);

/* mtime_log.c */
int ext4_mtime_handle_type(struct inode *inode, int dirty_flags);
bool ext4_mtime_keeps_lazy(const struct inode *inode);
void ext4_mtime_update_fsync_trans(handle_t *handle, struct inode *inode);
void ext4_mtime_log_metadata(handle_t *handle, struct inode *inode);

/* mtime_group.c */
int ext4_mtime_write_and_wait(struct file *file, loff_t start, loff_t end);

/* mtime_durable.c */
void ext4_mtime_init_inode(struct ext4_inode_info *ei);

/* mtime_sync.c */
void ext4_mtime_begin_sync(struct inode *inode, bool datasync,
			   struct ext4_mtime_sync *sync);
int ext4_mtime_note_synced(struct inode *inode,
			   const struct ext4_mtime_sync *sync, int err);
int ext4_mtime_flush(struct super_block *sb);
void ext4_mtime_count_flush(struct super_block *sb);
int ext4_mtime_check_abort(struct super_block *sb);
int ext4_mtime_flush_for(struct inode *inode, bool datasync,
			 const struct ext4_mtime_sync *sync);

/**
 * ext4_mtime_end_sync - the chosen transaction has been committed
 * @inode: the file
 * @sync: the choice that ext4_mtime_begin_sync() made
 * @err: what the commit returned
 *
 * A fast commit does not move j_commit_sequence, so ext4_mtime_settle() would
 * not see it.
 *
 * Return: @err, or -EIO if the option is on and the journal has been aborted:
 * jbd2 takes a transaction that ended so for a committed one.
 */
static inline int ext4_mtime_end_sync(struct inode *inode,
				      const struct ext4_mtime_sync *sync,
				      int err)
{
	return likely(!sync->policy) ?
		err : ext4_mtime_note_synced(inode, sync, err);
}

#endif	/* _EXT4_MTIME_H */
