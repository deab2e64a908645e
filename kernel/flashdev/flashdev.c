// SPDX-License-Identifier: GPL-2.0
/*
 * flashdev - a memory-backed flash device with a service-time model
 *
 * Measurements of fsync() depend on what a device charges for each kind of
 * request: on flash a cache flush costs hundreds of times what a write into
 * the device's cache costs.  null_blk charges one price for everything and
 * dm-delay rounds a flush to the timer tick.  flashdev has one price for each
 * kind, and in a virtual machine with virtual time meets it to the
 * microsecond, so that a run can be repeated and compared.
 *
 * The model
 *
 * A request costs two times:
 *
 *  - the time for which it occupies the device.  These are served one after
 *    the other, in the order in which requests arrive: the transfer over the
 *    bus, the surcharge of a random write, the whole of a flush.
 *
 *  - the latency that follows.  It passes for up to queue_depth requests side
 *    by side, as it does on the planes and channels of a flash device.
 *
 *	kind		occupies the device		then
 *	read		transfer			read_ns
 *	write		transfer + surcharge		write_ns
 *	FUA write	transfer + surcharge		write_ns + fua_ns
 *	discard		-				discard_ns
 *	flush		flush_ns			-
 *
 * The surcharge is random_write_ns for a write that does not begin at the
 * sector where the last one ended, else nothing.  Write-zeroes counts as
 * discard.  The clock of a request runs from its dispatch (block_rq_issue) to
 * its completion (block_rq_complete).
 *
 * Data is copied at dispatch, so that the copy takes no time of its own: the
 * clock is running already.  No order is lost, since only requests that
 * overlap in time can tell the difference.
 *
 * Failing
 *
 * Writing N to the parameter fail_from makes fail_count requests fail with an
 * I/O error, from the Nth on that is dispatched after that; they cost what they
 * always do and move no data.  dm-flakey and dm-error go by time and by sector:
 * neither fails one flush of many, nor the Nth request.
 *
 * Limits
 *
 * Costs are constants.  There is no garbage collection that builds up, no
 * cache that fills, no wear; a flush costs the same with nothing to write
 * back.  Data is on the medium once dispatched: the cache has a price, but
 * loses nothing with the power.  One write stream is tracked.  The copy is
 * done by the CPU: a request whose copy takes longer than its service time
 * completes late.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/highmem.h>
#include <linux/hrtimer.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/sizes.h>
#include <linux/spinlock.h>
#include <linux/xarray.h>

#include "compat.h"

/*
 * A timer expires late, by the time that the interrupt takes to come through:
 * about 1 us in virtual time.  So the timer is armed earlier by a lead, which
 * follows the lateness with this weight.  What is later than the bound was
 * held up by something else and does not count.
 */
#define FLASH_LEAD_WEIGHT	8
#define FLASH_MAX_LATE_NS	(4 * NSEC_PER_USEC)

/*
 * The largest transfer and the largest discard.  512 KiB is what eMMC hosts
 * take; it fits the block layer's default of 128 segments.  The bound on a
 * discard limits the time for which its pages are freed under the lock.
 */
#define FLASH_MAX_TRANSFER	SZ_512K
#define FLASH_MAX_DISCARD	SZ_64M

/**
 * struct flash_param - a module parameter
 * @value: its value
 * @min: the least that is accepted
 * @max: the most that is accepted
 */
struct flash_param {
	unsigned long value, min, max;
};

static struct flash_param read_ns = { 100000, 0, NSEC_PER_SEC };
module_param_named(read_ns, read_ns.value, ulong, 0444);
MODULE_PARM_DESC(read_ns, "Latency of a read, in ns");

static struct flash_param write_ns = { 100000, 0, NSEC_PER_SEC };
module_param_named(write_ns, write_ns.value, ulong, 0444);
MODULE_PARM_DESC(write_ns, "Latency of a write, in ns");

static struct flash_param random_write_ns = { 0, 0, NSEC_PER_SEC };
module_param_named(random_write_ns, random_write_ns.value, ulong, 0444);
MODULE_PARM_DESC(random_write_ns,
		 "Surcharge of a write that does not start where the last one ended, in ns");

