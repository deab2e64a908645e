// SPDX-License-Identifier: GPL-2.0
/*
 * Eager syncing: fsync of a small change is one burst and one flush.
 *
 * Idea
 * ----
 *
 * With the option on, a commit of the journal is one write and one flush, if
 * the transaction exposes nothing that is not in it (fs/jbd2/burst.c). Here is
 * what ext4 has to do for that: options, switching the journal over while it is
 * empty, and counters. ext4 marks a transaction wherever it logs something
 * that makes blocks outside of the log readable:
 *
 *   - ordered data: the inode's entry on the transaction's list (jbd2);
 *   - blocks of a regular file that are allocated as written, and unwritten ones
 *     that are converted: ext4_map_create_blocks();
 *   - zeroes written past the log: ext4_issue_zeroout(), inode tables;
 *   - a larger size of a regular file: ext4_do_update_inode();
 *   - blocks that move: ext4_swap_extents(), swap_inode_boot_loader(),
 *     ext4_ext_shift_path_extents();
 *   - fs-verity's flag, which vouches for a Merkle tree.
 *
 * fastsync's docs/eager.md goes through fs/ext4 and says of the rest why it needs none.
 *
 * A worked example, of a file of one page that grows by a second one:
 *
 *   write-back allocates an unwritten block in T5, and logs the larger size:
 *	T5 is marked, for the size.
 *   The page has been written; its extent is converted in T6: marked.
 *   fsync waits for T6, which has barriers: the page is durable before T6 is.
 *   chmod and fsync: T7 exposes nothing, and is a burst.
 *	Power fails at any time: T7 is replayed, or it is not.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - What is asked for (pages) and what is in force (jbd2_burst_on()) are two
 *   things: the second follows the first where nothing is in the way, at mount
 *   and at the end of a remount, after all that may fail.
 * - The journal changes over while its log is empty and nobody has a handle: at
 *   mount before anything is logged, at remount with updates locked. Until then it
 *   has barriers, whatever a remount asks for.
 * - A crash leaves a superblock that asks for asynchronous commits. Whatever the
 *   options say, it is written as it has to be before anything else is logged.
 *
 * Lock order
 * ----------
 *
 * s_umount, then jbd2_journal_lock_updates(), as for freezing.
 */

#include <linux/fs_parser.h>
#include <linux/seq_file.h>
#include <linux/sysfs.h>

#include "ext4.h"
#include "ext4_jbd2.h"
#include "mtime_internal.h"

#define EXT4_EAGER_MIN_PAGES		1
#define EXT4_EAGER_MAX_PAGES		1000
#define EXT4_EAGER_DEFAULT_PAGES	100

/**
 * ext4_eager_parse - take eager_sync or eager_sync=PAGES
 * @opts: options seen so far, changed only if the threshold is valid
 * @param: a flag, or a string with the threshold as typed
 *
 * Return: 0, or -EINVAL and a message.
 */
int ext4_eager_parse(struct ext4_eager_options *opts,
		     const struct fs_parameter *param)
{
	unsigned int pages = EXT4_EAGER_DEFAULT_PAGES;

	if (!ext4_mtime_parse_number(param, EXT4_EAGER_MIN_PAGES,
				     EXT4_EAGER_MAX_PAGES, &pages)) {
		ext4_msg(NULL, KERN_ERR,
			 "eager_sync=%s: the threshold must be a whole number of pages from %d to %d",
			 param->string, EXT4_EAGER_MIN_PAGES,
			 EXT4_EAGER_MAX_PAGES);
		return -EINVAL;
	}
	opts->pages = pages;
	if (param->type == fs_value_is_flag)
		opts->pages |= EXT4_EAGER_ADAPTS;
	opts->given = true;
	return 0;
}

/**
 * ext4_eager_parse_off - take un_eager_sync
 * @opts: options seen so far
 */
void ext4_eager_parse_off(struct ext4_eager_options *opts)
{
	*opts = (struct ext4_eager_options) { .given = true };
}

/**
 * ext4_eager_apply_options - note what is asked for
 * @sbi: the file system
 * @opts: what is asked for; if nothing is, it stays as it is
 */
