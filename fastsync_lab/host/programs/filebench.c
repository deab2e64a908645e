// SPDX-License-Identifier: MIT
/*
 * filebench: what programs do with files and then sync.
 *
 *	filebench SYNC_CALL WORKLOAD OPERATIONS MARKER
 *
 * In the current folder, OPERATIONS times, SYNC_CALL being fsync or fdatasync:
 *
 *   append	write 4 KiB at the end of a file, sync: a log
 *   create	creat, write 4 KiB, sync, close: a spool
 *   rename	creat under another name, write 4 KiB, sync, close, rename over the
 *		old file, sync the folder: a document is saved
 *   scattered	overwrite 4 KiB in five places of a file of 16 MiB, sync: a database
 *   threads	8 threads, a file of 1 MiB each: overwrite 4 KiB anywhere, sync
 *   appenders	8 threads, a file each: write 4 KiB at its end, sync
 *   varmail	unlink a mail; creat another, write 16 KiB, sync; read one, append
 *		16 KiB, sync; read one: filebench's varmail, by one process
 *
 * What is to be there before lies on the medium when the time begins.  The
 * result is one JSON object; MARKER is the kernel's trace_marker.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>

#include "bench.h"

#define KIB 1024
#define PAGE (4 * KIB)
#define MAIL (16 * KIB)
#define MAILS 100
#define THREADS 8
#define THREAD_PAGES 256
#define THREAD_BITS 8
#define DATABASE_PAGES 4096
#define DATABASE_BITS 12

static int (*sync_call)(int fd);
static char buffer[MAIL];
static long operations;
static int64_t *ns;

static void append(int fd, size_t size)
{
	need(write(fd, buffer, size) == (ssize_t)size, "write");
}

static void sync_and_close(int fd)
{
	need(!sync_call(fd), "sync");
	close(fd);
}

static void one_append(long round)
{
	static int fd = -1;

	(void)round;
	if (fd < 0)
		fd = opened("log", O_CREAT | O_WRONLY | O_APPEND);
	append(fd, PAGE);
	need(!sync_call(fd), "sync");
}

static void make_database(void)
{
	int fd = opened("database", O_CREAT | O_EXCL | O_WRONLY);

	for (int page = 0; page < DATABASE_PAGES; page++)
		append(fd, PAGE);
	need(!fsync(fd), "fsync");
	close(fd);
}

static off_t random_page(uint32_t *seed, int bits)
{
	*seed = *seed * 1664525 + 1013904223;
	return (off_t)(*seed >> (32 - bits)) * PAGE;
}

static void one_scattered(long round)
{
	static uint32_t seed;
	static int fd = -1;

	(void)round;
	if (fd < 0)
		fd = opened("database", O_WRONLY);
	for (int place = 0; place < 5; place++)
		need(pwrite(fd, buffer, PAGE, random_page(&seed, DATABASE_BITS)) == PAGE, "pwrite");
	need(!sync_call(fd), "sync");
}

static void save_as(const char *name, size_t size)
{
	int fd = opened(name, O_CREAT | O_EXCL | O_WRONLY);

	append(fd, size);
	sync_and_close(fd);
}

static void one_create(long round)
{
	char name[32];

	snprintf(name, sizeof(name), "new%ld", round);
	save_as(name, PAGE);
}

static void one_rename(long round)
{
	(void)round;
	save_as("document.new", PAGE);
	need(!rename("document.new", "document"), "rename");
	sync_and_close(opened(".", O_RDONLY | O_DIRECTORY));
}

static void mail_name(char *name, size_t size, long number)
{
	snprintf(name, size, "mail%ld", number);
}

static void read_mail(long number)
{
	char name[32];
	int fd;

	mail_name(name, sizeof(name), number);
	fd = opened(name, O_RDONLY);
	while (read(fd, buffer, MAIL) > 0)
		;
	close(fd);
}

static void make_mails(void)
{
	char name[32];

	for (long i = 0; i < MAILS; i++) {
		mail_name(name, sizeof(name), i);
		save_as(name, MAIL);
	}
}

/* The oldest mail goes, so round + 1 to round + MAILS are there. */
static void one_varmail(long round)
{
	char name[32];
	int fd;

	mail_name(name, sizeof(name), round);
	need(!unlink(name), name);
	mail_name(name, sizeof(name), round + MAILS);
	save_as(name, MAIL);
	read_mail(round + MAILS / 2);
	mail_name(name, sizeof(name), round + MAILS / 2);
	fd = opened(name, O_WRONLY | O_APPEND);
	append(fd, MAIL);
	sync_and_close(fd);
	read_mail(round + MAILS / 3);
}

