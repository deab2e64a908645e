/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the parts of flashdev share; main.c has the idea of the whole.
 *
 *  - store.c: the data, on the medium and in the volatile cache
 *  - model.c: what a request costs
 *  - fail.c: which request fails
 *  - main.c: the devices
 */
#ifndef _FLASHDEV_H
#define _FLASHDEV_H

#include <linux/blk-mq.h>
#include <linux/xarray.h>

/* How many devices there can be. */
#define FLASH_MAX_DEVICES	8

/**
 * struct flash_param - a module parameter
 * @value: its value
 * @min: the least that is accepted
 * @max: the most that is accepted
 *
 * Every parameter of the module is one, so that all can be checked in a loop.
 */
struct flash_param {
	unsigned long value, min, max;
};

/**
 * struct flash_store - the data of a device; the caller locks
 * @pages: what reads return: a page for each PAGE_SIZE bytes ever written
 * @medium: where @pages has what a lost cache takes away, what the medium has
 *	instead: a page, or a value entry for nothing but zeros
 * @loses: @medium is kept
 */
struct flash_store {
	struct xarray pages;
	struct xarray medium;
	bool loses;
};

void flash_store_init(struct flash_store *store, bool loses);
void flash_store_free(struct flash_store *store);
blk_status_t flash_store_serve(struct flash_store *store, struct request *rq);
unsigned long flash_store_lose(struct flash_store *store);

/**
 * struct flash_clock - when a device has time; the caller locks
 * @busy_until: when it is next free, in ns of CLOCK_MONOTONIC
 * @all_done: when all that was dispatched is done, in the same
 * @stream_end: the sector after the last write
 */
struct flash_clock {
	u64 busy_until;
	u64 all_done;
	sector_t stream_end;
};

void flash_clock_init(struct flash_clock *clock);
u64 flash_charge(struct flash_clock *clock, struct request *rq, u64 now);

bool flash_fails(unsigned int device, struct request *rq);

#endif /* _FLASHDEV_H */
