// SPDX-License-Identifier: GPL-2.0
/*
 * Carried commits (carrier.c): flushes with numbers.
 *
 * Idea
 * ----
 *
 * Commits that are carried, and bursts (burst.c), count on flushes that others send.
 * So each flush of a file system has a number, by which one knows what it covers: all
 * that had been written before it began. And one knows whether a flush has failed
 * meanwhile, which may have lost what another, that ended well, seems to cover.
 *
 * A worked example; T9's blocks have been written when the last number is 4:
 *
 *   Flush 5 begins, then 6. Flush 6 ends, well. It covers the blocks, unless flush 5,
 *   which the device may have had before it, fails: so it is waited for.
 *   Flush 5 fails. One has failed since T9 began: its blocks may be gone.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - Flushes are numbered when they begin, before they are submitted. One with a
 *   number above the last one begun at some moment is therefore submitted after
 *   that moment, and covers every write that had completed by then.
 * - A flush that fails may lose all that the device had cached, and the next one
 *   may succeed, and its task run first. Which is the next one for the device, the
 *   numbers do not tell. So a flush counts once all have ended, too, that had begun
 *   by its end, and none has failed since it began. That goes for the fsync that
 *   sent it as well. A carried commit is given up, and the journal aborts, if any
 *   flush has failed since it started: its blocks may be gone.
 * - So it goes for a commit with barriers of its own, of which stock jbd2 need not
 *   ask: there every fsync of a change is a commit, and one thread does them all.
 *   Here the failed flush may be that of an fsync that has left its commit out, and
 *   that aborts the journal only when its task runs. So the record's flush has a
 *   number, too. Once the record is written the commit waits for the flushes that
 *   had begun by then, and the journal aborts if any has failed since it began, or
 *   one before that is to abort the journal. The record may be on the medium by
 *   then, as may be that of any commit whose end is not told. If a flush has failed
 *   before it is sent it is not written.
 * - So it goes for the flush before the log's tail moves, behind which blocks and
 *   data (burst_tail.c) are in their places only. With bursts the tail stays if that
 *   flush is not to be trusted, and the journal aborts. Without, the tail moves and
 *   nobody is waited for, as in stock jbd2.
 * - Those who wait for each other's flushes get on: nobody waits for others before
 *   his own has ended. Until then he waits for no handle, no commit of this journal,
 *   no j_checkpoint_mutex and no limit of a cgroup. A flush that begins after that is
 *   waited for by none of them.
 * - A flush ends when the device has ended it, in an interrupt, and not when its task
 *   runs, which may have no processor time left, or none before others. Only a commit
 *   record's ends in its task, which is jbd2's own. But a flush begins in its task, and
 *   that task is waited for from the moment that its flush has a number. That is short,
 *   unless the queue has no room for a request.
 * - What no number tells: flushes of the device that are not the file system's,
 *   through another partition or by fsync of the device itself; the flush that stands
 *   for FUA where the device has none, of a superblock; and those of fast commits and
 *   of a file system whose journal is on another device, where none is carried.
 *
 * Lock order
 * ----------
 *
 * j_checkpoint_mutex, j_state_lock, then the carrier's lock, which is released
 * before anybody is woken, and taken when a flush ends, in interrupts.
 */

#include <linux/bio.h>
#include <linux/blk-cgroup.h>
#include <linux/blkdev.h>
#include <linux/completion.h>

#include "carrier_internal.h"

static void jbd2_carrier_number(struct jbd2_carrier *carrier,
				struct jbd2_flush *flush)
{
	lockdep_assert_held(&carrier->lock);
	flush->number = ++carrier->begun;
	list_add_tail(&flush->list, &carrier->under_way);
}

/**
 * jbd2_carrier_failed - how many flushes have failed
 * @carrier: of the file system on the device
 */
u64 jbd2_carrier_failed(struct jbd2_carrier *carrier)
{
	u64 failed;

	spin_lock_irq(&carrier->lock);
	failed = carrier->failed;
	spin_unlock_irq(&carrier->lock);
	return failed;
}
EXPORT_SYMBOL(jbd2_carrier_failed);

/*
 * Has a flush that began after @begun made durable what had been written then? Or is
 * there no volatile cache, in which case one that was skipped is as good: but not once
 * the cache is on again, for what was written before may be in it.
 */
bool jbd2_carrier_has_carried(struct jbd2_carrier *carrier, u64 begun)
{
	lockdep_assert_held(&carrier->lock);
	return carrier->carried > begun ||
		(carrier->skipped > begun &&
		 !bdev_write_cache(jbd2_journal_of(carrier)->j_dev));
}

