"""The scheduler qasio: what somebody waits for passes the backlog, and nothing starves.

The device takes 50 ms for 512 KiB. A backlog of 8 MiB is sent to it as write-back does, in
requests of up to 512 KiB; whatever waits for write-back behind it waits 0.8 s, unless it is
boosted.
"""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fastsync_lab.build import (
    ModuleSet,
    build_qasio,
    kbuild,
    make_module,
    own_module_variables,
    own_modules,
)
from fastsync_lab.device import load_profile
from fastsync_lab.kernel_log import check_kernel_log
from fastsync_lab.kernels import KernelTree
from fastsync_lab.paths import build_dir, repo_root
from fastsync_lab.progress import silent
from fastsync_lab.vm import Vm, VmConfig
from fastsync_lab.waits.cells import WAITS, parse_waits
from tests.vm.conftest import IN_TIME, compile_program, other_device
from tests.vm.guestfs import FILE, MNT, Event, GuestFs, parse_events

QUEUE = "/sys/block/flash0/queue"
STATE = "/sys/kernel/debug/block/flash0/sched/state"
WATCHED = ("folio_wait_writeback", "__lock_buffer", "__wait_on_buffer")
BOOST_EVENT = "/sys/kernel/tracing/events/qasio/qasio_boost/enable"
SLOW_DEVICE = replace(
    load_profile("uniform-100us"),
    name="slow",
    write_mib_s=10,
    read_mib_s=100,
    discard_ns=500_000_000,
    queue_depth=32,
)
CAPACITY_MIB = 64
LARGE_MIB = 512  # XFS takes no less than 300
REQUEST_MS = 50  # of 512 KiB
BACKLOG = "backlog:8"
BACKLOG_MS = 800
# The two requests that the driver may have of the backlog, and the own one.
BOOSTED_MS = 4 * REQUEST_MS

Counters = dict[str, dict[str, int]]


def between_ms(before: Event, after: Event) -> float:
    """The time between two clock ops, in ms."""
    return (after["time_ns"] - before["time_ns"]) / 1e6


@dataclass(frozen=True)
class Scheduled:
    """A mounted ext4 on the slow device under qasio."""

    fs: GuestFs

    @property
    def vm(self) -> Vm:
        return self.fs.vm

    def waits(self) -> Counters:
        return parse_waits(self.vm.run(f"cat {WAITS}").stdout)

    def passed(self, why: str) -> int:
        """How many requests passed the backlog as of the "same_file" or "same_bio"."""
        return int(self.vm.run(f"awk '/^{why}/ {{ print $2 }}' {WAITS}").stdout)

    def tune(self, name: str, value: int) -> None:
        self.vm.run(f"echo {value} >{QUEUE}/iosched/{name}")

    def timed_ms(self, *words: str, call: str, file: str = FILE) -> float:
        """Do `words`, then `call`; how long that took, in ms."""
        return between_ms(*self.fs.ops(*words, "clock", call, "clock", file=file))

    def gained(self, kind: str, before: Counters) -> dict[str, int]:
        after = self.waits()[kind]
        return {name: value - before[kind][name] for name, value in after.items()}


@pytest.fixture(scope="module")
def qasio_ko(tree: KernelTree) -> Path:
    if "qasio" not in own_modules(tree):
        pytest.skip(f"qasio is not for Linux {tree.series}")
    return build_qasio(tree)


@pytest.fixture(scope="module")
def slow_device(
    vm: Vm, fsops: str, modules: ModuleSet, flashdev: Path, qasio_ko: Path
) -> Iterator[GuestFs]:
    vm.run("mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug")
    with other_device(vm, modules, flashdev, SLOW_DEVICE, CAPACITY_MIB) as device:
        yield GuestFs(vm, fsops, device)


@pytest.fixture
def selected(slow_device: GuestFs, qasio_ko: Path) -> Iterator[GuestFs]:
    """The slow device under qasio."""
    slow_device.vm.run(f"insmod {qasio_ko} && echo qasio >{QUEUE}/scheduler")
    yield slow_device
    slow_device.vm.run(f"echo none >{QUEUE}/scheduler && rmmod qasio")


@pytest.fixture
def sched(selected: GuestFs) -> Iterator[Scheduled]:
    with selected.mounted("commit=300"):
        yield Scheduled(selected)


def settled(sched: Scheduled, *words: str) -> None:
    """A file of 64 KiB, wholly on the medium, and `words` done to it."""
    sched.vm.run(f"dd if=/dev/zero of={FILE} bs=64k count=1 conv=fsync status=none; sync")
    if words:
        sched.fs.ops("open", *words)
    sched.vm.run("sync; echo 3 >/proc/sys/vm/drop_caches; sleep 1")


