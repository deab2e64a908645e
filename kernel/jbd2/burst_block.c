// SPDX-License-Identifier: GPL-2.0
/*
 * Burst commits (burst.c): places of the log's blocks, and buffers for its own.
 *
 * Idea
 * ----
 *
 * For each block of the log jbd2 asks the file system where it lies, and for each
 * that it fills itself, a descriptor, a block of revokes or a record, it asks the
 * device's page cache for a buffer. As the log moves on that is a new folio each
 * time: allocated, zeroed, put into the cache and onto the lists of reclaim, for one
 * write. In a small burst this takes as much of the processor as all the rest of it. So
 * a journal with bursts remembers a run of places, and keeps a few buffers:
 *
 *   T5, at 100	descriptor in a, record in b	100 to 103 have been looked up
 *   T6, at 104	descriptor in a, record in b	104 to 107 have, and join the run
 *   ...					and once round the log, all are known
 *
 * Who needs more buffers at a time has the others from the page cache, as on stock. Of
 * a log that is in pieces one is known at a time.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - A place stays what it is: the blocks of a journal do not move while it is in use.
 *   Each block of the run has been looked up.
 * - A buffer is free when the journal's own reference is the only one. The commit
 *   thread alone takes others, but for write_dirty_buffer(), whose completion may have
 *   one and drops it; and it drops its last when the buffer's write has been waited for.
 * - Nobody finds such a buffer but the commit thread: its folio has no mapping. So the
 *   device's page cache may keep an older version of the block, as it may on stock of
 *   one that has since been used for metadata. Who reads the log does so at
 *   mount, and an unmount leaves nothing in the cache but what somebody has mapped.
 *
 * Context: the commit thread; jbd2_burst_attach(), before there are bursts;
 * jbd2_burst_switch(), with no transaction there; and jbd2_burst_destroy(), without a
 * commit thread.
 */

#include <linux/buffer_head.h>
#include <linux/gfp.h>
#include <linux/iopoll.h>

#include "burst.h"

/* --- places ---------------------------------------------------------------- */

static bool jbd2_burst_in_run(const struct jbd2_burst_run *run,
			      unsigned long block)
{
	return block - run->block < run->len;
}

/* Look a block up. It joins the run, or begins another. */
static int jbd2_burst_look_up(journal_t *journal, unsigned long block)
{
	struct jbd2_burst_run *run = &jbd2_burst_of(journal)->run;
	unsigned long long place;
	int err;

	err = jbd2_journal_bmap(journal, block, &place);
	if (err)
		return err;
	if (block == run->block + run->len && place == run->place + run->len)
		run->len++;
	else
		*run = (struct jbd2_burst_run) {
			.block = block, .place = place, .len = 1,
		};
	return 0;
}

/* jbd2_burst_bmap(), where there are bursts. */
int jbd2_burst_find_place(journal_t *journal, unsigned long block,
			  unsigned long long *place)
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);
	struct jbd2_burst_run *run = &burst->run;
	int err = 0;

	if (!jbd2_burst_in_run(run, block))
		err = jbd2_burst_look_up(journal, block);
	if (err)
		return err;
	*place = run->place + (block - run->block);
	/* One ahead, for the record: it is not looked up while others wait for it. */
	if (!burst->bio && !jbd2_burst_in_run(run, block + 1) &&
	    block + 1 < journal->j_last)
		err = jbd2_burst_look_up(journal, block + 1);
	return err;
}

/**
 * jbd2_burst_knows_place - is it known where the log's next block lies?
 * @journal: the journal
 */
bool jbd2_burst_knows_place(journal_t *journal)
{
	return jbd2_burst_in_run(&jbd2_burst_of(journal)->run, journal->j_head);
}

/* --- buffers --------------------------------------------------------------- */

/**
 * jbd2_burst_alloc_buffer - a buffer that nobody else can find
 * @bdev: the device that it is of; its place is the caller's to say, and so is its state
 * @size: of a block
 * @gfp: how to allocate it
 *
 * Return: with a folio of its own, and one reference; or NULL.
 */
struct buffer_head *jbd2_burst_alloc_buffer(struct block_device *bdev,
					    unsigned int size, gfp_t gfp)
{
	struct buffer_head *bh = alloc_buffer_head(gfp);
	struct folio *folio;

	if (!bh)
		return NULL;
	folio = folio_alloc(gfp, get_order(size));
	if (!folio) {
		free_buffer_head(bh);
		return NULL;
	}
	bh->b_bdev = bdev;
	bh->b_size = size;
	folio_set_bh(bh, folio, 0);
	get_bh(bh);
	return bh;
}
EXPORT_SYMBOL(jbd2_burst_alloc_buffer);

/**
 * jbd2_burst_free_buffer - free what jbd2_burst_alloc_buffer() has returned
 * @bh: the buffer, of which nobody else has a reference
 */
void jbd2_burst_free_buffer(struct buffer_head *bh)
{
	struct folio *folio = bh->b_folio;

	bh->b_folio = NULL;
	put_bh(bh);
	free_buffer_head(bh);
	folio_put(folio);
}
EXPORT_SYMBOL(jbd2_burst_free_buffer);

/**
 * jbd2_burst_alloc_buffers - bursts are about to be switched on
 * @journal: the journal, which may have buffers
 *
 * If there is no memory it has fewer, or none.
 */
void jbd2_burst_alloc_buffers(journal_t *journal)
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);
	int i;

	for (i = 0; i < JBD2_BURST_BUFFERS; i++)
		if (!burst->buffers[i])
			burst->buffers[i] =
				jbd2_burst_alloc_buffer(journal->j_dev,
							journal->j_blocksize,
							GFP_KERNEL);
}

/**
 * jbd2_burst_free_buffers - bursts are switched off, or the journal goes
 * @journal: the journal
 */
void jbd2_burst_free_buffers(journal_t *journal)
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);
	struct buffer_head *bh;
	int i, count;

	for (i = 0; i < JBD2_BURST_BUFFERS; i++) {
		bh = burst->buffers[i];
		/* A completion that has unlocked it is about to drop its reference. */
		if (bh && !WARN_ON_ONCE(read_poll_timeout(atomic_read, count,
							  count == 1, 10,
							  USEC_PER_SEC, false,
							  &bh->b_count)))
			jbd2_burst_free_buffer(bh);
		burst->buffers[i] = NULL;
	}
}

/* jbd2_burst_getblk(), where there are bursts. */
struct buffer_head *jbd2_burst_get_buffer(journal_t *journal,
					  unsigned long long place)
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);
	struct buffer_head *bh;
	int i;

	for (i = 0; i < JBD2_BURST_BUFFERS; i++) {
		bh = burst->buffers[i];
		if (!bh || atomic_read(&bh->b_count) != 1)
			continue;
		get_bh(bh);
		/* Nobody else looks at it. An error of before is forgotten. */
		bh->b_state = BIT(BH_Mapped);
		bh->b_blocknr = place;
		return bh;
	}
	/* Who has its folio may wait for what is locked, and not sent (burst_write.c). */
	jbd2_burst_submit_rest(journal);
	burst->cached = true;
	return __getblk(journal->j_dev, place, journal->j_blocksize);
}
