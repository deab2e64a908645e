// SPDX-License-Identifier: GPL-2.0
/*
 * jbd2's commits, the log's tail (kernel/jbd2/burst_tail.c), and settling
 * (kernel/ext4/eager_settle.c).
 */
#include "model.h"

enum { SETTLE_COMMIT = 1, SETTLE_ROTATED, SETTLE_PLACES, SETTLE_COMMIT_AGAIN, SETTLE_NUMBERS,
	SETTLE_FLUSH, SETTLE_SUPERBLOCK, SETTLE_FORGET, SETTLE_END };

/* --- jbd2's commit -------------------------------------------------------------------------- */

/* jbd2_burst_limit_tail() */
static u8 limit_tail(const struct state *s, u8 tid)
{
	u8 lowest = s->floor ? s->floor : s->next_floor;

	return lowest && tid > lowest ? lowest : tid;
}

/* jbd2_burst_log_starts() */
static void log_starts(struct state *s)
{
	bool data = false;

	for (int b = 0; b < BLOCKS; b++)
		data |= s->block[b].copied >> (s->running - TAIL) & 1;
	if (!data)
		return;
	s->last_data = s->running;
	if (!s->next_floor)
		s->next_floor = s->running;
}

bool commit_lock(struct state *s)
{
	if (s->commit || !s->handles || s->running - TAIL == SLOTS - 1)
		return false;
	s->commit = COMMIT_LOCKED;
	s->commit_marked = s->marked;
	s->order_todo = s->ordered;
	log_starts(s);
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
		limit_tail(s, s->running - 1);
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
	    (s->commit_tail && s->settle >= SETTLE_NUMBERS && s->settle <= SETTLE_SUPERBLOCK))
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

/* --- settling --------------------------------------------------------------------------------- */

/*
 * Numbers of settlings count from the last that has ended: 1 is the next to begin
 * or the one that runs, 2 the one after that; 0 is any that has ended (settled).
 */
u8 settle_ask(const struct state *s)
{
	return s->settle && !FAULTY(SETTLE_JOINED_LATE) ? 2 : 1;
}

static bool somebody_waits(const struct state *s)
{
	return s->actor[0].wait || s->actor[1].wait || s->file[0].change_wait ||
		s->file[1].change_wait;
}

bool settle_begin(struct state *s)
{
	if (s->settle || (!somebody_waits(s) && !spend(s, SETTLES)))
		return false;
	if (FAULTY(KEPT_GOES_BACK))
		s->kept = 0;
	s->settle_tid = s->running - !s->handles;
	s->settle = SETTLE_COMMIT;
	return true;
}

/* jbd2_burst_settle_begin(), behind the commit. */
static void rotate(struct state *s)
{
	if (!s->floor) {
		s->floor = s->next_floor;
		s->next_floor = 0;
	}
	s->settle_last = s->floor ? s->last_data : 0;
	s->settle = SETTLE_ROTATED;
}

/* ext4_eager_write_all(): one file a step, in any order; then waits for all. */
enum written { BLOCKED, SENT, WRITTEN };

static enum written settle_write(struct state *s, int f)
{
	struct file *file = &s->file[f];

	if (s->settle_todo) {
		if (!(s->settle_todo >> f & 1) || (file->copied && file->flight && file->dirty))
			return BLOCKED;
		s->settle_todo &= ~(1 << f);
		if (!file->copied)
			return SENT;
		s->settle_wait |= 1 << f;
		if (!FAULTY(COPIED_TAKEN_LATE))
			file->copied = 0;
		submit(s, f, -1);
		return SENT;
	}
	for (int i = 0; i < FILES; i++)
		if (s->settle_wait >> i & 1) {
			if (s->file[i].flight && !FAULTY(SETTLE_DOES_NOT_WAIT))
				return BLOCKED;
			s->file[i].copied &= !FAULTY(COPIED_TAKEN_LATE);
		}
	s->settle_wait = 0;
	return WRITTEN;
}

/* jbd2_cleanup_journal_tail() looks the tail up. */
static bool settle_numbers(struct state *s, int least)
{
	u8 most = s->running - !!s->commit;

	if (least && s->settle_last + 1 == most)
		return false;
	/* Least: metadata behind that is not checkpointed. */
	s->settle_tail = limit_tail(s, least ? s->settle_last + 1 : most);
	s->settle = s->settle_tail > s->tail ? SETTLE_FLUSH : SETTLE_FORGET;
	return true;
}

/* ext4_eager_settled(): blocks that the log has copies of are told by this. */
static void forget(struct state *s, u8 tail)
{
	for (int b = 0; b < BLOCKS; b++)
		if (s->block[b].entry < tail || FAULTY(SETTLE_FORGETS_NEWER))
			s->block[b].entry = 0;
}

static void pass(u8 *number)
{
	*number -= !!*number;
}

/* "settled" and "done" are one more: ext4_eager_note_settled(), ext4_eager_unlist(). */
static void settle_end(struct state *s)
{
	for (int f = 0; f < FILES; f++) {
		struct file *file = &s->file[f];

		if (file->gen <= 1 || FAULTY(SETTLE_UNLISTS_NEWER))
			file->listed = 0;
		pass(&file->gen);
		pass(&file->gone);
		pass(&file->change_wait);
	}
	for (int i = 0; i < ACTORS; i++)
		pass(&s->actor[i].wait);
	pass(&s->kept);
	s->settle = 0;
	s->settle_tid = 0;
	s->settle_last = 0;
	s->settle_tail = 0;
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
		rotate(s);
		return true;
	case SETTLE_ROTATED:
		if (committed(s) < s->settle_last)
			return false;
		for (int f = 0; f < FILES; f++)
			if (s->file[f].listed && !FAULTY(SETTLE_SKIPS_PLACES))
				s->settle_todo |= 1 << f;
		s->settle = SETTLE_PLACES;
		return true;
	case SETTLE_PLACES:
		written = settle_write(s, arg);
		if (written != WRITTEN)
			return written == SENT;
		s->settle_tid = s->running - !s->handles;
		s->settle = s->floor ? SETTLE_COMMIT_AGAIN : SETTLE_FORGET;
		return true;
	case SETTLE_COMMIT_AGAIN:	/* then a checkpoint: jbd2's own matter */
		if (committed(s) < s->settle_tid && !FAULTY(SETTLE_SKIPS_COMMIT))
			return false;
		s->floor = 0;
		if (FAULTY(SETTLE_DROPS_BOTH_FLOORS))
			s->next_floor = 0;
		if (FAULTY(SETTLE_FORGETS_EARLY))
			forget(s, s->settle_last + 1);
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
		s->settle = SETTLE_FORGET;
		return true;
	case SETTLE_FORGET:
		forget(s, s->tail);
		s->settle = SETTLE_END;
		return true;
	case SETTLE_END:
		settle_end(s);
		return true;
	}
	return false;
}
