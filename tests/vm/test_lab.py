"""The lab itself: a guest runs scripts, swaps modules, stages programs and ends when it must."""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from fastsync_lab.host import shell
from fastsync_lab.host.build import ModuleSet
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.glue import assemble, upstream_patches
from fastsync_lab.host.kernels import KernelTree, file_checksum
from fastsync_lab.host.paths import build_dir, cache_dir, repo_root
from fastsync_lab.host.progress import silent
from fastsync_lab.machine.config import VmConfig
from fastsync_lab.machine.image import root_image
from fastsync_lab.machine.processor import untimed_processor
from fastsync_lab.machine.vm import Vm
from fastsync_lab.study import calibration
from tests.processes import children, still_running
from tests.vm.conftest import IN_TIME, build_crashing


@pytest.fixture
def vm_command(kernel: str) -> list[str]:
    """./fastsync vm with the stock modules."""
    return [str(repo_root() / "fastsync"), "vm", "--stock", "--kernel", kernel]


@pytest.mark.short
def test_every_patch_for_stock_applies(tree: KernelTree, tmp_path: Path) -> None:
    """patches/upstream/ has stacks for some of the series."""
    assemble(tree, tmp_path, stock=True, patches=upstream_patches(tree.series))


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


def test_file_of_the_host_is_put_into_the_guest(vm: Vm, tmp_path: Path) -> None:
    script = tmp_path / "a script"
    script.write_text("#!/bin/sh\necho $0 $1\n" + "# more\n" * 200_000)
    there = vm.stage(script)
    assert vm.run(f"{there} x").stdout == f"{there} x\n"
    assert vm.run(f"busybox stat -c %s {there}").stdout == f"{script.stat().st_size}\n"


def test_guest_stands_on_its_image_and_sees_nothing_of_the_host(vm: Vm, tree: KernelTree) -> None:
    mounts = [line.split() for line in vm.run("cat /proc/mounts").stdout.splitlines()]
    assert {fields[1]: fields[2] for fields in mounts if fields[2] in ("overlay", "9p")} == {
        "/": "overlay",
        "/run/fastsync/out": "9p",
    }
    assert vm.run(f"ls -d {repo_root()}", check=False).status != 0
    config = vm.run(f"grep -x CONFIG_JBD2=. /boot/config-{tree.release}").stdout
    assert config == "CONFIG_JBD2=m\n"


def test_guest_has_the_processor_that_is_declared(vm: Vm) -> None:
    declared = untimed_processor()
    flags = vm.run("grep -m 1 ^flags /proc/cpuinfo").stdout.split()
    assert {flag: flag in flags for flag in declared.switched} == declared.switched
    assert set(declared.parameters) <= set(vm.run("cat /proc/cmdline").stdout.split())
    # By each of these the kernel copies or clears byte by byte; a newer QEMU may have more.
    assert not {"erms", "fsrm", "fsrs"} & set(flags)


@IN_TIME
def test_a_copy_does_not_count_each_byte(vm: Vm) -> None:
    """Reading a page would be 16 system calls long; on a real processor it is 4."""
    bench = vm.stage(calibration.PROGRAM.build(silent))
    found = calibration.figures_of(json.loads(vm.run(f"{bench} 3").stdout))
    assert 2 < found.ratio("read") < 8
    assert 2 < found.ratio("write") < 9


def test_image_has_what_was_made_from_its_recipe(vm: Vm) -> None:
    image = root_image()
    installed = vm.run("dpkg-query -W -f '${Package} ${Version}\\n'").stdout.splitlines()
    assert dict(line.split() for line in installed) == image.packages
    assert file_checksum(image.path) == image.digest


def test_device_mapper_makes_its_nodes(vm: Vm) -> None:
    vm.run("modprobe dm_mod && dmsetup create one --table '0 8 zero' && [ -b /dev/mapper/one ]")
    assert vm.run("dmsetup remove one; ls /dev/mapper").stdout == "control\n"


def test_failure_shows_what_the_kernel_said(vm: Vm) -> None:
    vm.run("echo '<1>BUG: of the script before' >/dev/kmsg")
    vm.run("sleep 0.1")
    said = ["BUG: kernel NULL pointer dereference", "Call Trace:", " planted+0x1/0x2"]
    script = "".join(f"echo '<1>{line}' >/dev/kmsg\n" for line in said)
    with pytest.raises(FastsyncError, match=r"`false` failed with status 1: no output") as caught:
        vm.run(f"false\n{script}exit 1")
    assert all(line in str(caught.value) for line in said)
    assert "before" not in str(caught.value)
    log = Path(re.findall(r"all of its console: (.*)\)", str(caught.value))[0])
    assert all(line in log.read_text() for line in said)
    vm.kernel_log()


def test_oops_of_insmod_shows_its_call_trace(tree: KernelTree) -> None:
    """The kernel kills insmod; a crash of insmod itself would be status 139."""
    build_dir().mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build_dir()) as folder, Vm(VmConfig(tree)) as guest:
        module = guest.stage(build_crashing(tree, Path(folder)))
        with pytest.raises(FastsyncError, match=r"`insmod \S* failed with status 137: ") as caught:
            guest.run(f"insmod {module}\nexit $?")
        text = str(caught.value)
        assert "BUG: kernel NULL pointer dereference" in text
        assert "Comm: insmod" in text
        assert re.search(r"Call Trace:(.*\n)+.*do_one_initcall", text)
        assert guest.run("echo alive").stdout == "alive\n"