@pytest.mark.short
def test_module_loads_and_says_what_it_is(sched: Scheduled) -> None:
    assert "[qasio]" in sched.vm.run(f"cat {QUEUE}/scheduler").stdout
    assert "cannot watch" not in sched.vm.run("dmesg").stdout
    assert sched.vm.run(f"cat {QUEUE}/wbt_lat_usec").stdout == "0\n"


@pytest.mark.short
@pytest.mark.parametrize(
    ("words", "call"),
    [
        (("open", "overwrite:4096", "writeback"), "fsync"),
        (("open", "overwrite:4096", "writeback"), "truncate:0"),
        (("open", "overwrite:65536", "writeback"), "fdatasync"),
    ],
)
def test_who_waits_for_durable_data_passes_the_backlog(
    sched: Scheduled, words: tuple[str, ...], call: str
) -> None:
    settled(sched)
    before = sched.waits()
    assert sched.timed_ms(BACKLOG, *words, call=call) < BOOSTED_MS
    assert sched.gained("sync", before)["boosted"] == 1
    settled(sched)  # blocks in place again: what is allocated anew may lie ahead of the backlog
    sched.tune("boost", 0)
    before = sched.waits()
    assert sched.timed_ms(BACKLOG, *words, call=call) > BACKLOG_MS / 2
    assert sched.gained("sync", before)["boosted"] == 0


@IN_TIME
def test_a_small_fsync_need_not_wait_for_that_of_a_large_file(sched: Scheduled) -> None:
    settled(sched)
    large, program = f"{MNT}/large", sched.fs.fsops_path
    before = sched.passed("same_file")
    done = sched.vm.run(
        f": >{large} && {program} {large} open {BACKLOG} || exit\n"
        f"{program} {large}.backlog clock open fsync clock >/run/large & large=$!\n"
        f"{program} {FILE} open sleep:50 overwrite:4096 clock fsync clock || exit\n"
        "wait $large && cat /run/large"
    )
    events = parse_events(done.stdout)  # of the small one first
    assert between_ms(*events[:2]) < BOOSTED_MS + REQUEST_MS
    assert between_ms(*events[2:]) < 2 * BACKLOG_MS
    assert sched.passed("same_file") - before > 8  # all but what the driver had before


def test_a_task_that_changes_metadata_under_write_back_is_boosted(sched: Scheduled) -> None:
    # Sixteen inodes share a block. The root's and the backlog's change: a block with one of these
    # belongs to the running transaction and is not written back.
    sched.vm.run(f"for i in {{1..40}}; do echo >{MNT}/m$i; done; sync")
    file = f"{MNT}/m20"
    sched.fs.ops("open", "chmod:600", "fsync", file=file)  # its inode's block is dirty now
    before = sched.waits()
    words = ("open", BACKLOG, "writebackmeta")
    assert sched.timed_ms(*words, call="chmod:640", file=file) < BOOSTED_MS
    gained = sched.gained("meta", before)
    assert gained["boosted"] >= 1
    assert gained["handle"] >= 1


def test_pages_need_not_be_stable_and_nobody_waits(sched: Scheduled) -> None:
    settled(sched)
    before = sched.waits()
    words = (BACKLOG, "open", "overwrite:4096", "writeback")
    assert sched.timed_ms(*words, call="overwrite:4096") < REQUEST_MS
    assert sched.gained("data", before)["waits"] == 0


@pytest.fixture
def stable(selected: GuestFs) -> Iterator[Scheduled]:
    """As sched, but pages must not change while they are written."""
    selected.vm.run(f"echo 1 >{QUEUE}/stable_writes")
    with selected.mounted("commit=300"):
        yield Scheduled(selected)
    selected.vm.run(f"echo 0 >{QUEUE}/stable_writes")


def test_a_task_that_writes_to_a_stable_page_is_boosted(stable: Scheduled) -> None:
    settled(stable)
    before = stable.waits()
    words = (BACKLOG, "open", "overwrite:4096", "writeback")
    assert stable.timed_ms(*words, call="overwrite:4096") < BOOSTED_MS
    assert stable.gained("data", before)["boosted"] == 1


