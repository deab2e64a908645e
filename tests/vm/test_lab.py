"""The lab itself: a guest runs scripts, swaps modules, stages programs and ends when it must."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from fastsync_lab import shell
from fastsync_lab.build import ModuleSet, apply_patch, assemble
from fastsync_lab.errors import FastsyncError
from fastsync_lab.kernels import KernelTree
from fastsync_lab.paths import build_dir, cache_dir, repo_root
from fastsync_lab.vm import Vm, VmConfig


@pytest.fixture
def vm_command(kernel: str) -> list[str]:
    """./fastsync vm with the stock modules."""
    return [str(repo_root() / "fastsync"), "vm", "--stock", "--kernel", kernel]


def children(pid: int) -> list[int]:
    """The processes that a process's main thread started."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


@pytest.mark.parametrize(
    "fault", sorted((repo_root() / "tests" / "faults").rglob("*.patch")), ids=lambda path: path.stem
)
def test_every_planted_fault_applies(tree: KernelTree, tmp_path: Path, fault: Path) -> None:
    assemble(tree, tmp_path, stock=False, fault=fault)


@pytest.mark.short
def test_every_patch_for_stock_applies(tree: KernelTree, tmp_path: Path) -> None:
    """patches/upstream/ has stacks for some of the series."""
    assemble(tree, tmp_path, stock=True)
    for patch in sorted((repo_root() / "patches" / "upstream" / tree.series).glob("*.patch")):
        apply_patch(patch, tmp_path, tree)


def test_status_and_both_streams_come_back(vm: Vm) -> None:
    result = vm.run("echo out; echo err >&2; exit 3", check=False)
    assert (result.status, result.stdout, result.stderr) == (3, "out\n", "err\n")
    with pytest.raises(FastsyncError, match=r"`ls /nowhere` failed with status 2: .*No such file"):
        vm.run("ls /nowhere")


def test_scripts_do_not_disturb_each_other(vm: Vm, tree: KernelTree) -> None:
    vm.run("set -eu; x=1; cd /; exec 3>&1; echo kept >/run/fastsync/tmp/file")
    result = vm.run("echo ${x-unset} $PWD $(cat tmp/file); uname -r; id -u")
    assert result.stdout == f"unset /run/fastsync kept\n{tree.release}\n0\n"


def test_modules_do_not_tell_where_they_were_built(
    modules: ModuleSet, stock_modules: ModuleSet, flashdev: Path
) -> None:
    """The same source makes the same module in every folder, and so a digest names it anywhere."""
    for module in (modules.ext4, modules.jbd2, stock_modules.ext4, flashdev):
        content = module.read_bytes()
        assert not any(str(top).encode() in content for top in (build_dir(), cache_dir())), module


def test_large_output_and_odd_bytes(vm: Vm) -> None:
    assert len(vm.run("head -c 3000000 /dev/zero | tr '\\0' a").stdout) == 3_000_000
    assert vm.run("printf 'a\\377b\\0c'").stdout == "a\ufffdb\0c"


def test_shared_folder_is_read_and_written(vm: Vm) -> None:
    (vm.out_dir / "from-host").write_text("host")
    vm.run("cp $FASTSYNC_OUT/from-host $FASTSYNC_OUT/from-guest")
    assert (vm.out_dir / "from-guest").read_text() == "host"


def test_what_the_guest_writes_elsewhere_stays_in_it(vm: Vm) -> None:
    vm.run("echo x >/usr/fastsync-test && cat /usr/fastsync-test")
    assert not Path("/usr/fastsync-test").exists()


@pytest.mark.short
def test_modules_are_swapped(vm: Vm, modules: ModuleSet, stock_modules: ModuleSet) -> None:
    for pair in (stock_modules, modules, stock_modules):
        vm.load_filesystem(pair)
        known = vm.run("grep -c ext4_mtime /proc/kallsyms", check=False).stdout
        assert (known != "0\n") == (pair is modules)


def test_staged_program_does_not_need_the_hosts_files(vm: Vm) -> None:
    program = vm.stage("sed")
    assert vm.run(f"echo 41 | {program} s/1/2/").stdout == "42\n"
    opened = vm.run(f"cat {program}").stdout
    assert "/run/fastsync" in opened
    assert " /usr" not in opened


def test_virtual_time_jumps_while_the_guest_idles(vm: Vm) -> None:
    start = time.monotonic()
    vm.run("sleep 100")
    assert time.monotonic() - start < 20


def test_time_out_kills_the_guest(tree: KernelTree) -> None:
    with Vm(VmConfig(tree)) as guest:
        with pytest.raises(FastsyncError, match="no answer in time, the guest was killed"):
            guest.run("while :; do :; done", timeout_s=2)
        with pytest.raises(FastsyncError, match="the guest is not running"):
            guest.run("true")


def test_panic_is_an_error_that_quotes_the_console(tree: KernelTree) -> None:
    with (
        Vm(VmConfig(tree)) as guest,
        pytest.raises(FastsyncError, match=r"ended by itself; its console said: .*panic"),
    ):
        guest.run("echo c >/proc/sysrq-trigger", timeout_s=60)


@pytest.mark.debian("./fastsync vm boots Debian's kernel")
def test_vm_command_passes_streams_and_status_through(vm_command: list[str]) -> None:
    command = "cat; echo $FASTSYNC_DEV; echo err | tee /dev/stderr >/dev/null; exit 42"
    argv = [*vm_command, "--device", "nvme", "--", "sh", "-c", command]
    done = shell.run(argv, input_text="hi\n", check=False, timeout_s=300)
    assert (done.status, done.stdout) == (42, "hi\n/dev/flash0\n")
    assert done.stderr.endswith("err\n")


@pytest.mark.debian("./fastsync vm boots Debian's kernel")
def test_killed_vm_command_leaves_no_guest_behind(vm_command: list[str]) -> None:
    argv = [*vm_command, "--", "sh", "-c", "echo up; while :; do :; done"]
    process = shell.spawn(argv, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    started = children(process.pid)
    started += [pid for child in started for pid in children(child)]
    assert len(started) == 2
    os.kill(process.pid, 9)
    process.wait()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}/cmdline").exists() for pid in started):
        assert time.monotonic() < deadline
        time.sleep(0.1)