void ext4_eager_apply_options(struct ext4_sb_info *sbi,
			      const struct ext4_eager_options *opts)
{
	if (opts->given)
		WRITE_ONCE(sbi->s_eager.pages, opts->pages);
}

/**
 * ext4_eager_show_options - print what is asked for, if anything is
 * @seq: /proc/mounts or the options file
 * @sbi: the file system
 * @sep: what to print before the option
 */
void ext4_eager_show_options(struct seq_file *seq,
			     const struct ext4_sb_info *sbi, char sep)
{
	unsigned int pages = READ_ONCE(sbi->s_eager.pages);

	if (pages & EXT4_EAGER_ADAPTS)
		seq_printf(seq, "%ceager_sync", sep);
	else if (pages)
		seq_printf(seq, "%ceager_sync=%u", sep, pages);
}

/* What is in the way, or NULL. */
static const char *ext4_eager_obstacle(struct super_block *sb)
{
	journal_t *journal = EXT4_SB(sb)->s_journal;

	if (!journal)
		return "no journal";
	if (is_journal_aborted(journal))
		return "aborted journal";
	if (journal->j_dev != journal->j_fs_dev)
		return "external journal";
	if (test_opt(sb, DATA_FLAGS) == EXT4_MOUNT_JOURNAL_DATA)
		return "data=journal";
	if (test_opt(sb, DATA_FLAGS) != EXT4_MOUNT_ORDERED_DATA)
		return "data=writeback";
	if (test_opt2(sb, JOURNAL_FAST_COMMIT) ||
	    jbd2_has_feature_fast_commit(journal))
		return "fast_commit";
	if (test_opt(sb, JOURNAL_ASYNC_COMMIT))
		return "journal_async_commit";
	if (!test_opt(sb, BARRIER))
		return "nobarrier";
	/* A page of a file with chattr +j is in the log as it is, and may change. */
	if (!test_opt(sb, DELALLOC))
		return "nodelalloc";
	/* Each handle has credits for revokes: not for an eighth of a transaction. */
	if (jbd2_burst_revoke_blocks(journal,
				     ext4_trans_default_revoke_credits(sb)) >
	    journal->j_total_len / 24)
		return "large clusters";
	return NULL;
}

/* Does the journal have to change over? */
static bool ext4_eager_differs(struct super_block *sb, bool *on)
{
	struct ext4_sb_info *sbi = EXT4_SB(sb);
	const char *obstacle = ext4_eager_obstacle(sb);

	*on = sbi->s_eager.pages && !obstacle;
	if (sbi->s_eager.pages && obstacle)
		ext4_msg(sb, KERN_WARNING,
			 "eager_sync is not in force: %s", obstacle);
	return sbi->s_journal && *on != jbd2_burst_on(sbi->s_journal);
}

/* Are commits without bursts of the features that bursts have left? */
static bool ext4_eager_has_same_sums(struct super_block *sb)
{
	return test_opt(sb, JOURNAL_ASYNC_COMMIT) &&
		!ext4_has_feature_metadata_csum(sb);
}

/*
 * Empty the log, so that its features can change. If it is mounted without barriers, jbd2
 * does not make that durable: a crash might replay a part of it, over what is in place by
 * now.
 */
static int ext4_eager_empty(struct super_block *sb)
{
	journal_t *journal = EXT4_SB(sb)->s_journal;
	int err = jbd2_journal_flush(journal, 0);

	if (err || (journal->j_flags & JBD2_BARRIER))
		return err;
	err = blkdev_issue_flush(sb->s_bdev);
	if (err)
		jbd2_journal_abort(journal, err);
	return err;
}

/**
 * ext4_eager_load - a journal has been loaded, nothing has been logged yet
 * @sb: the file system, being mounted
 *
 * Its superblock is written if it points to a log, which is empty but written
 * under other features than those that the journal has by now.
 *
 * Return: 0 or an error, after which the journal has aborted.
 */