@IN_TIME
@pytest.mark.parametrize("offset_kib", [0, 1020])
def test_all_parts_of_a_split_bio_are_boosted(stable: Scheduled, offset_kib: int) -> None:
    # Of 1 MiB, sent as two requests: its pages are done when both are.
    stable.vm.run(f"dd if=/dev/zero of={FILE} bs=1M count=1 conv=fsync status=none; sync; sleep 1")
    data, parts = stable.waits(), stable.passed("same_bio")
    words = (BACKLOG, "open", f"overwrite:{1 << 20}", "writeback")
    call = f"overwrite:4096,{offset_kib << 10}"
    assert stable.timed_ms(*words, call=call) < BOOSTED_MS + REQUEST_MS
    assert stable.gained("data", data)["boosted"] == 1
    assert stable.passed("same_bio") - parts == 1


def test_discards_are_not_waited_for_by_a_commit(sched: Scheduled) -> None:
    sched.fs.remount("discard")
    settled(sched)
    sched.vm.run(f"dd if=/dev/zero of={MNT}/gone bs=1M count=8 conv=fsync status=none; sync")
    sched.vm.run(f"rm {MNT}/gone")
    assert sched.timed_ms("open", "chmod:600", call="fsync") < SLOW_DEVICE.discard_ns / 1e6 / 2
    # The commit freed the blocks; a worker discards them afterwards.
    discards = "[ $(awk '{print $12}' /sys/block/flash0/stat) != 0 ]"
    sched.vm.run(f"for i in {{1..50}}; do ! {discards} || exit 0; sleep 0.1; done; exit 1")


@IN_TIME
def test_a_wait_that_begins_before_the_request_is_queued_is_not_missed(sched: Scheduled) -> None:
    sched.vm.run(f"echo 4 >{QUEUE}/nr_requests")
    settled(sched)
    before = sched.waits()
    # Two senders wait for tags; the second one's page is under write-back and in no request yet.
    senders = (f"later:0,{BACKLOG}", "later:100,writeback")
    sched.timed_ms("open", "overwrite:4096", *senders, "sleep:130", call="fsync")
    gained = sched.gained("sync", before)
    assert (gained["boosted"], gained["late"]) == (0, 1)


def test_every_boost_is_a_trace_event(sched: Scheduled) -> None:
    settled(sched)
    sched.vm.run(f"echo >/sys/kernel/tracing/trace; echo 1 >{BOOST_EVENT}")
    sched.fs.ops(BACKLOG, "open", "overwrite:4096", "writeback", "fsync")
    trace = sched.vm.run(f"echo 0 >{BOOST_EVENT}; cat /sys/kernel/tracing/trace").stdout
    events = re.findall(r"qasio_boost: (\d+,\d+) (\w+) \d+ \+ (\d+), (\d+) ahead", trace)
    assert [event[1:3] for event in events] == [("sync", "8")]
    assert int(events[0][3]) > 8


@IN_TIME
@pytest.mark.parametrize("wait_ms", [100, 400])
def test_the_backlog_moves_while_others_write_all_the_time(sched: Scheduled, wait_ms: int) -> None:
    settled(sched)
    sched.tune("boost", 0)
    sched.tune("async_wait_ms", wait_ms)
    words = ("open", "direct:1500", "sleep:50", "overwrite:4096", "writeback")
    took_ms = sched.timed_ms(*words, call="fsync")
    assert wait_ms - 20 < took_ms < wait_ms + 100


def flood(vm: Vm) -> str:
    """Bash that has more reads under way than the device can do, by the process in /run/flood."""
    return (
        f"{vm.stage('fio')} --name=flood --filename=/dev/flash0 --readonly --rw=randread --bs=128k "
        "--direct=1 --ioengine=libaio --iodepth=48 --time_based --runtime=9s --thread "
        ">/dev/null 2>&1 & echo $! >/run/flood\n"
        "for i in {1..200}; do read -a s </sys/block/flash0/stat; [ ${s[8]} -lt 40 ] || break; "
        "sleep 0.05; done\n"
    )


@IN_TIME
def test_the_rest_of_a_file_that_nobody_waits_for_any_more_moves_under_a_flood_of_reads(
    sched: Scheduled,
) -> None:
    settled(sched)
    sched.vm.run(f"echo 256 >{QUEUE}/nr_requests")  # for the reads and the file
    large, program = f"{MNT}/large", sched.fs.fsops_path
    done = sched.vm.run(
        f": >{large}; {flood(sched.vm)}"
        f"{program} {large} open backlog:16 && {program} {large}.backlog open waitfirst || exit\n"
        f"cat {STATE}; sleep 1.5; cat {STATE}; kill $(cat /run/flood)"
    )
    queued = [int(count) for count in re.findall(r"^file (\d+)$", done.stdout, re.MULTILINE)]
    assert queued[0] > 10, queued  # the first bio, of up to half of it, is what was waited for
    assert queued[1] < queued[0] - 5, queued
    sched.vm.run("sleep 1")


