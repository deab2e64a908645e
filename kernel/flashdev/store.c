// SPDX-License-Identifier: GPL-2.0
/*
 * The data of a device.
 *
 * Reads return what was written last, from the cache or from the medium: there
 * is no need to tell the two apart, and one page has it.  Only a device that
 * loses its cache when a flush fails has to know what was on the medium.  It
 * sets that aside when a page is first written to after a flush:
 *
 *	            pages   medium
 *	write A     A       (zeros)
 *	flush       A       -
 *	write B     B       A
 *	FUA write   B'      A'		the same bytes into both
 *	flush fails A'      -		B is lost, the FUA write is not
 *
 * So @medium has no entry where both are the same, and a flush that succeeds
 * empties it.  While it has an entry, @pages has a page for the same place, or
 * the entry is of zeros: a discard zeroes pages, and frees them only where
 * nothing is set aside.  Losing the cache therefore never needs memory.
 *
 * A flush takes effect when it is dispatched, as all does.  It covers what was
 * dispatched before it, which is more than the block layer asks for.
 */
#include <linux/highmem.h>
#include <linux/mm.h>

#include "flashdev.h"

#define FLASH_GFP	(GFP_ATOMIC | __GFP_NOWARN)

void flash_store_init(struct flash_store *store, bool loses)
{
	xa_init(&store->pages);
	xa_init(&store->medium);
	store->loses = loses;
}

/* Free all pages of @pages, in a context that can sleep. */
static void flash_free_pages(struct xarray *pages)
{
	unsigned long index;
	void *entry;

	xa_for_each(pages, index, entry) {
		if (!xa_is_value(entry))
			__free_page(entry);
		cond_resched();
	}
	xa_destroy(pages);
}

void flash_store_free(struct flash_store *store)
{
	flash_free_pages(&store->pages);
	flash_free_pages(&store->medium);
}

/* A copy that starts and ends with a page is the common case, and cheaper. */
static void flash_copy(void *to, const void *from, unsigned int n)
{
	if (n == PAGE_SIZE && PAGE_ALIGNED(to) && PAGE_ALIGNED(from))
		copy_page(to, (void *)from);
	else
		memcpy(to, from, n);
}

/* The page at @pos; NULL if there are only zeros. */
static struct page *flash_find_page(struct xarray *pages, u64 pos)
{
	void *entry = xa_load(pages, pos >> PAGE_SHIFT);

	return xa_is_value(entry) ? NULL : entry;
}

/* The page at @pos, allocated if there is none; NULL if memory is short. */
static struct page *flash_get_page(struct xarray *pages, u64 pos)
{
	struct page *page = flash_find_page(pages, pos);

	if (page)
		return page;

	page = alloc_page(FLASH_GFP | __GFP_ZERO);
	if (!page)
		return NULL;
	if (xa_err(xa_store(pages, pos >> PAGE_SHIFT, page, FLASH_GFP))) {
		__free_page(page);
		return NULL;
	}
	return page;
}

/*
 * The page at @pos is about to be written to: set aside what is on the medium.
 * False if memory is short.
 */
static bool flash_set_aside(struct flash_store *store, u64 pos)
{
	const unsigned long index = pos >> PAGE_SHIFT;
	struct page *page, *copy;

	if (xa_load(&store->medium, index))
		return true;
	page = flash_find_page(&store->pages, pos);
	if (!page)
		return !xa_err(xa_store(&store->medium, index, xa_mk_value(0),
					FLASH_GFP));

	copy = flash_get_page(&store->medium, pos);
	if (!copy)
		return false;
	copy_highpage(copy, page);
	return true;
}

/* Write @n bytes at @pos, all in one page; false if memory is short. */
static bool flash_put(struct xarray *pages, u64 pos, const void *from,
		      unsigned int n)
{
	struct page *page = flash_get_page(pages, pos);
	void *to;

	if (!page)
		return false;
	to = kmap_local_page(page);
	flash_copy(to + offset_in_page(pos), from, n);
	kunmap_local(to);
	return true;
}

