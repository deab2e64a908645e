// SPDX-License-Identifier: GPL-2.0
/*
 * fsync, sync(2) and freezing: kernel/ext4/eager_sync.c, ext4_eager_sync_fs().
 */
#include <string.h>

#include "model.h"

enum { SYNC_FIRST = 1, SYNC_CHOSEN, SYNC_WAIT, SYNC_PLACE, SYNC_PLACED, SYNC_LOOK, SYNC_SETTLED,
	SYNC_COMMIT, ALL_PLACE, ALL_PLACED, ALL_COMMIT, ALL_KEPT, ALL_SETTLED, ALL_AGAIN,
	ALL_AGAIN_PLACED, ALL_END, FREEZE_COMMIT, FREEZE_EMPTY };

/* --- what all of them end with ---------------------------------------------------------------- */

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

/* A commit to wait for, or a flush. Returns whether there is one. */
static bool begin_commit(struct state *s, struct actor *actor, u8 want)
{
	if (want <= committed(s)) {
		device_flush(s);
		return false;
	}
	actor->want = want;
	/* jbd2_trans_will_send_data_barrier() */
	actor->late = s->commit == COMMIT_FLUSHED && want == s->running - 1 ? 3 : 0;
	return true;
}

static bool commit_waited(struct state *s, struct actor *actor)
{
	if (actor->want > committed(s))
		return false;
	if (actor->late)
		device_flush(s);
	actor->want = 0;
	actor->late = 0;
	return true;
}

/* ext4_fsync_journal() */
static bool sync_journal(struct state *s, struct actor *actor, struct file *file)
{
	if (begin_commit(s, actor, file->sync_tid))
		actor->pc = SYNC_COMMIT;
	else
		promise(s, actor);
	return true;
}

static bool next(struct actor *actor, u8 pc)
{
	actor->pc = pc;
	return true;
}

static bool settle_then(struct state *s, struct actor *actor, u8 pc)
{
	actor->wait = settle_ask(s);
	return next(actor, pc);
}

static struct actor *begin_sync(struct state *s, u8 what, int budget)
{
	for (int i = 0; i < ACTORS; i++) {
		struct actor *actor = &s->actor[i];

		if (actor->what || !spend(s, budget))
			continue;
		actor->what = what;
		for (int f = 0; f < FILES; f++)
			if (what > FILES || what == f + 1)
				actor->target[f] = s->file[f].newest;
		return actor;
	}
	return NULL;
}

/* --- fsync: ext4_eager_write_and_wait() ------------------------------------------------------- */

bool mutex_is_free(const struct state *s, int f)
{
	for (int i = 0; i < ACTORS; i++) {
		const struct actor *actor = &s->actor[i];

		if (actor->what == f + 1 &&
		    ((actor->pc == SYNC_CHOSEN && !FAULTY(MUTEX_DROPPED_EARLY)) ||
		     (actor->pc == SYNC_WAIT && !FAULTY(UNLOCKED_BEFORE_WAIT))))
			return false;
	}
	return true;
}

/* What ext4_eager_look() finds: nothing behind the end of the file. */
static bool finds_changed(const struct state *s, const struct file *file)
{
	return changed(s, file) && !file->mem.orphan;
}

/* Behind logging: all write-back in the window. */
static bool wait_for_window(struct state *s, struct actor *actor, struct file *file)
{
	return file->flight ? next(actor, SYNC_WAIT) : sync_journal(s, actor, file);
}

/* ext4_eager_log_data() up to the first folio. large: more than the threshold, or a full log. */
static bool fsync_choose(struct state *s, struct actor *actor, int f, int large)
{
	struct file *file = &s->file[f];
	bool fresh = file->dirty && (!file->mem.block || file->mem.unwritten);

	if (FAULTY(OVERWRITE_NOT_LOOKED) && !fresh) {
		actor->late = 1;
		return !large && next(actor, SYNC_PLACE);
	}
	if ((file->never && !FAULTY(HOLD_STILL_LOGS)) || (!fresh && !file->gen))
		return !large && next(actor, SYNC_PLACE);
	if (!mutex_is_free(s, f))
		return false;
	if (!file->eager) {
		file->eager = 1;
		file->window = 1;
	}
	if (!file->window)
		return !large && sync_journal(s, actor, file);
	if (!finds_changed(s, file)) {
		file->window &= FAULTY(WINDOW_LOST);
		return !large && wait_for_window(s, actor, file);
	}
	/* Overwrite: a block that is neither new nor has a copy. */
	if (large || (!fresh && !entry_of(s, file))) {
		file->window &= !FAULTY(WINDOW_NOT_GIVEN_BACK);
		return next(actor, SYNC_PLACE);
	}
	file->window &= FAULTY(WINDOW_LOST);
	return next(actor, SYNC_CHOSEN);
}

