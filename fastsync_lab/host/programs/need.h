/* SPDX-License-Identifier: MIT */
/*
 * What a program does where a call fails that has to succeed.
 */
#ifndef NEED_H
#define NEED_H

#include <err.h>
#include <stdbool.h>

static inline void need(bool ok, const char *what)
{
	if (!ok)
		err(1, "%s", what);
}

#endif
