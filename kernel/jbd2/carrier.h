/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Carried commits: what jbd2 and its users call. The idea is in carrier.c.
 */
#ifndef _JBD2_CARRIER_H
#define _JBD2_CARRIER_H

#include <linux/jbd2.h>

struct jbd2_carrier;

/* A flush that is under way; on its task's stack. */
struct jbd2_flush {
	struct list_head	list;
	u64			number;
	u64			failed_before;	/* flushes, when it began */
};

/* How the wait for somebody else's flush has ended. */
enum jbd2_carried {
	JBD2_CARRIED_FLUSHED,	/* by one */
	JBD2_CARRIED_HURRIED,	/* because somebody waits */
	JBD2_CARRIED_ALONE,	/* because none has come */
	JBD2_CARRIED_LOST,	/* by one that has failed */
};

/* For the file system */
struct jbd2_carrier *jbd2_carrier_attach(journal_t *journal);
void jbd2_carrier_start_commit(struct jbd2_carrier *carrier, tid_t tid,
			       unsigned long patience);
int jbd2_carrier_issue_flush(struct block_device *bdev);
void jbd2_carrier_begin_flush(struct jbd2_carrier *carrier,
			      struct jbd2_flush *flush);
u64 jbd2_carrier_failed(struct jbd2_carrier *carrier);
bool jbd2_carrier_lost(struct jbd2_carrier *carrier, u64 failed_before);
void jbd2_carrier_note_flush(struct jbd2_carrier *carrier,
			     struct jbd2_flush *flush, int err, bool aborts);
int jbd2_carrier_end_flush(struct jbd2_carrier *carrier,
			   struct jbd2_flush *flush, int err, bool aborts);

/* For the journal, its commit thread and those who wait for it */
journal_t *jbd2_carrier_alloc_journal(void);
void jbd2_carrier_begin_commit(journal_t *journal);
int jbd2_carried(journal_t *journal, tid_t tid, ktime_t *start_time);
int jbd2_carried_harden(journal_t *journal, tid_t tid, ktime_t *start_time);
int jbd2_carrier_end_record(journal_t *journal, int err);
void jbd2_carrier_hurry(journal_t *journal, tid_t tid);
int jbd2_carrier_flush_tail(journal_t *journal);

/* For burst commits, which have one flush: somebody's or their own */
void jbd2_carrier_numbers(journal_t *journal, u64 *begun, u64 *failed);
bool jbd2_carrier_covers(journal_t *journal, u64 begun, u64 failed);
int jbd2_carrier_flush_burst(journal_t *journal, tid_t tid,
			     ktime_t *start_time, u64 failed);

#endif	/* _JBD2_CARRIER_H */
