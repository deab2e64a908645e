// SPDX-License-Identifier: GPL-2.0
/*
 * What may happen next. Each step is atomic; where the code lets something come
 * between, there are two. A step that may not happen now returns false.
 *
 * Here: pages, blocks, the device, and who does what.
 */
#include "model.h"

u64 faults;

#define ARGUMENTS(name, arguments, words)	arguments,
const u8 op_arguments[] = { OPS(ARGUMENTS) };

struct block *block_of(struct state *s, const struct file *file)
{
	return file->mem.block ? &s->block[file->mem.block - 1] : NULL;
}

u8 entry_of(const struct state *s, const struct file *file)
{
	return file->mem.block ? s->block[file->mem.block - 1].entry : 0;
}

bool spend(struct state *s, int budget)
{
	if (!s->left[budget])
		return false;
	s->left[budget] -= s->left[budget] != UNLIMITED;
	return true;
}

/* Block 1 + wish if a file may have it, or 0. */
u8 allocate(const struct state *s, int wish)
{
	const struct block *block = &s->block[wish];

	if (block->freeing && !FAULTY(REUSED_BEFORE_COMMIT))
		return 0;
	for (int f = 0; f < FILES; f++)
		if (s->file[f].mem.block == wish + 1)
			return 0;
	return wish + 1;
}

void log_inode(struct state *s, struct file *file)
{
	s->handles = 1;
	file->sync_tid = s->running;
}

void device_flush(struct state *s)
{
	for (int b = 0; b < BLOCKS; b++)
		s->block[b].maybe = 1 << s->block[b].now;
	for (int f = 0; f < FILES; f++) {
		struct file *file = &s->file[f];

		/* The page may have changed under write-back. */
		if (file->flight)
			block_of(s, file)->maybe |= 1 << tag_of(f, file->flight) |
				1 << tag_of(f, file->newest);
	}
}

bool changed(const struct state *s, const struct file *file)
{
	return file->dirty && !(file->logged && entry_of(s, file));
}

bool change_page(struct state *s, int f)
{
	struct file *file = &s->file[f];

	if (file->newest == RANKS - 1)
		return false;
	file->newest++;
	file->dirty = 1;
	file->window = 1;	/* none without i_eager, and the first is all */
	if (!FAULTY(LOGGED_STAYS))
		file->logged = 0;
	if (file->flight)
		block_of(s, file)->maybe |= 1 << tag_of(f, file->newest);
	return true;
}

void drop_page(struct file *file)
{
	file->dirty = 0;
	file->logged = 0;
}

static void note_kept(struct state *s)
{
	/* A settling that has begun may have written it before. */
	u8 number = s->settle && !FAULTY(KEPT_BY_RUNNING) ? 2 : 1;

	if (s->kept != number)
		s->again = AGAIN;
	s->kept = number;
}

/*
 * Write-back of a page: ext4_eager_keeps_dirty(). A wish: which block, if it has
 * none; -1: it may not have one.
 */
bool submit(struct state *s, int f, int wish)
{
	struct file *file = &s->file[f];
	bool keep;

	if (!file->dirty || file->flight)
		return false;
	if (!file->mem.block) {
		if (wish < 0 || file->mem.orphan)
			return false;
		file->mem.block = allocate(s, wish);
		if (!file->mem.block)
			return false;
		file->mem.unwritten = 1;
		log_inode(s, file);
	} else if (wish > 0) {
		return false;	/* the same as 0 */
	}
	keep = !file->logged && entry_of(s, file) && !FAULTY(WRITEBACK_CLEANS);
	file->logged = 0;
	file->dirty = keep;
	if (keep)
		note_kept(s);
	file->flight = file->newest;
	block_of(s, file)->maybe |= 1 << tag_of(f, file->flight);
	return true;
}

bool complete(struct state *s, int f)
{
	struct file *file = &s->file[f];

	if (!file->flight)
		return false;
	block_of(s, file)->now = tag_of(f, file->flight);
	file->flight = 0;
	if (file->mem.unwritten) {
		file->mem.unwritten = 0;
		log_inode(s, file);
		s->marked = 1;
	}
	return true;
}

/*
 * Evicted, and read again. With I_DONTCACHE its pages are written first, and then
 * dropped, be they dirty again or not. At an unmount that may have failed: then
 * ext4_eager_begin_evict() puts what has a copy in its place.
 */
static bool evict(struct state *s, int f)
{
	struct file *file = &s->file[f];
	bool in_place = file->mem.block &&
		block_of(s, file)->now == tag_of(f, file->newest);

	if (file->flight || file->change || !spend(s, EVICTS) ||
	    (file->dirty && !in_place && !entry_of(s, file)))
		return false;
	for (int i = 0; i < ACTORS; i++)
		if (s->actor[i].what == f + 1)
			return false;
	if (file->dirty && !in_place && !FAULTY(EVICTED_NOT_IN_PLACE)) {
		submit(s, f, -1);
		complete(s, f);
	}
	drop_page(file);
	if (file->eager && file->gen && !FAULTY(GONE_FORGOTTEN))
		file->gone = file->gen;
	file->gen = file->gone;
	file->eager = 0;
	file->listed = 0;
	file->copied = 0;
	file->never = 0;
	file->window = 1;
	s->settle_todo &= ~(1 << f);
	s->settle_wait &= ~(1 << f);
	/* ext4_iget() */
	file->sync_tid = s->running - !s->handles;
	return true;
}

static bool write_page(struct state *s, int f)
{
	const struct file *file = &s->file[f];

	/* While a change waits, only mmap writes. */
	if (!s->left[SECOND_FILE] && s->file[!f].newest)
		return false;
	if (s->frozen || file->change == CHANGE_TRUNCATE || !spend(s, WRITES))
		return false;
	return change_page(s, f);
}

bool model_step(struct state *s, int op, int arg)
{
	switch (op) {
	case OP_WRITE:
		return write_page(s, arg);
	case OP_SUBMIT:
		return spend(s, FLUSHER) && submit(s, arg % FILES, arg / FILES);
	case OP_COMPLETE:
		return complete(s, arg);
	case OP_FSYNC:
		return fsync_begin(s, arg % FILES, arg / FILES);
	case OP_SYNC:
		return sync_all_begin(s, WHAT_SYNC);
	case OP_FREEZE:
		return sync_all_begin(s, WHAT_FREEZE);
	case OP_PROCEED:
		return sync_goes_on(s, arg % ACTORS, arg / ACTORS);
	case OP_LOCK:
		return commit_lock(s);
	case OP_ORDER:
		return commit_order(s, arg);
	case OP_LOG:
		return commit_log(s, arg);
	case OP_FLUSH:
		return commit_flush(s);
	case OP_COMMITTED:
		return commit_end(s);
	case OP_SETTLE:
		return settle_begin(s);
	case OP_SETTLING:
		return settle_goes_on(s, arg);
	case OP_TRUNCATE:
		return truncate_begin(s, arg);
	case OP_CUT:
		return change_begin(s, arg, CHANGE_CUT, CUTS);
	case OP_DIRECT:
		return change_begin(s, arg, CHANGE_DIRECT, DIRECTS);
	case OP_ZERO:
		return change_begin(s, arg, CHANGE_ZERO, ZEROES);
	case OP_SHRINK:
		return change_begin(s, arg, CHANGE_SHRINK, SHRINKS);
	case OP_MOVE:
		return change_begin(s, arg, CHANGE_MOVE, MOVES);
	case OP_CHANGE:
		return change_goes_on(s, arg);
	case OP_EVICT:
		return evict(s, arg);
	}
	return false;
}
