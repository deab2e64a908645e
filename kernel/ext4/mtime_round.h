/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The rounding rule of coarse-grained mtime update, and nothing else: it is
 * compiled in userspace too, where the tests hold it against big integers.
 */
#ifndef _EXT4_MTIME_ROUND_H
#define _EXT4_MTIME_ROUND_H

/**
 * ext4_mtime_round - start of the interval that a time lies in
 * @t: a normalized time, before or after the epoch
 * @interval_ms: length of an interval, 1...1000 ms
 *
 * Intervals are counted from the epoch, so t - t mod interval, with the mod
 * that is never negative. Nanoseconds since the epoch overflow 64 bits in
 * 2262 and ext4 goes on to 2446, so the remainder is taken in milliseconds;
 * that is exact because an interval is a whole number of them.
 *
 * Return: the latest multiple of the interval that is not later than @t.
 */
static inline struct timespec64 ext4_mtime_round(struct timespec64 t,
						 u32 interval_ms)
{
	s64 ms = t.tv_sec * MSEC_PER_SEC + t.tv_nsec / NSEC_PER_MSEC;
	s32 rem_ms;

	div_s64_rem(ms, interval_ms, &rem_ms);
	if (rem_ms < 0)
		rem_ms += interval_ms;

	t.tv_nsec -= rem_ms * NSEC_PER_MSEC + t.tv_nsec % NSEC_PER_MSEC;
	if (t.tv_nsec < 0) {
		t.tv_nsec += NSEC_PER_SEC;
		t.tv_sec--;
	}
	return t;
}

#endif	/* _EXT4_MTIME_ROUND_H */
