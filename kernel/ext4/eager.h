/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Eager syncing: what ext4 keeps of it and calls. The idea is in eager.c.
 */
#ifndef _EXT4_EAGER_H
#define _EXT4_EAGER_H

#include <linux/types.h>

#include "../jbd2/burst.h"

struct ext4_sb_info;
struct fs_parameter;
struct seq_file;
struct super_block;

/* In struct ext4_sb_info. */
struct ext4_eager_sb {
	unsigned int	pages;		/* the threshold; 0: the option is off */
};

/* In struct ext4_fs_context: what the options ask for. */
struct ext4_eager_options {
	bool		given;
	unsigned int	pages;
};

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

#endif	/* _EXT4_EAGER_H */