def write_ms_beside_a_flood(sched: Scheduled, command: str = "") -> float:
    """How long a direct write of 4 KiB takes beside a flood of reads, run by `command`."""
    done = sched.vm.run(
        f"{flood(sched.vm)}{command} {sched.fs.fsops_path} {FILE} opendirect sleep:1000 "
        "clock write clock\nstatus=$?; kill $(cat /run/flood) && sleep 1; exit $status"
    )
    return between_ms(*parse_events(done.stdout))


@IN_TIME
@pytest.mark.parametrize(("wait_ms", "most_ms"), [(400, 500), (0, 150)])
def test_a_sync_write_passes_a_flood_of_reads_in_time(
    sched: Scheduled, wait_ms: int, most_ms: int
) -> None:
    settled(sched)
    sched.tune("sync_wait_ms", wait_ms)
    assert wait_ms * 0.9 < write_ms_beside_a_flood(sched) < most_ms


@IN_TIME
@pytest.mark.parametrize(("ionice", "least_ms", "most_ms"), [("-c 1", 0, 150), ("-c 3", 900, 1100)])
def test_classes_pass_each_other_until_one_has_waited_too_long(
    sched: Scheduled, ionice: str, least_ms: int, most_ms: int
) -> None:
    settled(sched)
    sched.tune("sync_wait_ms", 400)
    sched.tune("prio_aging_ms", 1000)
    assert least_ms < write_ms_beside_a_flood(sched, f"ionice {ionice}") < most_ms


def test_neighbouring_requests_are_merged(sched: Scheduled) -> None:
    settled(sched)
    before, after = sched.fs.ops("open", BACKLOG, "io", "pages:16", "sync", "io")
    backlog_requests = BACKLOG_MS // REQUEST_MS
    assert after["writes"] - before["writes"] < backlog_requests + 16


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
    load = f"while :; do {sched.fs.fsops_path} {FILE} {BACKLOG} open overwrite:4096 fsync; done"
    sched.vm.run(f"( {load} ) >/dev/null 2>&1 & echo $! >/run/load")
    for _ in range(5):
        done = sched.vm.run(
            f"rmmod qasio 2>&1; sleep 0.2; echo none >{QUEUE}/scheduler && rmmod qasio && "
            f"sleep 0.2 && insmod {qasio_ko} && echo qasio >{QUEUE}/scheduler && sleep 0.2"
        )
        assert "in use" in done.stdout
    sched.vm.run("kill $(cat /run/load); sleep 2; sync")
    assert "async 0\nin_flight 0\nwaited_for 0\n" in sched.vm.run(f"cat {STATE}").stdout


@pytest.fixture
def large_device(selected: GuestFs, flashdev: Path) -> Iterator[GuestFs]:
    vm = selected.vm
    vm.load_device(SLOW_DEVICE, flashdev, capacity_mib=LARGE_MIB)
    vm.run(f"echo qasio >{QUEUE}/scheduler")
    yield selected
    vm.load_device(SLOW_DEVICE, flashdev, capacity_mib=CAPACITY_MIB)


def check_fsync_passes_the_backlog(sched: Scheduled, file: str) -> None:
    words = ("open", BACKLOG, "overwrite:4096", "writeback")
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
    vm.run(f"mkfs.{kind} -q -f /dev/flash0 && modprobe {kind} && mount -t {kind} /dev/flash0 {MNT}")
    try:
        check_fsync_passes_the_backlog(Scheduled(large_device), FILE)
    finally:
        vm.run(f"umount {MNT}; wipefs -qa /dev/flash0")


def test_a_device_without_a_file_system(large_device: GuestFs) -> None:
    vm = large_device.vm
    mib = 2048  # in sectors
    vm.run(
        f"addpart /dev/flash0 1 0 {mib} && addpart /dev/flash0 2 {mib} {16 * mib} && "
        "ln -s /dev/flash0p1 /run/raw && ln -s /dev/flash0p2 /run/raw.backlog"
    )
    # Who closes a device last waits for all that was written to it.
    vm.run("tail -f /dev/null </run/raw.backlog & echo $! >/run/holder")
    try:
        check_fsync_passes_the_backlog(Scheduled(large_device), "/run/raw")
    finally:
        vm.run("kill $(cat /run/holder); rm /run/raw*; sleep 1; "
               "delpart /dev/flash0 1; delpart /dev/flash0 2")  # fmt: skip


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
    sched.vm.run(f"insmod {blind} && echo qasio >{QUEUE}/scheduler")
    log = sched.vm.run("dmesg").stdout
    for name in WATCHED:
        assert f"qasio: cannot watch no_{name} " in log
    settled(sched)
    words = (BACKLOG, "open", "overwrite:4096", "writeback")
    assert sched.timed_ms(*words, call="fsync") > BACKLOG_MS / 2


