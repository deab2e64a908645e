/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Carried commits: what jbd2 and its users call. The idea is in carrier.c.
 */
#ifndef _JBD2_CARRIER_H
#define _JBD2_CARRIER_H

#include <linux/bio.h>
#include <linux/jbd2.h>

struct jbd2_carrier;

/* A flush that is under way. */
struct jbd2_flush {
	struct list_head	list;
	u64			number;
	u64			failed_before;	/* flushes, when it began */
};

/**
 * struct jbd2_sent_flush - a flush that jbd2_carrier_send_flush() sends
 * @ended: called when it has ended, from an interrupt; what it is a part of may go
 *	   when that has told who waits
 * @aborts: the journal is aborted if it has failed
 * @err: what came of it; valid in @ended
 * @flush: its number, for jbd2_carrier_rely()
 * @carrier: internal
 * @bio: internal
 */
struct jbd2_sent_flush {
	void			(*ended)(struct jbd2_sent_flush *sent);
	bool			aborts;
	int			err;
	struct jbd2_flush	flush;
	struct jbd2_carrier	*carrier;
	struct bio		bio;
};

/* So that nobody takes a task that waits for a slow device for one that hangs. */
#define JBD2_FLUSH_LOOK_UP	(60 * HZ)

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
u64 jbd2_carrier_failed(struct jbd2_carrier *carrier);
void jbd2_carrier_send_flush(struct jbd2_carrier *carrier,
			     struct block_device *bdev,
			     struct jbd2_sent_flush *sent);
int jbd2_carrier_rely(struct jbd2_carrier *carrier,
		      const struct jbd2_flush *flush, int err);
int jbd2_carrier_flush_device(struct jbd2_carrier *carrier,
			      struct block_device *bdev, bool aborts,
			      bool relies);

/* For the journal, its commit thread and those who wait for it */
journal_t *jbd2_carrier_alloc_journal(void);
void jbd2_carrier_begin_commit(journal_t *journal);
int jbd2_carried(journal_t *journal, tid_t tid, ktime_t *start_time);
int jbd2_carried_harden(journal_t *journal, tid_t tid, ktime_t *start_time);
int jbd2_carrier_end_record(journal_t *journal, int err);
void jbd2_carrier_hurry(journal_t *journal, tid_t tid);
int jbd2_carrier_check_abort(journal_t *journal);
int jbd2_carrier_flush_tail(journal_t *journal);

/* For asynchronous commits, which have one flush; a burst's may be somebody's */
int jbd2_carrier_flush_async(journal_t *journal, int err);
void jbd2_carrier_numbers(journal_t *journal, u64 *begun, u64 *failed);
bool jbd2_carrier_covers(journal_t *journal, u64 begun, u64 failed);
int jbd2_carrier_flush_burst(journal_t *journal, tid_t tid,
			     ktime_t *start_time, u64 failed);

#endif	/* _JBD2_CARRIER_H */
