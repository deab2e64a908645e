// SPDX-License-Identifier: GPL-2.0
/*
 * jbd2's commits, and settling: sections 4.2 and 4.4.
 */
#include "model.h"

enum { SETTLE_COMMIT = 1, SETTLE_PLACES, SETTLE_COMMIT_AGAIN, SETTLE_DROP, SETTLE_NUMBERS,
	SETTLE_FLUSH, SETTLE_SUPERBLOCK, SETTLE_ERASE, SETTLE_STEP_7 };

/* --- jbd2's commit -------------------------------------------------------------------------- */

/* The oldest transaction with data that is not settled, or tid: section 4.2. */
static u8 floor_of(const struct state *s, u8 tid)
{
	for (u8 t = TAIL; t < tid; t++)
		if (s->recorded >> (t - TAIL) & 1)
			return t;
	return tid;
}

bool commit_lock(struct state *s)
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

bool commit_order(struct state *s, int f)
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

bool commit_log(struct state *s, int moves_tail)
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

bool commit_flush(struct state *s)
{
	if (s->commit != COMMIT_LOGGED)
		return false;
	device_flush(s);
	s->commit = COMMIT_FLUSHED;
	return true;
}

bool commit_end(struct state *s)
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

static bool somebody(const struct state *s, u8 waits)
{
	return s->actor[0].wait == waits || s->actor[1].wait == waits ||
		s->file[0].change_wait == waits || s->file[1].change_wait == waits;
}

bool settle_begin(struct state *s)
{
	if (s->settle || (!somebody(s, WAIT_ASKED) && (s->frozen || !spend(s, SETTLES))))
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

/* Writes the pages of settle_todo, one a step in any order, and waits for all. */
enum written { BLOCKED, SENT, WRITTEN };

static enum written settle_write(struct state *s, int f)
{
	struct file *file = &s->file[f];

	if (s->settle_todo) {
		if (!(s->settle_todo >> f & 1) || (file->flight && file->dirty))
			return BLOCKED;
		s->settle_todo &= ~(1 << f);
		s->settle_wait |= 1 << f;
		if (submit(s, f, -1) && file->dirty)
			s->settle_kept |= 1 << f;
		return SENT;
	}
	for (int i = 0; i < FILES && !FAULTY(SETTLE_DOES_NOT_WAIT); i++)
		if (s->settle_wait >> i & 1 && s->file[i].flight)
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

bool settle_goes_on(struct state *s, int arg)
{
	enum written written;

	if (arg && s->settle != SETTLE_NUMBERS && !s->settle_todo)
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
		written = settle_write(s, arg);
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
		if (somebody(s, WAIT_BEGUN) && !FAULTY(FREEZE_SKIPS_STEP_7))
			s->settle_todo = s->settle_kept;
		else
			settle_end(s);
		return true;
	case SETTLE_STEP_7:
		written = settle_write(s, arg);
		if (written == WRITTEN)
			settle_end(s);
		return written != BLOCKED;
	}
	return false;
}
