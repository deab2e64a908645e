// SPDX-License-Identifier: MIT
/*
 * Operations of crashops.c by AIO and by io_uring, without their libraries: each
 * sends one request, or a write linked to an fsync, and waits for all of it.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "crashops.h"

#define RING_ENTRIES 4

/* What a request returned: the bytes that were asked for, else errno says why not. */
static int outcome(long long result, long long wanted)
{
	if (result == wanted)
		return 0;
	errno = result < 0 ? -result : EIO;
	return -1;
}

/*
 * AIO
 */

static int aio(int fd, int code, void *buffer, size_t length, long long offset)
{
	struct iocb request = {
		.aio_fildes = fd, .aio_lio_opcode = code, .aio_buf = (uintptr_t)buffer,
		.aio_nbytes = length, .aio_offset = offset,
	}, *requests[] = { &request };
	struct io_event event = {};
	aio_context_t context = 0;
	int status = -1;

	if (syscall(SYS_io_setup, 1, &context))
		return -1;
	if (syscall(SYS_io_submit, context, 1, requests) == 1 &&
	    syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1)
		status = outcome(event.res, length);
	syscall(SYS_io_destroy, context);
	return status;
}

static int aio_write(struct op *op, int flags)
{
	long long offset = number(op, 2);
	size_t length = number(op, 3);
	char *buffer = contents(op, offset, length);
	int fd = open_file(op, O_RDWR | flags), status = -1, error;

	if (fd >= 0)
		status = aio(fd, IOCB_CMD_PWRITE, buffer, length, offset);
	error = errno;
	free(buffer);
	if (fd >= 0)
		close(fd);
	errno = error;
	return status;
}

static int use_afsync(struct op *op, int fd)
{
	(void)op;
	return aio(fd, IOCB_CMD_FSYNC, NULL, 0, 0);
}

static int use_afdatasync(struct op *op, int fd)
{
	(void)op;
	return aio(fd, IOCB_CMD_FDSYNC, NULL, 0, 0);
}

int do_awrite(struct op *op) { return aio_write(op, 0); }
int do_adwrite(struct op *op) { return aio_write(op, O_DIRECT); }
int do_afsync(struct op *op) { return with_file(op, O_RDONLY, use_afsync); }
int do_afdatasync(struct op *op) { return with_file(op, O_RDONLY, use_afdatasync); }

/*
 * io_uring
 */

struct ring {
	int fd;
	struct io_uring_params params;
	char *submissions, *completions;
	struct io_uring_sqe *requests;
	size_t submissions_size, completions_size, requests_size;
	unsigned int sent;
};

static void *map_ring(const struct ring *ring, size_t size, long long offset)
{
	void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd,
			 offset);

	if (map == MAP_FAILED)
		err(1, "mapping a ring");
	return map;
}

static void ring_open(struct ring *ring)
{
	struct io_uring_params *p = &ring->params;

	memset(ring, 0, sizeof(*ring));
	ring->fd = syscall(SYS_io_uring_setup, RING_ENTRIES, p);
	if (ring->fd < 0)
		err(1, "io_uring_setup");
	ring->submissions_size = p->sq_off.array + p->sq_entries * sizeof(unsigned int);
	ring->completions_size = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
	ring->requests_size = p->sq_entries * sizeof(struct io_uring_sqe);
	ring->submissions = map_ring(ring, ring->submissions_size, IORING_OFF_SQ_RING);
	ring->completions = map_ring(ring, ring->completions_size, IORING_OFF_CQ_RING);
	ring->requests = map_ring(ring, ring->requests_size, IORING_OFF_SQES);
}

static void ring_close(struct ring *ring)
{
	munmap(ring->requests, ring->requests_size);
	munmap(ring->completions, ring->completions_size);
	munmap(ring->submissions, ring->submissions_size);
	close(ring->fd);
}

/* The next request; its user_data is its number. */
static struct io_uring_sqe *ring_next(struct ring *ring, int code, int fd)
{
	unsigned int *array = (unsigned int *)(ring->submissions + ring->params.sq_off.array);
	struct io_uring_sqe *request = &ring->requests[ring->sent];

	memset(request, 0, sizeof(*request));
	request->opcode = code;
	request->fd = fd;
	request->user_data = ring->sent;
	array[ring->sent] = ring->sent;
	ring->sent++;
	return request;
}

/* Sends what there is and waits for all of it; @results by request. */
static int ring_wait(struct ring *ring, int *results)
{
	atomic_uint *tail = (atomic_uint *)(ring->submissions + ring->params.sq_off.tail);
	atomic_uint *head = (atomic_uint *)(ring->completions + ring->params.cq_off.head);
	atomic_uint *done = (atomic_uint *)(ring->completions + ring->params.cq_off.tail);
	struct io_uring_cqe *found =
		(struct io_uring_cqe *)(ring->completions + ring->params.cq_off.cqes);
	unsigned int first = atomic_load(head);

	atomic_store(tail, atomic_load(tail) + ring->sent);
	if (syscall(SYS_io_uring_enter, ring->fd, ring->sent, ring->sent, IORING_ENTER_GETEVENTS,
		    NULL, 0) != (long)ring->sent)
		return -1;
	if (atomic_load(done) - first != ring->sent) {
		errno = EIO;
		return -1;
	}
	for (unsigned int i = 0; i < ring->sent; i++)
		results[found[i].user_data] = found[i].res;
	atomic_store(head, first + ring->sent);
	return 0;
}

/* With @sync the write is linked to an fsync. */
static int ring_write(struct op *op, int flags, bool sync)
{
	long long offset = number(op, 2);
	size_t length = number(op, 3);
	char *buffer = contents(op, offset, length);
	int fd = open_file(op, O_RDWR | flags), results[RING_ENTRIES] = {}, status, error;
	struct io_uring_sqe *request;
	struct ring ring;

	ring_open(&ring);
	request = ring_next(&ring, IORING_OP_WRITE, fd);
	request->addr = (uintptr_t)buffer;
	request->len = length;
	request->off = offset;
	if (sync) {
		request->flags = IOSQE_IO_LINK;
		ring_next(&ring, IORING_OP_FSYNC, fd);
	}
	status = ring_wait(&ring, results) ?: outcome(results[0], length) ?:
		outcome(results[1], 0);
	error = errno;
	ring_close(&ring);
	free(buffer);
	if (fd >= 0)
		close(fd);
	errno = error;
	return status;
}

static int ring_fsync(int fd, unsigned int flags)
{
	int results[RING_ENTRIES] = {}, status, error;
	struct ring ring;

	ring_open(&ring);
	ring_next(&ring, IORING_OP_FSYNC, fd)->fsync_flags = flags;
	status = ring_wait(&ring, results) ?: outcome(results[0], 0);
	error = errno;
	ring_close(&ring);
	errno = error;
	return status;
}

static int use_rfsync(struct op *op, int fd)
{
	(void)op;
	return ring_fsync(fd, 0);
}

static int use_rfdatasync(struct op *op, int fd)
{
	(void)op;
	return ring_fsync(fd, IORING_FSYNC_DATASYNC);
}

int do_rwrite(struct op *op) { return ring_write(op, 0, false); }
int do_rdwrite(struct op *op) { return ring_write(op, O_DIRECT, false); }
int do_rswrite(struct op *op) { return ring_write(op, 0, true); }
int do_rsdwrite(struct op *op) { return ring_write(op, O_DIRECT, true); }
int do_rfsync(struct op *op) { return with_file(op, O_RDONLY, use_rfsync); }
int do_rfdatasync(struct op *op) { return with_file(op, O_RDONLY, use_rfdatasync); }
