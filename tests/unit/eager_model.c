// SPDX-License-Identifier: GPL-2.0
/*
 * What may happen next. Each step is atomic; where the design lets something
 * come between, there are two. A step that may not happen now returns false.
 */
#include <string.h>

#include "eager_model.h"

u64 faults;

#define ARGUMENTS(name, arguments, words)	arguments,
const u8 op_arguments[] = { OPS(ARGUMENTS) };

enum { SYNC_QUEUE = 1, SYNC_PLACE, SYNC_PLACED, SYNC_SETTLED, SYNC_WAIT, SYNC_COMMIT,
	SYNC_ALL, SYNC_ALL_PLACED, SYNC_ALL_SETTLED };
enum { SETTLE_COMMIT = 1, SETTLE_PLACES, SETTLE_COMMIT_AGAIN, SETTLE_DROP, SETTLE_NUMBERS,
	SETTLE_FLUSH, SETTLE_SUPERBLOCK, SETTLE_ERASE, SETTLE_STEP_7 };
enum { CHANGE_TRUNCATE = 1, CHANGE_DIRECT, CHANGE_ZERO, CHANGE_SHRINK, CHANGE_MOVE,
	CHANGE_DONOR };
enum { TRUNCATE_DROP = 1, TRUNCATE_FREE, TRUNCATE_REVOKE };

#define HELD	1
#define STICKY	2

/* --- pages, blocks, the device -------------------------------------------------------------- */

static struct block *block_of(struct state *s, const struct file *file)
{
	return file->mem.block ? &s->block[file->mem.block - 1] : NULL;
}

static u8 entry_of(struct state *s, const struct file *file)
{
	return file->mem.block ? block_of(s, file)->entry : 0;
}

static bool spend(struct state *s, int budget)
{
	if (!s->left[budget])
		return false;
	s->left[budget] -= s->left[budget] != UNLIMITED;
	return true;
}

/* Block 1 + wish if a file may have it, or 0. */
static u8 allocate(const struct state *s, int wish)
{
	const struct block *block = &s->block[wish];

	if (block->freeing && !FAULTY(REUSED_BEFORE_COMMIT))
		return 0;
	for (int f = 0; f < FILES; f++)
		if (s->file[f].mem.block == wish + 1)
			return 0;
	return wish + 1;
}

static void log_inode(struct state *s, struct file *file)
{
	s->handles = 1;
	file->sync_tid = s->running;
}

static void device_flush(struct state *s)
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

static bool changed(struct state *s, const struct file *file)
{
	return file->dirty && !(file->logged && entry_of(s, file));
}

static bool change_page(struct state *s, int f)
{
	struct file *file = &s->file[f];

	if (file->newest == RANKS - 1)
		return false;
	file->newest++;
	file->dirty = 1;
	file->window = 1;
	if (!FAULTY(LOGGED_STAYS))
		file->logged = 0;
	if (file->flight)
		block_of(s, file)->maybe |= 1 << tag_of(f, file->newest);
	return true;
}

static void drop_page(struct file *file)
{
	file->dirty = 0;
	file->logged = 0;
}

/* Write-back of a page: rule W. A wish: which block, if it has none. -1: it may not have one. */
static bool submit(struct state *s, int f, int wish)
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
	if (keep) {
		s->kept = 1;
		/* An evicted inode has left the list, but its entry has not. */
		if (!FAULTY(LISTED_BY_LOGGING_ALONE) && file->last_tid < entry_of(s, file))
			file->last_tid = entry_of(s, file);
	}
	file->flight = file->newest;
	block_of(s, file)->maybe |= 1 << tag_of(f, file->flight);
	return true;
}

static bool complete(struct state *s, int f)
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

/* --- fsync: section 3 ----------------------------------------------------------------------- */

/* Queues a copy of the page in the running transaction. */
static bool log_page(struct state *s, int f, int wish)
{
	struct file *file = &s->file[f];
	struct block *block;

	if (file->mem.unwritten || file->mem.orphan || (file->hold && !FAULTY(HOLD_STILL_LOGS)))
		return false;
	if (!file->mem.block) {
		file->mem.block = allocate(s, wish);
		if (!file->mem.block)
			return false;
		if (FAULTY(ALLOCATED_WITHOUT_COPY)) {
			log_inode(s, file);
			return true;
		}
	} else if (wish) {
		return false;
	}
	block = block_of(s, file);
	log_inode(s, file);
	block->copied |= 1 << (s->running - TAIL);
	block->copy[s->running - TAIL] = tag_of(f, file->newest);
	block->entry = s->running;
	s->recorded |= 1 << (s->running - TAIL);
	file->logged = 1;
	file->last_tid = s->running;
	return true;
}

