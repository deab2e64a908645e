// SPDX-License-Identifier: GPL-2.0
/*
 * Coarse-grained mtime update (mtime.h): which stamps are durable.
 *
 * Idea
 * ----
 *
 * The N ms of an interval count from stamps that are known to be on the medium.
 * So each time an inode is logged its stamps are noted together with the
 * transaction. When that has committed, whoever asked for it, they are durable.
 *
 * Three generations are told apart, for a busy file logs new stamps while older
 * ones are on their way:
 *
 *   logged	by the transaction logged_tid, exactly
 *   committing	by the one before, logged_tid - 1, while that is not on disk
 *   durable	of what is on disk; the stamps there are not older
 *
 * A worked example, defer with N = 100; write and fsync each time, the stamps
 * being the times in ms. T8 is the running transaction, nothing but fsync
 * commits, and no commit is carried:
 *
 *   at	what happens				logged	 durable on disk
 *   0	the file has just been read: durable is
 *	unknown, so fsync commits T8		0 (T8)	 0	 0
 *   30	durable is 30 ms old: no commit		30 (T9)	 0	 0
 *   70	the same; a crash here leaves the data
 *	of 70 with the stamp of 0, 70 ms behind	70 (T9)	 0	 0
 *   80	sync(2) of somebody commits T9		70 (T9)	 0	 70
 *   95	T9 is found committed			95 (T10) 70	 70
 *   160	durable is 90 ms old: no commit		160 (T10) 70	 70
 *   171	durable is 101 ms old: fsync commits	171 (T10) 171	 171
 *
 * A crash at any moment finds stamps less than 100 ms behind those of the last
 * write that was synced.
 *
 * Invariants and why they hold
 * ----------------------------
 *
 * - What is durable is not newer than what is on disk. "logged" changes under
 *   i_raw_lock while the handle is open: when its transaction has committed,
 *   stamps not older than it are on disk. ext4_mtime_begin_sync() takes "logged",
 *   and the commit of its tid turns it into "durable". That also tells what a
 *   fast commit has made durable, which leaves its transaction running: without
 *   it truncate would repeat the fast commit at each fsync.
 * - Two generations that are not durable are enough. A transaction T starts only
 *   when T - 1 is being committed, and that begins only when T - 2 has ended and
 *   moved j_commit_sequence. So what is logged in T finds all up to T - 2
 *   committed, and "committing" needs no tid of its own. If it is older than
 *   T - 1 it is durable with T - 1 all the same.
 * - "committing" takes the place of "durable" at any moment, and then an old
 *   mtime that utimensat(2) has set replaces a young one on the medium. So who
 *   leaves a commit out because of what is durable looks at both.
 * - A record is never behind what has been logged. It begins while the option is
 *   on, and goes on while it is off: an old mtime may be set then. It ends where
 *   a handle has aborted, for nobody knows what that has logged.
 * - Nothing else writes stamps: those that lazytime would write along with a
 *   neighbour's inode are left alone (ext4_mtime_keeps_lazy()).
 *
 * Each inode of the file system pays for this, so it is kept in half of the 104
 * bytes that it took when each generation was a tid and three stamps, and a flag
 * told that a write had been skipped (it is EXT4_STATE_MTIME_SKIPPED now). The
 * earlier two are distances from "logged", of 31 bits in ns, and one bit that
 * says whether atime has changed:
 *
 * - A distance of more than 2.1 s, or into the future, is EXT4_MTIME_FAR, like
 *   stamps that nobody knows, and such stamps are never young. They would not
 *   have been anyway: an interval has 1 s at most, and "logged" is not later than
 *   the clock, unless the user has set an mtime (which commits) or the clock.
 *   If that was set back, stamps that are young by the clock may be far behind
 *   "logged": so they have to be young beside "logged", too.
 * - Distances move with "logged". One that leaves the range is not found again:
 *   FAR stays FAR. That "committing" is there is a bit of its own, so that
 *   "durable" becomes FAR with it once it has committed.
 * - "The same stamps" stays exact: both distances are 0 and the bit is not set.
 *   The bit is not cleared if atime is set back to what it was. Whoever does that
 *   calls utimensat(2), which commits.
 *
 * Lock order
 * ----------
 *
 * All of it is under i_raw_lock. j_commit_sequence is read without a lock: it
 * grows, and who misses the last step takes stamps for older than they are.
 */

#include <linux/fs.h>