static struct flash_param flush_ns = { 100000, 0, NSEC_PER_SEC };
module_param_named(flush_ns, flush_ns.value, ulong, 0444);
MODULE_PARM_DESC(flush_ns,
		 "Time for which a cache flush occupies the device, in ns");

static struct flash_param fua_ns = { 0, 0, NSEC_PER_SEC };
module_param_named(fua_ns, fua_ns.value, ulong, 0444);
MODULE_PARM_DESC(fua_ns, "What a FUA write costs on top of a write, in ns");

static struct flash_param discard_ns = { 100000, 0, NSEC_PER_SEC };
module_param_named(discard_ns, discard_ns.value, ulong, 0444);
MODULE_PARM_DESC(discard_ns, "Latency of a discard or write-zeroes, in ns");

static struct flash_param read_mib_s = { 0, 0, SZ_1M };
module_param_named(read_mib_s, read_mib_s.value, ulong, 0444);
MODULE_PARM_DESC(read_mib_s, "Bandwidth of reads, in MiB/s (0: no limit)");

static struct flash_param write_mib_s = { 0, 0, SZ_1M };
module_param_named(write_mib_s, write_mib_s.value, ulong, 0444);
MODULE_PARM_DESC(write_mib_s, "Bandwidth of writes, in MiB/s (0: no limit)");

static struct flash_param queue_depth = { 64, 1, BLK_MQ_MAX_DEPTH };
module_param_named(queue_depth, queue_depth.value, ulong, 0444);
MODULE_PARM_DESC(queue_depth, "Requests that the device holds at a time");

static struct flash_param volatile_cache = { 1, 0, 1 };
module_param_named(volatile_cache, volatile_cache.value, ulong, 0444);
MODULE_PARM_DESC(volatile_cache,
		 "1: volatile write cache, with flush and FUA; 0: none");

static struct flash_param capacity_mib = { 512, 1, SZ_1M };
module_param_named(capacity_mib, capacity_mib.value, ulong, 0444);
MODULE_PARM_DESC(capacity_mib, "Capacity, in MiB");

static struct flash_param fail_count = { 1, 1, ULONG_MAX };
module_param_named(fail_count, fail_count.value, ulong, 0644);
MODULE_PARM_DESC(fail_count, "Requests that fail, from fail_from on");

/* Requests since fail_from was written. */
static atomic_long_t flash_dispatched;

static int flash_set_fail_from(const char *text, const struct kernel_param *kp)
{
	atomic_long_set(&flash_dispatched, 0);
	return param_set_ulong(text, kp);
}

static const struct kernel_param_ops flash_fail_from_ops = {
	.set = flash_set_fail_from,
	.get = param_get_ulong,
};

static struct flash_param fail_from = { 0, 0, ULONG_MAX };
module_param_cb(fail_from, &flash_fail_from_ops, &fail_from.value, 0644);
MODULE_PARM_DESC(fail_from,
		 "First request that fails, counted from when this is written (0: none does)");

/**
 * struct flash_device - the device
 * @disk: its disk
 * @tags: its tags, queue_depth of them
 * @lead: ns by which timers are armed early; written by whoever completes
 * @lock: protects all below; taken in process context only
 * @pages: the medium, a page for each PAGE_SIZE bytes ever written
 * @busy_until: when the device is next free, in ns of CLOCK_MONOTONIC
 * @stream_end: the sector after the last write
 */
struct flash_device {
	struct gendisk *disk;
	struct blk_mq_tag_set tags;
	s64 lead;

	/* the medium and the clock; see above */
	spinlock_t lock;
	struct xarray pages;
	u64 busy_until;
	sector_t stream_end;
};

/**
 * struct flash_cmd - what the driver keeps with each request
 * @due: when it is to complete, in ns of CLOCK_MONOTONIC
 * @status: what it is to complete with
 * @timer: completes it
 */
struct flash_cmd {
	u64 due;
	blk_status_t status;
	struct hrtimer timer;
};

