/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Eager syncing's data in the log (kernel/ext4/eager_log.c, docs/eager.md) as a
 * state machine: two files of a page each, two blocks, jbd2's log, a device with a
 * volatile cache. step.c is what may happen next, search.c looks for a way to a
 * broken promise.
 *
 *   sync.c	eager_sync.c, and ext4_eager_sync_fs()
 *   journal.c	jbd2's commits, burst_tail.c, eager_settle.c
 *   change.c	eager_hold.c
 *   step.c	pages, write-back, eager_inode.c's eviction
 *
 * Not in it: errors, a full log, credits, sizes inside a block but for shrinking,
 * more than a page of a file, defer, what a mark is made for (a transaction that
 * converts or has ordered data has stock's barriers), the checkpoint of metadata,
 * files that were mapped for writing. Settlings that nobody waits for begin at any
 * time: the timer's and ext4_eager_settle_soon()'s.
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
#define RANKS		8	/* 0: older than what was promised */
#define JUNK		RANKS	/* a tag: what nobody of these has written */
#define UNLIMITED	255

/* The rule that each breaks (kernel/ext4/eager_log.c), or the place. */
#define FAULTS(X)							\
	X(TAIL_IGNORES_FLOOR)		/* Tail */			\
	X(SETTLE_DROPS_BOTH_FLOORS)					\
	X(SETTLE_SKIPS_PLACES)						\
	X(SETTLE_DOES_NOT_WAIT)						\
	X(SETTLE_SKIPS_FLUSH)						\
	X(SETTLE_SKIPS_COMMIT)		/* the second */		\
	X(SETTLE_FORGETS_EARLY)		/* before the superblock */	\
	X(SETTLE_FORGETS_NEWER)						\
	X(SETTLE_UNLISTS_NEWER)						\
	X(COPIED_TAKEN_LATE)		/* when all is written */	\
	X(SETTLE_JOINED_LATE)		/* one that began before */	\
	X(WRITEBACK_CLEANS)		/* Write-back */		\
	X(KEPT_BY_RUNNING)		/* the number of the one that runs */ \
	X(KEPT_GOES_BACK)		/* when a settling begins */	\
	X(SYNCFS_SKIPS_SETTLE)						\
	X(FREEZE_SKIPS_SECOND_PASS)					\
	X(SECOND_PASS_IF_UNSETTLED)	/* only */			\
	X(PLACED_NOT_SETTLED)		/* Sync */			\
	X(OVERWRITE_NOT_LOOKED)		/* no look for copies */	\
	X(LOOK_WITHOUT_MUTEX)		/* may_be_undone */		\
	X(WINDOW_LOST)			/* dropped at the end */	\
	X(WINDOW_NOT_GIVEN_BACK)					\
	X(LOGGED_STAYS)			/* after a change */		\
	X(MUTEX_DROPPED_EARLY)		/* before the page is queued */	\
	X(UNLOCKED_BEFORE_WAIT)						\
	X(REDIRTIED_NOT_WAITED)		/* of the window */		\
	X(ALLOCATED_WITHOUT_COPY)					\
	X(FIRST_SYNC_SKIPS_SETTLE)	/* of what was read again */	\
	X(GONE_FORGOTTEN)		/* at eviction */		\
	X(EVICTED_NOT_IN_PLACE)						\
	X(FREE_WITHOUT_REVOKE)		/* Free */			\
	X(REVOKE_LATER)			/* in the next handle */	\
	X(REUSED_BEFORE_COMMIT)						\
	X(DIRECT_WITHOUT_HOLD)		/* Exclusion */			\
	X(ZERO_WITHOUT_HOLD)						\
	X(SHRINK_WITHOUT_HOLD)						\
	X(CUT_WITHOUT_HOLD)						\
	X(CUT_NOT_IN_PLACE)						\
	X(MOVE_WITHOUT_HOLD)						\
	X(HOLD_SKIPS_MUTEX)						\
	X(HOLD_STILL_LOGS)

/* How often each may happen, beside what follows by itself. */
#define BUDGETS(X)							\
	X(WRITES) X(FLUSHER) X(FSYNCS) X(SYNCFS) X(FREEZES) X(SETTLES)	\
	X(TRUNCATES) X(CUTS) X(DIRECTS) X(ZEROES) X(SHRINKS) X(MOVES)	\
	X(EVICTS)							\
	X(SECOND_FILE)	/* if 0, none is written but the first */

/* name, arguments, words */
#define OPS(X)								\
	X(WRITE, 2, "write")						\
	X(SUBMIT, 4, "flusher sends")					\
	X(COMPLETE, 2, "write-back ends")				\
	X(FSYNC, 4, "fsync begins")					\
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
	X(CUT, 2, "truncate begins")					\
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
	u8 orphan;		/* of size 0; the block is freed by recovery, or see HAS_NAME */
	u8 least;		/* what it shows has at least this rank */
};

