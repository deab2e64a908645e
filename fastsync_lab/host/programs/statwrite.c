// SPDX-License-Identifier: MIT
/*
 * statwrite: an fstat() before every write, by LD_PRELOAD.
 *
 * A file that somebody has asked for its time since its last stamp gets a
 * fine-grained stamp at the next write on Linux 6.13 and later.  SQLite's
 * rollback-journal modes, and every program that looks before it writes, do
 * that; this library makes any program do it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static ssize_t (*next_write)(int fd, const void *buffer, size_t count);
static ssize_t (*next_pwrite)(int fd, const void *buffer, size_t count, off_t offset);

__attribute__((constructor)) static void find_next(void)
{
	next_write = dlsym(RTLD_NEXT, "write");
	next_pwrite = dlsym(RTLD_NEXT, "pwrite");
	if (!next_write || !next_pwrite)
		abort();
}

ssize_t write(int fd, const void *buffer, size_t count)
{
	struct stat ignored;

	fstat(fd, &ignored);
	return next_write(fd, buffer, count);
}

ssize_t pwrite(int fd, const void *buffer, size_t count, off_t offset)
{
	struct stat ignored;

	fstat(fd, &ignored);
	return next_pwrite(fd, buffer, count, offset);
}

/* off_t has 64 bits here, so this is the same call under its other name. */
ssize_t pwrite64(int fd, const void *buffer, size_t count, off_t offset)
{
	return pwrite(fd, buffer, count, offset);
}
