// SPDX-License-Identifier: GPL-2.0
/*
 * What kernel/ext4/mtime_durable.c and mtime_sync.c need of the kernel, for userspace; and a way to
 * drive them. Wherever they read what is not under their lock, another_cpu() may run.
 */
#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef int64_t s64;
typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
typedef uint32_t tid_t;
typedef s64 ktime_t;
typedef struct { int counter; } atomic_t;
struct list_head { struct list_head *next, *prev; };

static void another_cpu(void);

#define READ_ONCE(x)		(another_cpu(), (x))
#define WRITE_ONCE(x, value)	((x) = (value))
#define smp_load_acquire(p)	READ_ONCE(*(p))
#define smp_rmb()		another_cpu()
#define S64_MIN			INT64_MIN
#define is_handle_aborted(h)	(!(h)->h_transaction)
#define NSEC_PER_MSEC		1000000L
#define min_t(type, a, b)	((type)(a) < (type)(b) ? (type)(a) : (type)(b))
#define likely(x)		(x)
#define unlikely(x)		(x)
#define lockdep_assert_held(l)	((void)(l))
#define spin_lock(l)		((void)(l))
#define spin_unlock(l)		((void)(l))
#define atomic_read(a)		((a)->counter)
#define wait_event(q, done)	((void)(q), (void)(done))
#define percpu_counter_inc(c)	((c)->count++)
#define msecs_to_jiffies(ms)	(ms)
#define tid_geq(a, b)		((int32_t)((a) - (b)) >= 0)
#define tid_gt(a, b)		((int32_t)((a) - (b)) > 0)
#define JBD2_ABORT		1
#define JBD2_FAST_COMMIT_ONGOING 2
#define EXT4_SB(sb)		(sb)
#define EXT4_I(inode)		(&(inode)->info)
#define EXT4_STATE_MTIME_SKIPPED 1
#define ext4_test_inode_state(inode, bit)	((inode)->info.skipped)
#define ext4_clear_inode_state(inode, bit)	((inode)->info.skipped = false)
#define JOURNAL_FAST_COMMIT	0
#define test_opt2(sb, option)	((sb)->fast_commit)
#define trace_ext4_mtime_saved(inode, tid, reason)		((void)(reason))
#define trace_ext4_mtime_wait(inode, tid, datasync, reason)	((void)(reason))

typedef struct {
	tid_t j_commit_sequence;
	int j_flags, j_fc_wait;
} journal_t;
typedef struct { tid_t t_tid; } transaction_t;
typedef struct { transaction_t *h_transaction; } handle_t;
struct percpu_counter { long count; };
typedef int spinlock_t;
typedef int wait_queue_head_t;

struct block_device;
struct bio { int opaque; };

#include "mtime.h"

struct super_block {
	journal_t *s_journal;
	void *s_bdev;
	atomic_t s_fc_subtid;
	bool fast_commit;
	struct ext4_mtime_sb s_mtime;
};

struct ext4_inode_info {
	int i_raw_lock;
	bool skipped;
	tid_t i_sync_tid, i_datasync_tid;
	struct ext4_mtime_inode i_mtime_info;
};

struct inode {
	struct super_block *i_sb;
	struct ext4_inode_info info;
};

struct ext4_inode {
	struct ext4_mtime_stamps stamps;
};

/* In place of mtime_compat.h: is eager_sync in force? */
static bool has_bursts;

static bool ext4_mtime_has_bursts(struct super_block *sb)
{
	return has_bursts;
}

static void ext4_mtime_get_stamps(struct inode *inode,
				  const struct ext4_inode *raw,
				  struct ext4_mtime_stamps *stamps)
{
	*stamps = raw->stamps;
}

static s64 clock_ns;

static s64 ktime_get_real_ns(void)
{
	return clock_ns;
}

static u64 ktime_get_ns(void)
{
	return clock_ns;
}

/* The device, and what the carrier knows of everybody's flushes. */
static int flush_err, counted_err;

static bool bdev_write_cache(void *bdev)
{
	return true;
}
static int blkdev_issue_flush(void *bdev)
{
	return flush_err;
}

