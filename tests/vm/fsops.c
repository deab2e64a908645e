// SPDX-License-Identifier: MIT
/*
 * fsops FILE OP...: do one thing after another to a file, without a pause in
 * between, and say what can be seen. The VM tests are written in these words,
 * each of which is a few lines here:
 *
 *   open create opendirect      open for read and write; create is exclusive
 *   file:NAME                   what follows is about the file NAME; open it next
 *   write dwrite mwrite swrite awrite uwrite write32
 *                               overwrite the first 4 KiB: write(2), O_DIRECT,
 *                               mmap, splice, Linux AIO, io_uring, and as a
 *                               32-bit program calls write(2)
 *   overwrite:BYTES[,OFFSET]    write(2), 4 KiB at a time
 *   aread:DEVICE                read 4 KiB of DEVICE into a mapping of FILE: Linux AIO, O_DIRECT
 *   append owrite               4 KiB at the end; write(2) with RWF_SYNC
 *   halfwrite:BYTES,OFFSET      write(2) of 4 KiB of which memory has only BYTES
 *   nowait:COUNT                COUNT times O_DIRECT with RWF_NOWAIT; prints
 *                               "nowait" and JSON: how many did, how many would
 *                               have blocked
 *   fsync fdatasync msync sync syncfs ufsync fsync32
 *                               ufsync by io_uring, fsync32 as a 32-bit program
 *   writeback backlog:MIB       send FILE to the device as write-back does, and
 *                               return; the same with MIB MiB, newly written, of
 *                               FILE.backlog
 *   writebackmeta               the same with the metadata on $FASTSYNC_DEV
 *   writebackfirst              send the first block of FILE, and wait for it
 *   waitfirst                   wait for the first block of FILE, if it is under
 *                               write-back
 *   pages:COUNT                 overwrite the first COUNT pages and send each
 *   direct:MS                   a child writes 64 KiB to FILE.direct, O_DIRECT,
 *                               again and again, for MS ms; it is waited for at
 *                               the end
 *   later:MS,OP                 a child does OP, MS ms later; waited for as well
 *   sleep:MS align:MS           wait; wait for the start of the next interval
 *   utimens:SEC,NSEC            set mtime, leave atime
 *   utimensnow                  set both to the time of day
 *   chmod:OCTAL chown:UID setxattr:NAME=VALUE truncate:SIZE rename:NEW link:NEW
 *   falloc:MODE,OFFSET,LENGTH   flags:HEX (FS_IOC_SETFLAGS)   read
 *   verity                      open FILE for read alone, and enable fs-verity
 *   freeze thaw shutdown:FLAG checkpoint
 *                               the file system (FIFREEZE, FITHAW, EXT4_IOC_SHUTDOWN,
 *                               EXT4_IOC_CHECKPOINT)
 *   quotaon quotaoff quota:UID,BLOCKS
 *                               of users; a limit in KiB
 *   setuid:UID                  become another user
 *   settime:SEC shifttime:MS    set the clock; move it forward or, if negative, back
 *   ?OP                         do OP, which may fail; prints "try" and JSON: the
 *                               errno or 0
 *   mount:OPTIONS remount:OPTIONS remountro umount
 *                               mount(2) of $FASTSYNC_DEV as ext4 on FILE or,
 *                               if that is no folder, on the one it is in;
 *                               prints "mount" and JSON: the errno or 0
 *   stat                        prints "stat" and JSON: ns since the epoch
 *   io                          prints "io" and JSON: writes, sectors and
 *                               flushes that $FASTSYNC_DEV has done so far
 *   map                         open FILE to read, and map it
 *   mcount:CHAR                 prints how many bytes are CHAR of what has been
 *                               mapped last; "map" comes first if nothing has
 *   poison:PAGE                 the memory of that page of what has been mapped
 *                               last is bad from now on: a SIGBUS; likewise
 *   forget                      drop the pages of FILE that are clean
 *   crash:NEW                   copies what is on the medium of $FASTSYNC_DEV
 *                               at this instant to the file NEW
 *   multigrain                  prints "multigrain" and JSON: fine-grained stamps
 *                               that the kernel has given out so far, and how
 *                               often they moved the floor of all others
 *   clock                       prints "clock" and JSON: the kernel's stamp
 *                               clock and the time of day in ns
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/aio_abi.h>
#include <linux/fs.h>
#include <linux/fsverity.h>
#include <linux/io_uring.h>
#include <linux/quota.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "times.h"

#define BLOCK 4096

static const char *path;
static int fd = -1;
static char *block;
static char *mapped;		/* to be read */
static long mapped_bytes;
static jmp_buf attempt;		/* of an op that may fail */
static int trying;