@contextmanager
def null_disk(vm: Vm, qasio_ko: Path, name: str, **settings: str) -> Iterator[None]:
    """A null_blk of 64 MiB that keeps what is written, as /dev/NAME under qasio."""
    disk = f"/sys/kernel/config/nullb/{name}"
    wanted = {"memory_backed": "1", "size": "64", **settings, "power": "1"}
    vm.run(
        f"insmod {qasio_ko} && modprobe null_blk nr_devices=0 && "
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
    with null_disk(vm, qasio_ko, "bad", badblocks="+8192-8199"):
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
    with null_disk(vm, qasio_ko, "zoned", zoned="1", zone_size="4"):
        vm.run(
            "[ $(cat /sys/block/zoned/queue/zoned) = host-managed ] && "
            "dd if=/dev/urandom of=/run/image bs=1M count=24 status=none && "
            "dd if=/run/image of=/dev/zoned bs=64k conv=notrunc,fsync status=none && "
            f"{vm.stage('fio')} --name=zones --filename=/dev/zoned --zonemode=zbd --rw=write "
            "--bs=16k --direct=1 --ioengine=libaio --iodepth=32 --offset=32m --size=32m "
            ">/dev/null && echo 3 >/proc/sys/vm/drop_caches && "
            "cmp -n 25165824 /run/image /dev/zoned; status=$?; rm /run/image; exit $status"
        )


def test_what_the_driver_gives_back_is_sent_again(vm: Vm, qasio_ko: Path) -> None:
    requeued = "/sys/kernel/tracing/events/block/block_rq_requeue"
    driver = "/sys/bus/pseudo/drivers/scsi_debug"
    every_nth = f"{driver}/every_nth"  # of so many commands one is aborted
    vm.run(
        f"insmod {qasio_ko} && modprobe sd_mod && "
        "modprobe scsi_debug dev_size_mb=32 opts=16 statistics=1 && "
        f"for i in {{1..50}}; do ls {driver}/adapter0/host*/target*/*:*/block "
        ">/run/disk 2>/dev/null && break; sleep 0.1; done && "
        "echo qasio >/sys/block/$(</run/disk)/queue/scheduler && "
        f"echo >/sys/kernel/tracing/trace && echo 1 >{requeued}/enable"
    )
    try:
        vm.run(
            "disk=/dev/$(</run/disk); dd if=/dev/urandom of=/run/image bs=1M count=24 status=none; "
            f"echo 7 >{every_nth}; "
            "for i in 0 1 2; do dd if=/run/image of=$disk bs=64k count=128 skip=$((i * 128)) "
            "seek=$((i * 128)) conv=notrunc,fsync status=none & done; wait; "
            f"echo 0 >{every_nth}; "
            "echo 3 >/proc/sys/vm/drop_caches; cmp -n 25165824 /run/image $disk"
        )
        assert "block_rq_requeue" in vm.run("cat /sys/kernel/tracing/trace").stdout
        state = vm.run("cat /sys/kernel/debug/block/$(</run/disk)/sched/state").stdout
        assert "async 0\nin_flight 0\nwaited_for 0\n" in state
    finally:
        vm.run(
            f"echo 0 >{requeued}/enable; echo none >/sys/block/$(</run/disk)/queue/scheduler; "
            "rmmod scsi_debug qasio; rm -f /run/image /run/disk"
        )


def test_two_processors_one_of_which_comes_and_goes(
    tree: KernelTree, modules: ModuleSet, flashdev: Path, qasio_ko: Path, tmp_path: Path
) -> None:
    with Vm(VmConfig(tree, cpus=2, real_time=True)) as guest:
        fsops = guest.stage(str(compile_program("fsops", tmp_path)))
        guest.load_filesystem(modules)
        guest.load_device(SLOW_DEVICE, flashdev, capacity_mib=CAPACITY_MIB)
        fs = GuestFs(guest, fsops, "/dev/flash0")
        guest.kernel_log()
        guest.run(f"insmod {qasio_ko} && echo qasio >{QUEUE}/scheduler")
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
            waits = parse_waits(
                guest.run(f"mount -t debugfs d /sys/kernel/debug; cat {WAITS}").stdout
            )
            assert waits["sync"]["boosted"] > 0
            guest.run("kill $(cat /run/loads); sleep 3; sync", timeout_s=300)
        guest.run(f"echo none >{QUEUE}/scheduler && rmmod qasio")
        assert check_kernel_log(guest.kernel_log()) == []
