// SPDX-License-Identifier: GPL-2.0
/*
 * Burst commits (burst.c): the sum of a transaction's blocks, quickly.
 *
 * Idea
 * ----
 *
 * The record of an asynchronous commit holds a CRC32 of all blocks, most
 * significant bit first: crc32_be(). The kernel has that by tables alone, about four
 * instructions for each byte, which would be more than the rest of a small commit
 * costs. With carry-less multiplication 16 bytes are folded at a time:
 *
 *   what has been folded so far is A, a polynomial of 128 bits, A = H x^64 + L;
 *   16 bytes B behind it make A x^128 + B, which is the same modulo P as
 *   H (x^192 mod P) + L (x^128 mod P) + B, again of 128 bits at most.
 *
 * The tables do the last 16 bytes.
 *
 * A worked example, of 48 bytes D0 D1 D2: A = D0, with the sum so far added to its
 * first four bytes; A = fold(A) + D1; A = fold(A) + D2; crc32_be(0, A).
 *
 * Context: as kernel_fpu_begin(), so any but hard interrupts of a task that has it.
 */

#include <linux/crc32.h>
#include <linux/jbd2.h>

#include "burst.h"

#if defined(CONFIG_X86_64) && !defined(CONFIG_UML)
#include <asm/cpufeature.h>
#include <asm/fpu/api.h>

/* The order of bytes, and x^128 and x^192 modulo 0x104c11db7. */
static const u8 jbd2_crc_swap[16] __aligned(16) = {
	15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0
};

static const u64 jbd2_crc_keys[2] __aligned(16) = { 0xe8a45605, 0xc5b9cd4c };

/* Fold @len bytes, 16 or a multiple, into 16 that have the same sum. */
static void jbd2_crc_fold(u32 sum, const u8 *data, size_t len, u8 *folded)
{
	const u8 *end = data + len;

	asm volatile("movdqa	%[swap], %%xmm3\n\t"
		     "movdqa	%[keys], %%xmm4\n\t"
		     "movdqu	(%[data]), %%xmm0\n\t"
		     "pshufb	%%xmm3, %%xmm0\n\t"
		     "movd	%[sum], %%xmm1\n\t"
		     "pslldq	$12, %%xmm1\n\t"
		     "pxor	%%xmm1, %%xmm0\n\t"
		     "jmp	2f\n"
		     "1:\n\t"
		     "movdqu	(%[data]), %%xmm2\n\t"
		     "pshufb	%%xmm3, %%xmm2\n\t"
		     "movdqa	%%xmm0, %%xmm1\n\t"
		     "pclmulqdq	$0x00, %%xmm4, %%xmm0\n\t"
		     "pclmulqdq	$0x11, %%xmm4, %%xmm1\n\t"
		     "pxor	%%xmm2, %%xmm0\n\t"
		     "pxor	%%xmm1, %%xmm0\n"
		     "2:\n\t"
		     "add	$16, %[data]\n\t"
		     "cmp	%[end], %[data]\n\t"
		     "jb	1b\n\t"
		     "pshufb	%%xmm3, %%xmm0\n\t"
		     "movdqu	%%xmm0, (%[folded])"
		     : [data] "+r" (data)
		     : [end] "r" (end), [sum] "r" (sum), [folded] "r" (folded),
		       [swap] "m" (jbd2_crc_swap), [keys] "m" (jbd2_crc_keys)
		     : "memory", "cc");
}

static bool jbd2_crc_can_fold(size_t len)
{
	return len >= 64 && !(len % 16) &&
		boot_cpu_has(X86_FEATURE_PCLMULQDQ) &&
		boot_cpu_has(X86_FEATURE_SSSE3) && irq_fpu_usable();
}

/**
 * jbd2_burst_crc - what crc32_be() returns
 * @sum: of what comes before
 * @data: the bytes
 * @len: how many
 */
u32 jbd2_burst_crc(u32 sum, const void *data, size_t len)
{
	u8 folded[16];

	if (!jbd2_crc_can_fold(len))
		return crc32_be(sum, data, len);
	kernel_fpu_begin();
	jbd2_crc_fold(sum, data, len, folded);
	kernel_fpu_end();
	return crc32_be(0, folded, sizeof(folded));
}
#else
u32 jbd2_burst_crc(u32 sum, const void *data, size_t len)
{
	return crc32_be(sum, data, len);
}
#endif
