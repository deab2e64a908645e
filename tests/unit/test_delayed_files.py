"""tests/delays.patch: which files have no delay, and why. Without it none would be missed."""

import re

from fastsync_lab.crash.builds import delays_patch
from fastsync_lab.host.paths import repo_root

KERNEL = repo_root() / "kernel"
NEVER_SLEEPS = "i_raw_lock is held, or nothing but what the caller has is looked at"
WITHOUT_DELAYS = {
    "ext4/mtime_durable.c": NEVER_SLEEPS,
    "jbd2/burst_cost.c": NEVER_SLEEPS,
    "jbd2/burst_crc.c": NEVER_SLEEPS,
}


def delayed() -> dict[str, int]:
    """How many delays each file of ours gets."""
    files = re.split(r"^\+\+\+ b/fs/", delays_patch().read_text(), flags=re.M)[1:]
    return {text.split("\n", 1)[0]: len(re.findall(r"^\+\s+jbd2_delay", text, re.M))
            for text in files}  # fmt: skip


def test_each_file_that_may_sleep_has_delays() -> None:
    found = delayed()
    ours = {str(file.relative_to(KERNEL)) for name in ("ext4", "jbd2")
            for file in (KERNEL / name).glob("*.c")}  # fmt: skip
    assert {name for name in ours if not found.get(name)} == set(WITHOUT_DELAYS)


def test_fsync_sleeps_between_its_choice_and_what_it_does_with_it() -> None:
    """After the tid is read, after the stamps are looked at, before the sync is noted."""
    assert delayed()["ext4/mtime_sync.c"] == 3
