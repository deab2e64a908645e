"""Recording a workload in the virtual machine.

The guest's side of a run is a folder below $FASTSYNC_OUT, which on the host is in build/crash/. The
data device is /dev/flash0 below dm-log-writes.
"""

import shlex
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fastsync_lab.crash import mariadb
from fastsync_lab.crash.flight import KEEP_TRACE, START_TRACE, STOP_TRACE
from fastsync_lab.crash.kinds import Kind
from fastsync_lab.crash.script import Script
from fastsync_lab.crash.sql import DATABASE
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.paths import build_dir
from fastsync_lab.host.workload import SQLITE_FLAGS, compile_changed, fetch_sqlite, programs_source
from fastsync_lab.machine.device import load_profile
from fastsync_lab.machine.vm import Vm

PARTS = {
    "crashops": ("crashops.c", "crashasync.c", "crashext4.c"),
    "crashcheck": ("crashcheck.c",),
}
LOG_MIB = 192
PROFILE = "sata-ssd"
RECORD_TIMEOUT_S = 600
LOG_NAME = "crash"  # of the device-mapper device that logs
MEMORY = "/dev/shm/crash"  # in the guest
# A life before: bash that leaves in {image} what is on the device while the log is full of commits.
# It goes round once. None of its files stays, and the folder's mode is what it was.
EARLIER_LIFE = """\
mount -t ext4 -o {options} /dev/flash0 /mnt || exit
dd if=/dev/zero of=/mnt/life bs=5000 count=240 oflag=sync 2>&1 || exit
rm /mnt/life && sync /mnt || exit
for mode in 700 755; do chmod $mode /mnt && sync /mnt || exit; done
dd if=/dev/flash0 of={image} bs=1M iflag=direct 2>&1 && umount /mnt || exit
dd if={image} of=/dev/flash0 bs=1M conv=fsync 2>&1 || exit
"""


def build_programs(names: Collection[str]) -> None:
    """Compile what has changed of crashcheck and of what runs the workloads.

    Raises FastsyncError when the compiler fails.
    """
    source = programs_source()
    flags = ["-O2", "-Wall", "-Wextra"]
    jobs = {
        name: [*flags, "-static", "-pthread", *(str(source / file) for file in files)]
        for name, files in PARTS.items()
    }
    if "crashsql" in names:
        sqlite = fetch_sqlite()
        sources = [str(source / "crashsql.c"), str(sqlite / "sqlite3.c")]
        jobs["crashsql"] = ["-O2", "-static", *SQLITE_FLAGS, f"-I{sqlite}", *sources, "-lm"]
    if "crashmaria" in names:
        client = [*flags, "-I/usr/include/mariadb"]
        jobs["crashmaria"] = [*client, str(source / "crashmaria.c"), "-lmariadb"]
        jobs["innodbsync.so"] = [*flags, "-fPIC", "-shared", str(source / "innodbsync.c")]
    built_program("").mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: _compile(built_program(name), jobs[name]), jobs))


def _compile(program: Path, arguments: Sequence[str]) -> None:
    compile_changed(program, ["gcc", *arguments, "-o", str(program)])


def built_program(name: str) -> Path:
    """Where a program lies on the host, once it is built."""
    return build_dir() / "programs" / name


def make_room(vm: Vm) -> None:
    """Have in the guest what a log of writes takes: the module, a RAM disk, a folder in memory."""
    vm.run(
        f"mkdir -p {MEMORY}; dmesg -n 1; modprobe -a dm_mod dm_log_writes || exit\n"
        f"modprobe brd rd_nr=1 rd_size={LOG_MIB << 10}"
    )