static void need(int ok, const char *what)
{
	if (ok)
		return;
	if (trying)
		longjmp(attempt, errno);
	err(1, "%s", what);
}

static void sleep_ns(long long duration)
{
	struct timespec t = { duration / NS_PER_S, duration % NS_PER_S };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

static void reopen(int flags)
{
	if (fd >= 0)
		close(fd);
	fd = open(path, O_RDWR | flags, 0644);
	need(fd >= 0, "open");
}

static void op_open(char *arg) { reopen(0); }
static void op_create(char *arg) { reopen(O_CREAT | O_EXCL); }
static void op_opendirect(char *arg) { reopen(O_DIRECT); }

static void op_write(char *arg)
{
	need(pwrite(fd, block, BLOCK, 0) == BLOCK, "pwrite");
}

static void op_overwrite(char *arg)
{
	long long left, offset = 0;

	need(sscanf(arg, "%lld,%lld", &left, &offset) >= 1, "overwrite");
	for (; left > 0; left -= BLOCK, offset += BLOCK) {
		ssize_t size = left < BLOCK ? left : BLOCK;

		need(pwrite(fd, block, size, offset) == size, "pwrite");
	}
}

static void op_halfwrite(char *arg)
{
	char *map = mmap(NULL, 2 * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long long bytes, offset;

	need(sscanf(arg, "%lld,%lld", &bytes, &offset) == 2, "halfwrite");
	need(map != MAP_FAILED && !munmap(map + BLOCK, BLOCK), "mmap");
	memset(map, 'h', BLOCK);
	need(pwrite(fd, map + BLOCK - bytes, BLOCK, offset) == bytes, "pwrite of half a block");
	munmap(map, BLOCK);
}

static void op_dwrite(char *arg)
{
	int direct = open(path, O_RDWR | O_DIRECT);

	need(direct >= 0, "open O_DIRECT");
	need(pwrite(direct, block, BLOCK, 0) == BLOCK, "pwrite O_DIRECT");
	close(direct);
}

static void op_mwrite(char *arg)
{
	char *map = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	need(map != MAP_FAILED, "mmap");
	memcpy(map, block, BLOCK);
	munmap(map, BLOCK);
}

static void op_msync(char *arg)
{
	char *map = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	need(map != MAP_FAILED, "mmap");
	need(!msync(map, BLOCK, MS_SYNC), "msync");
	munmap(map, BLOCK);
}

static void op_swrite(char *arg)
{
	off64_t offset = 0;
	int ends[2];

	need(!pipe(ends), "pipe");
	need(write(ends[1], block, BLOCK) == BLOCK, "write to pipe");
	need(splice(ends[0], NULL, fd, &offset, BLOCK, 0) == BLOCK, "splice");
	close(ends[0]);
	close(ends[1]);
}

/* 4 KiB by Linux AIO, O_DIRECT, to their end. */
static void aio(int opcode, const char *name, void *memory, const char *what)
{
	struct iocb cb = {
		.aio_lio_opcode = opcode,
		.aio_buf = (uintptr_t)memory,
		.aio_nbytes = BLOCK,
	};
	struct iocb *list = &cb;
	aio_context_t context = 0;
	struct io_event event;

	cb.aio_fildes = open(name, O_RDWR | O_DIRECT);
	need((int)cb.aio_fildes >= 0, "open O_DIRECT");
	need(!syscall(SYS_io_setup, 1, &context), "io_setup");
	need(syscall(SYS_io_submit, context, 1, &list) == 1, "io_submit");
	need(syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1, "io_getevents");
	errno = -event.res;
	need(event.res == BLOCK, what);
	syscall(SYS_io_destroy, context);
	close(cb.aio_fildes);
}

static void op_awrite(char *arg)
{
	aio(IOCB_CMD_PWRITE, path, block, "AIO write");
}

static void op_aread(char *arg)
{
	char *map = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	need(map != MAP_FAILED, "mmap");
	aio(IOCB_CMD_PREAD, arg, map, "AIO read");
	munmap(map, BLOCK);
}

/* One operation by io_uring, to its end. */
static void uring(struct io_uring_sqe sqe, int result, const char *what)
{
	struct io_uring_params p = {};
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqe;
	char *sq, *cq;
	int ring = syscall(SYS_io_uring_setup, 1, &p);

	need(ring >= 0, "io_uring_setup");
	sq = mmap(NULL, p.sq_off.array + p.sq_entries * sizeof(__u32), PROT_READ | PROT_WRITE,
		  MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
	cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(*cqe), PROT_READ | PROT_WRITE,
		  MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_CQ_RING);
	sqes = mmap(NULL, p.sq_entries * sizeof(*sqes), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
	need(sq != MAP_FAILED && cq != MAP_FAILED && sqes != MAP_FAILED, "mmap of the ring");
	sqes[0] = sqe;
	((__u32 *)(sq + p.sq_off.array))[0] = 0;
	__atomic_store_n((__u32 *)(sq + p.sq_off.tail), 1, __ATOMIC_RELEASE);
	need(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1,
	     "io_uring_enter");
	cqe = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
	errno = -cqe->res;
	need(cqe->res == result, what);
	close(ring);
}

static void op_uwrite(char *arg)
{
	uring((struct io_uring_sqe) {
		.opcode = IORING_OP_WRITE, .fd = fd, .addr = (uintptr_t)block, .len = BLOCK,
	}, BLOCK, "io_uring write");
}

static void op_ufsync(char *arg)
{
	uring((struct io_uring_sqe) { .opcode = IORING_OP_FSYNC, .fd = fd }, 0, "io_uring fsync");
}

/* Enter the kernel as programs for the 386 do; addresses have to fit. */
static void call32(int nr, long second, long third, long result, const char *what)
{
	long got;

	__asm__ volatile("int $0x80" : "=a"(got) : "a"(nr), "b"(fd), "c"(second), "d"(third)
			 : "memory", "r8", "r9", "r10", "r11");
	errno = -got;
	need(got == result, what);
}

static void op_write32(char *arg)
{
	void *low = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT | MAP_POPULATE, -1, 0);

	need(low != MAP_FAILED && !lseek(fd, 0, SEEK_SET), "write32");
	call32(4, (long)low, BLOCK, BLOCK, "write as a 32-bit program");
}

static void op_fsync32(char *arg) { call32(118, 0, 0, 0, "fsync as a 32-bit program"); }

static void op_append(char *arg)
{
	struct stat st;

	need(!fstat(fd, &st), "fstat");
	need(pwrite(fd, block, BLOCK, st.st_size) == BLOCK, "append");
}

static void op_owrite(char *arg)
{
	struct iovec vec = { block, BLOCK };

	need(pwritev2(fd, &vec, 1, 0, RWF_SYNC) == BLOCK, "pwritev2 RWF_SYNC");
}

static void op_nowait(char *arg)
{
	int direct = open(path, O_RDWR | O_DIRECT);
	struct iovec vec = { block, BLOCK };
	long written = 0, again = 0;

	need(direct >= 0, "open O_DIRECT");
	for (long left = atol(arg); left; left--) {
		ssize_t n = pwritev2(direct, &vec, 1, 0, RWF_NOWAIT);

		need(n == BLOCK || (n < 0 && errno == EAGAIN), "pwritev2 RWF_NOWAIT");
		*(n == BLOCK ? &written : &again) += 1;
	}
	close(direct);
	printf("nowait {\"written\": %ld, \"again\": %ld}\n", written, again);
}

static void op_read(char *arg)
{
	char sink[BLOCK];

	need(pread(fd, sink, 1, 0) == 1, "pread");
}

static void op_fsync(char *arg) { need(!fsync(fd), "fsync"); }
static void op_fdatasync(char *arg) { need(!fdatasync(fd), "fdatasync"); }
static void op_sync(char *arg) { sync(); }
static void op_syncfs(char *arg) { need(!syncfs(fd), "syncfs"); }
static void send(int file)
{
	need(!sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE), "sync_file_range");
}

static void op_writeback(char *arg) { send(fd); }

static void op_writebackfirst(char *arg)
{
	need(!sync_file_range(fd, 0, BLOCK,
			      SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER), "sync_file_range");
}

static void op_waitfirst(char *arg)
{
	need(!sync_file_range(fd, 0, BLOCK, SYNC_FILE_RANGE_WAIT_BEFORE), "sync_file_range");
}

static void op_writebackmeta(char *arg)
{
	int device = open(getenv("FASTSYNC_DEV"), O_RDONLY);

	need(device >= 0, "open the device");
	send(device);
	close(device);
}

static void op_backlog(char *arg)
{
	char name[PATH_MAX];
	int backlog;

	snprintf(name, sizeof(name), "%s.backlog", path);
	backlog = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
	need(backlog >= 0, name);
	for (long left = atol(arg) << 20; left; left -= BLOCK)
		need(write(backlog, block, BLOCK) == BLOCK, name);
	send(backlog);
	close(backlog);
}

static void op_pages(char *arg)
{
	for (int i = 0; i < atoi(arg); i++) {
		need(pwrite(fd, block, BLOCK, i * BLOCK) == BLOCK, "pwrite");
		need(!sync_file_range(fd, i * BLOCK, BLOCK, SYNC_FILE_RANGE_WRITE),
		     "sync_file_range");
	}
}

static void op_direct(char *arg)
{
	const size_t size = 16 * BLOCK;
	long long until = now_ns() + atoll(arg) * NS_PER_MS;
	char *buffer, name[PATH_MAX];
	int file;

	if (fork())
		return;
	snprintf(name, sizeof(name), "%s.direct", path);
	file = open(name, O_WRONLY | O_CREAT | O_DIRECT, 0644);
	buffer = aligned_alloc(BLOCK, size);
	need(file >= 0 && buffer, name);
	memset(buffer, 'd', size);
	while (now_ns() < until)
		need(pwrite(file, buffer, size, 0) == (ssize_t)size, name);
	_exit(0);
}

static void perform(char *word);

static void op_later(char *arg)
{
	char *word = strchr(arg, ',') + 1;

	if (fork())
		return;
	sleep_ns(atoll(arg) * NS_PER_MS);
	perform(word);
	_exit(0);
}

static void op_sleep(char *arg) { sleep_ns(atoll(arg) * NS_PER_MS); }

static void op_align(char *arg)
{
	long long interval = atoll(arg) * NS_PER_MS;
	long long start = clock_ns(CLOCK_REALTIME) / interval * interval + interval;

	/* The stamp clock lags behind by up to a tick. */
	while (clock_ns(CLOCK_REALTIME_COARSE) < start)
		sleep_ns(NS_PER_MS / 2);
}

static void op_utimens(char *arg)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT } };
	char *end;

	times[1].tv_sec = strtoll(arg, &end, 10);
	times[1].tv_nsec = atol(end + 1);
	need(!futimens(fd, times), "futimens");
}

