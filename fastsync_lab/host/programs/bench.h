/* SPDX-License-Identifier: MIT */
/*
 * What the benchmarks have in common: errors, latencies as JSON, marks in a trace.
 */
#ifndef BENCH_H
#define BENCH_H

#include <err.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "need.h"

static inline int opened(const char *name, int flags)
{
	int fd = open(name, flags | O_CLOEXEC, 0644);

	need(fd >= 0, name);
	return fd;
}

static inline int compare_ns(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* The nearest-rank percentile of sorted values. */
static inline int64_t percentile(const int64_t *sorted, long count, int percent)
{
	return sorted[(count * percent + 99) / 100 - 1];
}

/* One member of a JSON object; sorts the latencies. */
static inline void print_latencies(const char *name, int64_t *ns, long count, int64_t elapsed_ns)
{
	int64_t sum = 0;

	for (long i = 0; i < count; i++)
		sum += ns[i];
	qsort(ns, count, sizeof(*ns), compare_ns);
	printf("\"%s\": {\"operations\": %ld, \"elapsed_ns\": %" PRId64 ", \"mean_ns\": %" PRId64
	       ", \"p50_ns\": %" PRId64 ", \"p99_ns\": %" PRId64 ", \"max_ns\": %" PRId64 "}",
	       name, count, elapsed_ns, sum / count, percentile(ns, count, 50),
	       percentile(ns, count, 99), ns[count - 1]);
}

/* "begin" or "end" of a part of the run, into the kernel's trace, if there is a marker. */
static inline void mark(int marker, const char *edge, const char *name)
{
	char line[64];
	int length = snprintf(line, sizeof(line), "fastsync %s %s\n", edge, name);

	need(marker < 0 || write(marker, line, length) == length, "the trace marker");
}

#endif
