// SPDX-License-Identifier: MIT
/*
 * crashops: do what a script says, mark each call that returned.
 *
 *	crashops DM_NAME SCRIPT
 *
 * The current folder is on a file system on the dm-log-writes device DM_NAME; or
 * DM_NAME is "-", and marks go into the kernel's trace.
 * Each line of SCRIPT is one operation: "THREAD OP ARGUMENTS". Operations of
 * thread 0 run one by one; a run of lines of other threads runs in as many
 * threads at the same time, each in the order of its lines.
 *
 * When an operation has returned, a mark with its number (from 0) goes into the
 * log. Then its file is stat()ed. At the end a line of JSON for each operation
 * goes to standard output: "begin" and "end" number the beginnings of operations
 * and the ends of their stat() in the order in which they happened; times are
 * CLOCK_REALTIME in ns.
 *
 * What is written tells where it was written by whom: each 512 bytes are 32 times
 * "OPERATION SECTOR\n", in 6 and 8 hexadecimal digits.
 *
 * "@3" in place of a path is the file that "tmpfile FOLDER @3" has made. It stays
 * open until "close @3", or the program ends.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "crashops.h"
#include "dmmark.h"

#define MAX_OPS 20000
#define MAX_THREADS 16
#define MAX_HELD 16
#define MAX_LENGTH (1 << 20)
#define PAGE 4096
#define SECTOR 512
#define UNIT 16
#define NS_PER_S 1000000000LL

static struct op ops[MAX_OPS];
static int op_count;
static atomic_long order;

static long long now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * NS_PER_S + t.tv_nsec;
}

static void die(const char *what)
{
	err(1, "%s", what);
}

long long number(const struct op *op, int index)
{
	if (index >= op->count)
		errx(2, "too few arguments: %s", op->line);
	return strtoll(op->word[index], NULL, 0);
}

char *contents(const struct op *op, long long offset, size_t length)
{
	long long first = offset / SECTOR * SECTOR;
	size_t skip = offset - first, size = skip + length;
	char unit[UNIT + 1], *buffer = aligned_alloc(PAGE, (size + 2 * PAGE) / PAGE * PAGE);

	if (!buffer || length > MAX_LENGTH)
		errx(2, "too long: %s", op->line);
	for (size_t i = 0; i < size; i += UNIT) {
		if (i % SECTOR == 0)
			snprintf(unit, sizeof(unit), "%06x %08llx\n", (unsigned)(op - ops),
				 (first + (long long)i) / SECTOR);
		memcpy(buffer + i, unit, UNIT);
	}
	if (skip)
		memmove(buffer, buffer + skip, length);
	return buffer;
}

int open_file(const struct op *op, int flags)
{
	return open(op->word[1], flags | O_CLOEXEC, 0644);
}

static int write_at(const struct op *op, int flags, long long offset, size_t length)
{
	char *buffer = contents(op, offset, length);
	int fd = open_file(op, O_RDWR | flags);
	ssize_t written = fd < 0 ? -1 : pwrite(fd, buffer, length, offset);
	int error = errno;

	free(buffer);
	if (fd >= 0)
		close(fd);
	errno = written < 0 ? error : EIO;
	return written == (ssize_t)length ? 0 : -1;
}

static int do_write(struct op *op) { return write_at(op, 0, number(op, 2), number(op, 3)); }
static int do_dwrite(struct op *op) { return write_at(op, O_DIRECT, number(op, 2), number(op, 3)); }
static int do_owrite(struct op *op) { return write_at(op, O_SYNC, number(op, 2), number(op, 3)); }
static int do_odwrite(struct op *op) { return write_at(op, O_DSYNC, number(op, 2), number(op, 3)); }

/* Calls @use with the pages that hold the range, mapped. */
static int with_mapping(struct op *op, int (*use)(struct op *op, char *map, size_t length))
{
	long long offset = number(op, 2), start = offset / PAGE * PAGE;
	size_t length = number(op, 3) + (offset - start);
	int fd = open_file(op, O_RDWR), status = -1;
	char *map = MAP_FAILED;

	if (fd >= 0)
		map = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, start);
	if (map != MAP_FAILED) {
		status = use(op, map, length);
		munmap(map, length);
	}
	if (fd >= 0)
		close(fd);
	return status;
}