static void promise(struct state *s, struct actor *actor)
{
	for (int f = 0; f < FILES; f++) {
		struct file *file = &s->file[f];

		if (file->promised < actor->target[f])
			file->promised = actor->target[f];
		if (FAULTY(WINDOW_LOST) && actor->what == f + 1)
			file->window = 0;
		if (actor->what == WHAT_FREEZE && (file->dirty || file->flight))
			s->unclean = 1;
	}
	if (actor->what == WHAT_FREEZE)
		s->frozen = 0;
	memset(actor, 0, sizeof(*actor));
}

/* ext4_fsync_journal(): a commit that is yet to flush, or a flush. */
static void sync_journal(struct state *s, struct actor *actor, u8 want)
{
	if (want > committed(s)) {
		actor->pc = SYNC_COMMIT;
		actor->want = want;
		actor->late = s->commit == COMMIT_FLUSHED && want == s->running - 1;
	} else {
		device_flush(s);
		promise(s, actor);
	}
}

static bool has_mutex(const struct actor *actor)
{
	return actor->pc == SYNC_WAIT && !FAULTY(UNLOCKED_BEFORE_WAIT);
}

static bool mutex_is_free(const struct state *s, u8 what)
{
	for (int i = 0; i < ACTORS; i++)
		if (s->actor[i].what == what && has_mutex(&s->actor[i]))
			return false;
	return true;
}

static struct actor *begin_sync(struct state *s, u8 what, int budget)
{
	for (int i = 0; i < ACTORS; i++) {
		struct actor *actor = &s->actor[i];

		if (actor->what || s->frozen || !spend(s, budget))
			continue;
		actor->what = what;
		for (int f = 0; f < FILES; f++)
			if (what > FILES || what == f + 1)
				actor->target[f] = s->file[f].newest;
		return actor;
	}
	return NULL;
}

/* how: 0 and 1, log, with a wish for a block; 2, in place */
static bool fsync_begin(struct state *s, int f, int how)
{
	struct file *file = &s->file[f];
	struct actor *actor;

	if (!mutex_is_free(s, f + 1))
		return false;
	actor = begin_sync(s, f + 1, FSYNCS);
	if (!actor)
		return false;
	if (!file->window || file->mem.orphan || !changed(s, file)) {
		if (how)
			return false;
		/* Judged here: who dirties it now does not end that write-back. */
		if (file->window && file->flight && (!file->dirty || file->mem.orphan))
			actor->pc = SYNC_WAIT;
		else
			sync_journal(s, actor, file->sync_tid);
		file->window &= FAULTY(WINDOW_LOST);
		return true;
	}
	if (how == 2) {
		actor->pc = SYNC_PLACE;
		return true;
	}
	file->window &= FAULTY(WINDOW_LOST);
	if (FAULTY(MUTEX_DROPPED_EARLY)) {
		actor->pc = SYNC_QUEUE;
		return !how;
	}
	if (!log_page(s, f, how))
		return false;
	if (!file->logged)
		actor->pc = SYNC_PLACE;
	else
		sync_journal(s, actor, file->sync_tid);
	return true;
}

/* 3b, in place: what is still changed and has an entry is logged, or settled. */
static bool fsync_placed(struct state *s, struct actor *actor, int f, int settles)
{
	struct file *file = &s->file[f];

	if (file->flight || !mutex_is_free(s, actor->what))
		return false;
	if (changed(s, file) && entry_of(s, file) && !FAULTY(PLACED_NOT_LOGGED)) {
		if (settles) {
			actor->wait = WAIT_ASKED;
			actor->pc = SYNC_SETTLED;
			return true;
		}
		if (!log_page(s, f, 0))
			return false;
		file->window = 0;
	} else if (settles) {
		return false;
	} else {
		/* Given back what was dirtied since. */
		file->window = file->dirty;
	}
	sync_journal(s, actor, file->sync_tid);
	return true;
}

