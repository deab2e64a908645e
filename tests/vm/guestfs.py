"""What the VM tests say of a file system in the guest: make it, mount it, use it, crash it."""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from fastsync_lab.machine.device import device_names, load_profile
from fastsync_lab.machine.kernel_log import check_kernel_log
from fastsync_lab.machine.vm import GuestResult, Vm

MNT = "/mnt"
FILE = f"{MNT}/f"
CRASH_IMAGE = "/dev/shm/crash.img"
(DEVICE,) = device_names(1)
NODE = DEVICE.removeprefix("/dev/")  # below /sys/block and /sys/fs/ext4
CAPACITY_MIB = 32
UNIFORM = load_profile("uniform-100us")
MS = 10**6
# What mkfs has to be told so that nothing on the medium is drawn by chance.
UUID = "00000000-1111-2222-3333-444444444444"
FIXED = f"-U {UUID} -E hash_seed={UUID},lazy_itable_init=0,lazy_journal_init=0"
JOURNAL_INO = 8
KMEMLEAK = "/sys/kernel/debug/kmemleak"
# Nothing but fsync may commit while a test looks.
NO_PERIODIC_COMMIT = "commit=300"
# Both modes, at an interval that no test outlasts unless it means to.
MODES = {
    "truncate": f"mtime_update=1000,{NO_PERIODIC_COMMIT}",
    "defer": f"mtime_update=1000,mtime_mode=defer,{NO_PERIODIC_COMMIT}",
}
# When tasks that take some time to start begin to do what is looked at.
TOGETHER_MS = 5000
# The device fails the next "flush" or "write".
FAIL_ONE = (
    "cd /sys/module/flashdev/parameters; echo {} >fail_kind; echo 1 >fail_count; echo 1 >fail_from"
)
FAIL_A_FLUSH = FAIL_ONE.format("flush")
FAIL_ALL = FAIL_ONE + "; echo 1000 >fail_count"  # until FAIL_NONE
FAIL_NONE = "echo 0 >/sys/module/flashdev/parameters/fail_from"

Event = dict[str, int]


def sound_log(vm: Vm, *, device_fails: bool = False) -> str:
    """The kernel log since it was read last; the test fails if there is a complaint in it.

    What the kernel says of its device may be there if that is to fail.
    """
    log = vm.kernel_log()
    assert check_kernel_log(log, device_fails=device_fails) == []
    return log


@dataclass(frozen=True)
class OnDisk:
    """An inode as debugfs shows it on the medium, after e2fsck has replayed the journal."""

    text: str

    def _stamp_ns(self, name: str) -> int:
        match = re.search(rf"^\s*{name}: 0x([0-9a-f]{{8}})(?::([0-9a-f]{{8}}))?", self.text, re.M)
        assert match, f"no {name} in {self.text}"
        extra = int(match[2] or "0", 16)
        seconds = int(match[1], 16)
        seconds = (seconds ^ 0x80000000) - 0x80000000 + ((extra & 3) << 32)
        return seconds * 10**9 + (extra >> 2)

    @property
    def mtime_ns(self) -> int:
        return self._stamp_ns("mtime")

    @property
    def ctime_ns(self) -> int:
        return self._stamp_ns("ctime")

    @property
    def atime_ns(self) -> int:
        return self._stamp_ns("atime")

    @property
    def mode(self) -> int:
        return self._number(r"Mode:\s+(\d+)", 8)

    @property
    def size(self) -> int:
        return self._number(r"Size: (\d+)")

    @property
    def uid(self) -> int:
        return self._number(r"User:\s+(\d+)")

    @property
    def links(self) -> int:
        return self._number(r"Links: (\d+)")

    @property
    def flags(self) -> int:
        return self._number(r"Flags: 0x([0-9a-f]+)", 16)

    def _number(self, pattern: str, base: int = 10) -> int:
        match = re.search(pattern, self.text)
        assert match, f"no {pattern} in {self.text}"
        return int(match[1], base)


