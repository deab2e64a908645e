// SPDX-License-Identifier: MIT
/*
 * innodbsync: keep the page writes and the syncs of a MariaDB server's files apart,
 * by LD_PRELOAD. With FSYNC_ONLY in the environment each fdatasync() is an fsync(),
 * which is what MySQL calls where MariaDB calls fdatasync().
 *
 * InnoDB of MariaDB 10.11 marks a file that has been written to, syncs it before a
 * checkpoint if it is marked, and then takes the mark away (flush_low() in
 * fil0fil.cc). A page that is written while the sync is under way loses its mark:
 * nobody syncs it, but the checkpoint lets the redo log forget it. That is so on
 * any file system, and would hide what this one does. So no page is written to a
 * file that is being synced, and a write right after a sync returns late, when the
 * mark of before has gone. The server has to write by pwrite(): no native AIO.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MAX_FD 4096
#define PAGE 16384
#define SETTLE_US 20000

static struct {
	pthread_rwlock_t lock;		/* a sync is the writer */
	atomic_llong synced_us;
} files[MAX_FD];

static bool fsync_only;

__attribute__((constructor)) static void prepare(void)
{
	for (int fd = 0; fd < MAX_FD; fd++)
		pthread_rwlock_init(&files[fd].lock, NULL);
	fsync_only = getenv("FSYNC_ONLY");
}

static long long now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

int fdatasync(int fd)
{
	long call = fsync_only ? SYS_fsync : SYS_fdatasync;
	int result, error;

	if (fd < 0 || fd >= MAX_FD)
		return syscall(call, fd);
	pthread_rwlock_wrlock(&files[fd].lock);
	result = syscall(call, fd);
	error = errno;
	files[fd].synced_us = now_us();
	pthread_rwlock_unlock(&files[fd].lock);
	errno = error;
	return result;
}

ssize_t pwrite64(int fd, const void *buffer, size_t count, off64_t offset)
{
	ssize_t result;
	int error;

	if (fd < 0 || fd >= MAX_FD || count % PAGE || offset % PAGE)
		return syscall(SYS_pwrite64, fd, buffer, count, offset);
	pthread_rwlock_rdlock(&files[fd].lock);
	result = syscall(SYS_pwrite64, fd, buffer, count, offset);
	error = errno;
	pthread_rwlock_unlock(&files[fd].lock);
	if (now_us() - files[fd].synced_us < SETTLE_US)
		usleep(SETTLE_US);
	errno = error;
	return result;
}