static bool fsync_goes_on(struct state *s, struct actor *actor, int f, int arg)
{
	struct file *file = &s->file[f];

	switch (actor->pc) {
	case SYNC_QUEUE:
		if (changed(s, file) && !log_page(s, f, arg))
			return false;
		sync_journal(s, actor, file->sync_tid);
		return true;
	case SYNC_PLACE:
		if (file->flight && file->dirty)
			return false;
		actor->pc = SYNC_PLACED;
		if (!file->dirty || (file->mem.orphan && !file->mem.block))
			return !arg;
		return submit(s, f, arg);
	case SYNC_PLACED:
		return fsync_placed(s, actor, f, arg);
	case SYNC_SETTLED:
		if (arg || actor->wait)
			return false;
		actor->pc = SYNC_PLACE;
		return true;
	case SYNC_WAIT:
		if (arg || (file->flight && !(FAULTY(REDIRTIED_NOT_WAITED) && file->dirty)))
			return false;
		sync_journal(s, actor, file->sync_tid);
		return true;
	}
	return false;
}

/* --- sync(2) and freezing ------------------------------------------------------------------- */

static bool sync_all_begin(struct state *s, u8 what)
{
	struct actor *actor = begin_sync(s, what, what == WHAT_FREEZE ? FREEZES : SYNCFS);

	if (!actor)
		return false;
	actor->pc = SYNC_ALL;
	actor->late = (1 << FILES) - 1;		/* who is yet to be written */
	if (what != WHAT_FREEZE)
		return true;
	s->frozen = 1;
	for (int f = 0; f < FILES; f++)
		if (s->file[f].change)
			return false;
	for (int i = 0; i < ACTORS; i++)
		if (s->actor[i].what && &s->actor[i] != actor)
			return false;
	return true;
}

static bool sync_all_goes_on(struct state *s, struct actor *actor, int arg)
{
	bool freeze = actor->what == WHAT_FREEZE;

	switch (actor->pc) {
	case SYNC_ALL:
		for (int f = 0; f < FILES; f++) {
			struct file *file = &s->file[f];

			if (!(actor->late >> f & 1))
				continue;
			if (file->flight && file->dirty)
				return false;
			actor->late &= ~(1 << f);
			if (!file->dirty || (file->mem.orphan && !file->mem.block))
				return !arg;
			return submit(s, f, arg);
		}
		actor->pc = SYNC_ALL_PLACED;
		return !arg && !s->file[0].flight && !s->file[1].flight;
	case SYNC_ALL_PLACED:
		actor->pc = SYNC_ALL_SETTLED;
		if (freeze || (s->kept && !FAULTY(SYNCFS_SKIPS_SETTLE)))
			actor->wait = FAULTY(SETTLE_JOINED_LATE) && s->settle ?
				WAIT_BEGUN : WAIT_ASKED;
		/* What has cleared kept has not settled yet. */
		else if (s->settle && !FAULTY(SYNCFS_PASSES_SETTLING) &&
			 !FAULTY(SYNCFS_SKIPS_SETTLE))
			actor->wait = WAIT_BEGUN;
		return !arg;
	case SYNC_ALL_SETTLED:
		if (arg || actor->wait)
			return false;
		sync_journal(s, actor, s->running - !s->handles);
		return true;
	}
	return false;
}

static bool sync_goes_on(struct state *s, int i, int arg)
{
	struct actor *actor = &s->actor[i];

	if (!actor->what)
		return false;
	if (actor->pc == SYNC_COMMIT) {
		if (arg || actor->want > committed(s))
			return false;
		if (actor->late)
			device_flush(s);
		promise(s, actor);
		return true;
	}
	if (actor->what > FILES)
		return sync_all_goes_on(s, actor, arg);
	return fsync_goes_on(s, actor, actor->what - 1, arg);
}

/* --- jbd2's commit -------------------------------------------------------------------------- */

/* The oldest transaction with data that is not settled, or tid: section 4.2. */
static u8 floor_of(const struct state *s, u8 tid)
{
	for (u8 t = TAIL; t < tid; t++)
		if (s->recorded >> (t - TAIL) & 1)
			return t;
	return tid;
}

static bool commit_lock(struct state *s)
{
	if (s->commit || !s->handles || s->running - TAIL == SLOTS - 1)
		return false;
	s->commit = COMMIT_LOCKED;
	s->commit_marked = s->marked;
	s->order_todo = s->ordered;
	for (int f = 0; f < FILES; f++)
		s->file[f].locked = s->file[f].mem;
	s->running++;
	s->handles = 0;
	s->marked = 0;
	s->ordered = 0;
	return true;
}

static bool commit_order(struct state *s, int f)
{
	struct file *file = &s->file[f];

	if (s->commit != COMMIT_LOCKED || !(s->order_todo >> f & 1))
		return false;
	s->order_todo &= ~(1 << f);
	s->order_wait |= 1 << f;
	if (file->dirty && file->mem.block)
		return submit(s, f, 0);
	return true;
}

