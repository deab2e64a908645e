// SPDX-License-Identifier: GPL-2.0
/*
 * Every interleaving of what a budget allows, breadth first, or a walk by chance. Each state that is
 * new is judged: whatever a power cut leaves now, recovery has to bring back what was promised.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eager_model.h"

#define LONGEST		256

#define NAME(name)	#name,
#define OP_NAME(name, arguments, words)	words,
const char *const fault_names[] = { FAULTS(NAME) NULL };
const char *const budget_names[] = { BUDGETS(NAME) NULL };
const char *const op_names[] = { OPS(OP_NAME) NULL };

struct result {
	u64 states, steps, stuck, full;
	u64 taken[NR_OPS];
	int length;			/* of the sequence that breaks something, or 0 */
	int depth;
	char story[LONGEST * 64];
};

/* --- states that differ in nothing that counts are one --------------------------------------- */

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
	s->recorded >>= by;
	s->tail -= by;
	s->running -= by;
	s->commit_tail = moved(s->commit_tail, by);
	s->settle_tid = moved(s->settle_tid, by);
	s->settled = moved(s->settled, by);
	s->settle_tail = moved(s->settle_tail, by);
	for (int f = 0; f < FILES; f++) {
		struct file *file = &s->file[f];

		file->sync_tid = moved(file->sync_tid, by);
		if (file->sync_tid <= committed(s))
			file->sync_tid = 0;
		file->last_tid = moved(file->last_tid, by);
		file->born = moved(file->born, by);
		if (file->born < TAIL)
			file->born = 0;
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

static void use(u8 *rank, int f, void *with)
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

static void rank(u8 *rank, int f, void *with)
{
	*rank = ((u8 *)with)[*rank];
}

static void rank_tag(u8 *tag, int f, void *with)
{
	if (*tag / RANKS == f)
		*tag = tag_of(f, ((u8 *)with)[*tag % RANKS]);
}

static void rank_maybe(u16 *maybe, int f, void *with)
{
	u16 others = *maybe & ~(0xff << f * RANKS);

	for (int r = 0; r < RANKS; r++)
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
	return tag ? tag ^ RANKS : 0;
}

static u16 swap_maybe(u16 maybe)
{
	return (maybe & 1) | (maybe & 0xfe) << RANKS | (maybe & 0xfe00) >> RANKS;
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
	s->settle_kept = swap_bits(s->settle_kept);
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

/* Of files, blocks and syncs it does not matter which is which. */
static void normalize(struct state *s)
{
	renumber_tids(s);
	if (!s->commit)
		for (int f = 0; f < FILES; f++)
			s->file[f].locked = s->file[f].durable;
	for (int f = 0; f < FILES; f++)
		renumber_ranks(s, f);
	if (memcmp(&s->file[0], &s->file[1], sizeof(s->file[0])) > 0)
		swap_files(s);
	if (memcmp(&s->block[0], &s->block[1], sizeof(s->block[0])) > 0)
		swap_blocks(s);
	if (memcmp(&s->actor[0], &s->actor[1], sizeof(s->actor[0])) > 0)
		swap(&s->actor[0], &s->actor[1], sizeof(s->actor[0]));
}

/* --- judging ----------------------------------------------------------------------------------*/

/* What recovery may find in a block: tags, a bit each. */
static u16 replayed(const struct block *block, u8 last)
{
	for (int t = last - TAIL; t >= 0; t--) {
		/* Of one transaction, the revoke counts. */
		if (block->revoked >> t & 1)
			return block->maybe;
		if (block->copied >> t & 1)
			return 1 << block->copy[t];
	}
	return block->maybe;
}

static bool kept_promise(const struct state *s, int f, const struct image *image, u8 last,
			 char *why)
{
	const struct file *file = &s->file[f];
	u16 found;

	if (image->least < file->scrap)
		return true;
	if (!image->block || image->orphan || image->unwritten) {
		if (image->least >= file->promised)
			return true;
		sprintf(why, "file %c is empty", 'A' + f);
		return false;
	}
	found = replayed(&s->block[image->block - 1], last);
	for (int tag = 0; tag < FILES * RANKS; tag++) {
		if (!(found >> tag & 1) || (tag && tag / RANKS == f &&
					    tag % RANKS >= file->promised &&
					    tag % RANKS >= image->least))
			continue;
		sprintf(why, "file %c shows %s", 'A' + f,
			!tag ? "what is older than its promise, or junk" :
			tag / RANKS != f ? "the other file's data" : "old data");
		return false;
	}
	return true;
}

/* Any power cut now: is everything that was promised there? */
static bool judge(const struct state *s, char *why)
{
	u8 last = committed(s);

	if (s->unclean) {
		sprintf(why, "frozen with a dirty page");
		return false;
	}
	for (int f = 0; f < FILES; f++) {
		const struct file *file = &s->file[f];

		if (s->commit != COMMIT_FLUSHED && !kept_promise(s, f, &file->durable, last, why))
			return false;
		/* A burst may be whole before its flush; what is marked, not. */
		if ((s->commit == COMMIT_FLUSHED ||
		     (s->commit == COMMIT_LOGGED && !s->commit_marked)) &&
		    !kept_promise(s, f, &file->locked, last + 1, why))
			return false;
		if (!faults && file->mem.block && !file->mem.unwritten && !file->mem.orphan &&
		    !file->dirty && !file->flight &&
		    s->block[file->mem.block - 1].now != tag_of(f, file->newest)) {
			sprintf(why, "the model: file %c is clean and not in its place", 'A' + f);
			return false;
		}
	}
	return true;
}

/* Somebody waits, and not because the model's log or a file's history is at its end. */
static bool busy(const struct state *s)
{
	if (s->running - TAIL == SLOTS - 1 || s->file[0].newest == RANKS - 1 ||
	    s->file[1].newest == RANKS - 1)
		return false;
	return s->actor[0].what || s->actor[1].what || s->settle || s->commit ||
		s->file[0].change || s->file[1].change;
}

/* --- searching --------------------------------------------------------------------------------*/

struct seen {
	u64 state, from;
};

static struct seen *seen;
static u64 seen_mask;

static u64 hash(const struct state *s)
{
	const u8 *bytes = (const u8 *)s;
	u64 sum = 0x9e3779b97f4a7c15, word;

	for (size_t i = 0; i < sizeof(*s); i += sizeof(word)) {
		size_t left = sizeof(*s) - i;

		word = 0;
		memcpy(&word, bytes + i, left < sizeof(word) ? left : sizeof(word));
		sum = (sum ^ word) * 0xff51afd7ed558ccd;
		sum ^= sum >> 32;
	}
	return sum ? sum : 1;
}

static struct seen *slot_of(u64 state)
{
	u64 i = state & seen_mask;

	while (seen[i].state && seen[i].state != state)
		i = (i + 1) & seen_mask;
	return &seen[i];
}

static void begin(struct state *s, const u8 *budgets)
{
	memset(s, 0, sizeof(*s));
	memcpy(s->left, budgets, NR_BUDGETS);
	s->tail = TAIL;
	s->running = TAIL;
	for (int f = 0; f < FILES; f++)
		s->file[f].window = 1;
	for (int b = 0; b < BLOCKS; b++)
		s->block[b].maybe = 1;
	normalize(s);
}

static bool take(const struct state *from, int op, int arg, struct state *to)
{
	*to = *from;
	return model_step(to, op, arg);
}

/* The words of a step. They name files and blocks as they were at the beginning. */
static void tell(struct result *result, int op, int arg, const char *names)
{
	char *end = result->story + strlen(result->story);

	switch (op) {
	case OP_WRITE: case OP_COMPLETE: case OP_ORDER: case OP_TRUNCATE: case OP_DIRECT:
	case OP_ZERO: case OP_SHRINK: case OP_MOVE: case OP_CHANGE: case OP_EVICT: case OP_SUBMIT:
		sprintf(end, "%s %c\n", op_names[op], names[arg % FILES]);
		break;
	case OP_FSYNC:
		sprintf(end, "%s %c, %s\n", op_names[op], names[arg % FILES],
			arg / FILES == 2 ? "in place" : "logs");
		break;
	case OP_LOG:
		sprintf(end, "%s%s\n", op_names[op], arg ? ", tail looked up" : "");
		break;
	default:
		sprintf(end, "%s\n", op_names[op]);
	}
}

/*
 * The way to a state, from the beginning. States in the table have been renumbered: the steps are
 * found once more. Files may change names at each step, so names follow them.
 */
static void tell_way(struct result *result, const u8 *budgets, u64 last)
{
	static u64 way[LONGEST];
	struct state s, next, plain;
	char names[] = "AB";
	int length = 0;

	for (u64 state = last; state; state = slot_of(state)->from)
		if (length < LONGEST)
			way[length++] = state;
	result->length = length - 1;
	begin(&s, budgets);
	for (int i = length - 2; i >= 0; i--) {
		for (int op = 0; op < NR_OPS; op++)
			for (int arg = 0; arg < op_arguments[op]; arg++) {
				if (!take(&s, op, arg, &next))
					continue;
				plain = next;
				normalize(&next);
				if (hash(&next) != way[i])
					continue;
				tell(result, op, arg, names);
				renumber_tids(&plain);
				for (int f = 0; f < FILES; f++) {
					if (!plain.commit)
						plain.file[f].locked = plain.file[f].durable;
				}
				for (int f = 0; f < FILES; f++)
					renumber_ranks(&plain, f);
				if (memcmp(&plain.file[0], &plain.file[1],
					   sizeof(plain.file[0])) > 0)
					swap(&names[0], &names[1], 1);
				s = next;
				goto found;
			}
found:;
	}
	{
		char why[80] = "", *end;

		judge(&s, why);
		end = result->story + strlen(result->story);
		sprintf(end, "power cut: %s (A is %c here)\n", why, names[0]);
	}
}

/* Returns whether nothing was broken. bits: of the table's size; at most 3/4 of it are used. */
bool search(const u8 *budgets, u64 with, int bits, int deepest, struct result *result)
{
	u64 room = 1 << 12, now = 0, next = 0, next_room = room;
	struct state *level = malloc(room * sizeof(*level));
	struct state *new = malloc(room * sizeof(*new));
	char why[80];
	bool good = true;

	memset(result, 0, sizeof(*result));
	faults = with;
	seen_mask = (1ULL << bits) - 1;
	seen = calloc(1ULL << bits, sizeof(*seen));
	begin(&level[now++], budgets);
	slot_of(hash(&level[0]))->state = hash(&level[0]);
	result->states = 1;
	while (now && good && result->depth < deepest) {
		next = 0;
		for (u64 i = 0; i < now && good; i++) {
			u64 from = hash(&level[i]);
			bool moves = false;

			for (int op = 0; op < NR_OPS && good; op++)
				for (int arg = 0; arg < op_arguments[op] && good; arg++) {
					struct state *to;
					struct seen *slot;
					u64 state;

					if (next == next_room) {
						next_room *= 2;
						new = realloc(new, next_room * sizeof(*new));
					}
					to = &new[next];
					if (!take(&level[i], op, arg, to))
						continue;
					moves = true;
					result->steps++;
					result->taken[op]++;
					normalize(to);
					state = hash(to);
					slot = slot_of(state);
					if (slot->state)
						continue;
					if (result->states > seen_mask / 4 * 3) {
						result->full = 1;
						goto out;
					}
					slot->state = state;
					slot->from = from;
					result->states++;
					next++;
					if (!judge(to, why)) {
						good = false;
						tell_way(result, budgets, state);
					}
				}
			if (!moves && busy(&level[i]))
				result->stuck++;
		}
		result->depth++;
		{
			struct state *old = level;
			u64 old_room = room;

			level = new;
			room = next_room;
			now = next;
			new = old;
			next_room = old_room;
		}
	}
out:
	free(level);
	free(new);
	free(seen);
	return good;
}
