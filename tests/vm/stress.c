// SPDX-License-Identifier: MIT
/*
 * Work for a file system that is remounted meanwhile. What is done is drawn
 * from SEED. Errors that cannot be meant end the program. Prints JSON: "count",
 * how often.
 *
 *   stress fsx FILE MODEL MS SEED
 *                               holds FILE against MODEL, its contents and
 *                               stamps as an earlier call left them (nothing is
 *                               held against a MODEL that is not there), then
 *                               changes both in the same way and compares what
 *                               it reads. Syncs, and leaves MODEL for the next
 *                               call
 *   stress churn FOLDER MS SEED
 *                               create, write, sync, rename, link, unlink and
 *                               whatever else changes names and attributes, in
 *                               FOLDER
 *   stress toggle FOLDER MS SEED OPTIONS...
 *                               remounts what is mounted at FOLDER, each time
 *                               with one of OPTIONS; now and then it syncs,
 *                               freezes and thaws it. Every remount must succeed
 *   stress mounts DEVICE FOLDER MS SEED OPTIONS...
 *                               mounts, writes to and unmounts an ext4 of its own
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "draw.h"
#include "need.h"
#include "times.h"

#define BLOCK 4096
#define MAX_SIZE (64 * BLOCK)
#define NAMES 24
#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

static unsigned long long seed;
static long long end_ns;

static unsigned int draw(unsigned int below)
{
	return draw_from(&seed, below);
}

static void begin(const char *duration_ms, const char *number)
{
	end_ns = now_ns() + atoll(duration_ms) * NS_PER_MS;
	seed = state_from(atoll(number));
}

static int running(void)
{
	return now_ns() < end_ns;
}

static void print_count(size_t count)
{
	printf("{\"count\": %zu}\n", count);
}

/*
 * fsx: a file and what is known of it
 */

struct model {
	long long size, mtime_ns, ctime_ns;
	char data[MAX_SIZE];
};

static struct model model;
static char scratch[MAX_SIZE] __attribute__((aligned(BLOCK)));
static const char *fsx_path;
static int fsx_fd = -1;

static void fsx_open(int flags)
{
	if (fsx_fd >= 0)
		close(fsx_fd);
	fsx_fd = open(fsx_path, O_RDWR | O_CREAT | flags, 0644);
	need(fsx_fd >= 0, fsx_path);
}

static void compare(const char *what, off_t offset, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (scratch[i] != model.data[offset + i])
			errx(3, "%s: byte %lld is %#x, written was %#x", what,
			     (long long)offset + i, scratch[i] & 0xff,
			     model.data[offset + i] & 0xff);
}

static void check_size(void)
{
	struct stat st;

	need(!fstat(fsx_fd, &st), "fstat");
	if (st.st_size != model.size)
		errx(3, "the size is %lld, should be %lld", (long long)st.st_size, model.size);
}

/* A range inside the file, of whole blocks if align says so; 0 if there is none. */
static size_t draw_range(off_t *offset, long long limit, int align)
{
	size_t unit = align ? BLOCK : 1, length, most = draw(4) ? 8 * BLOCK : MAX_SIZE;

	if (limit < (long long)unit)
		return 0;
	*offset = draw(limit / unit) * unit;
	length = (1 + draw((limit - *offset) / unit)) * unit;
	return length > most ? most : length;
}

static void fill(off_t offset, size_t length)
{
	char first = draw(256);

	for (size_t i = 0; i < length; i++)
		scratch[i] = first + i;
	memcpy(model.data + offset, scratch, length);
	if (model.size < (long long)(offset + length))
		model.size = offset + length;
}

static void fsx_write(int direct)
{
	off_t offset;
	size_t length = draw_range(&offset, MAX_SIZE, direct);

	if (direct)
		fsx_open(O_DIRECT);
	fill(offset, length);
	need(pwrite(fsx_fd, scratch, length, offset) == (ssize_t)length, "pwrite");
	if (direct)
		fsx_open(0);
}

static void fsx_overwrite(void)
{
	off_t offset;
	size_t length = draw_range(&offset, model.size, 0);

	if (!length)
		return;
	fill(offset, length);
	need(pwrite(fsx_fd, scratch, length, offset) == (ssize_t)length, "pwrite");
}

static void fsx_map_write(void)
{
	off_t offset;
	size_t length = draw_range(&offset, model.size, 0);
	char *map;

	if (!length)
		return;
	map = mmap(NULL, MAX_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fsx_fd, 0);
	need(map != MAP_FAILED, "mmap");
	fill(offset, length);
	memcpy(map + offset, scratch, length);
	if (draw(4) == 0)
		need(!msync(map, MAX_SIZE, MS_SYNC), "msync");
	munmap(map, MAX_SIZE);
}

static void fsx_read(void)
{
	off_t offset;
	size_t length = draw_range(&offset, model.size, 0);

	if (!length)
		return;
	if (draw(8) == 0)	/* from the medium; dirty pages stay */
		posix_fadvise(fsx_fd, 0, 0, POSIX_FADV_DONTNEED);
	need(pread(fsx_fd, scratch, length, offset) == (ssize_t)length, "pread");
	compare("read", offset, length);
}

