// SPDX-License-Identifier: GPL-2.0
/*
 * fsync, sync(2) and freezing: section 3, and who waits for a settling.
 */
#include <string.h>

#include "model.h"

enum { SYNC_QUEUE = 1, SYNC_PLACE, SYNC_PLACED, SYNC_SETTLED, SYNC_WAIT, SYNC_COMMIT,
	SYNC_ALL, SYNC_ALL_PLACED, SYNC_ALL_SETTLED };

/* --- fsync: section 3 ----------------------------------------------------------------------- */

/* Queues a copy of the page in the running transaction. */
bool log_page(struct state *s, int f, int wish)
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
bool fsync_begin(struct state *s, int f, int how)
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

bool sync_all_begin(struct state *s, u8 what)
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
	int f = arg % FILES, wish = arg / FILES;	/* in any order */
	struct file *file = &s->file[f];

	switch (actor->pc) {
	case SYNC_ALL:
		if (!actor->late) {
			actor->pc = SYNC_ALL_PLACED;
			return !arg && !s->file[0].flight && !s->file[1].flight;
		}
		if (!(actor->late >> f & 1) || (file->flight && file->dirty))
			return false;
		actor->late &= ~(1 << f);
		if (!file->dirty || (file->mem.orphan && !file->mem.block))
			return !wish;
		return submit(s, f, wish);
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

bool sync_goes_on(struct state *s, int i, int arg)
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
	return arg < BLOCKS && fsync_goes_on(s, actor, actor->what - 1, arg);
}
