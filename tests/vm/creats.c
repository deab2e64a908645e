// SPDX-License-Identifier: MIT
/*
 * creats FOLDER COUNT: create COUNT empty files, and print as JSON how long the
 * worst creat(2) took, the worst of 99 % of them, and all together, in ns.
 */
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "times.h"

static int compare(const void *a, const void *b)
{
	const long long *left = a, *right = b;

	return (*left > *right) - (*left < *right);
}

int main(int argc, char **argv)
{
	int count = argc == 3 ? atoi(argv[2]) : 0;
	long long *took = calloc(count, sizeof(*took));
	long long started = now_ns(), ended = started;

	if (!count || !took || chdir(argv[1]))
		errx(2, "usage: creats FOLDER COUNT");
	for (int i = 0; i < count; i++) {
		long long before = ended;
		char name[32];
		int fd;

		snprintf(name, sizeof(name), "new%d", i);
		fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);
		if (fd < 0)
			err(1, "%s", name);
		close(fd);
		ended = now_ns();
		took[i] = ended - before;
	}
	qsort(took, count, sizeof(*took), compare);
	printf("{\"worst_ns\": %lld, \"p99_ns\": %lld, \"all_ns\": %lld}\n", took[count - 1],
	       took[(count * 99 - 1) / 100], ended - started);
	return 0;
}