/* jbd2_carrier_lost(), with the carrier's lock held. */
bool jbd2_carrier_has_lost(struct jbd2_carrier *carrier, u64 failed_before)
{
	lockdep_assert_held(&carrier->lock);
	return carrier->broken || carrier->failed != failed_before;
}

/**
 * jbd2_carrier_lost - may what had been written then have been lost by a flush?
 * @carrier: of the file system on the device
 * @failed_before: what jbd2_carrier_failed() said when it had been written
 */
bool jbd2_carrier_lost(struct jbd2_carrier *carrier, u64 failed_before)
{
	bool lost;

	spin_lock_irq(&carrier->lock);
	lost = jbd2_carrier_has_lost(carrier, failed_before);
	spin_unlock_irq(&carrier->lock);
	return lost;
}

/* All flushes with lower numbers than this have ended. */
static u64 jbd2_carrier_ended(struct jbd2_carrier *carrier)
{
	struct jbd2_flush *first;

	lockdep_assert_held(&carrier->lock);
	first = list_first_entry_or_null(&carrier->under_way,
					 struct jbd2_flush, list);
	return first ? first->number : carrier->begun + 1;
}

/**
 * jbd2_carrier_all_ended - have flushes up to this one ended, well or not?
 * @carrier: of the file system on the device
 * @number: of the flush
 */
bool jbd2_carrier_all_ended(struct jbd2_carrier *carrier, u64 number)
{
	bool ended;

	spin_lock_irq(&carrier->lock);
	ended = jbd2_carrier_ended(carrier) > number;
	spin_unlock_irq(&carrier->lock);
	return ended;
}

/*
 * All have to end that had begun by the end of one that ended well: the device may have had
 * them before it. They are waited for before a newer one is looked at: beside tasks that
 * flush all the time one or another is always under way.
 */
static void jbd2_carrier_note_covers(struct jbd2_carrier *carrier)
{
	u64 ended = jbd2_carrier_ended(carrier);

	if (carrier->beside < ended)
		carrier->covers = carrier->candidate;
	if (carrier->covers != carrier->candidate ||
	    carrier->candidate == carrier->well)
		return;
	carrier->candidate = carrier->well;
	carrier->beside = carrier->begun;
	if (carrier->beside < ended)
		carrier->covers = carrier->candidate;
}

/* A flush has ended, and whoever waits for that is told. Context: any. */
static void jbd2_carrier_note_end(struct jbd2_carrier *carrier,
				  struct jbd2_flush *flush, int err, bool aborts)
{
	unsigned long flags;

	spin_lock_irqsave(&carrier->lock, flags);
	list_del_init(&flush->list);
	if (err) {
		carrier->failed++;
		if (aborts)
			WRITE_ONCE(carrier->broken, true);
	} else {
		/* The record's may be one of a journal on another device. */
		if (flush != &carrier->record && carrier->well < flush->number)
			carrier->well = flush->number;
		/* The device may have had one that began later before it. */
		flush->number = carrier->begun;
	}
	if (carrier->well < jbd2_carrier_ended(carrier))
		carrier->carried = carrier->well;
	jbd2_carrier_note_covers(carrier);
	spin_unlock_irqrestore(&carrier->lock, flags);
	if (wq_has_sleeper(&carrier->wait))
		wake_up_all(&carrier->wait);
}

/* Has what a flush that ended well was to make durable been lost by another? */
static int jbd2_carrier_outwait(struct jbd2_carrier *carrier,
				const struct jbd2_flush *flush)
{
	wait_event(carrier->wait,
		   jbd2_carrier_all_ended(carrier, flush->number));
	return jbd2_carrier_lost(carrier, flush->failed_before) ? -EIO : 0;
}

static void jbd2_carrier_end_io(struct bio *bio)
{
	struct jbd2_sent_flush *sent =
		container_of(bio, struct jbd2_sent_flush, bio);
	journal_t *journal = jbd2_journal_of(sent->carrier);

	sent->err = blk_status_to_errno(bio->bi_status);
	jbd2_carrier_note_end(sent->carrier, &sent->flush, sent->err,
			      sent->aborts || jbd2_burst_on(journal));
	sent->ended(sent);
}

/**
 * jbd2_carrier_send_flush - have the device flushed
 * @carrier: of the file system on that device
 * @bdev: the device
 * @sent: @ended and @aborts are set
 *
 * As blkdev_issue_flush(), but does not wait, and is charged to the root cgroup.
 */
