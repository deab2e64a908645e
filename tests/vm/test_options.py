"""mtime_update, un_mtime_update and mtime_mode: at mount, at remount, from the superblock."""

import errno

import pytest

from fastsync_lab.host.kernels import KernelTree
from tests.vm.conftest import has_bursts
from tests.vm.eagerfs import journal
from tests.vm.guestfs import GuestFs, sound_log
from tests.vm.tracing import TRACING

DEFAULT = ["mtime_update=100", "mtime_mode=truncate"]


def in_force(fs: GuestFs) -> list[str]:
    return [option for option in fs.shown_options() if option.startswith("mtime")]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ("", []),
        ("mtime_update", DEFAULT),
        ("mtime_update=1", ["mtime_update=1", "mtime_mode=truncate"]),
        ("mtime_update=1000", ["mtime_update=1000", "mtime_mode=truncate"]),
        ("mtime_update,mtime_mode=truncate", DEFAULT),
        ("mtime_mode=defer,mtime_update=20", ["mtime_update=20", "mtime_mode=defer"]),
        ("mtime_update=20,mtime_update", DEFAULT),
        ("mtime_update,un_mtime_update", []),
        ("un_mtime_update", []),
        ("un_mtime_update,mtime_update", DEFAULT),
        ("mtime_update,mtime_mode=defer,un_mtime_update,mtime_update", DEFAULT),
    ],
)
def test_mount(fs: GuestFs, options: str, shown: list[str]) -> None:
    with fs.mounted(options):
        assert in_force(fs) == shown


RANGE = "from 1 to 1000"
MODES = "truncate or defer"
BAD = [
    ("mtime_update=0", "mtime_update=0", RANGE),
    ("mtime_update=1001", "mtime_update=1001", RANGE),
    ("mtime_update=-1", "mtime_update=-1", RANGE),
    ("mtime_update=abc", "mtime_update=abc", RANGE),
    ("mtime_update=10x", "mtime_update=10x", RANGE),
    ("mtime_update=0x10", "mtime_update=0x10", RANGE),
    ("mtime_update=4294967297", "mtime_update=4294967297", RANGE),
    ("mtime_update=", "mtime_update=:", RANGE),
    ("mtime_update,mtime_mode=x", "mtime_mode=x", MODES),
    ("mtime_update,mtime_mode=", "mtime_mode=:", MODES),
    ("mtime_update,mtime_mode", "mtime_mode=:", MODES),
]
ORPHANED_MODES = [
    ("mtime_mode=defer", "mtime_mode=defer", "needs mtime_update"),
    ("mtime_mode=truncate", "mtime_mode=truncate", "needs mtime_update"),
    ("mtime_update,un_mtime_update,mtime_mode=defer", "mtime_mode=defer", "needs mtime_update"),
]


def check_refused(
    fs: GuestFs, options: str, names: str, allowed: str, *, remount: bool = False
) -> None:
    """mount(2) says EINVAL, and the kernel log names the option and what it may be."""
    sound_log(fs.vm)
    assert fs.mount_errno(options, remount=remount) == errno.EINVAL
    log = sound_log(fs.vm)
    assert names in log and allowed in log


@pytest.mark.parametrize(("options", "names", "allowed"), BAD + ORPHANED_MODES)
def test_bad_option_fails_the_mount(fs: GuestFs, options: str, names: str, allowed: str) -> None:
    fs.mkfs()
    check_refused(fs, options, names, allowed)
    assert fs.vm.run("grep -c ' /mnt ' /proc/mounts", check=False).stdout.strip() == "0"


@pytest.mark.parametrize(("options", "names", "allowed"), BAD)
def test_bad_remount_changes_nothing(fs: GuestFs, options: str, names: str, allowed: str) -> None:
    with fs.mounted("mtime_update=70,mtime_mode=defer"):
        before = fs.shown_options()
        check_refused(fs, f"commit=7,{options}", names, allowed, remount=True)
        assert fs.shown_options() == before


@pytest.mark.parametrize("option", ["eager_sync", "eager_sync=100", "un_eager_sync"])
def test_eager_sync_is_refused_where_there_are_no_bursts(
    fs: GuestFs, tree: KernelTree, option: str
) -> None:
    """As any option that ext4 does not know; it changes nothing."""
    if has_bursts(tree):
        pytest.skip(f"{tree.series} has eager_sync")
    fs.mkfs()
    check_refused(fs, f"commit=7,{option}", option.split("=")[0], "nknown parameter")
    fs.mount("mtime_update=70")
    before = fs.shown_options()
    check_refused(fs, f"commit=7,{option}", option.split("=")[0], "nknown parameter", remount=True)
    assert fs.shown_options() == before
    assert fs.vm.run("[ -e /sys/fs/ext4/features/eager_sync ]", check=False).status != 0
    fs.prepare("append", "fsync")
    assert "async_commit" not in journal(fs)["Journal features"]
    fs.umount()
    fs.vm.run(f"e2fsck -fn {fs.device}")


