"""Boot a kernel and run scripts in it.

The guest's root is an immutable image under a layer of its own memory (image.py). Its machine is
QEMU (qemu.py) or, for a kernel that is a program, that program (uml.py). Scripts, programs and
results travel over a port, served in the guest by guest/agent.sh. In virtual time the guest's clock
counts instructions and jumps while the guest idles. So it is stopped between scripts, and does not
idle until it is: an idle guest would use a whole processor of the host, and hours of its time would
pass, or seconds, by how busy the host is.
"""

import math
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from fastsync_lab.host.build import ModuleSet
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.glue import FILESYSTEMS
from fastsync_lab.host.interrupt import STOP
from fastsync_lab.host.kernels import KernelTree, file_checksum
from fastsync_lab.host.limits import Limit, processor_seconds
from fastsync_lab.host.shell import kill_group, last_lines, spawn
from fastsync_lab.machine.channel import Channel, parse_done
from fastsync_lab.machine.config import (
    ATTACHED_STREAMS,
    CONTROL_PORT,
    GUEST_HOME,
    PORTS,
    Machine,
    Setting,
    VmConfig,
)
from fastsync_lab.machine.console import Console
from fastsync_lab.machine.device import DeviceProfile, device_names
from fastsync_lab.machine.image import root_image
from fastsync_lab.machine.initramfs import modules_for, write_initramfs
from fastsync_lab.machine.kernel_log import (
    complaints,
    is_emulators_fault,
    of_script,
    said_by_kernel,
    without_notes,
)
from fastsync_lab.machine.qemu import qemu_machine
from fastsync_lab.machine.streams import attach
from fastsync_lab.machine.uml import uml_machine

# Limits are in seconds of the processor time of the machine's processes.
BOOT_LIMIT_S = 240.0  # it takes 5
ANSWER_LIMIT_S = 60.0
SHUTDOWN_TIMEOUT_S = 15.0


@dataclass(frozen=True)
class GuestResult:
    """A finished script: its exit status and what it printed."""

    status: int
    stdout: str
    stderr: str


def needed_by_ext4(tree: KernelTree) -> list[str]:
    """What a kernel loads for its ext4, beside the pair that we put in its place."""
    names = [file.name.split(".")[0].replace("-", "_") for file in modules_for(tree, ["ext4"])]
    return [name for name in names if name not in FILESYSTEMS]


def describe(config: VmConfig, setting: Setting) -> Machine:
    """The machine for the kernel, with all that it starts from in its folder."""
    machine = (uml_machine if config.is_uml else qemu_machine)(config, setting)
    write_initramfs(setting.initramfs, config, setting.image, machine)
    return machine


