// SPDX-License-Identifier: GPL-2.0
/*
 * What a request costs: the table in main.c, and the parameters it is made of.
 */
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/sizes.h>
#include <linux/time64.h>

#include "flashdev.h"

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

void flash_clock_init(struct flash_clock *clock)
{
	*clock = (struct flash_clock) {
		.stream_end = ~(sector_t)0,
	};
}

static u64 flash_transfer_ns(unsigned int bytes, unsigned long mib_s)
{
	if (!mib_s)
		return 0;
	return div64_ul((u64)bytes * NSEC_PER_SEC, mib_s << 20);
}

/*
 * Charge @rq, dispatched at @now, to the device: returns when it is done, in ns
 * of CLOCK_MONOTONIC.
 */
u64 flash_charge(struct flash_clock *clock, struct request *rq, u64 now)
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
		if (blk_rq_pos(rq) != clock->stream_end)
			occupied += random_write_ns.value;
		if (rq->cmd_flags & REQ_FUA)
			latency += fua_ns.value;
		clock->stream_end = blk_rq_pos(rq) + blk_rq_sectors(rq);
		break;
	case REQ_OP_FLUSH:
		occupied = flush_ns.value;
		break;
	default:
		latency = discard_ns.value;
		break;
	}

	clock->busy_until = max(clock->busy_until, now) + occupied;
	clock->all_done = max(clock->all_done, clock->busy_until + latency);
	return clock->busy_until + latency;
}