#include "ext4.h"
#include "mtime_compat.h"
#include "mtime_internal.h"

/* Further behind than can be told, or unknown. */
#define EXT4_MTIME_FAR		0x7fffffffU

static const struct ext4_mtime_behind ext4_mtime_unknown = {
	.mtime_ns = EXT4_MTIME_FAR,
	.ctime_ns = EXT4_MTIME_FAR,
	.atime = 1,
};

/* As far behind as nothing: the very stamps that were logged last. */
static const struct ext4_mtime_behind ext4_mtime_same;

static void ext4_mtime_forget(struct ext4_mtime_inode *mi)
{
	mi->logged.mtime_ns = EXT4_MTIME_NEVER;
	mi->committing = ext4_mtime_unknown;
	mi->durable = ext4_mtime_unknown;
}

/**
 * ext4_mtime_init_inode - prepare a newly allocated inode
 * @ei: the inode, of which nothing is known yet
 */
void ext4_mtime_init_inode(struct ext4_inode_info *ei)
{
	ei->i_mtime_info = (struct ext4_mtime_inode) {};
	ext4_mtime_forget(&ei->i_mtime_info);
}

bool ext4_mtime_known(const struct ext4_mtime_behind *behind)
{
	return behind->mtime_ns != EXT4_MTIME_FAR;
}

static u32 ext4_mtime_distance(s64 later_ns, s64 stamp_ns)
{
	u64 distance_ns = (u64)later_ns - (u64)stamp_ns;

	if (stamp_ns > later_ns)
		return EXT4_MTIME_FAR;
	return min_t(u64, distance_ns, EXT4_MTIME_FAR);
}

static struct ext4_mtime_behind
ext4_mtime_measure(const struct ext4_mtime_stamps *logged,
		   const struct ext4_mtime_stamps *stamps, bool other_atime)
{
	struct ext4_mtime_behind behind = {
		.mtime_ns = ext4_mtime_distance(logged->mtime_ns,
						stamps->mtime_ns),
		.ctime_ns = ext4_mtime_distance(logged->ctime_ns,
						stamps->ctime_ns),
		.atime = other_atime,
	};

	if (behind.mtime_ns == EXT4_MTIME_FAR ||
	    behind.ctime_ns == EXT4_MTIME_FAR)
		return ext4_mtime_unknown;
	return behind;
}

/**
 * ext4_mtime_stamps_of - stamps that are kept as distances
 * @logged: what they are behind
 * @behind: how far; known
 *
 * Return: mtime and ctime; atime is @logged's, whether or not it was.
 */
struct ext4_mtime_stamps
ext4_mtime_stamps_of(const struct ext4_mtime_stamps *logged,
		     const struct ext4_mtime_behind *behind)
{
	return (struct ext4_mtime_stamps) {
		.atime_ns = logged->atime_ns,
		.mtime_ns = logged->mtime_ns - behind->mtime_ns,
		.ctime_ns = logged->ctime_ns - behind->ctime_ns,
	};
}

/* From now on @behind counts from @to, no more from @from. */
static void ext4_mtime_rebase(struct ext4_mtime_behind *behind,
			      const struct ext4_mtime_stamps *from,
			      const struct ext4_mtime_stamps *to)
{
	struct ext4_mtime_stamps stamps;
	bool pending;

	if (!ext4_mtime_known(behind))
		return;
	stamps = ext4_mtime_stamps_of(from, behind);
	pending = behind->pending;
	*behind = ext4_mtime_measure(to, &stamps, behind->atime ||
				     from->atime_ns != to->atime_ns);
	behind->pending = pending;
}

/**
 * ext4_mtime_younger - would a crash at a time leave stamps that are young?
 * @mi: of the inode
 * @behind: what the crash would leave
 * @now_ns: the time
 * @age_ns: what is no longer young
 *
 * Young by the clock, and beside the stamps that were logged last: the clock may
 * have been set back since.
 */
bool ext4_mtime_younger(const struct ext4_mtime_inode *mi,
			const struct ext4_mtime_behind *behind,
			s64 now_ns, s64 age_ns)
{
	struct ext4_mtime_stamps stamps;

	if (!ext4_mtime_known(behind))
		return false;
	if (behind->mtime_ns >= age_ns || behind->ctime_ns >= age_ns)
		return false;
	stamps = ext4_mtime_stamps_of(&mi->logged, behind);
	return stamps.mtime_ns > now_ns - age_ns && stamps.mtime_ns <= now_ns &&
	       stamps.ctime_ns > now_ns - age_ns && stamps.ctime_ns <= now_ns;
}

