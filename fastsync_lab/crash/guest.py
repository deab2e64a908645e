"""Recording a workload and recovering crash states, in the virtual machine.

The guest's side of a run is a folder below $FASTSYNC_OUT, which on the host is build/crash/. The
data device is /dev/flash0 below dm-log-writes while a workload is recorded, and a loop device on a
file in the guest's memory while states are recovered.
"""

import json
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastsync_lab.crash import mariadb
from fastsync_lab.crash.extfs import File, Tree
from fastsync_lab.crash.kinds import Kind
from fastsync_lab.crash.log import Event, Write
from fastsync_lab.crash.script import Script
from fastsync_lab.crash.sql import DATABASE
from fastsync_lab.crash.states import State, durable_writes
from fastsync_lab.device import load_profile
from fastsync_lab.paths import build_dir
from fastsync_lab.vm import Vm
from fastsync_lab.workload import SQLITE_FLAGS, compile_changed, fetch_sqlite, programs_source

PARTS = {
    "crashops": ("crashops.c", "crashasync.c", "crashext4.c"),
    "crashcheck": ("crashcheck.c",),
}
LOG_MIB = 192
PROFILE = "sata-ssd"
RECORD_TIMEOUT_S = 600
CHECK_TIMEOUT_S = 600
MEMORY = "/dev/shm/crash"  # in the guest
PARAMETERS = "/sys/module/ext4/parameters"


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


@dataclass(frozen=True)
class Found:
    """What the kernel made of a state: what failed, its messages, files, changed pages."""

    id: str
    errors: tuple[str, ...]
    log: tuple[str, ...]
    tree: Tree
    pages: dict[int, bytes]  # 4 KiB each, by number


def parse_found(line: str, delta: bytes, position: int) -> tuple[Found, int]:
    """A line of crashcheck, whose pages begin at `position` of `delta`; where the next begin."""
    data = json.loads(line)
    page_size = 4096
    pages = {}
    for number in data["delta"]:
        pages[number] = delta[position : position + page_size]
        position += page_size
    tree = {file["path"]: _file(file) for file in data["files"]}
    calls = {"mount": data["mount"], "reading folders": data["folders"]}
    calls |= {f"reading {file['path']}": file["errno"] for file in data["files"]}
    errors = tuple(f"{call} failed with errno {errno}" for call, errno in calls.items() if errno)
    return Found(data["id"], errors, tuple(data["log"]), tree, pages), position


def _file(data: dict[str, Any]) -> File:
    text = data.get("sectors", "")
    numbers = {
        key: int(data[key])
        for key in ("ino", "mode", "uid", "gid", "links", "size", "mtime_ns", "ctime_ns")
    }
    return File(
        **numbers,
        xattrs=data["xattrs"],
        sectors=tuple(int(text[start : start + 8], 16) for start in range(0, len(text), 8)),
        target=data.get("target", ""),
    )


def plan(events: Sequence[Event], states: Iterable[State], verb: str = "c") -> str:
    """What programs/crashcheck.c is to do; the states in the order of their events."""
    lines: list[str] = []
    applied = 0
    for state in states:
        lines += (_plan_line("p", w) for w in durable_writes(events, applied, state.event))
        applied = state.event
        lines += (_plan_line("w", write) for write in state.extra)
        lines.append(f"{verb} {state.id}")
    return "".join(f"{line}\n" for line in lines)


def _plan_line(verb: str, write: Write) -> str:
    return f"{verb} {write.sector} {write.count} {write.offset}"


