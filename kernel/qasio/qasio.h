/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _QASIO_H
#define _QASIO_H

#include <linux/blk-mq.h>
#include <linux/blkdev.h>

/**
 * enum qasio_type - what a task waits for
 * @QASIO_META: a block of metadata that it wants to change
 * @QASIO_DATA: a page of a file that it wants to change
 * @QASIO_SYNC: pages of a file, to be durable or gone: fsync, truncate, ...
 * @QASIO_TYPES: how many there are
 */
enum qasio_type {
	QASIO_META,
	QASIO_DATA,
	QASIO_SYNC,
	QASIO_TYPES
};

/**
 * struct qasio_wait - a wait for memory that is under write-back
 * @mapping: what the memory caches
 * @start: its physical address
 * @end: where it ends
 * @type: why
 * @whole_file: the task is going to wait for all of @mapping
 * @mixed: the file system puts pages of several files into a bio
 * @ioprio: of the task
 * @until: when to forget the wait, in jiffies
 * @split: the bio, if known, that writes the memory and was split
 * @slot: where in the table of waits it is
 */
struct qasio_wait {
	struct address_space *mapping;
	phys_addr_t start, end;
	enum qasio_type type;
	bool whole_file;
	bool mixed;
	unsigned short ioprio;
	unsigned long until;
	const void *split;
	unsigned int slot;
};

/**
 * enum qasio_match - what a request has to do with a wait
 * @QASIO_NO_MATCH: nothing
 * @QASIO_SAME_FILE: the task will wait for it later
 * @QASIO_SAME_BIO: the task waits for a bio of which it is another part
 * @QASIO_MATCH: the task waits for it
 */
enum qasio_match {
	QASIO_NO_MATCH,
	QASIO_SAME_FILE,
	QASIO_SAME_BIO,
	QASIO_MATCH
};

/* sched.c */
bool qasio_boost_queued(struct qasio_wait *wait);
bool qasio_in_use(void);

/* wait.c */
bool qasio_waits_pending(void);
enum qasio_match qasio_find_wait(struct request *rq, struct qasio_wait *found);
void qasio_note_split(const struct qasio_wait *wait);
enum qasio_match qasio_match(struct request *rq, struct qasio_wait *wait);
void qasio_count_boost(struct request *rq, const struct qasio_wait *wait,
		       enum qasio_match match, bool late, unsigned int ahead,
		       u64 saved_ns);
void qasio_count_same_file(void);
void qasio_watch(void);
void qasio_unwatch(void);

#endif /* _QASIO_H */
