// SPDX-License-Identifier: MIT
/*
 * swapped move|boot fsync|fdatasync FILE: give the first block of FILE another
 * place, by EXT4_IOC_MOVE_EXT or by EXT4_IOC_SWAP_BOOT, write N into it, and sync.
 * FILE has stamps that are young and committed. For MOVE_EXT it has more extents
 * than fit into its inode. SWAP_BOOT would make their checksums wrong, on stock
 * as well: it gives the inode another generation.
 */
#include <err.h>
#include <fcntl.h>
#include <linux/types.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "need.h"

#define BLOCK 4096
#define MANY_EXTENTS 32
#define FEW_EXTENTS 2

struct move_extent {
	__u32 reserved;
	__u32 donor_fd;
	__u64 orig_start;
	__u64 donor_start;
	__u64 len;
	__u64 moved_len;
};

#define EXT4_IOC_SWAP_BOOT _IO('f', 17)
#define EXT4_IOC_MOVE_EXT _IOWR('f', 15, struct move_extent)

static char block[BLOCK];

static void put(int fd, int number, int letter)
{
	memset(block, letter, BLOCK);
	need(pwrite(fd, block, BLOCK, (off_t)number * BLOCK) == BLOCK, "pwrite");
}

static int scattered(const char *path, int letter, int extents)
{
	int fd = open(path, O_RDWR | O_CREAT, 0600);

	need(fd >= 0, path);
	for (int i = 0; i < extents; i++)
		put(fd, 2 * i, letter);
	need(!fsync(fd), "fsync");
	return fd;
}

static void move(int fd, const char *path)
{
	struct move_extent range = { .len = 1 };
	char donor[4096];

	snprintf(donor, sizeof(donor), "%s.donor", path);
	range.donor_fd = scattered(donor, 'd', MANY_EXTENTS);
	sync();
	need(!ioctl(fd, EXT4_IOC_MOVE_EXT, &range) && range.moved_len == 1, "EXT4_IOC_MOVE_EXT");
}

/* Twice: the first gives the boot loader's inode FILE's blocks, and FILE none. */
static void boot(int fd)
{
	need(!ioctl(fd, EXT4_IOC_SWAP_BOOT), "EXT4_IOC_SWAP_BOOT");
	for (int i = 0; i < FEW_EXTENTS; i++)
		put(fd, 2 * i, 'b');
	sync();
	need(!ioctl(fd, EXT4_IOC_SWAP_BOOT), "EXT4_IOC_SWAP_BOOT");
}

int main(int argc, char **argv)
{
	int moves, fd;

	if (argc != 4)
		errx(2, "usage: swapped move|boot fsync|fdatasync FILE");
	moves = !strcmp(argv[1], "move");
	fd = scattered(argv[3], 'o', moves ? MANY_EXTENTS : FEW_EXTENTS);
	sync();
	if (moves)
		move(fd, argv[3]);
	else
		boot(fd);
	put(fd, 0, 'N');
	need(!(strcmp(argv[2], "fsync") ? fdatasync(fd) : fsync(fd)), argv[2]);
	return 0;
}
