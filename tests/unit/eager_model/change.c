// SPDX-License-Identifier: GPL-2.0
/*
 * Freeing (section 4.3) and other changes (4.6).
 */
#include "model.h"

enum { TRUNCATE_DROP = 1, TRUNCATE_FREE, TRUNCATE_REVOKE };

#define HELD	1
#define STICKY	2

/* --- freeing (section 4.3) and other changes (4.6) ------------------------------------------ */

bool truncate_begin(struct state *s, int f)
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

bool change_begin(struct state *s, int f, u8 kind, int budget)
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
	if (file->dirty || donor->dirty) {	/* -EBUSY */
		release(file);
		release(donor);
		return true;
	}
	file->mem.block = donor->mem.block;
	file->dirty = 1;	/* past the hooks */
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

bool change_goes_on(struct state *s, int f)
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
