"""eager_sync: options, one burst and one flush, what has barriers."""

import errno

import pytest

from tests.vm.eagerfs import OPTIONS, barriers, bursts_of, in_force, requests, stats
from tests.vm.guestfs import FAIL_A_FLUSH, FILE, MNT, NO_PERIODIC_COMMIT, GuestFs

# One page and more goes into place.
ONE_PAGE = f"{OPTIONS},eager_sync=1"

pytestmark = pytest.mark.usefixtures("bursts")


# --- options -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ("", []),
        ("eager_sync", ["eager_sync"]),
        ("eager_sync=1", ["eager_sync=1"]),
        ("eager_sync=1000", ["eager_sync=1000"]),
        ("eager_sync=20,eager_sync", ["eager_sync"]),
        ("eager_sync,eager_sync=100", ["eager_sync=100"]),
        ("eager_sync,un_eager_sync", []),
        ("un_eager_sync,eager_sync=7", ["eager_sync=7"]),
        ("eager_sync=7,mtime_update,mtime_mode=defer", ["eager_sync=7"]),
        ("eager_sync=7,un_mtime_update", ["eager_sync=7"]),
    ],
)
def test_mount(fs: GuestFs, options: str, shown: list[str]) -> None:
    with fs.mounted(options):
        assert in_force(fs) == shown
        assert stats(fs)["in_force"] == ("yes" if shown else "no: off")


BAD = ["0", "1001", "-1", "abc", "10x", "0x10", "4294967297", ""]


@pytest.mark.parametrize("pages", BAD)
@pytest.mark.parametrize("remount", [False, True])
def test_bad_threshold_is_refused(fs: GuestFs, pages: str, *, remount: bool) -> None:
    fs.mkfs()
    if remount:
        fs.mount("eager_sync=70")
    fs.vm.kernel_log()
    assert fs.mount_errno(f"commit=7,eager_sync={pages}", remount=remount) == errno.EINVAL
    log = fs.vm.kernel_log()
    assert f"eager_sync={pages}: the threshold must be" in log and "from 1 to 1000" in log
    if remount:
        assert in_force(fs) == ["eager_sync=70"] and "commit=7" not in fs.shown_options()


def test_remount(fs: GuestFs) -> None:
    with fs.mounted():
        for options, shown in [
            ("eager_sync=30", ["eager_sync=30"]),
            ("commit=7", ["eager_sync=30"]),
            ("mtime_update,mtime_mode=defer", ["eager_sync=30"]),
            ("un_mtime_update", ["eager_sync=30"]),
            ("un_eager_sync", []),
            ("eager_sync", ["eager_sync"]),
        ]:
            fs.remount(options)
            assert in_force(fs) == shown
            assert stats(fs)["in_force"] == ("yes" if shown else "no: off")


def test_remount_that_fails_later_changes_nothing(fs: GuestFs) -> None:
    for option in ("eager_sync=30", "eager_sync"):
        with fs.mounted(option):
            assert fs.mount_errno("un_eager_sync,nombcache", remount=True) != 0
            assert in_force(fs) == [option] and stats(fs)["in_force"] == "yes"


def test_superblock_defaults(fs: GuestFs) -> None:
    fs.mkfs()
    fs.vm.run(f"debugfs -wR 'ssv mount_opts eager_sync=40,mtime_update' {fs.device}")
    for options, shown in [("", ["eager_sync=40"]), ("un_eager_sync", []), ("eager_sync", None)]:
        fs.mount(options)
        assert in_force(fs) == (["eager_sync"] if shown is None else shown)
        fs.umount()


@pytest.mark.parametrize("pages", ["0", "1001"])
def test_bad_superblock_default_is_reported_and_ignored(fs: GuestFs, pages: str) -> None:
    """As stock ext4 does with any default option that it cannot parse."""
    fs.mkfs()
    fs.vm.run(f"debugfs -wR 'ssv mount_opts eager_sync={pages}' {fs.device}")
    fs.vm.kernel_log()
    fs.mount()
    assert in_force(fs) == [] and stats(fs)["in_force"] == "no: off"
    log = fs.vm.kernel_log()
    assert f"eager_sync={pages}: the threshold must be" in log
    assert "failed to parse options in superblock" in log


