# shellcheck shell=bash
# One run of a cell, in the guest. fastsync_lab/study/plan.py says what is to be done, in variables
# and functions, puts machine/trace.sh behind them, and then sources this:
#
#   FS_KIND FS_MKFS FS_OPTIONS	the file system; an empty kind: the device itself
#   PHASE PHASES		at which part of a tick the run begins: 1 of 5, say
#   TRACED			1: block requests are traced, into $FASTSYNC_OUT/trace
#   set_queue prepare run	functions: the scheduler, what comes first, what is measured
#
# What is printed comes in sections. The run takes the journal as the preparation has left it: not
# checkpointed, not emptied, the same for all that are compared.

: "${FS_KIND?}" "${FS_MKFS?}" "${FS_OPTIONS?}" "${PHASE?}" "${PHASES?}" "${TRACED?}" "${FASTSYNC_DEV?}" "${TRACING?}"
MOUNT_POINT=/run/fastsync/mnt
MARKER=$TRACING/trace_marker
QUEUE=/sys/block/${FASTSYNC_DEV##*/}/queue
TRACE_BUFFER_KIB=65536
SETTLE_S=6 # longer than jbd2's periodic commit and the first write-back (5 s)
export MARKER QUEUE

section() {
	echo "== fastsync section $1"
}

# Runs a command between two marks in the trace, by which the requests of subject $1 are cut out.
measured() {
	local subject=$1 status
	shift
	echo "fastsync begin $subject" >"$MARKER"
	"$@"
	status=$?
	echo "fastsync end $subject" >"$MARKER"
	return $status
}

# The same of the run itself, timed: prints $1, how many operations it has, and its microseconds.
timed() {
	local operations=$1 start=${EPOCHREALTIME/./} status
	shift
	measured '' "$@"
	status=$?
	echo "$operations $((${EPOCHREALTIME/./} - start))"
	return $status
}

# Ends at part $PHASE of $PHASES of a timer's tick, to the time that bash takes for a turn. A sleep
# ends some hundred microseconds late, now more, now less: the last tick is waited for awake.
wait_for_phase() {
	local hz tick_us now_us target_us seconds
	hz=$(sed -n 's/^CONFIG_HZ=//p' "/boot/config-$(uname -r)")
	tick_us=$((1000000 / hz))
	now_us=${EPOCHREALTIME/./}
	target_us=$((now_us - now_us % tick_us + 4 * tick_us + tick_us * PHASE / PHASES))
	printf -v seconds '0.%06d' $((target_us - now_us - 2 * tick_us))
	busybox sleep "$seconds"
	while ((${EPOCHREALTIME/./} < target_us)); do :; done
}

print_lost_events() {
	local file
	section stats
	for file in "$TRACING"/per_cpu/cpu*/stats; do
		echo "$(<"$file")"
	done
}

# Where blocks lie: the journal, folders (their numbers are in the file "folders"), the rest.
print_layout() {
	section dumpe2fs
	dumpe2fs "$FASTSYNC_DEV" 2>/dev/null
	printf 'blocks <8>\n' >commands
	section journal
	debugfs -f commands "$FASTSYNC_DEV" 2>/dev/null
	section folders
	debugfs -f folders "$FASTSYNC_DEV" 2>/dev/null
	rm commands folders
}

print_file_system() {
	local line counter folder=/sys/fs/ext4/${FASTSYNC_DEV##*/}
	section mounted
	while read -r line; do
		case $line in *" $MOUNT_POINT "*) echo "$line" ;; esac
	done </proc/mounts
	section counters
	for counter in mtime_updates_done mtime_updates_skipped mtime_commits_avoided; do
		[ ! -e "$folder/$counter" ] || echo "$counter $(<"$folder/$counter")"
	done
	[ ! -e "$folder/eager_stats" ] || grep ' [0-9]\+$' "$folder/eager_stats"
}

mkdir -p $MOUNT_POINT || exit
! mountpoint -q $MOUNT_POINT || umount $MOUNT_POINT || exit
set_queue || exit
if [ -n "$FS_KIND" ]; then
	$FS_MKFS "$FASTSYNC_DEV" >/dev/null || exit
	mount -t "$FS_KIND" -o "$FS_OPTIONS" "$FASTSYNC_DEV" $MOUNT_POINT || exit
	cd $MOUNT_POINT || exit
fi
section prepare
prepare || exit
sync
sleep $SETTLE_S
wait_for_phase
[ "$TRACED" = 0 ] || start_trace mono $TRACE_BUFFER_KIB
section result
run
status=$?
[ "$TRACED" = 0 ] || stop_trace
[ $status = 0 ] || exit $status
[ "$TRACED" = 0 ] || print_lost_events
if [ -n "$FS_KIND" ]; then
	print_file_system
	[ "$FS_KIND" != ext4 ] || find $MOUNT_POINT -xdev -type d -printf 'blocks <%i>\n' >/run/fastsync/folders
	cd /run/fastsync && umount $MOUNT_POINT || exit
	[ "$FS_KIND" != ext4 ] || [ "$TRACED" = 0 ] || print_layout
fi