def test_virtual_time_jumps_while_the_guest_idles(vm: Vm) -> None:
    start = time.monotonic()
    vm.run("sleep 2000")
    assert time.monotonic() - start < 1000


def test_time_hardly_passes_until_a_busy_host_stops_the_guest(
    vm: Vm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did by minutes: a guest without work has nothing to wait for but its timers."""
    send_signal = vm._signal

    def late(number: int) -> None:
        if number == signal.SIGSTOP:
            time.sleep(0.5)
        send_signal(number)

    monkeypatch.setattr(vm, "_signal", late)
    before, after = (float(vm.run("cat /proc/uptime").stdout.split()[0]) for _ in range(2))
    assert after - before < 2


def test_time_out_kills_the_guest(tree: KernelTree) -> None:
    with Vm(VmConfig(tree)) as guest:
        with pytest.raises(FastsyncError, match="no answer in time, the guest was killed"):
            guest.run("while :; do :; done", timeout_s=2)
        with pytest.raises(FastsyncError, match="the guest is not running"):
            guest.run("true")


def test_qemu_that_does_not_start_says_why(tree: KernelTree) -> None:
    with (
        pytest.raises(
            FastsyncError, match=r"ended by itself; its console said: .*qemu-system-x86_64: .*1000"
        ),
        Vm(VmConfig(tree, cpus=1000, real_time=True)),
    ):
        pass


def test_panic_is_an_error_that_quotes_the_console(tree: KernelTree) -> None:
    with (
        Vm(VmConfig(tree)) as guest,
        pytest.raises(FastsyncError, match=r"ended by itself; its console said: \s*\S.*panic"),
    ):
        guest.run("echo c >/proc/sysrq-trigger", timeout_s=60)


@pytest.mark.debian("./fastsync vm boots Debian's kernel")
def test_vm_command_passes_streams_and_status_through(vm_command: list[str]) -> None:
    command = "cat; echo $FASTSYNC_DEV; echo err | tee /dev/stderr >/dev/null; exit 42"
    argv = [*vm_command, "--device", "nvme", "--", "sh", "-c", command]
    done = shell.run(argv, input_text="hi\n", check=False, timeout_s=3600)
    assert (done.status, done.stdout) == (42, "hi\n/dev/flash0\n")
    assert done.stderr.endswith("err\n")


@pytest.mark.debian("./fastsync vm boots Debian's kernel")
def test_vm_command_that_fails_shows_what_the_kernel_said(
    vm_command: list[str], tree: KernelTree
) -> None:
    build_dir().mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build_dir()) as folder:
        module = build_crashing(tree, Path(folder))
        argv = [*vm_command, "--share", folder, "--", "insmod", str(module)]
        done = shell.run(argv, check=False, timeout_s=3600)
    assert (done.status, done.stdout) == (137, "")
    shown = done.stderr.partition("fastsync: the kernel said: ")[2]
    assert re.search(r"BUG: kernel NULL pointer dereference(.*\n)+.*do_one_initcall", shown)
    log = Path(re.findall(r"all of its console: (.*)\)\n$", shown)[0])
    assert "BUG: kernel NULL pointer dereference" in log.read_text()


@pytest.mark.debian("./fastsync vm boots Debian's kernel")
def test_vm_command_shares_folders_and_makes_the_machine_that_is_asked_for(
    vm_command: list[str], tmp_path: Path
) -> None:
    folders = [tmp_path / "to read, only", tmp_path / "to write"]
    for folder in folders:
        folder.mkdir()
        (folder / "file").write_text("host\n")
    argv = [*vm_command, "--share", str(folders[0]), "--share", f"{folders[1]}:rw"]
    argv += ["--memory", "700", "--processors", "2", "--real-time", "--parameter", "audit=0"]
    command = (
        'cat "$1/file" "$2/file"; echo guest >"$2/file"; echo guest >"$1/file" || echo refused\n'
        "nproc; grep -o audit=0 /proc/cmdline; free -m | busybox awk '/Mem/ {print ($2 < 700)}'"
    )
    argv += ["--", "sh", "-c", command, "sh", *map(str, folders)]
    done = shell.run(argv, timeout_s=3600)
    assert done.stdout == "host\nhost\nrefused\n2\naudit=0\n1\n"
    assert [(folder / "file").read_text() for folder in folders] == ["host\n", "guest\n"]


@pytest.mark.debian("./fastsync vm boots Debian's kernel")
def test_vm_command_ends_at_its_time_limit(vm_command: list[str]) -> None:
    argv = [*vm_command, "--time-limit", "2", "--", "sh", "-c", "echo up; while :; do :; done"]
    done = shell.run(argv, check=False, timeout_s=3600)
    assert (done.status, done.stdout) == (1, "up\n")
    assert "no answer in time, the guest was killed" in done.stderr


@pytest.mark.debian("./fastsync vm boots Debian's kernel")
def test_killed_vm_command_leaves_no_guest_behind(vm_command: list[str]) -> None:
    argv = [*vm_command, "--", "sh", "-c", "echo up; while :; do :; done"]
    process = shell.spawn(argv, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    started = children(process.pid)
    assert len(started) == 1
    os.kill(process.pid, 9)
    process.wait()
    assert still_running(*started, limit_s=600) == []