void jbd2_carrier_send_flush(struct jbd2_carrier *carrier,
			     struct block_device *bdev,
			     struct jbd2_sent_flush *sent)
{
	sent->carrier = carrier;
	/* Somebody waits: as with a commit's record, write-back throttling is not for it. */
	bio_init(&sent->bio, bdev, NULL, 0,
		 REQ_OP_WRITE | REQ_PREFLUSH | REQ_SYNC | REQ_IDLE);
	bio_associate_blkg_from_css(&sent->bio, blkcg_root_css);
	sent->bio.bi_end_io = jbd2_carrier_end_io;
	spin_lock_irq(&carrier->lock);
	sent->flush.failed_before = carrier->failed;
	jbd2_carrier_number(carrier, &sent->flush);
	spin_unlock_irq(&carrier->lock);
	submit_bio(&sent->bio);
}
EXPORT_SYMBOL_GPL(jbd2_carrier_send_flush);

/* Lost with it are places of data that the log still has. */
static void jbd2_carrier_note_failed(struct jbd2_carrier *carrier, int err)
{
	journal_t *journal = jbd2_journal_of(carrier);

	if (jbd2_burst_on(journal))
		jbd2_journal_abort(journal, err);
}

/**
 * jbd2_carrier_rely - may one count on a flush?
 * @carrier: of the file system on the device
 * @flush: the flush, which has ended; @failed_before is what jbd2_carrier_failed()
 *	   said when what it covers had been written, or earlier
 * @err: what came of it
 *
 * Waits for the flushes that had begun by its end, of which most have ended.
 *
 * Return: @err, or -EIO if what this one was to make durable may have been lost
 * by one of those.
 */
int jbd2_carrier_rely(struct jbd2_carrier *carrier,
		      const struct jbd2_flush *flush, int err)
{
	if (err) {
		jbd2_carrier_note_failed(carrier, err);
		return err;
	}
	return jbd2_carrier_outwait(carrier, flush);
}
EXPORT_SYMBOL(jbd2_carrier_rely);

/* A flush whose task waits for it. */
struct jbd2_awaited_flush {
	struct jbd2_sent_flush	sent;
	struct completion	done;
};

static void jbd2_carrier_tell_waiter(struct jbd2_sent_flush *sent)
{
	complete(&container_of(sent, struct jbd2_awaited_flush, sent)->done);
}

/*
 * Without a volatile cache what has been written is durable. The block layer would end
 * a flush at once, and well; so does this, without the bio.
 */
static bool jbd2_carrier_skip_flush(struct jbd2_carrier *carrier)
{
	bool broken;

	spin_lock_irq(&carrier->lock);
	carrier->skipped = ++carrier->begun;
	broken = carrier->broken;
	spin_unlock_irq(&carrier->lock);
	if (wq_has_sleeper(&carrier->wait))
		wake_up_all(&carrier->wait);
	return broken;
}

/**
 * jbd2_carrier_flush_device - flush the device, and wait
 * @carrier: of the file system on that device
 * @bdev: the device
 * @aborts: the caller aborts the journal if that fails
 * @relies: the caller counts on it, so jbd2_carrier_rely() is asked
 *
 * Others count on it in any case.
 *
 * Return: 0 or an error.
 */
int jbd2_carrier_flush_device(struct jbd2_carrier *carrier,
			      struct block_device *bdev, bool aborts,
			      bool relies)
{
	struct jbd2_awaited_flush flush = {
		.sent.ended = jbd2_carrier_tell_waiter,
		.sent.aborts = aborts,
	};

	if (!bdev_write_cache(bdev))
		return jbd2_carrier_skip_flush(carrier) && relies ? -EIO : 0;
	init_completion(&flush.done);
	jbd2_carrier_send_flush(carrier, bdev, &flush.sent);
	while (!wait_for_completion_io_timeout(&flush.done,
					       JBD2_FLUSH_LOOK_UP))
		;
	if (relies || flush.sent.err)
		return jbd2_carrier_rely(carrier, &flush.sent.flush,
					 flush.sent.err);
	return 0;
}
EXPORT_SYMBOL(jbd2_carrier_flush_device);

/**
 * jbd2_carrier_flush - the commit thread's own flush, for want of somebody else's
 * @journal: the journal
 *
 * Return: 0 or an error, after which what had been written may be lost.
 */
int jbd2_carrier_flush(journal_t *journal)
{
	return jbd2_carrier_flush_device(jbd2_carrier_of(journal),
					 journal->j_dev, true, true);
}

/**
 * jbd2_carrier_flush_tail - flush what has been checkpointed; the tail is to move
 * @journal: the journal, j_checkpoint_mutex held
 *
 * Without bursts the tail moves whatever comes of it, as in stock jbd2.
 *
 * Return: 0; or with bursts -EIO, if what is in place may be lost: the tail must
 * stay, and the journal has been aborted.
 */
