# The guest's end of fastsync_lab/vm.py. It runs as root in the booted guest, started by
# virtme-init, and serves requests from the virtio port "fastsync" until the host hangs up:
#
#   run LENGTH       then LENGTH bytes of bash; answered by "done STATUS OUT ERR" and OUT + ERR bytes
#   attach LENGTH    the same, with the ports fastsync.in, .out and .err as the script's streams;
#                    answered by "done STATUS 0 0"
#   off              switch the machine off
#
# Scripts run in a subshell of this bash, so that nothing is loaded from the 9p root to start one.

set -u
home=/run/fastsync
mkdir -p "$home/bin" "$home/tmp"
cd "$home" || exit
export FASTSYNC_OUT=$home/out HOME=/root LC_ALL=C.UTF-8
export PATH=$home/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
unset TMPDIR
ln -sfn /proc/self/fd/0 /dev/stdin
ln -sfn /proc/self/fd/1 /dev/stdout
ln -sfn /proc/self/fd/2 /dev/stderr

power_off() {
	echo o >/proc/sysrq-trigger
	sleep 60
}

# Prints the device node of the virtio port named $1; udev's names for them may come later than we.
port_device() {
	local entry name attempt
	for attempt in {1..100}; do
		for entry in /sys/class/virtio-ports/*; do
			read -r name 2>/dev/null <"$entry/name" || continue
			[ "$name" != "$1" ] || { echo "/dev/${entry##*/}" && return; }
		done
		sleep 0.1
	done
	echo "no virtio port $1" >&2
	return 1
}

# Receives a script of $1 bytes into $home/script. To read and answer, a busybox in memory: each
# program loaded from the 9p root costs a tenth of a second. Staged programs are started by it, too.
busybox=$home/busybox
cp -L "$(command -v busybox)" "$busybox"
receive() {
	"$busybox" head -c "$1" <&3 >"$home/script"
}

answer_run() {
	local status
	(
		exec 3<&-
		set +u
		. "$home/script"
	) </dev/null >"$home/stdout" 2>"$home/stderr"
	status=$?
	"$busybox" sh -c 'set -- "$1" $(stat -c %s stdout stderr)
		echo "done $*"
		exec cat stdout stderr' answer "$status" >&3
}

# A virtio port can be open only once, hence the pipes: the command may open /dev/stdout again.
answer_attach() {
	local status in out err
	exec 4<"$(port_device fastsync.in)" 5>"$(port_device fastsync.out)" \
		6>"$(port_device fastsync.err)"
	mkfifo "$home/in" "$home/out.fifo" "$home/err.fifo"
	cat <&4 >"$home/in" 2>/dev/null &
	in=$!
	cat <"$home/out.fifo" >&5 &
	out=$!
	cat <"$home/err.fifo" >&6 &
	err=$!
	(
		exec 3<&- 4<&- 5<&- 6<&-
		set +u
		. "$home/script"
	) <"$home/in" >"$home/out.fifo" 2>"$home/err.fifo"
	status=$?
	kill "$in" 2>/dev/null
	wait "$out" "$err"
	exec 4<&- 5<&- 6<&-
	rm -f "$home/in" "$home/out.fifo" "$home/err.fifo"
	printf 'done %d 0 0\n' "$status" >&3
}

control=$(port_device fastsync) && exec 3<>"$control" || power_off
printf 'ready\n' >&3
while read -r request length <&3; do
	case $request in
	run) receive "$length" && answer_run ;;
	attach) receive "$length" && answer_attach ;;
	off) power_off ;;
	esac
done
power_off
