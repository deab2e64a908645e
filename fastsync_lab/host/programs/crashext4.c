// SPDX-License-Identifier: MIT
/*
 * Operations of crashops.c that no portable call has: ext4's ioctls, remount, files
 * that have no name at first, renameat2(), and ACLs.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "crashops.h"

#define FIRST_FD 100		/* of the files that have no name at first */
#define ACL_OF 1234		/* crash/model.py knows it, too */
#define FD_PATH "/proc/self/fd/%d"

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

char *path_without_name(const char *word)
{
	char *path;

	if (asprintf(&path, FD_PATH, FIRST_FD + atoi(word + 1)) < 0)
		err(1, "asprintf");
	return path;
}

int made_without_name(const char *path)
{
	int fd;

	return sscanf(path, FD_PATH, &fd) == 1 ? fd : -1;
}

/* tmpfile FOLDER @NUMBER */
int do_tmpfile(struct op *op)
{
	int fd = open(op->word[1], O_TMPFILE | O_RDWR | O_CLOEXEC, 0644), status;

	if (fd < 0)
		return -1;
	status = dup3(fd, made_without_name(op->word[2]), O_CLOEXEC);
	close(fd);
	return status < 0 ? -1 : 0;
}

/* linkfd @NUMBER PATH: by the descriptor itself; "link" takes it from /proc. */
int do_linkfd(struct op *op)
{
	int fd = made_without_name(op->word[1]);

	return linkat(fd, "", AT_FDCWD, op->word[2], AT_EMPTY_PATH);
}

static int rename_with(struct op *op, unsigned int flags)
{
	return renameat2(AT_FDCWD, op->word[1], AT_FDCWD, op->word[2], flags);
}

int do_exchange(struct op *op) { return rename_with(op, RENAME_EXCHANGE); }
int do_renamenew(struct op *op) { return rename_with(op, RENAME_NOREPLACE); }

/* setacl FILE PERMISSIONS: those of one more user; the owner may read and write, all others read. */
int do_setacl(struct op *op)
{
	uint16_t given = number(op, 2);
	struct {
		struct posix_acl_xattr_header header;
		struct posix_acl_xattr_entry entries[5];
	} acl = {
		.header.a_version = POSIX_ACL_XATTR_VERSION,
		.entries = {
			{ ACL_USER_OBJ, ACL_READ | ACL_WRITE, ACL_UNDEFINED_ID },
			{ ACL_USER, given, ACL_OF },
			{ ACL_GROUP_OBJ, ACL_READ, ACL_UNDEFINED_ID },
			{ ACL_MASK, given, ACL_UNDEFINED_ID },
			{ ACL_OTHER, ACL_READ, ACL_UNDEFINED_ID },
		},
	};

	return setxattr(op->word[1], "system.posix_acl_access", &acl, sizeof(acl), 0);
}
