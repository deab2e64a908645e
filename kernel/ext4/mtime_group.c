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
 * written, for a while, then flushes for all that wait. Who comes while the device
 * flushes waits for the next turn, which the first of them leads.
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
 *   list, under the lock, before who sends it takes that.
 * - Who waits learns of each flush that has failed since he came here, and may have
 *   dropped his data: he notes how many have failed before he waits, and asks
 *   jbd2_carrier_rely() when he has been served. If one has failed after he wrote and
 *   before he came here, he learns of it only if it aborts the journal. Otherwise, as
 *   on stock, only who was here does.
 * - There is a leader, or a flush under way, as long as somebody waits: who finds
 *   neither leads, and when a flush ends the first who waits does.
 * - Nobody waits long for a task that does not run, for want of processor time or
 *   because others go first. A turn ends in the interrupt that ends its flush. Whoever
 *   waits looks up when a leader should have begun his, and if he has not, does it
 *   himself. What is left is the moment in which a task sends the flush.
 * - Nobody is waited for twice. A turn ends when its leader has waited in vain, or
 *   has been overtaken: then those that are writing are of an older turn, and are not
 *   counted.
 * - A leader waits for half the time of a flush at most: on a device that does one thing
 *   at a time less than somebody else's flush would have kept him. Flushes that were
 *   slow for once are forgotten quickly, and 20 ms is the most.
 * - No limit of the leader's cgroup holds the flush up: it is everybody's, and is
 *   charged to the root.
 * - Whoever is served sees that with the lock held. So he returns, and his stack
 *   goes, only when the interrupt is done with him and with all for whom he has sent
 *   a flush.
 *
 * Without a volatile cache, or without the option, everybody flushes for himself, as
 * on stock.
 *
 * Lock order
 * ----------
 *
 * The group's lock is innermost, and taken in interrupts. A leader waits without it, for
 * nobody for ever.
 */

#include <linux/blkdev.h>
#include <linux/completion.h>

#include "../jbd2/carrier.h"
#include "../jbd2/patience.h"
#include "ext4.h"
#include "mtime_internal.h"

/* An fsync that waits for a flush; on its task's stack. By the group's lock. */
struct ext4_mtime_member {
	struct list_head	list;
	struct completion	woken;		/* to lead, or served */
	struct jbd2_flush	flush;		/* the one that is for him */
	bool			aborts;
	bool			sent;		/* it is under way, ... */
	bool			served;		/* ... and has ended, ... */
	int			err;		/* ... with this */
};

/* A turn; on the stack of who sends its flush. */
struct ext4_mtime_turn {
	struct jbd2_sent_flush	sent;
	struct ext4_mtime_group	*group;
	struct list_head	members;
	ktime_t			since;
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

	spin_lock_irq(&group->lock);
	turn = group->turn;
	group->writing++;
	spin_unlock_irq(&group->lock);
	return turn;
}