/**
 * ext4_mtime_settle - what is logged is durable once its transaction is
 * @inode: the inode
 * @mi: its record
 */
void ext4_mtime_settle(struct inode *inode, struct ext4_mtime_inode *mi)
{
	lockdep_assert_held(&EXT4_I(inode)->i_raw_lock);

	if (!ext4_mtime_on_record(mi))
		return;
	if (ext4_mtime_committed(inode, mi->logged_tid)) {
		mi->durable = ext4_mtime_same;
		mi->committing = ext4_mtime_unknown;
	} else if (mi->committing.pending &&
		   ext4_mtime_committed(inode, mi->logged_tid - 1)) {
		mi->durable = mi->committing;
		mi->durable.pending = false;
		mi->committing = ext4_mtime_unknown;
	}
}

/*
 * The first time that a transaction logs the inode. What was logged before may
 * have become durable since ext4_mtime_settle() looked; the next one sees that.
 */
static void ext4_mtime_next_tid(struct ext4_mtime_inode *mi, tid_t tid)
{
	if (ext4_mtime_on_record(mi)) {
		mi->committing = ext4_mtime_same;
		mi->committing.pending = true;
	}
	mi->logged_tid = tid;
}

/**
 * ext4_mtime_is_logged - have these stamps been logged?
 * @mi: of the inode
 * @mtime_ns: its mtime
 * @ctime_ns: its ctime
 */
bool ext4_mtime_is_logged(const struct ext4_mtime_inode *mi, s64 mtime_ns,
			  s64 ctime_ns)
{
	return ext4_mtime_on_record(mi) && mi->logged.mtime_ns == mtime_ns &&
	       mi->logged.ctime_ns == ctime_ns;
}

static bool ext4_mtime_same_stamps(const struct ext4_mtime_inode *mi,
				   const struct ext4_mtime_stamps *stamps)
{
	return ext4_mtime_is_logged(mi, stamps->mtime_ns, stamps->ctime_ns) &&
	       mi->logged.atime_ns == stamps->atime_ns;
}

/**
 * ext4_mtime_note_logged - note stamps that are being logged
 * @handle: what they are logged under, journalled
 * @inode: the inode
 * @raw_inode: holds the stamps
 *
 * A new file is logged some ten times with the same stamps; all but the first need
 * a look alone. What the transaction before has made durable shows when the stamps
 * change, or an fsync asks.
 *
 * Not to be called unless ext4_mtime_takes_note(), or the handle claims to log
 * stamps alone: the option is on then, or was when the handle was started.
 */
void ext4_mtime_note_logged(handle_t *handle, struct inode *inode,
			    const struct ext4_inode *raw_inode)
{
	struct ext4_mtime_inode *mi = &EXT4_I(inode)->i_mtime_info;
	struct ext4_mtime_stamps stamps;
	tid_t tid;

	/* A restart that failed has left the handle without a transaction. */
	if (is_handle_aborted(handle)) {
		ext4_mtime_forget(mi);
		return;
	}
	tid = handle->h_transaction->t_tid;
	ext4_mtime_get_stamps(inode, raw_inode, &stamps);
	if (mi->logged_tid == tid && ext4_mtime_same_stamps(mi, &stamps))
		return;
	ext4_mtime_settle(inode, mi);
	if (mi->logged_tid != tid)
		ext4_mtime_next_tid(mi, tid);
	ext4_mtime_rebase(&mi->committing, &mi->logged, &stamps);
	ext4_mtime_rebase(&mi->durable, &mi->logged, &stamps);
	mi->logged = stamps;
}

/**
 * ext4_mtime_note_durable - note stamps that an fsync has committed
 * @mi: of the inode
 * @sync: has chosen them
 *
 * Nothing, if they have been logged anew by a later transaction: the fsync may
 * have slept while that one, too, was committed. ext4_mtime_settle() knows more.
 */
void ext4_mtime_note_durable(struct ext4_mtime_inode *mi,
			     const struct ext4_mtime_sync *sync)
{
	bool other_atime = sync->other_atime ||
		sync->stamps.atime_ns != mi->logged.atime_ns;

	if (mi->logged_tid != sync->logged_tid)
		return;
	mi->durable = ext4_mtime_measure(&mi->logged, &sync->stamps,
					 other_atime);
}
