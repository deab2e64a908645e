# shellcheck shell=bash
# The guest's part of fastsync_lab/xfstests/guest.py, which puts these functions before its scripts.
# $FASTSYNC_DEVS has the devices: test, scratch, the log of writes.

suite=/var/lib/xfstests
test_dir=/mnt/test
scratch_dir=/mnt/scratch
said=/run/fastsync/check.out

# Unpacks the suite from the archive $1, and makes the users that its tests want. Its devices are
# found without udev, which a guest has not.
install_suite() {
	local user
	tar -C / -xf "$1" && rm "$1" || return
	mkdir -p "$test_dir" "$scratch_dir"
	for user in fsgqa fsgqa2; do
		useradd --create-home --shell /bin/bash "$user" || return
	done
	useradd --badname --create-home 123456-fsgqa || return
	modprobe -a dm-mod loop || return
	echo 1 >/proc/sys/kernel/printk
}

# Unmounts what is mounted of the devices.
unmount() {
	umount -q "$scratch_dir" "$test_dir" || true
}

# Makes the test device's file system anew and writes the suite's configuration; $1: mount options.
configure() {
	local test_device scratch_device log_device
	read -r test_device scratch_device log_device <<<"$FASTSYNC_DEVS"
	mkfs.ext4 -q -F "$test_device" || return
	rm -rf "$suite/results"
	cat >"$suite/local.config" <<-END
		export FSTYP=ext4
		export TEST_DEV=$test_device TEST_DIR=$test_dir
		export SCRATCH_DEV=$scratch_device SCRATCH_MNT=$scratch_dir
		export LOGWRITES_DEV=$log_device
		export EXT_MOUNT_OPTIONS="$1"
		export DM_DISABLE_UDEV=1
	END
}

# Starts the suite on these tests, with a keyring, which a login would have made and tests of
# encryption add keys to. What it says goes to $said; the last line begins with "Ended:". What it
# said before is gone at once, or await_test could take it for its answer.
begin_tests() {
	rm -rf "$suite/results"
	cd "$suite" && : >"$said" || return
	{
		keyctl session - ./check --exact-order "$@"
		printf '\nEnded: %d\n' $?
	} >"$said" 2>&1 </dev/null &
}

# Waits until the suite begins with the test $1 or ends. Prints all that it has said.
await_test() {
	until grep -qE "^(Ended:|$1[[:space:]])" "$said"; do
		sleep 0.2
	done
	cat "$said"
}

# Keeps what the test $1 has left in the folder $2, in place of what it left before.
keep_left() {
	rm -rf "$2" && mkdir -p "$2" || return
	cp "$suite/results/$1".* "$2/" 2>/dev/null
	dmesg >"$2/dmesg"
}
