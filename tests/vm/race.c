// SPDX-License-Identifier: MIT
/*
 * What threads that stat() and write one file can see of its stamps. Prints
 * JSON.
 *
 *   race watch FILE MS          one thread writes, one looks. "due": how often a
 *                               whole write lay between two looks; "missed": how
 *                               often stat() showed no difference nevertheless
 *   race back FILE MS           threads that write, write directly, write by mmap
 *                               and chmod; "ctime_back", "mtime_back": how often
 *                               a look showed an earlier stamp than the last one
 *   race order A B ROUNDS       no threads: chmod, stat and write A, then write
 *                               B. "backwards": how often B's mtime is earlier
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "need.h"
#include "times.h"

#define BLOCK 4096
#define LOOKS (1 << 20)

static const char *path;
static char block[BLOCK] __attribute__((aligned(BLOCK)));
static long long end_ns;
static atomic_ulong begun, done;	/* writes, numbered from 1 */

static int running(void)
{
	return now_ns() < end_ns;
}

static void run_for(const char *duration_ms)
{
	end_ns = now_ns() + atoll(duration_ms) * NS_PER_MS;
}

/* On one core threads would else take turns at ticks only. */
static void maybe_yield(uint32_t *seed)
{
	*seed = *seed * 1664525 + 1013904223;
	if (*seed >> 31)
		sched_yield();
}

static int open_file(const char *name, int flags)
{
	int fd = open(name, O_RDWR | flags);

	need(fd >= 0, name);
	return fd;
}

static void write_block(int fd, off_t offset)
{
	need(pwrite(fd, block, BLOCK, offset) == BLOCK, "pwrite");
}

static void *number_writes(void *arg)
{
	int fd = open_file(path, 0);
	uint32_t seed = 1;

	while (running()) {
		unsigned long number = atomic_load(&begun) + 1;

		atomic_store(&begun, number);
		maybe_yield(&seed);
		write_block(fd, 0);
		atomic_store(&done, number);
		maybe_yield(&seed);
	}
	return NULL;
}

struct look {
	unsigned long done_before, begun_after;
	long long mtime_ns, ctime_ns;
};

static struct look look_at(int fd)
{
	struct look look;
	struct stat st;

	look.done_before = atomic_load(&done);
	need(!fstat(fd, &st), "fstat");
	look.begun_after = atomic_load(&begun);
	look.mtime_ns = ns(st.st_mtim);
	look.ctime_ns = ns(st.st_ctim);
	return look;
}

static void watch(void)
{
	struct look *looks = calloc(LOOKS, sizeof(*looks));
	size_t count = 0, before = 0, due = 0, missed = 0;
	int fd = open_file(path, 0);
	uint32_t seed = 2;
	pthread_t writer;

	need(looks != NULL, "calloc");
	need(!pthread_create(&writer, NULL, number_writes, NULL), "pthread_create");
	while (running() && count < LOOKS) {
		struct look *look = &looks[count++];

		*look = look_at(fd);
		/* The latest look that ended before a write began which is whole by now. */
		while (before + 1 < count - 1 &&
		       looks[before + 1].begun_after < look->done_before)
			before++;
		if (count > 1 && looks[before].begun_after < look->done_before) {
			due++;
			missed += looks[before].mtime_ns == look->mtime_ns &&
				  looks[before].ctime_ns == look->ctime_ns;
		}
		maybe_yield(&seed);
	}
	pthread_join(writer, NULL);
	printf("{\"writes\": %lu, \"looks\": %zu, \"due\": %zu, \"missed\": %zu}\n",
	       atomic_load(&done), count, due, missed);
}

static void *keep_writing(void *arg)
{
	int flags = (intptr_t)arg;
	int fd = open_file(path, flags);
	uint32_t seed = 3 + flags;

	while (running()) {
		/* Not the mapped page: a direct write to it may fail the msync. */
		write_block(fd, flags & O_DIRECT ? BLOCK : 2 * BLOCK);
		maybe_yield(&seed);
	}
	return NULL;
}

static void *keep_mapping(void *arg)
{
	int fd = open_file(path, 0);
	uint32_t seed = 4;
	volatile char *map = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	need(map != MAP_FAILED, "mmap");
	while (running()) {
		/* Each sync makes the page clean, so that the next store faults. */
		map[0]++;
		need(!msync((void *)map, BLOCK, MS_SYNC), "msync");
		maybe_yield(&seed);
	}
	return NULL;
}

static void *keep_changing_mode(void *arg)
{
	int fd = open_file(path, 0);
	uint32_t seed = 5;

	while (running()) {
		need(!fchmod(fd, seed >> 31 ? 0600 : 0644), "fchmod");
		maybe_yield(&seed);
	}
	return NULL;
}

/* Seconds and nanoseconds are read apart, so the turn of a second does not count. */
static int is_back(struct timespec then, struct timespec now)
{
	if (then.tv_nsec > NS_PER_S * 9 / 10 && now.tv_nsec < NS_PER_S / 10)
		return 0;
	if (then.tv_nsec < NS_PER_S / 10 && now.tv_nsec > NS_PER_S * 9 / 10)
		return 0;
	return ns(now) < ns(then);
}

static void back(void)
{
	size_t looks = 0, mtime_back = 0, ctime_back = 0;
	int fd = open_file(path, 0);
	struct stat then, now;
	uint32_t seed = 6;
	pthread_t threads[4];

	need(!pthread_create(&threads[0], NULL, keep_writing, NULL), "pthread_create");
	need(!pthread_create(&threads[1], NULL, keep_writing, (void *)(intptr_t)O_DIRECT),
	     "pthread_create");
	need(!pthread_create(&threads[2], NULL, keep_mapping, NULL), "pthread_create");
	need(!pthread_create(&threads[3], NULL, keep_changing_mode, NULL), "pthread_create");
	need(!fstat(fd, &then), "fstat");
	for (; running(); looks++, then = now) {
		need(!fstat(fd, &now), "fstat");
		mtime_back += is_back(then.st_mtim, now.st_mtim);
		ctime_back += is_back(then.st_ctim, now.st_ctim);
		maybe_yield(&seed);
	}
	for (size_t i = 0; i < sizeof(threads) / sizeof(threads[0]); i++)
		pthread_join(threads[i], NULL);
	printf("{\"looks\": %zu, \"mtime_back\": %zu, \"ctime_back\": %zu}\n", looks, mtime_back,
	       ctime_back);
}

static void order(const char *other, long rounds)
{
	int a = open_file(path, 0), b = open_file(other, 0);
	long backwards = 0;
	struct stat st_a, st_b;

	for (long i = 0; i < rounds; i++) {
		need(!fchmod(a, i % 2 ? 0600 : 0644), "fchmod");
		need(!fstat(a, &st_a), "fstat");
		write_block(a, 0);
		write_block(b, 0);
		need(!fstat(a, &st_a) && !fstat(b, &st_b), "fstat");
		backwards += ns(st_b.st_mtim) < ns(st_a.st_mtim);
	}
	printf("{\"rounds\": %ld, \"backwards\": %ld}\n", rounds, backwards);
}

int main(int argc, char **argv)
{
	if (argc < 4)
		errx(2, "usage: race watch|back FILE MS, race order A B ROUNDS");
	path = argv[2];
	run_for(argv[3]);
	if (!strcmp(argv[1], "watch"))
		watch();
	else if (!strcmp(argv[1], "back"))
		back();
	else if (!strcmp(argv[1], "order") && argc == 5)
		order(argv[3], atol(argv[4]));
	else
		errx(2, "no such thing to do: %s", argv[1]);
	return 0;
}