int ext4_eager_load(struct super_block *sb)
{
	struct ext4_sb_info *sbi = EXT4_SB(sb);
	journal_t *journal = sbi->s_journal;
	int err = 0;
	bool on;

	if (!ext4_eager_differs(sb, &on) &&
	    (!jbd2_burst_left(journal) || ext4_eager_has_same_sums(sb)))
		return 0;
	if (!(journal->j_flags & JBD2_FLUSHED))
		err = ext4_eager_empty(sb);
	if (!err && on)
		err = ext4_eager_start(sb);
	if (!err && on) {
		ext4_mtime_attach(sbi);
		err = jbd2_burst_switch(journal, on);
	}
	if (err)
		ext4_msg(sb, KERN_ERR,
			 "the journal's features could not be changed: %d",
			 err);
	return err;
}

/* There are no bursts any more, and nothing that they have promised is in the log alone. */
static void ext4_eager_drop_barriers(journal_t *journal)
{
	write_lock(&journal->j_state_lock);
	journal->j_flags &= ~JBD2_BARRIER;
	write_unlock(&journal->j_state_lock);
}

/**
 * ext4_eager_remount - put into force what is asked for
 * @sb: the file system, whose remount cannot fail any more
 *
 * If this fails the journal has been aborted; or there was no memory, and commits
 * are as they were.
 */
void ext4_eager_remount(struct super_block *sb)
{
	struct ext4_sb_info *sbi = EXT4_SB(sb);
	journal_t *journal = sbi->s_journal;
	int err;
	bool on;

	if (!ext4_eager_differs(sb, &on))
		return;
	err = on ? ext4_eager_start(sb) : 0;
	jbd2_journal_lock_updates(journal);
	if (!err)
		err = ext4_eager_empty(sb);
	if (!err) {
		if (on)
			ext4_mtime_attach(sbi);
		err = jbd2_burst_switch(journal, on);
	}
	if (!err && !test_opt(sb, BARRIER))
		ext4_eager_drop_barriers(journal);
	jbd2_journal_unlock_updates(journal);
	if (!on)
		ext4_eager_free_spare(&sbi->s_eager);
	if (err)
		ext4_msg(sb, KERN_ERR,
			 "the journal's features could not be changed: %d",
			 err);
}

/* Counters, one a reason. Returns the number of bytes printed. */
static ssize_t ext4_eager_show_reasons(char *buf, ssize_t at, const char *what,
				       const char * const *reasons,
				       const atomic64_t *counts, int nr)
{
	ssize_t len = 0;
	int i;

	for (i = 0; i < nr; i++)
		len += sysfs_emit_at(buf, at + len, "%s_%s %lld\n", what,
				     reasons[i], atomic64_read(&counts[i]));
	return len;
}

/* How often the log was settled, and why. Returns the number of bytes printed. */
static ssize_t ext4_eager_show_settling(struct ext4_eager_counts *counts,
					char *buf, ssize_t at)
{
	static const char * const reasons[EXT4_EAGER_SETTLE_WHYS] = {
		[EXT4_EAGER_AGED] = "aged",
		[EXT4_EAGER_FILLING] = "filling",
		[EXT4_EAGER_EMPTIED] = "emptied",
		[EXT4_EAGER_SYNCED] = "synced",
		[EXT4_EAGER_PAST_CACHE] = "past_cache",
		[EXT4_EAGER_KEPT] = "kept",
		[EXT4_EAGER_SYNC_FS] = "sync_fs",
		[EXT4_EAGER_LOST] = "lost",
	};
	ssize_t len;
	s64 all = 0;
	int i;

	for (i = 0; i < EXT4_EAGER_SETTLE_WHYS; i++)
		all += atomic64_read(&counts->settlings[i]);
	len = sysfs_emit_at(buf, at, "settlings %lld\n", all);
	len += ext4_eager_show_reasons(buf, at + len, "settlings", reasons,
				       counts->settlings,
				       EXT4_EAGER_SETTLE_WHYS);
	return len + sysfs_emit_at(buf, at + len,
				   "settle_max_us %lld\nsettle_waits %lld\nsettle_waits_us %lld\n",
				   atomic64_read(&counts->settle_max_us),
				   atomic64_read(&counts->waits),
				   atomic64_read(&counts->waits_us));
}