static struct flash_device *flash;

/*
 * The medium
 */

/* A copy that starts and ends with a page is the common case, and cheaper. */
static void flash_copy(void *to, const void *from, unsigned int n)
{
	if (n == PAGE_SIZE && PAGE_ALIGNED(to) && PAGE_ALIGNED(from))
		copy_page(to, (void *)from);
	else
		memcpy(to, from, n);
}

static struct page *flash_find_page(struct flash_device *dev, u64 pos)
{
	return xa_load(&dev->pages, pos >> PAGE_SHIFT);
}

/* The page at @pos, allocated if there is none; NULL if memory is short. */
static struct page *flash_get_page(struct flash_device *dev, u64 pos)
{
	const gfp_t gfp = GFP_ATOMIC | __GFP_NOWARN;
	struct page *page = flash_find_page(dev, pos);

	if (page)
		return page;

	page = alloc_page(gfp | __GFP_ZERO);
	if (!page)
		return NULL;
	if (xa_err(xa_store(&dev->pages, pos >> PAGE_SHIFT, page, gfp))) {
		__free_page(page);
		return NULL;
	}
	return page;
}

static blk_status_t flash_write_data(struct flash_device *dev,
				     struct request *rq)
{
	u64 pos = blk_rq_pos(rq) << SECTOR_SHIFT;
	struct req_iterator iter;
	struct bio_vec bv;

	rq_for_each_segment(bv, rq, iter) {
		void *from = bvec_kmap_local(&bv);
		unsigned int done, n;

		for (done = 0; done < bv.bv_len; done += n, pos += n) {
			struct page *page = flash_get_page(dev, pos);
			void *to;

			if (!page) {
				kunmap_local(from);
				return BLK_STS_RESOURCE;
			}
			n = min_t(unsigned int, bv.bv_len - done,
				  PAGE_SIZE - offset_in_page(pos));
			to = kmap_local_page(page);
			flash_copy(to + offset_in_page(pos), from + done, n);
			kunmap_local(to);
		}
		kunmap_local(from);
	}
	return BLK_STS_OK;
}

static void flash_read_data(struct flash_device *dev, struct request *rq)
{
	u64 pos = blk_rq_pos(rq) << SECTOR_SHIFT;
	struct req_iterator iter;
	struct bio_vec bv;

	rq_for_each_segment(bv, rq, iter) {
		void *to = bvec_kmap_local(&bv);
		unsigned int done, n;

		for (done = 0; done < bv.bv_len; done += n, pos += n) {
			struct page *page = flash_find_page(dev, pos);
			void *from;

			n = min_t(unsigned int, bv.bv_len - done,
				  PAGE_SIZE - offset_in_page(pos));
			if (!page) {
				memset(to + done, 0, n);
				continue;
			}
			from = kmap_local_page(page);
			flash_copy(to + done, from + offset_in_page(pos), n);
			kunmap_local(from);
		}
		flush_dcache_page(bv.bv_page);
		kunmap_local(to);
	}
}

static void flash_discard_data(struct flash_device *dev, struct request *rq)
{
	u64 pos = blk_rq_pos(rq) << SECTOR_SHIFT;
	const u64 end = pos + blk_rq_bytes(rq);

	while (pos < end) {
		unsigned int n = min_t(u64, end - pos,
				       PAGE_SIZE - offset_in_page(pos));
		struct page *page = flash_find_page(dev, pos);

		if (page && n == PAGE_SIZE) {
			xa_erase(&dev->pages, pos >> PAGE_SHIFT);
			__free_page(page);
		} else if (page) {
			memzero_page(page, offset_in_page(pos), n);
		}
		pos += n;
	}
}

static blk_status_t flash_move_data(struct flash_device *dev,
				    struct request *rq)
{
	switch (req_op(rq)) {
	case REQ_OP_READ:
		flash_read_data(dev, rq);
		return BLK_STS_OK;
	case REQ_OP_WRITE:
		return flash_write_data(dev, rq);
	case REQ_OP_DISCARD:
	case REQ_OP_WRITE_ZEROES:
		flash_discard_data(dev, rq);
		return BLK_STS_OK;
	case REQ_OP_FLUSH:
		return BLK_STS_OK;
	default:
		return BLK_STS_NOTSUPP;
	}
}

