/* SPDX-License-Identifier: MIT */
/* Numbers that look random. */
#ifndef DRAW_H
#define DRAW_H

/*
 * A state for draw_from(), of a seed: splitmix64. Half of its bits are set, also
 * those of a small seed; xorshift64 draws small numbers from a state of few.
 */
static inline unsigned long long state_from(unsigned long long seed)
{
	unsigned long long z = (seed + 1) * 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
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