static void op_utimensnow(char *arg) { need(!futimens(fd, NULL), "futimens"); }
static void op_chmod(char *arg) { need(!fchmod(fd, strtol(arg, NULL, 8)), "fchmod"); }
static void op_chown(char *arg) { need(!fchown(fd, atoi(arg), -1), "fchown"); }
static void op_truncate(char *arg) { need(!ftruncate(fd, atoll(arg)), "ftruncate"); }
static void op_rename(char *arg) { need(!rename(path, arg), "rename"); path = arg; }
static void op_file(char *arg) { path = arg; }
static void op_link(char *arg) { need(!link(path, arg), "link"); }

static void op_setxattr(char *arg)
{
	char *value = strchr(arg, '=');

	*value++ = '\0';
	need(!fsetxattr(fd, arg, value, strlen(value), 0), "fsetxattr");
}

static void op_falloc(char *arg)
{
	long long offset, length;
	int mode;

	need(sscanf(arg, "%d,%lld,%lld", &mode, &offset, &length) == 3, "falloc");
	need(!fallocate(fd, mode, offset, length), "fallocate");
}

static void op_flags(char *arg)
{
	int old, flags = strtol(arg, NULL, 16);

	need(!ioctl(fd, FS_IOC_GETFLAGS, &old), "FS_IOC_GETFLAGS");
	flags |= old;
	need(!ioctl(fd, FS_IOC_SETFLAGS, &flags), "FS_IOC_SETFLAGS");
}