/* --- threads --- */

static pthread_barrier_t start;

static void thread_file(char *name, size_t size, long number)
{
	snprintf(name, size, "thread%ld", number);
}

static void make_thread_files(void)
{
	char name[32];

	for (long i = 0; i < THREADS; i++) {
		int fd;

		thread_file(name, sizeof(name), i);
		fd = opened(name, O_CREAT | O_EXCL | O_WRONLY);
		for (int page = 0; page < THREAD_PAGES; page++)
			append(fd, PAGE);
		sync_and_close(fd);
	}
}

static bool appends;

static void *work(void *argument)
{
	long number = (long)argument;
	uint32_t seed = number;
	char name[32];
	int fd;

	thread_file(name, sizeof(name), number);
	fd = opened(name, O_CREAT | O_WRONLY | (appends ? O_APPEND : 0));
	pthread_barrier_wait(&start);
	for (long i = number; i < operations; i += THREADS) {
		int64_t before = now_ns();
		off_t place = appends ? 0 : random_page(&seed, THREAD_BITS);

		need(pwrite(fd, buffer, PAGE, place) == PAGE, name);
		need(!sync_call(fd), "sync");
		ns[i] = now_ns() - before;
	}
	close(fd);
	return NULL;
}

static void let_threads_append(void)
{
	appends = true;
}

static void run_threads(void)
{
	pthread_t threads[THREADS];

	pthread_barrier_init(&start, NULL, THREADS);
	for (long i = 0; i < THREADS; i++)
		need(!pthread_create(&threads[i], NULL, work, (void *)i), "pthread_create");
	for (long i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

/* --- all --- */

static const struct {
	const char *name;
	void (*prepare)(void);
	void (*one)(long round);
} workloads[] = {
	{ "append", NULL, one_append },
	{ "create", NULL, one_create },
	{ "rename", NULL, one_rename },
	{ "varmail", make_mails, one_varmail },
	{ "scattered", make_database, one_scattered },
	{ "threads", make_thread_files, NULL },
	{ "appenders", let_threads_append, NULL },
};

static void run(void (*one)(long round))
{
	if (!one) {
		run_threads();
		return;
	}
	for (long i = 0; i < operations; i++) {
		int64_t before = now_ns();

		one(i);
		ns[i] = now_ns() - before;
	}
}

int main(int argc, char **argv)
{
	const size_t count = sizeof(workloads) / sizeof(workloads[0]);
	int64_t begin, end;
	size_t which = 0;
	int marker;

	if (argc != 5 || (operations = atol(argv[3])) < 1) {
		fprintf(stderr, "usage: filebench SYNC_CALL WORKLOAD OPERATIONS MARKER\n");
		return 1;
	}
	sync_call = !strcmp(argv[1], "fdatasync") ? fdatasync : fsync;
	while (which < count && strcmp(workloads[which].name, argv[2]))
		which++;
	if (which == count) {
		fprintf(stderr, "filebench: no workload %s\n", argv[2]);
		return 1;
	}
	memset(buffer, 'f', sizeof(buffer));
	ns = calloc(operations, sizeof(*ns));
	need(!!ns, "calloc");
	marker = opened(argv[4], O_WRONLY);
	if (workloads[which].prepare)
		workloads[which].prepare();
	sync();
	sleep(6); /* past the periodic commit: nothing of the making is left to write */

	mark(marker, "begin", "");
	begin = now_ns();
	run(workloads[which].one);
	end = now_ns();
	mark(marker, "end", "");
	printf("{\"phases\": {");
	print_latencies("", ns, operations, end - begin);
	printf("}}\n");
	return 0;
}
