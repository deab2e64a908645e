// SPDX-License-Identifier: MIT
/*
 * crashmaria: start a MariaDB server, run SQL on it, kill it.
 *
 *	crashmaria DM_NAME SOCKET SCRIPT SERVER ARGUMENT...
 *
 * SERVER, with these arguments, has to listen on SOCKET. Each line of SCRIPT is sent
 * to it; it may have several statements. Of what they return each row is printed, its
 * values separated by tabs. When line N (from 0) has been executed, a mark with its
 * number goes into the log of the dm-log-writes device DM_NAME, unless that is "".
 *
 * The status is 1 if the server ends, or a statement fails.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mysql.h>

#include "dmmark.h"

#define RETRY_US 10000

static pid_t server;

static void stop(void)
{
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
}

static void start(char **argv)
{
	pid_t pid = fork();

	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execv(argv[0], argv);
		warn("%s", argv[0]);
		_exit(1);
	}
	server = pid;
	atexit(stop);
}

static MYSQL *connect_to(const char *path)
{
	for (;;) {
		MYSQL *db = mysql_init(NULL);
		int status;

		if (db && mysql_real_connect(db, NULL, "root", NULL, NULL, 0, path,
					     CLIENT_MULTI_STATEMENTS))
			return db;
		mysql_close(db);
		if (waitpid(server, &status, WNOHANG) == server) {
			warnx("the server ended (wait status %#x)", status);
			_exit(1);	/* nothing to stop */
		}
		usleep(RETRY_US);
	}
}

static void print_rows(MYSQL_RES *result)
{
	unsigned int fields = mysql_num_fields(result);
	MYSQL_ROW row;

	while ((row = mysql_fetch_row(result)))
		for (unsigned int i = 0; i < fields; i++)
			printf("%s%c", row[i] ? row[i] : "NULL", i + 1 < fields ? '\t' : '\n');
}

static void run(MYSQL *db, const char *sql)
{
	int more = mysql_query(db, sql) ? 1 : 0;

	while (!more) {
		MYSQL_RES *result = mysql_store_result(db);

		if (result)
			print_rows(result);
		mysql_free_result(result);
		more = mysql_next_result(db);	/* -1: no more */
	}
	if (mysql_errno(db))
		errx(1, "%.80s: %s", sql, mysql_error(db));
}

int main(int argc, char **argv)
{
	char *line = NULL;
	size_t room = 0;
	FILE *script;
	MYSQL *db;

	if (argc < 5)
		errx(2, "usage: crashmaria DM_NAME SOCKET SCRIPT SERVER ARGUMENT...");
	if (*argv[1])
		dm_mark_open(argv[1]);
	script = fopen(argv[3], "r");
	if (!script)
		err(1, "%s", argv[3]);
	start(argv + 4);
	db = connect_to(argv[2]);
	for (long number = 0; getline(&line, &room, script) > 0; number++) {
		run(db, line);
		if (*argv[1])
			dm_mark(number);
	}
	return 0;
}
