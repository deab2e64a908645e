"""vm.py without booting anything: its end of the channel, against an agent that is played."""

import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fastsync_lab.host import shell
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.host.limits import Limit
from fastsync_lab.machine import console, vm
from fastsync_lab.machine.channel import Channel, parse_done
from fastsync_lab.machine.config import CONTROL_PORT, VmConfig

Answer = Callable[[str, bytes], bytes | None]  # to a request and its body; None: hang up
BEFORE = "[   10.0] BUG: an old one\n[   50.0] fastsync: script 6\n[   50.1] all is well\n"
OOPS = "[   50.2] BUG: kernel NULL pointer dereference, address: 0\n[   50.3] Call Trace:\n"


class Guest:
    """Plays QEMU and the agent in it: answers requests, a few bytes at a time."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[tuple[str, bytes]] = []
        self.process = shell.spawn(["sleep", "1000"])
        self.here, self.there = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with self.there, self.there.makefile("rb") as file:
            for line in file:
                words = line.decode().split()
                request = (" ".join([words[0], *words[2:]]), file.read(int(words[1])))
                self.requests.append(request)
                reply = self.answer(*request)
                if reply is None:
                    return
                for start in range(0, len(reply), 7):
                    self.there.sendall(reply[start : start + 7])

    def close(self) -> None:
        shell.kill_group(self.process)
        self.here.close()


def done(status: int, out: bytes = b"", err: bytes = b"") -> bytes:
    return f"done {status} {len(out)} {len(err)}\n".encode() + out + err


@pytest.fixture
def boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Answer], tuple[vm.Vm, Guest]]]:
    """Makes a Vm that talks to an agent that is played."""
    monkeypatch.setattr(console, "build_dir", lambda: tmp_path)
    guests = []

    def make(answer: Answer) -> tuple[vm.Vm, Guest]:
        guest = Guest(answer)
        guests.append(guest)
        machine = vm.Vm(config(tmp_path))
        machine._process = guest.process
        ports = {CONTROL_PORT: guest.here}
        machine._channel = Channel(ports, machine._check_alive, machine._failure)
        machine._console = console.Console()
        return machine, guest

    yield make
    for guest in guests:
        guest.close()


Boot = Callable[[Answer], tuple[vm.Vm, Guest]]


def config(tmp_path: Path) -> VmConfig:
    """A machine of a kernel that is not there."""
    names = ("6.12", "6.12.1+deb12-amd64", "6.12.1-1~deb12u1")
    return VmConfig(KernelTree(*names, tmp_path / "vmlinuz", tmp_path, tmp_path, tmp_path))


def console_path(machine: vm.Vm) -> Path:
    assert machine._console is not None
    return machine._console.path


# --- scripts


def test_status_and_streams_come_back_byte_by_byte(boot: Boot) -> None:
    machine, guest = boot(lambda _request, _body: done(3, b"o\xc3\xb6" * 50_000, b"err\0"))
    assert machine.run("true", check=False) == vm.GuestResult(3, "oö" * 50_000, "err\0")
    assert guest.requests == [("run", b"true\n")]


def test_failure_says_what_the_kernel_said_since_the_script_began(boot: Boot) -> None:

    def answer(_request: str, body: bytes) -> bytes:
        if b"dmesg" in body:
            return done(0, f"7\n{BEFORE}{OOPS}".encode())
        return done(139, b"", b"Segmentation fault\n")

    machine, _ = boot(answer)
    with pytest.raises(FastsyncError) as caught:
        machine.run("insmod x.ko\nmore")
    text = str(caught.value)
    assert "`insmod x.ko` failed with status 139: Segmentation fault" in text
    assert all(line in text for line in OOPS.splitlines())
    assert "old" not in text and "well" not in text
    assert str(console_path(machine)) in text
    assert machine.run("insmod x.ko", check=False).status == 139


@pytest.mark.parametrize(
    ("log", "said"), [(f"7\n{BEFORE}{OOPS}", OOPS), (f"7\n{BEFORE}", ""), ("", "")]
)
def test_complaint_is_that_since_the_last_script_began(log: str, said: str, boot: Boot) -> None:
    machine, _ = boot(lambda _request, _body: done(0, log.encode()))
    shown = "".join(f"\n    {line}" for line in said.splitlines())
    where = f"\n    (all of its console: {console_path(machine)})"
    assert machine.complaint() == (f"the kernel said: {shown}{where}" if said else "")


def test_guest_that_hangs_up_shows_its_console_since_the_script_began(boot: Boot) -> None:
    def answer(_request: str, _body: bytes) -> None:
        with path.open("a") as file:
            file.write(OOPS)

    machine, _ = boot(answer)
    path = console_path(machine)
    path.write_text("[    9.0] BUG: of another script\n")
    with pytest.raises(FastsyncError, match="the guest ended by itself") as caught:
        machine.run("x")
    assert "BUG: kernel NULL" in str(caught.value)
    assert "another script" not in str(caught.value)
    assert not machine.running
    with pytest.raises(FastsyncError, match="the guest is not running"):
        machine.run("true")


@pytest.mark.parametrize(
    ("said", "boots"), [(OOPS, 1), ("[    1.3] Oops: int3: 0000 [#1] PREEMPT SMP NOPTI\n", 2)]
)
def test_a_guest_that_qemu_kills_as_it_boots_is_booted_once_more(
    said: str, boots: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "build_dir", lambda: tmp_path)
    outs: list[Path | None] = []

    def boot(machine: vm.Vm) -> None:
        outs.append(machine._out_dir)
        machine._out_dir = tmp_path / "of this boot"
        machine._console = console.Console()
        machine._console.path.write_text(said)
        raise FastsyncError("the guest ended by itself")

    monkeypatch.setattr(vm.Vm, "_boot", boot)
    with pytest.raises(FastsyncError), vm.Vm(config(tmp_path)):
        pass
    assert outs == [None] * boots


def test_limit_that_passes_kills_the_guest(boot: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, guest = boot(lambda _request, _body: b"")
    used = iter([0.0, *[1.0] * 3, *[99.0] * 1000])
    monkeypatch.setattr(vm, "processor_seconds", lambda _pid: next(used))
    with pytest.raises(FastsyncError, match="no answer in time, the guest was killed"):
        machine.run("x", timeout_s=50)
    assert guest.process.poll() is not None


def test_busy_host_does_not_end_a_guest(boot: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the clock on the wall a minute more than the limit passes at each look."""
    now = iter(range(0, 100_000, 60))
    monkeypatch.setattr(vm, "processor_seconds", lambda _pid: 1.0)
    monkeypatch.setattr(
        vm, "Limit", lambda seconds, used: Limit(seconds, used, lambda: float(next(now)))
    )
    answered = threading.Event()

    def answer(_request: str, _body: bytes) -> bytes:
        answered.wait(2)
        return done(0)

    machine, _ = boot(answer)
    assert machine.run("x", timeout_s=1).status == 0


