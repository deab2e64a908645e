// SPDX-License-Identifier: MIT
/*
 * What syncs have promised, on a device of which one flush fails.
 *
 *   acked run FOLDER TASKS MS SEED WHAT
 *                               TASKS tasks change a file each (w0, w1...) and
 *                               sync it after every change, until one fails or
 *                               MS have passed. WHAT is "fsync"; or "both",
 *                               fsync and fdatasync; or "overwrites" of a block
 *                               alone, and both; or "modes": every other
 *                               task changes modes and calls fsync, the rest
 *                               overwrite, call both, and are not held to
 *                               anything. What they do is drawn from SEED, as is
 *                               the flush that fails. Prints JSON: "acked", how
 *                               many syncs returned 0, and "failed", how many
 *                               tasks an error ended
 *   acked check FOLDER          the files are there as promised (STATE has that)
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "draw.h"
#include "need.h"
#include "times.h"

#define STATE "/dev/shm/acked"
#define PARAMETERS "/sys/module/flashdev/parameters/"
#define BLOCK 4096
#define FIRST_BLOCKS 4
#define MOST_TASKS 8
#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

/* Of a file. One change is synced before the next, so it is this or the next. */
struct version {
	unsigned int number;	/* in its first block */
	unsigned int mode;
	off_t size;
};

struct task {
	struct version acked, last;
	unsigned int syncs;
	int failed;
	int unchecked;
};

enum what { FSYNC, BOTH, OVERWRITES, MODES };
enum kind { CHMOD, APPEND, OVERWRITE };

/* How often each is drawn. */
static const enum kind kinds[] = { CHMOD, APPEND, APPEND, OVERWRITE, OVERWRITE, OVERWRITE };

static const char *const whats[] = { "fsync", "both", "overwrites", "modes" };

static unsigned long long state;

static unsigned int draw(unsigned int below)
{
	return draw_from(&state, below);
}

static long long now_ms(void)
{
	return now_ns() / NS_PER_MS;
}

static struct task *open_state(int flags)
{
	int file = open(STATE, flags, 0600);
	struct task *tasks;

	need(file >= 0 && !ftruncate(file, MOST_TASKS * sizeof(*tasks)), STATE);
	tasks = mmap(NULL, MOST_TASKS * sizeof(*tasks), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	need(tasks != MAP_FAILED, "mmap of " STATE);
	return tasks;
}

static void set_parameter(const char *name, unsigned int value)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), PARAMETERS "%s", name);
	file = fopen(path, "w");
	need(file && fprintf(file, "%u", value) > 0 && !fclose(file), path);
}

static int open_file(const char *folder, unsigned int number, int flags)
{
	char path[256];
	int file;

	snprintf(path, sizeof(path), "%s/w%u", folder, number);
	file = open(path, flags, 0600);
	need(file >= 0, path);
	return file;
}

/* A block that starts with its number, and is full of what comes of that. */
static void fill(unsigned int *block, unsigned int number)
{
	for (unsigned int i = 0; i < BLOCK / sizeof(*block); i++)
		block[i] = number;
}

static void make_file(const char *folder, unsigned int number, struct task *task)
{
	int file = open_file(folder, number, O_RDWR | O_CREAT);
	unsigned int block[BLOCK / sizeof(unsigned int)];

	for (int i = 0; i < FIRST_BLOCKS; i++) {
		fill(block, i);
		need(write(file, block, BLOCK) == BLOCK, "write");
	}
	task->acked = (struct version) { .mode = 0600, .size = FIRST_BLOCKS * BLOCK };
	task->last = task->acked;
	need(!fsync(file) && !close(file), "fsync");
}

/* Change the file; what it is now is known before. False: the system refuses. */
static int change(int file, struct task *task, enum kind kind)
{
	unsigned int block[BLOCK / sizeof(unsigned int)];
	struct version *last = &task->last;

	switch (kind) {
	case CHMOD:
		last->mode = 0600 + draw(64);
		return !fchmod(file, last->mode);
	case APPEND:
		fill(block, last->size / BLOCK);
		last->size += BLOCK;
		return pwrite(file, block, BLOCK, last->size - BLOCK) == BLOCK;
	default:
		fill(block, ++last->number);
		return pwrite(file, block, BLOCK, 0) == BLOCK;
	}
}

