/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Burst commits: what differs between kernels.
 *
 * Up to 6.13 a journal has a checksum driver, and jbd2 takes it, not the
 * feature, for the sign that its blocks have sums of their own.
 */
#ifndef _JBD2_BURST_COMPAT_H
#define _JBD2_BURST_COMPAT_H

#include <linux/jbd2.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 14, 0)
static inline struct crypto_shash *jbd2_burst_driver(journal_t *journal)
{
	return journal->j_chksum_driver;
}

static inline void jbd2_burst_set_driver(journal_t *journal,
					 struct crypto_shash *driver)
{
	journal->j_chksum_driver = driver;
}
#else
static inline struct crypto_shash *jbd2_burst_driver(journal_t *journal)
{
	return NULL;
}

static inline void jbd2_burst_set_driver(journal_t *journal,
					 struct crypto_shash *driver)
{
}
#endif

#endif	/* _JBD2_BURST_COMPAT_H */