def test_scripts_know_the_device_that_is_loaded(boot: Boot) -> None:
    machine, guest = boot(lambda _request, _body: done(0))
    machine._environment["FASTSYNC_DEV"] = "/dev/flash0"
    machine.run("x")
    assert guest.requests[-1] == ("run", b"export FASTSYNC_DEV=/dev/flash0; x\n")


# --- files


def test_file_is_put_once_and_again_when_it_changes(boot: Boot, tmp_path: Path) -> None:
    machine, guest = boot(lambda _request, _body: done(0))
    file = tmp_path / "a b"
    contents = [os.urandom(3_000_000), b"other"]
    paths = []
    for data in contents:
        file.write_bytes(data)
        paths += [machine.stage(file), machine.stage(str(file))]
    assert paths == [f"/run/fastsync/files/{number}-a_b" for number in (0, 0, 1, 1)]
    assert [body for _, body in guest.requests] == contents
    assert [request for request, _ in guest.requests] == ["put 0-a_b", "put 1-a_b"]


def test_body_is_a_file_where_the_ports_carry_lines_only(tmp_path: Path) -> None:
    here, there = socket.socketpair()
    channel = Channel({CONTROL_PORT: here}, lambda: None, FastsyncError)
    channel.mail = tmp_path
    channel.send("put 5 x", b"\0\xff\n\r\x04", Limit(60, lambda: 0), "test")
    channel.close()
    with there:
        assert there.recv(1000) == b"put 5 x\n"
    assert (tmp_path / "body").read_bytes() == b"\0\xff\n\r\x04"


def test_file_that_there_is_not_or_that_has_no_room(boot: Boot, tmp_path: Path) -> None:
    machine, guest = boot(lambda _request, _body: done(1))
    with pytest.raises(FastsyncError, match="no file /nowhere to put into the guest"):
        machine.stage("/nowhere")
    assert guest.requests == []
    file = tmp_path / "x"
    file.write_text("")
    with pytest.raises(FastsyncError, match="putting x into the guest failed with status 1"):
        machine.stage(file)


# --- small things


@pytest.mark.parametrize("line", ["", "ready", "done 1 2", "done -1 0 0", "done 1 2 3 4"])
def test_other_answers_are_refused(line: str) -> None:
    assert parse_done("done 3 17 0") == (3, 17, 0)
    with pytest.raises(FastsyncError, match=re.escape(f"answered {line!r}")):
        parse_done(line)


def test_name_of_a_script_is_its_first_line_shortened() -> None:
    assert vm.first_line("\n  mount /dev/x\nls\n") == "mount /dev/x"
    assert len(vm.first_line("x" * 200)) == 80
    assert vm.first_line("") == ""


def test_guest_that_does_not_run_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(FastsyncError, match="the guest is not running"):
        vm.Vm(config(tmp_path)).run("true")