static int store(struct op *op, char *map, size_t length)
{
	long long offset = number(op, 2);
	size_t skip = offset % PAGE;
	char *buffer = contents(op, offset, length - skip);

	memcpy(map + skip, buffer, length - skip);
	free(buffer);
	return 0;
}

/* The mapping that stays: of one file, from its start. */
static char *kept_map;

static int do_mkeep(struct op *op)
{
	int fd = open_file(op, O_RDWR);

	if (kept_map || fd < 0)
		return -1;
	kept_map = mmap(NULL, number(op, 2), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return kept_map == MAP_FAILED ? -1 : 0;
}

static int do_kstore(struct op *op)
{
	char *buffer = contents(op, number(op, 2), number(op, 3));

	memcpy(kept_map + number(op, 2), buffer, number(op, 3));
	free(buffer);
	return 0;
}

static int sync_mapping(struct op *op, char *map, size_t length)
{
	(void)op;
	return msync(map, length, MS_SYNC);
}

static int do_mstore(struct op *op) { return with_mapping(op, store); }
/* A store behind the end of the file, in its last page. */
static int do_mspill(struct op *op) { return with_mapping(op, store); }
static int do_msync(struct op *op) { return with_mapping(op, sync_mapping); }

int with_file(struct op *op, int flags, int (*use)(struct op *op, int fd))
{
	int fd = open_file(op, flags), status, error;

	if (fd < 0)
		return -1;
	status = use(op, fd);
	error = errno;
	close(fd);
	errno = error;
	return status;
}

static int use_fsync(struct op *op, int fd) { (void)op; return fsync(fd); }
static int use_fdatasync(struct op *op, int fd) { (void)op; return fdatasync(fd); }
static int use_syncfs(struct op *op, int fd) { (void)op; return syncfs(fd); }
static int use_nothing(struct op *op, int fd) { (void)op; (void)fd; return 0; }

static int use_falloc(struct op *op, int fd)
{
	return fallocate(fd, number(op, 2), number(op, 3), number(op, 4));
}

/* Write-back, as the flusher does it: not for a sync. From word 2, all if word 3 is 0. */
static int use_writeback(struct op *op, int fd)
{
	return sync_file_range(fd, number(op, 2), number(op, 3),
			       SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
}

/* Take all blocks of the file system but some, behind the end of the file. */
static int use_fill(struct op *op, int fd)
{
	struct statvfs fs;

	if (fstatvfs(fd, &fs))
		return -1;
	return fallocate(fd, FALLOC_FL_KEEP_SIZE, 0,
			 (long long)(fs.f_bfree * fs.f_bsize) - number(op, 2));
}

static int use_utimens(struct op *op, int fd)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT } };

	times[1].tv_sec = number(op, 2) / NS_PER_S;
	times[1].tv_nsec = number(op, 2) % NS_PER_S;
	return futimens(fd, times);
}

static int do_fsync(struct op *op) { return with_file(op, O_RDONLY, use_fsync); }
static int do_fdatasync(struct op *op) { return with_file(op, O_RDONLY, use_fdatasync); }
static int do_syncfs(struct op *op) { return with_file(op, O_RDONLY, use_syncfs); }
static int do_falloc(struct op *op) { return with_file(op, O_RDWR, use_falloc); }
static int do_fill(struct op *op) { return with_file(op, O_RDWR, use_fill); }
static int do_writeback(struct op *op) { return with_file(op, O_RDONLY, use_writeback); }
static int do_utimens(struct op *op) { return with_file(op, O_RDWR, use_utimens); }
static int do_create(struct op *op) { return with_file(op, O_RDWR | O_CREAT | O_EXCL, use_nothing); }
static int do_truncate(struct op *op) { return truncate(op->word[1], number(op, 2)); }
static int do_chmod(struct op *op) { return chmod(op->word[1], number(op, 2)); }
static int do_chown(struct op *op) { return chown(op->word[1], number(op, 2), number(op, 3)); }
static int do_mkdir(struct op *op) { return mkdir(op->word[1], 0755); }
static int do_rmdir(struct op *op) { return rmdir(op->word[1]); }
static int do_unlink(struct op *op) { return unlink(op->word[1]); }
static int do_rename(struct op *op) { return rename(op->word[1], op->word[2]); }

