// SPDX-License-Identifier: GPL-2.0
/*
 * Which request fails: those of fail_device and of fail_kind are counted from
 * when fail_from is written, and fail_count of them fail from the fail_from'th
 * on.
 */
#include <linux/atomic.h>
#include <linux/module.h>
#include <linux/string.h>

#include "flashdev.h"

enum flash_kind {
	FLASH_ANY, FLASH_READ, FLASH_WRITE, FLASH_FLUSH, FLASH_DISCARD,
};

static const char * const flash_kinds[] = {
	[FLASH_ANY]	= "any",
	[FLASH_READ]	= "read",
	[FLASH_WRITE]	= "write",
	[FLASH_FLUSH]	= "flush",
	[FLASH_DISCARD]	= "discard",
};

static struct flash_param fail_count = { 1, 1, ULONG_MAX };
module_param_named(fail_count, fail_count.value, ulong, 0644);
MODULE_PARM_DESC(fail_count, "Requests that fail, from fail_from on");

static struct flash_param fail_device = { 0, 0, FLASH_MAX_DEVICES - 1 };
module_param_named(fail_device, fail_device.value, ulong, 0644);
MODULE_PARM_DESC(fail_device, "The number of the device whose requests fail");

static int flash_set_kind(const char *text, const struct kernel_param *kp)
{
	int kind = sysfs_match_string(flash_kinds, text);

	if (kind < 0)
		return kind;
	WRITE_ONCE(*(unsigned long *)kp->arg, kind);
	return 0;
}

static int flash_get_kind(char *text, const struct kernel_param *kp)
{
	return sysfs_emit(text, "%s\n", flash_kinds[*(unsigned long *)kp->arg]);
}

static const struct kernel_param_ops flash_kind_ops = {
	.set = flash_set_kind,
	.get = flash_get_kind,
};

static struct flash_param fail_kind = { FLASH_ANY, FLASH_ANY, FLASH_DISCARD };
module_param_cb(fail_kind, &flash_kind_ops, &fail_kind.value, 0644);
MODULE_PARM_DESC(fail_kind,
		 "Requests that are counted and fail: any, read, write, flush or discard");

/* Requests of the kind since fail_from was written. */
static atomic_long_t flash_dispatched;

static int flash_set_from(const char *text, const struct kernel_param *kp)
{
	atomic_long_set(&flash_dispatched, 0);
	return param_set_ulong(text, kp);
}

static const struct kernel_param_ops flash_from_ops = {
	.set = flash_set_from,
	.get = param_get_ulong,
};

static struct flash_param fail_from = { 0, 0, ULONG_MAX };
module_param_cb(fail_from, &flash_from_ops, &fail_from.value, 0644);
MODULE_PARM_DESC(fail_from,
		 "First request that fails, counted from when this is written (0: none does)");

static enum flash_kind flash_kind_of(struct request *rq)
{
	switch (req_op(rq)) {
	case REQ_OP_READ:
		return FLASH_READ;
	case REQ_OP_WRITE:
		return FLASH_WRITE;
	case REQ_OP_FLUSH:
		return FLASH_FLUSH;
	default:
		return FLASH_DISCARD;
	}
}

/* Is it the turn of @rq to fail? To be asked once for each request. */
bool flash_fails(unsigned int device, struct request *rq)
{
	unsigned long from = READ_ONCE(fail_from.value);
	unsigned long kind = READ_ONCE(fail_kind.value);
	unsigned long number;

	if (!from || device != READ_ONCE(fail_device.value))
		return false;
	if (kind != FLASH_ANY && kind != flash_kind_of(rq))
		return false;
	number = atomic_long_inc_return(&flash_dispatched);
	return number >= from && number - from < READ_ONCE(fail_count.value);
}