static bool flash_write_part(struct flash_store *store, u64 pos,
			     const void *from, unsigned int n, bool fua)
{
	if (store->loses && !fua && !flash_set_aside(store, pos))
		return false;
	if (!flash_put(&store->pages, pos, from, n))
		return false;
	if (!fua || !xa_load(&store->medium, pos >> PAGE_SHIFT))
		return true;
	return flash_put(&store->medium, pos, from, n);
}

static blk_status_t flash_write_data(struct flash_store *store,
				     struct request *rq)
{
	const bool fua = rq->cmd_flags & REQ_FUA;
	u64 pos = blk_rq_pos(rq) << SECTOR_SHIFT;
	struct req_iterator iter;
	struct bio_vec bv;

	rq_for_each_segment(bv, rq, iter) {
		void *from = bvec_kmap_local(&bv);
		unsigned int done, n;

		for (done = 0; done < bv.bv_len; done += n, pos += n) {
			n = min_t(unsigned int, bv.bv_len - done,
				  PAGE_SIZE - offset_in_page(pos));
			if (!flash_write_part(store, pos, from + done, n,
					      fua)) {
				kunmap_local(from);
				return BLK_STS_RESOURCE;
			}
		}
		kunmap_local(from);
	}
	return BLK_STS_OK;
}

static void flash_read_data(struct flash_store *store, struct request *rq)
{
	u64 pos = blk_rq_pos(rq) << SECTOR_SHIFT;
	struct req_iterator iter;
	struct bio_vec bv;

	rq_for_each_segment(bv, rq, iter) {
		void *to = bvec_kmap_local(&bv);
		unsigned int done, n;

		for (done = 0; done < bv.bv_len; done += n, pos += n) {
			struct page *page = flash_find_page(&store->pages, pos);
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

static void flash_free_page(struct flash_store *store, u64 pos)
{
	struct page *page = xa_erase(&store->pages, pos >> PAGE_SHIFT);

	if (page)
		__free_page(page);
}

static blk_status_t flash_discard_data(struct flash_store *store,
				       struct request *rq)
{
	u64 pos = blk_rq_pos(rq) << SECTOR_SHIFT;
	const u64 end = pos + blk_rq_bytes(rq);

	while (pos < end) {
		unsigned int n = min_t(u64, end - pos,
				       PAGE_SIZE - offset_in_page(pos));
		struct page *page = flash_find_page(&store->pages, pos);

		if (page && store->loses && !flash_set_aside(store, pos))
			return BLK_STS_RESOURCE;
		if (page && n == PAGE_SIZE && !store->loses)
			flash_free_page(store, pos);
		else if (page)
			memzero_page(page, offset_in_page(pos), n);
		pos += n;
	}
	return BLK_STS_OK;
}

/* What is in the cache comes to the medium. */
static void flash_flush_data(struct flash_store *store)
{
	unsigned long index;
	void *entry;

	xa_for_each(&store->medium, index, entry) {
		if (!xa_is_value(entry))
			__free_page(entry);
	}
	xa_destroy(&store->medium);
}

/*
 * The cache is lost: what was on the medium comes back.  Returns how many pages
 * are concerned.
 */
unsigned long flash_store_lose(struct flash_store *store)
{
	unsigned long index, lost = 0;
	void *entry;

	xa_for_each(&store->medium, index, entry) {
		const u64 pos = (u64)index << PAGE_SHIFT;

		if (xa_is_value(entry))
			flash_free_page(store, pos);
		else
			copy_highpage(flash_find_page(&store->pages, pos),
				      entry);
		lost++;
	}
	flash_flush_data(store);
	return lost;
}

/* Do what @rq asks for; BLK_STS_RESOURCE if memory is short. */
blk_status_t flash_store_serve(struct flash_store *store, struct request *rq)
{
	switch (req_op(rq)) {
	case REQ_OP_READ:
		flash_read_data(store, rq);
		return BLK_STS_OK;
	case REQ_OP_WRITE:
		return flash_write_data(store, rq);
	case REQ_OP_DISCARD:
	case REQ_OP_WRITE_ZEROES:
		return flash_discard_data(store, rq);
	case REQ_OP_FLUSH:
		flash_flush_data(store);
		return BLK_STS_OK;
	default:
		return BLK_STS_NOTSUPP;
	}
}