static void ext4_mtime_end_write(struct ext4_mtime_group *group, u64 turn)
{
	bool last;

	spin_lock_irq(&group->lock);
	last = group->turn == turn && !--group->writing;
	spin_unlock_irq(&group->lock);
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

/* Wait no longer for those who are writing now. */
static void ext4_mtime_give_up(struct ext4_mtime_group *group)
{
	lockdep_assert_held(&group->lock);
	group->writing = 0;
	group->turn++;
}

/* The leader waits for those who are writing, or gives them up, or is relieved. */
static void ext4_mtime_wait_for_writers(struct ext4_mtime_group *group,
					struct ext4_mtime_member *self)
{
	ktime_t until;

	if (!READ_ONCE(group->writing))
		return;
	until = ktime_add_ns(ktime_get(),
			     jbd2_patience_ns(READ_ONCE(group->flush_ns)));
	if (jbd2_wait_event_until(group->wait, !READ_ONCE(group->writing) ||
				  READ_ONCE(self->sent), until))
		return;
	spin_lock_irq(&group->lock);
	/* The next leader may be waiting for these by now. */
	if (group->leader == self)
		ext4_mtime_give_up(group);
	spin_unlock_irq(&group->lock);
}

/* A moving average of what flushes take, which falls quickly. */
static void ext4_mtime_note_flush(struct ext4_mtime_group *group, s64 ns)
{
	int weight = ns < group->flush_ns ? 2 : 8;

	lockdep_assert_held(&group->lock);
	WRITE_ONCE(group->flush_ns, group->flush_ns +
		   (group->flush_ns ? div_s64(ns - group->flush_ns, weight) : ns));
}

/* For how long a leader may be waited for, in jiffies: patience, and to be woken. */
static unsigned long ext4_mtime_lead_time(struct ext4_mtime_group *group)
{
	return nsecs_to_jiffies(jbd2_patience_ns(READ_ONCE(group->flush_ns))) + 2;
}

static void ext4_mtime_appoint(struct ext4_mtime_group *group,
			       struct ext4_mtime_member *leader)
{
	lockdep_assert_held(&group->lock);
	group->leader = leader;
	group->overdue = jiffies + ext4_mtime_lead_time(group);
}

/* Wait for a flush to begin. Whether it is up to this member. */
static bool ext4_mtime_join(struct ext4_mtime_group *group,
			    struct ext4_mtime_member *self)
{
	bool leads;

	spin_lock_irq(&group->lock);
	list_add_tail(&self->list, &group->members);
	leads = !group->leader && !group->flushing;
	if (leads)
		ext4_mtime_appoint(group, self);
	spin_unlock_irq(&group->lock);
	return leads;
}

/* Begin the turn of all that wait, if it is up to this member, or overdue. */
static bool ext4_mtime_begin_turn(struct ext4_mtime_group *group,
				  struct ext4_mtime_member *self,
				  struct ext4_mtime_turn *turn)
{
	struct ext4_mtime_member *member;
	bool begins;

	spin_lock_irq(&group->lock);
	begins = !self->sent && !group->flushing &&
		(group->leader == self || time_after(jiffies, group->overdue));
	if (begins) {
		list_splice_init(&group->members, &turn->members);
		list_for_each_entry(member, &turn->members, list) {
			WRITE_ONCE(member->sent, true);
			turn->sent.aborts |= member->aborts;
		}
		if (group->leader != self)
			ext4_mtime_give_up(group);
		group->leader = NULL;
		group->flushing = true;
	}
	spin_unlock_irq(&group->lock);
	/* Another may have been about to. */
	if (begins && wq_has_sleeper(&group->wait))
		wake_up_all(&group->wait);
	return begins;
}

/* The flush has ended. Context: interrupt. */
static void ext4_mtime_end_turn(struct jbd2_sent_flush *sent)
{
	struct ext4_mtime_turn *turn =
		container_of(sent, struct ext4_mtime_turn, sent);
	struct ext4_mtime_group *group = turn->group;
	struct ext4_mtime_member *member;
	unsigned long flags;

	spin_lock_irqsave(&group->lock, flags);
	ext4_mtime_note_flush(group, ktime_to_ns(ktime_sub(ktime_get(),
							   turn->since)));
	list_for_each_entry(member, &turn->members, list) {
		member->flush.number = sent->flush.number;
		member->err = sent->err;
		member->served = true;
		complete(&member->woken);
	}
	group->flushing = false;
	member = list_first_entry_or_null(&group->members,
					  struct ext4_mtime_member, list);
	ext4_mtime_appoint(group, member);
	if (member)
		complete(&member->woken);
	spin_unlock_irqrestore(&group->lock, flags);
}

static void ext4_mtime_send_flush(struct super_block *sb,
				  struct ext4_mtime_turn *turn)
{
	turn->since = ktime_get();
	jbd2_carrier_send_flush(ext4_mtime_carrier(sb), sb->s_bdev,
				&turn->sent);
}

/* Sleep until served, or to be the leader (@leads), or for as long as one may take. */
static bool ext4_mtime_is_served(struct ext4_mtime_group *group,
				 struct ext4_mtime_member *self, bool *leads)
{
	unsigned long left;
	bool served;

	left = wait_for_completion_io_timeout(&self->woken,
					      READ_ONCE(self->sent) ?
					      JBD2_FLUSH_LOOK_UP :
					      ext4_mtime_lead_time(group));
	spin_lock_irq(&group->lock);
	served = self->served;
	*leads = left && group->leader == self;
	spin_unlock_irq(&group->lock);
	return served;
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
	struct jbd2_carrier *carrier = ext4_mtime_carrier(sb);
	struct ext4_mtime_group *group = &ms->group;
	struct ext4_mtime_member self = { .aborts = aborts };
	struct ext4_mtime_turn turn = {
		.sent.ended = ext4_mtime_end_turn,
		.group = group,
		.members = LIST_HEAD_INIT(turn.members),
	};
	bool leads, shares = true;

	init_completion(&self.woken);
	self.flush.failed_before = jbd2_carrier_failed(carrier);
	leads = ext4_mtime_join(group, &self);
	do {
		if (leads)
			ext4_mtime_wait_for_writers(group, &self);
		if (ext4_mtime_begin_turn(group, &self, &turn)) {
			ext4_mtime_send_flush(sb, &turn);
			shares = false;
		}
	} while (!ext4_mtime_is_served(group, &self, &leads));
	if (shares)
		percpu_counter_inc(&ms->flushes_shared);
	return jbd2_carrier_rely(carrier, &self.flush, self.err);
}