int jbd2_carrier_flush_tail(journal_t *journal)
{
	struct jbd2_carrier *carrier = jbd2_carrier_of(journal);
	bool on = jbd2_burst_on(journal);
	int err;

	if (!(journal->j_flags & JBD2_BARRIER) && !on)
		return 0;
	if (likely(!on && !READ_ONCE(carrier->counts))) {
		blkdev_issue_flush(journal->j_fs_dev);
		return 0;
	}
	err = jbd2_carrier_flush_device(carrier, journal->j_fs_dev, on, on);
	if (!err || !on)
		return 0;
	jbd2_journal_abort(journal, -EIO);
	return -EIO;
}

/**
 * jbd2_carrier_begin_commit - a commit begins, and has not written anything
 * @journal: the journal
 */
void jbd2_carrier_begin_commit(journal_t *journal)
{
	struct jbd2_carrier *carrier = jbd2_carrier_of(journal);

	if (likely(!READ_ONCE(carrier->counts)))
		return;
	spin_lock_irq(&carrier->lock);
	carrier->record.failed_before = carrier->failed;
	spin_unlock_irq(&carrier->lock);
}

/**
 * jbd2_carrier_begin_record - a record is about to be sent, with a flush before it
 * @journal: the journal
 *
 * Return: 0, or -EIO if blocks that it vouches for may be lost.
 */
int jbd2_carrier_begin_record(journal_t *journal)
{
	struct jbd2_carrier *carrier = jbd2_carrier_of(journal);
	int err = 0;

	if (!(journal->j_flags & JBD2_BARRIER))
		return 0;
	spin_lock_irq(&carrier->lock);
	if (jbd2_carrier_has_lost(carrier, carrier->record.failed_before))
		err = -EIO;
	else
		jbd2_carrier_number(carrier, &carrier->record);
	spin_unlock_irq(&carrier->lock);
	return err;
}

/**
 * jbd2_carrier_end_record - a commit record has been written
 * @journal: the journal
 * @err: what came of it
 *
 * Waits for the flushes that have begun by now, of which most have ended.
 *
 * Return: @err, or -EIO if the commit is not to be trusted: what its flush was to
 * make durable may have been lost by one of those.
 */
int jbd2_carrier_end_record(journal_t *journal, int err)
{
	struct jbd2_carrier *carrier = jbd2_carrier_of(journal);
	struct jbd2_flush *flush = &carrier->record;

	if (likely(!READ_ONCE(carrier->counts)))
		return err;
	/* There is one commit at a time, and none looks at the list for another. */
	if (!list_empty(&flush->list)) {
		jbd2_carrier_note_end(carrier, flush, err, true);
		return err ?: jbd2_carrier_outwait(carrier, flush);
	}
	/* Has it no barriers, or do its own follow? */
	if (err || !(journal->j_flags & JBD2_BARRIER) ||
	    jbd2_has_feature_async_commit(journal))
		return err;
	/* It was sent before flushes counted, and has just ended. */
	spin_lock_irq(&carrier->lock);
	flush->number = carrier->begun;
	spin_unlock_irq(&carrier->lock);
	return jbd2_carrier_outwait(carrier, flush);
}

/**
 * jbd2_carrier_numbers - how many flushes have begun, and how many have failed
 * @journal: the journal
 * @begun: the number of the last one that has begun
 * @failed: how many have failed so far
 */
void jbd2_carrier_numbers(journal_t *journal, u64 *begun, u64 *failed)
{
	struct jbd2_carrier *carrier = jbd2_carrier_of(journal);

	spin_lock_irq(&carrier->lock);
	*begun = carrier->begun;
	*failed = carrier->failed;
	spin_unlock_irq(&carrier->lock);
}

/**
 * jbd2_carrier_covers - has a flush that began later made something durable?
 * @journal: the journal
 * @begun: what jbd2_carrier_numbers() said when it had been written
 * @failed: likewise
 *
 * Does not wait for the flushes that had begun by that one's end: while one of them is
 * under way, the answer is no.
 */
bool jbd2_carrier_covers(journal_t *journal, u64 begun, u64 failed)
{
	struct jbd2_carrier *carrier = jbd2_carrier_of(journal);
	bool covers;

	spin_lock_irq(&carrier->lock);
	covers = carrier->covers > begun &&
		!jbd2_carrier_has_lost(carrier, failed);
	spin_unlock_irq(&carrier->lock);
	return covers;
}
