// SPDX-License-Identifier: MIT
/*
 * mobilebench: what a phone's applications write, in the shape of published traces.
 *
 *	mobilebench SYNC_CALL WORKLOAD PARTS MARKER
 *
 * In the current folder, the PARTS-th part of the writes and syncs of WORKLOAD,
 * SYNC_CALL being fsync or fdatasync.  The numbers are those of P.-H. Sung, Fast
 * Synchronous File Writing for Flash Storage in Android Devices, NCTU 2013,
 * tables 5.2 and 5.3:
 *
 *			writes	mean KiB  syncs	 files
 *   random		1,426	4	  1,426	     1	   of AndroBench
 *   facebook		15,369	3.36	  2,875	   370
 *   gmail		120,971	2.12	  6,385	   135
 *   chrome		90,638	2.69	    575	   721
 *
 * random: 1,579 writes of 28.4 KiB with 1,519 syncs are 153 of 256 KiB, 38 MiB
 * in sequence, and 1,426 of 4 KiB anywhere in them.  Only these are done here.
 *
 * The order of the calls in the others is not published.  Assumed is:
 *
 *   - A write has 4 KiB or 4 to 512 bytes, as many of each as give the mean.
 *   - Of the writes, 75 % (chrome: 12 %) go to files that are synced, as many
 *     before each sync.  78 % of Gmail's block writes were synchronous.  The
 *     rest goes between the syncs to files that nobody syncs, one after the other.
 *   - facebook, gmail: mostly SQLite.  A transaction creates a journal, writes
 *     it, syncs, writes as much into a database, syncs, and unlinks the journal.
 *     Of the database's writes one in APPENDS is at the end, the rest in pages
 *     anywhere.  DATABASES files of DATABASE_MIB MiB each take turns.
 *   - chrome: web pages and pictures.  Each sync is of a new file.  Those that
 *     nobody syncs are caches of 1 MiB, written in pages anywhere: of 238 MB that
 *     were written 150 reached the device, in pieces of 32 KiB.
 *
 * What is to be there before lies on the medium when the time begins.  The time
 * ends with the last sync; what is traced ends with a sync(2) behind it, so that
 * bytes which were put off count.  Reads are left out: they come from the cache.
 * The result is one JSON object with the latencies of the sync calls; MARKER is
 * the kernel's trace_marker.
 */
#define _GNU_SOURCE

#include "bench.h"

#define KIB 1024
#define MIB (1024 * KIB)
#define PAGE (4 * KIB)
#define SMALL 512
#define APPENDS 5
#define DATABASES 10
#define DATABASE_MIB 4
#define RANDOM_MIB 38

static const struct workload {
	const char *name;
	long writes, mean, syncs, files, synced;
} workloads[] = {
	{ "random", 1426, PAGE, 1426, 1, 100 },
	{ "facebook", 15369, 3441, 2875, 370, 75 },
	{ "gmail", 120971, 2171, 6385, 135, 75 },
	{ "chrome", 90638, 2755, 575, 721, 12 },
};

static const struct workload *shape;
static int (*sync_call)(int fd);
static char buffer[MIB];
static uint32_t seed = 1;
static int64_t *ns;
static long syncs;
static int databases[DATABASES];

static int numbered(const char *kind, long number, int flags)
{
	char name[48];

	snprintf(name, sizeof(name), "%s%ld", kind, number);
	return opened(name, flags | O_CREAT);
}

static uint32_t random_below(uint32_t count)
{
	seed = seed * 1664525 + 1013904223;
	return ((uint64_t)seed * count) >> 32;
}

static size_t write_size(void)
{
	const long small = SMALL / 2;

	if ((long)random_below(PAGE - small) < shape->mean - small)
		return PAGE;
	return 4 + random_below(SMALL - 4);
}

static void put(int fd, size_t size)
{
	need(write(fd, buffer, size) == (ssize_t)size, "write");
}

static void put_at(int fd, size_t size, off_t place)
{
	need(pwrite(fd, buffer, size, place) == (ssize_t)size, "pwrite");
}

static void timed_sync(int fd)
{
	int64_t before = now_ns();

	need(!sync_call(fd), "sync");
	ns[syncs++] = now_ns() - before;
}

static int made(const char *kind, long number, long mib)
{
	int fd = numbered(kind, number, O_RDWR);

	while (mib--)
		put(fd, MIB);
	need(!fsync(fd), "fsync");
	return fd;
}

