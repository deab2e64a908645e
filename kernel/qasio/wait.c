// SPDX-License-Identifier: GPL-2.0
/*
 * Seeing that a task begins to wait for memory under write-back.
 *
 * Two ways lead into such a wait, and both are off the path that does not wait:
 *
 *  - folio_wait_writeback(), also where stable pages, truncation, fsync, page
 *    faults and jbd2's ordered data wait: the tracepoint of that name is in the
 *    branch where the folio is under write-back.
 *
 *  - __lock_buffer() and __wait_on_buffer(), called where a buffer's lock is
 *    taken; whoever wants to change a block of metadata waits here.  A kprobe.
 *    Waits for buffers that are not up to date wait for reads.
 *
 * What is waited for is a range of memory.  A request is found by the memory it
 * writes, which is the same in every clone of a bio: partitions, linear device
 * mapper targets and any file system are covered without being known.  Not
 * covered is what writes a copy (dm-crypt, RAID with parity), and what waits
 * otherwise: for a bit of its own in btrfs's extent buffers and a semaphore in
 * XFS's buffers.  Both mark such writes REQ_META, which the scheduler serves
 * before other asynchronous ones.
 *
 * The mapping of a bio's first page tells quickly that it is about something
 * else: file systems put pages of one file into a bio.  F2FS alone may put those
 * of several, so there all pages are looked at.
 *
 * A bio larger than a request is split, and its pages are under write-back until
 * all parts are written.  So once the request is known that writes the memory,
 * the wait is for the other parts, too.
 *
 * Why the task waits is told from the system call it is in, for the counters,
 * and to know whether it is going to wait for the rest of the file.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bio.h>
#include <linux/buffer_head.h>
#include <linux/debugfs.h>
#include <linux/io.h>
#include <linux/ioprio.h>
#include <linux/kprobes.h>
#include <linux/magic.h>
#include <linux/pagemap.h>
#include <linux/seq_file.h>
#include <linux/tracepoint.h>
#include <asm/syscall.h>
#ifdef CONFIG_IA32_EMULATION
#include <asm/unistd_32_ia32.h>
#endif
#ifdef CONFIG_X86_X32_ABI
#include <asm/unistd_64_x32.h>
#endif

#include "qasio.h"

#define CREATE_TRACE_POINTS
#include "qasio_trace.h"

/**
 * struct qasio_counters - what became of the waits of a type
 * @waits: seen, for whatever is under write-back
 * @boosted: found in a queue, in time
 * @late: found when it was put into a queue
 * @handle: of the waits, those of a task that holds a journal handle
 * @commit: of the waits, those of a commit thread
 * @saved_ns: what boosting saved: the asynchronous requests that were ahead of
 *	      it, times the mean time of one
 */
struct qasio_counters {
	atomic64_t waits, boosted, late, handle, commit, saved_ns;
};

static struct qasio_counters qasio_counters[QASIO_TYPES];
static atomic64_t qasio_same_file, qasio_same_bio, qasio_looked_at;

static const char * const qasio_type_names[] = {
	[QASIO_META] = "meta",
	[QASIO_DATA] = "data",
	[QASIO_SYNC] = "sync",
};

/*
 * Matching
 */

/* What a bio is about is told from its first page.  A name only. */
const void *qasio_about(struct bio *bio)
{
	struct bio_vec vec = bio_iovec(bio);

	return page_folio(vec.bv_page)->mapping;
}

/*
 * The bio that @bio was split from, or that it is what remains of; NULL if it was
 * not split.  A name only: it may be gone when this is compared with another.
 */
const void *qasio_split_from(struct bio *bio)
{
	if (bio->bi_opf & REQ_NOMERGE && bio_flagged(bio, BIO_CLONED))
		return bio->bi_private;
	return bio_flagged(bio, BIO_CHAIN) ? bio : NULL;
}

static bool qasio_bio_writes(struct bio *bio, const struct qasio_wait *wait)
{
	struct bvec_iter iter;
	struct bio_vec vec;

	bio_for_each_bvec(vec, bio, iter) {
		phys_addr_t start = page_to_phys(vec.bv_page) + vec.bv_offset;

		if (start < wait->end && wait->start < start + vec.bv_len)
			return true;
	}
	return false;
}

/**
 * qasio_match() - what a request has to do with a wait
 * @rq: a request that cannot complete meanwhile
 * @wait: the wait; gets to know of which bio @rq is a part
 */
enum qasio_match qasio_match(struct request *rq, struct qasio_wait *wait)
{
	enum qasio_match match = QASIO_NO_MATCH;
	struct bio *bio;

