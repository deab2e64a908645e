// SPDX-License-Identifier: GPL-2.0
/*
 * Coarse-grained mtime update (mtime.h): fsyncs that come together share a flush.
 *
 * Idea
 * ----
 *
 * An fsync that needs no commit writes its data, and flushes the device. Several
 * that do so at once get in each other's way: while the device flushes for one, the
 * writes of the others wait; and when it is done, the next flush is sent before
 * those writes have ended, and covers none of them. In stock ext4 an fsync commits,
 * and all that wait for a commit have one flush and one FUA write together.
 *
 * So they take turns. One leads: he waits until those that are writing have
 * written, for a while, then flushes for all that wait. Who comes while he flushes
 * waits for the next turn, which the first of them leads.
 *
 * A worked example; A, B and C overwrite files of their own and fsync, all the time:
 *
 *   A has written, B and C are writing: A leads, and waits for them.
 *   B, then C have written: nobody is writing any more. A flushes.
 *   The flush ends: A, B and C return. One flush has served three.
 *	Power fails before it ends: none of them has returned.
 *   C writes 100 MiB. A has written, leads, and waits for half the time that a flush
 *   takes. C has lost its turn: A flushes, and B will not wait for C.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - A flush is submitted after all that it serves have written: they are on the
 *   list, under the lock, before the leader takes that.
 * - Who waits learns of each flush that has failed since he wrote, and may have
 *   dropped his data: he notes how many have failed before he waits, and the leader
 *   looks again when his flush has ended.
 * - There is a leader as long as somebody waits: who finds none leads, and a leader
 *   leaves his place to the first who waits.
 * - Nobody is waited for twice. A turn ends when its leader has waited in vain: then
 *   those that are writing are of an older turn, and are not counted.
 * - A leader waits for half the time of a flush at most: on a device that does one thing
 *   at a time less than somebody else's flush would have kept him. Flushes that were
 *   slow for once are forgotten quickly, and there is a most.
 * - Nobody waits for what limits the leader's cgroup: the flush is everybody's, and
 *   is charged to the root.
 *
 * Without a volatile cache, or without the option, everybody flushes for himself, as
 * on stock.
 *
 * Lock order
 * ----------
 *
 * The group's lock is innermost. A leader waits without it, for nobody for ever.
 */

#include <linux/blkdev.h>
#include <linux/completion.h>

#include "../jbd2/carrier.h"
#include "../jbd2/patience.h"
#include "ext4.h"
#include "mtime_internal.h"

/* So that nobody takes a task that waits for a slow device for one that hangs. */
#define EXT4_MTIME_LOOK_UP	(60 * HZ)

/* An fsync that waits for a flush; on its task's stack. */
struct ext4_mtime_member {
	struct list_head	list;
	struct completion	woken;
	u64			failed;		/* flushes, when he had written */
	bool			aborts;
	bool			leads;		/* or a flush has served him */
	int			err;
};

/**
 * ext4_mtime_init_group - before a file system is mounted
 * @group: to be initialized
 */
void ext4_mtime_init_group(struct ext4_mtime_group *group)
{
	spin_lock_init(&group->lock);
	INIT_LIST_HEAD(&group->members);
	init_waitqueue_head(&group->wait);
}

/* Somebody begins to write. Returns the turn. */
static u64 ext4_mtime_begin_write(struct ext4_mtime_group *group)
{
	u64 turn;

	spin_lock(&group->lock);
	turn = group->turn;
	group->writing++;
	spin_unlock(&group->lock);
	return turn;
}

static void ext4_mtime_end_write(struct ext4_mtime_group *group, u64 turn)
{
	bool last;

	spin_lock(&group->lock);
	last = group->turn == turn && !--group->writing;
	spin_unlock(&group->lock);
	if (last && wq_has_sleeper(&group->wait))
		wake_up(&group->wait);
}

/**
 * ext4_mtime_write_and_wait - have data of a file written for an fsync
 * @file: the file
 * @start: the first byte
 * @end: the last
 *
 * Return: what file_write_and_wait_range() does.
 */
int ext4_mtime_write_and_wait(struct file *file, loff_t start, loff_t end)
{
	struct super_block *sb = file->f_mapping->host->i_sb;
	struct ext4_mtime_group *group = &EXT4_SB(sb)->s_mtime.group;
	u64 turn;
	int err;

	if (!ext4_mtime_is_grouped(sb, ext4_mtime_policy(sb)))
		return file_write_and_wait_range(file, start, end);
	turn = ext4_mtime_begin_write(group);
	err = file_write_and_wait_range(file, start, end);
	ext4_mtime_end_write(group, turn);
	return err;
}

