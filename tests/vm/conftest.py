"""One guest for all VM tests; each test leaves a clean kernel log or fails."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.crash.builds import prepare as prepare_builds
from fastsync_lab.crash.explore import Explorer
from fastsync_lab.crash.session import explorer
from fastsync_lab.host import shell
from fastsync_lab.host.build import (
    ModuleSet,
    build_flashdev,
    build_modules,
    build_own_module,
    kbuild,
    make_module,
    own_modules,
)
from fastsync_lab.host.debug.kernel import debug_kernel
from fastsync_lab.host.fetch import fetch_kernel
from fastsync_lab.host.glue import upstream_patches
from fastsync_lab.host.kernels import KernelTree, load_series
from fastsync_lab.host.progress import silent
from fastsync_lab.host.workload import programs_source
from fastsync_lab.machine.config import VmConfig
from fastsync_lab.machine.device import DeviceProfile
from fastsync_lab.machine.kernel_log import check_kernel_log
from fastsync_lab.machine.vm import Vm
from tests.vm.guestfs import CAPACITY_MIB, DEVICE, MNT, MS, UNIFORM, GuestFs, sound_log
from tests.vm.scheduled import LARGE_MIB, QUEUE, SLOW_DEVICE, SLOW_MIB, Scheduled

IN_TIME = pytest.mark.debian("its subject is time, of which a debug kernel takes more")
BY_THE_EXPLORER = pytest.mark.debian("the explorer boots Debian's kernel")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out on a debug kernel what says something of Debian's alone."""
    if config.getoption("--debug-kernel") is None:
        return
    for item in items:
        if mark := item.get_closest_marker("debian"):
            item.add_marker(pytest.mark.skip(reason=mark.args[0]))


@pytest.fixture(scope="session")
def kernel(pytestconfig: pytest.Config) -> str:
    """The kernel that --kernel names."""
    name: str = pytestconfig.getoption("--kernel")
    return name


@pytest.fixture(scope="session")
def tree(kernel: str, pytestconfig: pytest.Config) -> KernelTree:
    variant: str | None = pytestconfig.getoption("--debug-kernel")
    found = fetch_kernel(kernel)
    return debug_kernel(found, variant) if variant else found


def has_bursts(tree: KernelTree) -> bool:
    """Whether the modules of that kernel know eager_sync."""
    return load_series()[tree.series].eager_sync


def need_bursts(tree: KernelTree) -> None:
    """Skip the test if the modules of that kernel do not know eager_sync."""
    if not has_bursts(tree):
        pytest.skip(f"no eager_sync for {tree.series}")


@pytest.fixture(scope="session")
def bursts(tree: KernelTree) -> None:
    """For tests of eager_sync."""
    need_bursts(tree)


@pytest.fixture(scope="session")
def modules(tree: KernelTree) -> ModuleSet:
    return build_modules(tree)


@pytest.fixture(scope="session")
def stock_modules(tree: KernelTree) -> ModuleSet:
    return build_modules(tree, stock=True)


@pytest.fixture(scope="session")
def mended_modules(tree: KernelTree) -> ModuleSet:
    """Stock's, with patches/upstream/."""
    if not upstream_patches(tree.series):
        pytest.skip(f"no patches for stock {tree.series}")
    return build_modules(tree, mended=True)


@pytest.fixture(scope="session")
def flashdev(tree: KernelTree) -> Path:
    return build_flashdev(tree)


@pytest.fixture(scope="session")
def vm(tree: KernelTree) -> Iterator[Vm]:
    with Vm(VmConfig(tree)) as machine:
        yield machine


@pytest.fixture(scope="module")
def two_cores(tree: KernelTree) -> Iterator[Vm]:
    """Two cores that truly run at once, which virtual time does not have."""
    with Vm(VmConfig(tree, cpus=2, real_time=True)) as machine:
        yield machine


@pytest.fixture(scope="session")
def explorer_here(kernel: str) -> Iterator[Explorer]:
    """The same guests for all tests, for workloads of MariaDB as well."""
    with explorer(prepare_builds(kernel, silent), {"crashmaria"}) as one:
        yield one


