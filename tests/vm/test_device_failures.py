"""kernel/flashdev: which request fails, what a failed flush takes with it, several devices."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.machine.device import DeviceProfile
from fastsync_lab.machine.kernel_log import check_kernel_log
from fastsync_lab.machine.vm import GuestResult, Vm
from tests.vm.guestfs import NODE, UNIFORM

CAPACITY_MIB = 16
# Places are in sectors, of which a block has eight. All O_DSYNC writes to a device flush as well.
TOOLS = """
d=$FASTSYNC_DEV; parameters=/sys/module/flashdev/parameters
fill() { head -c "$2" /dev/zero | tr '\\0' "$1"; }
write() { fill "$1" 4096 | dd of=$d bs=4k seek=$(($2 / 8)) oflag=direct status=none; }
fua() { fill "$1" 512 | dd of=$d bs=512 seek="$2" oflag=direct,dsync status=none 2>/dev/null; }
flush() { dd if=/dev/null of=$d conv=notrunc,fsync status=none 2>/dev/null; }
fail() { echo "$1" >$parameters/fail_kind; echo "$2" >$parameters/fail_from; }
show() {
    dd if=$d bs=512 skip="$1" count="$2" iflag=direct status=none | tr '\\0' . | fold -w 512 |
        cut -c 1 | tr -d '\\n'
    echo
}
"""


class Device:
    """A flash device in the guest, and shell functions to use it."""

    def __init__(self, vm: Vm, flashdev: Path) -> None:
        self._vm = vm
        self._flashdev = flashdev

    def load(
        self, profile: DeviceProfile = UNIFORM, *, devices: int = 1, lose_cache: bool = True
    ) -> None:
        self._vm.load_device(
            profile,
            self._flashdev,
            capacity_mib=CAPACITY_MIB,
            devices=devices,
            lose_cache=lose_cache,
        )

    def run(self, script: str) -> GuestResult:
        return self._vm.run(TOOLS + script)


@pytest.fixture
def device(vm: Vm, flashdev: Path) -> Iterator[Device]:
    """Leaves no device behind, and nothing in the log but the I/O errors that were asked for."""
    vm.kernel_log()
    yield Device(vm, flashdev)
    vm.run("[ ! -d /sys/module/flashdev ] || rmmod flashdev")
    bad = check_kernel_log(vm.kernel_log())
    assert [line for line in bad if "I/O error, dev flash" not in line] == []


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # A write, a flush and a read, three times.
        ("any", "write 0 flush 0 read 1 | write 0 flush 0 read 0 | write 0 flush 0 read 0"),
        ("write", "write 0 flush 0 read 0 | write 0 flush 0 read 0 | write 1 flush 0 read 0"),
        ("flush", "write 0 flush 0 read 0 | write 0 flush 0 read 0 | write 0 flush 1 read 0"),
        ("read", "write 0 flush 0 read 0 | write 0 flush 0 read 0 | write 0 flush 0 read 1"),
        ("discard", "write 0 flush 0 read 0 | write 0 flush 0 read 0 | write 0 flush 0 read 0"),
    ],
)
def test_the_third_of_a_kind_fails(device: Device, kind: str, expected: str) -> None:
    device.load(lose_cache=False)
    seen = device.run(
        f"fail {kind} 3\n"
        "for i in 1 2 3; do\n"
        "write a 0 2>/dev/null; echo write $?; flush; echo flush $?\n"
        "dd if=$d of=/dev/null bs=4k count=1 iflag=direct status=none 2>/dev/null\n"
        "echo read $?; done"
    ).stdout.split()
    lines = [" ".join(seen[start : start + 6]) for start in range(0, len(seen), 6)]
    assert " | ".join(lines) == expected


def test_a_failed_flush_takes_with_it_what_was_not_flushed(device: Device) -> None:
    """Overwritten, new and discarded blocks; what the flush before had covered stays."""
    device.load()
    seen = device.run(
        "write a 0; write b 8; write c 16; flush; show 0 32\n"
        "write x 0; write y 24; blkdiscard -o 8192 -l 4096 $d; blkdiscard -z -o 4096 -l 512 $d\n"
        "show 0 32; fail flush 1; flush; echo $?; show 0 32\n"
        "write z 0; flush; echo $?; fail flush 1; flush; show 0 32"
    ).stdout.split()
    before = "a" * 8 + "b" * 8 + "c" * 8 + "." * 8
    cached = "x" * 8 + "." + "b" * 7 + "." * 8 + "y" * 8
    after = "z" * 8 + before[8:]
    assert seen == [before, cached, "1", before, "0", after]


def test_a_fua_write_outlives_a_failed_flush(device: Device) -> None:
    """Over a cached block, over a cached block that was never on the medium, and elsewhere."""
    device.load()
    seen = device.run(
        "write a 0; flush; write x 0; write y 8\n"
        "echo 3 >$parameters/fail_count; fail flush 1\n"
        "fua f 3; echo $?; show 0 16\n"
        "write y 8; fua g 9; echo $?; fua h 17; echo $?; show 0 24"
    ).stdout.split()
    first = "aaafaaaa" + "." * 8
    assert seen == ["1", first, "1", "1", "aaafaaaa" + ".g......" + ".h......"]


def test_without_the_parameter_a_failed_flush_takes_nothing(device: Device) -> None:
    device.load(lose_cache=False)
    seen = device.run("write a 0; fail flush 1; flush; echo $?; show 0 8").stdout.split()
    assert seen == ["1", "aaaaaaaa"]


def test_the_log_tells_what_is_lost(device: Device, vm: Vm) -> None:
    device.load()
    device.run("write a 0; write b 8; write c 8; fail flush 1; flush; true")
    assert "flash0: a flush failed, 2 pages of the cache are lost" in vm.kernel_log()


@pytest.mark.parametrize(("lose_cache", "in_flight"), [(True, "0"), (False, "1")])
def test_a_flush_ends_no_earlier_than_the_writes_that_it_loses(
    device: Device, lose_cache: bool, in_flight: str
) -> None:
    """So a write that ends after a failed flush is not lost with it."""
    device.load(replace(UNIFORM, write_ns=1_000_000_000, flush_ns=0), lose_cache=lose_cache)
    seen = device.run(
        f"writes() {{ read -r _ writes </sys/block/{NODE}/inflight; }}\n"
        "flush; fail flush 1; write a 0 &\n"
        "until writes; [ $writes = 1 ]; do sleep 0.01; done\n"
        "flush; writes; echo $writes; wait"
    ).stdout
    assert seen.split() == [in_flight]


@pytest.mark.short
def test_several_devices_share_nothing(device: Device) -> None:
    """Each has its own data and capacity, and only the one that was named fails."""
    device.load(devices=3)
    seen = device.run(
        "echo $FASTSYNC_DEVS; echo 2 >$parameters/fail_device\n"
        "for d in $FASTSYNC_DEVS; do write ${d#/dev/flash} 0; blockdev --getsize64 $d; done\n"
        "fail flush 1; for d in $FASTSYNC_DEVS; do flush; echo $?; show 0 2; done"
    ).stdout.split()
    size = str(CAPACITY_MIB << 20)
    names = ["/dev/flash0", "/dev/flash1", "/dev/flash2"]
    assert seen == [*names, size, size, size, "0", "00", "0", "11", "1", ".."]


def test_fewer_devices_after_more(device: Device, vm: Vm) -> None:
    device.load(devices=8)
    device.load(devices=1)
    assert vm.run("echo /dev/flash*; echo $FASTSYNC_DEVS").stdout.split() == ["/dev/flash0"] * 2


def test_wrong_kind_is_refused_and_changes_nothing(device: Device) -> None:
    device.load()
    seen = device.run("fail flush 0; fail x 0 2>/dev/null; cat $parameters/fail_kind").stdout
    assert seen.split() == ["flush"]


def test_no_cache_can_be_lost_where_there_is_none(vm: Vm, flashdev: Path) -> None:
    vm.kernel_log()
    wrong = "volatile_cache=0 lose_cache_on_failed_flush=1"
    result = vm.run(f"insmod {vm.stage(flashdev)} {wrong}", check=False)
    assert result.status != 0
    assert "lose_cache_on_failed_flush=1 needs volatile_cache=1" in vm.kernel_log()
