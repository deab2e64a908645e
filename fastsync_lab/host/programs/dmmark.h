/* SPDX-License-Identifier: MIT */
/*
 * Put a mark into the log of a dm-log-writes device. It stands in the log behind
 * every flush and every FUA write that has completed by now. Of the device "-"
 * it goes into the kernel's trace.
 */
#ifndef DMMARK_H
#define DMMARK_H

#include <err.h>
#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

static int dm_control = -1, dm_trace = -1;
static const char *dm_name;

static inline void dm_mark_open(const char *name)
{
	dm_name = name;
	if (!strcmp(name, "-")) {
		dm_trace = open("/sys/kernel/tracing/trace_marker", O_WRONLY | O_CLOEXEC);
		if (dm_trace < 0)
			err(1, "trace_marker");
		return;
	}
	dm_control = open("/dev/mapper/control", O_RDWR | O_CLOEXEC);
	if (dm_control < 0)
		err(1, "/dev/mapper/control");
}

static inline void dm_mark(long number)
{
	struct {
		struct dm_ioctl io;
		struct dm_target_msg message;
		char text[64];
	} request = {
		.io = {
			.version = { DM_VERSION_MAJOR, 0, 0 },
			.data_size = sizeof(request),
			.data_start = sizeof(struct dm_ioctl),
		},
	};

	if (dm_trace >= 0) {
		if (dprintf(dm_trace, "mark %ld\n", number) < 0)
			err(1, "trace_marker");
		return;
	}
	snprintf(request.io.name, sizeof(request.io.name), "%s", dm_name);
	/* message.message is a flexible array: the text follows. */
	snprintf(request.message.message, sizeof(request.text), "mark %ld", number);
	if (ioctl(dm_control, DM_TARGET_MSG, &request))
		err(1, "DM_TARGET_MSG");
}

#endif
