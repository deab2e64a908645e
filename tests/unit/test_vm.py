"""vm.py, shell.py and streams.py without booting anything."""

import os
import socket
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastsync_lab import shell, vm
from fastsync_lab.errors import FastsyncError
from fastsync_lab.kernels import KernelTree
from fastsync_lab.streams import pump_in, write_all

OOPS = "[    9.1] Oops: 0000 [#1] PREEMPT SMP"


def config(tmp_path: Path, *, real_time: bool = False) -> vm.VmConfig:
    """A machine of a kernel that is not there."""
    modules = tmp_path / "lib" / "modules" / "6.12.1+deb12-amd64"
    names = ("6.12", "6.12.1+deb12-amd64", "6.12.1-1~deb12u1")
    tree = KernelTree(*names, tmp_path / "vmlinuz", modules, tmp_path, tmp_path)
    return vm.VmConfig(tree, real_time=real_time)


# --- what a console says


def test_console_tail_prefers_the_kernels_complaints() -> None:
    assert vm.console_tail(f"a\n{OOPS}\nb\nc\n") == OOPS
    assert vm.console_tail("a\nb\nc\n") == "b | c"
    assert vm.console_tail("") == "nothing"


# --- the command that boots


def test_virtual_time_has_icount_and_real_time_has_not(tmp_path: Path) -> None:
    argv = vm.virtme_command(config(tmp_path), tmp_path / "agent", tmp_path, tmp_path)
    assert argv[argv.index("-icount") + 1] == "shift=1,sleep=off"
    real = vm.virtme_command(
        config(tmp_path, real_time=True), tmp_path / "agent", tmp_path, tmp_path
    )
    assert "-icount" not in real


def test_qemu_options_come_last(tmp_path: Path) -> None:
    argv = vm.virtme_command(config(tmp_path), tmp_path / "agent", tmp_path, tmp_path)
    after = argv[argv.index("--qemu-opts") + 1 :]
    assert not [word for word in after if word.startswith("--")]


def test_path_that_virtme_cannot_share_is_refused() -> None:
    with pytest.raises(FastsyncError, match="cannot share /home/jörg/x"):
        vm.safe_share(Path("/home/jörg/x"))
    assert vm.safe_share(Path("/a b/6.12.117-1+deb12u1")) == Path("/a b/6.12.117-1+deb12u1")


def test_modules_that_ext4_needs_are_in_the_order_to_load_them() -> None:
    text = """\
builtin crc64
insmod /a b/kernel/crypto/crc32c-cryptoapi.ko.xz
insmod /a b/kernel/fs/mbcache.ko option=1
install /bin/true
insmod /a b/kernel/fs/ext4/ext4.ko.zst
"""
    assert vm.parse_show_depends(text) == ["crc32c_cryptoapi", "mbcache", "ext4"]
    assert vm.parse_show_depends("") == []


def test_copy_on_write_leaves_out_links_files_and_kernel_folders(tmp_path: Path) -> None:
    folders = vm.copy_on_write_folders(Path("/"))
    assert "/usr" in folders
    assert not {"/proc", "/sys", "/dev", "/run"} & set(folders)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "file").write_text("")
    assert vm.copy_on_write_folders(tmp_path) == [str(tmp_path / "folder")]


# --- the channel


def test_done_line() -> None:
    assert vm.parse_done("done 3 17 0") == (3, 17, 0)


@pytest.mark.parametrize("line", ["", "ready", "done 1 2", "done -1 0 0", "done 1 2 3 4"])
def test_other_lines_are_refused(line: str) -> None:
    with pytest.raises(FastsyncError, match="answered"):
        vm.parse_done(line)


def test_name_of_a_script_is_its_first_line_shortened() -> None:
    assert vm.first_line("\n  mount /dev/x\nls\n") == "mount /dev/x"
    assert len(vm.first_line("x" * 200)) == 80
    assert vm.first_line("") == ""


def test_guest_that_does_not_run_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(FastsyncError, match="the guest is not running"):
        vm.Vm(config(tmp_path)).run("true")


# --- staging


def test_ldd_output() -> None:
    text = """\
\tlinux-vdso.so.1 (0x00007ffd)
\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f01)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f02)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f03)
"""
    assert vm.parse_ldd(text) == [
        "/lib/x86_64-linux-gnu/libm.so.6",
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib64/ld-linux-x86-64.so.2",
    ]
    assert vm.parse_ldd("\tstatically linked\n") == []


@pytest.mark.parametrize("program", ["/bin/ls", "busybox"])
def test_staged_program_runs_from_its_copy(program: str, tmp_path: Path) -> None:
    found = shell.run(["which", program]).stdout.strip()
    folder, wrapper = f"{tmp_path}/stage", f"{tmp_path}/stage/{Path(program).name}"
    libraries = vm.parse_ldd(shell.run(["ldd", found], check=False).stdout)
    script = vm.stage_script(Path(found), libraries, folder, wrapper)
    script = script.replace(vm.GUEST_HOME, str(tmp_path))
    shell.run(["bash", "-c", f'cp -L "$(command -v busybox)" {tmp_path}'])  # as the agent does
    shell.run(["bash", "-c", script])
    argument = "--version" if program == "/bin/ls" else "--help"
    assert shell.run([wrapper, argument]).stdout


# --- child processes


def test_run_returns_status_and_both_streams() -> None:
    done = shell.run(["sh", "-c", "cat; echo e >&2; exit 3"], input_text="hi", check=False)
    assert (done.status, done.stdout, done.stderr) == (3, "hi", "e\n")


def test_run_raises_with_the_last_lines_of_stderr() -> None:
    with pytest.raises(FastsyncError, match=r"sh failed with status 3: what \| why"):
        shell.run(["sh", "-c", "echo what >&2; echo why >&2; exit 3"])


def test_run_of_a_program_that_is_not_there() -> None:
    with pytest.raises(FastsyncError, match="cannot run no-such-program"):
        shell.run(["no-such-program"])


def test_time_out_kills_the_whole_group(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"sleep 100 & echo $! >{pid_file}; wait"
    with pytest.raises(FastsyncError, match=r"longer than 0\.5 s"):
        shell.run(["sh", "-c", script], timeout_s=0.5)
    status = Path(f"/proc/{pid_file.read_text().strip()}/status")
    deadline = time.monotonic() + 5
    while status.exists() and "zombie" not in status.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_environment_is_added_to() -> None:
    done = shell.run(["sh", "-c", "echo $FASTSYNC_X $HOME"], env={"FASTSYNC_X": "1"})
    assert done.stdout == f"1 {os.environ.get('HOME', '')}\n"


# --- streams


@given(st.binary(max_size=200_000))
def test_every_byte_arrives_and_then_the_end(data: bytes) -> None:
    read_fd, write_fd = os.pipe()
    here, there = socket.socketpair()
    with here, there:
        received = bytearray()
        for start in range(0, len(data), 4096):
            write_all(write_fd, data[start : start + 4096])
            pumped = os.read(read_fd, 4096)
            here.sendall(pumped)
            received += there.recv(65536)
        os.close(write_fd)
        pump_in(read_fd, here)
        assert there.recv(1) == b""
    os.close(read_fd)
    assert bytes(received) == data
