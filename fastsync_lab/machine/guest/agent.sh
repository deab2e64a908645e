# shellcheck shell=bash
# The guest's end of fastsync_lab/machine/vm.py. It is the first process of the booted guest, started by
# init.sh, and serves requests from the port "fastsync" until the host hangs up:
#
#   run LENGTH       then LENGTH bytes of bash; answered by "done STATUS OUT ERR" and OUT + ERR bytes
#   attach LENGTH    the same, with the ports fastsync.in, .out and .err as the script's streams;
#                    answered by "done STATUS 0 0". What comes on fastsync.in is in pieces: LENGTH
#                    in a line, then as many bytes, answered by an empty line; 0 is the end
#   put LENGTH NAME  then LENGTH bytes, which become the program $home/files/NAME; answered by
#                    "done STATUS 0 0"
#   off              switch the machine off
#
# Where "then" is, User-Mode Linux has a file: body, or for a piece: input.
#
# Scripts run in a subshell of this bash. Each is noted in the kernel's log before it begins, as
# script N, so that what the kernel says can be told to be of one; $FASTSYNC_SCRIPT is its N.

set -u
home=/run/fastsync
mkdir -p "$home/files" "$home/out" "$home/tmp" /dev/pts /dev/shm
cd "$home" || exit
export FASTSYNC_OUT=$home/out HOME=/root LC_ALL=C.UTF-8
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export DM_DISABLE_UDEV=1 # there is none; dmsetup makes the nodes of its devices by itself

mount -t devpts -o mode=600,ptmxmode=000 devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/tracing
[ ! -d /sys/fs/cgroup ] || mount -t cgroup2 cgroup2 /sys/fs/cgroup
hostname fastsync
busybox ifconfig lo up 2>/dev/null
echo 127.0.0.1 localhost >>/etc/hosts
ln -sfn /proc/self/mounts /etc/mtab
ln -sfn /proc/self/fd /dev/fd
ln -sfn /proc/self/fd/0 /dev/stdin
ln -sfn /proc/self/fd/1 /dev/stdout
ln -sfn /proc/self/fd/2 /dev/stderr

power_off() {
	echo o >/proc/sysrq-trigger
	sleep 60
}

# shellcheck source=fastsync_lab/machine/guest/qemu.sh
. "$home/machine.sh"

# Prints the device node of the port named $1; it may come later than we.
port() {
	local device
	for _ in {1..100}; do
		device=$(port_device "$1")
		[ -z "$device" ] || { echo "$device" && return; }
		sleep 0.1
	done
	echo "no port $1" >&2
	return 1
}

# Folders of the host: its tag, ro or rw, and where it is to be seen.
share() {
	mkdir -p "$3" && mount_share "$@"
}
while read -r tag access folder; do
	share "$tag" "$access" "$folder" || power_off
done <"$home/shares"

# Receives a script of $1 bytes into $home/script.
export FASTSYNC_SCRIPT=0
receive() {
	body "$1" 3 body >"$home/script"
	FASTSYNC_SCRIPT=$((FASTSYNC_SCRIPT + 1))
	echo "<7>fastsync: script $FASTSYNC_SCRIPT" >/dev/kmsg
}

answer_put() {
	body "$1" 3 body >"$home/files/$2" && chmod +x "$home/files/$2"
	printf 'done %d 0 0\n' $? >&7
}

answer_run() {
	local status
	(
		exec 3<&- 7>&-
		set +u
		# shellcheck source=/dev/null
		. "$home/script"
	) </dev/null >"$home/stdout" 2>"$home/stderr"
	status=$?
	busybox sh -c 'set -- "$1" $(stat -c %s stdout stderr)
		echo "done $*"
		exec cat stdout stderr' answer "$status" >&7
}

# Writes the pieces that come to stdout.
pieces() {
	local length
	while read -r length <&4 && [ "$length" -gt 0 ]; do
		body "$length" 4 input || break
		echo >&8
	done
}

# A virtio port can be open only once, hence the pipes: the command may open /dev/stdout again.
answer_attach() {
	local status in out err
	open_input "$(port fastsync.in)"
	exec 5>"$(port fastsync.out)" 6>"$(port fastsync.err)"
	mkfifo "$home/in" "$home/out.fifo" "$home/err.fifo"
	pieces >"$home/in" 2>/dev/null &
	in=$!
	cat <"$home/out.fifo" >&5 &
	out=$!
	cat <"$home/err.fifo" >&6 &
	err=$!
	(
		exec 3<&- 4<&- 5>&- 6>&- 7>&- 8>&-
		set +u
		# shellcheck source=/dev/null
		. "$home/script"
	) <"$home/in" >"$home/out.fifo" 2>"$home/err.fifo"
	status=$?
	kill "$in" 2>/dev/null
	wait "$out" "$err"
	exec 4<&- 5>&- 6>&- 8>&-
	rm -f "$home/in" "$home/out.fifo" "$home/err.fifo"
	printf 'done %d 0 0\n' "$status" >&7
}

# Waits until the host asks for something. In virtual time it keeps the processor busy meanwhile: the
# clock of an idle guest jumps, and seconds would pass before a busy host has stopped the guest.
read -r clock <"$home/clock"
await_request() {
	[ "$clock" = virtual ] || return 0
	until read -rt 0 <&3; do :; done
}

control=$(port fastsync) || power_off
open_control "$control"
printf 'ready\n' >&7
while await_request && read -r request length name <&3; do
	case $request in
	run) receive "$length" && answer_run ;;
	attach) receive "$length" && answer_attach ;;
	put) answer_put "$length" "$name" ;;
	off) power_off ;;
	esac
done
power_off