/* The kernel wants nobody to have it open for writing. */
static void op_verity(char *arg)
{
	struct fsverity_enable_arg enable = {
		.version = 1,
		.hash_algorithm = FS_VERITY_HASH_ALG_SHA256,
		.block_size = BLOCK,
	};

	if (fd >= 0)
		close(fd);
	fd = open(path, O_RDONLY);
	need(fd >= 0, "open for read");
	need(!ioctl(fd, FS_IOC_ENABLE_VERITY, &enable), "FS_IOC_ENABLE_VERITY");
}

static void op_stat(char *arg)
{
	struct stat st;

	need(!stat(path, &st), "stat");
	printf("stat {\"ino\": %llu, \"mode\": %u, \"uid\": %u, \"size\": %lld, \"atime_ns\": %lld, "
	       "\"mtime_ns\": %lld, \"ctime_ns\": %lld}\n", (unsigned long long)st.st_ino,
	       st.st_mode & 07777, st.st_uid, (long long)st.st_size, ns(st.st_atim),
	       ns(st.st_mtim), ns(st.st_ctim));
}

static void op_io(char *arg)
{
	unsigned long long f[17] = {};
	char name[64], line[512];
	FILE *file;
	char *word;

	snprintf(name, sizeof(name), "/sys/block/%s/stat", getenv("FASTSYNC_DEV") + strlen("/dev/"));
	file = fopen(name, "r");
	need(file && fgets(line, sizeof(line), file), name);
	fclose(file);
	word = strtok(line, " \n");
	for (int i = 0; word && i < 17; i++, word = strtok(NULL, " \n"))
		f[i] = strtoull(word, NULL, 10);
	printf("io {\"writes\": %llu, \"sectors\": %llu, \"flushes\": %llu}\n", f[4], f[6], f[15]);
}

