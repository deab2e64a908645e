/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between the kernels that flashdev is built for, and nothing
 * else.  All other files are written for the newest of them; this gives the
 * older ones what they lack.
 */
#ifndef _FLASHDEV_COMPAT_H
#define _FLASHDEV_COMPAT_H

#include <linux/blk-mq.h>
#include <linux/hrtimer.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 0, 0)
#define FLASH_NODE_TYPE		unsigned int
#else
#define FLASH_NODE_TYPE		int
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
static inline void
hrtimer_setup(struct hrtimer *timer,
	      enum hrtimer_restart (*function)(struct hrtimer *),
	      clockid_t clock, enum hrtimer_mode mode)
{
	hrtimer_init(timer, clock, mode);
	timer->function = function;
}
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 14, 0)
#define FLASH_TAG_FLAGS		BLK_MQ_F_SHOULD_MERGE
#else
#define FLASH_TAG_FLAGS		0
#endif

/*
 * A disk with these limits; with @has_cache it takes flush and FUA.  A disk
 * did not rotate by default only from 6.11 on.
 */
static inline struct gendisk *
flash_alloc_disk(struct blk_mq_tag_set *tags, struct queue_limits *lim,
		 bool has_cache, void *data)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 11, 0)
	struct gendisk *disk = blk_mq_alloc_disk(tags, data);
	struct request_queue *q;

	if (IS_ERR(disk))
		return disk;
	q = disk->queue;
	blk_queue_physical_block_size(q, lim->physical_block_size);
	blk_queue_io_min(q, lim->io_min);
	blk_queue_max_hw_sectors(q, lim->max_hw_sectors);
	blk_queue_max_discard_sectors(q, lim->max_hw_discard_sectors);
	blk_queue_max_write_zeroes_sectors(q, lim->max_write_zeroes_sectors);
	q->limits.discard_granularity = lim->discard_granularity;
	blk_queue_write_cache(q, has_cache, has_cache);
	blk_queue_flag_set(QUEUE_FLAG_NONROT, q);
	return disk;
#else
	if (has_cache)
		lim->features |= BLK_FEAT_WRITE_CACHE | BLK_FEAT_FUA;
	return blk_mq_alloc_disk(tags, lim, data);
#endif
}

#endif /* _FLASHDEV_COMPAT_H */
