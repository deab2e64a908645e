// SPDX-License-Identifier: GPL-2.0
/*
 * The table of waits: what a request that is yet to come may be waited for.
 *
 * A task waits for one thing at a time, so there is one entry for a task at most,
 * however many pages it waits for one after the other.  An entry stays for
 * QASIO_WAIT_LIFE: a request that is not in a queue by then, because it waits for
 * a tag, say, is not boosted.  Those whose request the driver has stay, too, as
 * nothing tells them apart.  If there are more tasks than entries, the oldest wait
 * is forgotten.
 *
 * A request is looked up by what it is about: the folios that it writes, the files
 * that these are of, and the bio that its bios were split from.  That takes a time
 * which depends on how large the request is, not on how many tasks wait: the
 * folios are looked up for those bios only whose file somebody waits for.
 *
 * Tasks, files, folios and bios are names here.  They are compared and never
 * followed, as what they name may be gone.  If something else has the name since,
 * a request is boosted that need not be.
 *
 * The lock nests inside qasio_queue::lock.
 */
#include <linux/bio.h>
#include <linux/hashtable.h>
#include <linux/jiffies.h>
#include <linux/pagemap.h>
#include <linux/spinlock.h>

#include "qasio.h"

#define QASIO_WAIT_LIFE		(HZ / 2)
#define QASIO_WAITS		512
#define QASIO_HASH_BITS		8

/**
 * struct qasio_noted - an entry of the table
 * @wait: the wait
 * @until: when to forget it, in jiffies
 * @age: in qasio_by_age, or in qasio_unused
 * @by_task: in the hash of that name; so are the following
 * @by_file: in the one for waits for all of a file, or in the other one
 * @by_folio: hashed by the folio of which the memory is
 * @by_bio: hashed by qasio_wait::split, if there is one
 */
struct qasio_noted {
	struct qasio_wait wait;
	unsigned long until;
	struct list_head age;
	struct hlist_node by_task, by_file, by_folio, by_bio;
};

static DEFINE_SPINLOCK(qasio_table_lock);
static struct qasio_noted qasio_entries[QASIO_WAITS];
static unsigned int qasio_ever_used;	/* of the entries, the first so many */
static LIST_HEAD(qasio_unused);
static LIST_HEAD(qasio_by_age);		/* the oldest first */
static unsigned int qasio_noted;	/* how many are in qasio_by_age */
static unsigned int qasio_mixed;	/* of these, those with qasio_wait::mixed */

static DEFINE_HASHTABLE(qasio_by_task, QASIO_HASH_BITS);
static DEFINE_HASHTABLE(qasio_by_file, QASIO_HASH_BITS);
static DEFINE_HASHTABLE(qasio_by_whole_file, QASIO_HASH_BITS);
static DEFINE_HASHTABLE(qasio_by_folio, QASIO_HASH_BITS);
static DEFINE_HASHTABLE(qasio_by_bio, QASIO_HASH_BITS);

/*
 * Finding
 */

static struct qasio_noted *qasio_of_task(const void *task)
{
	struct qasio_noted *noted;

	hash_for_each_possible(qasio_by_task, noted, by_task, (unsigned long)task)
		if (noted->wait.task == task)
			return noted;
	return NULL;
}

static struct qasio_noted *qasio_for_whole(const void *mapping)
{
	struct qasio_noted *noted;

	hash_for_each_possible(qasio_by_whole_file, noted, by_file,
			       (unsigned long)mapping)
		if (noted->wait.mapping == mapping)
			return noted;
	return NULL;
}

static struct qasio_noted *qasio_for_part(const void *mapping)
{
	struct qasio_noted *noted;

	hash_for_each_possible(qasio_by_file, noted, by_file,
			       (unsigned long)mapping)
		if (noted->wait.mapping == mapping)
			return noted;
	return NULL;
}

