// SPDX-License-Identifier: GPL-2.0
/*
 * Coarse-grained mtime update (mtime.h): mount options and counters.
 *
 * Idea
 * ----
 *
 * Options are parsed into struct ext4_mtime_options, which says what was asked
 * for and not what comes of it: what is not mentioned stays as it is in a
 * remount, and comes from the superblock's defaults in a mount. They are merged
 * into one word, and that becomes the policy once all that may fail has succeeded.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - A policy never has a mode without an interval: ext4_mtime_check_options()
 *   refuses what would merge into that, and the interval is refused if it is 0.
 * - The option may be switched on at any time. What the other rooms need from
 *   before is kept while it is off, too (attr_tid), and what they did not see is
 *   taken for unknown, which makes the next fsync commit.
 * - A mount or remount that fails leaves no trace, nor does a default that the
 *   mount's own options take back: what counts is the policy in the end.
 * - Flushes are counted before the first fsync leaves a commit out. The carrier
 *   is attached before the policy is seen, and never detached: an fsync that began
 *   under the old policy can use it.
 *
 * Lock order
 * ----------
 *
 * s_umount serializes all that writes here. Readers take no lock.
 */

#include <linux/fs_parser.h>
#include <linux/seq_file.h>
#include <linux/sysfs.h>

#include "ext4.h"
#include "mtime_internal.h"
#include "../jbd2/carrier.h"

/* Range and default are the paper's. The tick bounds what is of use below. */
#define EXT4_MTIME_MIN_MS	1
#define EXT4_MTIME_MAX_MS	1000
#define EXT4_MTIME_DEFAULT_MS	100

/**
 * ext4_mtime_parse_number - take an option that may have a number
 * @param: a flag, or a string with the number as typed
 * @min: the least that is valid
 * @max: the most
 * @number: changed only if there is a number, and it is valid
 *
 * Return: whether it is; a flag is.
 */
bool ext4_mtime_parse_number(const struct fs_parameter *param,
			     unsigned int min, unsigned int max,
			     unsigned int *number)
{
	unsigned int found;

	if (param->type != fs_value_is_string)
		return true;
	if (kstrtouint(param->string, 10, &found) || found < min || found > max)
		return false;
	*number = found;
	return true;
}

/**
 * ext4_mtime_parse_interval - take mtime_update or mtime_update=N
 * @opts: options seen so far, changed only if the interval is valid
 * @param: a flag, or a string with the interval in ms as typed
 *
 * Return: 0, or -EINVAL and a message.
 */
int ext4_mtime_parse_interval(struct ext4_mtime_options *opts,
			      const struct fs_parameter *param)
{
	unsigned int interval_ms = EXT4_MTIME_DEFAULT_MS;

	if (!ext4_mtime_parse_number(param, EXT4_MTIME_MIN_MS,
				     EXT4_MTIME_MAX_MS, &interval_ms)) {
		ext4_msg(NULL, KERN_ERR,
			 "mtime_update=%s: the interval must be a whole number of milliseconds from %d to %d",
			 param->string, EXT4_MTIME_MIN_MS, EXT4_MTIME_MAX_MS);
		return -EINVAL;
	}
	opts->interval_ms = interval_ms;
	opts->interval_given = true;
	return 0;
}

/**
 * ext4_mtime_parse_mode - take mtime_mode=truncate or mtime_mode=defer
 * @opts: options seen so far, changed only if the mode is valid
 * @param: a string with the mode as typed, or a flag, which is no mode
 *
 * Return: 0, or -EINVAL and a message.
 */
int ext4_mtime_parse_mode(struct ext4_mtime_options *opts,
			  const struct fs_parameter *param)
{
	static const char * const modes[] = { "truncate", "defer" };
	const char *arg = param->type == fs_value_is_string ?
		param->string : "";
	int mode = match_string(modes, ARRAY_SIZE(modes), arg);

	if (mode < 0) {
		ext4_msg(NULL, KERN_ERR,
			 "mtime_mode=%s: the mode must be truncate or defer",
			 arg);
		return -EINVAL;
	}
	opts->defer = mode;
	opts->mode_given = true;
	return 0;
}

/**
 * ext4_mtime_parse_off - take un_mtime_update
 * @opts: options seen so far; what they said of mtime is taken back
 */
void ext4_mtime_parse_off(struct ext4_mtime_options *opts)
{
	*opts = (struct ext4_mtime_options) { .reset = true };
}

static unsigned int ext4_mtime_merge(unsigned int policy,
				     const struct ext4_mtime_options *opts)
{
	if (opts->reset)
		policy = 0;
	if (opts->interval_given)
		policy = opts->interval_ms | (policy & EXT4_MTIME_DEFER);
	if (opts->mode_given) {
		policy &= ~EXT4_MTIME_DEFER;
		if (opts->defer)
			policy |= EXT4_MTIME_DEFER;
	}
	return policy;
}

