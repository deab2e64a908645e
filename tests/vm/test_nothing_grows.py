"""A mixed load whose options toggle all the time: what it takes of memory does not grow."""

import re
from itertools import pairwise

import pytest

from fastsync_lab.host.kernels import KernelTree
from tests.vm.conftest import has_bursts
from tests.vm.guestfs import CAPACITY_MIB, FILE, MNT, GuestFs, leaks, parse_events

# Each loop takes about a second and a half of virtual time.
TOGGLES = ["mtime_update=100,mtime_mode=defer", "mtime_update=1000,mtime_mode=truncate",
           "un_mtime_update", "mtime_update=10,mtime_mode=defer"]  # fmt: skip
# Of kernels that have it, all the time but after the first of these.
EAGER_TOGGLES = ["un_eager_sync", "eager_sync", "eager_sync=1", "eager_sync"]
LOOPS = {
    "overwrite": ["write", "fsync", "sleep:7", "dwrite", "fdatasync", "sleep:1500"],
    "grow": ["append", "fsync", "chmod:600", "setxattr:user.k=v", "fsync", "sleep:900",
             "truncate:4096", "fsync", "sleep:500"],
    "stores": ["mwrite", "msync", "read", "stat", "sleep:400", "owrite", "sleep:1000"],
}  # fmt: skip
COUNTED = re.compile(r"^(ext4_\w+|jbd2_\w+)\s+(\d+)", re.M)
LIMITS = {"tasks": 2}
LIMITS_KIB = {"used": 4096, "SUnreclaim": 1024}


def toggles(tree: KernelTree) -> list[str]:
    """The options of one remount after the other."""
    if not has_bursts(tree):
        return TOGGLES
    return [",".join(pair) for pair in zip(TOGGLES, EAGER_TOGGLES, strict=True)]


def endure(fs: GuestFs, seconds: int, options: list[str]) -> None:
    """A mixed load with a remount every two seconds, for so long in virtual time."""
    seconds = max(seconds, 80)
    rounds = seconds * 2 // 3
    loads = "".join(
        f"( for ((i = 0; i < {rounds}; i += 50)); do\n"
        f"{fs.fsops_path} {MNT}/{name} open {' '.join(words * 50)} >/dev/null || exit\ndone ) &\n"
        for name, words in LOOPS.items()
    )
    toggle = " ".join(f"remount:{option} sleep:2000" for option in options)
    done = fs.vm.run(
        f"{loads}jobs=$(jobs -p); for ((i = 0; i < {seconds // 8}; i++)); do\n"
        f"{fs.fsops_path} {FILE} {toggle} || exit\ndone\n"
        "for job in $jobs; do wait $job || exit; done",
        timeout_s=900,
    )
    remounts = parse_events(done.stdout)
    assert len(remounts) == seconds // 8 * len(options)
    assert all(event["errno"] == 0 for event in remounts), remounts


def usage(fs: GuestFs) -> dict[str, int]:
    """Objects alive in the slabs of ext4 and jbd2, tasks, and KiB of memory by use."""
    fs.vm.run(f"rm -f {MNT}/grow; sync; echo 3 >/proc/sys/vm/drop_caches; sleep 1; "
              "echo 3 >/proc/sys/vm/drop_caches; sleep 1")  # fmt: skip
    text = fs.vm.run("cat /proc/slabinfo /proc/meminfo; grep count: /proc/zoneinfo").stdout
    found = {name: int(count) for name, count in COUNTED.findall(text)}
    memory = {name: int(kib) for name, kib in re.findall(r"^(\w+):\s+(\d+) kB", text, re.M)}
    assert found and "SUnreclaim" in memory
    # The CPU keeps free pages of its own, now more, now fewer.
    at_hand = 4 * sum(map(int, re.findall(r"count: (\d+)", text)))
    memory["used"] = memory["MemTotal"] - memory["MemFree"] - at_hand
    # Kernel workers come and go.
    tasks = fs.vm.run("cat /proc/[0-9]*/task/*/comm 2>/dev/null | grep -cv ^kworker").stdout
    return found | memory | {"tasks": int(tasks)}


@pytest.mark.parametrize("seconds", [240, pytest.param(3600, marks=pytest.mark.long)])
def test_nothing_grows(fs: GuestFs, tree: KernelTree, seconds: int) -> None:
    """A mixed load with options that toggle: nothing grows again and again.

    What leaks does so in each half. What is taken once, and kept, does not count; the device has
    all its memory before, or it would take some for each block that is new to it.
    """
    fs.vm.run(f"head -c {CAPACITY_MIB}M /dev/zero >{fs.device}")
    found = []
    with fs.mounted("commit=5", mkfs="-E lazy_itable_init=0,lazy_journal_init=0,nodiscard"):
        fs.vm.run(f"for f in f {' '.join(LOOPS)}; do head -c 65536 /dev/zero >{MNT}/$f; done")
        for part in (8, 2, 2):
            fs.vm.run(f"head -c 65536 /dev/zero >{MNT}/grow")
            endure(fs, seconds // part, toggles(tree))
            found.append(usage(fs))
    grown = [
        {name: after.get(name, 0) - before[name] for name in before}
        for before, after in pairwise(found)
    ]
    lasting = {name: min(part[name] for part in grown) for name in grown[0]}
    limits = LIMITS | {name: 64 for name in lasting if name.startswith(("ext4_", "jbd2_"))}
    # KASAN and kmemleak keep more and more for themselves.
    limits |= {} if fs.vm.config.tree.variant else LIMITS_KIB
    too_much = {name: lasting[name] for name, most in limits.items() if lasting[name] > most}
    assert not too_much, f"{too_much}, of {grown}"
    assert leaks(fs.vm) == ""