/* A copy of the page in the running transaction: ext4_eager_log_folio(). */
static bool log_page(struct state *s, int f, int wish)
{
	struct file *file = &s->file[f];
	struct block *block;

	if (!file->mem.block || file->mem.unwritten) {
		if (!file->mem.block)
			file->mem.block = allocate(s, wish);
		else if (wish)
			return false;
		if (!file->mem.block)
			return false;
		file->mem.unwritten = 0;
		if (FAULTY(ALLOCATED_WITHOUT_COPY)) {
			log_inode(s, file);
			return true;
		}
	} else if (wish) {
		return false;
	}
	block = block_of(s, file);
	log_inode(s, file);
	/* A second copy in one transaction has the later tag: the later one is replayed. */
	block->copied |= 1 << (s->running - TAIL);
	block->copy[s->running - TAIL] = tag_of(f, file->newest);
	block->entry = s->running;
	file->logged = 1;
	file->listed = 1;
	file->copied = 1;
	file->gen = !!s->settle + 1;
	return true;
}

/* ext4_eager_log_range(): what has changed by now. */
static bool fsync_log(struct state *s, struct actor *actor, int f, int wish)
{
	struct file *file = &s->file[f];

	if (finds_changed(s, file)) {
		/* To be converted when it has been written; frozen: sb_start_intwrite_trylock(). */
		if ((file->mem.unwritten && file->flight) || s->frozen == FROZEN) {
			file->window |= !FAULTY(WINDOW_NOT_GIVEN_BACK);
			return !wish && next(actor, SYNC_PLACE);
		}
		if (!log_page(s, f, wish))
			return false;
	} else if (wish) {
		return false;
	}
	return wait_for_window(s, actor, file);
}

/* ext4_eager_may_be_undone() */
static bool fsync_look(struct state *s, struct actor *actor, int f)
{
	struct file *file = &s->file[f];
	bool looks = file->gen && !FAULTY(PLACED_NOT_SETTLED) && !actor->late;

	actor->late = 0;
	if (!looks)
		return sync_journal(s, actor, file);
	if (!file->eager)
		return settle_then(s, actor, SYNC_SETTLED);
	if (!mutex_is_free(s, f) && !FAULTY(LOOK_WITHOUT_MUTEX))
		return false;
	if (file->window && finds_changed(s, file) && entry_of(s, file))
		return settle_then(s, actor, SYNC_SETTLED);
	return sync_journal(s, actor, file);
}

static bool place(struct state *s, int f, int wish)
{
	struct file *file = &s->file[f];

	if (!file->dirty || (file->mem.orphan && !file->mem.block))
		return !wish;
	return submit(s, f, wish);
}

static bool fsync_goes_on(struct state *s, struct actor *actor, int f, int arg)
{
	struct file *file = &s->file[f];

	switch (actor->pc) {
	case SYNC_FIRST:
		return !actor->wait && fsync_choose(s, actor, f, arg);
	case SYNC_CHOSEN:
		return fsync_log(s, actor, f, arg);
	case SYNC_PLACE:
		return !(file->flight && file->dirty) && next(actor, SYNC_PLACED) &&
			place(s, f, arg);
	}
	if (arg)
		return false;
	switch (actor->pc) {
	case SYNC_WAIT:
		return !(file->flight && !(FAULTY(REDIRTIED_NOT_WAITED) && file->dirty)) &&
			sync_journal(s, actor, file);
	case SYNC_PLACED:
		if (file->flight)
			return false;
		return file->gen ? next(actor, SYNC_LOOK) : fsync_look(s, actor, f);
	case SYNC_LOOK:
		return fsync_look(s, actor, f);
	case SYNC_SETTLED:
		return !actor->wait && sync_journal(s, actor, file);
	}
	return false;
}

