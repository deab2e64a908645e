// SPDX-License-Identifier: MIT
/*
 * sqlbench: what one small SQLite transaction costs.
 *
 *	sqlbench DATABASE JOURNAL_MODE OPERATIONS ROWS [MARKER]
 *
 * Fills a table with ROWS rows, then times OPERATIONS transactions each of
 * insert, update and delete, one row a transaction, synchronous=FULL.  The
 * result is one JSON object on standard output; times are CLOCK_MONOTONIC
 * nanoseconds.  When MARKER is given (the kernel's trace_marker), "fastsync
 * begin PHASE" and "fastsync end PHASE" are written there, so that a block
 * trace can be cut into phases.
 *
 * Whether SQLite calls fsync() or fdatasync() is settled when it is compiled:
 * without HAVE_FDATASYNC it has "#define fdatasync fsync".
 */
#include "bench.h"
#include "sqlite3.h"

#if HAVE_FDATASYNC
#define SYNC_CALL "fdatasync"
#else
#define SYNC_CALL "fsync"
#endif

#define PAYLOAD_BYTES 100

static int marker = -1;

static void die(const char *what, const char *why)
{
	fprintf(stderr, "sqlbench: %s: %s\n", what, why);
	exit(1);
}

static void check(sqlite3 *db, int status, const char *what)
{
	if (status != SQLITE_OK && status != SQLITE_DONE)
		die(what, sqlite3_errmsg(db));
}

static void run(sqlite3 *db, const char *sql)
{
	check(db, sqlite3_exec(db, sql, NULL, NULL, NULL), sql);
}

static sqlite3_stmt *prepare(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *statement;

	check(db, sqlite3_prepare_v2(db, sql, -1, &statement, NULL), sql);
	return statement;
}

static void step(sqlite3 *db, sqlite3_stmt *statement, int64_t id, uint32_t *seed)
{
	char text[PAYLOAD_BYTES];

	for (int i = 0; i < PAYLOAD_BYTES; i++) {
		*seed = *seed * 1664525 + 1013904223;
		text[i] = 'a' + (*seed >> 24) % 26;
	}
	check(db, sqlite3_bind_int64(statement, 1, id), "bind");
	if (sqlite3_bind_parameter_count(statement) > 1)
		check(db, sqlite3_bind_text(statement, 2, text, sizeof(text), SQLITE_STATIC),
		      "bind");
	check(db, sqlite3_step(statement), "step");
	check(db, sqlite3_reset(statement), "reset");
}

/*
 * One transaction each on the rows first, first + stride, ... modulo rows.
 * A stride that is coprime to the number of rows visits no row twice.
 */
static void phase(sqlite3 *db, const char *name, const char *sql, long operations,
		  int64_t first, int64_t stride, int64_t rows, int last)
{
	sqlite3_stmt *statement = prepare(db, sql);
	int64_t *ns = malloc(operations * sizeof(*ns)), start, end;
	uint32_t seed = 1;

	if (!ns)
		die(name, "out of memory");
	mark(marker, "begin", name);
	start = now_ns();
	for (long i = 0; i < operations; i++) {
		int64_t before = now_ns();
		int64_t id = rows ? (first + i * stride) % rows + 1 : first + i;

		step(db, statement, id, &seed);
		ns[i] = now_ns() - before;
	}
	end = now_ns();
	mark(marker, "end", name);
	print_latencies(name, ns, operations, end - start);
	if (!last)
		printf(", ");
	free(ns);
	sqlite3_finalize(statement);
}

static long number(const char *text, const char *what)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (*end || value < 1)
		die(what, "must be a whole number of at least 1");
	return value;
}

int main(int argc, char **argv)
{
	const int64_t stride = 7919;
	long operations, rows;
	sqlite3_stmt *insert;
	uint32_t seed = 1;
	char pragma[64];
	sqlite3 *db;

	if (argc < 5 || argc > 6)
		die("usage", "sqlbench DATABASE JOURNAL_MODE OPERATIONS ROWS [MARKER]");
	operations = number(argv[3], "OPERATIONS");
	rows = number(argv[4], "ROWS");
	if (rows < operations || rows % stride == 0)
		die("ROWS", "must be at least OPERATIONS and no multiple of 7919");
	if (argc == 6) {
		marker = open(argv[5], O_WRONLY | O_CLOEXEC);
		if (marker < 0)
			die(argv[5], "cannot open");
	}
	if (sqlite3_open(argv[1], &db) != SQLITE_OK)
		die(argv[1], sqlite3_errmsg(db));
	snprintf(pragma, sizeof(pragma), "PRAGMA journal_mode=%s", argv[2]);
	run(db, pragma);
	run(db, "PRAGMA synchronous=FULL");
	run(db, "CREATE TABLE item (id INTEGER PRIMARY KEY, value TEXT NOT NULL)");
	run(db, "BEGIN");
	insert = prepare(db, "INSERT INTO item VALUES (?1, ?2)");
	for (long i = 1; i <= rows; i++)
		step(db, insert, i, &seed);
	sqlite3_finalize(insert);
	run(db, "COMMIT");
	sync();
	sleep(6); /* past the periodic commit: nothing of the filling is left to write */

	printf("{\"sqlite\": \"%s\", \"sync_call\": \"%s\", \"journal_mode\": \"%s\", \"phases\": {",
	       sqlite3_libversion(), SYNC_CALL, argv[2]);
	phase(db, "insert", "INSERT INTO item VALUES (?1, ?2)", operations, rows + 1, 1, 0, 0);
	phase(db, "update", "UPDATE item SET value = ?2 WHERE id = ?1", operations, 0, stride,
	      rows, 0);
	phase(db, "delete", "DELETE FROM item WHERE id = ?1", operations, 0, stride, rows, 1);
	printf("}}\n");
	return sqlite3_close(db) == SQLITE_OK ? 0 : 1;
}
