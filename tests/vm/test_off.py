"""Options off: the module behaves as the stock module built the same way, request by request."""

import re
from itertools import groupby
from pathlib import Path

import pytest

from fastsync_lab.host.build import ModuleSet
from fastsync_lab.machine.vm import Vm
from tests.vm.conftest import prepare
from tests.vm.guestfs import GuestFs, trace_requests

# Whether a second write falls into the tick of the first decides about a commit: hence "align".
WORK = [
    "align:100", "create", "write", "fsync", "write", "fsync", "align:100", "dwrite", "fsync",
    "append", "fsync", "align:100", "mwrite", "fsync", "chmod:600", "fsync", "align:100",
    "setxattr:user.a=b", "fdatasync", "utimens:5,5", "fsync", "align:100", "truncate:4096",
    "fsync", "falloc:0,65536,65536", "write", "fdatasync", "align:100", "awrite", "fsync",
    "uwrite", "fsync", "swrite", "align:100", "owrite", "stat", "write", "fsync", "sync", "stat",
]  # fmt: skip
# Bitmaps are not to be read ahead at a time that chance decides.
MOUNT_OPTIONS = "commit=300,no_prefetch_block_bitmaps"
REQUEST = re.compile(r"block_rq_issue: \d+,\d+ (\S+) (\d+) \(\) (\d+) \+ (\d+)")


def requests(vm: Vm, modules: ModuleSet, flashdev: Path, fsops: str) -> list[tuple[str, ...]]:
    """Every request that a fixed workload makes: (kind, bytes, sector, sectors).

    Metadata that is written in place in one go is sorted: on a busy host a checkpoint may begin
    with another block of it.
    """
    fs = GuestFs(vm, fsops, prepare(vm, modules, flashdev))
    # A fixed UUID and hash seed, so that nothing on the medium is drawn by chance.
    fixed = "00000000-1111-2222-3333-444444444444"
    fs.mkfs(f"-U {fixed} -E hash_seed={fixed},lazy_itable_init=0,lazy_journal_init=0")
    text = trace_requests(
        vm, f"{fsops} /mnt/f mount:{MOUNT_OPTIONS} {' '.join(WORK)} umount || exit"
    )
    found = [match.groups() for match in REQUEST.finditer(text)]
    runs = groupby(found, key=lambda one: one[0] == "WM")
    return [one for in_place, run in runs for one in (sorted(run) if in_place else run)]


@pytest.mark.short
def test_requests_equal_those_of_the_stock_module(
    vm: Vm, fsops: str, modules: ModuleSet, stock_modules: ModuleSet, flashdev: Path
) -> None:
    ours = requests(vm, modules, flashdev, fsops)
    stock = requests(vm, stock_modules, flashdev, fsops)
    assert len(stock) > 60
    assert ours == stock
