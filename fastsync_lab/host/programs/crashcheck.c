// SPDX-License-Identifier: MIT
/*
 * crashcheck: let the running kernel recover crash states, tell what it finds.
 *
 *	crashcheck BASE LOG PLAN IMAGE DEVICE FOLDER DELTA [DM_NAME]
 *
 * BASE is the image that the states start from, LOG the data that PLAN refers to.
 * IMAGE (a new file on tmpfs of BASE's size) backs DEVICE (a loop device); FOLDER
 * is where to mount it. A line of PLAN is one of
 *
 *	p SECTOR COUNT OFFSET	write COUNT sectors from OFFSET (bytes) of LOG to
 *				SECTOR, in this state and all that follow
 *	w SECTOR COUNT OFFSET	the same, in this state alone
 *	c ID			the state is complete: mount it, read everything,
 *				unmount it, and print a line of JSON
 *	r NUMBER		the state is complete: mount and unmount it, flush
 *				DEVICE, and put a mark with NUMBER into the log
 *				of the dm-log-writes device DM_NAME, which is
 *				between DEVICE and IMAGE
 *
 * The JSON has the errno of mount(2) and of reading folders, the kernel's messages,
 * all files (with a CRC-32 of each 512 bytes, and which of these show the junk of
 * which sector: crash/junk.py), and the numbers of the 4 KiB pages that recovery
 * and mount have changed. Their contents are appended to DELTA.
 *
 * An external journal's device follows DEVICE, behind a comma. The environment's
 * MOUNT_OPTIONS are those to mount with.
 *
 * With "-" for BASE, LOG and IMAGE the only state is what is on DEVICE.
 *
 * Memory comes at once (MAP_POPULATE) and BASE and LOG are read: where a page
 * fault is slow, as in User-Mode Linux, they would take longer than the states.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "dmmark.h"
#include "need.h"

#define PAGE 4096
#define SECTOR 512
#define JUNK "~junk~"
#define JUNK_UNIT 16
#define NS_PER_S 1000000000LL

static size_t size, log_size;
static char *prefix;		/* what all following states have in common */
static char *want;		/* this state */
static char *image;		/* IMAGE, mapped */
static int log_fd;
static bool *differs;		/* pages of IMAGE that may differ from @want */
static bool *changed;		/* pages of @want that may differ from @prefix */
static const char *device, *folder;
static char *journal;		/* the device of an external one, or NULL */
static char mount_options[PATH_MAX];
static int kernel_log;
static FILE *delta;
static uint32_t crc_table[256];

static void make_crc_table(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t crc = i;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
		crc_table[i] = crc;
	}
}

static uint32_t crc32(const unsigned char *data, size_t length)
{
	uint32_t crc = ~0u;

	while (length--)
		crc = crc >> 8 ^ crc_table[(crc ^ *data++) & 0xff];
	return ~crc;
}

/* Large files of databases are zeros for the most part. */
static uint32_t sector_crc(const char *data, size_t length)
{
	static const char zeros[SECTOR];
	static uint32_t crc_of_zeros;

	if (length < SECTOR || memcmp(data, zeros, SECTOR))
		return crc32((const unsigned char *)data, length);
	if (!crc_of_zeros)
		crc_of_zeros = crc32((const unsigned char *)zeros, SECTOR);
	return crc_of_zeros;
}

/* Whether there is junk in a part of a file, and of which sector: a whole unit of it. */
static bool shows_junk(const char *data, size_t length, unsigned int *sector)
{
	const char *found = memmem(data, length, JUNK, strlen(JUNK));
	char unit[JUNK_UNIT + 1] = "";
	int end = 0;

	if (!found || data + length - found < JUNK_UNIT)
		return false;
	memcpy(unit, found, JUNK_UNIT);
	sscanf(unit, JUNK "%8x~\n%n", sector, &end);
	return end == JUNK_UNIT;
}

/* The file and its length; "-" is none, and has 0 bytes. */
static int open_file(const char *path, int flags, size_t *length)
{
	struct stat st;
	int fd;

	*length = 0;
	if (!strcmp(path, "-"))
		return -1;
	fd = open(path, flags | O_CLOEXEC);
	need(fd >= 0 && !fstat(fd, &st), path);
	*length = st.st_size;
	return fd;
}

/* Memory for an image: of a file that is shared, or, without one, of our own. */
static char *map(int fd, const char *what)
{
	int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	char *mapped;

	if (!size)
		return NULL;
	mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, flags | MAP_POPULATE, fd, 0);
	need(mapped != MAP_FAILED, what);
	return mapped;
}

static void read_at(int fd, char *to, size_t length, off_t offset)
{
	while (length) {
		ssize_t done = pread(fd, to, length, offset);

		if (!done)
			errx(1, "a file of the states is too short");
		need(done > 0, "pread");
		to += done;
		length -= done;
		offset += done;
	}
}

/*
 * States
 */

