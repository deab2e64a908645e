// SPDX-License-Identifier: MIT
/*
 * waitbench: how long file system calls take beside a bulk writer.
 *
 *	waitbench DEVICE BENCHMARK ROUNDS WINDOW_S [alone]
 *
 * In the current folder.  A second process writes files of BULK_MIB MiB,
 * buffered, 1 MiB a call, one after the other, and removes each when it has
 * finished the second one after it; BULK_LEAD_S seconds after it began, when
 * write-back is busy, the BENCHMARK starts: ROUNDS rounds, spread over WINDOW_S
 * seconds so that each kind of moment in the writer's cycle is met, of
 *
 *   M1	creat, write 4 KiB, fsync, close: a database
 *   M2	the same with 64 KiB that are already on their way to the device when
 *	fsync is called
 *   M3	write of 1000 bytes at the end of a file; every 64 KiB are sent to
 *	the device, so that the next write finds its page under write-back
 *   M4	truncate to 0 of a file whose 64 KiB are on their way to the device
 *   M5	unlink of a file of 1 MiB, which is on the medium, then write 4 KiB and
 *	fsync of another
 *
 *   LAUNCH	an application starts: 8 reads of 16 KiB that are not cached, in
 *	different files, then a row is added to its database: write 4 KiB to a
 *	journal, fsync, 4 KiB to the database, fsync
 *   PHOTOS	a burst of photos: creat, write 2, 3 or 4 MiB, fsync, close
 *   INSTALL	16 files of 4 to 64 KiB: creat under another name, write, fsync,
 *	close, rename
 *
 * With BULK instead, there are no rounds: the writer is alone.  With "alone"
 * there is no writer: what the rounds take on a device that is free.
 *
 * "On their way": by sync_file_range(), which sends them as write-back does.
 * The result is one JSON object: the latency of each call in ns, the time that
 * all rounds took, without the pauses between them, and what DEVICE ("/dev/X")
 * was told to write in WINDOW_S seconds from the first round on, or until the
 * last if that takes longer.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "bench.h"

#define KIB 1024
#define MIB (1024 * KIB)
#define BULK_MIB 192
#define BULK_LEAD_S 4
#define SENT (64 * KIB)
#define PAGE (4 * KIB)
#define PART (16 * KIB)
#define LAUNCH_FILES 64
#define LAUNCH_READS 8
#define INSTALL_FILES 16
#define MAX_CALLS_A_ROUND 16
#define APPEND 1000

enum call { CREAT, READ, WRITE, FSYNC, TRUNCATE, UNLINK, RENAME, CALLS };

static const char *const call_names[] = { "creat",    "read",	"write", "fsync",
					  "truncate", "unlink", "rename" };

static struct {
	int64_t *ns;
	long count;
} calls[CALLS];

static char *buffer;
static long rounds;

static void took(enum call call, int64_t since)
{
	calls[call].ns[calls[call].count++] = now_ns() - since;
}

static int timed_creat(const char *name)
{
	int64_t start = now_ns();
	int fd = open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644);

	took(CREAT, start);
	need(fd >= 0, name);
	return fd;
}

static void timed_write(int fd, size_t size)
{
	int64_t start = now_ns();

	need(write(fd, buffer, size) == (ssize_t)size, "write");
	took(WRITE, start);
}

static void timed_fsync(int fd)
{
	int64_t start = now_ns();

	need(!fsync(fd), "fsync");
	took(FSYNC, start);
}

static void send_all(int fd)
{
	need(!sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE), "sync_file_range");
}

static int plain_file(const char *name, size_t size)
{
	int fd = open(name, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0644);

	need(fd >= 0, name);
	need(write(fd, buffer, size) == (ssize_t)size, name);
	return fd;
}

static void create_and_sync(long round, size_t size, int sent)
{
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "file%ld", round);
	fd = timed_creat(name);
	timed_write(fd, size);
	if (sent)
		send_all(fd);
	timed_fsync(fd);
	close(fd);
}

static void m1(long round) { create_and_sync(round, PAGE, 0); }
static void m2(long round) { create_and_sync(round, SENT, 1); }

static void m3(long round)
{
	static int fd = -1;

	if (fd < 0)
		fd = plain_file("appended", APPEND);
	timed_write(fd, APPEND);
	if (round % (SENT / APPEND) == 0)
		send_all(fd);
}

static void m4(long round)
{
	int fd = plain_file("truncated", SENT);
	int64_t start;

	(void)round;
	send_all(fd);
	start = now_ns();
	need(!ftruncate(fd, 0), "ftruncate");
	took(TRUNCATE, start);
	close(fd);
}

static void m5_prepare(void)
{
	char name[32];

	for (long i = 0; i < rounds; i++) {
		snprintf(name, sizeof(name), "gone%ld", i);
		close(plain_file(name, MIB));
	}
	sync();
}

static void m5(long round)
{
	int fd = plain_file("synced", 0);
	int64_t start = now_ns();
	char name[32];

	snprintf(name, sizeof(name), "gone%ld", round);
	need(!unlink(name), name);
	took(UNLINK, start);
	timed_write(fd, PAGE);
	timed_fsync(fd);
	close(fd);
}

static void launch_prepare(void)
{
	char name[32];

	for (int i = 0; i < LAUNCH_FILES; i++) {
		int fd;

		snprintf(name, sizeof(name), "part%d", i);
		fd = plain_file(name, MIB);
		need(!fsync(fd), "fsync");
		need(!posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), "posix_fadvise");
		close(fd);
	}
}

/* Each part of each file is read once, so that none is cached. */
static void launch(long round)
{
	static int journal = -1, database = -1;

	if (journal < 0) {
		journal = plain_file("journal", PAGE);
		database = plain_file("database", PAGE);
	}
	for (long i = round * LAUNCH_READS; i < (round + 1) * LAUNCH_READS; i++) {
		char name[32];
		int64_t start;
		int fd;

		snprintf(name, sizeof(name), "part%ld", i % LAUNCH_FILES);
		fd = open(name, O_RDONLY | O_CLOEXEC);
		need(fd >= 0, name);
		need(!posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM), "posix_fadvise");
		start = now_ns();
		need(pread(fd, buffer, PART, i / LAUNCH_FILES * PART % MIB) == PART, "pread");
		took(READ, start);
		close(fd);
	}
	timed_write(journal, PAGE);
	timed_fsync(journal);
	timed_write(database, PAGE);
	timed_fsync(database);
}

