/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Burst commits: what jbd2 and its users call. The idea is in burst.c.
 */
#ifndef _JBD2_BURST_H
#define _JBD2_BURST_H

#include <linux/jbd2.h>

/* What a transaction may expose without its being durable. */
enum jbd2_burst_reason {
	JBD2_BURST_ORDERED,	/* data that is written in place for it */
	JBD2_BURST_ALLOCATED,	/* blocks that can be read once it is replayed */
	JBD2_BURST_CONVERTED,	/* unwritten ones, whose data has been written */
	JBD2_BURST_ZEROED,	/* zeroes that have been written outside the log */
	JBD2_BURST_GROWN,	/* what lies below a larger size of a file */
	JBD2_BURST_MOVED,	/* another file's blocks, or at another place */
	JBD2_BURST_VERITY,	/* a Merkle tree */
	JBD2_BURST_NUMBER_0,	/* recovery would replay it, torn or not */
	JBD2_BURST_REASONS,
};

/* A small burst has a descriptor and a record; a third is for what it revokes. */
#define JBD2_BURST_BUFFERS	3

/* A transaction that needs barriers. */
struct jbd2_burst_mark {
	tid_t		tid;
	unsigned int	reasons;	/* a bit each; 0: it exposes nothing */
	bool		open;		/* writes may be still to come */
	u64		begun;		/* the last flush, at the last event */
	u64		failed;		/* how many had failed at the first one */
};

/* The first transaction whose data may not be in its place (burst_tail.c). */
struct jbd2_burst_floor {
	bool		is_set;
	tid_t		tid;
	unsigned long	block;		/* of the log, where it starts */
};

/* Those that wait for a transaction (burst_gather.c). */
struct jbd2_burst_waiters {
	tid_t		tid;
	unsigned int	nr;
};

/* Blocks of the log that lie one behind the other on the device (burst_block.c). */
struct jbd2_burst_run {
	unsigned long		block;		/* the first */
	unsigned long		len;
	unsigned long long	place;		/* of the first */
};

/* For whoever asks: is it of use, and if not, why? */
struct jbd2_burst_stats {
	u64	bursts;			/* each saves a flush */
	u64	blocks;			/* of the log, in bursts */
	u64	covered;		/* bursts whose marks a flush has settled */
	u64	barriers;		/* commits that had them */
	u64	by_reason[JBD2_BURST_REASONS];
	u64	joined;			/* waiters that a burst has waited for */
	u64	join_ns;		/* how long bursts have, in all */
	u64	cut;			/* transactions, so as to be short; by lock */
};

/* Of a journal; beside it, as the carrier is. */
struct jbd2_burst {
	bool			on;
	bool			jumped;	/* the sequence has, in this mount */
	bool			left;	/* a crash has left the features behind */

	/* The features that the superblock shows while the log is empty. */
	u32			compat;
	u32			incompat;
	struct crypto_shash	*driver;

	spinlock_t		lock;	/* of marks, waiters, expected and syncs */
	struct jbd2_burst_mark	marks[2]; /* running and committing, by parity */
	struct jbd2_burst_waiters waiters[2]; /* likewise */
	unsigned int		expected; /* waiters for the next burst */
	wait_queue_head_t	wait;	/* for as many */

	/* Of syncs (burst_short.c); times are those of ktime_get(). */
	tid_t			synced_tid; /* the last that one has named */
	s64			synced_ns; /* when */
	s64			group_ns; /* when the last group began */
	s64			gap_ns;	/* between groups of them: a moving average */
	s64			due_ns;	/* from when on a transaction may be cut, ... */
	s64			until_ns; /* ... and until when */
	tid_t			cut_tid; /* the last that was */

	tid_t			data_tids[2]; /* transactions with data, too */

	/* By j_list_lock. */
	struct jbd2_burst_floor	floor;	/* of what is being settled, or is to be */
	struct jbd2_burst_floor	next_floor; /* of what has come since */
	tid_t			last_data_tid;

