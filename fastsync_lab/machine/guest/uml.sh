# shellcheck shell=dash disable=SC2034,SC2154 # init.sh uses the variables, agent.sh has $home
# What the devices of User-Mode Linux are called in the guest, for init.sh and agent.sh.

images='/dev/ubda /dev/ubdb'
image_options=ro

# mount_share TAG ro|rw FOLDER: a folder of the host.
mount_share() {
	mount -t hostfs -o "$2,/$1/." "$1" "$3"
}

# Prints the device node of the port named $1, a serial line that carries bytes as they are.
port_device() {
	number=0
	for name in fastsync fastsync.in fastsync.out fastsync.err; do
		[ "$name" != "$1" ] || break
		number=$((number + 1))
	done
	stty -F "/dev/ttyS$number" raw -echo && echo "/dev/ttyS$number"
}

# A shell that reads a line from a terminal takes more than that, but not from a pipe.
lines_of() {
	mkfifo "$home/$2" && { cat <"$1" >"$home/$2" & }
}

# open_control DEVICE: to be read as 3 and written as 7. A serial line has room for 4 KiB and takes
# nothing more once that was full (line_throttle() of 6.12), so the rest comes as files.
open_control() {
	mkdir "$home/mail" && mount_share mail ro "$home/mail" || return
	lines_of "$1" control && exec 3<"$home/control" 7>"$1"
}

# open_input DEVICE: to be read as 4 and written as 8.
open_input() {
	lines_of "$1" input && exec 4<"$home/input" 8>"$1"
}

# body LENGTH FD NAME: writes to stdout what follows a request.
body() {
	cat "$home/mail/$3"
}