static struct qasio_noted *qasio_for_memory(const void *folio,
					    phys_addr_t start, phys_addr_t end)
{
	struct qasio_noted *noted;

	hash_for_each_possible(qasio_by_folio, noted, by_folio,
			       (unsigned long)folio)
		if (noted->wait.folio == folio && noted->wait.start < end &&
		    start < noted->wait.end)
			return noted;
	return NULL;
}

static struct qasio_noted *qasio_for_bio(const void *split)
{
	struct qasio_noted *noted;

	hash_for_each_possible(qasio_by_bio, noted, by_bio, (unsigned long)split)
		if (noted->wait.split == split)
			return noted;
	return NULL;
}

/*
 * Coming and going
 */

static void qasio_hash(struct qasio_noted *noted)
{
	const struct qasio_wait *wait = &noted->wait;

	hash_add(qasio_by_task, &noted->by_task, (unsigned long)wait->task);
	hash_add(qasio_by_folio, &noted->by_folio, (unsigned long)wait->folio);
	if (wait->whole_file)
		hash_add(qasio_by_whole_file, &noted->by_file,
			 (unsigned long)wait->mapping);
	else
		hash_add(qasio_by_file, &noted->by_file,
			 (unsigned long)wait->mapping);
	INIT_HLIST_NODE(&noted->by_bio);
}

static void qasio_drop(struct qasio_noted *noted)
{
	hash_del(&noted->by_task);
	hash_del(&noted->by_folio);
	hash_del(&noted->by_file);
	hash_del(&noted->by_bio);
	list_move(&noted->age, &qasio_unused);
	if (noted->wait.mixed)
		qasio_mixed--;
	WRITE_ONCE(qasio_noted, qasio_noted - 1);
}

static struct qasio_noted *qasio_oldest_noted(void)
{
	return list_first_entry_or_null(&qasio_by_age, struct qasio_noted, age);
}

static void qasio_drop_expired(void)
{
	struct qasio_noted *noted = qasio_oldest_noted();

	while (noted && !time_before(jiffies, noted->until)) {
		qasio_drop(noted);
		noted = qasio_oldest_noted();
	}
}

/* An entry that is in no list. */
static struct qasio_noted *qasio_take_entry(void)
{
	struct qasio_noted *noted;

	if (list_empty(&qasio_unused)) {
		if (qasio_ever_used < QASIO_WAITS)
			return &qasio_entries[qasio_ever_used++];
		qasio_drop(qasio_oldest_noted());
	}
	noted = list_first_entry(&qasio_unused, struct qasio_noted, age);
	list_del(&noted->age);
	return noted;
}

/**
 * qasio_note_wait() - let requests to come know of a wait
 * @wait: the wait; gets to know whether it is another one for the same file
 */
void qasio_note_wait(struct qasio_wait *wait)
{
	struct qasio_noted *noted;

	spin_lock(&qasio_table_lock);
	qasio_drop_expired();
	noted = wait->whole_file ? qasio_for_whole(wait->mapping) : NULL;
	wait->again = noted && noted->wait.searched && !wait->mixed &&
		      noted->wait.generation == wait->generation;
	wait->searched = wait->again;

	noted = qasio_of_task(wait->task);
	if (noted)
		qasio_drop(noted);
	noted = qasio_take_entry();
	noted->wait = *wait;
	noted->until = jiffies + QASIO_WAIT_LIFE;
	list_add_tail(&noted->age, &qasio_by_age);
	qasio_hash(noted);
	if (wait->mixed)
		qasio_mixed++;
	WRITE_ONCE(qasio_noted, qasio_noted + 1);
	spin_unlock(&qasio_table_lock);
}

/* The entry of @wait, unless that is no longer what its task waits for. */
static struct qasio_noted *qasio_noted_as(const struct qasio_wait *wait)
{
	struct qasio_noted *noted = qasio_of_task(wait->task);

	return noted && noted->wait.start == wait->start &&
	       noted->wait.mapping == wait->mapping ? noted : NULL;
}

/**
 * qasio_note_split() - let requests to come know of which bio they are waited for
 * @wait: the wait, with @wait->split
 */
