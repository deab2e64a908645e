/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Coarse-grained mtime update: what the rest of ext4 embeds and calls. The
 * idea, the modes and their invariants are in mtime.c.
 */
#ifndef _EXT4_MTIME_H
#define _EXT4_MTIME_H

#include <linux/jbd2.h>
#include <linux/percpu_counter.h>
#include <linux/types.h>

struct ext4_inode;
struct ext4_inode_info;
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

/* In struct ext4_sb_info. */
struct ext4_mtime_sb {
	unsigned int		policy;
	struct jbd2_carrier	*carrier;	/* of the journal, or NULL */
	struct percpu_counter	updates_done;	/* stamps changed by a write */
	struct percpu_counter	updates_skipped; /* stamps left by a write */
	struct percpu_counter	commits_avoided; /* fsyncs that saved a commit */
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

/* Stamps as a transaction has logged them; mtime_ns is never if none has. */
struct ext4_mtime_logged {
	tid_t				tid;
	struct ext4_mtime_stamps	stamps;
};

/* In struct ext4_inode_info; all but the first and the last by i_raw_lock. */
struct ext4_mtime_inode {
	/*
	 * Transaction to commit for fsync(2) if stamps did not count. Written
	 * like i_sync_tid, beside which it stands.
	 */
	tid_t				attr_tid;
	struct ext4_mtime_logged	logged;		/* by the latest one */
	struct ext4_mtime_logged	committing;	/* by the one before */
	struct ext4_mtime_stamps	durable;	/* not newer than on disk */
	bool				skipped;	/* since the last fsync */
};

/* What an fsync has to commit, and what is durable when it has. */
struct ext4_mtime_sync {
	unsigned int		policy;		/* 0: as stock ext4 would */
	tid_t			tid;
	tid_t			carried_tid;	/* to start a carried commit of */
	bool			carry;
	bool			tracked;	/* stamps will be durable then */
	struct ext4_mtime_stamps stamps;
};

/*
 * Type of a handle that was started to log stamps and nothing else. The first
 * value that no handle of stock ext4 has.
 */
#define EXT4_HT_STAMPS		EXT4_HT_MAX

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
void ext4_mtime_attach_carrier(struct ext4_sb_info *sbi);
ssize_t ext4_mtime_show_counter(void *counter, char *buf);
void ext4_mtime_init_inode(struct ext4_inode_info *ei);
unsigned int ext4_mtime_policy(const struct inode *inode);

int ext4_mtime_update(struct inode *inode, unsigned int policy, bool nowait);
void ext4_mtime_fallocate(struct file *file);

int ext4_mtime_handle_type(struct inode *inode, int dirty_flags);
bool ext4_mtime_begin_fill(handle_t *handle, struct inode *inode,
			   const struct ext4_inode *raw_inode,
			   struct ext4_inode *before);
bool ext4_mtime_end_fill(handle_t *handle, struct inode *inode,
			 const struct ext4_inode *raw_inode,
			 struct ext4_inode *before, bool stamps_only);
void ext4_mtime_update_fsync_trans(handle_t *handle, struct inode *inode);
void ext4_mtime_log_metadata(handle_t *handle, struct inode *inode);

void ext4_mtime_begin_sync(struct inode *inode, bool datasync,
			   struct ext4_mtime_sync *sync);
int ext4_mtime_end_sync(struct inode *inode,
			const struct ext4_mtime_sync *sync, int err);
int ext4_mtime_flush(struct super_block *sb);
int ext4_mtime_flush_for(struct inode *inode, bool datasync);

#endif	/* _EXT4_MTIME_H */
