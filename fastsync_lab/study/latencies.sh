# shellcheck shell=bash
# The guest's part of fastsync_lab/study/latencies.py, which puts this function before its scripts,
# and machine/trace.sh before both.

# Runs the program $1, with the arguments behind it, on the device; block requests are traced.
probe() {
	local program=$1 status
	shift
	start_trace x86-tsc 4096 || return
	"$program" "${FASTSYNC_DEV?}" "$@"
	status=$?
	stop_trace
	cat "$TRACING"/per_cpu/cpu*/stats >"${FASTSYNC_OUT?}/stats" || return
	return $status
}