static bool commit_log(struct state *s, int moves_tail)
{
	if (s->commit != COMMIT_LOCKED || s->order_todo)
		return false;
	for (int f = 0; f < FILES; f++)
		if (s->order_wait >> f & 1 && s->file[f].flight)
			return false;
	s->order_wait = 0;
	s->commit = COMMIT_LOGGED;
	if (!moves_tail)
		return true;
	/* The number is looked up before the flush, and written behind it. */
	s->commit_tail = FAULTY(TAIL_IGNORES_FLOOR) ? s->running - 1 :
		floor_of(s, s->running - 1);
	return s->commit_tail > s->tail;
}

static bool commit_flush(struct state *s)
{
	if (s->commit != COMMIT_LOGGED)
		return false;
	device_flush(s);
	s->commit = COMMIT_FLUSHED;
	return true;
}

static bool commit_end(struct state *s)
{
	/* The tail is moved under j_checkpoint_mutex. */
	if (s->commit != COMMIT_FLUSHED ||
	    (s->commit_tail && s->settle >= SETTLE_FLUSH && s->settle <= SETTLE_SUPERBLOCK))
		return false;
	if (s->tail < s->commit_tail)
		s->tail = s->commit_tail;
	s->commit_tail = 0;
	s->commit = COMMIT_IDLE;
	for (int f = 0; f < FILES; f++)
		s->file[f].durable = s->file[f].locked;
	for (int b = 0; b < BLOCKS; b++)
		if (s->block[b].freeing <= committed(s))
			s->block[b].freeing = 0;
	return true;
}

/* --- settling: section 4.4 ------------------------------------------------------------------ */

static void waiters(struct state *s, u8 from, u8 to)
{
	for (int i = 0; i < ACTORS; i++)
		if (s->actor[i].wait == from)
			s->actor[i].wait = to;
	for (int f = 0; f < FILES; f++)
		if (s->file[f].change_wait == from)
			s->file[f].change_wait = to;
}

static bool somebody_asks(const struct state *s)
{
	return s->actor[0].wait == WAIT_ASKED || s->actor[1].wait == WAIT_ASKED ||
		s->file[0].change_wait == WAIT_ASKED || s->file[1].change_wait == WAIT_ASKED;
}

static bool settle_begin(struct state *s)
{
	if (s->settle || (!somebody_asks(s) && (s->frozen || !spend(s, SETTLES))))
		return false;
	s->kept = 0;
	s->settle_tid = s->running - !s->handles;
	s->settle = SETTLE_COMMIT;
	waiters(s, WAIT_ASKED, WAIT_BEGUN);
	return true;
}

static void settle_erase(struct state *s)
{
	for (int b = 0; b < BLOCKS; b++)
		if (s->block[b].entry <= s->settled || FAULTY(SETTLE_ERASES_NEWER))
			s->block[b].entry = 0;
	for (int f = 0; f < FILES; f++)
		if (s->file[f].last_tid <= s->settled)
			s->file[f].last_tid = 0;
}

static void settle_end(struct state *s)
{
	s->settle = 0;
	s->settle_tid = 0;
	s->settled = 0;
	s->settle_tail = 0;
	s->settle_kept = 0;
	waiters(s, WAIT_BEGUN, WAIT_DONE);
}

/* Writes the pages of settle_todo, one a step, and waits for all. Returns what it has done. */
enum written { BLOCKED, SENT, WRITTEN };

static enum written settle_write(struct state *s)
{
	for (int f = 0; f < FILES; f++) {
		struct file *file = &s->file[f];

		if (!(s->settle_todo >> f & 1))
			continue;
		if (file->flight && file->dirty)
			return BLOCKED;
		s->settle_todo &= ~(1 << f);
		s->settle_wait |= 1 << f;
		if (submit(s, f, -1) && file->dirty)
			s->settle_kept |= 1 << f;
		return SENT;
	}
	for (int f = 0; f < FILES && !FAULTY(SETTLE_DOES_NOT_WAIT); f++)
		if (s->settle_wait >> f & 1 && s->file[f].flight)
			return BLOCKED;
	s->settle_wait = 0;
	return WRITTEN;
}

