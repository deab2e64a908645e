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
 * @task: who waits
 * @folio: of which the memory is
 * @mapping: what that caches
 * @start: the physical address of the memory
 * @end: where it ends
 * @type: why
 * @whole_file: the task is going to wait for all of @mapping
 * @mixed: the file system puts pages of several files into a bio
 * @searched: of @whole_file: all queues were searched for @mapping, and the wait
 *	      was in the table ever since
 * @again: another wait for @mapping was, when this one began
 * @generation: changes when the tunable boost is set
 * @ioprio: of the task
 * @split: the bio, if known, that writes the memory and was split
 *
 * Pointers are names: they are compared, and never followed.
 */
struct qasio_wait {
	const void *task, *folio, *mapping;
	phys_addr_t start, end;
	enum qasio_type type;
	bool whole_file, mixed, searched, again;
	unsigned int generation;
	unsigned short ioprio;
	const void *split;
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

/* boost.c */
bool qasio_boost_queued(struct qasio_wait *wait);
unsigned int qasio_boost_generation(void);
bool qasio_in_use(void);

/* table.c */
void qasio_note_wait(struct qasio_wait *wait);
void qasio_note_split(const struct qasio_wait *wait);
void qasio_note_searched(const struct qasio_wait *wait);
void qasio_forget_wait(const struct qasio_wait *wait);
bool qasio_waits_pending(void);
enum qasio_match qasio_find_wait(struct request *rq, struct bio *only,
				 struct qasio_wait *wait);

/* wait.c */
const void *qasio_about(struct bio *bio);
const void *qasio_split_from(struct bio *bio);
enum qasio_match qasio_match(struct request *rq, struct qasio_wait *wait);
void qasio_count_boost(struct request *rq, const struct qasio_wait *wait,
		       enum qasio_match match, bool late, unsigned int ahead,
		       u64 saved_ns);
void qasio_count_same_file(void);
void qasio_count_looks(unsigned int requests);
void qasio_watch(void);
void qasio_unwatch(void);

#endif /* _QASIO_H */
