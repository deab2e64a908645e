// SPDX-License-Identifier: GPL-2.0
/*
 * One file, its writers and who syncs it, by chance, on a journal that commits whenever it likes; and
 * the medium, which tells whether an fsync has kept its promise.
 *
 * kernel/ext4/mtime_durable.c and mtime_sync.c are compiled as they are. A commit may end wherever
 * they read without a lock. Of two fsyncs at once one may come late to its end.
 */
#include <stdlib.h>
#include <string.h>

#include "mtime_shim.c"

#define STEPS		40
#define INTERVAL_MS	100
#define MS		NSEC_PER_MSEC
#define FIRST_NS	(1000000 * MS)

struct setting {
	int defer;		/* or truncate */
	int utimensat;		/* an mtime of the past and of the future, too */
	int late;		/* an fsync may end late */
	int fast_commit;
	int remount;		/* the option goes off and on */
	int clock_back;		/* the clock is set back by up to 2.5 s */
	int long_ago;		/* 2^31 transactions of others' pass */
	long grain_ns;		/* of stamps */
	u32 first_tid;
};

struct result {
	long fsyncs, commits, broken;
	long first_broken;	/* the seed */
};

/* What a transaction has logged of the file. */
struct logged {
	bool any;
	struct ext4_mtime_stamps stamps;
};

static const struct setting *set;
static struct ext4_mtime_stamps file;	/* in memory */
static struct ext4_mtime_stamps medium;
static struct logged in_running, in_committing;
static tid_t running;
static bool committing;		/* running - 1, which is not on the medium yet */
static bool racing;

static bool chance(int one_in)
{
	return rand() % one_in == 0;
}

static void start_commit(void)
{
	if (committing)
		return;
	committing = true;
	in_committing = in_running;
	in_running.any = false;
	running++;
}

static void end_commit(void)
{
	if (!committing)
		return;
	if (in_committing.any)
		medium = in_committing.stamps;
	in_committing.any = false;
	journal.j_commit_sequence = running - 1;
	committing = false;
}

static void another_cpu(void)
{
	if (racing && chance(4))
		end_commit();
}

static void log_file(bool stamps_only)
{
	struct ext4_inode_info *ei = &inode.info;

	racing = true;
	log_inode(running, file.atime_ns, file.mtime_ns, file.ctime_ns,
		  stamps_only && sb.s_mtime.policy);
	racing = false;
	in_running = (struct logged) { .any = true, .stamps = file };
	ei->i_sync_tid = running;
	if (!stamps_only)
		ei->i_mtime_info.attr_tid = running;
}

static s64 grains(s64 time_ns)
{
	return time_ns / set->grain_ns * set->grain_ns;
}

static void write_file(void)
{
	s64 interval_ns = INTERVAL_MS * MS;
	s64 start_ns = clock_ns / interval_ns * interval_ns;
	s64 now_ns = grains(clock_ns);

	bool stale = false;

	if (set->defer || !sb.s_mtime.policy) {
		file.mtime_ns = now_ns;
		file.ctime_ns = now_ns;
		stale = true;
	} else {
		if (file.mtime_ns / interval_ns != start_ns / interval_ns) {
			file.mtime_ns = grains(start_ns);
			stale = true;
		}
		if (file.ctime_ns < grains(start_ns)) {
			file.ctime_ns = grains(start_ns);
			stale = true;
		}
		inode.info.skipped |= !stale;
	}
	if (stale || !ext4_mtime_is_logged(&inode.info.i_mtime_info,
					   file.mtime_ns, file.ctime_ns))
		log_file(true);
}

static void set_mtime(void)
{
	s64 far_ns = chance(2) ? -(rand() % 4) * 1000 * MS : rand() % 3000 * MS;

	file.mtime_ns = grains(clock_ns + far_ns);
	file.ctime_ns = grains(clock_ns);
	log_file(false);
}

static void read_file(void)
{
	file.atime_ns = grains(clock_ns);
	log_file(true);
}

/* Wait for a transaction, as ext4_fc_commit() does; the number of commits that it took. */
static int wait_for(tid_t tid)
{
	int commits = 0;

	if (sb.fast_commit && tid == running) {
		end_commit();
		if (!in_running.any)
			return 0;
		medium = in_running.stamps;
		return 1;
	}
	if (committing && tid == running - 1) {
		end_commit();
		return 1;
	}
	if (tid != running)
		return 0;
	for (; !tid_geq(journal.j_commit_sequence, tid); commits++) {
		start_commit();
		end_commit();
	}
	return commits;
}

/* A stamp of a moment that has not come: utimensat(2) has set it, or the clock was set back since. */
static bool early(s64 stamp_ns)
{
	return stamp_ns > clock_ns && !set->clock_back;
}

static bool late(s64 left_ns, s64 stamp_ns)
{
	s64 interval_ns = INTERVAL_MS * MS;

	return stamp_ns - left_ns >= interval_ns || clock_ns - left_ns >= interval_ns;
}

