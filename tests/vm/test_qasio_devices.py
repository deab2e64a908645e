"""The scheduler qasio on other devices and file systems, and its coming and going."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fastsync_lab.host.build import ModuleSet, kbuild, make_module, own_module_variables
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.host.paths import build_dir, repo_root
from fastsync_lab.host.progress import silent
from fastsync_lab.machine.config import VmConfig
from fastsync_lab.machine.kernel_log import check_kernel_log
from fastsync_lab.machine.vm import Vm
from fastsync_lab.studies.qasio import WAITS
from tests.vm.conftest import IN_TIME, compile_program
from tests.vm.guestfs import DEVICE, FILE, MNT, GuestFs
from tests.vm.scheduled import (
    BACKLOG,
    BACKLOG_MS,
    QUEUE,
    SLOW_DEVICE,
    SLOW_MIB,
    STATE,
    Scheduled,
    settled,
)
from tests.vm.tracing import start_tracing, stop_tracing

WATCHED = ("folio_wait_writeback", "__lock_buffer", "__wait_on_buffer")


def test_values_out_of_range_are_refused(sched: Scheduled) -> None:
    for name, value in [("boost", "2"), ("idle_us", "-1"), ("async_wait_ms", "x")]:
        done = sched.vm.run(
            f"cd {QUEUE}/iosched; old=$(cat {name}); echo {value} >{name} && exit 9; "
            f"[ $(cat {name}) = $old ]",
            check=False,
        )
        assert done.status == 0, (name, done)
        assert "Invalid argument" in done.stderr


def test_switching_and_unloading_under_load(sched: Scheduled, qasio_ko: Path) -> None:
    settled(sched)
    ops = f"{sched.fs.fsops_path} {FILE} {BACKLOG} open overwrite:4096 fsync"
    load = f"while [ -e /run/load ]; do {ops}; done; rm /run/loaded"
    sched.vm.run(f"touch /run/load /run/loaded; ( {load} ) >/dev/null 2>&1 &")
    sched.vm.run(f"( while [ -e /run/load ]; do cat {STATE}; done ) >/dev/null 2>&1 &")
    for _ in range(5):
        done = sched.vm.run(
            f"rmmod qasio 2>&1; sleep 0.2; echo none >{QUEUE}/scheduler && rmmod qasio && "
            f"sleep 0.2 && insmod {sched.vm.stage(qasio_ko)} && "
            f"echo qasio >{QUEUE}/scheduler && sleep 0.2"
        )
        assert "in use" in done.stdout
    idle = sched.vm.run(
        f"rm /run/load; until [ ! -e /run/loaded ]; do sleep 0.1; done; sync; cat {STATE}"
    )
    assert "async 0\nin_flight 0\nwaited_for 0\n" in idle.stdout


def check_fsync_passes_the_backlog(sched: Scheduled, file: str) -> None:
    # Who has a file system may have left it something to do while the guest was idle.
    words = ("sync", "sleep:1000", "open", BACKLOG, "overwrite:4096", "writeback")
    for boost in (1, 0):
        sched.vm.run(f"dd if=/dev/zero of={file} bs=64k count=1 conv=notrunc,fsync status=none; "
                     "sync; sleep 1")  # fmt: skip
        sched.tune("boost", boost)
        before = sched.waits()
        took_ms = sched.timed_ms(*words, call="fsync", file=file)
        gained = sched.gained("sync", before)
        if not sched.vm.config.tree.variant:  # that takes as long for its own work
            assert (took_ms < BACKLOG_MS / 2) == bool(boost), (boost, took_ms, gained)
        assert (gained["boosted"] + gained["late"] > 0) == bool(boost), (boost, took_ms, gained)


@pytest.mark.parametrize("mode", ["truncate", "defer"])
def test_ext4_with_coarse_stamps(selected: GuestFs, mode: str) -> None:
    with selected.mounted(f"mtime_update=100,mtime_mode={mode}"):
        check_fsync_passes_the_backlog(Scheduled(selected), FILE)


@pytest.mark.parametrize("kind", ["xfs", pytest.param("btrfs", marks=IN_TIME), "f2fs"])
def test_other_file_systems(large_device: GuestFs, kind: str) -> None:
    vm = large_device.vm
    vm.run(f"mkfs.{kind} -q -f {DEVICE} && modprobe {kind} && mount -t {kind} {DEVICE} {MNT}")
    try:
        check_fsync_passes_the_backlog(Scheduled(large_device), FILE)
    finally:
        vm.run(f"umount {MNT}; wipefs -qa {DEVICE}")


def test_a_device_without_a_file_system(large_device: GuestFs) -> None:
    vm = large_device.vm
    mib = 2048  # in sectors
    vm.run(
        f"addpart {DEVICE} 1 0 {mib} && addpart {DEVICE} 2 {mib} {16 * mib} && "
        f"ln -s {DEVICE}p1 /run/raw && ln -s {DEVICE}p2 /run/raw.backlog"
    )
    # Who closes a device last waits for all that was written to it.
    vm.run("tail -f /dev/null </run/raw.backlog & echo $! >/run/holder")
    try:
        check_fsync_passes_the_backlog(Scheduled(large_device), "/run/raw")
    finally:
        vm.run("kill $(cat /run/holder); rm /run/raw*; sleep 1; "
               f"delpart {DEVICE} 1; delpart {DEVICE} 2")  # fmt: skip


def build_blind(tree: KernelTree) -> Path:
    """qasio with the names of all that it watches changed to some that there are not."""
    folder = build_dir() / f"{tree.series}-qasio-blind"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(repo_root() / "kernel" / "qasio", folder)
    source = folder / "wait.c"
    text = source.read_text()
    for name in WATCHED:
        assert f'"{name}"' in text
        text = text.replace(f'"{name}"', f'"no_{name}"')
    source.write_text(text)
    variables = own_module_variables(tree)
    make_module(kbuild(tree, silent), folder, folder / "build.log", *variables)
    return folder / "qasio.ko"


def test_without_its_probes_it_schedules_and_says_so(sched: Scheduled, tree: KernelTree) -> None:
    blind = build_blind(tree)
    sched.vm.run(f"echo none >{QUEUE}/scheduler; rmmod qasio; dmesg --clear")
    sched.vm.run(f"insmod {sched.vm.stage(blind)} && echo qasio >{QUEUE}/scheduler")
    log = sched.vm.run("dmesg").stdout
    for name in WATCHED:
        assert f"qasio: cannot watch no_{name} " in log
    settled(sched)
    words = (BACKLOG, "open", "overwrite:4096", "writeback")
    assert sched.timed_ms(*words, call="fsync") > BACKLOG_MS / 2


@contextmanager
def null_blk(vm: Vm, qasio_ko: Path, name: str, **settings: str) -> Iterator[None]:
    """A null_blk of 64 MiB that keeps what is written, as /dev/NAME under qasio."""
    disk = f"/sys/kernel/config/nullb/{name}"
    wanted = {"memory_backed": "1", "size": "64", **settings, "power": "1"}
    vm.run(
        f"insmod {vm.stage(qasio_ko)} && modprobe null_blk nr_devices=0 && "
        "(mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config) && "
        f"mkdir {disk} && "
        + "".join(f"echo {value} >{disk}/{key} && " for key, value in wanted.items())
        + f"echo qasio >/sys/block/{name}/queue/scheduler"
    )
    try:
        yield
    finally:
        vm.run(
            f"echo none >/sys/block/{name}/queue/scheduler; "
            f"echo 0 >{disk}/power; rmdir {disk}; rmmod null_blk qasio"
        )


def test_a_write_error_reaches_who_waits(vm: Vm, qasio_ko: Path) -> None:
    write = "dd if=/dev/zero of=/dev/bad bs=4k count=1 conv=notrunc"
    with null_blk(vm, qasio_ko, "bad", badblocks="+8192-8199"):
        assert vm.run(f"{write},fsync seek=1 2>&1", check=False).status == 0
        buffered = vm.run(f"{write},fsync seek=1024 2>&1", check=False)
        direct = vm.run(f"{write} oflag=direct seek=1024 2>&1", check=False)
        assert "Input/output error" in buffered.stdout
        assert "Input/output error" in direct.stdout
        assert "in_flight 0\n" in vm.run("cat /sys/kernel/debug/block/bad/sched/state").stdout
        complaints = check_kernel_log(vm.kernel_log())
        assert complaints
        assert all("error, dev bad, sector" in line or "/dev/bad" in line or "dev bad" in line
                   for line in complaints)  # fmt: skip


def test_zones_are_written_in_order(vm: Vm, qasio_ko: Path) -> None:
    # Out of its order in a zone a write fails.
    with null_blk(vm, qasio_ko, "zoned", zoned="1", zone_size="4"):
        vm.run(
            "[ $(cat /sys/block/zoned/queue/zoned) = host-managed ] && "
            "dd if=/dev/urandom of=/run/image bs=1M count=24 status=none && "
            "dd if=/run/image of=/dev/zoned bs=64k conv=notrunc,fsync status=none && "
            "fio --name=zones --filename=/dev/zoned --zonemode=zbd --rw=write "
            "--bs=16k --direct=1 --ioengine=libaio --iodepth=32 --offset=32m --size=32m "
            ">/dev/null && echo 3 >/proc/sys/vm/drop_caches && "
            "cmp -n 25165824 /run/image /dev/zoned; status=$?; rm /run/image; exit $status"
        )


SCSI = "/sys/bus/pseudo/drivers/scsi_debug"
SCSI_STATE = "/sys/kernel/debug/block/$(</run/disk)/sched/state"
REQUEUED = "block/block_rq_requeue"


@contextmanager
def scsi_disk(vm: Vm, qasio_ko: Path) -> Iterator[None]:
    """A SCSI disk of 32 MiB, named in /run/disk, under qasio: one that gives requests back.

    Of so many commands as every_nth says one has an error, and is tried again.
    """
    vm.run(
        f"insmod {vm.stage(qasio_ko)} && modprobe sd_mod && "
        "modprobe scsi_debug dev_size_mb=32 opts=16 statistics=1 && "
        f"for i in {{1..50}}; do ls {SCSI}/adapter0/host*/target*/*:*/block "
        ">/run/disk 2>/dev/null && break; sleep 0.1; done && "
        "echo qasio >/sys/block/$(</run/disk)/queue/scheduler"
    )
    try:
        start_tracing(vm, REQUEUED)
        yield
        assert "block_rq_requeue" in stop_tracing(vm, REQUEUED)
    finally:
        vm.run(
            "echo none >/sys/block/$(</run/disk)/queue/scheduler; "
            "rmmod scsi_debug qasio; rm -f /run/image /run/disk"
        )


def test_what_the_driver_gives_back_is_sent_again(vm: Vm, qasio_ko: Path) -> None:
    with scsi_disk(vm, qasio_ko):
        vm.run(
            "disk=/dev/$(</run/disk); dd if=/dev/urandom of=/run/image bs=1M count=24 status=none; "
            f"echo 7 >{SCSI}/every_nth; "
            "for i in 0 1 2; do dd if=/run/image of=$disk bs=64k count=128 skip=$((i * 128)) "
            "seek=$((i * 128)) conv=notrunc,fsync status=none & done; wait; "
            f"echo 0 >{SCSI}/every_nth; "
            "echo 3 >/proc/sys/vm/drop_caches; cmp -n 25165824 /run/image $disk"
        )
        assert "async 0\nin_flight 0\nwaited_for 0\n" in vm.run(f"cat {SCSI_STATE}").stdout


def write_while_given_back(vm: Vm, every_nth: int, writes: str) -> None:
    """The driver has one at a time, and gives some back. In the end no write may be left queued.

    Who closes a device last waits for all that was written to it: so it stays open.
    """
    vm.run(
        "disk=/dev/$(</run/disk); exec 7<$disk; "
        "echo 0 >/sys/block/$(</run/disk)/queue/iosched/async_kib; "
        f"echo {every_nth} >{SCSI}/every_nth; {writes}; "
        f"for i in {{1..100}}; do grep -q '^async 0' {SCSI_STATE} && break; sleep 0.1; done; "
        f"cat {SCSI_STATE}; echo 0 >{SCSI}/every_nth; grep -q '^async 0' {SCSI_STATE}"
    )


def test_a_backlog_that_nobody_waits_for_moves_on_when_the_driver_gives_it_back(
    vm: Vm, qasio_ko: Path, tmp_path: Path
) -> None:
    fsops = vm.stage(compile_program("fsops", tmp_path))
    with scsi_disk(vm, qasio_ko):
        write_while_given_back(vm, 3, f"{fsops} $disk open overwrite:{16 << 20} writeback")


def test_a_worse_class_is_not_forgotten_when_the_driver_gives_a_better_one_back(
    vm: Vm, qasio_ko: Path, tmp_path: Path
) -> None:
    fsops = vm.stage(compile_program("fsops", tmp_path))
    idle, better = (f"overwrite:4096,$(((i << 19) + {at})) writeback" for at in (0, 65536))
    with scsi_disk(vm, qasio_ko):
        write_while_given_back(
            vm,
            2,
            f"for i in {{0..31}}; do ionice -c 3 {fsops} $disk open {idle}; "
            f"{fsops} $disk open {better}; done",
        )


def test_copies_that_nobody_can_be_seen_to_wait_for_are_not_held_back(sched: Scheduled) -> None:
    settled(sched)
    sched.fs.umount()
    try:
        done = sched.vm.run(
            f'modprobe dm-crypt && dmsetup create secret --table "0 $(blockdev --getsz {DEVICE}) '
            f'crypt cipher_null-ecb - 0 {DEVICE} 0" || exit\n'
            "exec 7</dev/mapper/secret; touch /run/load\n"
            f"( while [ -e /run/load ]; do cat {STATE}; sleep 0.001; done ) >/run/states & "
            f"{sched.fs.fsops_path} /dev/mapper/secret open overwrite:{8 << 20} writeback || exit\n"
            "sync /dev/mapper/secret; rm /run/load; wait; exec 7<&-; dmsetup remove secret\n"
            "sort /run/states | uniq -c"
        )
    finally:
        sched.fs.mkfs()
        sched.fs.mount()
    assert re.search(" file [1-9]", done.stdout), done.stdout
    assert not re.search(" async [1-9]", done.stdout), done.stdout


def test_two_processors_one_of_which_comes_and_goes(
    tree: KernelTree, modules: ModuleSet, flashdev: Path, qasio_ko: Path, tmp_path: Path
) -> None:
    with Vm(VmConfig(tree, cpus=2, real_time=True)) as guest:
        fsops = guest.stage(compile_program("fsops", tmp_path))
        guest.load_filesystem(modules)
        guest.load_device(SLOW_DEVICE, flashdev, capacity_mib=SLOW_MIB)
        fs = GuestFs(guest, fsops, DEVICE)
        guest.kernel_log()
        guest.run(f"insmod {guest.stage(qasio_ko)} && echo qasio >{QUEUE}/scheduler")
        with fs.mounted():
            loads = "".join(
                f"( while :; do {fsops} {MNT}/f{i} backlog:2 create overwrite:4096 writeback "
                f"fsync; rm -f {MNT}/f{i}; done ) >/dev/null 2>&1 & echo $! >>/run/loads\n"
                for i in range(3)
            )
            guest.run(loads)
            guest.run(
                "for i in 1 2 3; do echo 0 >/sys/devices/system/cpu/cpu1/online && sleep 1 && "
                "echo 1 >/sys/devices/system/cpu/cpu1/online && "
                f"echo none >{QUEUE}/scheduler && sleep 0.3 && echo qasio >{QUEUE}/scheduler && "
                # Each change suspends the queue and lets what is under way finish.
                f"for n in 4 2048 60; do echo $n >{QUEUE}/nr_requests && sleep 0.3 || exit; done "
                "|| exit; done"
            )
            boosted = f"grep -q '^sync .* boosted [1-9]' {WAITS}"
            guest.run(f"until {boosted}; do sleep 0.1; done")
            guest.run("kill $(cat /run/loads); sleep 3; sync", timeout_s=300)
        guest.run(f"echo none >{QUEUE}/scheduler && rmmod qasio")
        assert check_kernel_log(guest.kernel_log()) == []
