// SPDX-License-Identifier: GPL-2.0
/*
 * kernel/qasio/dispatch.c in userspace: a dispatch that finds nothing to do and a completion that
 * changes that, at once, on two processors that see each other's stores late.
 *
 * One of the two runs; somewhere between two of its accesses the other one does, from its beginning
 * to its end. What a processor stores, and what an atomic operation without a result changes, only it
 * sees until its next barrier, or its end: Linux promises no more. Barriers can be left out.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint32_t u32;
typedef uint64_t u64, sector_t, phys_addr_t;
typedef u32 blk_opf_t, blk_insert_t;
typedef struct { int counter; } atomic_t;
typedef int spinlock_t;
struct list_head { struct list_head *next, *prev; };
struct rb_node { struct rb_node *rb_left, *rb_right; };
struct rb_root { struct rb_node *rb_node; };
struct hrtimer { u64 expires; bool active; };
struct bio;
enum elv_merge { ELEVATOR_NO_MERGE };

struct blk_mq_tag_set { unsigned int queue_depth; };
struct elevator_queue { void *elevator_data; };
struct request_queue {
	struct elevator_queue *elevator;
	struct blk_mq_tag_set *tag_set;
};
struct blk_mq_hw_ctx { struct request_queue *queue; };
struct request {
	struct list_head queuelist;
	struct rb_node rb_node;
	blk_opf_t cmd_flags;
	u32 rq_flags;
	u64 fifo_time;
	struct { void *priv[2]; } elv;
};

#define container_of(p, type, member)	((type *)((char *)(p) - offsetof(type, member)))
#define list_empty(head)		((head)->next == (head))
#define list_first_entry_or_null(head, type, member) \
	(list_empty(head) ? NULL : container_of((head)->next, type, member))
#define list_for_each_entry(p, head, member) \
	for (p = container_of((head)->next, typeof(*p), member); &p->member != (head); \
	     p = container_of(p->member.next, typeof(*p), member))
#define rb_entry_rq(node)	container_of(node, struct request, rb_node)
#define min(a, b)		((a) < (b) ? (a) : (b))
#define max(a, b)		((a) > (b) ? (a) : (b))
#define HZ			1000
#define NSEC_PER_USEC		1000L
#define NSEC_PER_MSEC		1000000L
#define SZ_1K			1024
#define SZ_64K			65536
#define REQ_META		1
#define REQ_PRIO		2
#define REQ_SWAP		4
#define RQF_STARTED		1
#define HRTIMER_MODE_ABS	0
#define op_is_write(opf)	true
#define op_is_sync(opf)		false
#define msecs_to_jiffies(ms)	(ms)
#define jiffies			1000000UL
#define time_before(a, b)	((long)((a) - (b)) < 0)
#define time_is_before_eq_jiffies(a)	(!time_before(jiffies, a))
#define time_is_after_jiffies(a)	time_before(jiffies, a)
#define ktime_get_ns()		(jiffies * NSEC_PER_MSEC)
#define ns_to_ktime(ns)		(ns)
#define ktime_to_ns(t)		(t)
#define hrtimer_get_expires(t)	((t)->expires)
#define hrtimer_active(t)	((t)->active)
#define hrtimer_start(t, at, mode)	((t)->expires = (at), (t)->active = true)
#define spin_lock(l)		((void)(l))
#define spin_unlock(l)		((void)(l))

static void another_cpu(void);
static void store(bool *at, bool value);
static void barrier(void);

#define READ_ONCE(x)		({ typeof(x) seen = (x); another_cpu(); seen; })
#define WRITE_ONCE(x, value)	store(&(x), value)
#define atomic_read(a)		READ_ONCE((a)->counter)
#define smp_mb()		barrier()

static void list_del_init(struct list_head *entry)
{
	entry->next->prev = entry->prev;
	entry->prev->next = entry->next;
	entry->next = entry->prev = entry;
}

static sector_t blk_rq_pos(struct request *rq) { (void)rq; return 0; }
static unsigned int blk_rq_bytes(struct request *rq) { (void)rq; return 512 * SZ_1K; }
static unsigned int blk_rq_sectors(struct request *rq) { return blk_rq_bytes(rq) / 512; }
static void blk_mq_run_hw_queues(struct request_queue *q, bool async);

#include "dispatch.c"

void qasio_count_in_flight(struct qasio_queue *qd, struct request *rq) { (void)qd, (void)rq; }

void qasio_dequeue(struct qasio_queue *qd, struct request *rq)
{
	list_del_init(&rq->queuelist);
	qd->queued--;
}

/* Two processors; what the one has stored and only it sees. */
enum { DISPATCH, COMPLETE };
struct processor {
	unsigned int stored;
	struct { bool *at, value; } late[4];
	bool freed;		/* the device is, late */
	bool has_barrier;
};