	int (*settle)(journal_t *journal); /* the file system's */
	unsigned int		flushes; /* of bursts, begun: settling keeps step */
	wait_queue_head_t	pauses;	/* of settling */

	/* The commit thread's. */
	u64			failed;	/* flushes, when the commit began */
	struct bio		*bio;	/* log blocks that wait for their neighbours */
	bool			cached;	/* one of them may be the page cache's */
	struct buffer_head	*buffers[JBD2_BURST_BUFFERS]; /* of the log's own blocks */
	struct jbd2_burst_run	run;	/* where blocks of the log lie */
	ktime_t			ended;	/* the last burst's flush */
	unsigned int		futile;	/* waits, one behind the other, and ... */
	unsigned int		pause;	/* ... how many chances are to pass now */
	s64			block_ns; /* to write a block of a burst, ... */
	s64			flush_ns; /* ... and to flush: moving averages */
	unsigned int		worth;	/* blocks that take 1 / 2.5 of a flush's time */
	unsigned int		enough;	/* blocks for a transaction; 0: not known */
	struct jbd2_burst_stats	stats;
};

/* A journal_t as it is allocated; carrier.c puts more behind. */
struct jbd2_burst_journal {
	journal_t		journal; /* first, for kfree() */
	struct jbd2_burst	burst;
};

static inline struct jbd2_burst *jbd2_burst_of(journal_t *journal)
{
	return &container_of(journal, struct jbd2_burst_journal, journal)->burst;
}

/* May the journal's commits be bursts? */
static inline bool jbd2_burst_on(journal_t *journal)
{
	return READ_ONCE(jbd2_burst_of(journal)->on);
}

/* For the file system */
void jbd2_burst_add_mark(transaction_t *transaction,
			 enum jbd2_burst_reason reason);
bool jbd2_burst_left(journal_t *journal);
int jbd2_burst_switch(journal_t *journal, bool on);
void jbd2_burst_stats(journal_t *journal, struct jbd2_burst_stats *stats);
unsigned int jbd2_burst_worth(journal_t *journal);
struct buffer_head *jbd2_burst_alloc_buffer(struct block_device *bdev,
					    unsigned int size, gfp_t gfp);
void jbd2_burst_free_buffer(struct buffer_head *bh);
void jbd2_burst_not_worth(journal_t *journal);
bool jbd2_burst_has_syncs(journal_t *journal);
void jbd2_burst_add_sync(journal_t *journal, tid_t tid);

/* burst_tail.c, for the file system */
void jbd2_burst_attach(journal_t *journal, int (*settle)(journal_t *journal));
void jbd2_burst_data(handle_t *handle);
bool jbd2_burst_holds_tail(journal_t *journal);
unsigned long jbd2_burst_held(journal_t *journal);
int jbd2_burst_settle_begin(journal_t *journal, tid_t *tid);
int jbd2_burst_settle_end(journal_t *journal, tid_t tid, const bool *lost);
void jbd2_burst_pause(journal_t *journal, bool (*ends)(journal_t *journal));
void jbd2_burst_end_pause(journal_t *journal);

/* burst_tail.c, for the journal */
void jbd2_burst_set_floor(journal_t *journal, transaction_t *transaction);
void jbd2_burst_limit_tail(journal_t *journal, tid_t *tid, unsigned long *block);
bool jbd2_burst_make_room(journal_t *journal);
int jbd2_burst_empty_log(journal_t *journal);
int jbd2_burst_check_empty(journal_t *journal);
void jbd2_burst_flush_begins(journal_t *journal);

/* For the journal and its commit thread */
void jbd2_burst_loaded(journal_t *journal);
void jbd2_burst_destroy(journal_t *journal);
void jbd2_burst_prepare(journal_t *journal);
blk_opf_t jbd2_burst_sb_flags(journal_t *journal);
bool jbd2_burst_decide(journal_t *journal, tid_t tid);
int jbd2_burst_flush(journal_t *journal, transaction_t *transaction,
		     ktime_t *start_time, int err);
