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
 * Several devices
 *
 * The parameter devices asks for flash0 to flash7.  All have the same prices
 * and the same capacity, of which only what is written to takes memory.  Each
 * has its own data, its own queue and its own time.
 *
 * Failing
 *
 * Writing N to the parameter fail_from makes fail_count requests fail with an
 * I/O error, from the Nth on that is dispatched after that; they cost what they
 * always do and move no data.  Only requests of fail_kind (any, read, write,
 * flush, discard) to the device with the number fail_device are counted, so the
 * second flush from now on fails after
 *
 *	echo flush >fail_kind; echo 1 >fail_count; echo 2 >fail_from
 *
 * dm-flakey and dm-error go by time and by sector: neither fails one flush of
 * many, nor the Nth request.
 *
 * With lose_cache_on_failed_flush a flush that fails takes with it what the
 * volatile cache held: every write and discard since the last flush that
 * succeeded, but for FUA writes.  What was on the medium comes back.  Devices
 * may do so, and it is the worst of what they may do.  Such a flush does not
 * end before the writes that it takes with it, and the kernel log has their
 * number of pages.
 *
 * Limits
 *
 * Costs are constants.  There is no garbage collection that builds up, no
 * cache that fills, no wear; a flush costs the same with nothing to write
 * back.  The power does not fail: of what is in the cache only a failed flush
 * takes anything away.  A flush covers the writes that are under way beside it,
 * too.  One write stream is tracked.  The copy is done by the CPU: a request
 * whose copy takes longer than its service time completes late, and so may a
 * flush of a device that keeps what the medium has.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/hrtimer.h>
#include <linux/module.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "compat.h"
#include "flashdev.h"

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

static struct flash_param queue_depth = { 64, 1, BLK_MQ_MAX_DEPTH };
module_param_named(queue_depth, queue_depth.value, ulong, 0444);
MODULE_PARM_DESC(queue_depth, "Requests that the device holds at a time");

static struct flash_param volatile_cache = { 1, 0, 1 };
module_param_named(volatile_cache, volatile_cache.value, ulong, 0444);
MODULE_PARM_DESC(volatile_cache,
		 "1: volatile write cache, with flush and FUA; 0: none");

static struct flash_param capacity_mib = { 512, 1, SZ_1M };
module_param_named(capacity_mib, capacity_mib.value, ulong, 0444);
MODULE_PARM_DESC(capacity_mib, "Capacity of each device, in MiB");

static struct flash_param devices = { 1, 1, FLASH_MAX_DEVICES };
module_param_named(devices, devices.value, ulong, 0444);
MODULE_PARM_DESC(devices, "Number of devices: flash0, flash1 and so on");

static struct flash_param lose_cache = { 0, 0, 1 };
module_param_named(lose_cache_on_failed_flush, lose_cache.value, ulong, 0444);
MODULE_PARM_DESC(lose_cache_on_failed_flush,
		 "1: a flush that fails takes with it what the volatile cache held");

/**
 * struct flash_device - a device
 * @number: the number in its name
 * @disk: its disk
 * @tags: its tags, queue_depth of them
 * @lead: ns by which timers are armed early; written by whoever completes
 * @lock: protects all below; taken in process context only
 * @store: its data
 * @clock: when it has time
 */
struct flash_device {
	unsigned int number;
	struct gendisk *disk;
	struct blk_mq_tag_set tags;
	s64 lead;

