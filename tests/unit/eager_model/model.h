/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Eager syncing's rules S, W, F, T and X (docs/eager-design.md) as a state
 * machine: two files of a page each, two blocks, jbd2's log, a device with a
 * volatile cache. eager_model.c is what may happen next, eager_search.c looks
 * for a way to a broken promise.
 *
 * Not in it: errors, a full log, credits, sizes inside a block but for shrinking,
 * more than a page of a file, defer, what a mark is made for (a transaction that
 * converts or has ordered data has stock's barriers), the checkpoint of metadata.
 *
 * What a page, a block or a copy in the log holds is a tag: a file and a rank
 * in that file's history. Each write and each emptying has a rank of its own.
 * Ranks and tids are renumbered after each step (eager_search.c), so that
 * states that differ in nothing else are one.
 */
#ifndef _MODEL_H
#define _MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint64_t u64;

#define FILES		2
#define BLOCKS		2
#define ACTORS		2	/* syncs at a time */
#define SLOTS		8	/* transactions in the log */
#define TAIL		2	/* the tid that the tail has between steps; 1 is any before it */
#define RANKS		8	/* 0: junk, or older than what was promised */
#define UNLIMITED	255

/*
 * The rule that each breaks, or the place. The last four are ways to read the
 * design that break it: they look like it, and lose something.
 */
#define FAULTS(X)							\
	X(TAIL_IGNORES_FLOOR)		/* T */				\
	X(SETTLE_SKIPS_PLACES)						\
	X(SETTLE_DOES_NOT_WAIT)						\
	X(SETTLE_SKIPS_FLUSH)						\
	X(SETTLE_ERASES_EARLY)		/* before the superblock */	\
	X(SETTLE_ERASES_NEWER)						\
	X(SETTLE_SKIPS_COMMIT)		/* step 3 */			\
	X(WRITEBACK_CLEANS)		/* W */				\
	X(SYNCFS_SKIPS_SETTLE)						\
	X(SETTLE_JOINED_LATE)		/* one that began before */	\
	X(PLACED_NOT_LOGGED)		/* S */				\
	X(LOGGED_STAYS)			/* after a change */		\
	X(FREE_WITHOUT_REVOKE)		/* F */				\
	X(REVOKE_LATER)			/* in the next handle */	\
	X(REUSED_BEFORE_COMMIT)						\
	X(DIRECT_WITHOUT_HOLD)		/* X */				\
	X(ZERO_WITHOUT_HOLD)						\
	X(SHRINK_WITHOUT_HOLD)						\
	X(MOVE_WITHOUT_HOLD)						\
	X(HOLD_FORGETS_EVICTED)		/* no "born" */			\
	X(ALLOCATED_WITHOUT_COPY)					\
	X(MUTEX_DROPPED_EARLY)		/* before the page is queued */	\
	X(UNLOCKED_BEFORE_WAIT)						\
	X(WINDOW_LOST)			/* dropped at the end */	\
	X(FREEZE_SKIPS_STEP_7)						\
	X(SYNCFS_PASSES_SETTLING)	/* which has cleared "kept" */	\
	X(REDIRTIED_NOT_WAITED)		/* by a sync in its step 4 */	\
	X(HOLD_STILL_LOGS)		/* what is left in 3b */	\
	X(LISTED_BY_LOGGING_ALONE)	/* not by rule W */

/* How often each may happen, beside what follows by itself. */
#define BUDGETS(X)							\
	X(WRITES) X(FLUSHER) X(FSYNCS) X(SYNCFS) X(FREEZES) X(SETTLES)	\
	X(TRUNCATES) X(DIRECTS) X(ZEROES) X(SHRINKS) X(MOVES) X(EVICTS)	\
	X(SECOND_FILE)	/* if 0, none is written but the first */

/* name, arguments, words */
#define OPS(X)								\
	X(WRITE, 2, "write")						\
	X(SUBMIT, 4, "flusher sends")					\
	X(COMPLETE, 2, "write-back ends")				\
	X(FSYNC, 6, "fsync begins")					\
	X(SYNC, 1, "sync begins")					\
	X(FREEZE, 1, "freeze begins")					\
	X(PROCEED, 8, "goes on")					\
	X(LOCK, 1, "commit: locked")					\
	X(ORDER, 2, "commit: ordered data")				\
	X(LOG, 2, "commit: log written")				\
	X(FLUSH, 1, "commit: flushed")					\
	X(COMMITTED, 1, "commit: ended")				\
	X(SETTLE, 1, "settling begins")					\
	X(SETTLING, 2, "settling,")				\
	X(TRUNCATE, 2, "truncate or unlink: size and orphan")		\
	X(DIRECT, 2, "O_DIRECT write begins")				\
	X(ZERO, 2, "zero range begins")					\
	X(SHRINK, 2, "shrink inside the block and grow begin")		\
	X(MOVE, 2, "MOVE_EXT begins")					\
	X(CHANGE, 2, "the change goes on")				\
	X(EVICT, 2, "evict and read again")

#define FAULT(name)	FAULT_##name,
#define BUDGET(name)	name,
#define OP(name, arguments, words)	OP_##name,
enum { FAULTS(FAULT) NR_FAULTS };
enum { BUDGETS(BUDGET) NR_BUDGETS };
enum { OPS(OP) NR_OPS };

/* What recovery finds of an inode. */
struct image {
	u8 block;		/* from 1; 0: none */
	u8 unwritten;
	u8 orphan;		/* of size 0; the block is freed by recovery */
	u8 least;		/* what it shows has at least this rank */
};

struct file {
	u8 newest, promised;
	u8 scrap;		/* a donor's data counts for nothing before this */
	u8 dirty, logged;	/* the page; it holds what is newest */
	u8 window;		/* changed since the last sync looked */
	u8 flight;		/* the rank that is being written */
	u8 sync_tid;
	u8 last_tid;		/* 0: not on the list of what is to be settled */
	u8 born;
	u8 hold;
	u8 change, change_pc, change_wait, change_block;
	struct image mem, locked, durable;
};

struct block {
	u16 maybe;		/* tags that a power cut may leave */
	u8 now;			/* what a read returns */
	u8 entry;		/* tid of the newest copy in the log */
	u8 freeing;		/* tid that frees it */
	u8 copied, revoked;	/* transactions, a bit each */
	u8 copy[SLOTS];		/* tags in the log */
};

struct actor {
	u8 what;		/* 1, 2: fsync of a file; then: sync, freeze */
	u8 pc, want, late, wait;
	u8 target[FILES];
};

struct state {
	struct file file[FILES];
	struct block block[BLOCKS];
	struct actor actor[ACTORS];
	u8 running, tail;
	u8 handles, marked, ordered;	/* of the running transaction */
	u8 commit, commit_tail, commit_marked, order_todo, order_wait;
	u8 recorded;			/* transactions with data, a bit each */
	u8 settle, settle_tid, settled, settle_tail;
	u8 settle_todo, settle_wait, settle_kept;
	u8 kept, frozen;
	u8 unclean;			/* frozen with a dirty page */
	u8 left[NR_BUDGETS];
};

/* Who changes a file, one at a time. */
enum { CHANGE_TRUNCATE = 1, CHANGE_DIRECT, CHANGE_ZERO, CHANGE_SHRINK, CHANGE_MOVE,
	CHANGE_DONOR };
enum { WHAT_SYNC = FILES + 1, WHAT_FREEZE };
enum { COMMIT_IDLE, COMMIT_LOCKED, COMMIT_LOGGED, COMMIT_FLUSHED };
enum { WAIT_DONE, WAIT_BEGUN, WAIT_ASKED };

extern u64 faults;
extern const u8 op_arguments[];

#define FAULTY(name)	(faults >> FAULT_##name & 1)

static inline u8 tag_of(int f, u8 rank)
{
	return rank ? f * RANKS + rank : 0;
}

static inline u8 committed(const struct state *s)
{
	return s->running - (s->commit ? 2 : 1);
}

bool model_step(struct state *s, int op, int arg);

/* step.c */
struct block *block_of(struct state *s, const struct file *file);
u8 entry_of(struct state *s, const struct file *file);
bool spend(struct state *s, int budget);
u8 allocate(const struct state *s, int wish);
void log_inode(struct state *s, struct file *file);
void device_flush(struct state *s);
bool changed(struct state *s, const struct file *file);
bool change_page(struct state *s, int f);
void drop_page(struct file *file);
bool submit(struct state *s, int f, int wish);

/* sync.c */
bool fsync_begin(struct state *s, int f, int how);
bool sync_all_begin(struct state *s, u8 what);
bool sync_goes_on(struct state *s, int i, int arg);

/* journal.c */
bool commit_lock(struct state *s);
bool commit_order(struct state *s, int f);
bool commit_log(struct state *s, int moves_tail);
bool commit_flush(struct state *s);
bool commit_end(struct state *s);
bool settle_begin(struct state *s);
bool settle_goes_on(struct state *s, int arg);

/* change.c */
bool truncate_begin(struct state *s, int f);
bool change_begin(struct state *s, int f, u8 kind, int budget);
bool change_goes_on(struct state *s, int f);

/* same.c */
void renumber(struct state *s);
void exchange(struct state *s);

#endif
