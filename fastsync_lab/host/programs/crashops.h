// SPDX-License-Identifier: MIT
/*
 * What crashops.c has in common with the files that have operations of one kind:
 * crashasync.c (AIO and io_uring) and crashext4.c (what Linux or ext4 alone has).
 */
#ifndef CRASHOPS_H
#define CRASHOPS_H

#include <sys/stat.h>

#define MAX_LINE 256
#define MAX_WORDS 8

struct op {
	char line[MAX_LINE];		/* as in the script, without the thread */
	char words[MAX_LINE];		/* the same, cut at blanks */
	char *word[MAX_WORDS];
	int thread, count, error;
	long begin, end;
	long long start_ns, stop_ns;
	struct stat st;			/* st_ino is 0 if there is no file */
};

/* An argument that has to be there, and a number. */
long long number(const struct op *op, int index);

/* Memory that O_DIRECT takes, filled with what @op writes at @offset. */
char *contents(const struct op *op, long long offset, size_t length);

/* The first file of @op. */
int open_file(const struct op *op, int flags);

/* Calls @use with the file open; read-only, so that it may be a folder. */
int with_file(struct op *op, int flags, int (*use)(struct op *op, int fd));

/* All operations return 0, or -1 with errno set. */

int do_awrite(struct op *op);
int do_adwrite(struct op *op);
int do_afsync(struct op *op);
int do_afdatasync(struct op *op);
int do_rwrite(struct op *op);
int do_rdwrite(struct op *op);
int do_rswrite(struct op *op);
int do_rsdwrite(struct op *op);
int do_rfsync(struct op *op);
int do_rfdatasync(struct op *op);

int do_moveext(struct op *op);
int do_swapboot(struct op *op);
int do_remount(struct op *op);
int do_tmpfile(struct op *op);
int do_linkfd(struct op *op);
int do_exchange(struct op *op);
int do_renamenew(struct op *op);
int do_setacl(struct op *op);

/* The path of a file that tmpfile makes, by its number: "@3"; and the descriptor in it, or -1. */
char *path_without_name(const char *word);
int made_without_name(const char *path);

#endif