bool fsync_begin(struct state *s, int f, int large)
{
	struct file *file = &s->file[f];
	struct actor *actor = begin_sync(s, f + 1, FSYNCS);

	if (!actor)
		return false;
	if (file->gen && !file->eager && !FAULTY(FIRST_SYNC_SKIPS_SETTLE))
		return !large && settle_then(s, actor, SYNC_FIRST);
	return fsync_choose(s, actor, f, large);
}

/* --- sync(2) and freezing --------------------------------------------------------------------- */

#define ALL_FILES	((1 << FILES) - 1)

bool sync_all_begin(struct state *s, u8 what)
{
	struct actor *actor = begin_sync(s, what, what == WHAT_FREEZE ? FREEZES : SYNCFS);

	if (!actor || (what == WHAT_FREEZE && s->frozen))
		return false;
	actor->pc = ALL_PLACE;
	actor->late = ALL_FILES;	/* who is yet to be written */
	if (what != WHAT_FREEZE)
		return true;
	/* Waits for whoever writes or changes; syncs may still come, and log. */
	s->frozen = FREEZING;
	return !s->file[0].change && !s->file[1].change;
}

/* sync_inodes_sb(), in any order. */
static bool place_all(struct state *s, struct actor *actor, int arg, u8 pc)
{
	int f = arg % FILES, wish = arg / FILES;
	struct file *file = &s->file[f];

	if (!actor->late)
		return !arg && next(actor, pc);
	if (!(actor->late >> f & 1) || (file->flight && file->dirty))
		return false;
	actor->late &= ~(1 << f);
	return place(s, f, wish);
}

static bool all_flights_ended(const struct state *s)
{
	return !s->file[0].flight && !s->file[1].flight;
}

/* What has been kept is settled, and written once more, but once. */
static bool sync_all_kept(struct state *s, struct actor *actor)
{
	if (!s->again || (FAULTY(SECOND_PASS_IF_UNSETTLED) && !s->kept))
		return next(actor, ALL_END);
	s->again = AGAIN_BEGUN;
	if (s->kept && !FAULTY(SYNCFS_SKIPS_SETTLE))
		return settle_then(s, actor, ALL_SETTLED);
	return next(actor, ALL_SETTLED);
}

static bool sync_all_goes_on(struct state *s, struct actor *actor, int arg)
{
	if (actor->pc == ALL_PLACE)
		return place_all(s, actor, arg, ALL_PLACED);
	if (actor->pc == ALL_AGAIN)
		return place_all(s, actor, arg, ALL_AGAIN_PLACED);
	if (arg || actor->wait)
		return false;
	switch (actor->pc) {
	case ALL_PLACED:	/* ext4_sync_fs() */
		return all_flights_ended(s) &&
			next(actor, begin_commit(s, actor, s->running - !s->handles) ?
			     ALL_COMMIT : ALL_KEPT);
	case ALL_COMMIT:
		return commit_waited(s, actor) && next(actor, ALL_KEPT);
	case ALL_KEPT:
		return sync_all_kept(s, actor);
	case ALL_SETTLED:
		actor->late = FAULTY(FREEZE_SKIPS_SECOND_PASS) ? 0 : ALL_FILES;
		return next(actor, ALL_AGAIN);
	case ALL_AGAIN_PLACED:
		if (s->again == AGAIN_BEGUN)
			s->again = 0;
		return all_flights_ended(s) && next(actor, ALL_END);
	case ALL_END:
		if (actor->what != WHAT_FREEZE) {
			promise(s, actor);
			return true;
		}
		/* ext4_freeze(): updates are locked, and the log is emptied. */
		s->frozen = FROZEN;
		return next(actor, begin_commit(s, actor, s->running - !s->handles) ?
			    FREEZE_COMMIT : FREEZE_EMPTY);
	case FREEZE_COMMIT:
		return commit_waited(s, actor) && next(actor, FREEZE_EMPTY);
	case FREEZE_EMPTY:
		if (s->floor || s->next_floor)
			return settle_then(s, actor, FREEZE_EMPTY);
		promise(s, actor);
		return true;
	}
	return false;
}

bool sync_goes_on(struct state *s, int i, int arg)
{
	struct actor *actor = &s->actor[i];

	if (!actor->what)
		return false;
	if (actor->pc == SYNC_COMMIT) {
		if (arg || !commit_waited(s, actor))
			return false;
		promise(s, actor);
		return true;
	}
	if (actor->what > FILES)
		return sync_all_goes_on(s, actor, arg);
	return arg < BLOCKS && fsync_goes_on(s, actor, actor->what - 1, arg);
}
