"""What an fsync costs on each modelled device, as docs/device-model.md shows it.

Two columns are of the model alone: what the device takes for a 4 KiB overwrite with an fsync. One
is measured, by the study `overwrite` on stock ext4: how many of its calls commit.
"""

from collections.abc import Mapping, Sequence

from fastsync_lab.host.kernels import default_series
from fastsync_lab.host.paths import repo_root
from fastsync_lab.machine.device import DeviceProfile, load_profile
from fastsync_lab.study.documents import write_block
from fastsync_lab.study.figures import DEVICES
from fastsync_lab.study.grid import Grid, Part, in_markdown
from fastsync_lab.study.rows import Line
from fastsync_lab.study.store import Result

DOCUMENT, BLOCK = "docs/device-model.md", "profiles"
STUDY, SERIES, WORKLOAD = "overwrite", default_series(), "random"
CHECKED = "sata-ssd"  # Son et al. measured the same loop on the drive that it models
COMMIT_REQUESTS = 2  # descriptor with inode block, commit block
Pair = tuple[Line, Line]  # of one device: stock, and Ideal


def without_commit_ns(profile: DeviceProfile) -> int:
    """A 4 KiB overwrite and its fsync, no commit: the data, and a flush where there is a cache."""
    flush = profile.service_ns("flush") if profile.volatile_cache else 0
    return profile.service_ns("random-write", 4096) + flush


def with_commit_ns(profile: DeviceProfile) -> int:
    """The same with a commit: descriptor and inode block go before the flush, its block behind."""
    record = profile.service_ns("fua-write" if profile.volatile_cache else "write", 4096)
    return without_commit_ns(profile) + profile.service_ns("random-write", 8192) + record


def pairs_by_device(results: Sequence[Result]) -> Mapping[str, Pair]:
    """What was measured on stock and in Ideal, where both were."""
    lines = [line for result in results if result.study == STUDY for line in result.lines]
    mine = {
        (line.place.device, line.place.system): line
        for line in lines
        if (line.place.series, line.place.name) == (SERIES, WORKLOAD) and not line.place.processor
    }
    return {
        device: (mine[device, "stock"], mine[device, "ideal"])
        for device in DEVICES
        if {(device, "stock"), (device, "ideal")} <= mine.keys()
    }


def commits(stock: Line) -> float:
    """How many calls commit, of one: one that does not has a single request that writes."""
    return (stock.value("requests") - 1) / COMMIT_REQUESTS


def journal_percent(stock: Line) -> float:
    """The journal's share of the bytes."""
    return 100 * stock.value("kib_journal") / stock.value("kib")


def parts(pairs: Mapping[str, Pair]) -> list[Part]:
    """A line for each device that was measured, and what a published figure says of one."""
    lines = []
    for name, (stock, _) in pairs.items():
        profile = load_profile(name)
        lines.append(
            [
                f"`{name}`",
                profile.description.partition(":")[0],
                f"{without_commit_ns(profile) / 1e6:.2f}",
                f"{with_commit_ns(profile) / 1e6:.2f}",
                f"{100 * commits(stock):.1f}",
            ]
        )
    head = ["profile", "device", "without a commit, ms", "with one, ms", "calls that commit, %"]
    found: list[Part] = [Grid(head, lines, texts=2)]
    if CHECKED in pairs:
        stock, ideal = pairs[CHECKED]
        gain = ideal.value("ops_per_s") / stock.value("ops_per_s")
        found.append(
            f"As a check, `{CHECKED}` in the lab: the journal has {journal_percent(stock):.1f} % "
            f"of the bytes, and `fdatasync()` is {gain:.2f} times as fast as `fsync()`. Son et al. "
            "measured 73.8 % and 2.19 times."
        )
    return found


def write_profiles(results: Sequence[Result]) -> None:
    """Write the table into docs/device-model.md. FastsyncError when that lacks the marks."""
    if pairs := pairs_by_device(results):
        write_block(repo_root() / DOCUMENT, BLOCK, in_markdown(parts(pairs)))
