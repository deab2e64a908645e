// SPDX-License-Identifier: GPL-2.0
/* What kernel/jbd2/burst_cost.c needs of the kernel, for userspace. */
#include <limits.h>
#include <stdint.h>

typedef int64_t s64;
typedef struct journal_s journal_t;

struct jbd2_burst {
	s64 block_ns;
	s64 flush_ns;
	unsigned int worth;
	unsigned int enough;
};

static struct jbd2_burst the_burst;

static struct jbd2_burst *jbd2_burst_of(journal_t *journal)
{
	(void)journal;
	return &the_burst;
}

static s64 div_s64(s64 dividend, int divisor) { return dividend / divisor; }
static s64 div64_s64(s64 dividend, s64 divisor) { return dividend / divisor; }

#define READ_ONCE(x)		(x)
#define WRITE_ONCE(x, value)	((x) = (value))
#define max(a, b)		((a) > (b) ? (a) : (b))
#define clamp_t(type, x, low, high) \
	((type)(x) < (type)(low) ? (type)(low) : (type)(x) > (type)(high) ? (type)(high) : (type)(x))
#define EXPORT_SYMBOL(name)

#include "burst_cost.c"

void forget(void) { the_burst = (struct jbd2_burst) {}; }

unsigned int enough(void) { return the_burst.enough; }