@pytest.fixture(scope="session")
def fsops(vm: Vm, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the guest finds the fsops program."""
    return vm.stage(compile_program("fsops", tmp_path_factory.mktemp("fsops")))


def compile_program(name: str, folder: Path) -> Path:
    """Compile tests/vm/<name>.c into `folder`."""
    program = folder / name
    source = Path(__file__).with_name(f"{name}.c")
    shell.run(["gcc", "-O2", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-static",
               "-pthread", f"-I{programs_source()}", "-o", str(program), str(source)])  # fmt: skip
    return program


def build_crashing(tree: KernelTree, folder: Path) -> Path:
    """Build crashing.c, a module that oopses as it is loaded."""
    shutil.copy(Path(__file__).with_name("crashing.c"), folder)
    (folder / "Makefile").write_text("obj-m := crashing.o\n")
    make_module(kbuild(tree, silent), folder, folder / "log")
    return folder / "crashing.ko"


@pytest.fixture
def fs(vm: Vm, fsops: str, modules: ModuleSet, flashdev: Path) -> Iterator[GuestFs]:
    """Our modules and a uniform 100 us device, nothing mounted before or after."""
    device = prepare(vm, modules, flashdev)
    yield GuestFs(vm, fsops, device)
    vm.run(f"umount -q {MNT}", check=False)


def prepare(vm: Vm, modules: ModuleSet, flashdev: Path) -> str:
    """Load a module pair and the device, unless they are loaded already; the device's name."""
    vm.use_filesystem(modules)
    if vm.run(f"[ -b {DEVICE} ]", check=False).status != 0:
        vm.load_device(UNIFORM, flashdev, capacity_mib=CAPACITY_MIB)
    return DEVICE


@contextmanager
def other_fs(
    vm: Vm,
    fsops: str,
    modules: ModuleSet,
    flashdev: Path,
    profile: DeviceProfile,
    capacity_mib: int,
    *,
    lose_cache: bool = False,
) -> Iterator[GuestFs]:
    """A module pair on another device, until prepare() loads the usual one again."""
    vm.use_filesystem(modules)
    device = vm.load_device(profile, flashdev, capacity_mib=capacity_mib, lose_cache=lose_cache)
    try:
        yield GuestFs(vm, fsops, device)
    finally:
        if vm.running:
            vm.run(f"umount -q {MNT}; rmmod flashdev")


@pytest.fixture
def external(fs: GuestFs) -> Iterator[str]:
    """What mkfs has to be told to have the journal on a device of its own."""
    fs.vm.run("modprobe brd rd_nr=1 rd_size=8192 && mkfs.ext4 -qF -b 4096 -O journal_dev /dev/ram0")
    yield "-J device=/dev/ram0"
    fs.vm.run(f"umount -q {MNT}; rmmod brd")


@pytest.fixture
def slow_flushes(vm: Vm, fsops: str, modules: ModuleSet, flashdev: Path) -> Iterator[GuestFs]:
    """A device whose flushes take long beside its writes, and beside the processor's part."""
    profile = replace(UNIFORM, flush_ns=20 * MS)
    with other_fs(vm, fsops, modules, flashdev, profile, 512) as fs:
        yield fs


@contextmanager
def losing_fs(
    vm: Vm, fsops: str, modules: ModuleSet, flashdev: Path, profile: DeviceProfile
) -> Iterator[GuestFs]:
    """Our modules on a device that loses its cache with a flush, of which the log may tell."""
    with other_fs(vm, fsops, modules, flashdev, profile, CAPACITY_MIB, lose_cache=True) as fs:
        yield fs
    sound_log(vm, device_fails=True)


@pytest.fixture
def losing(vm: Vm, fsops: str, modules: ModuleSet, flashdev: Path) -> Iterator[GuestFs]:
    """Such a device, which is uniform otherwise."""
    with losing_fs(vm, fsops, modules, flashdev, UNIFORM) as fs:
        yield fs


@pytest.fixture(autouse=True)
def clean_kernel_log(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test after which a guest's kernel log shows a WARN, BUG or ext4 error.

    In which a guest ended, a test has failed already.
    """
    names = [name for name in ("vm", "two_cores") if name in request.fixturenames]
    machines: list[Vm] = [request.getfixturevalue(name) for name in names]
    for machine in machines:
        machine.kernel_log()
    yield
    logs = [machine.kernel_log() for machine in machines if machine.running]
    assert check_kernel_log("".join(logs)) == []


@pytest.fixture(scope="module")
def qasio_ko(tree: KernelTree) -> Path:
    if "qasio" not in own_modules(tree):
        pytest.skip(f"qasio is not for Linux {tree.series}")
    return build_own_module("qasio", tree, silent)


@pytest.fixture(scope="module")
def slow_device(
    vm: Vm, fsops: str, modules: ModuleSet, flashdev: Path, qasio_ko: Path
) -> Iterator[GuestFs]:
    with other_fs(vm, fsops, modules, flashdev, SLOW_DEVICE, SLOW_MIB) as fs:
        yield fs


@pytest.fixture
def selected(slow_device: GuestFs, qasio_ko: Path) -> Iterator[GuestFs]:
    """The slow device under qasio."""
    slow_device.vm.run(f"insmod {slow_device.vm.stage(qasio_ko)} && echo qasio >{QUEUE}/scheduler")
    yield slow_device
    slow_device.vm.run(f"echo none >{QUEUE}/scheduler && rmmod qasio")


@pytest.fixture
def sched(selected: GuestFs) -> Iterator[Scheduled]:
    with selected.mounted("commit=300"):
        yield Scheduled(selected)


@pytest.fixture
def stable(selected: GuestFs) -> Iterator[Scheduled]:
    """As sched, but pages must not change while they are written."""
    selected.vm.run(f"echo 1 >{QUEUE}/stable_writes")
    with selected.mounted("commit=300"):
        yield Scheduled(selected)
    selected.vm.run(f"echo 0 >{QUEUE}/stable_writes")


@pytest.fixture
def large_device(selected: GuestFs, flashdev: Path) -> Iterator[GuestFs]:
    vm = selected.vm
    vm.load_device(SLOW_DEVICE, flashdev, capacity_mib=LARGE_MIB)
    vm.run(f"echo qasio >{QUEUE}/scheduler")
    yield selected
    vm.load_device(SLOW_DEVICE, flashdev, capacity_mib=SLOW_MIB)