/*
 * The clock
 */

static u64 flash_transfer_ns(unsigned int bytes, unsigned long mib_s)
{
	if (!mib_s)
		return 0;
	return div64_ul((u64)bytes * NSEC_PER_SEC, mib_s << 20);
}

/*
 * Charge @rq, dispatched at @now, to the device: returns when it is done.
 */
static u64 flash_charge(struct flash_device *dev, struct request *rq, u64 now)
{
	u64 occupied = 0, latency = 0;

	switch (req_op(rq)) {
	case REQ_OP_READ:
		occupied = flash_transfer_ns(blk_rq_bytes(rq), read_mib_s.value);
		latency = read_ns.value;
		break;
	case REQ_OP_WRITE:
		occupied = flash_transfer_ns(blk_rq_bytes(rq), write_mib_s.value);
		latency = write_ns.value;
		if (blk_rq_pos(rq) != dev->stream_end)
			occupied += random_write_ns.value;
		if (rq->cmd_flags & REQ_FUA)
			latency += fua_ns.value;
		dev->stream_end = blk_rq_pos(rq) + blk_rq_sectors(rq);
		break;
	case REQ_OP_FLUSH:
		occupied = flush_ns.value;
		break;
	default:
		latency = discard_ns.value;
		break;
	}

	dev->busy_until = max(dev->busy_until, now) + occupied;
	return dev->busy_until + latency;
}

/*
 * The queue
 */

static enum hrtimer_restart flash_timer_fn(struct hrtimer *timer)
{
	struct flash_cmd *cmd = container_of(timer, struct flash_cmd, timer);

	blk_mq_complete_request(blk_mq_rq_from_pdu(cmd));
	return HRTIMER_NORESTART;
}

static void flash_complete_rq(struct request *rq)
{
	struct flash_device *dev = rq->q->queuedata;
	struct flash_cmd *cmd = blk_mq_rq_to_pdu(rq);
	s64 late = ktime_get_ns() - cmd->due;
	s64 lead = READ_ONCE(dev->lead);

	if (late < FLASH_MAX_LATE_NS) {
		lead += late / FLASH_LEAD_WEIGHT;
		WRITE_ONCE(dev->lead, clamp_t(s64, lead, 0, FLASH_MAX_LATE_NS));
	}
	blk_mq_end_request(rq, cmd->status);
}

/* Is it the turn of a request to fail? To be asked once for each. */
static bool flash_fails(void)
{
	unsigned long from = READ_ONCE(fail_from.value);
	unsigned long number = atomic_long_inc_return(&flash_dispatched);

	return from && number >= from &&
		number - from < READ_ONCE(fail_count.value);
}

static blk_status_t flash_queue_rq(struct blk_mq_hw_ctx *hctx,
				   const struct blk_mq_queue_data *bd)
{
	struct flash_device *dev = hctx->queue->queuedata;
	struct request *rq = bd->rq;
	struct flash_cmd *cmd = blk_mq_rq_to_pdu(rq);
	u64 now = ktime_get_ns();
	blk_status_t status;

	blk_mq_start_request(rq);

	cmd->status = flash_fails() ? BLK_STS_IOERR : BLK_STS_OK;
	spin_lock(&dev->lock);
	status = cmd->status ? BLK_STS_OK : flash_move_data(dev, rq);
	if (status != BLK_STS_OK) {
		spin_unlock(&dev->lock);
		return status;
	}
	cmd->due = flash_charge(dev, rq, now);
	spin_unlock(&dev->lock);

	hrtimer_start(&cmd->timer, ns_to_ktime(cmd->due - READ_ONCE(dev->lead)),
		      HRTIMER_MODE_ABS_PINNED_HARD);
	return BLK_STS_OK;
}