static bool settle_numbers(struct state *s, int least)
{
	u8 most = s->running - !!s->commit;

	if (least && s->settled + 1 == most)
		return false;
	/* Least: metadata behind S is not checkpointed. */
	s->settle_tail = floor_of(s, least ? s->settled + 1 : most);
	s->settle = s->settle_tail > s->tail ? SETTLE_FLUSH : SETTLE_ERASE;
	return true;
}

static bool settle_goes_on(struct state *s, int arg)
{
	enum written written;

	if (arg && s->settle != SETTLE_NUMBERS)
		return false;
	switch (s->settle) {
	case SETTLE_COMMIT:
		if (committed(s) < s->settle_tid)
			return false;
		s->settled = committed(s);
		for (int f = 0; f < FILES; f++)
			if (s->file[f].last_tid && !FAULTY(SETTLE_SKIPS_PLACES))
				s->settle_todo |= 1 << f;
		s->settle = SETTLE_PLACES;
		return true;
	case SETTLE_PLACES:
		written = settle_write(s);
		if (written != WRITTEN)
			return written == SENT;
		s->settle_tid = s->running - !s->handles;
		s->settle = SETTLE_COMMIT_AGAIN;
		return true;
	case SETTLE_COMMIT_AGAIN:
		if (committed(s) < s->settle_tid && !FAULTY(SETTLE_SKIPS_COMMIT))
			return false;
		s->settle = SETTLE_DROP;
		return true;
	case SETTLE_DROP:	/* metadata has been checkpointed: jbd2's own matter */
		for (u8 t = TAIL; t <= s->settled; t++)
			s->recorded &= ~(1 << (t - TAIL));
		if (FAULTY(SETTLE_ERASES_EARLY))
			settle_erase(s);
		s->settle = SETTLE_NUMBERS;
		return true;
	case SETTLE_NUMBERS:
		return settle_numbers(s, arg);
	case SETTLE_FLUSH:
		if (!FAULTY(SETTLE_SKIPS_FLUSH))
			device_flush(s);
		s->settle = SETTLE_SUPERBLOCK;
		return true;
	case SETTLE_SUPERBLOCK:
		s->tail = s->settle_tail;
		s->settle = SETTLE_ERASE;
		return true;
	case SETTLE_ERASE:
		if (s->tail > s->settled)
			settle_erase(s);
		s->settle = SETTLE_STEP_7;
		if (s->frozen && !FAULTY(FREEZE_SKIPS_STEP_7))
			s->settle_todo = s->settle_kept;
		else
			settle_end(s);
		return true;
	case SETTLE_STEP_7:
		written = settle_write(s);
		if (written == WRITTEN)
			settle_end(s);
		return written != BLOCKED;
	}
	return false;
}

/* --- freeing (section 4.3) and other changes (4.6) ------------------------------------------ */

static bool truncate_begin(struct state *s, int f)
{
	struct file *file = &s->file[f];

	/* ext4_begin_ordered_truncate(): a commit's ordered data is written first. */
	if (file->change || s->frozen || (!file->dirty && !file->mem.block) ||
	    s->order_todo >> f & 1 || file->newest == RANKS - 1 || !spend(s, TRUNCATES))
		return false;
	file->mem.orphan = 1;
	file->mem.least = ++file->newest;
	log_inode(s, file);
	file->change = CHANGE_TRUNCATE;
	file->change_pc = TRUNCATE_DROP;
	return true;
}

static void revoke(struct state *s, u8 block)
{
	s->block[block - 1].revoked |= 1 << (s->running - TAIL);
	s->handles = 1;
}

static bool truncate_goes_on(struct state *s, struct file *file)
{
	switch (file->change_pc) {
	case TRUNCATE_DROP:
		if (file->flight)
			return false;
		drop_page(file);
		file->change_pc = TRUNCATE_FREE;
		return true;
	case TRUNCATE_FREE:
		file->change = 0;
		file->change_pc = 0;
		if (entry_of(s, file)) {
			if (FAULTY(REVOKE_LATER)) {
				file->change = CHANGE_TRUNCATE;
				file->change_pc = TRUNCATE_REVOKE;
				file->change_block = file->mem.block;
			} else if (!FAULTY(FREE_WITHOUT_REVOKE)) {
				revoke(s, file->mem.block);
			}
			block_of(s, file)->entry = 0;
		}
		if (file->mem.block)
			block_of(s, file)->freeing = s->running;
		file->mem.block = 0;
		file->mem.unwritten = 0;
		file->mem.orphan = 0;
		log_inode(s, file);
		return true;
	case TRUNCATE_REVOKE:
		revoke(s, file->change_block);
		file->change = 0;
		file->change_pc = 0;
		file->change_block = 0;
		return true;
	}
	return false;
}

