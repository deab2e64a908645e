// SPDX-License-Identifier: MIT
/*
 * cpubench: what a processor takes for the work that a file system is made of.
 *
 *	cpubench ROUNDS
 *
 * Prints one JSON object: for each figure the ns of its ROUNDS rounds, of which
 * the median counts.
 *
 *	syscall		getppid(), by syscall()
 *	switch		from one thread to another, over a pipe: half of a round trip
 *	fault		the first touch of a page of 4 KiB
 *	memcpy		4 KiB, by the libc's memcpy()
 *	read, write	pread() and pwrite() of 4 KiB, in the page cache of a memfd
 *	crc32c		of 4 KiB by the processor's instruction, three streams side by
 *			side, as the kernel's crc32c-intel; they are not joined
 *	crc32_be	of 4 KiB by eight tables, as the kernel's own
 *
 * Copies and checksums go round 256 KiB, which is more than a first cache holds.
 * A round is counted in processor time of this process, on the one processor
 * that it begins on: what else the machine does is not in it.
 */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"

#define PAGE 4096
#define PAGES 64
#define AREA (PAGE * PAGES)
#define MOST_ROUNDS 1000
#define CRC32_BE_POLYNOMIAL 0x04c11db7u

static uint8_t from[AREA], to[AREA];
static int file;
static int there[2], back[2];
static uint32_t tables[8][256];
static volatile uint64_t sink;

static void need(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "cpubench: %s: %s\n", what, strerror(errno));
	exit(1);
}

static size_t place(long i)
{
	return (size_t)(i % PAGES) * PAGE;
}

static void run_syscall(long count)
{
	for (long i = 0; i < count; i++)
		syscall(SYS_getppid);
}

/* --- threads --- */

static void *answer(void *argument)
{
	char byte;

	(void)argument;
	while (read(there[0], &byte, 1) == 1)
		need(write(back[1], &byte, 1) == 1, "write to a pipe");
	return NULL;
}

static void start_answering(void)
{
	pthread_t thread;

	need(!pipe(there) && !pipe(back), "pipe");
	need(!pthread_create(&thread, NULL, answer, NULL), "pthread_create");
}

/* A round trip has two switches. */
static void run_switch(long count)
{
	char byte = 0;

	for (long i = 0; i < count; i += 2) {
		need(write(there[1], &byte, 1) == 1, "write to a pipe");
		need(read(back[0], &byte, 1) == 1, "read from a pipe");
	}
}

/* --- memory --- */

static void run_fault(long count)
{
	size_t size = (size_t)count * PAGE;
	char *area = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	need(area != MAP_FAILED, "mmap");
	madvise(area, size, MADV_NOHUGEPAGE);
	for (size_t at = 0; at < size; at += PAGE)
		area[at] = 1;
	munmap(area, size);
}

static void run_memcpy(long count)
{
	for (long i = 0; i < count; i++) {
		memcpy(to + place(i), from + place(i), PAGE);
		__asm__ volatile("" : : "r"(to) : "memory");
	}
}

static void run_read(long count)
{
	for (long i = 0; i < count; i++)
		need(pread(file, to + place(i), PAGE, place(i)) == PAGE, "pread");
}

static void run_write(long count)
{
	for (long i = 0; i < count; i++)
		need(pwrite(file, from + place(i), PAGE, place(i)) == PAGE, "pwrite");
}

/* --- checksums --- */

__attribute__((target("sse4.2"))) static uint64_t crc32c_streams(const uint8_t *data)
{
	const uint64_t *a = (const uint64_t *)data;
	const size_t words = PAGE / sizeof(*a), third = words / 3;
	const uint64_t *b = a + third, *c = b + third;
	uint64_t x = ~0u, y = 0, z = 0;

	for (size_t i = 0; i < third; i++) {
		x = __builtin_ia32_crc32di(x, a[i]);
		y = __builtin_ia32_crc32di(y, b[i]);
		z = __builtin_ia32_crc32di(z, c[i]);
	}
	for (size_t i = 3 * third; i < words; i++)
		z = __builtin_ia32_crc32di(z, a[i]);
	return x ^ y ^ z;
}

static void run_crc32c(long count)
{
	for (long i = 0; i < count; i++)
		sink = crc32c_streams(from + place(i));
}