/* What has no name is named by its number in /proc, a symbolic link. */
static int do_link(struct op *op)
{
	int flags = made_without_name(op->word[1]) < 0 ? 0 : AT_SYMLINK_FOLLOW;

	return linkat(AT_FDCWD, op->word[1], AT_FDCWD, op->word[2], flags);
}

static int do_symlink(struct op *op) { return symlink(op->word[1], op->word[2]); }
static int do_sync(struct op *op) { (void)op; sync(); return 0; }

/* Files that stay open until they are closed, or the program ends. */
static struct held {
	const char *name;
	int fd;
} held[MAX_HELD];

static int do_hold(struct op *op)
{
	struct held *one = held;

	while (one < held + MAX_HELD && one->name)
		one++;
	if (one == held + MAX_HELD)
		errx(2, "more than %d files are held: %s", MAX_HELD, op->line);
	one->fd = open_file(op, O_RDWR);
	if (one->fd < 0)
		return -1;
	one->name = op->word[1];
	return 0;
}

static int do_close(struct op *op)
{
	int fd = made_without_name(op->word[1]);

	if (fd >= 0)
		return close(fd);
	for (struct held *one = held; one < held + MAX_HELD; one++)
		if (one->name && !strcmp(one->name, op->word[1])) {
			one->name = NULL;
			return close(one->fd);
		}
	errx(2, "is not held: %s", op->line);
}

static int do_setxattr(struct op *op)
{
	return setxattr(op->word[1], op->word[2], op->word[3], strlen(op->word[3]), 0);
}

static int do_rmxattr(struct op *op) { return removexattr(op->word[1], op->word[2]); }

static int do_sleep(struct op *op)
{
	long long us = number(op, 1);
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };

	return nanosleep(&t, NULL);
}

/* Write a word to a file that is there, one of the kernel's. */
static int do_put(struct op *op)
{
	int fd = open_file(op, O_WRONLY), status;

	if (fd < 0)
		return -1;
	status = write(fd, op->word[2], strlen(op->word[2])) < 0 ? -1 : 0;
	close(fd);
	return status;
}

/* Wait for the start of the next interval of the clock that stamps are taken from. */
static int do_align(struct op *op)
{
	long long interval = number(op, 1) * 1000;
	long long start = now_ns() / interval * interval + interval;
	struct timespec now, pause = { 0, NS_PER_S / 2000 };

	while (!clock_gettime(CLOCK_REALTIME_COARSE, &now) &&
	       now.tv_sec * NS_PER_S + now.tv_nsec < start)
		nanosleep(&pause, NULL);
	return 0;
}

/* @file: which word names the file to stat() afterwards, 0 for none. */
#define OP(name, words, file) { #name, words, file, do_##name }
static const struct {
	const char *name;
	int words, file;
	int (*function)(struct op *op);
} kinds[] = {
	OP(write, 4, 1), OP(dwrite, 4, 1), OP(owrite, 4, 1), OP(odwrite, 4, 1), OP(mstore, 4, 1),
	OP(mspill, 4, 1), OP(mkeep, 3, 1), OP(kstore, 4, 1), OP(msync, 4, 1),
	OP(fsync, 2, 1), OP(fdatasync, 2, 1), OP(syncfs, 2, 1), OP(sync, 1, 0),
	OP(writeback, 4, 1), OP(fill, 3, 1), OP(falloc, 5, 1), OP(utimens, 3, 1), OP(truncate, 3, 1), OP(chmod, 3, 1), OP(chown, 4, 1),
	OP(setxattr, 4, 1), OP(rmxattr, 3, 1), OP(create, 2, 1), OP(hold, 2, 1), OP(close, 2, 1), OP(mkdir, 2, 1),
	OP(rmdir, 2, 0), OP(unlink, 2, 0), OP(rename, 3, 2), OP(link, 3, 2), OP(symlink, 3, 2),
	OP(sleep, 2, 0), OP(align, 2, 0), OP(put, 3, 0),
	OP(awrite, 4, 1), OP(adwrite, 4, 1), OP(afsync, 2, 1), OP(afdatasync, 2, 1),
	OP(rwrite, 4, 1), OP(rdwrite, 4, 1), OP(rswrite, 4, 1), OP(rsdwrite, 4, 1),
	OP(rfsync, 2, 1), OP(rfdatasync, 2, 1),
	OP(moveext, 5, 1), OP(swapboot, 2, 1), OP(remount, 2, 0),
	OP(tmpfile, 3, 2), OP(linkfd, 3, 2), OP(exchange, 3, 2), OP(renamenew, 3, 2),
	OP(setacl, 3, 1),
};

