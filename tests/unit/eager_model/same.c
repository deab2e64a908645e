// SPDX-License-Identifier: GPL-2.0
/*
 * States that differ in nothing that counts are one.
 */
#include <string.h>

#include "model.h"

static u8 moved(u8 tid, u8 by)
{
	return tid > TAIL - 1 + by ? tid - by : tid ? TAIL - 1 : 0;
}

/* Tids: the tail becomes TAIL, and what is before it is all the same. */
static void renumber_tids(struct state *s)
{
	u8 by = s->tail - TAIL;

	for (int b = 0; b < BLOCKS; b++) {
		struct block *block = &s->block[b];

		if (by) {
			memmove(block->copy, block->copy + by, SLOTS - by);
			memset(block->copy + SLOTS - by, 0, by);
		}
		block->copied >>= by;
		block->revoked >>= by;
		block->entry = moved(block->entry, by);
		block->freeing = moved(block->freeing, by);
	}
	s->floor = moved(s->floor, by);
	s->next_floor = moved(s->next_floor, by);
	s->last_data = s->floor || s->next_floor ? moved(s->last_data, by) : 0;
	s->tail -= by;
	s->running -= by;
	s->commit_tail = moved(s->commit_tail, by);
	s->settle_tid = moved(s->settle_tid, by);
	s->settle_last = moved(s->settle_last, by);
	s->settle_tail = moved(s->settle_tail, by);
	for (int f = 0; f < FILES; f++) {
		struct file *file = &s->file[f];

		file->sync_tid = moved(file->sync_tid, by);
		if (file->sync_tid <= committed(s))
			file->sync_tid = 0;
	}
	for (int i = 0; i < ACTORS; i++)
		s->actor[i].want = moved(s->actor[i].want, by);
}

/* Calls what for each rank of a file; of tags, for those that are the file's. */
static void each_rank(struct state *s, int f, void (*what)(u8 *rank, int f, void *with),
		      void (*what_tag)(u8 *tag, int f, void *with),
		      void (*what_maybe)(u16 *maybe, int f, void *with), void *with)
{
	struct file *file = &s->file[f];

	what(&file->newest, f, with);
	what(&file->promised, f, with);
	what(&file->scrap, f, with);
	what(&file->flight, f, with);
	what(&file->mem.least, f, with);
	what(&file->locked.least, f, with);
	what(&file->durable.least, f, with);
	for (int i = 0; i < ACTORS; i++)
		what(&s->actor[i].target[f], f, with);
	for (int b = 0; b < BLOCKS; b++) {
		what_maybe(&s->block[b].maybe, f, with);
		what_tag(&s->block[b].now, f, with);
		for (int t = 0; t < s->running + 1 - TAIL; t++)
			what_tag(&s->block[b].copy[t], f, with);
	}
}

static void use(u8 *rank, int f __attribute__((unused)), void *with)
{
	*(u8 *)with |= 1 << *rank;
}

static void use_tag(u8 *tag, int f, void *with)
{
	if (*tag / RANKS == f)
		*(u8 *)with |= 1 << *tag % RANKS;
}

static void use_maybe(u16 *maybe, int f, void *with)
{
	*(u8 *)with |= *maybe >> f * RANKS;
}

static void rank(u8 *rank, int f __attribute__((unused)), void *with)
{
	*rank = ((u8 *)with)[*rank];
}

static void rank_tag(u8 *tag, int f, void *with)
{
	if (*tag % RANKS && *tag / RANKS == f)
		*tag = tag_of(f, ((u8 *)with)[*tag % RANKS]);
}

static void rank_maybe(u16 *maybe, int f, void *with)
{
	u16 others = *maybe & ~(0xfe << f * RANKS);

	for (int r = 1; r < RANKS; r++)
		if (*maybe >> (f * RANKS + r) & 1)
			others |= 1 << tag_of(f, ((u8 *)with)[r]);
	*maybe = others;
}

/* Ranks: what is older than the promise is all the same, the others move together. */
static void renumber_ranks(struct state *s, int f)
{
	u8 promised = s->file[f].promised;
	u8 map[RANKS] = { 0 };
	u8 used = 0, next = 1;

	each_rank(s, f, use, use_tag, use_maybe, &used);
	for (int r = 1; r < RANKS; r++)
		if (r >= promised && used >> r & 1)
			map[r] = next++;
	for (int r = 1; r < RANKS; r++)
		if (map[r] != r && used >> r & 1) {
			each_rank(s, f, rank, rank_tag, rank_maybe, map);
			return;
		}
}

static void swap(void *a, void *b, size_t size)
{
	u8 with[sizeof(struct file)];

	memcpy(with, a, size);
	memcpy(a, b, size);
	memcpy(b, with, size);
}

static u8 swap_bits(u8 bits)
{
	return (bits & 1) << 1 | bits >> 1;
}

static u8 swap_tag(u8 tag)
{
	return tag % RANKS ? tag ^ RANKS : tag;
}

static u16 swap_maybe(u16 maybe)
{
	return (maybe & (1 | 1 << JUNK)) | (maybe & 0xfe) << RANKS | (maybe & 0xfe00) >> RANKS;
}

static void swap_files(struct state *s)
{
	swap(&s->file[0], &s->file[1], sizeof(s->file[0]));
	for (int b = 0; b < BLOCKS; b++) {
		struct block *block = &s->block[b];

		block->now = swap_tag(block->now);
		block->maybe = swap_maybe(block->maybe);
		for (int t = 0; t < SLOTS; t++)
			block->copy[t] = swap_tag(block->copy[t]);
	}
	for (int i = 0; i < ACTORS; i++) {
		struct actor *actor = &s->actor[i];

		swap(&actor->target[0], &actor->target[1], 1);
		if (actor->what >= WHAT_SYNC)
			actor->late = swap_bits(actor->late);
		else if (actor->what)
			actor->what = FILES + 1 - actor->what;
	}
	s->ordered = swap_bits(s->ordered);
	s->order_todo = swap_bits(s->order_todo);
	s->order_wait = swap_bits(s->order_wait);
	s->settle_todo = swap_bits(s->settle_todo);
	s->settle_wait = swap_bits(s->settle_wait);
}

static void swap_blocks(struct state *s)
{
	swap(&s->block[0], &s->block[1], sizeof(s->block[0]));
	for (int f = 0; f < FILES; f++) {
		struct file *file = &s->file[f];
		u8 *const numbers[] = { &file->mem.block, &file->locked.block, &file->durable.block,
			&file->change_block };

		for (int i = 0; i < 4; i++)
			if (*numbers[i])
				*numbers[i] = BLOCKS + 1 - *numbers[i];
	}
}

void renumber(struct state *s)
{
	renumber_tids(s);
	if (!s->commit)
		for (int f = 0; f < FILES; f++)
			s->file[f].locked = s->file[f].durable;
	for (int f = 0; f < FILES; f++)
		renumber_ranks(s, f);
}

/* Of files, blocks and syncs it does not matter which is which. */
void exchange(struct state *s)
{
	if (memcmp(&s->file[0], &s->file[1], sizeof(s->file[0])) > 0)
		swap_files(s);
	if (memcmp(&s->block[0], &s->block[1], sizeof(s->block[0])) > 0)
		swap_blocks(s);
	if (memcmp(&s->actor[0], &s->actor[1], sizeof(s->actor[0])) > 0)
		swap(&s->actor[0], &s->actor[1], sizeof(s->actor[0]));
}