	if (req_op(rq) != REQ_OP_WRITE)
		return match;
	__rq_for_each_bio(bio, rq) {
		bool about;

		if (!bio_has_data(bio))
			continue;
		about = qasio_about(bio) == wait->mapping;
		if ((about || wait->mixed) && qasio_bio_writes(bio, wait)) {
			wait->split = qasio_split_from(bio);
			return QASIO_MATCH;
		}
		if (wait->split && qasio_split_from(bio) == wait->split)
			match = QASIO_SAME_BIO;
		else if (about && wait->whole_file)
			match = max(match, QASIO_SAME_FILE);
	}
	return match;
}

/*
 * The waits
 */

/*
 * The calls that write to pages.  x32 has numbers of its own for some, which
 * nothing else has, and marks all of its own.
 */
static bool qasio_is_write_call(int nr)
{
	switch (nr & ~__X32_SYSCALL_BIT) {
	case __NR_write:
	case __NR_pwrite64:
	case __NR_writev:
	case __NR_pwritev:
	case __NR_pwritev2:
	case __NR_sendfile:
	case __NR_splice:
	case __NR_copy_file_range:
	case __NR_io_submit:
	case __NR_io_uring_enter:
#ifdef CONFIG_X86_X32_ABI
	case __NR_x32_writev:
	case __NR_x32_pwritev:
	case __NR_x32_pwritev2:
	case __NR_x32_io_submit:
#endif
		return true;
	default:
		return false;
	}
}

/* The same of the numbers that 32-bit programs use. */
static bool qasio_is_ia32_write_call(int nr)
{
	switch (nr) {
#ifdef CONFIG_IA32_EMULATION
	case __NR_ia32_write:
	case __NR_ia32_pwrite64:
	case __NR_ia32_writev:
	case __NR_ia32_pwritev:
	case __NR_ia32_pwritev2:
	case __NR_ia32_sendfile:
	case __NR_ia32_sendfile64:
	case __NR_ia32_splice:
	case __NR_ia32_copy_file_range:
	case __NR_ia32_io_submit:
	case __NR_ia32_io_uring_enter:
		return true;
#endif
	default:
		return false;
	}
}

/* Whether the task, which waits for @folio, is about to change it. */
static bool qasio_is_writing(struct folio *folio)
{
	int nr;

	/*
	 * A worker of io_uring is in no call that would tell.  But who changes a
	 * folio has locked it, and who waits for it to be durable has not.
	 */
	if (current->flags & PF_IO_WORKER)
		return folio_test_locked(folio);
	nr = syscall_get_nr(current, current_pt_regs());
	if (nr < 0)
		return true; /* a page fault */
	return in_ia32_syscall() ? qasio_is_ia32_write_call(nr) :
				   qasio_is_write_call(nr);
}

/* Why a task waits for a folio, for whose buffers nobody asked. */
static void qasio_tell_why(struct qasio_wait *wait, struct folio *folio)
{
	if (current->flags & (PF_KTHREAD | PF_MEMALLOC))
		return;
	if (qasio_is_writing(folio))
		wait->type = QASIO_DATA;
	else
		wait->whole_file = wait->mapping; /* else it was truncated just now */
}

static void qasio_count_wait(const struct qasio_wait *wait)
{
	struct qasio_counters *counters = &qasio_counters[wait->type];

	atomic64_inc(&counters->waits);
	if (current->journal_info)
		atomic64_inc(&counters->handle);
	if (current->flags & PF_KTHREAD && !strncmp(current->comm, "jbd2/", 5))
		atomic64_inc(&counters->commit);
}

/*
 * The current task waits for memory in @folio, to which it has a reference.  That
 * does not keep the folio in its file, nor the inode and the superblock: write-back
 * may end, and the file go, while we look.  But that takes the folio out of the
 * file first, and then a grace period, so whatever the folio leads to stays until
 * rcu_read_unlock().  What is noted of them for later are names.
 */
static void qasio_waits_for(struct folio *folio, phys_addr_t start, size_t len,
			    enum qasio_type type)
{
	struct address_space *mapping;
	struct qasio_wait wait = {
		.task = current,
		.folio = folio,
		.start = start,
		.end = start + len,
		.type = type,
		.ioprio = get_current_ioprio(),
		.generation = qasio_boost_generation(),
	};

	rcu_read_lock();
	mapping = folio_mapping(folio);
	wait.mapping = mapping;
	if (mapping && mapping->host)
		wait.mixed = mapping->host->i_sb->s_magic == F2FS_SUPER_MAGIC;
	rcu_read_unlock();

	if (type != QASIO_META)
		qasio_tell_why(&wait, folio);
	qasio_count_wait(&wait);

	qasio_note_wait(&wait);
	if (qasio_boost_queued(&wait) && !wait.whole_file && !wait.split)
		qasio_forget_wait(&wait);
	else if (wait.whole_file)
		qasio_note_searched(&wait);
}

/* The tracepoint read @unused before it had a lock that keeps it. */
static void qasio_folio_waits(void *data, struct folio *folio,
			      struct address_space *unused)
{
	if (qasio_in_use())
		qasio_waits_for(folio, page_to_phys(folio_page(folio, 0)),
				folio_size(folio), QASIO_SYNC);
}

