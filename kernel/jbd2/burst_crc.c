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
 * Each fold waits for the one before it. So there are four A side by side, each
 * folded over the three others, by x^512; in the end they are folded into one.
 *
 * A worked example, of 128 bytes D0 to D7: A0 to A3 are D0 to D3, with the sum so far
 * added to the first four bytes of A0; each moves on by x^512, and D4 to D7 are added;
 * A = fold(A0) + A1; A = fold(A) + A2; A = fold(A) + A3; crc32_be(0, A).
 *
 * Context: as kernel_fpu_begin(), so any but hard interrupts of a task that has it.
 */

#include <linux/crc32.h>
#include <linux/jbd2.h>

#include "burst.h"

#if defined(CONFIG_X86_64) && !defined(CONFIG_UML)
#include <asm/cpufeature.h>
#include <asm/fpu/api.h>

/* The order of bytes; x^128 and x^192, x^512 and x^576 modulo 0x104c11db7. */
static const u8 jbd2_crc_swap[16] __aligned(16) = {
	15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0
};

static const u64 jbd2_crc_by_16[2] __aligned(16) = { 0xe8a45605, 0xc5b9cd4c };
static const u64 jbd2_crc_by_64[2] __aligned(16) = { 0xe6228b11, 0x8833794c };

/* The 16 bytes at @at. */
#define JBD2_CRC_LOAD(at, x)						\
	"movdqu	" #at "(%[data]), %%" #x "\n\t"				\
	"pshufb	%%xmm7, %%" #x "\n\t"

/* Move on what has been folded, by as much as the keys in xmm6 say, and add @y. */
#define JBD2_CRC_FOLD(x, y)						\
	"movdqa	%%" #x ", %%xmm4\n\t"					\
	"pclmulqdq	$0x00, %%xmm6, %%" #x "\n\t"			\
	"pclmulqdq	$0x11, %%xmm6, %%xmm4\n\t"			\
	"pxor	%%" #y ", %%" #x "\n\t"					\
	"pxor	%%xmm4, %%" #x "\n\t"

/* Fold @len bytes, 64 or a multiple, into 16 that have the same sum. */
static void jbd2_crc_fold(u32 sum, const u8 *data, size_t len, u8 *folded)
{
	const u8 *end = data + len;

	asm volatile("movdqa	%[swap], %%xmm7\n\t"
		     "movdqa	%[by_64], %%xmm6\n\t"
		     JBD2_CRC_LOAD(0, xmm0)
		     JBD2_CRC_LOAD(16, xmm1)
		     JBD2_CRC_LOAD(32, xmm2)
		     JBD2_CRC_LOAD(48, xmm3)
		     "movd	%[sum], %%xmm4\n\t"
		     "pslldq	$12, %%xmm4\n\t"
		     "pxor	%%xmm4, %%xmm0\n\t"
		     "jmp	2f\n"
		     "1:\n\t"
		     JBD2_CRC_LOAD(0, xmm5)
		     JBD2_CRC_FOLD(xmm0, xmm5)
		     JBD2_CRC_LOAD(16, xmm5)
		     JBD2_CRC_FOLD(xmm1, xmm5)
		     JBD2_CRC_LOAD(32, xmm5)
		     JBD2_CRC_FOLD(xmm2, xmm5)
		     JBD2_CRC_LOAD(48, xmm5)
		     JBD2_CRC_FOLD(xmm3, xmm5)
		     "2:\n\t"
		     "add	$64, %[data]\n\t"
		     "cmp	%[end], %[data]\n\t"
		     "jb	1b\n\t"
		     "movdqa	%[by_16], %%xmm6\n\t"
		     JBD2_CRC_FOLD(xmm0, xmm1)
		     JBD2_CRC_FOLD(xmm0, xmm2)
		     JBD2_CRC_FOLD(xmm0, xmm3)
		     "pshufb	%%xmm7, %%xmm0\n\t"
		     "movdqu	%%xmm0, (%[folded])"
		     : [data] "+r" (data)
		     : [end] "r" (end), [sum] "r" (sum), [folded] "r" (folded),
		       [swap] "m" (jbd2_crc_swap), [by_16] "m" (jbd2_crc_by_16),
		       [by_64] "m" (jbd2_crc_by_64)
		     : "memory", "cc");
}

static bool jbd2_crc_can_fold(size_t len)
{
	return len && !(len % 64) &&
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