/* As lib/crc32.c makes and uses them where CONFIG_CRC32_SLICEBY8 is set. */
static void make_tables(void)
{
	uint32_t crc = 0x80000000;

	for (uint32_t step = 1; step < 256; step <<= 1) {
		crc = crc << 1 ^ (crc & 0x80000000 ? CRC32_BE_POLYNOMIAL : 0);
		for (uint32_t i = 0; i < step; i++)
			tables[0][step + i] = crc ^ tables[0][i];
	}
	for (int i = 0; i < 256; i++) {
		crc = tables[0][i];
		for (int j = 1; j < 8; j++) {
			crc = tables[0][crc >> 24] ^ crc << 8;
			tables[j][i] = crc;
		}
	}
	for (int j = 0; j < 8; j++)
		for (int i = 0; i < 256; i++)
			tables[j][i] = htobe32(tables[j][i]);
}

static uint32_t four(int table, uint32_t q)
{
	return tables[table + 3][q & 255] ^ tables[table + 2][q >> 8 & 255] ^
	       tables[table + 1][q >> 16 & 255] ^ tables[table][q >> 24];
}

static uint32_t crc32_be(uint32_t crc, const uint8_t *data, size_t size)
{
	uint32_t word;

	crc = htobe32(crc);
	for (; size >= 8; size -= 8, data += 8) {
		memcpy(&word, data, sizeof(word));
		crc = four(4, crc ^ word);
		memcpy(&word, data + 4, sizeof(word));
		crc ^= four(0, word);
	}
	for (; size; size--)
		crc = tables[0][(crc ^ *data++) & 255] ^ crc >> 8;
	return be32toh(crc);
}

static void run_crc32_be(long count)
{
	for (long i = 0; i < count; i++)
		sink = crc32_be(~0u, from + place(i), PAGE);
}

/* --- all --- */

/* How often one round does each takes some 2 ms at 500 million instructions a second. */
static const struct {
	const char *name;
	long count;
	void (*run)(long count);
} figures[] = {
	{ "syscall", 4000, run_syscall }, { "switch", 1000, run_switch },
	{ "fault", 1000, run_fault },	  { "memcpy", 1000, run_memcpy },
	{ "read", 1000, run_read },	  { "write", 1000, run_write },
	{ "crc32c", 1000, run_crc32c },	  { "crc32_be", 500, run_crc32_be },
};

#define FIGURES (sizeof(figures) / sizeof(figures[0]))

static double processor_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * NS_PER_S + (double)t.tv_nsec;
}

static void stay_on_one_processor(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(sched_getcpu(), &set);
	need(!sched_setaffinity(0, sizeof(set), &set), "sched_setaffinity");
}

int main(int argc, char **argv)
{
	static double ns[FIGURES][MOST_ROUNDS];
	long rounds = argc == 2 ? atol(argv[1]) : 0;

	if (rounds < 1 || rounds > MOST_ROUNDS) {
		fprintf(stderr, "usage: cpubench ROUNDS (1 to %d)\n", MOST_ROUNDS);
		return 1;
	}
	if (!__builtin_cpu_supports("sse4.2")) {
		fprintf(stderr, "cpubench: the processor has no instruction for CRC32\n");
		return 1;
	}
	stay_on_one_processor();
	make_tables();
	need(crc32_be(~0u, (const uint8_t *)"123456789", 9) == 0x0376e6e7, "crc32_be");
	memset(from, 'f', sizeof(from));
	memset(to, 't', sizeof(to));
	file = memfd_create("cpubench", 0);
	need(file >= 0 && write(file, from, AREA) == AREA, "memfd");
	start_answering();
	for (long round = -1; round < rounds; round++) /* one to warm up */
		for (size_t i = 0; i < FIGURES; i++) {
			double before = processor_ns();

			figures[i].run(figures[i].count);
			if (round >= 0)
				ns[i][round] = (processor_ns() - before) / figures[i].count;
		}
	for (size_t i = 0; i < FIGURES; i++) {
		printf("%s\"%s\": [", i ? ", " : "{", figures[i].name);
		for (long round = 0; round < rounds; round++)
			printf("%s%.2f", round ? ", " : "", ns[i][round]);
		printf("]");
	}
	printf("}\n");
	return 0;
}