class GuestFs:
    """One ext4 on the guest's modelled device. Every failing command raises FastsyncError."""

    def __init__(self, vm: Vm, fsops: str, device: str) -> None:
        self.vm = vm
        self.fsops_path = fsops
        self.device = device

    def mkfs(self, options: str = "", *, size: str = "") -> None:
        self.vm.run(
            f"umount -q {MNT}; wipefs -qa {self.device}; "
            f"mkfs.ext4 -qF -b 4096 -E lazy_itable_init=0,lazy_journal_init=0 {options} "
            f"{self.device} {size}"
        )

    def mount(self, options: str = "", *, check: bool = True) -> GuestResult:
        flag = f"-o {shlex.quote(options)}" if options else ""
        return self.vm.run(f"mount -t ext4 {flag} {self.device} {MNT}", check=check)

    def remount(self, options: str) -> None:
        assert self.mount_errno(options, remount=True) == 0, options

    def mount_errno(self, options: str, *, remount: bool = False) -> int:
        """What mount(2) fails with, 0 if it does not; mount(8) would add options of its own."""
        verb = "remount" if remount else "mount"
        (event,) = self.ops(f"{verb}:{options}", file=MNT)
        return event["errno"]

    def together(self, *tasks: str) -> str:
        """A script that runs processes, each on a file of its own (w1, w2, ...), until all end.

        They do what the words for fsops say, and begin together however long it takes to start
        them.
        """
        begin = (
            f"{self.fsops_path} {MNT}/w{number} open align:{TOGETHER_MS} {words} &"
            for number, words in enumerate(tasks, 1)
        )
        return "\n".join([*begin, "wait"])

    def umount(self) -> None:
        self.vm.run(f"umount {MNT}")

    def shown_options(self) -> list[str]:
        """The options of the mounted file system in /proc/mounts."""
        line = self.vm.run(f"grep ' {MNT} ' /proc/mounts").stdout
        return line.split()[3].split(",")

    @property
    def node(self) -> str:
        """The device's name below /sys/block and /sys/fs/ext4."""
        return self.device.removeprefix("/dev/")

    def counter(self, name: str) -> int:
        return int(self.vm.run(f"cat /sys/fs/ext4/{self.node}/mtime_{name}").stdout)

    @contextmanager
    def mounted(self, options: str = "", *, mkfs: str = "") -> Iterator[None]:
        """A new file system, mounted; unmounted and found sound by e2fsck at the end."""
        self.mkfs(mkfs)
        self.mount(options)
        try:
            yield
        finally:
            self.umount()
        self.vm.run(f"e2fsck -fn {self.device}")

    def ops(self, *words: str, file: str = FILE) -> list[Event]:
        """Run the fsops program; what its stat, io and clock ops printed, in order."""
        return parse_events(self.vm.run(shlex.join([self.fsops_path, file, *words])).stdout)

    def prepare(self, *words: str) -> None:
        """A file of 64 KiB that is wholly on disk, journal committed, and older than a second."""
        self.vm.run(self.preparation(*words))

    def preparation(self, *words: str) -> str:
        """A script that does what `prepare` does."""
        ops = shlex.join([self.fsops_path, FILE, "open", "sleep:1100", *words])
        fill = f"dd if=/dev/zero of={FILE} bs=4k count=16 conv=fsync status=none"
        return f"{fill} || exit; sync; {ops} || exit"

    def crashed(self, path: str = "/f") -> OnDisk:
        """The inode on the medium at the `crash` op, its journal replayed by e2fsck."""
        self.vm.run(
            f"e2fsck -fy {CRASH_IMAGE} >/dev/shm/fsck.log 2>&1; [ $? -le 1 ] || exit 9; "
            f"e2fsck -fn {CRASH_IMAGE} >/dev/shm/fsck.log 2>&1 || exit 8"
        )
        return self.on_image(path)

    def on_image(self, path: str = "/f") -> OnDisk:
        """The inode in the image that the `crash` op made, in place."""
        command = f"debugfs -R {shlex.quote('stat ' + path)} {CRASH_IMAGE} 2>/dev/null"
        return OnDisk(self.vm.run(command).stdout)

    def clean_image(self, path: str = "/f") -> OnDisk:
        """The same of a file system that must be clean without any recovery."""
        self.vm.run(
            f"dumpe2fs -h {CRASH_IMAGE} 2>/dev/null | grep -q needs_recovery && exit 7; "
            f"e2fsck -fn {CRASH_IMAGE} >/dev/shm/fsck.log 2>&1 || exit 8"
        )
        return self.on_image(path)