@pytest.mark.parametrize(
    ("mkfs", "options", "obstacle"),
    [
        ("", "data=journal", "data=journal"),
        ("", "data=writeback", "data=writeback"),
        ("", "nobarrier", "nobarrier"),
        ("", "nodelalloc", "nodelalloc"),
        ("-O fast_commit", "", "fast_commit"),
        ("-O bigalloc -C 2M -J size=4", "", "large clusters"),
        ("", "data=writeback,journal_async_commit", "data=writeback"),
    ],
)
def test_what_is_in_the_way_is_said(fs: GuestFs, mkfs: str, options: str, obstacle: str) -> None:
    words = ",".join(filter(None, [OPTIONS, options]))
    fs.vm.kernel_log()
    with fs.mounted(words, mkfs=mkfs):
        assert stats(fs)["in_force"] == f"no: {obstacle}"
        assert f"eager_sync is not in force: {obstacle}" in fs.vm.kernel_log()
        fs.vm.run(f"dd if=/dev/zero of={FILE} bs=4k count=4 conv=fsync status=none")
        assert stats(fs)["bursts"] == "0"


def test_without_a_journal_nothing_is_in_force(fs: GuestFs) -> None:
    with fs.mounted("eager_sync", mkfs="-O ^has_journal"):
        assert stats(fs)["in_force"] == "no: no journal"


def test_external_journal_is_in_the_way(fs: GuestFs, external: str) -> None:
    fs.vm.kernel_log()
    with fs.mounted(OPTIONS, mkfs=external):
        assert stats(fs)["in_force"] == "no: external journal"
        assert "eager_sync is not in force: external journal" in fs.vm.kernel_log()
        fs.ops("create", "append", "fsync", "chmod:600", "fsync", "remount:commit=7", "stat")
        assert "eager_sync is not in force: external journal" in fs.vm.kernel_log()
        assert stats(fs)["bursts"] == stats(fs)["data_blocks"] == "0"


def test_aborted_journal_is_in_the_way(fs: GuestFs) -> None:
    """It aborts without the option, and nobody can switch it on any more."""
    fs.mkfs()
    fs.mount(f"{NO_PERIODIC_COMMIT},errors=continue")
    fs.prepare("chmod:600", "fsync")
    fs.vm.run(FAIL_A_FLUSH)
    events = fs.ops("open", "chmod:611", "?fsync")
    assert events[-1]["errno"] == errno.EIO
    fs.vm.kernel_log()
    fs.remount(OPTIONS)
    assert stats(fs)["in_force"] == "no: aborted journal"
    assert in_force(fs) == ["eager_sync=100"]
    fs.umount()
    assert "eager_sync is not in force: aborted journal" in fs.vm.kernel_log()


