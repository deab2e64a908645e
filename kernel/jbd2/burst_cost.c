// SPDX-License-Identifier: GPL-2.0
/*
 * Burst commits (burst.c): up to how many blocks of data a burst is worth its writes.
 *
 * Idea
 * ----
 *
 * Data that a sync logs saves a flush, and is written once more, to its place. So it
 * is worth it as long as that takes no longer than a flush. Both depend on the device,
 * on its neighbours and on the processor, and each burst shows what they are now:
 *
 *   commit begins -> blocks and record written -> flush ended
 *	     (for each block)			(for each flush)
 *
 * A block that is logged is copied before, and settled afterwards. With that it costs
 * two and a half times what the burst takes for it. A phone's eMMC transfers a block in
 * 75 us and flushes in 3.6 ms, which comes to some 20 blocks.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - Whatever comes out, no data is at risk: it chooses between two ways that are safe.
 * - It cannot get stuck. JBD2_BURST_SAMPLE blocks are always worth it, so bursts that
 *   are large enough to tell what a block takes go on to come. Smaller ones would count
 *   what the device takes for any write as the cost of a block.
 *
 * Context: the commit thread learns, anybody may ask.
 */

#include <linux/ktime.h>

#include "burst.h"

/* A burst of so many blocks tells what a block takes. */
#define JBD2_BURST_SAMPLE	8

/*
 * New files of 8 to 80 blocks, each synced: on models of eMMC, UFS, SATA and NVMe
 * devices stock caught up where a flush took 2 to 2.5 times what a burst takes for the
 * blocks.
 */
#define JBD2_BURST_COST_PERCENT	250

/* Moving averages: what is new counts for an eighth. */
#define JBD2_BURST_WEIGHT	8

static s64 jbd2_burst_average(s64 before, s64 now)
{
	return before ? before + div_s64(now - before, JBD2_BURST_WEIGHT) : now;
}

/**
 * jbd2_burst_learn - a burst has ended well
 * @journal: the journal
 * @blocks: of the log, that it took
 * @write_ns: how long they took
 * @flush_ns: how long the flush took
 */
void jbd2_burst_learn(journal_t *journal, unsigned long blocks, s64 write_ns,
		      s64 flush_ns)
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);
	s64 worth;

	burst->flush_ns = jbd2_burst_average(burst->flush_ns, flush_ns);
	if (blocks < JBD2_BURST_SAMPLE)
		return;
	burst->block_ns = jbd2_burst_average(burst->block_ns,
					     div_s64(write_ns, blocks));
	worth = div64_s64(burst->flush_ns * 100,
			  max(burst->block_ns, 1LL) * JBD2_BURST_COST_PERCENT);
	WRITE_ONCE(burst->worth, clamp_t(s64, worth, JBD2_BURST_SAMPLE, INT_MAX));
}

/**
 * jbd2_burst_worth - above how many blocks of data is it better to write in place?
 * @journal: the journal
 *
 * Return: UINT_MAX if no burst has told yet.
 */
unsigned int jbd2_burst_worth(journal_t *journal)
{
	return READ_ONCE(jbd2_burst_of(journal)->worth) ?: UINT_MAX;
}
EXPORT_SYMBOL(jbd2_burst_worth);
