// SPDX-License-Identifier: MIT
/* Operations of crashops.c that no portable call has: ext4's ioctls, and remount. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include "crashops.h"

/* As in fs/ext4/ext4.h; no header of user space has them. */
struct move_extent {
	uint32_t reserved, donor_fd;
	uint64_t orig_start, donor_start, len, moved_len;	/* in blocks */
};

#define EXT4_IOC_MOVE_EXT _IOWR('f', 15, struct move_extent)
#define EXT4_IOC_SWAP_BOOT _IO('f', 17)

/*
 * moveext FILE DONOR OFFSET LENGTH (bytes): the range's contents move to the
 * blocks that DONOR has at the same place, and DONOR gets those that they were in.
 */
static int use_moveext(struct op *op, int fd)
{
	struct move_extent move = {};
	int block, donor = open(op->word[2], O_RDWR | O_CLOEXEC), status = -1;

	if (donor < 0)
		return -1;
	if (!ioctl(fd, FIGETBSZ, &block)) {
		move.donor_fd = donor;
		move.orig_start = move.donor_start = number(op, 3) / block;
		move.len = number(op, 4) / block;
		status = ioctl(fd, EXT4_IOC_MOVE_EXT, &move);
		if (!status && move.moved_len != move.len) {
			errno = EIO;
			status = -1;
		}
	}
	close(donor);
	return status;
}

static int use_swapboot(struct op *op, int fd)
{
	(void)op;
	return ioctl(fd, EXT4_IOC_SWAP_BOOT);
}

int do_moveext(struct op *op) { return with_file(op, O_RDWR, use_moveext); }
int do_swapboot(struct op *op) { return with_file(op, O_RDWR, use_swapboot); }

/* remount OPTIONS: of the file system that the current folder is the root of. */
int do_remount(struct op *op)
{
	return mount(NULL, ".", NULL, MS_REMOUNT, op->word[1]);
}
