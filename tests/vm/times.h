/* SPDX-License-Identifier: MIT */
/* Times in ns, beside now_ns(). */
#ifndef TIMES_H
#define TIMES_H

#include <time.h>

#include "clock.h"

#define NS_PER_MS 1000000LL

static inline long long ns(struct timespec t)
{
	return t.tv_sec * NS_PER_S + t.tv_nsec;
}

static inline long long clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return ns(t);
}

#endif
