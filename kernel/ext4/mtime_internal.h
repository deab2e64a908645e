/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Coarse-grained mtime update: what its rooms (mtime.h) ask of each other.
 */
#ifndef _EXT4_MTIME_INTERNAL_H
#define _EXT4_MTIME_INTERNAL_H

#include "ext4.h"

/* What an fsync has left a commit out for, or what it waits for one for. */
enum ext4_mtime_reason {
	EXT4_MTIME_UNCHANGED,	/* the stamps that are durable are the file's */
	EXT4_MTIME_ATIME,	/* atime alone is not, and may wait */
	EXT4_MTIME_YOUNG,	/* those that are durable are young enough */
	EXT4_MTIME_OLD,		/* the file's stamps have to be committed */
	EXT4_MTIME_UNDER_WAY,	/* those being committed will be young enough */
	EXT4_MTIME_CHANGE,	/* more than stamps has changed */
};

/**
 * ext4_mtime_policy - what is in force
 * @sb: the file system
 *
 * Return: 0 for stock behaviour, else the interval in ms and EXT4_MTIME_DEFER.
 */
static inline unsigned int ext4_mtime_policy(struct super_block *sb)
{
	/* Pairs with ext4_mtime_enforce(): who sees it sees the carrier. */
	return smp_load_acquire(&EXT4_SB(sb)->s_mtime.policy);
}

static inline bool ext4_mtime_journal_aborted(const struct inode *inode)
{
	journal_t *journal = EXT4_SB(inode->i_sb)->s_journal;

	return journal && READ_ONCE(journal->j_flags) & JBD2_ABORT;
}

/* Counts the flushes of a file system. NULL if the option was never on. */
static inline struct jbd2_carrier *ext4_mtime_carrier(struct super_block *sb)
{
	/* Pairs with ext4_mtime_attach(). */
	return smp_load_acquire(&EXT4_SB(sb)->s_mtime.carrier);
}

/* Does an fsync wait for others, to share a flush with them (mtime_group.c)? */
static inline bool ext4_mtime_is_grouped(struct super_block *sb,
					 unsigned int policy)
{
	return policy && ext4_mtime_carrier(sb) && bdev_write_cache(sb->s_bdev);
}

/**
 * ext4_mtime_committed - has a transaction ended?
 * @inode: of a journalled file system
 * @tid: that an inode has noted
 *
 * One runs, one commits, and all others have ended. tid_geq() takes one of 2^31
 * transactions ago for one that is yet to come, and so does jbd2: it waits for
 * none, and tells fsync that it need not flush. Such tids are met where a file
 * has had its stamps alone changed for so long.
 */
static inline bool ext4_mtime_committed(const struct inode *inode, tid_t tid)
{
	journal_t *journal = EXT4_SB(inode->i_sb)->s_journal;

	/* The tid was read first: it is not of a transaction begun since. */
	smp_rmb();
	return tid - READ_ONCE(journal->j_commit_sequence) - 1 >= 2;
}

/* mtime_options.c; for options of others, too */
bool ext4_mtime_parse_number(const struct fs_parameter *param,
			     unsigned int min, unsigned int max,
			     unsigned int *number);
void ext4_mtime_attach(struct ext4_sb_info *sbi);

/* mtime_group.c */
void ext4_mtime_init_group(struct ext4_mtime_group *group);
int ext4_mtime_group_flush(struct super_block *sb, bool aborts);

/* Of an inode of which no stamps have been noted: ext4's timestamps begin in 1901. */
#define EXT4_MTIME_NEVER	S64_MIN

/* Have stamps been noted since the inode was read? */
static inline bool ext4_mtime_on_record(const struct ext4_mtime_inode *mi)
{
	return mi->logged.mtime_ns != EXT4_MTIME_NEVER;
}

/* Are stamps that are logged to be noted? */
static inline bool ext4_mtime_takes_note(struct inode *inode)
{
	return ext4_mtime_on_record(&EXT4_I(inode)->i_mtime_info) ||
		ext4_mtime_policy(inode->i_sb);
}

/* mtime_durable.c; all with i_raw_lock held */
bool ext4_mtime_known(const struct ext4_mtime_behind *behind);
bool ext4_mtime_younger(const struct ext4_mtime_inode *mi,
			const struct ext4_mtime_behind *behind,
			s64 now_ns, s64 age_ns);
struct ext4_mtime_stamps
ext4_mtime_stamps_of(const struct ext4_mtime_stamps *logged,
		     const struct ext4_mtime_behind *behind);
void ext4_mtime_note_logged(handle_t *handle, struct inode *inode,
			    const struct ext4_inode *raw_inode);
bool ext4_mtime_is_logged(const struct ext4_mtime_inode *mi, s64 mtime_ns,
			  s64 ctime_ns);
void ext4_mtime_note_durable(struct ext4_mtime_inode *mi,
			     const struct ext4_mtime_sync *sync);
void ext4_mtime_settle(struct inode *inode, struct ext4_mtime_inode *mi);

#endif	/* _EXT4_MTIME_INTERNAL_H */
