# shellcheck shell=bash
# Block requests are traced between these two; fastsync_lab/machine/trace.py reads what they leave
# in $TRACING/trace. It stands before the scripts that call them.

TRACING=/sys/kernel/tracing

# By clock $1: "mono", or "x86-tsc", which in virtual time counts ns. $2: KiB for a processor's events.
start_trace() {
	local event
	echo 0 >$TRACING/tracing_on
	echo "$1" >$TRACING/trace_clock
	echo "$2" >$TRACING/buffer_size_kb
	echo >$TRACING/trace
	for event in issue complete; do
		echo 1 >$TRACING/events/block/block_rq_$event/enable || return
	done
	echo 1 >$TRACING/tracing_on
}

stop_trace() {
	echo 0 >$TRACING/tracing_on
	echo 0 >$TRACING/events/block/enable
	cat $TRACING/trace >"${FASTSYNC_OUT?}/trace"
}