static void jbd2_journal_abort(journal_t *journal, int err)
{
	journal->j_flags |= JBD2_ABORT;
}

#include "mtime_durable.c"
#include "mtime_sync.c"

void jbd2_carrier_start_commit(struct jbd2_carrier *carrier, tid_t tid,
			       unsigned long patience)
{
}

int jbd2_carrier_flush_device(struct jbd2_carrier *carrier,
			      struct block_device *bdev, bool aborts,
			      bool relies)
{
	return blkdev_issue_flush(bdev) ?: relies ? counted_err : 0;
}

/* Where flushes count, and nothing was committed. */
int jbd2_carrier_check_abort(journal_t *journal)
{
	return journal->j_flags & JBD2_ABORT ? -EIO : 0;
}

/* One task at a time: none shares a flush (mtime_group.c). */
int ext4_mtime_group_flush(struct super_block *sb, bool aborts)
{
	return jbd2_carrier_flush_device(ext4_mtime_carrier(sb), sb->s_bdev, aborts, true);
}

static journal_t journal;
static struct super_block sb = { .s_journal = &journal };
static struct inode inode = { .i_sb = &sb };

void reset(tid_t committed)
{
	journal.j_commit_sequence = committed;
	ext4_mtime_init_inode(&inode.info);
}

void commit(tid_t tid)
{
	journal.j_commit_sequence = tid;
}

static void log_inode(tid_t tid, s64 atime_ns, s64 mtime_ns, s64 ctime_ns,
		      bool stamps_only)
{
	transaction_t transaction = { .t_tid = tid };
	handle_t handle = { .h_transaction = &transaction };
	struct ext4_inode raw = { .stamps = { atime_ns, mtime_ns, ctime_ns } };

	if (stamps_only || ext4_mtime_takes_note(&inode))
		ext4_mtime_note_logged(&handle, &inode, &raw);
}

void log_stamps(tid_t tid, s64 atime_ns, s64 mtime_ns, s64 ctime_ns)
{
	log_inode(tid, atime_ns, mtime_ns, ctime_ns, true);
}

/* A handle that has lost its transaction when it fills the inode. */
void log_aborted(void)
{
	handle_t handle = {};
	struct ext4_inode raw = {};

	ext4_mtime_note_logged(&handle, &inode, &raw);
}

bool on_record(void)
{
	return ext4_mtime_on_record(&inode.info.i_mtime_info);
}

/* An fsync has chosen: what was logged last, or what is being committed. */
static struct ext4_mtime_sync chosen;

void choose(bool committing)
{
	struct ext4_mtime_inode *mi = &inode.info.i_mtime_info;

	ext4_mtime_settle(&inode, mi);
	chosen.stamps = mi->logged;
	chosen.logged_tid = mi->logged_tid;
	chosen.other_atime = false;
	if (committing) {
		chosen.stamps = ext4_mtime_stamps_of(&mi->logged,
						     &mi->committing);
		chosen.other_atime = mi->committing.atime;
	}
}

void end_sync(void)
{
	ext4_mtime_note_durable(&inode.info.i_mtime_info, &chosen);
}

/* known, mtime, ctime, has atime changed, is it pending */
static void show(const struct ext4_mtime_behind *behind, s64 *out)
{
	const struct ext4_mtime_inode *mi = &inode.info.i_mtime_info;
	struct ext4_mtime_stamps stamps = {};

	out[0] = ext4_mtime_known(behind);
	if (out[0])
		stamps = ext4_mtime_stamps_of(&mi->logged, behind);
	out[1] = stamps.mtime_ns;
	out[2] = stamps.ctime_ns;
	out[3] = behind->atime;
	out[4] = behind->pending;
}

void look(s64 *durable, s64 *committing)
{
	ext4_mtime_settle(&inode, &inode.info.i_mtime_info);
	show(&inode.info.i_mtime_info.durable, durable);
	show(&inode.info.i_mtime_info.committing, committing);
}

bool younger(bool committing, s64 now_ns, s64 age_ns)
{
	const struct ext4_mtime_inode *mi = &inode.info.i_mtime_info;

	return ext4_mtime_younger(mi, committing ? &mi->committing :
				  &mi->durable, now_ns, age_ns);
}