class Vm:
    """A running guest; use it in a `with` statement, from one thread.

    `out_dir` is shared with the guest, read-write, as $FASTSYNC_OUT. Without one given it is a
    temporary folder that goes when the guest does. A signal ends whatever waits for the guest; so
    does another thread that sets `stop`: then the guest is killed, with a FastsyncError.
    """

    def __init__(
        self,
        config: VmConfig,
        *,
        out_dir: Path | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self.config = config
        self._stop = stop or threading.Event()
        self._folder: Path | None = None
        self._out_dir = out_dir
        self._process: subprocess.Popen[bytes] | None = None
        self._console: Console | None = None
        self._console_start = 0
        self._channel: Channel | None = None
        self._environment: dict[str, str] = {}
        self._staged: dict[str, str] = {}
        self._filesystem: ModuleSet | None = None

    # --- life ----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        given = self._out_dir
        try:
            try:
                self._boot()
            except FastsyncError:
                if not (self._console and is_emulators_fault(self._console.text(0))):
                    raise
                self._out_dir = given
                self._boot()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self._process is not None:
                self._power_off(self._process)
        finally:
            self.kill()

    @STOP.held()
    def kill(self) -> None:
        """End the guest at once, if it still runs, and remove the temporary folder."""
        if self._process is not None:
            self._signal(signal.SIGCONT)  # it takes no SIGTERM while it is stopped
            kill_group(self._process)
            self._process = None
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def running(self) -> bool:
        """Whether scripts can be run: it was started, and has not been ended since."""
        return self._process is not None

    @property
    def host_seconds(self) -> float:
        """What its machine has used of the host's processors, in s."""
        return processor_seconds(self._check_alive().pid)

    @property
    def out_dir(self) -> Path:
        """The host's side of $FASTSYNC_OUT; there once the guest has booted."""
        if self._out_dir is None:
            raise FastsyncError("the guest was not started")
        return self._out_dir

    def _boot(self) -> None:
        folder = self._folder = Path(tempfile.mkdtemp(prefix="fastsync-"))
        self._out_dir = (self._out_dir or folder / "out").absolute()
        self._out_dir.mkdir(parents=True, exist_ok=True)
        console = self._console = Console()
        with ExitStack() as theirs:
            pairs = {name: socket.socketpair() for name in PORTS}
            inherited = {
                name: theirs.enter_context(end).fileno() for name, (_, end) in pairs.items()
            }
            ours = {name: end for name, (end, _) in pairs.items()}
            self._channel = Channel(ours, self._check_alive, self._failure)
            setting = Setting(
                root_image(self.config.root),
                folder,
                self._out_dir,
                console.path,
                inherited,
                theirs,
            )
            machine = describe(self.config, setting)
            self._channel.mail = machine.mail
            log = theirs.enter_context(console.path.open("ab"))
            self._process = spawn(
                machine.argv,
                cwd=folder,
                env=machine.env,
                stdout=log,
                stderr=log,
                pass_fds=(*inherited.values(), *machine.keeps),
            )
        limit = self._limit(BOOT_LIMIT_S)
        if self._channel.read_line(limit, "boot") != "ready":
            raise FastsyncError("the guest's agent did not say that it is ready")
        self._signal(signal.SIGSTOP)

    def _power_off(self, process: subprocess.Popen[bytes]) -> None:
        with suppress(OSError, subprocess.TimeoutExpired):  # kill() follows
            self._signal(signal.SIGCONT)
            if self._channel is not None:
                self._channel.ports[CONTROL_PORT].sendall(b"off\n")
            process.wait(timeout=SHUTDOWN_TIMEOUT_S)

    @contextmanager
    def _awake(self) -> Iterator[Channel]:
        """Let the guest's time pass, for as long as it is asked for something."""
        self._check_alive()
        assert self._channel is not None
        self._signal(signal.SIGCONT)
        yield self._channel
        self._signal(signal.SIGSTOP)

    def _signal(self, number: int) -> None:
        """Stop the guest, or let it go on; one in real time is never stopped."""
        if self._process is not None and self.config.virtual_time:
            self._process.send_signal(number)

    # --- the channel ---------------------------------------------------------------------------

    def _limit(self, seconds: float) -> Limit:
        """A limit for what the guest is asked to do, in seconds of its machine's processor time."""
        pid = self._check_alive().pid
        return Limit(seconds * self.config.slowness, lambda: processor_seconds(pid))

    def _check_alive(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise FastsyncError("the guest is not running")
        STOP.check()
        if self._stop.is_set():
            self.kill()
            raise FastsyncError("interrupted")
        if self._process.poll() is not None:
            raise self._failure("the guest ended by itself")
        return self._process

    def _failure(self, what: str) -> FastsyncError:
        """An error that says what the kernel said since the script began; the guest is killed."""
        self.kill()
        STOP.check()  # which ended it
        said = self._console.text(self._console_start) if self._console else ""
        return FastsyncError(f"{what}; its console said: {self.said(said)}")

    def said(self, log: str) -> str:
        """What its kernel complains of in a log, for a message, and where the whole console is."""
        note = f"\n    (all of its console: {self._console.path})" if self._console else ""
        return said_by_kernel(log) + note

    def _request(self, channel: Channel, verb: str, script: str, limit: Limit, what: str) -> None:
        exports = "".join(
            f"export {name}={shlex.quote(value)}; " for name, value in self._environment.items()
        )
        body = (exports + script + "\n").encode()
        self._console_start = self._console.size() if self._console else 0
        channel.send(f"{verb} {len(body)}", body, limit, what)

    # --- running things ------------------------------------------------------------------------

    def run(self, script: str, *, timeout_s: float = 120, check: bool = True) -> GuestResult:
        """Run a bash script in the guest as root; its folder is in the guest's memory.

        Raises FastsyncError when the guest dies, when its machine has used `timeout_s` seconds of
        the host's processor for it (the guest is killed), and, with `check`, when the status is not
        0; it says what the kernel complained of since the script began. A debug kernel gets more
        time.
        """
        what = f"in the guest, `{first_line(script)}`"
        limit = self._limit(timeout_s)
        with self._awake() as channel:
            self._request(channel, "run", script, limit, what)
            status, out_size, err_size = parse_done(channel.read_line(limit, what))
            out = channel.read_exactly(out_size, limit, what).decode(errors="replace")
            err = channel.read_exactly(err_size, limit, what).decode(errors="replace")
        if check and status != 0:
            detail = last_lines(err) or last_lines(out) or "no output"
            said = self.complaint(anyway=True)
            raise FastsyncError(f"{what} failed with status {status}: {detail}; {said}")
        return GuestResult(status, out, err)

    def complaint(self, *, anyway: bool = False) -> str:
        """What the kernel complained of since the last script began, and where its console is.

        Empty if it did not complain; with `anyway` it is then what it said last.
        """
        done = self.run("echo $FASTSYNC_SCRIPT; dmesg", check=False)
        number, _, log = done.stdout.partition("\n")
        said = of_script(log, int(number or 0) - 1)
        if not (anyway or complaints(said)):
            return ""
        return f"the kernel said: {self.said(said)}"

    def run_attached(self, command: Sequence[str], *, timeout_s: float = math.inf) -> int:
        """Run a command in the guest on this process's stdin, stdout and stderr; its exit status.

        It starts in the folder of the same name as this process's. Works once per guest.
        Raises FastsyncError when the guest dies, and when its machine has used `timeout_s` seconds
        of the host's processor for it.
        """
        line = shlex.join(command)
        what = f"in the guest, `{first_line(line)}`"
        limit = self._limit(timeout_s)
        script = f"cd {shlex.quote(str(Path.cwd()))} 2>/dev/null; {line}"
        with self._awake() as channel:
            self._request(channel, "attach", script, limit, what)
            stdin, stdout, stderr = (channel.ports[name] for name in ATTACHED_STREAMS)
            with attach(stdin, stdout, stderr, partial(channel.inline, "input")):
                status, _, _ = parse_done(channel.read_line(limit, what))
        return status

    def stage(self, file: str | Path) -> str:
        """Copy a file of the host into the guest's memory; its path there.

        It can be run if it is static, or needs no library that the root image has not. Raises
        FastsyncError when there is no such file.
        """
        path = Path(file)
        if not path.is_file():
            raise FastsyncError(f"no file {path} to put into the guest")
        digest = file_checksum(path)
        if digest not in self._staged:
            name = f"{len(self._staged)}-{re.sub(r'[^A-Za-z0-9_.+-]', '_', path.name)}"
            what = f"putting {path.name} into the guest"
            limit = self._limit(ANSWER_LIMIT_S)
            data = path.read_bytes()
            with self._awake() as channel:
                channel.send(f"put {len(data)} {name}", data, limit, what)
                status, _, _ = parse_done(channel.read_line(limit, what))
            if status != 0:
                raise FastsyncError(f"{what} failed with status {status}")
            self._staged[digest] = f"{GUEST_HOME}/files/{name}"
        return self._staged[digest]

    # --- what the experiments need ---------------------------------------------------------------

    def load_filesystem(self, modules: ModuleSet) -> None:
        """Put this pair of jbd2 and ext4 in place of whichever is loaded."""
        self.run(
            "for m in ext4 jbd2; do [ ! -d /sys/module/$m ] || rmmod $m || exit; done\n"
            f"modprobe -a {shlex.join(needed_by_ext4(self.config.tree))} || exit\n"
            f"insmod {self.stage(modules.jbd2)} && insmod {self.stage(modules.ext4)}"
        )
        self._filesystem = modules

    def use_filesystem(self, modules: ModuleSet) -> None:
        """The same, unless it was this pair that was loaded last."""
        if self._filesystem != modules:
            self.load_filesystem(modules)

    def load_device(
        self,
        profile: DeviceProfile,
        flashdev_ko: Path,
        *,
        capacity_mib: int,
        devices: int = 1,
        lose_cache: bool = False,
    ) -> str:
        """Make /dev/flash0 and on, empty, behave like `profile`; earlier ones go.

        Returns the first one's name. Each has `capacity_mib` MiB; with `lose_cache` a flush that
        fails takes with it what the cache held. $FASTSYNC_DEV is the first, $FASTSYNC_DEVS all.
        """
        parameters = profile.module_parameters(capacity_mib, devices=devices, lose_cache=lose_cache)
        names = device_names(devices)
        self.run(
            "[ ! -d /sys/module/flashdev ] || rmmod flashdev || exit\n"
            f"insmod {self.stage(flashdev_ko)} {shlex.join(parameters)} || exit\n"
            f"for device in {' '.join(names)}; do\n"
            "for i in {1..100}; do [ ! -b $device ] || continue 2; sleep 0.1; done\n"
            "echo no $device after 10 s >&2; exit 1; done"
        )
        self._environment |= {"FASTSYNC_DEV": names[0], "FASTSYNC_DEVS": " ".join(names)}
        return names[0]

    def kernel_log(self) -> str:
        """The kernel log since the last call."""
        return without_notes(self.run("dmesg --read-clear").stdout)


def first_line(script: str) -> str:
    """The first line of a script, shortened, as its name in messages."""
    line = script.strip().split("\n", 1)[0]
    return line if len(line) <= 80 else line[:77] + "..."
