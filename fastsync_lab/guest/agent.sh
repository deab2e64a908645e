# shellcheck shell=bash
# The guest's end of fastsync_lab/vm.py. It is the first process of the booted guest, started by
# init.sh, and serves requests from the virtio port "fastsync" until the host hangs up:
#
#   run LENGTH       then LENGTH bytes of bash; answered by "done STATUS OUT ERR" and OUT + ERR bytes
#   attach LENGTH    the same, with the ports fastsync.in, .out and .err as the script's streams;
#                    answered by "done STATUS 0 0"
#   put LENGTH NAME  then LENGTH bytes, which become the program $home/files/NAME; answered by
#                    "done STATUS 0 0"
#   off              switch the machine off
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
ln -sfn /proc/self/mounts /etc/mtab
ln -sfn /proc/self/fd /dev/fd
ln -sfn /proc/self/fd/0 /dev/stdin
ln -sfn /proc/self/fd/1 /dev/stdout
ln -sfn /proc/self/fd/2 /dev/stderr

power_off() {
	echo o >/proc/sysrq-trigger
	sleep 60
}

# Prints the device node of the virtio port named $1; they may come later than we.
port_device() {
	local entry name _
	for _ in {1..100}; do
		for entry in /sys/class/virtio-ports/*; do
			read -r name 2>/dev/null <"$entry/name" || continue
			[ "$name" != "$1" ] || { echo "/dev/${entry##*/}" && return; }
		done
		sleep 0.1
	done
	echo "no virtio port $1" >&2
	return 1
}

# Folders of the host: its tag, ro or rw, and where it is to be seen.
share() {
	mkdir -p "$3" && mount -t 9p -o "$2,trans=virtio,version=9p2000.L,msize=512000" "$1" "$3"
}
while read -r tag access folder; do
	share "$tag" "$access" "$folder" || power_off
done <"$home/shares"

# Receives a script of $1 bytes into $home/script. A static busybox starts at a fraction of the
# instructions that others take.
export FASTSYNC_SCRIPT=0
receive() {
	busybox head -c "$1" <&3 >"$home/script"
	FASTSYNC_SCRIPT=$((FASTSYNC_SCRIPT + 1))
	echo "<7>fastsync: script $FASTSYNC_SCRIPT" >/dev/kmsg
}

answer_put() {
	head -c "$1" <&3 >"$home/files/$2" && chmod +x "$home/files/$2"
	printf 'done %d 0 0\n' $? >&3
}

answer_run() {
	local status
	(
		exec 3<&-
		set +u
		# shellcheck source=/dev/null
		. "$home/script"
	) </dev/null >"$home/stdout" 2>"$home/stderr"
	status=$?
	busybox sh -c 'set -- "$1" $(stat -c %s stdout stderr)
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
		# shellcheck source=/dev/null
		. "$home/script"
	) <"$home/in" >"$home/out.fifo" 2>"$home/err.fifo"
	status=$?
	kill "$in" 2>/dev/null
	wait "$out" "$err"
	exec 4<&- 5<&- 6<&-
	rm -f "$home/in" "$home/out.fifo" "$home/err.fifo"
	printf 'done %d 0 0\n' "$status" >&3
}

control=$(port_device fastsync) || power_off
exec 3<>"$control"
printf 'ready\n' >&3
while read -r request length name <&3; do
	case $request in
	run) receive "$length" && answer_run ;;
	attach) receive "$length" && answer_attach ;;
	put) answer_put "$length" "$name" ;;
	off) power_off ;;
	esac
done
power_off