static void op_map(char *arg)
{
	int reader = open(path, O_RDONLY);
	struct stat st;

	need(reader >= 0 && !fstat(reader, &st), path);
	mapped_bytes = st.st_size;
	mapped = mmap(NULL, mapped_bytes, PROT_READ, MAP_SHARED, reader, 0);
	need(mapped != MAP_FAILED, "mmap");
	close(reader);
}

static void op_mcount(char *arg)
{
	long count = 0;

	if (!mapped)
		op_map(NULL);
	for (long i = 0; i < mapped_bytes; i++)
		count += mapped[i] == *arg;
	printf("%ld\n", count);
}

static void op_poison(char *arg)
{
	if (!mapped)
		op_map(NULL);
	need(!madvise(mapped + BLOCK * atol(arg), BLOCK, MADV_HWPOISON), "madvise");
}

static void op_forget(char *arg)
{
	need(!posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), "posix_fadvise");
}

/* FILE itself or the folder that it is in. */
static const char *mount_point(void)
{
	static char folder[PATH_MAX];
	struct stat st;

	snprintf(folder, sizeof(folder), "%s", path);
	if (stat(path, &st) || !S_ISDIR(st.st_mode))
		*strrchr(folder, '/') = '\0';
	return folder;
}

static void mount_device(unsigned long flags, const char *options)
{
	int status = mount(getenv("FASTSYNC_DEV"), mount_point(), "ext4", flags, options);

	printf("mount {\"errno\": %d}\n", status ? errno : 0);
}