void jbd2_burst_learn(journal_t *journal, unsigned long blocks, s64 write_ns,
		      s64 flush_ns);
void jbd2_burst_add_waiter(journal_t *journal, tid_t tid);
void jbd2_burst_served(journal_t *journal, tid_t tid);
void jbd2_burst_gather(journal_t *journal);
s64 jbd2_burst_average(s64 before, s64 now, int rise, int fall);
bool jbd2_burst_has_enough(transaction_t *transaction);
bool jbd2_burst_is_cut(struct jbd2_burst *burst, tid_t tid);
void jbd2_burst_show_empty(journal_t *journal);
void jbd2_burst_show_log(journal_t *journal);
unsigned int jbd2_burst_revoke_blocks(journal_t *journal, unsigned int revokes);
int jbd2_burst_revoke_space(journal_t *journal, int space);
void jbd2_burst_add(journal_t *journal, struct buffer_head *bh);
void jbd2_burst_send(journal_t *journal);
void jbd2_burst_alloc_buffers(journal_t *journal);
void jbd2_burst_free_buffers(journal_t *journal);
struct buffer_head *jbd2_burst_get_buffer(journal_t *journal,
					  unsigned long long place);
bool jbd2_burst_knows_place(journal_t *journal);
int jbd2_burst_find_place(journal_t *journal, unsigned long block,
			  unsigned long long *place);
bool jbd2_burst_waits_for_record(journal_t *journal, transaction_t *transaction);
bool jbd2_burst_add_record(journal_t *journal, struct buffer_head *bh);
u32 jbd2_burst_crc(u32 sum, const void *data, size_t len);

/*
 * The hooks that jbd2 and ext4 call most: for each commit, handle or block. Where
 * there are no bursts such a hook is a look, and no call.
 */

/**
 * jbd2_burst_mark_transaction - a transaction exposes what may not be durable
 * @transaction: which has not been locked, or has handles
 * @reason: why
 */
static inline void jbd2_burst_mark_transaction(transaction_t *transaction,
					       enum jbd2_burst_reason reason)
{
	if (unlikely(jbd2_burst_on(transaction->t_journal)))
		jbd2_burst_add_mark(transaction, reason);
}

/**
 * jbd2_burst_mark - a handle logs what exposes something that may not be durable
 * @handle: of the file system, in a transaction
 * @reason: why
 */
static inline void jbd2_burst_mark(handle_t *handle,
				   enum jbd2_burst_reason reason)
{
	/* Of an aborted handle, too: its transaction may commit all the same. */
	if (handle->h_transaction)
		jbd2_burst_mark_transaction(handle->h_transaction, reason);
}

/**
 * jbd2_burst_join - somebody waits for a transaction
 * @journal: the journal
 * @tid: the transaction, whose commit has been asked for
 */
static inline void jbd2_burst_join(journal_t *journal, tid_t tid)
{
	if (unlikely(jbd2_burst_on(journal)))
		jbd2_burst_add_waiter(journal, tid);
}

/**
 * jbd2_burst_note_sync - somebody syncs
 * @journal: the journal
 * @tid: the transaction that has to be committed for that, and may have been
 */
static inline void jbd2_burst_note_sync(journal_t *journal, tid_t tid)
{
	if (unlikely(jbd2_burst_on(journal)))
		jbd2_burst_add_sync(journal, tid);
}

/**
 * jbd2_burst_is_enough - is a transaction to be committed, though nobody waits for it?
 * @transaction: in which the caller has a handle that he is about to stop
 */
static inline bool jbd2_burst_is_enough(transaction_t *transaction)
{
	return unlikely(jbd2_burst_on(transaction->t_journal)) &&
	       jbd2_burst_has_enough(transaction);
}

/**
 * jbd2_burst_begin - a commit begins; nothing of it has been sent
 * @journal: the journal
 *
 * Context: the commit thread; may sleep.
 */
