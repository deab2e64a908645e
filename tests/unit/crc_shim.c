// SPDX-License-Identifier: GPL-2.0
/* What kernel/jbd2/burst_crc.c needs of the kernel, for userspace, and crc32_be() bit by bit. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

#define CONFIG_X86_64		1
#define __aligned(n)		__attribute__((aligned(n)))
#define boot_cpu_has(feature)	(feature)
#define X86_FEATURE_PCLMULQDQ	__builtin_cpu_supports("pclmul")
#define X86_FEATURE_SSSE3	__builtin_cpu_supports("ssse3")

static int sections;

static bool irq_fpu_usable(void) { return true; }
static void kernel_fpu_begin(void) { sections++; }
static void kernel_fpu_end(void) { }

u32 crc32_be(u32 sum, const void *data, size_t len)
{
	const u8 *byte = data;
	int bit;

	while (len--) {
		sum ^= (u32)*byte++ << 24;
		for (bit = 0; bit < 8; bit++)
			sum = sum << 1 ^ (sum >> 31 ? 0x04c11db7 : 0);
	}
	return sum;
}

#include "burst_crc.c"

/* How often sums were folded. */
int folded(void) { return sections; }
