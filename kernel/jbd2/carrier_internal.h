/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Carried commits: what carrier.c and carrier_flush.c share.
 */
#ifndef _JBD2_CARRIER_INTERNAL_H
#define _JBD2_CARRIER_INTERNAL_H

#include <linux/wait.h>

#include "burst.h"
#include "carrier.h"

struct jbd2_carrier {
	bool			counts;		/* flushes; set once, as is: */
	bool			carries;	/* commits, too */

	spinlock_t		lock;		/* of all below but wait; irqs off */
	tid_t			tid;		/* the last that was to be carried */
	bool			patient;	/* nobody waits for it */
	unsigned long		patience;	/* jiffies to wait for a flush */
	struct list_head	under_way;	/* flushes, by number */
	u64			begun;		/* the last number */
	u64			well;		/* the latest that ended well, */
	u64			carried;	/* and with all before it ended; */
	u64			skipped;	/* or had no volatile cache to flush */
	u64			candidate;	/* ended well; covers what was before it */
	u64			beside;		/* once all up to this one have ended */
	u64			covers;		/* the latest for which they have */
	u64			failed;		/* how many have failed, */
	u64			failed_before;	/* before tid's commit started */
	bool			broken;		/* one that aborts the journal */
	struct jbd2_flush	record;		/* the one of a commit record */

	wait_queue_head_t	wait;		/* for flushes, or for hurry */
};

/* What a journal_t is allocated as. */
struct jbd2_carried_journal {
	struct jbd2_burst_journal base;		/* first, for kfree() */
	struct jbd2_carrier	carrier;
};

static_assert(!offsetof(struct jbd2_carried_journal, base.journal));

static inline struct jbd2_carrier *jbd2_carrier_of(journal_t *journal)
{
	return &container_of(journal, struct jbd2_carried_journal,
			     base.journal)->carrier;
}

static inline journal_t *jbd2_journal_of(struct jbd2_carrier *carrier)
{
	return &container_of(carrier, struct jbd2_carried_journal,
			     carrier)->base.journal;
}

/* carrier_flush.c */
bool jbd2_carrier_has_carried(struct jbd2_carrier *carrier, u64 begun);
bool jbd2_carrier_has_lost(struct jbd2_carrier *carrier, u64 failed_before);
bool jbd2_carrier_all_ended(struct jbd2_carrier *carrier, u64 number);
bool jbd2_carrier_lost(struct jbd2_carrier *carrier, u64 failed_before);
int jbd2_carrier_begin_record(journal_t *journal);
int jbd2_carrier_flush(journal_t *journal);

#endif	/* _JBD2_CARRIER_INTERNAL_H */
