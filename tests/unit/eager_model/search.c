// SPDX-License-Identifier: GPL-2.0
/*
 * Every interleaving of what a budget allows, breadth first, or a walk by chance.
 * Each new state is judged: whatever a power cut leaves now, recovery has to
 * bring back what was promised.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

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

/* --- judging ----------------------------------------------------------------------------------*/

static char file_name(int f)
{
	return 'A' + f;
}

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
	if (image->orphan == HAS_NAME && image->block && !image->unwritten &&
	    replayed(&s->block[image->block - 1], last) & (1 << JUNK | 0xfe << !f * RANKS)) {
		sprintf(why, "file %c, whose orphan record is not heeded, shows another's data once it grows",
			file_name(f));
		return false;
	}
	if (!image->block || image->orphan || image->unwritten) {
		if (image->least >= file->promised)
			return true;
		sprintf(why, "file %c is empty", file_name(f));
		return false;
	}
	found = replayed(&s->block[image->block - 1], last);
	for (int tag = 0; tag < FILES * RANKS; tag++) {
		if (!(found >> tag & 1) || (tag % RANKS && tag / RANKS == f &&
					    tag % RANKS >= file->promised &&
					    tag % RANKS >= image->least))
			continue;
		sprintf(why, "file %c shows %s", file_name(f),
			!(tag % RANKS) ? "what is older than its promise, or junk" :
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
			sprintf(why, "the model: file %c is clean and not in its place", file_name(f));
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
	for (int b = 0; b < BLOCKS; b++) {
		s->block[b].now = JUNK;
		s->block[b].maybe = 1 << JUNK;
	}
	renumber(s);
}

/* Whatever may be tried. */
static struct choice {
	u8 op, arg;
} choices[64];
static int nr_choices;

static void list_choices(void)
{
	nr_choices = 0;
	for (int op = 0; op < NR_OPS; op++)
		for (int arg = 0; arg < op_arguments[op]; arg++)
			choices[nr_choices++] = (struct choice) { op, arg };
}

static bool take(const struct state *from, int choice, struct state *to)
{
	memcpy(to, from, sizeof(*to));	/* with padding: it is hashed */
	return model_step(to, choices[choice].op, choices[choice].arg);
}

static const char *const settle_steps[] = {
	"commit: floors rotated", "waited for the last with data", "places", "commit: floor dropped",
	"tail looked up", "flush", "superblock", "blocks forgotten", "end",
};

/* The words of a step that s takes. */
static void tell(struct result *result, const struct state *s, struct choice choice)
{
	char *end = result->story + strlen(result->story);
	int f = choice.arg % FILES;
	u8 what = s->actor[choice.arg % ACTORS].what;

	end += sprintf(end, "%s", op_names[choice.op]);
	switch (choice.op) {
	case OP_FSYNC:
		sprintf(end, " %c%s\n", file_name(f), choice.arg / FILES ? ", large" : "");
		break;
	case OP_PROCEED:
		if (what > FILES)
			sprintf(end, ": %s\n", what == WHAT_SYNC ? "sync" : "freeze");
		else
			sprintf(end, ": fsync %c\n", file_name(what - 1));
		break;
	case OP_LOG:
		sprintf(end, "%s\n", choice.arg ? ", tail looked up" : "");
		break;
	case OP_SETTLING:
		sprintf(end, " %s\n", settle_steps[s->settle - 1]);
		break;
	case OP_SYNC: case OP_FREEZE: case OP_LOCK: case OP_FLUSH: case OP_COMMITTED:
	case OP_SETTLE:
		strcpy(end, "\n");
		break;
	default:
		sprintf(end, " %c\n", file_name(f));
	}
}

/* The way to a state that the table has. What is there has changed names: they are found again. */
static void tell_way(struct result *result, const u8 *budgets, u64 last)
{
	static u64 way[LONGEST];
	struct state s, to, same;
	int length = 0;

	for (u64 state = last; state && length < LONGEST; state = slot_of(state)->from)
		way[length++] = state;
	result->length = length - 1;
	begin(&s, budgets);
	for (int i = length - 2; i >= 0; i--)
		for (int choice = 0; choice < nr_choices; choice++) {
			if (!take(&s, choice, &to))
				continue;
			renumber(&to);
			same = to;
			exchange(&same);
			if (hash(&same) != way[i])
				continue;
			tell(result, &s, choices[choice]);
			s = to;
			break;
		}
	judge(&s, result->story + strlen(result->story));
}

/* Returns whether nothing was broken. bits: of the table's size; at most 3/4 of it are used. */
bool search(const u8 *budgets, u64 with, int bits, struct result *result)
{
	u64 room = 1 << 12, new_room = room, old_room, now = 0, next = 0;
	struct state *level = malloc(room * sizeof(*level));
	struct state *new = malloc(room * sizeof(*new)), *old;
	char why[80];
	bool good = true;

	memset(result, 0, sizeof(*result));
	faults = with;
	list_choices();
	seen_mask = (1ULL << bits) - 1;
	seen = calloc(1ULL << bits, sizeof(*seen));
	begin(&level[now++], budgets);
	exchange(&level[0]);
	slot_of(hash(level))->state = hash(level);
	result->states = 1;
	while (now && good && !result->full) {
		next = 0;
		for (u64 i = 0; i < now && good && !result->full; i++) {
			u64 from = hash(&level[i]);
			bool moves = false;

			for (int choice = 0; choice < nr_choices && good; choice++) {
				struct state *to;
				struct seen *slot;
				u64 state;

				if (next == new_room) {
					new_room *= 2;
					new = realloc(new, new_room * sizeof(*new));
				}
				to = &new[next];
				if (!take(&level[i], choice, to))
					continue;
				moves = true;
				result->steps++;
				result->taken[choices[choice].op]++;
				renumber(to);
				exchange(to);
				state = hash(to);
				slot = slot_of(state);
				if (slot->state)
					continue;
				if (result->states > seen_mask / 4 * 3) {
					result->full = 1;
					break;
				}
				slot->state = state;
				slot->from = from;
				result->states++;
				next++;
				good = judge(to, why);
				if (!good)
					tell_way(result, budgets, state);
			}
			if (!moves && busy(&level[i]))
				result->stuck++;
		}
		result->depth++;
		old = level;
		old_room = room;
		level = new;
		room = new_room;
		now = next;
		new = old;
		new_room = old_room;
	}
	free(level);
	free(new);
	free(seen);
	return good;
}

/* Walks by chance. Returns whether nothing was broken. */
bool walk(const u8 *budgets, u64 with, int seed, int walks, int steps, struct result *result)
{
	char why[80];

	memset(result, 0, sizeof(*result));
	faults = with;
	list_choices();
	for (int i = 0; i < walks; i++) {
		struct state s, to;

		srand(seed + i);
		begin(&s, budgets);
		result->story[0] = 0;
		for (int n = 0, tries = 0; n < steps && tries < 1000; tries++) {
			int choice = rand() % nr_choices;

			if (!take(&s, choice, &to))
				continue;
			if (strlen(result->story) > sizeof(result->story) - 200)
				result->story[0] = 0;
			tell(result, &s, choices[choice]);
			renumber(&to);
			s = to;
			n++;
			tries = 0;
			result->steps++;
			result->taken[choices[choice].op]++;
			if (judge(&s, why))
				continue;
			result->length = n;
			strcat(result->story, why);
			return false;
		}
	}
	result->story[0] = 0;
	return true;
}