/* Would a crash that leaves these stamps break the promise? */
static bool breaks(const struct ext4_mtime_stamps *left)
{
	if (left->mtime_ns == file.mtime_ns && left->ctime_ns == file.ctime_ns)
		return false;
	return !set->defer || early(left->mtime_ns) || early(left->ctime_ns) ||
	       late(left->mtime_ns, file.mtime_ns) ||
	       late(left->ctime_ns, file.ctime_ns);
}

/* An fsync returns: a crash now, or when the commit that is under way has ended. */
static bool broken(void)
{
	return breaks(&medium) ||
	       (in_committing.any && breaks(&in_committing.stamps));
}

/* One that has chosen, and has not come to its end. */
static struct ext4_mtime_sync asleep;
static bool sleeps;

static void fsync_file(struct result *result, long seed)
{
	struct ext4_mtime_sync sync = {};
	bool lost;

	racing = true;
	ext4_mtime_begin_sync(&inode, false, &sync);
	racing = false;
	result->fsyncs++;
	/* jbd2 takes it for one whose commit will flush the data. */
	lost = sync.tid != running && !(committing && sync.tid == running - 1) &&
		!tid_geq(journal.j_commit_sequence, sync.tid);
	result->commits += wait_for(sync.tid);
	if (sync.policy && (lost || broken()) && !result->broken++)
		result->first_broken = seed;
	if (set->late && !sleeps && chance(2)) {
		asleep = sync;
		sleeps = true;
		return;
	}
	ext4_mtime_end_sync(&inode, &sync, 0);
}

static void wake(void)
{
	if (sleeps)
		ext4_mtime_end_sync(&inode, &asleep, 0);
	sleeps = false;
}

static void remount(void)
{
	bool off = sb.s_mtime.policy && set->remount && chance(2);

	sb.s_mtime.policy = off ? 0 :
		INTERVAL_MS | (set->defer ? EXT4_MTIME_DEFER : 0);
}

static bool hopped;

/* As many as make an old tid look new, or nearly so; once in a run. */
static void let_others_commit(void)
{
	hopped = true;
	wake();
	wait_for(running);
	journal.j_commit_sequence += (1U << 31) - 8 + rand() % 16;
	running = journal.j_commit_sequence + 1;
}

static void begin(void)
{
	tid_t first = set->first_tid;

	clock_ns = FIRST_NS;
	committing = false;
	running = first + 1;
	in_committing.any = false;
	reset(first);
	journal.j_flags = 0;
	sb.fast_commit = set->fast_commit;
	sb.s_mtime.policy = 0;
	remount();
	sleeps = false;
	hopped = false;
	racing = false;
	file = (struct ext4_mtime_stamps) { FIRST_NS, FIRST_NS, FIRST_NS };
	inode.info.i_datasync_tid = running;
	log_file(false);
	wait_for(running);
}

static void step(struct result *result, long seed)
{
	clock_ns += chance(3) ? rand() % (60 * MS) : rand() % (3 * MS);
	switch (rand() % 12) {
	case 0 ... 3:
		write_file();
		break;
	case 4:
		if (set->utimensat)
			set_mtime();
		break;
	case 5:
		start_commit();
		break;
	case 6:
		end_commit();
		break;
	case 7:
		wake();
		break;
	case 8:
		read_file();
		break;
	case 9:
		remount();
		if (set->clock_back)
			clock_ns -= rand() % (2500 * MS);
		if (set->long_ago && !hopped)
			let_others_commit();
		break;
	default:
		fsync_file(result, seed);
	}
}

void run_model(const struct setting *setting, long runs, struct result *result)
{
	set = setting;
	memset(result, 0, sizeof(*result));
	for (long seed = 0; seed < runs; seed++) {
		srand(seed);
		begin();
		for (int i = 0; i < STEPS; i++)
			step(result, seed);
	}
}

/*
 * An fsync has left its commit out; the option goes off, and then its flush fails (@own), or that of
 * another task. What the fsync returns; the journal is aborted if it has to be.
 */
int flush_after_remount(bool own, bool *aborted)
{
	static const struct setting defer = { .defer = 1, .grain_ns = 1 };
	struct ext4_mtime_sync sync = {};
	int err;

	set = &defer;
	begin();
	sb.s_mtime.carrier = (struct jbd2_carrier *)&sb;
	write_file();
	ext4_mtime_begin_sync(&inode, false, &sync);
	sb.s_mtime.policy = 0;
	flush_err = own ? -EIO : 0;
	counted_err = -EIO;
	err = ext4_mtime_flush_for(&inode, false, &sync);
	*aborted = journal.j_flags & JBD2_ABORT;
	flush_err = 0;
	counted_err = 0;
	sb.s_mtime.carrier = NULL;
	return err;
}

/*
 * mtime_update is off, and the file's last change of data was committed 2^31 transactions ago. Does an
 * fdatasync take that for a transaction to come, as stock ext4 does? @jump: eager_sync is in force.
 */
bool waits_for_long_ago(bool jump)
{
	const tid_t now = 5 + (1u << 31);
	struct ext4_mtime_sync sync = {};

	reset(now);
	sb.s_mtime.policy = 0;
	inode.info.i_datasync_tid = 4;
	has_bursts = jump;
	ext4_mtime_begin_sync(&inode, true, &sync);
	has_bursts = false;
	return tid_gt(sync.tid, now);
}
