// SPDX-License-Identifier: MIT
/*
 * beside: how long a small fsync takes beside a neighbour that never syncs.
 *
 *	beside SYNC_CALL WORKLOAD RATE SECONDS NEIGHBOUR MARKER
 *
 * In the current folder, RATE times a second for SECONDS seconds, SYNC_CALL
 * being fsync or fdatasync:
 *
 *   append	write 4 KiB at the end of a file, sync
 *   create	creat, write 4 KiB, sync, close
 *
 * A second thread works meanwhile, from LEAD_S seconds before on:
 *
 *   alone	nobody
 *   creates	2,000 empty files a second; a folder has 1,000 of them
 *   untar	a tree of 2,000 files in 100 folders, 1 to 16 KiB each, with its
 *		time stamps set; as fast as it goes, another one every 2 seconds
 *   stream	files of 256 MiB one after the other, 4 MiB a call; each goes
 *		when the second one after it is written
 *
 * Who is late, goes on from there: rounds that were missed stay missed.  The
 * result is one JSON object: the latency of the sync call, and of all calls
 * with it, and what the neighbour did in a second: files, or MiB.  MARKER is
 * the kernel's trace_marker.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "bench.h"

#define KIB 1024
#define MIB (1024 * KIB)
#define PAGE (4 * KIB)
#define LEAD_S 4
#define CREATES_PER_S 2000
#define FILES_PER_FOLDER 1000
#define TREE_FILES 2000
#define TREE_FILES_PER_FOLDER 20
#define TREE_PERIOD_S 2
#define PIECE_MIB 4
#define STREAM_PIECES 64

static char buffer[PIECE_MIB * MIB];
static atomic_long neighbour_did;

static void put(int fd, size_t size)
{
	need(write(fd, buffer, size) == (ssize_t)size, "write");
}

static int64_t wait_for(int64_t due)
{
	int64_t now = now_ns();

	if (due < now)
		return now;
	sleep_until(due);
	return due;
}

/* --- neighbours --- */

static void make_files(void)
{
	int64_t due = now_ns();
	char name[48];

	for (long i = 0;; i++) {
		if (i % FILES_PER_FOLDER == 0) {
			snprintf(name, sizeof(name), "made%ld", i / FILES_PER_FOLDER);
			need(!mkdir(name, 0755), name);
		}
		snprintf(name, sizeof(name), "made%ld/%ld", i / FILES_PER_FOLDER, i);
		close(opened(name, O_CREAT | O_EXCL | O_WRONLY));
		neighbour_did++;
		due = wait_for(due + NS_PER_S / CREATES_PER_S);
	}
}

static void unpack_file(const char *name, uint32_t *seed)
{
	const struct timespec stamps[2] = { { .tv_sec = 1e9 }, { .tv_sec = 1e9 } };
	int fd = opened(name, O_CREAT | O_EXCL | O_WRONLY);

	*seed = *seed * 1664525 + 1013904223;
	put(fd, KIB + *seed % (15 * KIB));
	need(!futimens(fd, stamps), name);
	close(fd);
	neighbour_did++;
}

static void unpack_trees(void)
{
	int64_t due = now_ns();
	uint32_t seed = 1;
	char name[48];

	for (long tree = 0;; tree++) {
		snprintf(name, sizeof(name), "tree%ld", tree);
		need(!mkdir(name, 0755), name);
		for (long i = 0; i < TREE_FILES; i++) {
			long folder = i / TREE_FILES_PER_FOLDER;

			if (i % TREE_FILES_PER_FOLDER == 0) {
				snprintf(name, sizeof(name), "tree%ld/%ld", tree, folder);
				need(!mkdir(name, 0755), name);
			}
			snprintf(name, sizeof(name), "tree%ld/%ld/%ld", tree, folder, i);
			unpack_file(name, &seed);
		}
		due = wait_for(due + TREE_PERIOD_S * NS_PER_S);
	}
}