def test_remount_that_fails_later_restores_the_options(fs: GuestFs) -> None:
    """The mtime options are sound, another one is refused after they have been applied."""
    with fs.mounted("mtime_update=70,mtime_mode=defer"):
        before = fs.shown_options()
        options = "mtime_update=10,mtime_mode=truncate,nombcache"
        assert fs.mount_errno(options, remount=True) != 0
        assert fs.shown_options() == before


def test_remount(fs: GuestFs) -> None:
    steps = [
        ("mtime_update=30", ["mtime_update=30", "mtime_mode=truncate"]),
        ("mtime_mode=defer", ["mtime_update=30", "mtime_mode=defer"]),
        ("mtime_update=60", ["mtime_update=60", "mtime_mode=defer"]),
        ("commit=7", ["mtime_update=60", "mtime_mode=defer"]),
        ("un_mtime_update", []),
        ("mtime_update", DEFAULT),
        ("mtime_mode=defer", ["mtime_update=100", "mtime_mode=defer"]),
        ("un_mtime_update,mtime_update", DEFAULT),
    ]
    with fs.mounted():
        for options, shown in steps:
            fs.remount(options)
            assert in_force(fs) == shown


def test_mode_alone_is_refused_at_remount_of_stock_behaviour(fs: GuestFs) -> None:
    with fs.mounted():
        check_refused(
            fs, "mtime_mode=defer", "mtime_mode=defer", "needs mtime_update", remount=True
        )
        assert in_force(fs) == []


def test_superblock_defaults(fs: GuestFs) -> None:
    fs.mkfs()
    # tune2fs takes one option (it splits its own at commas), debugfs takes several.
    fs.vm.run(f"debugfs -wR 'ssv mount_opts mtime_update=40,mtime_mode=defer' {fs.device}")
    for options, shown in [
        ("", ["mtime_update=40", "mtime_mode=defer"]),
        ("mtime_update=50", ["mtime_update=50", "mtime_mode=defer"]),
        ("mtime_mode=truncate", ["mtime_update=40", "mtime_mode=truncate"]),
        ("un_mtime_update", []),
    ]:
        fs.mount(options)
        assert in_force(fs) == shown
        fs.umount()


def test_superblock_default_by_tune2fs(fs: GuestFs) -> None:
    fs.mkfs()
    fs.vm.run(f"tune2fs -E mount_opts=mtime_update=40 {fs.device}")
    fs.mount()
    assert in_force(fs) == ["mtime_update=40", "mtime_mode=truncate"]


def test_bad_superblock_default_is_reported_and_ignored(fs: GuestFs) -> None:
    """As stock ext4 does with any default option that it cannot parse."""
    fs.mkfs()
    fs.vm.run(f"tune2fs -E mount_opts=mtime_update=0 {fs.device}")
    fs.mount()
    assert in_force(fs) == []
    log = sound_log(fs.vm)
    assert "mtime_update=0" in log and "failed to parse options in superblock" in log


@pytest.mark.short
def test_counters_and_feature_file(fs: GuestFs) -> None:
    with fs.mounted():
        assert [fs.counter(n) for n in ("updates_done", "updates_skipped", "commits_avoided")] == [
            0,
            0,
            0,
        ]
        fs.prepare("write", "fsync")
        assert fs.counter("updates_done") == 0, "counted though the option is off"
        assert fs.vm.run("cat /sys/fs/ext4/features/mtime_update").stdout == "supported\n"


def test_switching_on_and_off_at_work(fs: GuestFs) -> None:
    """Each state behaves as its own right after the remount."""
    with fs.mounted("commit=300"):
        fs.prepare()
        for options, exact in [
            ("mtime_update=1000", False),
            ("mtime_mode=defer", True),
            ("un_mtime_update", True),
            ("mtime_update=1000", False),
        ]:
            fs.remount(options)
            (stamp,) = fs.ops("open", "align:1000", "sleep:40", "write", "fsync", "stat")
            assert (stamp["mtime_ns"] % 10**9 != 0) == exact


@pytest.mark.parametrize(
    ("default", "options", "remounts", "counted"),
    [
        ("", "", "", False),
        ("", "mtime_update", "", True),
        ("", "mtime_update", "un_mtime_update", True),
        ("mtime_update", "un_mtime_update", "", False),
        ("", "", "mtime_update,journal_async_commit", False),
    ],
    ids=["off", "on", "was on", "a default taken back", "a remount that fails"],
)
def test_flushes_are_counted_only_if_it_was_ever_in_force(
    fs: GuestFs, default: str, options: str, remounts: str, *, counted: bool
) -> None:
    fs.mkfs()
    fs.vm.run(f"tune2fs -E mount_opts={default} {fs.device}")
    fs.mount(options)
    if remounts:
        failed = fs.mount_errno(remounts, remount=True)
        assert failed == (errno.EINVAL if "async" in remounts else 0)
    fs.prepare()
    fs.vm.run(
        f"cd {TRACING}; echo >trace; echo 1 >tracing_on\n"
        "echo jbd2_carrier_send_flush >set_ftrace_filter && "
        "echo function >current_tracer"
    )
    fs.ops("open", "write", "fdatasync")
    done = fs.vm.run(f"cd {TRACING}; cat trace; echo nop >current_tracer; echo >set_ftrace_filter")
    assert ("jbd2_carrier_send_flush" in done.stdout) == counted
