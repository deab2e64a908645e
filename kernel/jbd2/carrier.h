/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Carried commits: what jbd2 and its users call. The idea is in carrier.c.
 */
#ifndef _JBD2_CARRIER_H
#define _JBD2_CARRIER_H

#include <linux/jbd2.h>

struct jbd2_carrier;

/* For the file system */
struct jbd2_carrier *jbd2_carrier_attach(journal_t *journal);
void jbd2_carrier_start_commit(struct jbd2_carrier *carrier, tid_t tid,
			       unsigned long patience);
u64 jbd2_carrier_begin_flush(struct jbd2_carrier *carrier);
void jbd2_carrier_end_flush(struct jbd2_carrier *carrier, u64 flush, int err);

/* For the commit thread and for those who wait for it */
int jbd2_carried(journal_t *journal, tid_t tid, ktime_t *start_time);
int jbd2_carried_harden(journal_t *journal, tid_t tid, ktime_t *start_time);
void jbd2_carrier_hurry(journal_t *journal, tid_t tid);
void jbd2_carrier_detach(journal_t *journal);

#endif	/* _JBD2_CARRIER_H */
