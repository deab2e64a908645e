// SPDX-License-Identifier: GPL-2.0
/*
 * Freeing, and other changes of a file's blocks: kernel/ext4/eager_hold.c.
 */
#include "model.h"

enum { TRUNCATE_DROP = 1, TRUNCATE_FREE, TRUNCATE_REVOKE };
enum { HOLD_FLAGGED = 1, HOLD_DONE, CUT_SENT };

/* Fallocate and truncation release; a direct write and MOVE_EXT do not. */
static void end_change(struct file *file)
{
	bool releases = file->change == CHANGE_ZERO || file->change == CHANGE_SHRINK ||
		file->change == CHANGE_TRUNCATE;

	if (file->change_held && releases) {
		file->window = 1;
		file->never = 0;
	}
	file->change = 0;
	file->change_pc = 0;
	file->change_held = 0;
}

/* --- freeing: ext4_eager_free_blocks() -------------------------------------------------------- */

static void shorten(struct state *s, struct file *file, u8 orphan)
{
	file->mem.orphan = orphan;
	file->mem.least = ++file->newest;
	log_inode(s, file);
	file->change = CHANGE_TRUNCATE;
	file->change_pc = TRUNCATE_DROP;
}

/* Without what truncate does first: so does unlink, and it may come at any time. */
bool truncate_begin(struct state *s, int f)
{
	struct file *file = &s->file[f];

	/* ext4_begin_ordered_truncate(): a commit's ordered data is written first. */
	if (file->change || s->frozen || (!file->dirty && !file->mem.block) ||
	    s->order_todo >> f & 1 || file->newest == RANKS - 1 || !spend(s, TRUNCATES))
		return false;
	shorten(s, file, 1);
	return true;
}

/* ext4_eager_hold_shrink(), the file held: what has a copy is in its place, then pages go. */
static bool cut_goes_on(struct state *s, int f)
{
	struct file *file = &s->file[f];

	if (file->flight)
		return false;
	if (file->change_pc == HOLD_DONE) {
		file->change_pc = CUT_SENT;
		if (entry_of(s, file) && !FAULTY(CUT_NOT_IN_PLACE))
			submit(s, f, -1);
		return true;
	}
	if (s->order_todo >> f & 1)
		return false;
	shorten(s, file, HAS_NAME);
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
		end_change(file);
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

/* --- whoever holds the inode ------------------------------------------------------------------ */

/* ext4_eager_hold() up to the mutex. */
static void hold(struct file *file, u8 kind)
{
	static const u8 fault[] = {
		[CHANGE_DIRECT] = FAULT_DIRECT_WITHOUT_HOLD,
		[CHANGE_ZERO] = FAULT_ZERO_WITHOUT_HOLD,
		[CHANGE_SHRINK] = FAULT_SHRINK_WITHOUT_HOLD,
		[CHANGE_MOVE] = FAULT_MOVE_WITHOUT_HOLD,
		[CHANGE_DONOR] = FAULT_MOVE_WITHOUT_HOLD,
		[CHANGE_CUT] = FAULT_CUT_WITHOUT_HOLD,
	};

	file->change = kind;
	file->change_pc = HOLD_DONE;
	if (faults >> fault[kind] & 1)
		return;
	file->change_pc = HOLD_FLAGGED;
	file->change_held = !file->never;
	file->never = 1;
}

static bool hold_goes_on(struct state *s, int f)
{
	struct file *file = &s->file[f];

	if (!mutex_is_free(s, f) && !FAULTY(HOLD_SKIPS_MUTEX))
		return false;
	file->change_pc = HOLD_DONE;
	if (file->gen && file->change != CHANGE_CUT)
		file->change_wait = settle_ask(s);
	return true;
}

bool change_begin(struct state *s, int f, u8 kind, int budget)
{
	struct file *file = &s->file[f], *other = &s->file[!f];
	/* What is not there yet may be logged until the file is held. */
	bool there = kind == CHANGE_CUT ? file->dirty || file->mem.block :
		file->mem.block && !file->mem.unwritten;

	if (file->change || s->frozen || !there || !spend(s, budget))
		return false;
	hold(file, kind);
	if (kind != CHANGE_MOVE)
		return true;
	if (other->change || !other->mem.block || other->mem.unwritten)
		return false;
	hold(other, CHANGE_DONOR);
	return true;
}

/* The pages of f go to the blocks of a donor, which is then unlinked. */
static bool move(struct state *s, int f)
{
	struct file *file = &s->file[f], *donor = &s->file[!f];
	u8 block = file->mem.block;

	if (donor->change_pc != HOLD_DONE || donor->change_wait || donor->flight ||
	    donor->newest == RANKS - 1)
		return false;
	if (file->dirty || donor->dirty) {	/* -EBUSY */
		end_change(file);
		end_change(donor);
		return true;
	}
	file->mem.block = donor->mem.block;
	file->dirty = 1;	/* past the hooks */
	s->ordered |= 1 << f;
	s->marked = 1;
	log_inode(s, file);
	end_change(file);
	end_change(donor);
	donor->mem.block = block;
	shorten(s, donor, 1);
	donor->scrap = donor->newest;
	return true;
}

bool change_goes_on(struct state *s, int f)
{
	struct file *file = &s->file[f];
	struct block *block = block_of(s, file);

	if (file->change == CHANGE_TRUNCATE)
		return truncate_goes_on(s, file);
	if (file->change_pc == HOLD_FLAGGED)
		return hold_goes_on(s, f);
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
	case CHANGE_CUT:
		return cut_goes_on(s, f);
	case CHANGE_MOVE:
		return !file->flight && move(s, f);
	default:
		return false;
	}
	end_change(file);
	return true;
}