static int qasio_buffer_waits(struct kprobe *probe, struct pt_regs *regs)
{
	struct buffer_head *bh =
		(struct buffer_head *)regs_get_kernel_argument(regs, 0);

	if (qasio_in_use() && buffer_locked(bh) && buffer_uptodate(bh))
		qasio_waits_for(bh->b_folio,
				page_to_phys(bh->b_page) + bh_offset(bh),
				bh->b_size, QASIO_META);
	return 0;
}

/*
 * Counting
 */

/* @rq is boosted for @wait, past @ahead backlog requests. */
void qasio_count_boost(struct request *rq, const struct qasio_wait *wait,
		       enum qasio_match match, bool late, unsigned int ahead,
		       u64 saved_ns)
{
	struct qasio_counters *counters = &qasio_counters[wait->type];

	if (match == QASIO_MATCH) {
		atomic64_inc(late ? &counters->late : &counters->boosted);
		atomic64_add(saved_ns, &counters->saved_ns);
	} else {
		atomic64_inc(&qasio_same_bio);
	}
	trace_qasio_boost(rq, wait->type, late, ahead);
}

/* A request became of the kind file. */
void qasio_count_same_file(void)
{
	atomic64_inc(&qasio_same_file);
}

/* @requests were looked at for a wait. */
void qasio_count_looks(unsigned int requests)
{
	atomic64_add(requests, &qasio_looked_at);
}

static int qasio_waits_show(struct seq_file *m, void *unused)
{
	enum qasio_type type;

	for (type = 0; type < QASIO_TYPES; type++) {
		struct qasio_counters *c = &qasio_counters[type];
		s64 waits = atomic64_read(&c->waits);
		s64 boosted = atomic64_read(&c->boosted);
		s64 late = atomic64_read(&c->late);

		seq_printf(m, "%s waits %lld boosted %lld late %lld other %lld handle %lld commit %lld saved_us %lld\n",
			   qasio_type_names[type], waits, boosted, late,
			   max(waits - boosted - late, 0LL),
			   atomic64_read(&c->handle), atomic64_read(&c->commit),
			   div_s64(atomic64_read(&c->saved_ns), NSEC_PER_USEC));
	}
	seq_printf(m, "same_file %lld\n", atomic64_read(&qasio_same_file));
	seq_printf(m, "same_bio %lld\n", atomic64_read(&qasio_same_bio));
	seq_printf(m, "looked_at %lld\n", atomic64_read(&qasio_looked_at));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(qasio_waits);

/*
 * Watching
 */

static struct tracepoint *qasio_tracepoint;
static struct dentry *qasio_dir;

static struct kprobe qasio_probes[] = {
	{ .symbol_name = "__lock_buffer", .pre_handler = qasio_buffer_waits },
	{ .symbol_name = "__wait_on_buffer", .pre_handler = qasio_buffer_waits },
};

static const char qasio_event[] = "folio_wait_writeback";

static void qasio_find_tracepoint(struct tracepoint *tp, void *unused)
{
	if (!strcmp(tp->name, qasio_event))
		qasio_tracepoint = tp;
}

static void qasio_cannot_watch(const char *what, int err)
{
	pr_warn("cannot watch %s (error %d): requests waited for there are not boosted\n",
		what, err);
}

/**
 * qasio_watch() - begin to see waits
 *
 * What cannot be watched is named in the kernel log; the scheduler works
 * without.
 */
void qasio_watch(void)
{
	unsigned int i;
	int err = -ENOENT;

	for_each_kernel_tracepoint(qasio_find_tracepoint, NULL);
	if (qasio_tracepoint)
		err = tracepoint_probe_register(qasio_tracepoint,
						qasio_folio_waits, NULL);
	if (err) {
		qasio_tracepoint = NULL;
		qasio_cannot_watch(qasio_event, err);
	}

	for (i = 0; i < ARRAY_SIZE(qasio_probes); i++) {
		err = register_kprobe(&qasio_probes[i]);
		if (err) {
			qasio_cannot_watch(qasio_probes[i].symbol_name, err);
			qasio_probes[i].pre_handler = NULL;
		}
	}

	qasio_dir = debugfs_create_dir("qasio", NULL);
	debugfs_create_file("waits", 0400, qasio_dir, NULL, &qasio_waits_fops);
}

/**
 * qasio_unwatch() - see no more waits; returns when no probe runs any more
 */
void qasio_unwatch(void)
{
	unsigned int i;

	debugfs_remove(qasio_dir);
	for (i = 0; i < ARRAY_SIZE(qasio_probes); i++)
		if (qasio_probes[i].pre_handler)
			unregister_kprobe(&qasio_probes[i]);
	if (qasio_tracepoint) {
		tracepoint_probe_unregister(qasio_tracepoint,
					    qasio_folio_waits, NULL);
		tracepoint_synchronize_unregister();
	}
}
