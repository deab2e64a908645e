"""eager_sync: a clean unmount leaves a file system as one that has never had the option."""

import pytest

from fastsync_lab.host.build import ModuleSet
from tests.vm.eagerfs import OPTIONS, journal, run, stats
from tests.vm.guestfs import FIXED, NO_PERIODIC_COMMIT, GuestFs

pytestmark = pytest.mark.usefixtures("bursts")

# Clocks, the sums over them, and how much has been written.
DIFFERS = {
    "Filesystem created",
    "Last mount time",
    "Last write time",
    "Last checked",
    "Lifetime writes",
    "Checksum",
    "Journal sequence",
    "Journal checksum",
}
# Words of the journal's superblock: its sequence, where it would go on, its sum.
WORDS, WORDS_DIFFER = 256, {6, 22, 63}
# Whoever revokes leaves a feature in the journal. Bursts revoke copies, so both have to begin with
# what revokes on stock as well: a folder goes.
WORK = """
mkdir $m/d; sync $m; rmdir $m/d; sync $m
o $m/log create append fsync append append fsync overwrite:4096,4096 fsync append fdatasync
o $m/new create overwrite:6000 fsync rename:$m/renamed; sync $m
o $m/old create append append fsync; o $m/new create append fsync rename:$m/old; sync $m
o $m/cut create overwrite:20000 fsync truncate:5000 fsync; o $m/late create append
"""
COPY = "rm -rf /dev/shm/{0}; mkdir /dev/shm/{0}; cp -a $m/* /dev/shm/{0} || exit 5"


def shown(fs: GuestFs) -> dict[str, str]:
    """What dumpe2fs says of the file system, without what differs from one to the next."""
    text = fs.vm.run(f"dumpe2fs -h {fs.device} 2>/dev/null").stdout
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in pairs if name not in DIFFERS}


def journal_words(fs: GuestFs) -> dict[int, str]:
    """The journal's superblock, without what differs."""
    text = fs.vm.run(
        f"block=$(debugfs -R 'bmap <8> 0' {fs.device} 2>/dev/null) || exit\n"
        f"dd if={fs.device} bs=4k skip=$block count=1 status=none | "
        f"head -c {4 * WORDS} | od -An -v -w4 -tx4 --endian=big"
    ).stdout
    words = text.split()
    assert len(words) == WORDS and words[0] == "c03b3998"
    return {at: word for at, word in enumerate(words) if at not in WORDS_DIFFER}


@pytest.mark.short
@pytest.mark.parametrize("mkfs", ["", "-O ^metadata_csum", "-O ^64bit", "-O ^metadata_csum,^64bit"])
def test_clean_unmount_leaves_what_a_twin_has(
    fs: GuestFs, stock_modules: ModuleSet, mkfs: str
) -> None:
    """The same has been done to both; the stock kernel reads the same in both."""
    seen = {}
    for twin, options in [("without", NO_PERIODIC_COMMIT), ("with", OPTIONS)]:
        fs.mkfs(f"{FIXED} {mkfs}")
        fs.mount(options)
        run(fs, f"{WORK}{COPY.format(twin)}")
        logged, at_work = int(stats(fs)["data_blocks"]), journal(fs)
        fs.umount()
        fs.vm.run(f"e2fsck -fn {fs.device}")
        seen[twin] = (shown(fs), journal_words(fs))
        assert (logged > 10) == (twin == "with")
        assert ("journal_async_commit" in at_work["Journal features"]) == (twin == "with")
    assert at_work["Journal start"] != "0"
    assert "journal_checksum_v3" not in at_work["Journal features"]
    assert seen["with"] == seen["without"]
    assert seen["with"][0]["Journal start"] == "0"
    assert "needs_recovery" not in seen["with"][0]["Filesystem features"]
    fs.vm.use_filesystem(stock_modules)
    fs.mount()
    run(
        fs,
        "diff -r /dev/shm/without /dev/shm/with || exit 6\n"
        "diff -r /dev/shm/with $m || exit 7; rm -r /dev/shm/with*",
    )
    fs.umount()
    fs.vm.run(f"e2fsck -fn {fs.device}")