static void apply(const char *arguments, bool lasting)
{
	unsigned long long sector, count, offset;
	size_t start, length;

	if (sscanf(arguments, "%llu %llu %llu", &sector, &count, &offset) != 3 ||
	    (sector + count) * SECTOR > size || offset + count * SECTOR > log_size)
		errx(2, "bad write in the plan: %s", arguments);
	start = sector * SECTOR;
	length = count * SECTOR;
	read_at(log_fd, want + start, length, offset);
	if (lasting)
		memcpy(prefix + start, want + start, length);
	for (size_t page = start / PAGE; page * PAGE < start + length; page++) {
		differs[page] = true;
		changed[page] |= !lasting;
	}
}

static void materialize(void)
{
	for (size_t page = 0; page < size / PAGE; page++)
		if (differs[page])
			memcpy(image + page * PAGE, want + page * PAGE, PAGE);
	memset(differs, 0, size / PAGE);
}

static void next_state(void)
{
	for (size_t page = 0; page < size / PAGE; page++)
		if (changed[page]) {
			memcpy(want + page * PAGE, prefix + page * PAGE, PAGE);
			differs[page] = true;
		}
	memset(changed, 0, size / PAGE);
}

static void forget_pages_of(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	need(fd >= 0 && !ioctl(fd, BLKFLSBUF), path);
	close(fd);
}

static void flush(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	need(fd >= 0 && !fsync(fd), path);
	close(fd);
}

static void forget_cached_pages(void)
{
	forget_pages_of(device);
	if (journal)
		forget_pages_of(journal);
}

/*
 * Telling
 */

static void print_string(const char *text, size_t length)
{
	putchar('"');
	for (const char *end = text + length; text < end; text++) {
		unsigned char c = *text;

		if (c == '"' || c == '\\')
			putchar('\\');
		if (c < ' ' || c > '~')
			printf("\\u%04x", c);
		else
			putchar(c);
	}
	putchar('"');
}

/* The functions that follow return the errno of what could not be read, or 0. */

static int print_xattrs(const char *path)
{
	char names[4096], value[4096];
	ssize_t length = llistxattr(path, names, sizeof(names));
	const char *separator = "";
	int error = length < 0 ? errno : 0;

	printf(", \"xattrs\": {");
	for (const char *name = names; name < names + length; name += strlen(name) + 1) {
		ssize_t bytes = lgetxattr(path, name, value, sizeof(value));

		if (bytes < 0)
			error = errno;
		printf("%s", separator);
		print_string(name, strlen(name));
		printf(": \"");
		for (ssize_t i = 0; i < bytes; i++)
			printf("%02x", (unsigned char)value[i]);
		putchar('"');
		separator = ", ";
	}
	putchar('}');
	return error;
}

/*
 * Eight hexadecimal digits for each 512 bytes, the last ones maybe fewer; then pairs
 * of numbers, which of these show junk, and whose.
 */
static int print_contents(const char *path)
{
	static char buffer[1 << 16];
	int fd = open(path, O_RDONLY | O_CLOEXEC), error;
	const char *separator = "";
	char *junk = NULL;
	size_t junk_length, number = 0;
	FILE *list = open_memstream(&junk, &junk_length);
	ssize_t length = 0;

	need(list, "memory");
	printf(", \"sectors\": \"");
	while (fd >= 0 && (length = read(fd, buffer, sizeof(buffer))) > 0)
		for (ssize_t i = 0; i < length; i += SECTOR, number++) {
			size_t part = length - i < SECTOR ? length - i : SECTOR;
			unsigned int sector;

			printf("%08x", sector_crc(buffer + i, part));
			if (shows_junk(buffer + i, part, &sector)) {
				fprintf(list, "%s[%zu, %u]", separator, number, sector);
				separator = ", ";
			}
		}
	error = fd < 0 || length < 0 ? errno : 0;
	need(!fclose(list), "memory");
	printf("\", \"junk\": [%s]", junk);
	free(junk);
	if (fd >= 0)
		close(fd);
	return error;
}

static int print_target(const char *path)
{
	char target[PATH_MAX];
	ssize_t length = readlink(path, target, sizeof(target));

	printf(", \"target\": ");
	print_string(target, length < 0 ? 0 : length);
	return length < 0 ? errno : 0;
}

static bool print_file(const char *path)
{
	struct stat st = {};
	int error = lstat(path, &st) ? errno : 0, more = 0;

	printf("{\"path\": ");
	print_string(path + strlen(folder) + 1, strlen(path) - strlen(folder) - 1);
	printf(", \"ino\": %llu, \"mode\": %u, \"uid\": %u, \"gid\": %u, \"links\": %llu, "
	       "\"size\": %lld, \"mtime_ns\": %lld, \"ctime_ns\": %lld",
	       (unsigned long long)st.st_ino, st.st_mode, st.st_uid, st.st_gid,
	       (unsigned long long)st.st_nlink, (long long)st.st_size,
	       st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec,
	       st.st_ctim.tv_sec * NS_PER_S + st.st_ctim.tv_nsec);
	error = print_xattrs(path) ?: error;
	if (S_ISREG(st.st_mode))
		more = print_contents(path);
	else if (S_ISLNK(st.st_mode))
		more = print_target(path);
	printf(", \"errno\": %d}", more ?: error);
	return S_ISDIR(st.st_mode);
}