struct file {
	u8 newest, promised;
	u8 scrap;		/* a donor's data counts for nothing before this */
	u8 dirty, logged;	/* the page; it holds what is newest */
	u8 window;		/* changed since the last sync looked */
	u8 flight;		/* the rank that is being written */
	u8 sync_tid;
	u8 eager;		/* i_eager */
	u8 gen;			/* i_eager_gen, see settle_ask() */
	u8 gone;		/* kept of it when it was evicted */
	u8 listed, copied;	/* for settling */
	u8 never;		/* EXT4_STATE_EAGER_NEVER */
	u8 change, change_pc, change_wait, change_block, change_held;
	struct image mem, locked, durable;
};

struct block {
	u16 maybe;		/* tags that a power cut may leave */
	u8 now;			/* what a read returns */
	u8 entry;		/* tid of the latest copy in the log, if known */
	u8 freeing;		/* tid that frees it */
	u8 copied, revoked;	/* transactions, a bit each */
	u8 copy[SLOTS];		/* tags in the log */
};

struct actor {
	u8 what;		/* 1, 2: fsync of a file; then: sync, freeze */
	u8 pc, want, late;
	u8 wait;		/* for a settling, see settle_ask() */
	u8 target[FILES];
};

struct state {
	struct file file[FILES];
	struct block block[BLOCKS];
	struct actor actor[ACTORS];
	u8 running, tail;
	u8 handles, marked, ordered;	/* of the running transaction */
	u8 commit, commit_tail, commit_marked, order_todo, order_wait;
	u8 floor, next_floor, last_data;
	u8 settle, settle_tid, settle_last, settle_tail;
	u8 settle_todo, settle_wait;
	u8 kept, frozen;
	u8 again;			/* what was kept is not clean yet */
	u8 unclean;			/* frozen with a dirty page */
	u8 left[NR_BUDGETS];
};

/* Who changes a file, one at a time. */
enum { CHANGE_TRUNCATE = 1, CHANGE_DIRECT, CHANGE_ZERO, CHANGE_SHRINK, CHANGE_MOVE,
	CHANGE_DONOR, CHANGE_CUT };
/* Of an orphan: recovery that does not heed it leaves the block behind the file's end. */
#define HAS_NAME	2
enum { WHAT_SYNC = FILES + 1, WHAT_FREEZE };
enum { COMMIT_IDLE, COMMIT_LOCKED, COMMIT_LOGGED, COMMIT_FLUSHED };
enum { FREEZING = 1, FROZEN };
enum { AGAIN = 1, AGAIN_BEGUN };

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
u8 entry_of(const struct state *s, const struct file *file);
bool spend(struct state *s, int budget);
u8 allocate(const struct state *s, int wish);
void log_inode(struct state *s, struct file *file);
void device_flush(struct state *s);
bool changed(const struct state *s, const struct file *file);
bool change_page(struct state *s, int f);
void drop_page(struct file *file);
bool submit(struct state *s, int f, int wish);

/* sync.c */
bool mutex_is_free(const struct state *s, int f);
bool fsync_begin(struct state *s, int f, int large);
bool sync_all_begin(struct state *s, u8 what);
bool sync_goes_on(struct state *s, int i, int arg);

/* journal.c */
bool commit_lock(struct state *s);
bool commit_order(struct state *s, int f);
bool commit_log(struct state *s, int moves_tail);
bool commit_flush(struct state *s);
bool commit_end(struct state *s);
u8 settle_ask(const struct state *s);
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