static void photos(long round)
{
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "photo%ld", round);
	fd = timed_creat(name);
	for (long mib = 2 + round % 3; mib; mib--)
		timed_write(fd, MIB);
	timed_fsync(fd);
	close(fd);
}

static void install(long round)
{
	for (long i = 0; i < INSTALL_FILES; i++) {
		char name[32], unpacked[40];
		int64_t start;
		int fd;

		snprintf(name, sizeof(name), "app%ld-%ld", round, i);
		snprintf(unpacked, sizeof(unpacked), "%s.new", name);
		fd = timed_creat(unpacked);
		timed_write(fd, PAGE * (1 + i));
		timed_fsync(fd);
		close(fd);
		start = now_ns();
		need(!rename(unpacked, name), name);
		took(RENAME, start);
	}
}

static const struct {
	const char *name;
	void (*prepare)(void);
	void (*round)(long round);
} benchmarks[] = {
	{ "M1", NULL, m1 },
	{ "M2", NULL, m2 },
	{ "M3", NULL, m3 },
	{ "M4", NULL, m4 },
	{ "M5", m5_prepare, m5 },
	{ "LAUNCH", launch_prepare, launch },
	{ "PHOTOS", NULL, photos },
	{ "INSTALL", NULL, install },
	{ "BULK", NULL, NULL },
};