/* --- what is done for each sync --- */

static void write_journal(long transaction, long writes)
{
	int fd = numbered("journal", transaction % DATABASES, O_EXCL | O_WRONLY);

	while (writes--)
		put(fd, write_size());
	timed_sync(fd);
	close(fd);
}

static void write_database(long transaction, long writes)
{
	int fd = databases[transaction % DATABASES];
	char name[48];

	while (writes--) {
		if (random_below(APPENDS))
			put_at(fd, write_size(), random_below(DATABASE_MIB * MIB / PAGE) * PAGE);
		else
			put(fd, write_size());
	}
	timed_sync(fd);
	snprintf(name, sizeof(name), "journal%ld", transaction % DATABASES);
	need(!unlink(name), name);
}

static void write_page(long number, long writes)
{
	int fd = numbered("page", number, O_EXCL | O_WRONLY);

	while (writes--)
		put(fd, write_size());
	timed_sync(fd);
	close(fd);
}

static void write_anywhere(int fd)
{
	put_at(fd, PAGE, random_below(RANDOM_MIB * MIB / PAGE) * PAGE);
	timed_sync(fd);
}

static void for_one_sync(long i, long writes)
{
	if (shape->files == 1)
		write_anywhere(databases[0]);
	else if (!strcmp(shape->name, "chrome"))
		write_page(i, writes);
	else if (i % 2 == 0)
		write_journal(i / 2, writes);
	else
		write_database(i / 2, writes);
}

/* --- all --- */

/* How many of a total belong before round i + 1 of `rounds`, and not before round i. */
static long share(long total, long i, long rounds)
{
	return total * (i + 1) / rounds - total * i / rounds;
}

/* The files that nobody syncs are written one after the other. */
static void write_unsynced(long writes)
{
	static long done, file;
	static int fd = -1;
	int cache = !strcmp(shape->name, "chrome");
	long files = shape->files - (cache ? shape->syncs : 2 * DATABASES);
	long total = shape->writes * (100 - shape->synced) / 100;
	long each = (total + files - 1) / files;

	for (; writes; writes--) {
		if (done++ % each == 0) {
			if (fd >= 0)
				close(fd);
			fd = numbered("unsynced", file++, O_EXCL | O_WRONLY);
		}
		if (cache)
			put_at(fd, write_size(), random_below(MIB / PAGE) * PAGE);
		else
			put(fd, write_size());
	}
}

static void run(long rounds)
{
	long synced = shape->writes * shape->synced / 100;

	for (long i = 0; i < rounds; i++) {
		for_one_sync(i, share(synced, i, shape->syncs));
		write_unsynced(share(shape->writes - synced, i, shape->syncs));
	}
}

static void prepare(void)
{
	if (shape->files == 1)
		databases[0] = made("random", 0, RANDOM_MIB);
	else if (strcmp(shape->name, "chrome"))
		for (long i = 0; i < DATABASES; i++)
			databases[i] = made("database", i, DATABASE_MIB);
	sync();
	sleep(6); /* past the periodic commit: nothing of the making is left to write */
}

int main(int argc, char **argv)
{
	const size_t count = sizeof(workloads) / sizeof(workloads[0]);
	long parts = argc == 5 ? atol(argv[3]) : 0;
	int64_t begin, end;
	size_t which = 0;
	int marker;

	if (parts < 1) {
		fprintf(stderr, "usage: mobilebench SYNC_CALL WORKLOAD PARTS MARKER\n");
		return 1;
	}
	sync_call = !strcmp(argv[1], "fdatasync") ? fdatasync : fsync;
	while (which < count && strcmp(workloads[which].name, argv[2]))
		which++;
	if (which == count) {
		fprintf(stderr, "mobilebench: no workload %s\n", argv[2]);
		return 1;
	}
	shape = &workloads[which];
	ns = calloc(shape->syncs, sizeof(*ns));
	need(!!ns, "calloc");
	memset(buffer, 'm', sizeof(buffer));
	marker = opened(argv[4], O_WRONLY);
	prepare();

	mark(marker, "begin", "");
	begin = now_ns();
	run(shape->syncs / parts);
	end = now_ns();
	sync();
	mark(marker, "end", "");
	printf("{\"phases\": {");
	print_latencies("", ns, syncs, end - begin);
	printf("}}\n");
	return 0;
}