class Recorder:
    """The booted machine in which workloads run; `vm.out_dir` has the folders of the runs."""

    def __init__(self, vm: Vm, flashdev: Path) -> None:
        self.vm = vm
        self._flashdev = flashdev
        make_room(vm)

    def record(self, folder: Path, options: str, script: Script, kind: Kind) -> None:
        """Run `folder`/script on a fresh `folder`/base.img of that kind, under `folder`/log.

        Leaves the log and, of operations, `folder`/trace. Raises FastsyncError when the workload
        fails.
        """
        here = f"$FASTSYNC_OUT/{folder.name}"
        prepare = ""
        if script.flushing:
            mariadb.initialize(folder / mariadb.FOLDER, folder)
            prepare = f"cp -R {here}/{mariadb.FOLDER} /mnt/ && sync || exit\n"
        profile = load_profile(PROFILE)
        parts = Parts(f"/dev/mapper/{LOG_NAME}", "flash0", kind)
        mount_options = shlex.quote(parts.options(options))
        life = {"options": mount_options, "image": f"{here}/base.img"}
        size_mib = script.device_mib + kind.journal_mib
        self.vm.load_device(profile, self._flashdev, capacity_mib=size_mib)
        self.vm.run(
            f"cp {here}/script {MEMORY}/script\n"
            f"dd if={here}/base.img of=/dev/flash0 bs=1M conv=fsync 2>&1 || exit\n"
            + (EARLIER_LIFE.format(**life) if kind.crashed else "")
            + f"device=flash0\n{START_TRACE}"
            + create_log("/dev/flash0")
            + parts.create()
            + f"mount -t ext4 -o {mount_options} {parts.device} /mnt || exit\n"
            f"{prepare}(cd /mnt && {self._command(script)} >{MEMORY}/trace); status=$?\n"
            f"cat /sys/fs/ext4/*/eager_stats >{here}/stats 2>/dev/null\n"
            "umount /mnt || exit\n"
            f"cp {MEMORY}/trace {here}/trace\n"
            + parts.remove()
            + keep_log(f"{here}/log")
            + STOP_TRACE
            + KEEP_TRACE.format(f"{here}/bios")
            + "exit $status",
            timeout_s=RECORD_TIMEOUT_S,
        )

    def set_parameters(self, parameters: Mapping[str, str]) -> None:
        """Set parameters of the modules that are loaded, by names like ext4.name."""
        for name, value in parameters.items():
            self.vm.run(f"echo {shlex.quote(value)} >{_parameter_path(name)}")

    def parameter(self, name: str) -> str:
        """What a parameter is now."""
        return self.vm.run(f"cat {_parameter_path(name)}").stdout.strip()

    def _command(self, script: Script) -> str:
        """Bash that runs the script in the guest's memory."""
        program = self.vm.stage(built_program(script.program))
        if not script.flushing:
            return f"{program} crash {DATABASE if script.sql else ''} {MEMORY}/script"
        flushing = mariadb.FLUSHING[script.flushing]
        environment = f"LD_PRELOAD={self.vm.stage(built_program('innodbsync.so'))}"
        if flushing.fsync_only:
            environment += " FSYNC_ONLY=1"
        arguments = [*mariadb.arguments(f"/mnt/{mariadb.FOLDER}", MEMORY), *flushing.options]
        server = shlex.join([mariadb.SERVER, *arguments])
        return f"{environment} {program} crash {MEMORY}/socket {MEMORY}/script {server}"


class UnsoundRecordingError(FastsyncError):
    """A workload ran to its end, and what was recorded of it shows nothing."""


def check_moved(wanted: Sequence[str], stats: str) -> None:
    """Raise UnsoundRecordingError if a counter of eager_stats is 0."""
    counters = dict(line.split(maxsplit=1) for line in stats.splitlines())
    still = [one for one in wanted if int(counters[one]) == 0]
    if still:
        raise UnsoundRecordingError(f"the workload is for what did not happen: {', '.join(still)}")


@dataclass(frozen=True)
class Parts:
    """What a kind of file system has of `whole`, a device as large as the block device `sized`."""

    whole: str
    sized: str
    kind: Kind

    @property
    def device(self) -> str:
        """What is mounted."""
        return "/dev/mapper/crash-fs" if self.kind.external else self.whole

    @property
    def journal(self) -> str:
        """An external journal, or nothing."""
        return "/dev/mapper/crash-journal" if self.kind.external else ""

    @property
    def devices(self) -> str:
        """Both, as programs/crashcheck.c takes them."""
        return f"{self.device},{self.journal}" if self.journal else self.device

    def options(self, others: str = "") -> str:
        """Mount options that say where the journal is, and `others`."""
        path = f"journal_path={self.journal}" if self.journal else ""
        return ",".join(filter(None, (others, path))) or "defaults"

    def create(self) -> str:
        """Bash that makes the devices of the parts."""
        if not self.kind.external:
            return ""
        sectors = self.kind.journal_mib << 11
        return (
            f"files=$(($(</sys/block/{self.sized}/size) - {sectors}))\n"
            f'dmsetup create crash-fs --table "0 $files linear {self.whole} 0" || exit\n'
            f'table="0 {sectors} linear {self.whole} $files"\n'
            'dmsetup create crash-journal --table "$table" && dmsetup mknodes || exit\n'
        )

    def remove(self) -> str:
        """Bash that removes them."""
        names = ("crash-fs", "crash-journal") if self.kind.external else ()
        return "".join(f"dmsetup remove --retry {name} || exit\n" for name in names)


def _parameter_path(name: str) -> str:
    module, _, parameter = name.partition(".")
    return f"/sys/module/{module}/parameters/{parameter}"


def create_log(device: str) -> str:
    """Bash: the device LOG_NAME, which logs what is written to a device."""
    sectors = f"$(</sys/block/{Path(device).name}/size)"
    return (
        f'dmsetup create {LOG_NAME} --table "0 {sectors} log-writes {device} /dev/ram0" || exit\n'
        "dmsetup mknodes\n"
    )


def keep_log(path: str) -> str:
    """Bash: end the log and copy what it has."""
    return (
        f"set -- $(dmsetup status {LOG_NAME}); last=$5\n"
        f"dmsetup remove --retry {LOG_NAME} || exit\n"
        # The end of the log comes when the device goes.
        f"dd if=/dev/ram0 of={path} bs=1M count=$((last / 2048 + 2)) 2>/dev/null || exit\n"
    )
