// SPDX-License-Identifier: GPL-2.0
/*
 * What kernel/jbd2/burst_cost.c and burst_short.c need of the kernel, for userspace. There is
 * one journal, and the clock is the caller's.
 */
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

typedef int64_t s64;
typedef uint64_t u64;
typedef unsigned int tid_t;
typedef struct journal_s journal_t;
typedef struct transaction_s transaction_t;
typedef int spinlock_t;

struct journal_s {
	tid_t j_commit_request, j_commit_sequence;
	transaction_t *j_committing_transaction;
};

struct transaction_s {
	journal_t *t_journal;
	tid_t t_tid;
	int t_nr_buffers;
	int t_updates;
};

struct jbd2_burst {
	spinlock_t lock;
	tid_t data_tids[2];
	tid_t synced_tid;
	s64 synced_ns, group_ns, gap_ns, due_ns, until_ns;
	tid_t cut_tid;
	s64 block_ns, flush_ns;
	unsigned int worth, enough;
	struct { u64 cut; } stats;
};

static struct jbd2_burst the_burst;
static journal_t the_journal;
static transaction_t the_other;
static s64 the_time;

static struct jbd2_burst *jbd2_burst_of(journal_t *journal)
{
	(void)journal;
	return &the_burst;
}

static s64 div_s64(s64 dividend, int divisor) { return dividend / divisor; }
static s64 div64_s64(s64 dividend, s64 divisor) { return dividend / divisor; }
static s64 ktime_get(void) { return the_time; }
static bool tid_gt(tid_t x, tid_t y) { return (int)(x - y) > 0; }
static bool tid_geq(tid_t x, tid_t y) { return (int)(x - y) >= 0; }
static void spin_lock(spinlock_t *lock) { (void)lock; }
static void spin_unlock(spinlock_t *lock) { (void)lock; }
static void trace_jbd2_burst_cut(journal_t *journal, tid_t tid, unsigned int blocks,
				 unsigned int enough)
{
	(void)journal, (void)tid, (void)blocks, (void)enough;
}

#define NSEC_PER_SEC		1000000000L
#define S64_MAX			INT64_MAX
#define atomic_read(x)		(*(x))
#define READ_ONCE(x)		(x)
#define WRITE_ONCE(x, value)	((x) = (value))
#define data_race(x)		(x)
#define min(a, b)		((a) < (b) ? (a) : (b))
#define max(a, b)		((a) > (b) ? (a) : (b))
#define clamp_t(type, x, low, high) \
	((type)(x) < (type)(low) ? (type)(low) : (type)(x) > (type)(high) ? (type)(high) : (type)(x))
#define EXPORT_SYMBOL(name)

s64 jbd2_burst_average(s64 before, s64 now, int rise, int fall);

#include "burst_cost.c"
#include "burst_short.c"

/* What a flush and a block take; of no blocks nothing is known. */
void begin(s64 flush_ns, s64 block_ns, unsigned int blocks)
{
	the_burst = (struct jbd2_burst) {
		.flush_ns = flush_ns, .block_ns = block_ns, .enough = blocks
	};
	the_journal = (journal_t) {};
	the_time = 1000000000;
}

void set_flush_ns(s64 ns) { the_burst.flush_ns = ns; }
void forget(void) { the_burst = (struct jbd2_burst) {}; }
unsigned int enough(void) { return the_burst.enough; }
void pass_ns(s64 ns) { the_time += ns; }
void sync_tid(tid_t tid) { jbd2_burst_add_sync(&the_journal, tid); }
void ask(tid_t tid) { the_journal.j_commit_request = tid; }
void commit(bool under_way) { the_journal.j_committing_transaction = under_way ? &the_other : 0; }
void end_commit(tid_t tid) { the_journal.j_commit_sequence = tid; }
void log_data(tid_t tid) { the_burst.data_tids[tid & 1] = tid; }
bool expects(void) { return jbd2_burst_has_syncs(&the_journal); }

bool cuts(tid_t tid, int blocks, int handles)
{
	transaction_t transaction = { &the_journal, tid, blocks, handles };

	return jbd2_burst_has_enough(&transaction);
}

bool is_cut(tid_t tid) { return jbd2_burst_is_cut(&the_burst, tid); }