static inline void jbd2_burst_begin(journal_t *journal)
{
	if (unlikely(jbd2_burst_on(journal)))
		jbd2_burst_prepare(journal);
}

/**
 * jbd2_burst_log_starts - a transaction becomes the committing one
 * @journal: the journal, j_state_lock held for writing
 * @transaction: which knows where in the log it starts
 */
static inline void jbd2_burst_log_starts(journal_t *journal,
					 transaction_t *transaction)
{
	if (unlikely(jbd2_burst_on(journal)))
		jbd2_burst_set_floor(journal, transaction);
}

/**
 * jbd2_burst_commits_async - may the commit record be sent with the blocks?
 * @journal: the journal
 * @tid: the transaction, being committed, all of its handles stopped
 *
 * Return: where there are no bursts, whether commits are asynchronous.
 */
static inline bool jbd2_burst_commits_async(journal_t *journal, tid_t tid)
{
	if (likely(!jbd2_burst_on(journal)))
		return jbd2_has_feature_async_commit(journal);
	return jbd2_burst_decide(journal, tid);
}

/**
 * jbd2_burst_bmap - where does a block of the log lie?
 * @journal: the journal
 * @block: of the log
 * @place: of its device
 *
 * Return: what jbd2_journal_bmap() does.
 */
static inline int jbd2_burst_bmap(journal_t *journal, unsigned long block,
				  unsigned long long *place)
{
	if (likely(!jbd2_burst_on(journal)))
		return jbd2_journal_bmap(journal, block, place);
	return jbd2_burst_find_place(journal, block, place);
}

/**
 * jbd2_burst_getblk - the buffer of a block that the journal fills itself
 * @journal: the journal
 * @place: of its device
 *
 * Return: what __getblk() does. Its contents may be any.
 */
static inline struct buffer_head *jbd2_burst_getblk(journal_t *journal,
						    unsigned long long place)
{
	if (likely(!jbd2_burst_on(journal)))
		return __getblk(journal->j_dev, place, journal->j_blocksize);
	return jbd2_burst_get_buffer(journal, place);
}

/**
 * jbd2_burst_submit - have a block of the log written
 * @journal: the journal
 * @bh: the block's buffer, locked and clean; its completion is not used
 *
 * It may wait for its neighbours until jbd2_burst_submit_rest(). Do not sleep before.
 *
 * Return: false if there are no bursts: the caller is to send it.
 */
static inline bool jbd2_burst_submit(journal_t *journal, struct buffer_head *bh)
{
	if (likely(!jbd2_burst_on(journal)))
		return false;
	jbd2_burst_add(journal, bh);
	return true;
}

/**
 * jbd2_burst_submit_rest - send what has waited for its neighbours
 * @journal: the journal
 */
static inline void jbd2_burst_submit_rest(journal_t *journal)
{
	if (unlikely(jbd2_burst_of(journal)->bio))
		jbd2_burst_send(journal);
}

/**
 * jbd2_burst_end_descriptor - all of a descriptor's blocks have been submitted
 * @journal: the journal
 * @transaction: whose they are
 *
 * Those of the last one may wait for the record.
 */
static inline void jbd2_burst_end_descriptor(journal_t *journal,
					     transaction_t *transaction)
{
	if (unlikely(jbd2_burst_of(journal)->bio) &&
	    !jbd2_burst_waits_for_record(journal, transaction))
		jbd2_burst_send(journal);
}

/**
 * jbd2_burst_submit_record - have the record of an asynchronous commit written
 * @journal: the journal
 * @bh: its buffer, locked and clean; its completion is not used
 *
 * Return: false if nothing waits for it: the caller is to send it.
 */
static inline bool jbd2_burst_submit_record(journal_t *journal,
					    struct buffer_head *bh)
{
	return unlikely(jbd2_burst_of(journal)->bio) &&
	       jbd2_burst_add_record(journal, bh);
}

#endif	/* _JBD2_BURST_H */