	spinlock_t lock;	/* for what follows */
	struct flash_store store;
	struct flash_clock clock;
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

static struct flash_device *flash[FLASH_MAX_DEVICES];

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

/*
 * Fail @rq, dispatched at @now, or do what it asks for; and charge it.
 * BLK_STS_RESOURCE if memory is short.
 */
static blk_status_t flash_serve(struct flash_device *dev, struct request *rq,
				u64 now)
{
	struct flash_cmd *cmd = blk_mq_rq_to_pdu(rq);
	unsigned long lost = 0;
	blk_status_t status;

	cmd->status = flash_fails(dev->number, rq) ? BLK_STS_IOERR : BLK_STS_OK;
	spin_lock(&dev->lock);
	if (cmd->status == BLK_STS_OK) {
		status = flash_store_serve(&dev->store, rq);
		if (status != BLK_STS_OK) {
			spin_unlock(&dev->lock);
			return status;
		}
	} else if (req_op(rq) == REQ_OP_FLUSH) {
		lost = flash_store_lose(&dev->store);
	}
	cmd->due = flash_charge(&dev->clock, rq, now);
	if (lost)
		cmd->due = dev->clock.all_done;
	spin_unlock(&dev->lock);

	if (lost)
		pr_notice("%s: a flush failed, %lu pages of the cache are lost\n",
			  dev->disk->disk_name, lost);
	return BLK_STS_OK;
}

static blk_status_t flash_queue_rq(struct blk_mq_hw_ctx *hctx,
				   const struct blk_mq_queue_data *bd)
{
	struct flash_device *dev = hctx->queue->queuedata;
	struct flash_cmd *cmd = blk_mq_rq_to_pdu(bd->rq);
	u64 now = ktime_get_ns();
	blk_status_t status;

	blk_mq_start_request(bd->rq);
	status = flash_serve(dev, bd->rq, now);
	if (status == BLK_STS_OK)
		hrtimer_start(&cmd->timer,
			      ns_to_ktime(cmd->due - READ_ONCE(dev->lead)),
			      HRTIMER_MODE_ABS_PINNED_HARD);
	return status;
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
	if (lose_cache.value && !volatile_cache.value) {
		pr_err("lose_cache_on_failed_flush=1 needs volatile_cache=1\n");
		err = -EINVAL;
	}
	return err;
}

static int __init flash_add_disk(struct flash_device *dev)
{
	struct queue_limits lim = {
		.physical_block_size		= SZ_4K,
		.io_min				= SZ_4K,
		.max_hw_sectors			= FLASH_MAX_TRANSFER >> SECTOR_SHIFT,
		.max_hw_discard_sectors		= FLASH_MAX_DISCARD >> SECTOR_SHIFT,
		.max_write_zeroes_sectors	= FLASH_MAX_DISCARD >> SECTOR_SHIFT,
		.discard_granularity		= SZ_4K,
	};
	int err;

	dev->disk = flash_alloc_disk(&dev->tags, &lim, volatile_cache.value,
				     dev);
	if (IS_ERR(dev->disk))
		return PTR_ERR(dev->disk);
	dev->disk->fops = &flash_fops;
	dev->disk->private_data = dev;
	snprintf(dev->disk->disk_name, DISK_NAME_LEN, "flash%u", dev->number);
	set_capacity(dev->disk,
		     (sector_t)capacity_mib.value << (20 - SECTOR_SHIFT));

	err = add_disk(dev->disk);
	if (err)
		put_disk(dev->disk);
	return err;
}

static int __init flash_add_device(unsigned int number)
{
	struct flash_device *dev;
	int err;

	dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	if (!dev)
		return -ENOMEM;
	dev->number = number;
	spin_lock_init(&dev->lock);
	flash_store_init(&dev->store, lose_cache.value);
	flash_clock_init(&dev->clock);

	dev->tags.ops = &flash_mq_ops;
	dev->tags.nr_hw_queues = 1;
	dev->tags.queue_depth = queue_depth.value;
	dev->tags.numa_node = NUMA_NO_NODE;
	dev->tags.cmd_size = sizeof(struct flash_cmd);
	dev->tags.flags = FLASH_TAG_FLAGS;
	err = blk_mq_alloc_tag_set(&dev->tags);
	if (err)
		goto free_dev;
	err = flash_add_disk(dev);
	if (err)
		goto free_tags;
	flash[number] = dev;
	return 0;

free_tags:
	blk_mq_free_tag_set(&dev->tags);
free_dev:
	flash_store_free(&dev->store);
	kfree(dev);
	return err;
}

static void flash_remove_devices(void)
{
	unsigned int number;

	for (number = 0; number < FLASH_MAX_DEVICES; number++) {
		struct flash_device *dev = flash[number];

		if (!dev)
			continue;
		del_gendisk(dev->disk);
		put_disk(dev->disk);
		blk_mq_free_tag_set(&dev->tags);
		flash_store_free(&dev->store);
		kfree(dev);
	}
}

static int __init flash_init(void)
{
	unsigned int number;
	int err = flash_check_params();

	for (number = 0; !err && number < devices.value; number++)
		err = flash_add_device(number);
	if (err)
		flash_remove_devices();
	return err;
}

static void __exit flash_exit(void)
{
	flash_remove_devices();
}

module_init(flash_init);
module_exit(flash_exit);

MODULE_DESCRIPTION("Memory-backed flash device with a service-time model");
MODULE_LICENSE("GPL");
