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

CLEAN_LOG = """\
[   12.0] jbd2: loading out-of-tree module taints kernel.
[   12.1] jbd2: module verification failed: signature and/or required key missing - tainting kernel
[   13.0] EXT4-fs (flash0): mounted filesystem 3f1d r/w with ordered data mode. Quota mode: none.
[   14.0] EXT4-fs: mtime_update=1001: allowed are 1 to 1000 ms
[   14.5] Warning: unable to open an initial console.
[   15.0] EXT4-fs (flash0): unmounting filesystem 3f1d.
[  352.433918] EXT4-fs warning (device flash0): ext4_convert_unwritten_extents_endio:38: \
Inode (13) finished: extent
"""
BAD_LINES = [
    "[    9.1] WARNING: CPU: 0 PID: 1 at fs/ext4/inode.c:1 ext4_x+0x1/0x2 [ext4]",
    "[    9.1] WARNING: fs/ext4/inode.c:1 at ext4_x+0x1/0x2 [ext4], CPU#0: ls/1",
    "[    9.1] BUG: kernel NULL pointer dereference, address: 0000000000000000",
    "[    9.1] kernel BUG at fs/jbd2/commit.c:1!",
    "[    9.1] Oops: 0000 [#1] PREEMPT SMP",
    "[    9.1] Kernel panic - not syncing: Attempted to kill init!",
    "[    9.1] WARNING: possible circular locking dependency detected",
    "[    9.1] EXT4-fs error (device flash0): ext4_lookup:1: inode #2: comm ls: deleted inode",
    "[    9.1] EXT4-fs warning (device flash0): dx_probe:1: Unrecognised inode hash code 9",
    "[    9.1] INFO: task jbd2/flash0-8:99 blocked for more than 120 seconds.",
    "[    9.1] watchdog: BUG: soft lockup - CPU#0 stuck for 22s!",
    "[    9.1] Buffer I/O error on dev flash0, logical block 0, lost async page write",
    "[    9.1] refcount_t: underflow; use-after-free.",
    "[    9.1] BUG: KASAN: slab-use-after-free in jbd2_carrier_done+0x1/0x2 [jbd2]",
    "[    9.1] UBSAN: array-index-out-of-bounds in fs/ext4/mtime.c:1:2",
    "[    9.1] kmemleak: 1 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
    "[    9.1] WARNING: possible recursive locking detected",
    "[    9.1] WARNING: possible irq lock inversion dependency detected",
    "[    9.1] WARNING: inconsistent lock state",
    "[    9.1] WARNING: bad unlock balance detected!",
    "[    9.1] WARNING: held lock freed!",
    "[    9.1] WARNING: suspicious RCU usage",
    "[    9.1] DEBUG_LOCKS_WARN_ON(1)",
    "[    9.1] BUG: sleeping function called from invalid context at mm/slab.h:1",
    "[    9.1] BUG: scheduling while atomic: fio/1/0x00000002",
    "[    9.1] Assertion failure in jbd2_journal_commit_transaction() at fs/jbd2/commit.c:1: x",
    "[    9.1] ODEBUG: free active (active state 0) object: 1 object type: work_struct",
    "[    9.1] list_del corruption. prev->next should be 1, but was 2. (prev=3)",
    "[    9.1] BUG ext4_inode_cache (Tainted: G O): Objects remaining on __kmem_cache_shutdown()",
    "[    9.1] VFS: Busy inodes after unmount of flash0 (ext4)",
]


def config(tmp_path: Path, *, real_time: bool = False) -> vm.VmConfig:
    """A machine of a kernel that is not there."""
    modules = tmp_path / "lib" / "modules" / "6.12.1+deb12-amd64"
    names = ("6.12", "6.12.1+deb12-amd64", "6.12.1-1~deb12u1")
    tree = KernelTree(*names, tmp_path / "vmlinuz", modules, tmp_path, tmp_path)
    return vm.VmConfig(tree, real_time=real_time)


# --- the kernel log


def test_clean_kernel_log_has_nothing_bad() -> None:
    assert vm.check_kernel_log(CLEAN_LOG) == []


@pytest.mark.parametrize("line", BAD_LINES)
def test_bad_lines_of_a_kernel_log_are_found(line: str) -> None:
    assert vm.check_kernel_log(CLEAN_LOG + line + "\n") == [line]


def test_console_tail_prefers_the_kernels_complaints() -> None:
    assert vm.console_tail(f"a\n{BAD_LINES[4]}\nb\nc\n") == BAD_LINES[4]
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
