/* SPDX-License-Identifier: MIT */
/* Numbers that look random. */
#ifndef DRAW_H
#define DRAW_H

/* xorshift64: from the same state, which is not 0, the same numbers. */
static inline unsigned int draw_from(unsigned long long *state, unsigned int below)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (*state >> 32) % below;
}

#endif
