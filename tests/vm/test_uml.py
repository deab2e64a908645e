"""User-Mode Linux as a machine of the lab: what a guest in QEMU does, one there does."""

import hashlib
import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.host import shell
from fastsync_lab.host.build import build_flashdev, build_modules
from fastsync_lab.host.debug.kernel import uml_kernel
from fastsync_lab.host.errors import FastsyncError, TimeLimitError
from fastsync_lab.host.fetch import fetch_kernel
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.host.paths import build_dir
from fastsync_lab.machine.config import Share, VmConfig
from fastsync_lab.machine.device import load_profile
from fastsync_lab.machine.vm import Vm
from tests.processes import children
from tests.vm.conftest import build_crashing

pytestmark = pytest.mark.debian("User-Mode Linux is another kernel than the debug kernel")

# A process that passes its streams to a command in the guest.
ATTACHED = """
import pickle, sys
from fastsync_lab.machine.vm import Vm
with Vm(pickle.loads(bytes.fromhex(sys.argv[1]))) as guest:
    sys.exit(guest.run_attached(sys.argv[2:]))
"""


@pytest.fixture(scope="module")
def uml(kernel: str) -> KernelTree:
    return uml_kernel(fetch_kernel(kernel))


@pytest.fixture(scope="module")
def guest(uml: KernelTree) -> Iterator[Vm]:
    with Vm(VmConfig(uml)) as machine:
        yield machine


def attached(tree: KernelTree) -> list[str]:
    """The command line that runs what follows in a guest."""
    return [sys.executable, "-c", ATTACHED, pickle.dumps(VmConfig(tree)).hex()]


def members(leader: int) -> set[int]:
    """The processes of a group."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[2]) == leader:
                found.add(int(path.parent.name))
    return found


def test_status_and_both_streams_come_back(guest: Vm, uml: KernelTree) -> None:
    result = guest.run("uname -r; echo err >&2; exit 3", check=False)
    assert (result.status, result.stdout, result.stderr) == (3, f"{uml.release}\n", "err\n")
    with pytest.raises(FastsyncError, match=r"`ls /nowhere` failed with status 2: .*No such file"):
        guest.run("ls /nowhere")


def test_every_byte_passes_in_both_directions(guest: Vm, tmp_path: Path) -> None:
    """More than a serial line, a pipe or a terminal has room for; the same name twice."""
    file = tmp_path / "bytes"
    for _ in range(2):
        data = os.urandom(5_000_000) + bytes(range(256)) * 40
        file.write_bytes(data)
        there = guest.stage(file)
        digest = hashlib.sha256(data).hexdigest()
        assert guest.run(f"sha256sum <{there}").stdout == f"{digest}  -\n"
        back = guest.run(f"od -An -v -tx1 {there} | tr -d ' \\n'").stdout
        assert hashlib.sha256(bytes.fromhex(back)).hexdigest() == digest


def test_scripts_of_the_same_length_are_not_taken_for_one_another(guest: Vm) -> None:
    for number in range(10):
        assert guest.run(f"echo {number}").stdout == f"{number}\n"


def test_folders_of_the_host_are_shared(uml: KernelTree, tmp_path: Path) -> None:
    read, write, out = (tmp_path / name for name in ("to read, only", "to write", "o u:t"))
    for folder in (read, write):
        folder.mkdir()
        (folder / "file").write_text("host\n")
    shares = (Share(read), Share(write, writable=True))
    with Vm(VmConfig(uml, 512, shares=shares), out_dir=out) as machine:
        (out / "in").write_text("new\n")
        script = (
            f"cat '{read}/file' '{write}/file' $FASTSYNC_OUT/in\n"
            f"echo guest >'{write}/file'; echo guest 2>/dev/null >'{read}/file' || echo refused\n"
            "head -c 3000000 /dev/urandom >$FASTSYNC_OUT/large; sha256sum <$FASTSYNC_OUT/large"
        )
        *lines, digest = machine.run(script).stdout.splitlines()
        assert lines == ["host", "host", "new", "refused"]
        large = (out / "large").read_bytes()
        assert f"{hashlib.sha256(large).hexdigest()}  -" == digest
        (out / "in").write_text("old\n")
        assert machine.run("cat $FASTSYNC_OUT/in").stdout == "old\n"
    assert [(folder / "file").read_text() for folder in (read, write)] == ["host\n", "guest\n"]


def test_streams_are_passed_through(uml: KernelTree) -> None:
    """More than any buffer holds, to a command that takes it slowly."""
    text = "".join(f"line {number}\n" for number in range(100_000))
    command = ["sh", "-c", "sleep 1; cat; echo err >&2; exit 42"]
    done = shell.run([*attached(uml), *command], input_text=text, check=False, timeout_s=600)
    assert (done.status, done.stderr) == (42, "err\n")
    assert done.stdout == text


@pytest.mark.parametrize("script", ["while :; do :; done", "yes >/dev/null"])
def test_time_limit_ends_every_process(uml: KernelTree, script: str) -> None:
    """The processor time of the guest's processes counts, and none of them stays."""
    with Vm(VmConfig(uml)) as machine:
        assert machine._process is not None
        leader = machine._process.pid
        assert len(members(leader)) > 1
        with pytest.raises(TimeLimitError, match="no answer in time, the guest was killed"):
            machine.run(script, timeout_s=2)
        assert members(leader) == set()
        with pytest.raises(FastsyncError, match="the guest is not running"):
            machine.run("true")