void qasio_note_split(const struct qasio_wait *wait)
{
	struct qasio_noted *noted;

	spin_lock(&qasio_table_lock);
	noted = qasio_noted_as(wait);
	if (noted) {
		hash_del(&noted->by_bio);
		noted->wait.split = wait->split;
		hash_add(qasio_by_bio, &noted->by_bio,
			 (unsigned long)wait->split);
	}
	spin_unlock(&qasio_table_lock);
}

/**
 * qasio_note_searched() - let who waits next for the file know of a search
 * @wait: the wait that is for all of a file, and was looked for in all queues
 */
void qasio_note_searched(const struct qasio_wait *wait)
{
	struct qasio_noted *noted;

	spin_lock(&qasio_table_lock);
	noted = qasio_noted_as(wait);
	if (noted)
		noted->wait.searched = true;
	spin_unlock(&qasio_table_lock);
}

/**
 * qasio_forget_wait() - no request to come will be waited for any more
 * @wait: the wait
 */
void qasio_forget_wait(const struct qasio_wait *wait)
{
	struct qasio_noted *noted;

	spin_lock(&qasio_table_lock);
	noted = qasio_noted_as(wait);
	if (noted)
		qasio_drop(noted);
	spin_unlock(&qasio_table_lock);
}

/*
 * Looking up
 */

/**
 * qasio_waits_pending() - whether a new request may be waited for
 *
 * Context: Any, with qasio_queue::lock held, for the reason at the head of boost.c.
 */
bool qasio_waits_pending(void)
{
	return READ_ONCE(qasio_noted);
}

/* A wait for any memory that @bio writes. */
static struct qasio_noted *qasio_for_any_memory(struct bio *bio)
{
	struct bvec_iter iter;
	struct bio_vec vec;

	bio_for_each_segment(vec, bio, iter) {
		const struct folio *folio = page_folio(vec.bv_page);
		phys_addr_t start = page_to_phys(vec.bv_page) + vec.bv_offset;
		struct qasio_noted *noted;

		noted = qasio_for_memory(folio, start, start + vec.bv_len);
		if (noted)
			return noted;
	}
	return NULL;
}

static enum qasio_match qasio_find_for_bio(struct bio *bio,
					   struct qasio_noted **found)
{
	const void *mapping = qasio_about(bio);
	struct qasio_noted *whole = qasio_for_whole(mapping);
	const void *split = qasio_split_from(bio);

	if (whole || qasio_mixed || qasio_for_part(mapping)) {
		*found = qasio_for_any_memory(bio);
		if (*found)
			return QASIO_MATCH;
	}
	*found = split ? qasio_for_bio(split) : NULL;
	if (*found)
		return QASIO_SAME_BIO;
	*found = whole;
	return whole ? QASIO_SAME_FILE : QASIO_NO_MATCH;
}

/**
 * qasio_find_wait() - look for a wait that a new request belongs to
 * @rq: the request, not yet dispatched
 * @only: the one of its bios to look at, or NULL for all
 * @wait: the wait, if there is one
 */
enum qasio_match qasio_find_wait(struct request *rq, struct bio *only,
				 struct qasio_wait *wait)
{
	enum qasio_match best = QASIO_NO_MATCH;
	struct bio *bio;

	if (req_op(rq) != REQ_OP_WRITE)
		return best;
	spin_lock(&qasio_table_lock);
	qasio_drop_expired();
	__rq_for_each_bio(bio, rq) {
		struct qasio_noted *noted;
		enum qasio_match match;

		if (!bio_has_data(bio) || (only && bio != only))
			continue;
		match = qasio_find_for_bio(bio, &noted);
		if (match <= best)
			continue;
		best = match;
		*wait = noted->wait;
		if (match == QASIO_MATCH) {
			wait->split = qasio_split_from(bio);
			break;
		}
	}
	spin_unlock(&qasio_table_lock);
	return best;
}
