#!/bin/busybox sh
# shellcheck shell=dash
# The first program of a guest, in the initramfs that fastsync_lab/machine/initramfs.py makes: finds the root
# image, puts a layer of memory over it and starts the agent there.
# machine.sh is qemu.sh or uml.sh, by the machine.

/bin/busybox mkdir -p /proc /sys /dev /new /layer
/bin/busybox --install -s /bin
export PATH=/bin
# shellcheck source=fastsync_lab/machine/guest/qemu.sh
. /guest/machine.sh

give_up() {
	echo "fastsync: $1"
	poweroff -f
}

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in /modules/*; do
	[ -e "$module" ] || break # the kernel has all of them
	insmod "$module" || give_up "cannot load $module"
done

all_there() {
	for device in $images; do
		[ -b "$device" ] || return
	done
}

# The kernel looks for the images by itself; which device is which depends on what it finds first.
tries=0
until all_there; do
	[ "$tries" -lt 100 ] || give_up "the images are not there after 10 s"
	tries=$((tries + 1))
	sleep 0.1
done
for device in $images; do
	place=/images/${device##*/}
	mkdir -p "$place"
	mount -t erofs -o "$image_options" "$device" "$place" || give_up "cannot mount $device"
	if [ -e "$place/modules.dep" ]; then
		modules=$place
	else
		root=$place
	fi
done
if [ -z "$root" ] || [ -z "$modules" ]; then
	give_up "no root image or no modules"
fi

mount -t tmpfs -o mode=755 layer /layer
mkdir /layer/root /layer/work
mount -t overlay -o "lowerdir=$root,upperdir=/layer/root,workdir=/layer/work" root /new ||
	give_up "cannot put a layer over the root image"
release=$(uname -r)
mkdir -p "/new/lib/modules/$release" /new/boot
mount --move "$modules" "/new/lib/modules/$release"
cp /guest/config "/new/boot/config-$release"

mount --move /proc /new/proc
mount --move /sys /new/sys
mount --move /dev /new/dev
mount -t tmpfs -o mode=755 run /new/run
mkdir /new/run/fastsync /new/run/lock
cp /guest/agent.sh /guest/machine.sh /guest/shares /guest/clock /new/run/fastsync/
exec switch_root /new /bin/bash /run/fastsync/agent.sh