static void hold(struct state *s, struct file *file, u8 kind)
{
	static const u8 fault[] = {
		[CHANGE_DIRECT] = FAULT_DIRECT_WITHOUT_HOLD,
		[CHANGE_ZERO] = FAULT_ZERO_WITHOUT_HOLD,
		[CHANGE_SHRINK] = FAULT_SHRINK_WITHOUT_HOLD,
		[CHANGE_MOVE] = FAULT_MOVE_WITHOUT_HOLD,
		[CHANGE_DONOR] = FAULT_MOVE_WITHOUT_HOLD,
	};

	file->change = kind;
	if (faults >> fault[kind] & 1)
		return;
	file->hold |= HELD;
	if (file->last_tid || (file->born >= s->tail && !FAULTY(HOLD_FORGETS_EVICTED)))
		file->change_wait = WAIT_ASKED;
}

static void release(struct file *file)
{
	if (file->hold & HELD && file->change == CHANGE_DIRECT)
		file->hold |= STICKY;
	if (file->hold & HELD)
		file->window = 1;
	file->hold &= ~HELD;
	file->change = 0;
}

static bool change_begin(struct state *s, int f, u8 kind, int budget)
{
	struct file *file = &s->file[f], *other = &s->file[!f];

	if (file->change || s->frozen || !file->mem.block || file->mem.unwritten ||
	    !spend(s, budget))
		return false;
	hold(s, file, kind);
	if (kind != CHANGE_MOVE)
		return true;
	if (other->change || !other->mem.block || other->mem.unwritten)
		return false;
	hold(s, other, CHANGE_DONOR);
	return true;
}

/* The pages of f go to the blocks of a donor, which is then unlinked. */
static bool move(struct state *s, int f)
{
	struct file *file = &s->file[f], *donor = &s->file[!f];
	u8 block = file->mem.block;

	if (donor->change_wait || donor->flight || donor->newest == RANKS - 1)
		return false;
	file->mem.block = donor->mem.block;
	file->dirty = 1;	/* past the hooks: logged is not cleared */
	s->ordered |= 1 << f;
	s->marked = 1;
	log_inode(s, file);
	release(file);
	release(donor);
	donor->mem.block = block;
	donor->mem.orphan = 1;
	donor->mem.least = ++donor->newest;
	donor->scrap = donor->newest;
	log_inode(s, donor);
	donor->change = CHANGE_TRUNCATE;
	donor->change_pc = TRUNCATE_DROP;
	return true;
}

static bool change_goes_on(struct state *s, int f)
{
	struct file *file = &s->file[f];
	struct block *block = block_of(s, file);

	if (file->change == CHANGE_TRUNCATE)
		return truncate_goes_on(s, file);
	if (file->change_wait || file->newest == RANKS - 1)
		return false;
	switch (file->change) {
	case CHANGE_DIRECT:	/* behind the write-back of what is dirty */
		if (file->dirty)
			return submit(s, f, 0);
		if (file->flight)
			return false;
		block->now = tag_of(f, ++file->newest);
		block->maybe |= 1 << block->now;
		break;
	case CHANGE_ZERO:
		/* That it may drop a commit's ordered data is stock's. */
		if (file->flight || s->order_todo >> f & 1)
			return false;
		drop_page(file);
		file->mem.unwritten = 1;
		file->mem.least = ++file->newest;
		log_inode(s, file);
		break;
	case CHANGE_SHRINK:
		change_page(s, f);
		file->mem.least = file->newest;
		log_inode(s, file);
		s->ordered |= 1 << f;
		s->marked = 1;
		break;
	case CHANGE_MOVE:
		return !file->flight && move(s, f);
	default:
		return false;
	}
	release(file);
	return true;
}

static bool evict(struct state *s, int f)
{
	struct file *file = &s->file[f];

	if (file->dirty || file->flight || file->change || !spend(s, EVICTS))
		return false;
	for (int i = 0; i < ACTORS; i++)
		if (s->actor[i].what == f + 1)
			return false;
	file->logged = 0;
	file->last_tid = 0;
	file->born = s->block[0].entry || s->block[1].entry ? s->running : 0;
	file->hold = 0;
	file->window = 1;
	file->sync_tid = s->running - !s->handles;
	return true;
}

static bool write_page(struct state *s, int f)
{
	const struct file *file = &s->file[f];

	/* While a change waits, only mmap writes. */
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