/* Of the file itself, not of what a symbolic link leads to. */
static int look_at(const char *path, struct stat *st)
{
	return made_without_name(path) < 0 ? lstat(path, st) : stat(path, st);
}

static void perform(struct op *op)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(kinds[i].name, op->word[0]) || kinds[i].words != op->count)
			continue;
		op->begin = atomic_fetch_add(&order, 1);
		op->start_ns = now_ns();
		op->error = kinds[i].function(op) ? errno : 0;
		dm_mark(op - ops);
		op->stop_ns = now_ns();
		if (kinds[i].file && look_at(op->word[kinds[i].file], &op->st))
			op->st.st_ino = 0;
		op->end = atomic_fetch_add(&order, 1);
		return;
	}
	errx(2, "no such operation: %s", op->line);
}

static void read_script(const char *path)
{
	FILE *file = fopen(path, "r");
	char line[MAX_LINE];

	if (!file)
		die(path);
	while (fgets(line, sizeof(line), file)) {
		struct op *op = &ops[op_count++];
		char *rest, *save = NULL;

		if (op_count == MAX_OPS)
			errx(2, "more than %d operations", MAX_OPS - 1);
		line[strcspn(line, "\n")] = '\0';
		op->thread = strtol(line, &rest, 10);
		rest += *rest == ' ';
		strcpy(op->line, rest);
		strcpy(op->words, rest);
		for (char *word = strtok_r(op->words, " ", &save); word && op->count < MAX_WORDS;
		     word = strtok_r(NULL, " ", &save))
			op->word[op->count++] = *word == '@' ? path_without_name(word) : word;
		if (!op->count || op->thread < 0 || op->thread > MAX_THREADS)
			errx(2, "bad line: %s", line);
	}
	fclose(file);
}

struct stretch { int thread, from, to; };

static void *run_thread(void *argument)
{
	const struct stretch *stretch = argument;

	for (int i = stretch->from; i < stretch->to; i++)
		if (ops[i].thread == stretch->thread)
			perform(&ops[i]);
	return NULL;
}

static void run_threads(int from, int to)
{
	struct stretch stretches[MAX_THREADS];
	pthread_t threads[MAX_THREADS];

	for (int i = 0; i < MAX_THREADS; i++) {
		stretches[i] = (struct stretch) { i + 1, from, to };
		if (pthread_create(&threads[i], NULL, run_thread, &stretches[i]))
			errx(1, "pthread_create");
	}
	for (int i = 0; i < MAX_THREADS; i++)
		pthread_join(threads[i], NULL);
}

static void print_trace(void)
{
	for (const struct op *op = ops; op < ops + op_count; op++)
		printf("{\"op\": %ld, \"thread\": %d, \"line\": \"%s\", \"begin\": %ld, \"end\": %ld, "
		       "\"errno\": %d, \"start_ns\": %lld, \"stop_ns\": %lld, \"ino\": %llu, "
		       "\"size\": %lld, \"mtime_ns\": %lld, \"ctime_ns\": %lld}\n",
		       (long)(op - ops), op->thread, op->line, op->begin, op->end, op->error,
		       op->start_ns, op->stop_ns, (unsigned long long)op->st.st_ino,
		       (long long)op->st.st_size,
		       op->st.st_mtim.tv_sec * NS_PER_S + op->st.st_mtim.tv_nsec,
		       op->st.st_ctim.tv_sec * NS_PER_S + op->st.st_ctim.tv_nsec);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		errx(2, "usage: crashops DM_NAME SCRIPT");
	dm_mark_open(argv[1]);
	read_script(argv[2]);
	for (int i = 0, to; i < op_count; i = to) {
		to = i + 1;
		if (!ops[i].thread) {
			perform(&ops[i]);
			continue;
		}
		while (to < op_count && ops[to].thread)
			to++;
		run_threads(i, to);
	}
	print_trace();
	return 0;
}
