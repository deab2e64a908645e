// SPDX-License-Identifier: MIT
/*
 * crashsql: run SQL transactions, mark each one that is committed.
 *
 *	crashsql DM_NAME DATABASE SCRIPT
 *
 * Each line of SCRIPT is one transaction, or a PRAGMA, which runs by itself. When
 * line N (from 0) has been committed, a mark with its number goes into the log of
 * the dm-log-writes device DM_NAME.
 */
#include <stdlib.h>

#include "dmmark.h"
#include "sqlite3.h"

#define MAX_LINE 4096

static void run(sqlite3 *db, const char *sql)
{
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		errx(1, "%s: %s", sql, sqlite3_errmsg(db));
}

int main(int argc, char **argv)
{
	char line[MAX_LINE];
	sqlite3 *db;
	FILE *script;

	if (argc != 4)
		errx(2, "usage: crashsql DM_NAME DATABASE SCRIPT");
	dm_mark_open(argv[1]);
	script = fopen(argv[3], "r");
	if (!script)
		err(1, "%s", argv[3]);
	if (sqlite3_open(argv[2], &db) != SQLITE_OK)
		errx(1, "%s: %s", argv[2], sqlite3_errmsg(db));
	for (long number = 0; fgets(line, sizeof(line), script); number++) {
		int alone = !strncmp(line, "PRAGMA", 6);

		if (!alone)
			run(db, "BEGIN");
		run(db, line);
		if (!alone)
			run(db, "COMMIT");
		dm_mark(number);
	}
	/* No close: it would checkpoint and remove the journal. */
	return 0;
}
