// SPDX-License-Identifier: MIT
/*
 * datasync: fdatasync() in place of fsync(), by LD_PRELOAD: what a program that
 * only calls fsync() would take if it called the other.
 */
#include <unistd.h>

int fsync(int fd)
{
	return fdatasync(fd);
}
