/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between the kernels that mtime_*.c are built for, and nothing else.
 * They are written for the newest of them; this gives the older ones what
 * they lack, and ->update_time() the arguments that each of them passes.
 */
#ifndef _EXT4_MTIME_COMPAT_H
#define _EXT4_MTIME_COMPAT_H

#include <linux/fs.h>
#include <linux/version.h>

#include "mtime_internal.h"

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 7, 0)

static inline struct timespec64 inode_get_mtime(const struct inode *inode)
{
	return inode->i_mtime;
}

static inline void inode_set_mtime_to_ts(struct inode *inode,
					 struct timespec64 ts)
{
	inode->i_mtime = ts;
}

static inline s64 ext4_mtime_decode_ns(__le32 base, __le32 extra)
{
	struct timespec64 ts = { .tv_sec = (signed int)le32_to_cpu(base) };

	ext4_decode_extra_time(&ts, extra);
	return timespec64_to_ns(&ts);
}

/* The stamps of a raw inode. */
static inline void ext4_mtime_get_stamps(struct inode *inode,
					 const struct ext4_inode *raw,
					 struct ext4_mtime_stamps *stamps)
{
	struct ext4_inode_info *ei = EXT4_I(inode);
	__le32 atime_extra = EXT4_FITS_IN_INODE(raw, ei, i_atime_extra) ?
		raw->i_atime_extra : 0;
	__le32 mtime_extra = EXT4_FITS_IN_INODE(raw, ei, i_mtime_extra) ?
		raw->i_mtime_extra : 0;
	__le32 ctime_extra = EXT4_FITS_IN_INODE(raw, ei, i_ctime_extra) ?
		raw->i_ctime_extra : 0;

	stamps->atime_ns = ext4_mtime_decode_ns(raw->i_atime, atime_extra);
	stamps->mtime_ns = ext4_mtime_decode_ns(raw->i_mtime, mtime_extra);
	stamps->ctime_ns = ext4_mtime_decode_ns(raw->i_ctime, ctime_extra);
}

#else

static inline void ext4_mtime_get_stamps(struct inode *inode,
					 const struct ext4_inode *raw,
					 struct ext4_mtime_stamps *stamps)
{
	struct timespec64 atime, mtime, ctime;

	atime = EXT4_INODE_GET_XTIME_VAL(i_atime, inode, raw);
	mtime = EXT4_INODE_GET_XTIME_VAL(i_mtime, inode, raw);
	ctime = EXT4_INODE_GET_XTIME_VAL(i_ctime, inode, raw);
	stamps->atime_ns = timespec64_to_ns(&atime);
	stamps->mtime_ns = timespec64_to_ns(&mtime);
	stamps->ctime_ns = timespec64_to_ns(&ctime);
}

#endif

/*
 * Make ctime @ts unless it is later. stat() of a multigrain inode marks its
 * ctime as queried without a lock, and other stamps are swapped in without
 * i_lock, so there it takes a swap as well.
 */
static inline void ext4_mtime_raise_ctime(struct inode *inode,
					  struct timespec64 ts)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	inode_set_ctime_deleg(inode, ts);
#else
	inode_set_ctime_to_ts(inode, ts);
#endif
}

/* Is eager_sync in force, which older kernels do not have? */
static inline bool ext4_mtime_has_bursts(struct super_block *sb)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
	return ext4_eager_in_force(sb);
#else
	return false;
#endif
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0)

static inline int ext4_update_time(struct inode *inode,
				   enum fs_update_time type,
				   unsigned int flags)
{
	unsigned int policy = ext4_mtime_policy(inode->i_sb);

	if (unlikely(policy) && type == FS_UPD_CMTIME)
		return ext4_mtime_update(inode, policy, flags & IOCB_NOWAIT);
	return generic_update_time(inode, type, flags);
}

static inline void ext4_mtime_update_exact(struct inode *inode)
{
	generic_update_time(inode, FS_UPD_CMTIME, 0);
}

#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 6, 0)

static inline int ext4_update_time(struct inode *inode, int flags)
{
	unsigned int policy = ext4_mtime_policy(inode->i_sb);

	if (unlikely(policy) && !(flags & S_ATIME))
		return ext4_mtime_update(inode, policy, false);
	generic_update_time(inode, flags);
	return 0;
}

static inline void ext4_mtime_update_exact(struct inode *inode)
{
	generic_update_time(inode, S_MTIME | S_CTIME | S_VERSION);
}

#else

static inline int ext4_update_time(struct inode *inode, struct timespec64 *now,
				   int flags)
{
	unsigned int policy = ext4_mtime_policy(inode->i_sb);

	if (unlikely(policy) && !(flags & S_ATIME))
		return ext4_mtime_update(inode, policy, false);
	return generic_update_time(inode, now, flags);
}

static inline void ext4_mtime_update_exact(struct inode *inode)
{
	struct timespec64 now = current_time(inode);

	generic_update_time(inode, &now, S_MTIME | S_CTIME | S_VERSION);
}

#endif

#endif	/* _EXT4_MTIME_COMPAT_H */
