# shellcheck shell=bash
# The guest's part of fastsync_lab/study/latencies.py, which puts this function before its scripts.

# Runs the program $1, with the arguments behind it, on the device. Block requests are traced
# meanwhile, into $FASTSYNC_OUT/trace; in virtual time the TSC counts ns.
probe() {
	local tracing=/sys/kernel/tracing program=$1 event status
	shift
	mountpoint -q $tracing || mount -t tracefs tracefs $tracing || return
	echo 0 >$tracing/tracing_on
	echo x86-tsc >$tracing/trace_clock
	echo >$tracing/trace
	echo 4096 >$tracing/buffer_size_kb
	for event in issue complete; do
		echo 1 >$tracing/events/block/block_rq_$event/enable || return
	done
	echo 1 >$tracing/tracing_on
	"$program" "${FASTSYNC_DEV?}" "$@"
	status=$?
	echo 0 >$tracing/tracing_on
	echo 0 >$tracing/events/block/enable
	cat $tracing/trace >"${FASTSYNC_OUT?}/trace"
	echo local >$tracing/trace_clock
	return $status
}