class Guest:
    """The booted machine as the explorer uses it; `vm.out_dir` has the folders of the runs."""

    def __init__(self, vm: Vm, flashdev: Path) -> None:
        self.vm = vm
        self._flashdev = flashdev
        self._check = vm.stage(str(built_program("crashcheck")))
        vm.put_in_memory(
            ["/sbin/dmsetup", "/sbin/losetup"],
            applets=["cat", "cp", "dd", "mkdir", "mount", "rm", "umount"],
        )
        vm.run(
            f"mkdir -p {MEMORY}; dmesg -n 1; modprobe -a dm_mod dm_log_writes loop || exit\n"
            f"modprobe brd rd_nr=1 rd_size={LOG_MIB << 10} || exit\n"
            f": >{MEMORY}/image && losetup /dev/loop0 {MEMORY}/image"
        )

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
        parts = Parts("/dev/mapper/crash", "flash0", kind)
        mount_options = shlex.quote(parts.options(options))
        size_mib = script.device_mib + kind.journal_mib
        self.vm.load_device(profile, self._flashdev, capacity_mib=size_mib)
        self.vm.run(
            f"cp {here}/script {MEMORY}/script\n"
            f"dd if={here}/base.img of=/dev/flash0 bs=1M conv=fsync 2>&1 || exit\n"
            + _create_log("/dev/flash0")
            + parts.create()
            + f"mount -t ext4 -o {mount_options} {parts.device} /mnt || exit\n"
            f"{prepare}(cd /mnt && {self._command(script)} >{MEMORY}/trace); status=$?\n"
            "umount /mnt || exit\n"
            f"cp {MEMORY}/trace {here}/trace\n"
            + parts.remove()
            + _keep_log(f"{here}/log")
            + "exit $status",
            timeout_s=RECORD_TIMEOUT_S,
        )

    def set_parameters(self, parameters: Mapping[str, str]) -> None:
        """Set parameters of the ext4 module that is loaded."""
        for name, value in parameters.items():
            self.vm.run(f"echo {shlex.quote(value)} >{PARAMETERS}/{name}")

    def parameter(self, name: str) -> str:
        """What a parameter of the ext4 module is now."""
        return self.vm.run(f"cat {PARAMETERS}/{name}").stdout.strip()

    def _command(self, script: Script) -> str:
        """Bash that runs the script in the guest's memory."""
        program = self.vm.stage(str(built_program(script.program)))
        if not script.flushing:
            return f"{program} crash {DATABASE if script.sql else ''} {MEMORY}/script"
        flushing = mariadb.FLUSHING[script.flushing]
        library = built_program("innodbsync.so")
        self.vm.run(f"cp {shlex.quote(str(library))} {MEMORY}/")
        environment = f"LD_PRELOAD={MEMORY}/{library.name}"
        if flushing.fsync_only:
            environment += " FSYNC_ONLY=1"
        arguments = [*mariadb.arguments(f"/mnt/{mariadb.FOLDER}", MEMORY), *flushing.options]
        server = shlex.join([self.vm.stage(mariadb.SERVER), *arguments])
        return f"{environment} {program} crash {MEMORY}/socket {MEMORY}/script {server}"

    def recover(self, folder: Path, plan_text: str, kind: Kind) -> list[Found]:
        """Let the kernel that is loaded recover the states of a plan, from base.img and log."""
        self._run_plan(folder, plan_text, kind, f"cp {MEMORY}/delta {MEMORY}/found {{here}}/\n")
        delta = (folder / "delta").read_bytes()
        position = 0
        found = []
        for line in (folder / "found").read_text().splitlines():
            one, position = parse_found(line, delta, position)
            found.append(one)
        return found

    def record_recovery(self, folder: Path, plan_text: str, target: Path, kind: Kind) -> None:
        """Put the state of a plan on a device and log what the kernel writes to recover it.

        Leaves `target`/log; that log and the state are in the guest's memory for recover().
        """
        there = f"{MEMORY}/{target.name}"
        parts = Parts("/dev/mapper/crash", "loop0", kind)
        self._run_plan(
            folder,
            plan_text,
            kind,
            f"mkdir -p {there} && cp {MEMORY}/image {there}/base.img || exit\n"
            + _create_log("/dev/loop0")
            + parts.create()
            + f"mount -t ext4 -o {parts.options()} {parts.device} /mnt && umount /mnt; status=$?\n"
            + parts.remove()
            + _keep_log(f"{there}/log")
            + f"cp {there}/log $FASTSYNC_OUT/{target.name}/log || exit\nexit $status\n",
        )

    def forget(self, folder: Path) -> None:
        """Free the memory that a run's image and log take."""
        self.vm.run(f"rm -rf {MEMORY}/{folder.name}")

    def _run_plan(self, folder: Path, plan_text: str, kind: Kind, then: str) -> None:
        """Run crashcheck, then more bash, in which {here} is the folder."""
        (folder / "plan").write_text(plan_text)
        parts = Parts("/dev/loop0", "loop0", kind)
        here, mine = f"$FASTSYNC_OUT/{folder.name}", f"{MEMORY}/{folder.name}"
        self.vm.run(
            f"if [ ! -d {mine} ]; then\n"
            f"  mkdir {mine} && cp {here}/base.img {here}/log {mine}/ || exit\nfi\n"
            f"truncate -r {mine}/base.img {MEMORY}/image && losetup -c /dev/loop0 || exit\n"
            + parts.create()
            + f"{self._check} {mine}/base.img {mine}/log {here}/plan {MEMORY}/image "
            f"{parts.devices} /mnt {MEMORY}/delta >{MEMORY}/found || exit\n"
            + parts.remove()
            + then.replace("{here}", here),
            timeout_s=CHECK_TIMEOUT_S,
        )


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


def _create_log(device: str) -> str:
    """Bash: /dev/mapper/crash, which logs what is written to a device."""
    sectors = f"$(</sys/block/{Path(device).name}/size)"
    return (
        f'dmsetup create crash --table "0 {sectors} log-writes {device} /dev/ram0" || exit\n'
        "dmsetup mknodes\n"
    )


def _keep_log(path: str) -> str:
    """Bash: end the log and copy what it has."""
    return (
        "set -- $(dmsetup status crash); last=$5\n"
        "dmsetup remove --retry crash || exit\n"
        # The end of the log comes when the device goes.
        f"dd if=/dev/ram0 of={path} bs=1M count=$((last / 2048 + 2)) 2>/dev/null || exit\n"
    )