static void op_mount(char *arg) { mount_device(0, arg); }
static void op_remount(char *arg) { mount_device(MS_REMOUNT, arg); }

static void op_remountro(char *arg) { mount_device(MS_REMOUNT | MS_RDONLY, NULL); }

static void control(unsigned long request, void *argument, const char *what)
{
	int folder = open(mount_point(), O_RDONLY | O_DIRECTORY);

	need(folder >= 0, "open the mount point");
	need(!ioctl(folder, request, argument), what);
	close(folder);
}

static void op_freeze(char *arg) { control(FIFREEZE, NULL, "FIFREEZE"); }
static void op_thaw(char *arg) { control(FITHAW, NULL, "FITHAW"); }

static void op_shutdown(char *arg)
{
	__u32 flag = atoi(arg);

	control(_IOR('X', 125, __u32), &flag, "EXT4_IOC_SHUTDOWN");
}

static void op_checkpoint(char *arg)
{
	__u32 flags = 0;

	control(_IOW('f', 43, __u32), &flags, "EXT4_IOC_CHECKPOINT");
}

static void quota(int command, int id, void *argument, const char *what)
{
	const char *device = getenv("FASTSYNC_DEV");

	need(!syscall(SYS_quotactl, QCMD(command, USRQUOTA), device, id, argument), what);
}

static void op_quotaon(char *arg) { quota(Q_QUOTAON, 0, NULL, "Q_QUOTAON"); }
static void op_quotaoff(char *arg) { quota(Q_QUOTAOFF, 0, NULL, "Q_QUOTAOFF"); }

static void op_quota(char *arg)
{
	struct if_dqblk limit = { .dqb_valid = QIF_BLIMITS };
	int uid;

	need(sscanf(arg, "%d,%llu", &uid, &limit.dqb_bhardlimit) == 2, "quota");
	quota(Q_SETQUOTA, uid, &limit, "Q_SETQUOTA");
}

static void op_setuid(char *arg) { need(!setuid(atoi(arg)), "setuid"); }

static void set_clock(long long time_ns)
{
	struct timespec t = { time_ns / NS_PER_S, time_ns % NS_PER_S };

	need(!clock_settime(CLOCK_REALTIME, &t), "clock_settime");
}

/* The stamp clock goes in ticks from where it is set. None shall fall on a whole second. */
static void op_settime(char *arg)
{
	set_clock(atoll(arg) * NS_PER_S + clock_ns(CLOCK_REALTIME_COARSE) % NS_PER_S);
}

static void op_shifttime(char *arg)
{
	set_clock(clock_ns(CLOCK_REALTIME) + atoll(arg) * NS_PER_MS);
}

static void op_umount(char *arg)
{
	if (fd >= 0)
		close(fd);
	fd = -1;
	need(!umount(mount_point()), "umount");
}

