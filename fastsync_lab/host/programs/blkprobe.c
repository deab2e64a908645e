// SPDX-License-Identifier: MIT
/*
 * blkprobe DEVICE COUNT PHASE...: COUNT times one request at a time, each
 * phase with requests of its own kind. A phase lies between the marks
 * "fastsync begin PHASE" and "fastsync end PHASE" in the kernel's trace; to
 * standard output go its name and the mean time of a call in ns.
 *
 *   read4k read128k             random reads
 *   write4k write128k           each where the last one ended
 *   random4k                    random writes
 *   fua4k                       sequential writes with O_DSYNC: FUA, then flush
 *   flush                       fsync() of the device
 *   discard                     64 KiB each
 *   burst4k                     COUNT random writes at once, by Linux AIO
 *
 * The first 64 MiB are used. 16 MiB of it are written beforehand, so that no
 * request has to allocate memory for the device.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"

#define TRACE_MARKER "/sys/kernel/tracing/trace_marker"
#define MIB (1 << 20)
#define WRITTEN (16 * MIB)
#define MAX_BURST 256

static int direct, dsync, marker;
static char *buffer;
static int count;

static void mark(const char *where, const char *phase)
{
	if (dprintf(marker, "fastsync %s %s\n", where, phase) < 0)
		err(1, TRACE_MARKER);
}

/* A multiple of 8 KiB in the written part, so that no two are adjacent. */
static off_t random_offset(void)
{
	static uint32_t state = 1;

	state = state * 1664525 + 1013904223;
	return (off_t)((state >> 8) % (WRITTEN / 8192 - 16)) * 8192;
}

static void check(ssize_t done, ssize_t wanted, const char *what)
{
	if (done != wanted)
		err(1, "%s: %zd", what, done);
}

static void burst(void)
{
	static struct iocb cbs[MAX_BURST], *list[MAX_BURST];
	static struct io_event events[MAX_BURST];
	aio_context_t context = 0;
	int i;

	check(syscall(SYS_io_setup, MAX_BURST, &context), 0, "io_setup");
	for (i = 0; i < count; i++) {
		cbs[i].aio_fildes = direct;
		cbs[i].aio_lio_opcode = IOCB_CMD_PWRITE;
		cbs[i].aio_buf = (uintptr_t)buffer;
		cbs[i].aio_nbytes = 4096;
		cbs[i].aio_offset = (off_t)i * 65536;
		list[i] = &cbs[i];
	}
	for (i = 0; i < count;) {
		long n = syscall(SYS_io_submit, context, count - i, list + i);

		if (n <= 0)
			err(1, "io_submit");
		i += n;
	}
	check(syscall(SYS_io_getevents, context, count, count, events, NULL), count, "io_getevents");
	for (i = 0; i < count; i++)
		check(events[i].res, 4096, "a write of the burst");
	syscall(SYS_io_destroy, context);
}

static void one(const char *phase, int i)
{
	uint64_t range[2] = { WRITTEN + (uint64_t)i * 65536, 65536 };

	if (!strcmp(phase, "read4k"))
		check(pread(direct, buffer, 4096, random_offset()), 4096, phase);
	else if (!strcmp(phase, "read128k"))
		check(pread(direct, buffer, 131072, random_offset()), 131072, phase);
	else if (!strcmp(phase, "write4k"))
		check(pwrite(direct, buffer, 4096, i * 4096), 4096, phase);
	else if (!strcmp(phase, "write128k"))
		check(pwrite(direct, buffer, 131072, i * 131072), 131072, phase);
	else if (!strcmp(phase, "random4k"))
		check(pwrite(direct, buffer, 4096, random_offset()), 4096, phase);
	else if (!strcmp(phase, "fua4k"))
		check(pwrite(dsync, buffer, 4096, i * 4096), 4096, phase);
	else if (!strcmp(phase, "flush"))
		check(fsync(direct), 0, phase);
	else if (!strcmp(phase, "discard"))
		check(ioctl(direct, BLKDISCARD, range), 0, phase);
	else
		errx(1, "no phase %s", phase);
}

int main(int argc, char **argv)
{
	int i, arg;

	if (argc < 3)
		errx(1, "usage: blkprobe DEVICE COUNT PHASE...");
	count = atoi(argv[2]);
	if (count < 1 || count > MAX_BURST)
		errx(1, "COUNT: 1 to %d", MAX_BURST);
	direct = open(argv[1], O_RDWR | O_DIRECT);
	dsync = open(argv[1], O_RDWR | O_DIRECT | O_DSYNC);
	marker = open(TRACE_MARKER, O_WRONLY);
	if (direct < 0 || dsync < 0 || marker < 0)
		err(1, "open");
	if (posix_memalign((void **)&buffer, 4096, MIB))
		err(1, "posix_memalign");
	memset(buffer, 0xa5, MIB);
	for (i = 0; i < WRITTEN; i += MIB)
		check(pwrite(direct, buffer, MIB, i), MIB, "write");

	for (arg = 3; arg < argc; arg++) {
		int alone = strcmp(argv[arg], "burst4k");
		int64_t begin;

		/* The first request of a kind only brings the device into place. */
		if (alone)
			one(argv[arg], 0);
		mark("begin", argv[arg]);
		begin = now_ns();
		if (alone)
			for (i = 1; i <= count; i++)
				one(argv[arg], i);
		else
			burst();
		printf("%s %lld\n", argv[arg], (long long)((now_ns() - begin) / count));
		mark("end", argv[arg]);
	}
	return 0;
}