/* What has become of files' data. Returns the number of bytes printed. */
static ssize_t ext4_eager_show_data(struct ext4_eager_sb *eager, char *buf,
				    ssize_t at)
{
	static const char * const reasons[EXT4_EAGER_IN_PLACE] = {
		[EXT4_EAGER_LARGE] = "large",
		[EXT4_EAGER_NO_NEW] = "no_new_blocks",
		[EXT4_EAGER_MAPPED] = "mapped",
		[EXT4_EAGER_HELD] = "held",
		[EXT4_EAGER_FULL] = "full",
		[EXT4_EAGER_FAILED] = "failed",
	};
	struct ext4_eager_counts *counts = &eager->counts;
	ssize_t len;

	len = sysfs_emit_at(buf, at,
			    "data_syncs %lld\ndata_blocks %lld\nblocks_ahead %lld\nunsettled_blocks %d\nrevokes %lld\n",
			    atomic64_read(&counts->syncs),
			    atomic64_read(&counts->blocks),
			    atomic64_read(&counts->ahead),
			    atomic_read(&eager->nr_logged),
			    atomic64_read(&counts->revokes));
	len += ext4_eager_show_settling(counts, buf, at + len);
	return len + ext4_eager_show_reasons(buf, at + len, "in_place", reasons,
					     counts->in_place,
					     EXT4_EAGER_IN_PLACE);
}

/**
 * ext4_eager_show_stats - ->show() of eager_stats in /sys/fs/ext4/DEV
 * @sbi: the file system
 * @buf: the page to print into
 *
 * Return: number of bytes printed.
 */
ssize_t ext4_eager_show_stats(struct ext4_sb_info *sbi, char *buf)
{
	static const char * const reasons[JBD2_BURST_REASONS] = {
		[JBD2_BURST_ORDERED] = "ordered",
		[JBD2_BURST_ALLOCATED] = "allocated",
		[JBD2_BURST_CONVERTED] = "converted",
		[JBD2_BURST_ZEROED] = "zeroed",
		[JBD2_BURST_GROWN] = "grown",
		[JBD2_BURST_MOVED] = "moved",
		[JBD2_BURST_VERITY] = "verity",
		[JBD2_BURST_NUMBER_0] = "number_0",
	};
	struct super_block *sb = sbi->s_sb;
	const char *obstacle = ext4_eager_obstacle(sb);
	struct jbd2_burst_stats stats = {};
	ssize_t len;
	int i;

	if (sbi->s_journal)
		jbd2_burst_stats(sbi->s_journal, &stats);
	if (!READ_ONCE(sbi->s_eager.pages))
		len = sysfs_emit(buf, "in_force no: off\n");
	else if (sbi->s_journal && jbd2_burst_on(sbi->s_journal) &&
		 !is_journal_aborted(sbi->s_journal))
		len = sysfs_emit(buf, "in_force yes\n");
	else
		len = sysfs_emit(buf, "in_force no: %s\n",
				 obstacle ?: "switching failed");
	len += sysfs_emit_at(buf, len,
			     "bursts %llu\nburst_blocks %llu\nburst_bytes %llu\nflushes_saved %llu\ncovered %llu\njoined %llu\njoin_waits_us %llu\ncut %llu\nbarriers %llu\n",
			     stats.bursts, stats.blocks,
			     stats.blocks << sb->s_blocksize_bits, stats.bursts,
			     stats.covered, stats.joined,
			     div_u64(stats.join_ns, NSEC_PER_USEC), stats.cut,
			     stats.barriers);
	for (i = 0; i < JBD2_BURST_REASONS; i++)
		len += sysfs_emit_at(buf, len, "barriers_%s %llu\n", reasons[i],
				     stats.by_reason[i]);
	if (sbi->s_journal && jbd2_burst_on(sbi->s_journal))
		len += sysfs_emit_at(buf, len, "worth_blocks %u\n",
				     ext4_eager_worth(sb));
	return len + ext4_eager_show_data(&sbi->s_eager, buf, len);
}