static void fsx_truncate(void)
{
	long long size = draw(MAX_SIZE + 1);

	need(!ftruncate(fsx_fd, size), "ftruncate");
	if (size < model.size)
		memset(model.data + size, 0, model.size - size);
	model.size = size;
}

static void fsx_zero(int mode)
{
	off_t offset;
	size_t length = draw_range(&offset, model.size, 0);

	if (!length)
		return;
	need(!fallocate(fsx_fd, mode | FALLOC_FL_KEEP_SIZE, offset, length), "fallocate");
	memset(model.data + offset, 0, length);
}

static void fsx_preallocate(void)
{
	off_t offset;
	size_t length = draw_range(&offset, MAX_SIZE, 0);

	need(!fallocate(fsx_fd, 0, offset, length), "fallocate");
	if (model.size < (long long)(offset + length))
		model.size = offset + length;
}

static void fsx_collapse(void)
{
	off_t offset;
	size_t length = draw_range(&offset, model.size, 1);

	if (!length || (long long)(offset + length) >= model.size)
		return;
	need(!fallocate(fsx_fd, FALLOC_FL_COLLAPSE_RANGE, offset, length), "collapse");
	memmove(model.data + offset, model.data + offset + length, model.size - offset - length);
	model.size -= length;
	memset(model.data + model.size, 0, length);
}

static void fsx_pwrite(void) { fsx_write(0); }
static void fsx_direct(void) { fsx_write(1); }
static void fsx_punch(void) { fsx_zero(FALLOC_FL_PUNCH_HOLE); }
static void fsx_zero_range(void) { fsx_zero(FALLOC_FL_ZERO_RANGE); }
static void fsx_datasync(void) { need(!fdatasync(fsx_fd), "fdatasync"); }
static void fsx_chmod(void) { need(!fchmod(fsx_fd, 0600 + draw(64)), "fchmod"); }

static void fsx_reopen(void)
{
	fsx_open(0);
	check_size();
}

/* What the options are about. */
static void fsx_sync(void)
{
	fsx_overwrite();
	need(!fsync(fsx_fd), "fsync");
}

static void (*const fsx_steps[])(void) = {
	fsx_pwrite, fsx_direct, fsx_map_write, fsx_truncate, fsx_punch, fsx_zero_range,
	fsx_preallocate, fsx_collapse, fsx_datasync, fsx_chmod, fsx_reopen, fsx_read,
	fsx_sync, fsx_sync, fsx_sync, fsx_sync,
};

/* What a clean unmount and a mount must bring back, or the program has just left. */
static void fsx_check(int stamps)
{
	struct stat st;

	check_size();
	need(pread(fsx_fd, scratch, model.size, 0) == model.size, "pread");
	compare("all", 0, model.size);
	need(!fstat(fsx_fd, &st), "fstat");
	if (stamps && (ns(st.st_mtim) != model.mtime_ns || ns(st.st_ctim) != model.ctime_ns))
		errx(3, "mtime and ctime are %lld and %lld, stat() had shown %lld and %lld",
		     ns(st.st_mtim), ns(st.st_ctim), model.mtime_ns, model.ctime_ns);
}

static void fsx(const char *path, const char *model_path)
{
	int store = open(model_path, O_RDWR | O_CREAT, 0600);
	size_t count = 0;
	struct stat st;

	need(store >= 0, model_path);
	fsx_path = path;
	if (read(store, &model, sizeof(model)) == sizeof(model)) {
		fsx_open(0);
		fsx_check(1);
	} else {
		fsx_open(O_TRUNC);
	}
	for (; running(); count++)
		fsx_steps[draw(ARRAY_SIZE(fsx_steps))]();
	fsx_check(0);
	if (draw(2))	/* else the unmount has to */
		need(!fsync(fsx_fd), "fsync");
	need(!fstat(fsx_fd, &st), "fstat");
	model.mtime_ns = ns(st.st_mtim);
	model.ctime_ns = ns(st.st_ctim);
	need(pwrite(store, &model, sizeof(model), 0) == sizeof(model), "write the model");
	print_count(count);
}

/*
 * churn: names and attributes
 */

static char *draw_name(char *name)
{
	if (draw(4))
		snprintf(name, 32, "f%u", draw(NAMES));
	else
		snprintf(name, 32, "d%u/f%u", draw(3), draw(NAMES));
	return name;
}

/* These may fail: the name is not there, is there, is a folder, or the device is full. */
static void file_truncate(int fd) { ftruncate(fd, draw(8 * BLOCK)); }
static void file_chmod(int fd) { fchmod(fd, 0600 + draw(64)); }
static void file_chown(int fd) { fchown(fd, draw(1000), -1); }
static void file_setxattr(int fd) { fsetxattr(fd, "user.a", scratch, draw(600), 0); }
static void file_removexattr(int fd) { fremovexattr(fd, "user.a"); }