def test_folder_and_memory_go_with_the_guest(uml: KernelTree) -> None:
    with Vm(VmConfig(uml)) as machine:
        folder = machine.out_dir.parent
        assert (folder / "initramfs").is_file()
    assert not folder.exists()
    assert not list(Path("/dev/shm").glob("vm_file*"))


def test_killed_lab_leaves_no_guest_behind(uml: KernelTree) -> None:
    script = "echo up; while :; do :; done"
    process = shell.spawn([*attached(uml), "sh", "-c", script], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    (leader,) = children(process.pid)
    assert len(members(leader)) > 1
    process.kill()
    process.wait()
    deadline = time.monotonic() + 600
    while members(leader):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_oops_is_an_error_that_says_where(uml: KernelTree) -> None:
    """The kernel is one program: it ends at any fault of its own."""
    build_dir().mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build_dir()) as folder, Vm(VmConfig(uml)) as machine:
        module = machine.stage(build_crashing(uml, Path(folder)))
        with pytest.raises(FastsyncError, match="the guest ended by itself") as caught:
            machine.run(f"insmod {module}")
    assert "Kernel panic - not syncing: Kernel mode fault at addr 0x0" in str(caught.value)
    assert re.search(r"RIP: \S*:crashing_init\+", str(caught.value))


def test_panic_is_an_error_that_quotes_the_console(uml: KernelTree) -> None:
    with (
        Vm(VmConfig(uml)) as machine,
        pytest.raises(FastsyncError, match=r"ended by itself; its console said: \s*\S.*panic"),
    ):
        machine.run("echo c >/proc/sysrq-trigger", timeout_s=60)


def test_kernel_that_does_not_start_says_why(uml: KernelTree, tmp_path: Path) -> None:
    program = tmp_path / "linux"
    program.write_text("#!/bin/sh\necho 'no kernel'\n")
    program.chmod(0o755)
    with (
        pytest.raises(FastsyncError, match=r"ended by itself; its console said: \s*no kernel"),
        Vm(VmConfig(replace(uml, vmlinuz=program))),
    ):
        pass


def test_modules_and_device_are_loaded(guest: Vm, uml: KernelTree) -> None:
    for pair in (build_modules(uml, stock=True), build_modules(uml)):
        guest.load_filesystem(pair)
        known = guest.run("grep -c ext4_mtime /proc/kallsyms", check=False).stdout
        assert (known != "0\n") == (pair.name == "fastsync")
    device = guest.load_device(load_profile("sata-ssd"), build_flashdev(uml), capacity_mib=64)
    guest.run(f"mkfs.ext4 -q {device} && mount {device} /mnt && echo x >/mnt/x && sync /mnt/x")
    guest.run("umount /mnt && dmesg -n 1")
    assert re.search(r"EXT4-fs \(flash0\): mounted", guest.kernel_log())


def test_a_guest_keeps_to_one_processor_of_the_host(guest: Vm) -> None:
    guest.run("true")
    assert guest._process is not None
    assert len(os.sched_getaffinity(guest._process.pid)) == 1