static void op_crash(char *arg)
{
	const ssize_t chunk = 1 << 20, piece = 64 << 10;
	char *buffer = aligned_alloc(BLOCK, chunk);
	int from = open(getenv("FASTSYNC_DEV"), O_RDONLY | O_DIRECT);
	int to = open(arg, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	off_t size = 0;
	ssize_t n, i;

	need(buffer && from >= 0 && to >= 0, "open for crash");
	while ((n = read(from, buffer, chunk)) > 0) {
		/* A hole in place of zeros: pages in memory take more time than all else. */
		for (i = 0; i < n; i += piece) {
			const ssize_t length = n - i < piece ? n - i : piece;

			if (buffer[i] || memcmp(buffer + i, buffer + i + 1, length - 1))
				need(pwrite(to, buffer + i, length, size + i) == length, "write crash image");
		}
		size += n;
	}
	need(n == 0 && ftruncate(to, size) == 0, "read the device");
	free(buffer);
	close(from);
	close(to);
}

static void op_multigrain(char *arg)
{
	FILE *file = fopen("/sys/kernel/debug/multigrain_timestamps", "r");
	unsigned long long updates, swaps, fine, floor;

	need(file && fscanf(file, "%llu %llu %llu %llu", &updates, &swaps, &fine, &floor) == 4,
	     "multigrain_timestamps");
	fclose(file);
	printf("multigrain {\"fine\": %llu, \"floor\": %llu}\n", fine, floor);
}

static void op_clock(char *arg)
{
	printf("clock {\"stamp_ns\": %lld, \"time_ns\": %lld}\n",
	       clock_ns(CLOCK_REALTIME_COARSE), clock_ns(CLOCK_REALTIME));
}

#define OP(name) { #name, op_##name }
static const struct {
	const char *name;
	void (*function)(char *arg);
} ops[] = {
	OP(open), OP(create), OP(opendirect), OP(write), OP(overwrite), OP(halfwrite), OP(dwrite), OP(mwrite), OP(aread), OP(swrite),
	OP(awrite), OP(uwrite), OP(write32), OP(append), OP(owrite), OP(nowait), OP(read), OP(fsync), OP(fdatasync), OP(msync),
	OP(ufsync), OP(fsync32), OP(file), OP(writeback), OP(writebackfirst), OP(waitfirst), OP(writebackmeta), OP(backlog), OP(pages), OP(direct),
	OP(later),
	OP(sync), OP(syncfs), OP(sleep), OP(align), OP(utimens), OP(utimensnow), OP(chmod), OP(chown),
	OP(truncate), OP(rename), OP(link), OP(setxattr), OP(falloc), OP(flags), OP(verity), OP(stat), OP(io),
	OP(map), OP(mcount), OP(poison), OP(forget),
	OP(mount), OP(remount), OP(remountro), OP(umount), OP(freeze), OP(thaw), OP(shutdown), OP(checkpoint),
	OP(quotaon), OP(quotaoff), OP(quota), OP(setuid), OP(settime), OP(shifttime), OP(crash), OP(multigrain), OP(clock),
};

static void perform(char *word);

static void perform_if_possible(char *word)
{
	int error;

	trying = 1;
	error = setjmp(attempt);
	if (!error)
		perform(word);
	trying = 0;
	printf("try {\"errno\": %d}\n", error);
}

static void perform(char *word)
{
	char *arg;

	if (*word == '?') {
		perform_if_possible(word + 1);
		return;
	}
	arg = strchr(word, ':');

	if (arg)
		*arg++ = '\0';
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		if (!strcmp(ops[i].name, word)) {
			ops[i].function(arg);
			return;
		}
	errx(2, "no such op: %s", word);
}

int main(int argc, char **argv)
{
	int status;

	if (argc < 3)
		errx(2, "usage: fsops FILE OP...");
	path = argv[1];
	block = aligned_alloc(BLOCK, BLOCK);
	for (int i = 2; i < argc; i++) {
		/* Each overwrite has contents of its own. */
		memset(block, 'a' + i % 26, BLOCK);
		perform(argv[i]);
	}
	while (wait(&status) > 0)
		if (status)
			errx(1, "a child failed");
	return 0;
}
