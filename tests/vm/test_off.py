"""Options off: the module behaves as the stock module built the same way, request by request."""

import re
from pathlib import Path

from fastsync_lab.build import ModuleSet
from fastsync_lab.vm import Vm
from tests.vm.conftest import prepare
from tests.vm.guestfs import GuestFs

TRACING = "/sys/kernel/tracing"
WORK = [
    "create", "write", "fsync", "write", "fsync", "dwrite", "fsync", "append", "fsync", "sleep:20",
    "mwrite", "fsync", "chmod:600", "fsync", "setxattr:user.a=b", "fdatasync", "utimens:5,5",
    "fsync", "truncate:4096", "fsync", "falloc:0,65536,65536", "write", "fdatasync", "sleep:50",
    "awrite", "fsync", "uwrite", "fsync", "swrite", "owrite", "sync", "stat",
]  # fmt: skip
REQUEST = re.compile(r"block_rq_issue: \d+,\d+ (\S+) (\d+) \(\) (\d+) \+ (\d+)")


def requests(vm: Vm, modules: ModuleSet, flashdev: Path, fsops: str) -> list[tuple[str, ...]]:
    """Every request that a fixed workload makes: (kind, bytes, sector, sectors)."""
    fs = GuestFs(vm, fsops, prepare(vm, modules, flashdev))
    # A fixed UUID and hash seed, so that nothing on the medium is drawn by chance.
    fixed = "00000000-1111-2222-3333-444444444444"
    fs.mkfs(f"-U {fixed} -E hash_seed={fixed},lazy_itable_init=0,lazy_journal_init=0")
    vm.run(
        f"cd {TRACING}; echo 0 >tracing_on; echo 8192 >buffer_size_kb; echo >trace; "
        "echo 1 >events/block/block_rq_issue/enable; echo 1 >tracing_on"
    )
    fs.mount("commit=300")
    fs.ops(*WORK)
    fs.umount()
    text = vm.run(
        f"cd {TRACING}; echo 0 >tracing_on; echo 0 >events/block/block_rq_issue/enable; cat trace"
    ).stdout
    return [match.groups() for match in REQUEST.finditer(text)]


def test_requests_equal_those_of_the_stock_module(
    vm: Vm, fsops: str, modules: ModuleSet, stock_modules: ModuleSet, flashdev: Path
) -> None:
    ours = requests(vm, modules, flashdev, fsops)
    stock = requests(vm, stock_modules, flashdev, fsops)
    assert len(stock) > 60
    assert ours == stock
