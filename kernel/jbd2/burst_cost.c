// SPDX-License-Identifier: GPL-2.0
/*
 * Burst commits (burst.c): up to how many blocks of data a burst is worth its writes,
 * and how many are enough for a transaction.
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
 * By the same two times a transaction is long enough: burst_short.c.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - Whatever comes out, no data is at risk: it chooses between two ways that are safe.
 * - It does not get stuck. What goes into place for it is no burst, and tells nothing.
 *   So each such sync raises it by a block, until one of that size is logged.
 * - Small bursts tell nothing of blocks: they would count what the device takes for
 *   any write as the cost of theirs. Others may have waited for a neighbour, which is
 *   no cost of theirs either. So the average falls quickly, and rises slowly.
 * - A commit that somebody else's flush has carried (carrier.c) tells nothing of flushes.
 *
 * Context: the commit thread learns, anybody may ask. What is lost when two raise it at
 * once does not matter.
 */

#include <linux/ktime.h>

#include "burst.h"

/* A burst of so many blocks tells what a block takes. */
#define JBD2_BURST_SAMPLE	8

/*
 * New files of 8 to 80 blocks, each synced: on models of eMMC, UFS, SATA and NVMe
 * devices stock caught up where a flush took 2 to 2.5 times what a burst takes for the
 * blocks. So they are worth it as long as they take 1 / 2.5 of a flush.
 */
#define JBD2_BURST_WORTH_PERCENT	40

/*
 * A transaction is long enough when its blocks take so much of what its flush does, but
 * some are logged with each (burst_short.c).
 */
#define JBD2_BURST_ENOUGH_PERCENT	80
#define JBD2_BURST_ENOUGH_MIN		32

/* Moving averages: for how much of a difference something new counts. */
#define JBD2_BURST_FLUSH_WEIGHT	8
#define JBD2_BURST_RISE_WEIGHT	16
#define JBD2_BURST_FALL_WEIGHT	2

/**
 * jbd2_burst_average - a moving average
 * @before: what it was; 0 if there was none
 * @now: what is new
 * @rise: for which part of the difference that counts if it is larger, and ...
 * @fall: ... if it is smaller
 */
s64 jbd2_burst_average(s64 before, s64 now, int rise, int fall)
{
	if (!before)
		return now;
	return before + div_s64(now - before, now > before ? rise : fall);
}

/* How many blocks a burst writes in a part of what a flush takes. */
static unsigned int jbd2_burst_blocks_in(const struct jbd2_burst *burst, int percent,
					 int least)
{
	return clamp_t(s64, div64_s64(burst->flush_ns * percent,
				      max(burst->block_ns, 1LL) * 100),
		       least, INT_MAX);
}

/**
 * jbd2_burst_learn - a burst has ended well, with a flush of its own
 * @journal: the journal
 * @blocks: of the log, that it took
 * @write_ns: how long they took
 * @flush_ns: how long the flush took
 */
void jbd2_burst_learn(journal_t *journal, unsigned long blocks, s64 write_ns,
		      s64 flush_ns)
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);

	burst->flush_ns = jbd2_burst_average(burst->flush_ns, flush_ns,
					     JBD2_BURST_FLUSH_WEIGHT,
					     JBD2_BURST_FLUSH_WEIGHT);
	if (blocks < JBD2_BURST_SAMPLE)
		return;
	burst->block_ns = jbd2_burst_average(burst->block_ns,
					     div_s64(write_ns, blocks),
					     JBD2_BURST_RISE_WEIGHT,
					     JBD2_BURST_FALL_WEIGHT);
	WRITE_ONCE(burst->worth,
		   jbd2_burst_blocks_in(burst, JBD2_BURST_WORTH_PERCENT, 1));
	WRITE_ONCE(burst->enough,
		   jbd2_burst_blocks_in(burst, JBD2_BURST_ENOUGH_PERCENT,
					JBD2_BURST_ENOUGH_MIN));
}

/**
 * jbd2_burst_not_worth - data of a sync goes into place, as there is too much of it
 * @journal: the journal
 */
void jbd2_burst_not_worth(journal_t *journal)
{
	struct jbd2_burst *burst = jbd2_burst_of(journal);
	unsigned int worth = READ_ONCE(burst->worth);

	if (worth && worth < INT_MAX)
		WRITE_ONCE(burst->worth, worth + 1);
}
EXPORT_SYMBOL(jbd2_burst_not_worth);

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
