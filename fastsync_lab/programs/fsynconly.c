// SPDX-License-Identifier: MIT
/*
 * fsynconly: every fdatasync() is an fsync(), by LD_PRELOAD.
 *
 * Debian's MariaDB calls fdatasync() wherever MySQL calls fsync(); this library makes
 * it do the same.
 */
#include <unistd.h>

int fdatasync(int fd)
{
	return fsync(fd);
}