def test_barriers_switched_at_work(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        for options, state, bursts in [("nobarrier", "no: nobarrier", 0), ("barrier", "yes", 3)]:
            fs.remount(options)
            before = stats(fs)
            assert before["in_force"] == state
            fs.ops("open", "chmod:600", "fsync", "chmod:611", "fsync", "append", "fsync")
            after = stats(fs)
            assert int(after["bursts"]) - int(before["bursts"]) == bursts
            assert int(after["data_blocks"]) - int(before["data_blocks"]) == (bursts > 0)


# --- requests ----------------------------------------------------------------------------------


@pytest.mark.short
def test_chmod_is_one_burst_and_one_flush(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare("chmod:601", "fsync")
        before = stats(fs)
        changes = " ".join(f"chmod:6{i}0 fsync" for i in range(1, 7))
        sent = requests(fs, f"{fs.fsops_path} {FILE} open {changes}")
        after = stats(fs)
    assert bursts_of(sent) == [12288] * 6  # descriptor, inode, record
    assert [kind for kind, _ in sent].count("WSM") <= 7  # the log's blocks have a gap somewhere
    assert int(after["bursts"]) - int(before["bursts"]) == 6
    assert int(after["burst_blocks"]) - int(before["burst_blocks"]) == 18
    assert after["barriers"] == before["barriers"]


@pytest.mark.short
def test_rename_and_folder_are_one_burst_and_one_flush(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare("chmod:601", "fsync")
        fs.vm.run(f"cp {FILE} {MNT}/g; sync")
        sent = requests(fs, f"mv {MNT}/g {FILE}; sync {MNT}")
    assert len(bursts_of(sent)) == 1 and len(sent) <= 3


def test_large_append_has_barriers(fs: GuestFs) -> None:
    with fs.mounted(ONE_PAGE):
        fs.prepare()
        before = barriers(fs)
        fs.ops("open", "append", "append", "fsync")
        after = barriers(fs)
    assert after["barriers"] > before["barriers"] and after["converted"] > before["converted"]
    assert after["grown"] > before["grown"]


def test_without_a_volatile_cache_nothing_needs_barriers(fs: GuestFs) -> None:
    """The block layer drops flushes there; the commit asks the device each time."""
    cache = f"/sys/block/{fs.node}/queue/write_cache"
    with fs.mounted(ONE_PAGE):
        fs.prepare()
        before = stats(fs)
        fs.vm.run(f"echo write through > {cache}")
        fs.ops("open", "append", "append", "fsync")
        without = stats(fs)
        fs.vm.run(f"echo write back > {cache}")
        fs.ops("open", "append", "append", "fsync")
        after = stats(fs)
    assert without["barriers"] == before["barriers"]
    assert int(without["covered"]) > int(before["covered"])
    assert int(after["barriers"]) > int(without["barriers"])


def test_a_flush_that_was_skipped_covers_nothing_once_there_is_a_cache(fs: GuestFs) -> None:
    """Data is in the cache; what was not sent without one has not made it durable."""
    cache = f"/sys/block/{fs.node}/queue/write_cache"
    with fs.mounted(OPTIONS):
        fs.prepare("falloc:0,65536,65536", "fsync")
        fs.vm.run(f"cp {MNT}/f {MNT}/other; sync; {fs.fsops_path} {MNT} freeze thaw")
        before = barriers(fs)
        fs.vm.run(
            f"{fs.fsops_path} {MNT}/f open overwrite:4096,65536 writeback sleep:500 || exit\n"
            f"echo write through >{cache}; {fs.fsops_path} {MNT}/other open write fdatasync\n"
            f"echo write back >{cache}; {fs.fsops_path} {MNT}/f open chmod:601 fsync"
        )
        assert barriers(fs)["converted"] > before["converted"]


@pytest.mark.parametrize(
    ("ops", "reason", "options"),
    [
        (("falloc:3,8192,100", "fsync"), "ordered", ""),
        (("truncate:1000", "fsync"), "ordered", ""),
        (("append", "append", "fsync"), "ordered", "nodioread_nolock"),
        (("append", "append", "fsync"), "allocated", "nodioread_nolock"),
        (("append", "append", "fsync"), "grown", ""),
        (("append", "writeback", "fsync"), "converted", ""),
        (("falloc:0,65536,65536", "dwrite", "fsync"), "grown", ""),
        (("falloc:8,4096,4096", "fsync"), "moved", ""),
        (("falloc:32,4096,4096", "fsync"), "moved", ""),
    ],
)
def test_what_needs_barriers_has_them(
    fs: GuestFs, ops: tuple[str, ...], reason: str, options: str
) -> None:
    with fs.mounted(",".join(filter(None, [ONE_PAGE, options]))):
        fs.prepare()
        before = barriers(fs)
        fs.ops("open", *ops)
        assert barriers(fs)[reason] > before[reason], barriers(fs)


def test_small_write_into_preallocated_zeroes_the_rest(fs: GuestFs) -> None:
    """By write-back. What a sync logs does not."""
    with fs.mounted(f"{OPTIONS},nodioread_nolock"):
        fs.prepare()
        fs.vm.run(f"fallocate -l 16k {MNT}/g; sync {MNT}/g")
        before = barriers(fs)
        fs.vm.run(f"{fs.fsops_path} {MNT}/g open overwrite:4096,4096 writeback waitfirst; sync")
        assert barriers(fs)["zeroed"] > before["zeroed"]


def test_a_flush_behind_the_conversion_covers_it(fs: GuestFs) -> None:
    """Direct writes into allocated blocks convert; another file's fdatasync flushes."""
    with fs.mounted(OPTIONS):
        fs.prepare()
        fs.vm.run(f"fallocate -l 1M {MNT}/g; cp {FILE} {MNT}/h; sync")
        before = stats(fs)
        fs.vm.run(
            f"dd if=/dev/zero of={MNT}/g bs=64k count=1 seek=2 conv=notrunc oflag=direct\n"
            f"{fs.fsops_path} {MNT}/h open write fdatasync; sync {MNT}/g"
        )
        after = stats(fs)
    assert int(after["covered"]) - int(before["covered"]) == 1, after
    assert int(after["bursts"]) - int(before["bursts"]) == 1
