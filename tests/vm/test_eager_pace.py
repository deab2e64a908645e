"""eager_sync: syncs in step with settling, where data is logged faster than it is written."""

from pathlib import Path

import pytest

from fastsync_lab.host.build import build_modules
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine.device import load_profile
from fastsync_lab.machine.vm import Vm
from fastsync_lab.study.fio import job_of
from tests.vm.conftest import IN_TIME, other_fs
from tests.vm.eagerfs import OPTIONS, run
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
    fio = (
        f"fio --name=x --directory={MNT} --ioengine=psync --rw=randwrite --bs=4k --size=32m "
        "--fsync=5 --fallocate=none --randseed=1 --output-format=json"
    )
    with (
        other_fs(vm, fsops, modules, flashdev, load_profile("emmc"), 400) as fs,
        fs.mounted(OPTIONS),
    ):
        longest_us = job_of(vm.run(fio).stdout)["sync"]["lat_ns"]["max"] // 1000
        (after,) = run(fs, "s")
    settled_us = after["settle_max_us"]
    assert after["settlings"] > 5
    assert (longest_us > settled_us / 12) == bool(fault), (longest_us, settled_us)