CRASH = f"crash:{CRASH_IMAGE}"
BEFORE_IMAGE = "/dev/shm/before.img"
CRASH_BEFORE = f"crash:{BEFORE_IMAGE}"


def changed_in_log(fs: GuestFs) -> list[int]:
    """The blocks of the log that the images at CRASH_BEFORE and at CRASH differ by."""
    lines = fs.vm.run(f"cmp -l {BEFORE_IMAGE} {CRASH_IMAGE}", check=False).stdout.splitlines()
    # The flusher may have written in place meanwhile: what counts is in the log.
    log = fs.vm.run(f"debugfs -R 'blocks <8>' {CRASH_IMAGE} 2>/dev/null").stdout.split()
    changed = {(int(line.split()[0]) - 1) // 4096 for line in lines}
    return sorted(changed & {int(number) for number in log})


def torn_image(blocks: list[int], sectors: Sequence[int]) -> str:
    """Commands that make /dev/shm/t.img: the image before, and so many sectors of each block."""
    script = f"cp {BEFORE_IMAGE} /dev/shm/t.img\n"
    for block, count in zip(blocks, sectors, strict=True):
        script += (
            f"dd if={CRASH_IMAGE} of=/dev/shm/t.img bs=512 seek={block * 8} "
            f"skip={block * 8} count={count} conv=notrunc status=none\n"
        )
    return script


def parse_events(text: str) -> list[Event]:
    """What fsops printed: an op's name and its values, a line each."""
    return [json.loads(line.split(" ", 1)[1]) for line in text.splitlines()]


def between_ms(before: Event, after: Event) -> float:
    """The time between two clock ops, in ms."""
    return (after["time_ns"] - before["time_ns"]) / 1e6


def written_kib(events: list[Event]) -> int:
    """KiB that the device was told to write between the last two `io` ops."""
    before, after = [event for event in events if "sectors" in event][-2:]
    return (after["sectors"] - before["sectors"]) // 2


def with_limit(file: str, limit: str, work: str) -> str:
    """A script that does `work`; of its tasks, those after the word `limited` are in a cgroup.

    That one's `file` has `limit` in it, and in the end `max` in place of the last number. `work`
    ends what does not end by itself.
    """
    cgroup, own = "/sys/fs/cgroup", "/sys/fs/cgroup/limited"
    controllers = {"io.max": "io memory"}.get(file, file.partition(".")[0]).split()
    free = re.sub(r"\d+$", "max", limit)
    return f"""
        echo {" ".join(f"+{one}" for one in controllers)} >{cgroup}/cgroup.subtree_control || exit
        mkdir {own} && echo "{limit}" >{own}/{file} || exit
        limited() {{ ( echo $BASHPID >{own}/cgroup.procs; exec "$@" ) & }}
        {work}
        echo "{free}" >{own}/{file}; wait; rmdir {own}
        echo {" ".join(f"-{one}" for one in controllers)} >{cgroup}/cgroup.subtree_control
    """


def leaks(vm: Vm) -> str:
    """What nobody refers to any more, as far as the kernel can tell."""
    if vm.run(f"[ -f {KMEMLEAK} ]", check=False).status != 0:
        return ""
    # It looks at what is older than five seconds, and believes what it sees twice.
    return vm.run(f"sleep 6; echo scan >{KMEMLEAK}; sleep 1; echo scan >{KMEMLEAK}; cat {KMEMLEAK}",
                  timeout_s=300).stdout  # fmt: skip