/**
 * ext4_mtime_check_options - do the options go together?
 * @sbi: holds what was asked for before, by a mount or by the superblock's defaults
 * @opts: what is asked for now
 *
 * Return: 0, or -EINVAL and a message if a mode is given without mtime_update.
 */
int ext4_mtime_check_options(const struct ext4_sb_info *sbi,
			     const struct ext4_mtime_options *opts)
{
	unsigned int policy = ext4_mtime_merge(sbi->s_mtime.asked, opts);

	if (opts->mode_given && !(policy & EXT4_MTIME_INTERVAL_MS)) {
		ext4_msg(NULL, KERN_ERR,
			 "mtime_mode=%s: needs mtime_update or mtime_update=%d...%d",
			 opts->defer ? "defer" : "truncate",
			 EXT4_MTIME_MIN_MS, EXT4_MTIME_MAX_MS);
		return -EINVAL;
	}
	return 0;
}

/**
 * ext4_mtime_attach - count flushes from now on
 * @sbi: the file system; nothing is done if it has no journal
 */
void ext4_mtime_attach(struct ext4_sb_info *sbi)
{
	struct ext4_mtime_sb *ms = &sbi->s_mtime;

	if (sbi->s_journal && !ms->carrier)
		/* Pairs with ext4_mtime_carrier(). */
		smp_store_release(&ms->carrier,
				  jbd2_carrier_attach(sbi->s_journal));
}

/**
 * ext4_mtime_apply_options - note what is asked for
 * @sbi: the file system
 * @opts: checked; what they do not mention stays as it is
 */
void ext4_mtime_apply_options(struct ext4_sb_info *sbi,
			      const struct ext4_mtime_options *opts)
{
	sbi->s_mtime.asked = ext4_mtime_merge(sbi->s_mtime.asked, opts);
}

/**
 * ext4_mtime_enforce - put into force what is asked for
 * @sbi: the file system, its journal loaded, whose remount cannot fail any more
 *
 * The carrier is a part of the journal, so an fsync may use it at any time, also
 * after the option has been switched off.
 */
void ext4_mtime_enforce(struct ext4_sb_info *sbi)
{
	struct ext4_mtime_sb *ms = &sbi->s_mtime;

	if (ms->asked) {
		WRITE_ONCE(ms->was_on, true);
		ext4_mtime_attach(sbi);
	}
	/* Pairs with ext4_mtime_policy() in who then counts his flush. */
	smp_store_release(&ms->policy, ms->asked);
}

/**
 * ext4_mtime_show_options - print what is in force, if anything is
 * @seq: /proc/mounts or the options file
 * @sbi: the file system
 * @sep: what to print before each option
 */
void ext4_mtime_show_options(struct seq_file *seq,
			     const struct ext4_sb_info *sbi, char sep)
{
	unsigned int policy = READ_ONCE(sbi->s_mtime.policy);

	if (policy & EXT4_MTIME_INTERVAL_MS)
		seq_printf(seq, "%cmtime_update=%u%cmtime_mode=%s", sep,
			   policy & EXT4_MTIME_INTERVAL_MS, sep,
			   policy & EXT4_MTIME_DEFER ? "defer" : "truncate");
}

/**
 * ext4_mtime_init_sb - allocate the counters
 * @sbi: the file system
 *
 * Return: 0 or -ENOMEM; ext4_mtime_destroy_sb() is right after both.
 */
int ext4_mtime_init_sb(struct ext4_sb_info *sbi)
{
	struct ext4_mtime_sb *ms = &sbi->s_mtime;
	int err;

	ext4_mtime_init_group(&ms->group);
	err = percpu_counter_init(&ms->updates_done, 0, GFP_KERNEL);
	if (!err)
		err = percpu_counter_init(&ms->updates_skipped, 0, GFP_KERNEL);
	if (!err)
		err = percpu_counter_init(&ms->commits_avoided, 0, GFP_KERNEL);
	if (!err)
		err = percpu_counter_init(&ms->flushes_shared, 0, GFP_KERNEL);
	return err;
}

/**
 * ext4_mtime_destroy_sb - free the counters
 * @sbi: the file system
 */
void ext4_mtime_destroy_sb(struct ext4_sb_info *sbi)
{
	struct ext4_mtime_sb *ms = &sbi->s_mtime;

	percpu_counter_destroy(&ms->updates_done);
	percpu_counter_destroy(&ms->updates_skipped);
	percpu_counter_destroy(&ms->commits_avoided);
	percpu_counter_destroy(&ms->flushes_shared);
}

/**
 * ext4_mtime_show_counter - ->show() of a counter in /sys/fs/ext4/DEV
 * @counter: the percpu_counter
 * @buf: the page to print into
 *
 * Return: number of bytes printed.
 */
ssize_t ext4_mtime_show_counter(void *counter, char *buf)
{
	return sysfs_emit(buf, "%lld\n", percpu_counter_sum(counter));
}