static void work(const char *folder, unsigned int number, struct task *task,
		 long long end_ms, enum what what)
{
	int file = open_file(folder, number, O_RDWR);

	while (now_ms() < end_ms) {
		enum kind kind = kinds[draw(ARRAY_SIZE(kinds))];

		if (what == OVERWRITES || task->unchecked)
			kind = OVERWRITE;
		else if (what == MODES)
			kind = CHMOD;
		if (!change(file, task, kind))
			break;
		/* fdatasync() promises nothing of the mode. */
		if (what != FSYNC && kind != CHMOD && draw(2) ? fdatasync(file) : fsync(file))
			break;
		task->acked = task->last;
		task->syncs++;
	}
	task->failed = now_ms() < end_ms;
	_exit(0);
}

static void run(const char *folder, unsigned int count, long long ms,
		unsigned long long seed, enum what what)
{
	struct task *tasks = open_state(O_RDWR | O_CREAT);
	unsigned int acked = 0, failed = 0;

	memset(tasks, 0, MOST_TASKS * sizeof(*tasks));
	for (unsigned int i = 0; i < count; i++) {
		make_file(folder, i, &tasks[i]);
		tasks[i].unchecked = what == MODES && i % 2;
	}
	sync();
	state = state_from(seed);
	set_parameter("fail_from", 1 + draw(30));
	for (unsigned int i = 0; i < count; i++) {
		state += draw(1000);
		if (!fork())
			work(folder, i, &tasks[i], now_ms() + ms, what);
	}
	while (wait(NULL) > 0)
		;
	for (unsigned int i = 0; i < count; i++) {
		acked += tasks[i].syncs;
		failed += tasks[i].failed;
	}
	printf("{\"acked\": %u, \"failed\": %u}\n", acked, failed);
}

/* Is the file as it was acked, or as it was to be after that? */
static void check_file(const char *folder, unsigned int number, const struct task *task)
{
	unsigned int block[BLOCK / sizeof(unsigned int)];
	const struct version *acked = &task->acked, *last = &task->last;
	int file = open_file(folder, number, O_RDONLY);
	struct stat st;

	need(!fstat(file, &st), "fstat");
	if (st.st_size != acked->size && st.st_size != last->size)
		errx(7, "w%u has %ld bytes, not %ld", number, (long)st.st_size, (long)acked->size);
	if ((st.st_mode & 0777) != acked->mode && (st.st_mode & 0777) != last->mode)
		errx(7, "w%u has the mode %o, not %o", number, st.st_mode & 0777, acked->mode);
	for (off_t at = 0; at < acked->size; at += BLOCK) {
		unsigned int want = at ? at / BLOCK : acked->number;

		need(pread(file, block, BLOCK, at) == BLOCK, "pread");
		for (unsigned int i = 0; i < BLOCK / sizeof(*block); i++)
			if (block[i] != want && (at || block[i] != last->number))
				errx(7, "w%u has %u at %ld, not %u", number, block[i],
				     (long)at, want);
	}
	close(file);
}

int main(int argc, char **argv)
{
	if (argc == 7 && !strcmp(argv[1], "run")) {
		need(atoi(argv[3]) <= MOST_TASKS, "TASKS");
		enum what what = 0;

		while (what < ARRAY_SIZE(whats) && strcmp(argv[6], whats[what]))
			what++;
		need(what < ARRAY_SIZE(whats), "WHAT");
		run(argv[2], atoi(argv[3]), atoll(argv[4]), strtoull(argv[5], NULL, 10), what);
	} else if (argc == 3 && !strcmp(argv[1], "check")) {
		struct task *tasks = open_state(O_RDWR);

		for (unsigned int i = 0; i < MOST_TASKS && tasks[i].acked.mode; i++)
			if (!tasks[i].unchecked)
				check_file(argv[2], i, &tasks[i]);
	} else {
		errx(2, "usage: acked run FOLDER TASKS MS SEED WHAT | acked check FOLDER");
	}
	return 0;
}