static int print_tree(const char *path, const char **separator)
{
	DIR *directory = opendir(path);
	struct dirent *entry;
	int error = directory ? 0 : errno;

	while (directory && (errno = 0, entry = readdir(directory))) {
		char child[PATH_MAX];

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		snprintf(child, sizeof(child), "%s/%s", path, entry->d_name);
		printf("%s", *separator);
		*separator = ", ";
		if (print_file(child))
			error = print_tree(child, separator) ?: error;
	}
	if (directory) {
		error = errno ?: error;
		closedir(directory);
	}
	return error;
}

static void print_kernel_log(void)
{
	const char *separator = "";
	char record[8192];
	ssize_t length;

	printf(", \"log\": [");
	while ((length = read(kernel_log, record, sizeof(record) - 1)) > 0 || errno == EPIPE) {
		char *message;

		if (length < 0)
			continue;	/* records were lost */
		record[length] = '\0';
		message = strchr(record, ';');
		if (!message++)
			continue;
		printf("%s", separator);
		print_string(message, strcspn(message, "\n"));
		separator = ", ";
	}
	putchar(']');
}

static void print_delta(void)
{
	const char *separator = "";

	printf(", \"delta\": [");
	for (size_t page = 0; page < size / PAGE; page++) {
		if (!memcmp(image + page * PAGE, want + page * PAGE, PAGE))
			continue;
		differs[page] = true;
		printf("%s%zu", separator, page);
		separator = ", ";
		need(fwrite(image + page * PAGE, PAGE, 1, delta) == 1, "delta");
	}
	printf("]");
}

static void check(const char *id)
{
	const char *separator = "";
	int mounted, unmounted = 0, error = 0;

	materialize();
	forget_cached_pages();
	printf("{\"id\": \"%s\", \"files\": [", id);
	mounted = mount(device, folder, "ext4", 0, mount_options) ? errno : 0;
	if (!mounted) {
		error = print_tree(folder, &separator);
		unmounted = umount(folder) ? errno : 0;
	}
	printf("], \"mount\": %d, \"folders\": %d", mounted, error);
	print_kernel_log();
	print_delta();
	printf("}\n");
	if (unmounted)
		errx(1, "umount: %s", strerror(unmounted));
	next_state();
}

/* The state's recovery alone, for the log of what the kernel writes then. */
static void record(const char *number)
{
	materialize();
	forget_cached_pages();
	need(!mount(device, folder, "ext4", 0, mount_options), "mount");
	need(!umount(folder), "umount");
	flush(device);
	if (journal)
		flush(journal);
	dm_mark(atol(number));
	/* What recovery has changed is not known: all of it is written anew. */
	memset(differs, true, size / PAGE);
	next_state();
}

static void prepare(char **argv)
{
	const char *options = getenv("MOUNT_OPTIONS") ?: "";
	int base = open_file(argv[1], O_RDONLY, &size), image_fd;
	size_t image_size;

	log_fd = open_file(argv[2], O_RDONLY, &log_size);
	image_fd = open_file(argv[4], O_RDWR, &image_size);
	if (image_size != size || size % PAGE)
		errx(2, "%s has another size than %s", argv[4], argv[1]);
	image = map(image_fd, argv[4]);
	device = argv[5];
	journal = strchr(argv[5], ',');
	if (journal) {
		*journal++ = '\0';
		snprintf(mount_options, sizeof(mount_options), "%s%sjournal_path=%s",
			 options, *options ? "," : "", journal);
	} else {
		snprintf(mount_options, sizeof(mount_options), "%s", options);
	}
	folder = argv[6];
	delta = fopen(argv[7], "w");
	need(delta, argv[7]);
	kernel_log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	need(kernel_log >= 0 && lseek(kernel_log, 0, SEEK_END) >= 0, "/dev/kmsg");
	prefix = map(-1, "memory");
	want = map(-1, "memory");
	differs = malloc(size / PAGE);
	changed = calloc(size / PAGE, 1);
	need(differs && changed, "malloc");
	if (size) {
		read_at(base, prefix, size, 0);
		memcpy(want, prefix, size);
	}
	memset(differs, true, size / PAGE);
	make_crc_table();
}

int main(int argc, char **argv)
{
	char line[256];
	FILE *plan;

	if (argc != 8 && argc != 9)
		errx(2, "usage: crashcheck BASE LOG PLAN IMAGE DEVICE FOLDER DELTA [DM_NAME]");
	prepare(argv);
	if (argc == 9)
		dm_mark_open(argv[8]);
	plan = fopen(argv[3], "r");
	need(plan, argv[3]);
	while (fgets(line, sizeof(line), plan)) {
		line[strcspn(line, "\n")] = '\0';
		switch (line[0]) {
		case 'p':
		case 'w':
			apply(line + 1, line[0] == 'p');
			break;
		case 'c':
			check(line + 2);
			break;
		case 'r':
			record(line + 2);
			break;
		default:
			errx(2, "bad line in the plan: %s", line);
		}
	}
	need(!fclose(delta), "delta");
	return 0;
}
