"""Much at once on one file system and beside it: files, options, mounts, until a round is over."""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

from fastsync_lab.host.build import ModuleSet
from fastsync_lab.machine.vm import Vm
from tests.vm.conftest import compile_program, prepare
from tests.vm.guestfs import KMEMLEAK, MNT, GuestFs, leaks

# How many accesses KCSAN lets pass before it watches one, and for how long, in us, it does.
KCSAN = "/sys/module/kcsan/parameters"
KCSAN_SKIPS, KCSAN_WATCHES_US = 1000, 200
SECOND = "/dev/ram0"

# name: (mkfs options, mount options)
KINDS = {
    "ordered": ("", ""),
    "data=journal": ("", "data=journal"),
    "fast_commit": ("-O fast_commit", ""),
    "no journal": ("-O ^has_journal", ""),
    "quota": ("-O quota", "usrquota"),
    "bigalloc": ("-O bigalloc -C 65536", ""),
}
LOGS_DATA = ("ordered", "quota")  # of those kinds with eager_sync
MOUNTS = ["mtime_update=20,mtime_mode=defer", "mtime_update=50,lazytime", ""]
MTIME_OPTIONS = [
    "mtime_update=1", "mtime_update=20,mtime_mode=defer", "mtime_update=100,mtime_mode=defer",
    "mtime_update=1000,mtime_mode=truncate", "mtime_update=1000,mtime_mode=defer",
    "un_mtime_update",
]  # fmt: skip
EAGER_MOUNTS = ["eager_sync=8", "mtime_update=20,mtime_mode=defer,eager_sync"]
EAGER_OPTIONS = ["eager_sync", "eager_sync=1", "eager_sync=8", "un_eager_sync"]
OTHER_OPTIONS = [
    "lazytime", "nolazytime", "commit=1", "commit=30", "nobarrier", "barrier", "sync", "async",
    "auto_da_alloc", "noauto_da_alloc", "discard", "nodiscard", "max_batch_time=0",
    "max_batch_time=15000", "errors=remount-ro", "errors=continue",
]  # fmt: skip


@dataclass(frozen=True)
class Stress:
    """A guest and the programs in it. `round_ms` is how long each of them works."""

    fs: GuestFs
    modules: ModuleSet
    program: str
    fio: str
    round_ms: int
    eager: bool

    def mounts(self, most: int | None = None) -> list[str]:
        """The options of the rounds; at most so many without eager_sync and as many with it."""
        return MOUNTS[:most] + (EAGER_MOUNTS[:most] if self.eager else [])

    def toggles(self) -> list[str]:
        """What a remount may switch; what this is about comes up as often as all else."""
        return [*MTIME_OPTIONS * 2, *(EAGER_OPTIONS * 3 if self.eager else []), *OTHER_OPTIONS]

    def mkfs(self, options: str) -> None:
        """New file systems, and nothing known of what is in them."""
        self.fs.mkfs(options)
        self.fs.vm.run(
            "rm -f /dev/shm/model*; [ -d /sys/module/brd ] || modprobe brd rd_nr=1 rd_size=16384; "
            f"mkfs.ext4 -qF -E lazy_itable_init=0,lazy_journal_init=0 {SECOND}"
        )

    def round(self, options: str, seed: int) -> dict[str, int]:
        """Mount, do everything at once, unmount; what each did how often.

        The next round finds the files as this one leaves them, or fails.
        """
        end = f"{self.round_ms} {seed}"
        options_of_mounts = shlex.join(MTIME_OPTIONS + (EAGER_OPTIONS if self.eager else []))
        jobs = {
            "fsx0": f"fsx {MNT}/fsx0 /dev/shm/model0 {end}",
            "fsx1": f"fsx {MNT}/fsx1 /dev/shm/model1 {self.round_ms} {seed + 1000}",
            "churn": f"churn {MNT}/churn {end}",
            "toggle": f"toggle {MNT} {end} {shlex.join(self.toggles())}",
            "mounts": f"mounts {SECOND} /dev/shm/second {end} {options_of_mounts}",
        }
        fio = shlex.join(
            [self.fio, "--name=eight", f"--directory={MNT}", "--numjobs=8", "--size=1M",
             "--bs=4k", "--rw=randrw", "--fsync=4", "--verify=crc32c", "--randseed=7", "--thread",
             "--time_based", f"--runtime={self.round_ms}ms", "--output-format=terse"]
        )  # fmt: skip
        out = self.fs.vm.run(
            f"mkdir -p /dev/shm/second; mount -t ext4 -o {options or 'rw'} {self.fs.device} {MNT} "
            "|| exit\npids=\n"
            + "".join(
                f"{self.program} {job} >/dev/shm/{name}.out & pids=\"$pids $!\"\n"
                for name, job in jobs.items()
            )
            + f"{fio} >/dev/shm/fio.out & pids=\"$pids $!\"\n"
            "status=0; for pid in $pids; do wait $pid || status=$?; done\n"
            "cat /sys/fs/ext4/*/eager_stats >/dev/shm/eager.out\n"
            f"umount {MNT} || exit; [ $status = 0 ] || exit $status\n"
            f"for device in {self.fs.device} {SECOND}; do e2fsck -fn $device || exit; done >&2\n"
            f"cd /dev/shm; cat {' '.join(f'{name}.out' for name in (*jobs, 'eager'))}",
            timeout_s=60 + self.round_ms / 100,
        ).stdout.splitlines()  # fmt: skip
        counts = [json.loads(line)["count"] for line in out[: len(jobs)]]
        logged = sum(int(line.split()[1]) for line in out if line.startswith("data_blocks "))
        return {**dict(zip(jobs, counts, strict=True)), "logged": logged}

    def reload(self) -> None:
        """Unload the pair, which frees all that it has, and load it again."""
        self.fs.vm.load_filesystem(self.modules)


def stress_on(
    vm: Vm, modules: ModuleSet, flashdev: Path, folder: Path, *, round_ms: int, eager: bool
) -> Stress:
    """Stress in this guest; `folder` is for the programs."""
    fsops = vm.stage(compile_program("fsops", folder))
    fs = GuestFs(vm, fsops, prepare(vm, modules, flashdev))
    program = vm.stage(compile_program("stress", folder))
    vm.run(
        f"[ ! -f {KMEMLEAK} ] || echo clear >{KMEMLEAK}\n"
        f"[ ! -d {KCSAN} ] || {{ echo {KCSAN_SKIPS} >{KCSAN}/skip_watch && "
        f"echo {KCSAN_WATCHES_US} >{KCSAN}/udelay_task; }}"
    )
    return Stress(fs, modules, program, "fio", round_ms, eager)


def check_rounds(stress: Stress, kind: str, mounts: list[str]) -> None:
    mkfs, always = KINDS[kind]
    stress.mkfs(mkfs)
    logged = 0
    for seed, options in enumerate(mounts):
        counts = stress.round(",".join(filter(None, (always, options))), seed)
        logged += counts.pop("logged")
        assert min(counts.values()) > 0, counts
        stress.reload()
    assert (logged > 0) == (stress.eager and kind in LOGS_DATA)
    assert leaks(stress.fs.vm) == ""