static void stream(void)
{
	char name[48];

	for (long i = 0;; i++) {
		int fd;

		snprintf(name, sizeof(name), "stream%ld", i - 2);
		if (i >= 2)
			need(!unlink(name), name);
		snprintf(name, sizeof(name), "stream%ld", i);
		fd = opened(name, O_CREAT | O_EXCL | O_WRONLY);
		for (int piece = 0; piece < STREAM_PIECES; piece++) {
			put(fd, sizeof(buffer));
			neighbour_did += PIECE_MIB;
		}
		close(fd);
	}
}

static const struct {
	const char *name;
	void (*work)(void);
} neighbours[] = {
	{ "alone", NULL },
	{ "creates", make_files },
	{ "untar", unpack_trees },
	{ "stream", stream },
};

static void *work(void *which)
{
	prctl(PR_SET_TIMERSLACK, 1UL);
	neighbours[(long)which].work();
	return NULL;
}

/* --- the one who syncs --- */

static int (*sync_call)(int fd);

/* One operation; how long its sync took. */
static int64_t once(int creates, long round)
{
	static int fd = -1;
	int64_t before, took;
	char name[48];

	snprintf(name, sizeof(name), "synced%ld", round);
	if (creates || fd < 0)
		fd = opened(name, O_CREAT | O_WRONLY | O_APPEND);
	put(fd, PAGE);
	before = now_ns();
	need(!sync_call(fd), "sync");
	took = now_ns() - before;
	if (creates)
		close(fd);
	return took;
}

int main(int argc, char **argv)
{
	const long known = sizeof(neighbours) / sizeof(neighbours[0]);
	long rate = argc == 7 ? atol(argv[3]) : 0, seconds = rate > 0 ? atol(argv[4]) : 0;
	int64_t *sync_ns, *all_ns, begin, end, due;
	long rounds = 0, which = 0, did;
	int creates, marker;
	pthread_t thread;

	if (seconds < 1) {
		fprintf(stderr,
			"usage: beside SYNC_CALL WORKLOAD RATE SECONDS NEIGHBOUR MARKER\n");
		return 1;
	}
	sync_call = !strcmp(argv[1], "fdatasync") ? fdatasync : fsync;
	creates = !strcmp(argv[2], "create");
	while (which < known && strcmp(neighbours[which].name, argv[5]))
		which++;
	if (which == known || (!creates && strcmp(argv[2], "append"))) {
		fprintf(stderr, "beside: no workload %s, or no neighbour %s\n", argv[2], argv[5]);
		return 1;
	}
	prctl(PR_SET_TIMERSLACK, 1UL);
	memset(buffer, 'b', sizeof(buffer));
	sync_ns = calloc(rate * seconds, sizeof(*sync_ns));
	all_ns = calloc(rate * seconds, sizeof(*all_ns));
	need(sync_ns && all_ns, "calloc");
	marker = opened(argv[6], O_WRONLY);
	if (neighbours[which].work)
		need(!pthread_create(&thread, NULL, work, (void *)which), "pthread_create");
	sleep_until(now_ns() + LEAD_S * NS_PER_S);

	mark(marker, "begin", "");
	mark(marker, "begin", "sync");
	did = neighbour_did;
	begin = due = now_ns();
	while (due < begin + seconds * NS_PER_S && rounds < rate * seconds) {
		int64_t before = now_ns();

		sync_ns[rounds] = once(creates, rounds);
		all_ns[rounds++] = now_ns() - before;
		due = wait_for(due + NS_PER_S / rate);
	}
	end = now_ns();
	did = neighbour_did - did;
	mark(marker, "end", "sync");
	mark(marker, "end", "");

	printf("{\"phases\": {");
	print_latencies("", all_ns, rounds, end - begin);
	printf(", ");
	print_latencies("sync", sync_ns, rounds, end - begin);
	printf("}, \"neighbour_per_s\": %.1f}\n", did * 1e9 / (end - begin));
	return 0;
}