static void file_allocate(int fd)
{
	static const int modes[] = {
		0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		FALLOC_FL_ZERO_RANGE,
	};

	fallocate(fd, modes[draw(ARRAY_SIZE(modes))], draw(8) * BLOCK, BLOCK);
}

static void file_utimens(int fd)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_NOW }, { .tv_sec = draw(1u << 31) } };

	futimens(fd, times);
}

static void file_write(int fd)
{
	pwrite(fd, scratch, 1 + draw(2 * BLOCK), draw(6 * BLOCK));
	need(!(draw(2) ? fsync(fd) : fdatasync(fd)), "fsync");
}

static void (*const file_steps[])(int fd) = {
	file_truncate, file_allocate, file_chmod, file_chown, file_setxattr, file_removexattr,
	file_utimens, file_write, file_write,
};

static void name_unlink(char *name) { unlink(name); }
static void name_sync(char *name) { sync(); }

static void name_rename(char *name)
{
	char other[32];

	rename(name, draw_name(other));
}

static void name_link(char *name)
{
	char other[32];

	link(name, draw_name(other));
}

static void name_symlink(char *name)
{
	char other[32];

	symlink(name, draw_name(other));
}

static void name_mkdir(char *name)
{
	snprintf(name, 32, "d%u", draw(3));
	mkdir(name, 0755);
}

static void name_rmdir(char *name)
{
	snprintf(name, 32, "d%u", draw(3));
	rmdir(name);
}

static void name_stat(char *name)
{
	struct stat st;

	lstat(name, &st);
}

static void name_file(char *name)
{
	int fd = open(name, O_RDWR | O_CREAT | (draw(8) ? 0 : O_TRUNC), 0644);

	if (fd < 0)
		return;
	for (unsigned int i = draw(6); i; i--)
		file_steps[draw(ARRAY_SIZE(file_steps))](fd);
	close(fd);
}

static void (*const name_steps[])(char *name) = {
	name_unlink, name_rename, name_link, name_symlink, name_mkdir, name_rmdir, name_stat,
	name_sync, name_file, name_file, name_file, name_file,
};

static void churn(const char *folder)
{
	size_t count = 0;
	char name[32];

	need(!mkdir(folder, 0755) || errno == EEXIST, folder);
	need(!chdir(folder), folder);
	for (; running(); count++) {
		errno = 0;
		name_steps[draw(ARRAY_SIZE(name_steps))](draw_name(name));
		if (errno == EIO || errno == EUCLEAN || errno == EROFS)
			err(3, "%s", name);
	}
	print_count(count);
}

/*
 * toggle, mounts
 */

static void freeze(int fd)
{
	need(!ioctl(fd, FIFREEZE, 0), "FIFREEZE");
	usleep(draw(3000));
	need(!ioctl(fd, FITHAW, 0), "FITHAW");
}

static void toggle(const char *folder, int count, char **options)
{
	int fd = open(folder, O_RDONLY | O_DIRECTORY);
	size_t remounts = 0;

	need(fd >= 0, folder);
	for (; running(); remounts++) {
		const char *words = options[draw(count)];

		need(!mount("none", folder, NULL, MS_REMOUNT, words), words);
		if (draw(8) == 0)
			need(!syncfs(fd), "syncfs");
		else if (draw(8) == 0)
			freeze(fd);
		else
			usleep(draw(20000));
	}
	close(fd);
	print_count(remounts);
}

static void mounts(const char *device, const char *folder, int count, char **options)
{
	size_t rounds = 0;

	snprintf(scratch, sizeof(scratch), "%s/f", folder);
	for (; running(); rounds++) {
		const char *words = options[draw(count)];
		int fd;

		need(!mount(device, folder, "ext4", 0, words), words);
		fd = open(scratch, O_RDWR | O_CREAT, 0644);
		need(fd >= 0, scratch);
		for (unsigned int i = draw(40); i; i--) {
			need(pwrite(fd, model.data, BLOCK, draw(8) * BLOCK) == BLOCK, "pwrite");
			need(!fsync(fd), "fsync");
			usleep(draw(2000));
		}
		close(fd);
		need(!umount(folder), "umount");
	}
	print_count(rounds);
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";

	if (!strcmp(verb, "fsx") && argc == 6) {
		begin(argv[4], argv[5]);
		fsx(argv[2], argv[3]);
	} else if (!strcmp(verb, "churn") && argc == 5) {
		begin(argv[3], argv[4]);
		churn(argv[2]);
	} else if (!strcmp(verb, "toggle") && argc > 5) {
		begin(argv[3], argv[4]);
		toggle(argv[2], argc - 5, argv + 5);
	} else if (!strcmp(verb, "mounts") && argc > 6) {
		begin(argv[4], argv[5]);
		mounts(argv[2], argv[3], argc - 6, argv + 6);
	} else {
		errx(2, "usage: stress fsx FILE MODEL MS SEED, churn FOLDER MS SEED,\n"
		     "toggle FOLDER MS SEED OPTIONS..., mounts DEVICE FOLDER MS SEED OPTIONS...");
	}
	return 0;
}
