"""eager_sync: syncs in step with settling, where data is logged faster than it is written."""

from pathlib import Path

import pytest

from fastsync_lab.host.build import build_modules
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine.device import load_profile
from fastsync_lab.machine.vm import Vm
from tests.vm.conftest import IN_TIME, other_fs
from tests.vm.eagerfs import OPTIONS, numbers
from tests.vm.guestfs import MNT
from tests.vm.planted import patch_of

pytestmark = pytest.mark.usefixtures("bursts")


@IN_TIME
@pytest.mark.parametrize("fault", ["", "eager-pace-not-kept"])
def test_who_logs_faster_than_places_are_written_waits_often_and_never_long(
    vm: Vm, tree: KernelTree, fsops: str, flashdev: Path, fault: str
) -> None:
    """Pages anywhere, five for each sync, on a device that takes one request at a time.

    The longest sync took 18 ms where the longest settling took 580, and 129 of 770 before.
    """
    modules = build_modules(tree, fault=patch_of(fault) if fault else None)
    script = f"""
    fio --name=x --directory={MNT} --ioengine=psync --rw=randwrite --bs=4k --size=32m --fsync=5 \\
        --fallocate=none --randseed=1 --output-format=json >/tmp/fio || exit
    python3 -c 'import json; job = json.load(open("/tmp/fio"))["jobs"][0]
print(job["sync"]["lat_ns"]["max"] // 1000)'
    count settlings; count settle_max_us"""
    with (
        other_fs(vm, fsops, modules, flashdev, load_profile("emmc"), 400) as fs,
        fs.mounted(OPTIONS),
    ):
        longest_us, settlings, settled_us = numbers(fs, script)
    assert settlings > 5
    assert (longest_us > settled_us / 12) == bool(fault), (longest_us, settled_us)
