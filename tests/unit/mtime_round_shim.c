// SPDX-License-Identifier: GPL-2.0
/* The kernel's names that kernel/ext4/mtime_round.h uses, for userspace. */
#include <stdint.h>

typedef int32_t s32;
typedef int64_t s64;
typedef uint32_t u32;

#define MSEC_PER_SEC	1000L
#define NSEC_PER_MSEC	1000000L
#define NSEC_PER_SEC	1000000000L

struct timespec64 {
	s64 tv_sec;
	long tv_nsec;
};

static inline s64 div_s64_rem(s64 dividend, s32 divisor, s32 *remainder)
{
	*remainder = dividend % divisor;
	return dividend / divisor;
}

#include "mtime_round.h"

void round_time(s64 *sec, s64 *nsec, u32 interval_ms)
{
	struct timespec64 t = { .tv_sec = *sec, .tv_nsec = *nsec };

	t = ext4_mtime_round(t, interval_ms);
	*sec = t.tv_sec;
	*nsec = t.tv_nsec;
}