static int flash_init_request(struct blk_mq_tag_set *set, struct request *rq,
			      unsigned int hctx_idx, FLASH_NODE_TYPE numa_node)
{
	struct flash_cmd *cmd = blk_mq_rq_to_pdu(rq);

	hrtimer_setup(&cmd->timer, flash_timer_fn, CLOCK_MONOTONIC,
		      HRTIMER_MODE_ABS_PINNED_HARD);
	return 0;
}

static const struct blk_mq_ops flash_mq_ops = {
	.queue_rq	= flash_queue_rq,
	.complete	= flash_complete_rq,
	.init_request	= flash_init_request,
};

static const struct block_device_operations flash_fops = {
	.owner		= THIS_MODULE,
};

/*
 * Coming and going
 */

static int __init flash_check_params(void)
{
	unsigned int i;
	int err = 0;

	for (i = 0; i < THIS_MODULE->num_kp; i++) {
		const struct kernel_param *kp = &THIS_MODULE->kp[i];
		const struct flash_param *param =
			container_of(kp->arg, struct flash_param, value);

		if (param->value >= param->min && param->value <= param->max)
			continue;
		pr_err("%s=%lu is out of range: %lu to %lu\n", kp->name,
		       param->value, param->min, param->max);
		err = -EINVAL;
	}
	return err;
}

static void flash_free_pages(struct flash_device *dev)
{
	struct page *page;
	unsigned long index;

	xa_for_each(&dev->pages, index, page) {
		__free_page(page);
		cond_resched();
	}
	xa_destroy(&dev->pages);
}

static int __init flash_init(void)
{
	struct queue_limits lim = {
		.physical_block_size		= SZ_4K,
		.io_min				= SZ_4K,
		.max_hw_sectors			= FLASH_MAX_TRANSFER >> SECTOR_SHIFT,
		.max_hw_discard_sectors		= FLASH_MAX_DISCARD >> SECTOR_SHIFT,
		.max_write_zeroes_sectors	= FLASH_MAX_DISCARD >> SECTOR_SHIFT,
		.discard_granularity		= SZ_4K,
	};
	struct flash_device *dev;
	sector_t sectors;
	int err;

	err = flash_check_params();
	if (err)
		return err;
	sectors = (sector_t)capacity_mib.value << (20 - SECTOR_SHIFT);

	dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	if (!dev)
		return -ENOMEM;
	spin_lock_init(&dev->lock);
	xa_init(&dev->pages);
	dev->stream_end = ~(sector_t)0;

	dev->tags.ops = &flash_mq_ops;
	dev->tags.nr_hw_queues = 1;
	dev->tags.queue_depth = queue_depth.value;
	dev->tags.numa_node = NUMA_NO_NODE;
	dev->tags.cmd_size = sizeof(struct flash_cmd);
	dev->tags.flags = FLASH_TAG_FLAGS;
	err = blk_mq_alloc_tag_set(&dev->tags);
	if (err)
		goto free_dev;

	dev->disk = flash_alloc_disk(&dev->tags, &lim, volatile_cache.value,
				     dev);
	if (IS_ERR(dev->disk)) {
		err = PTR_ERR(dev->disk);
		goto free_tags;
	}
	dev->disk->fops = &flash_fops;
	dev->disk->private_data = dev;
	strscpy(dev->disk->disk_name, "flash0", DISK_NAME_LEN);
	set_capacity(dev->disk, sectors);

	err = add_disk(dev->disk);
	if (err)
		goto put_disk;
	flash = dev;
	return 0;

put_disk:
	put_disk(dev->disk);
free_tags:
	blk_mq_free_tag_set(&dev->tags);
free_dev:
	flash_free_pages(dev);
	kfree(dev);
	return err;
}

static void __exit flash_exit(void)
{
	del_gendisk(flash->disk);
	put_disk(flash->disk);
	blk_mq_free_tag_set(&flash->tags);
	flash_free_pages(flash);
	kfree(flash);
}

module_init(flash_init);
module_exit(flash_exit);

MODULE_DESCRIPTION("Memory-backed flash device with a service-time model");
MODULE_LICENSE("GPL");
