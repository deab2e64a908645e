/* SPDX-License-Identifier: MIT */
/* What the programs of the tests have in common. */
#ifndef COMMON_H
#define COMMON_H

#include <err.h>

/* Where a call fails that has to succeed, the test does. */
static inline void need(int ok, const char *what)
{
	if (!ok)
		err(1, "%s", what);
}

/* xorshift64: from the same state, which is not 0, the same numbers. */
static inline unsigned int draw_from(unsigned long long *state, unsigned int below)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (*state >> 32) % below;
}

#endif
