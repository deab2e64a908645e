// SPDX-License-Identifier: MIT
/*
 * neighbour: a process that works on a file of its own all the time.
 *
 *	neighbour WRITTEN ASKED PERIOD_US
 *
 * Once every PERIOD_US microseconds: fstat() of ASKED, then a write of eight
 * bytes at the start of WRITTEN; no sync.  On SIGTERM it prints how many
 * rounds it did, as JSON.
 *
 * If ASKED is WRITTEN, each write on Linux 6.13 and later needs a stamp that
 * differs from the one asked for.  All but the first in a tick are fine-grained
 * ones, and each moves the floor under the stamps of all files.  If ASKED is
 * another file, the same calls are made and nothing of that happens.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"

static volatile sig_atomic_t ended;

static void end(int signal)
{
	(void)signal;
	ended = 1;
}

static void die(const char *what)
{
	fprintf(stderr, "neighbour: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int open_file(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);

	if (fd < 0)
		die(path);
	return fd;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = end };
	int64_t start, now, next, period, rounds = 0;
	int written, asked;
	struct stat ignored;

	if (argc != 4 || (period = atoll(argv[3]) * 1000) <= 0) {
		fprintf(stderr, "usage: neighbour WRITTEN ASKED PERIOD_US\n");
		return 1;
	}
	sigaction(SIGTERM, &action, NULL);
	prctl(PR_SET_TIMERSLACK, 1UL);
	written = open_file(argv[1]);
	asked = open_file(argv[2]);
	next = start = now_ns();
	while (!ended) {
		if (fstat(asked, &ignored))
			die(argv[2]);
		if (pwrite(written, &rounds, sizeof(rounds), 0) != sizeof(rounds))
			die(argv[1]);
		rounds++;
		next += period;
		now = now_ns();
		if (next < now)
			next = now; /* late: the rounds that were missed stay missed */
		else
			sleep_until(next);
	}
	printf("{\"rounds\": %" PRId64 ", \"elapsed_ns\": %" PRId64 "}\n", rounds,
	       now_ns() - start);
	return 0;
}
