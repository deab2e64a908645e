// SPDX-License-Identifier: GPL-2.0
/*
 * Burst commits (burst.c): a transaction's blocks go into the log in few bios.
 *
 * Idea
 * ----
 *
 * jbd2 sends each block of the log as a bio of its own, and the block layer merges
 * them again, one by one, in the plug. That takes more of the processor than their
 * sum does, and where a flush costs little it is what a commit waits for. The blocks
 * lie one behind the other, so here those of a descriptor share a few bios:
 *
 *   [descriptor, blocks] [blocks]... [blocks, record]	up to 32 blocks each
 *
 * The plug merges these, so a device sees large requests, as before. A small burst is
 * one bio.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - The commit thread does not sleep while it has blocks that are not sent, but to be
 *   rescheduled. A plug is sent off when its task sleeps, a bio that is being
 *   filled is not. Its buffers are locked, and who holds the folio of a descriptor
 *   may wait for that lock, if it is the page cache's: to migrate it, to read the
 *   device. The commit thread takes folios' locks, and allocates memory, when it gets
 *   another such block. So all buffers of a descriptor are there before the first is
 *   locked, and all are sent before another is asked for that is the page cache's. It
 *   locks them in the order in which who reads the device does. A new bio is allocated
 *   when the last has been sent.
 * - The record joins a bio if the commit thread does not sleep until then, and nobody
 *   can wait for a buffer in it: its descriptor, if it has one, is the journal's own
 *   (burst_block.c). The buffers of blocks of metadata are those of the commit.
 * - A block's buffer is locked until its bio has ended, and is told whether that
 *   ended well: what jbd2's own completion does.
 *
 * Context: the commit thread alone; completions in interrupts.
 */

#include <linux/bio.h>
#include <linux/buffer_head.h>
#include <linux/slab.h>

#include "burst.h"

/* A small transaction has one bio, and what is allocated stays small. */
#define JBD2_BURST_BIO_BLOCKS	32

/* A bio of log blocks; its bi_private. */
struct jbd2_burst_bio {
	unsigned int		nr;
	struct buffer_head	*bhs[JBD2_BURST_BIO_BLOCKS];
};

/* As journal_end_buffer_io_sync() in commit.c, which has one block. */
static void jbd2_burst_end_block(struct buffer_head *bh, bool uptodate)
{
	struct buffer_head *orig_bh = bh->b_private;

	if (uptodate)
		set_buffer_uptodate(bh);
	else
		clear_buffer_uptodate(bh);
	if (orig_bh)
		clear_and_wake_up_bit(BH_Shadow, &orig_bh->b_state);
	unlock_buffer(bh);
}

static void jbd2_burst_end_bio(struct bio *bio)
{
	struct jbd2_burst_bio *blocks = bio->bi_private;
	unsigned int i;

	for (i = 0; i < blocks->nr; i++)
		jbd2_burst_end_block(blocks->bhs[i], !bio->bi_status);
	kfree(blocks);
	bio_put(bio);
}

static sector_t jbd2_burst_sector(struct buffer_head *bh)
{
	return bh->b_blocknr * (bh->b_size >> SECTOR_SHIFT);
}

static struct bio *jbd2_burst_alloc_bio(struct buffer_head *bh)
{
	struct jbd2_burst_bio *blocks;
	struct bio *bio;

	/* A commit cannot fail for want of memory. */
	blocks = kmalloc(sizeof(*blocks), GFP_NOIO | __GFP_NOFAIL);
	blocks->nr = 0;
	bio = bio_alloc(bh->b_bdev, JBD2_BURST_BIO_BLOCKS,
			REQ_OP_WRITE | JBD2_JOURNAL_REQ_FLAGS, GFP_NOIO);
	bio->bi_iter.bi_sector = jbd2_burst_sector(bh);
	bio->bi_private = blocks;
	bio->bi_end_io = jbd2_burst_end_bio;
	return bio;
}

/* Does a block lie behind those that a bio has, and does it fit? */
static bool jbd2_burst_add_block(struct bio *bio, struct buffer_head *bh)
{
	struct jbd2_burst_bio *blocks = bio->bi_private;

	if (blocks->nr == JBD2_BURST_BIO_BLOCKS ||
	    jbd2_burst_sector(bh) != bio_end_sector(bio) ||
	    !bio_add_folio(bio, bh->b_folio, bh->b_size, bh_offset(bh)))
		return false;
	set_buffer_req(bh);
	blocks->bhs[blocks->nr++] = bh;
	return true;
}

/* jbd2_burst_submit(), where there are bursts. */
void jbd2_burst_add(journal_t *journal, struct buffer_head *bh)
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);

	if (burst->bio && jbd2_burst_add_block(burst->bio, bh))
		return;
	jbd2_burst_submit_rest(journal);
	burst->bio = jbd2_burst_alloc_bio(bh);
	WARN_ON_ONCE(!jbd2_burst_add_block(burst->bio, bh));
}

/*
 * jbd2_burst_end_descriptor(), if anything has waited. Between the last descriptor and
 * the record the commit thread sleeps for ordered data, for a flush of the file
 * system's device if the journal has another, and to look up where the record goes.
 */
bool jbd2_burst_waits_for_record(journal_t *journal, transaction_t *transaction)
{
	return !transaction->t_buffers &&
		list_empty(&transaction->t_inode_list) &&
		journal->j_dev == journal->j_fs_dev &&
		jbd2_burst_knows_place(journal) &&
		!jbd2_burst_of(journal)->cached;
}

/* jbd2_burst_submit_record(), if anything has waited. */
bool jbd2_burst_add_record(journal_t *journal, struct buffer_head *bh)
{
	bool added = jbd2_burst_add_block(jbd2_burst_of(journal)->bio, bh);

	jbd2_burst_send(journal);
	return added;
}

/* jbd2_burst_submit_rest(), if anything has waited. */
void jbd2_burst_send(journal_t *journal)
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);

	submit_bio(burst->bio);
	burst->bio = NULL;
	burst->cached = false;
}