static struct processor processors[2];
static int now;			/* which of them runs */
static int steps_left;		/* until the other one does */
static bool inside;		/* it does */
static bool dispatched, run_again;
static struct qasio_queue qd;
static struct blk_mq_tag_set tags = { .queue_depth = 32 };
static struct elevator_queue elevator = { .elevator_data = &qd };
static struct request_queue queue = { .elevator = &elevator, .tag_set = &tags };
static struct blk_mq_hw_ctx hctx = { .queue = &queue };
static struct request request;

static void blk_mq_run_hw_queues(struct request_queue *q, bool async)
{
	(void)q, (void)async;
	run_again = true;
}

static void store(bool *at, bool value)
{
	struct processor *p = &processors[now];

	p->late[p->stored].at = at;
	p->late[p->stored++].value = value;
	another_cpu();
}

static void be_seen(struct processor *p)
{
	for (unsigned int i = 0; i < p->stored; i++)
		*p->late[i].at = p->late[i].value;
	p->stored = 0;
	if (p->freed)
		qd.in_flight.counter = qd.in_flight_sectors.counter = 0;
	p->freed = false;
}

static void barrier(void)
{
	if (processors[now].has_barrier)
		be_seen(&processors[now]);
	another_cpu();
}

static void run(int which)
{
	now = which;
	if (which == DISPATCH) {
		dispatched |= !!qasio_dispatch_request(&hctx);
	} else {
		processors[which].freed = true;	/* qasio_uncount_in_flight() */
		another_cpu();
		qasio_wake(&qd);
	}
	be_seen(&processors[which]);
}

static void another_cpu(void)
{
	int which = now;

	if (inside || steps_left-- != 0)
		return;
	inside = true;
	run(!which);
	now = which;
	inside = false;
}

static void begin(void)
{
	qd = (struct qasio_queue){ .q = &queue, .queued = 1 };
	qd.dispatch = (struct list_head){ &qd.dispatch, &qd.dispatch };
	for (int i = 0; i < QASIO_LEVELS * QASIO_KINDS; i++) {
		struct qasio_list *list = &qd.level[i / QASIO_KINDS].list[i % QASIO_KINDS];

		list->fifo = (struct list_head){ &list->fifo, &list->fifo };
		list->kind = i % QASIO_KINDS;
	}
	/* Somebody waits for a request that the device, with one of 1 MiB, has no room for. */
	struct qasio_list *list = &qd.level[QASIO_BE].list[QASIO_BOOSTED];

	request = (struct request){ .fifo_time = jiffies };
	request.elv.priv[1] = list;
	request.queuelist = (struct list_head){ &list->fifo, &list->fifo };
	list->fifo = (struct list_head){ &request.queuelist, &request.queuelist };
	qd.level[QASIO_BE].alive.counter = qd.level[QASIO_BE].waited_for.counter = 1;
	qd.in_flight.counter = 1;
	qd.in_flight_sectors.counter = 2 * SZ_1K;
	qd.tunable[QASIO_ASYNC_KIB] = SZ_1K;
	qd.tunable[QASIO_ASYNC_WAIT_MS] = 100;
	dispatched = run_again = inside = false;
}

/*
 * One of the two runs, the other one after so many of its accesses.  Returns whether the request
 * stays in the queue with nobody to run it, or -1 if there are fewer accesses.
 */
int stalls(int first, int steps, bool dispatch_barrier, bool complete_barrier)
{
	begin();
	processors[DISPATCH] = (struct processor){ .has_barrier = dispatch_barrier };
	processors[COMPLETE] = (struct processor){ .has_barrier = complete_barrier };
	steps_left = steps;
	run(first);
	if (steps_left >= 0)
		return -1;
	inside = true;
	if (!dispatched && run_again && qasio_has_work(&hctx))
		run(DISPATCH);
	return !dispatched;
}