/* The leader waits for those who are writing, or gives them up. */
static void ext4_mtime_wait_for_writers(struct ext4_mtime_group *group)
{
	ktime_t until;

	if (!READ_ONCE(group->writing))
		return;
	until = ktime_add_ns(ktime_get(), jbd2_patience_ns(group->flush_ns));
	if (jbd2_wait_event_until(group->wait, !READ_ONCE(group->writing), until))
		return;
	spin_lock(&group->lock);
	if (group->writing) {
		group->writing = 0;
		group->turn++;
	}
	spin_unlock(&group->lock);
}

/* A moving average of what flushes take, which falls quickly. */
static void ext4_mtime_note_flush(struct ext4_mtime_group *group, s64 ns)
{
	int weight = ns < group->flush_ns ? 2 : 8;

	group->flush_ns += group->flush_ns ?
		div_s64(ns - group->flush_ns, weight) : ns;
}

/* Flush for all of these. */
static int ext4_mtime_flush_members(struct super_block *sb,
				    struct list_head *members)
{
	struct jbd2_carrier *carrier = ext4_mtime_carrier(sb);
	struct ext4_mtime_member *member;
	struct jbd2_flush flush;
	bool aborts = false;
	ktime_t since;
	int err;

	list_for_each_entry(member, members, list)
		aborts |= member->aborts;
	jbd2_carrier_begin_flush(carrier, &flush);
	since = ktime_get();
	err = jbd2_carrier_issue_flush(sb->s_bdev);
	ext4_mtime_note_flush(&EXT4_SB(sb)->s_mtime.group,
			      ktime_to_ns(ktime_sub(ktime_get(), since)));
	return jbd2_carrier_end_flush(carrier, &flush, err, aborts);
}

/* A leader has flushed for the members. Who leads the next turn? */
static void ext4_mtime_end_turn(struct super_block *sb,
				struct ext4_mtime_member *leader,
				struct list_head *members, int err)
{
	struct ext4_mtime_group *group = &EXT4_SB(sb)->s_mtime.group;
	struct jbd2_carrier *carrier = ext4_mtime_carrier(sb);
	struct ext4_mtime_member *member, *next;

	list_for_each_entry_safe(member, next, members, list) {
		list_del(&member->list);
		member->err = err;
		if (!err && jbd2_carrier_lost(carrier, member->failed))
			member->err = -EIO;
		/* He may return then, and his stack go. */
		if (member != leader)
			complete(&member->woken);
	}
	spin_lock(&group->lock);
	next = list_first_entry_or_null(&group->members,
					struct ext4_mtime_member, list);
	group->is_led = next;
	spin_unlock(&group->lock);
	if (next) {
		next->leads = true;
		complete(&next->woken);
	}
}

/**
 * ext4_mtime_group_flush - flush the device, perhaps together with others
 * @sb: the file system, whose flushes are counted
 * @aborts: the caller aborts the journal if that fails
 *
 * Return: 0; -EIO if another flush has failed meanwhile; or the error of the flush.
 */
int ext4_mtime_group_flush(struct super_block *sb, bool aborts)
{
	struct ext4_mtime_sb *ms = &EXT4_SB(sb)->s_mtime;
	struct ext4_mtime_group *group = &ms->group;
	struct ext4_mtime_member self = { .aborts = aborts };
	LIST_HEAD(members);
	int err;

	init_completion(&self.woken);
	self.failed = jbd2_carrier_failed(ext4_mtime_carrier(sb));
	spin_lock(&group->lock);
	list_add_tail(&self.list, &group->members);
	self.leads = !group->is_led;
	group->is_led = true;
	spin_unlock(&group->lock);
	if (!self.leads) {
		while (!wait_for_completion_io_timeout(&self.woken,
						       EXT4_MTIME_LOOK_UP))
			;
		if (!self.leads) {
			percpu_counter_inc(&ms->flushes_shared);
			return self.err;
		}
	}
	ext4_mtime_wait_for_writers(group);
	spin_lock(&group->lock);
	list_splice_init(&group->members, &members);
	spin_unlock(&group->lock);
	err = ext4_mtime_flush_members(sb, &members);
	ext4_mtime_end_turn(sb, &self, &members, err);
	return self.err;
}