static void bulk(void)
{
	char name[32];

	need(!prctl(PR_SET_PDEATHSIG, SIGKILL), "prctl");
	for (long i = 0;; i++) {
		int fd;

		snprintf(name, sizeof(name), "bulk%ld", i - 2);
		if (i >= 2)
			need(!unlink(name), name);
		snprintf(name, sizeof(name), "bulk%ld", i);
		fd = plain_file(name, 0);
		for (int written = 0; written < BULK_MIB; written++)
			need(write(fd, buffer, MIB) == MIB, name);
		close(fd);
	}
}

/* Do all rounds, each at its time or when the last is done; how long they took. */
static int64_t do_rounds(void (*round)(long), int64_t start, int64_t window_ns)
{
	int64_t elapsed = 0;

	for (long i = 0; i < rounds; i++) {
		int64_t began;

		sleep_until(start + i * window_ns / rounds);
		began = now_ns();
		round(i);
		elapsed += now_ns() - began;
	}
	return elapsed;
}

static int64_t sectors_written(const char *device)
{
	char path[64], line[512];
	int64_t sectors;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/block/%s/stat", strrchr(device, '/') + 1);
	file = fopen(path, "r");
	need(file && fgets(line, sizeof(line), file), path);
	fclose(file);
	need(sscanf(line, "%*d %*d %*d %*d %*d %*d %" SCNd64, &sectors) == 1, path);
	return sectors;
}

static void print_calls(void)
{
	const char *comma = "";

	for (int i = 0; i < CALLS; i++) {
		long count = calls[i].count;
		int64_t sum = 0;

		if (!count)
			continue;
		for (long j = 0; j < count; j++)
			sum += calls[i].ns[j];
		printf("%s", comma);
		print_latencies(call_names[i], calls[i].ns, count, sum);
		comma = ", ";
	}
}

int main(int argc, char **argv)
{
	int64_t start, end, before, after, window_ns, elapsed = 0;
	int alone = argc == 6 && !strcmp(argv[5], "alone");
	size_t which = 0;
	pid_t writer = 0;

	if (argc != 5 + alone || (rounds = atol(argv[3])) < 1 || atol(argv[4]) < 1) {
		fprintf(stderr, "usage: waitbench DEVICE BENCHMARK ROUNDS WINDOW_S [alone]\n");
		return 1;
	}
	while (strcmp(benchmarks[which].name, argv[2]))
		if (++which == sizeof(benchmarks) / sizeof(benchmarks[0])) {
			fprintf(stderr, "waitbench: no benchmark %s\n", argv[2]);
			return 1;
		}
	buffer = malloc(MIB);
	need(!!buffer, "malloc");
	memset(buffer, 'w', MIB);
	for (int i = 0; i < CALLS; i++) {
		calls[i].ns = calloc(rounds * MAX_CALLS_A_ROUND, sizeof(int64_t));
		need(!!calls[i].ns, "calloc");
	}
	if (benchmarks[which].prepare)
		benchmarks[which].prepare();

	if (!alone) {
		writer = fork();
		need(writer >= 0, "fork");
		if (!writer)
			bulk();
	}
	window_ns = atol(argv[4]) * NS_PER_S;
	sleep_until(now_ns() + BULK_LEAD_S * NS_PER_S);

	before = sectors_written(argv[1]);
	start = now_ns();
	if (benchmarks[which].round)
		elapsed = do_rounds(benchmarks[which].round, start, window_ns);
	sleep_until(start + window_ns);
	end = now_ns();
	after = sectors_written(argv[1]);
	if (!alone) {
		need(!kill(writer, 0) && waitpid(writer, NULL, WNOHANG) == 0, "the bulk writer");
		kill(writer, SIGKILL);
		waitpid(writer, NULL, 0);
	}

	printf("{\"benchmark\": \"%s\", \"rounds\": %ld, \"elapsed_ns\": %" PRId64
	       ", \"window_ns\": %" PRId64 ", \"written_bytes\": %" PRId64 ", \"calls\": {",
	       argv[2], rounds, elapsed, end - start, (after - before) * 512);
	print_calls();
	printf("}}\n");
	return 0;
}
