"""Boot a stock kernel in QEMU and run scripts in it.

The machine is started by virtme-ng: the host's root folder, read-only under a copy-on-write layer,
is the guest's root. Scripts and their results travel over a virtio port of our own, served in the
guest by guest/agent.sh. In virtual time (-icount) the guest's clock counts instructions and jumps
while the guest idles.
"""

import math
import re
import select
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from fastsync_lab.build import FILESYSTEMS, ModuleSet
from fastsync_lab.errors import FastsyncError
from fastsync_lab.interrupt import STOP
from fastsync_lab.kernel_log import check_kernel_log
from fastsync_lab.kernels import KernelTree
from fastsync_lab.shell import kill_group, last_lines, run, spawn
from fastsync_lab.streams import attach

if TYPE_CHECKING:
    from fastsync_lab.device import DeviceProfile

BOOT_TIMEOUT_S = 240.0  # 13 s on an idle machine
SHUTDOWN_TIMEOUT_S = 15.0
DEBUG_KERNEL_SLOWNESS = 8.0  # what its time limits are multiplied by
CONSOLE_KEPT_BYTES = 65536
ATTACHED_STREAMS = ("fastsync.in", "fastsync.out", "fastsync.err")
NOT_COPY_ON_WRITE = frozenset({"/boot", "/dev", "/proc", "/run", "/sys"})
GUEST_HOME = "/run/fastsync"


@dataclass(frozen=True)
class VmConfig:
    """A machine. `icount_shift` n: one guest instruction takes 2^n ns (1: 500 million a second)."""

    tree: KernelTree
    memory_mib: int = 2048
    cpus: int = 1
    real_time: bool = False
    icount_shift: int = 1

    @property
    def slowness(self) -> float:
        """What every time limit is multiplied by."""
        return DEBUG_KERNEL_SLOWNESS if self.tree.variant else 1.0


def models_cpu(icount_shift: int) -> str:
    """The processor in virtual time, in words."""
    return f"{1000 / 2**icount_shift:g} million instructions a second, one core"


@dataclass(frozen=True)
class GuestResult:
    """A finished script: its exit status and what it printed."""

    status: int
    stdout: str
    stderr: str


def safe_share(path: Path) -> Path:
    """`path`, if virtme-ng can share it with a guest; FastsyncError if its name forbids that."""
    if not re.fullmatch(r"[a-zA-Z0-9_+ /.-]+", str(path)):
        raise FastsyncError(
            f"virtme-ng cannot share {path}: only letters, digits, space and _ + / . - are allowed "
            "(FASTSYNC_CACHE moves the cache)"
        )
    return path


def copy_on_write_folders(root: Path) -> list[str]:
    """The host's folders that the guest may write to, into its own memory."""
    folders = (path for path in sorted(root.iterdir()) if path.is_dir() and not path.is_symlink())
    return [str(path) for path in folders if str(path) not in NOT_COPY_ON_WRITE]


def parse_show_depends(text: str) -> list[str]:
    """The modules that `modprobe --show-depends` names, in the order to load them."""
    files = re.findall(r"^insmod (.+)\.ko", text, re.MULTILINE)
    return [Path(file).name.replace("-", "_") for file in files]


def needed_by_ext4(tree: KernelTree) -> list[str]:
    """What a kernel loads for its ext4, beside the pair that we put in its place."""
    argv = ["/sbin/modprobe", "--dirname", str(tree.modules_dir.parents[2])]
    argv += ["--set-version", tree.release, "--show-depends", "ext4"]
    return [name for name in parse_show_depends(run(argv).stdout) if name not in FILESYSTEMS]


def console_tail(text: str) -> str:
    """What a console says about a failure: the kernel's complaints, else its last lines."""
    return last_lines("\n".join(check_kernel_log(text))) or last_lines(text, 2) or "nothing"


def virtme_command(config: VmConfig, agent: Path, out_dir: Path, sockets: Path) -> list[str]:
    """The command that boots `config`; qemu connects each port to a socket of the same name.

    It dies with the thread that starts it, and qemu with it.
    """
    tree = config.tree
    argv = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "virtme.commands.run"]
    argv += ["--qemu-bin", str(Path(__file__).with_name("qemu"))]
    argv += ["--name", "fastsync", "--user", "root"]
    argv += ["--kimg", str(tree.vmlinuz), "--mods", "auto"]
    argv += ["--rodir", f"/lib/modules/{tree.release}={safe_share(tree.modules_dir)}"]
    argv += ["--rwdir", f"{GUEST_HOME}/out={safe_share(out_dir)}"]
    for folder in copy_on_write_folders(Path("/")):
        argv += ["--overlay-rwdir", folder]
    argv += ["--force-9p", "--disable-kvm", "--show-boot-console"]
    argv += ["--cpus", str(config.cpus), "--memory", f"{config.memory_mib}M"]
    argv += ["--script-sh", f"exec bash {shlex.quote(str(agent))}"]
    argv += ["--qemu-opts"]  # takes all that follows
    if not config.real_time:
        argv += ["-icount", f"shift={config.icount_shift},sleep=off"]
    argv += ["-device", "virtio-serial-pci,id=fastsync,max_ports=8"]
    for number, port in enumerate(("fastsync", *ATTACHED_STREAMS)):
        argv += ["-chardev", f"socket,id=fs{number},path={sockets / port}"]
        argv += ["-device", f"virtserialport,bus=fastsync.0,chardev=fs{number},name={port}"]
    return argv


def listen(path: Path) -> socket.socket:
    """A listening socket that qemu will connect a port to."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(path))
    server.listen(1)
    return server


class Console:
    """Keeps the last of what the guest's console printed, for error messages."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._kept = bytearray()
        self._process = process
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        stream = self._process.stderr
        assert stream is not None
        while data := stream.read1(65536):  # type: ignore[attr-defined]
            self._kept += data
            del self._kept[:-CONSOLE_KEPT_BYTES]

    def text(self) -> str:
        """The kept output."""
        return self._kept.decode(errors="replace").replace("\r", "")

    def close(self) -> None:
        """Wait for the console's end; the process has to be dead."""
        self._thread.join(timeout=5)


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
        self._ports: dict[str, socket.socket] = {}
        self._environment: dict[str, str] = {}
        self._staged: dict[str, str] = {}
        self._filesystem: ModuleSet | None = None

    # --- life ----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
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
        if kind is None and self._process is not None:
            self._power_off(self._process)
        self.kill()

    @STOP.held()
    def kill(self) -> None:
        """End the guest at once, if it still runs, and remove the temporary folder."""
        if self._process is not None:
            kill_group(self._process)
            self._process = None
        if self._console is not None:
            self._console.close()
        for port in self._ports.values():
            port.close()
        self._ports.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

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
        agent = Path(__file__).parent / "guest" / "agent.sh"
        servers = {name: listen(folder / name) for name in ("fastsync", *ATTACHED_STREAMS)}
        argv = virtme_command(self.config, agent, self._out_dir, folder)
        self._process = spawn(argv, stderr=subprocess.PIPE)
        self._console = Console(self._process)
        deadline = time.monotonic() + BOOT_TIMEOUT_S * self.config.slowness
        for name, server in servers.items():
            self._ports[name] = self._accept(server, deadline)
            server.close()
        if self._read_line(deadline, "boot") != "ready":
            raise FastsyncError("the guest's agent did not say that it is ready")

    def _power_off(self, process: subprocess.Popen[bytes]) -> None:
        with suppress(OSError, subprocess.TimeoutExpired):  # kill() follows
            self._ports["fastsync"].sendall(b"off\n")
            process.wait(timeout=SHUTDOWN_TIMEOUT_S)

    # --- the channel ---------------------------------------------------------------------------

    def _accept(self, server: socket.socket, deadline: float) -> socket.socket:
        while not select.select([server], [], [], 0.2)[0]:
            self._check_alive()
            if time.monotonic() > deadline:
                raise self._failure("qemu did not start")
        return server.accept()[0]

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
        """An error that quotes the console; the guest is killed."""
        console = self._console
        self.kill()
        STOP.check()  # which ended it
        said = console_tail(console.text()) if console else "nothing"
        return FastsyncError(f"{what}; its console said: {said}")

    def _receive(self, size: int, deadline: float, what: str) -> bytes:
        """Up to `size` bytes from the agent, at least one."""
        port = self._ports["fastsync"]
        while not select.select([port], [], [], 0.5)[0]:
            self._check_alive()
            if time.monotonic() > deadline:
                raise self._failure(f"{what}: no answer in time, the guest was killed")
        data = port.recv(size)
        if not data:
            raise self._failure(f"{what}: the guest ended by itself")
        return data

    def _read_exactly(self, size: int, deadline: float, what: str) -> bytes:
        data = bytearray()
        while len(data) < size:
            data += self._receive(min(size - len(data), 1 << 20), deadline, what)
        return bytes(data)

    def _read_line(self, deadline: float, what: str) -> str:
        line = bytearray()
        while not line.endswith(b"\n"):
            line += self._receive(1, deadline, what)
        return line.decode().strip()

    def _request(self, verb: str, script: str) -> None:
        self._check_alive()
        exports = "".join(
            f"export {name}={shlex.quote(value)}; " for name, value in self._environment.items()
        )
        body = (exports + script + "\n").encode()
        try:
            self._ports["fastsync"].sendall(f"{verb} {len(body)}\n".encode() + body)
        except OSError as error:
            raise self._failure("the guest went away") from error

    # --- running things ------------------------------------------------------------------------

    def run(self, script: str, *, timeout_s: float = 120, check: bool = True) -> GuestResult:
        """Run a bash script in the guest as root; its folder is in the guest's memory.

        Raises FastsyncError when the guest dies, when `timeout_s` seconds of the host's time pass
        (the guest is killed), and, with `check`, when the status is not 0. A debug kernel gets more
        time.
        """
        what = f"in the guest, `{first_line(script)}`"
        self._request("run", script)
        deadline = time.monotonic() + timeout_s * self.config.slowness
        status, out_size, err_size = parse_done(self._read_line(deadline, what))
        out = self._read_exactly(out_size, deadline, what).decode(errors="replace")
        err = self._read_exactly(err_size, deadline, what).decode(errors="replace")
        if check and status != 0:
            detail = last_lines(err) or last_lines(out) or "no output"
            raise FastsyncError(f"{what} failed with status {status}: {detail}")
        return GuestResult(status, out, err)

    def run_attached(self, command: Sequence[str]) -> int:
        """Run a command in the guest on this process's stdin, stdout and stderr; its exit status.

        It starts in the folder of the same name as this process's. Works once per guest.
        Raises FastsyncError when the guest dies.
        """
        line = shlex.join(command)
        what = f"in the guest, `{first_line(line)}`"
        self._request("attach", f"cd {shlex.quote(str(Path.cwd()))} 2>/dev/null; {line}")
        with attach(*(self._ports[name] for name in ATTACHED_STREAMS)):
            status, _, _ = parse_done(self._read_line(math.inf, what))
        return status

    # --- what the experiments need ---------------------------------------------------------------

    def load_filesystem(self, modules: ModuleSet) -> None:
        """Put this pair of jbd2 and ext4 in place of whichever is loaded."""
        self.run(
            "for m in ext4 jbd2; do [ ! -d /sys/module/$m ] || rmmod $m || exit; done\n"
            f"modprobe -a {shlex.join(needed_by_ext4(self.config.tree))} || exit\n"
            f"insmod {shlex.quote(str(modules.jbd2))} && insmod {shlex.quote(str(modules.ext4))}"
        )
        self._filesystem = modules

    def use_filesystem(self, modules: ModuleSet) -> None:
        """The same, unless it was this pair that was loaded last."""
        if self._filesystem != modules:
            self.load_filesystem(modules)

    def load_device(
        self, profile: "DeviceProfile", flashdev_ko: Path, *, capacity_mib: int = 512
    ) -> str:
        """Make /dev/flash0, empty, behave like `profile`; an earlier one goes. Returns its name."""
        parameters = shlex.join(profile.module_parameters(capacity_mib))
        device = "/dev/flash0"
        self.run(
            "[ ! -d /sys/module/flashdev ] || rmmod flashdev || exit\n"
            f"insmod {shlex.quote(str(flashdev_ko))} {parameters} || exit\n"
            f"for i in {{1..100}}; do [ ! -b {device} ] || exit 0; sleep 0.1; done\n"
            f"echo no {device} after 10 s >&2; exit 1"
        )
        self._environment["FASTSYNC_DEV"] = device
        return device

    def stage(self, program: str) -> str:
        """Copy a program and its libraries into the guest's memory; the path to call it by.

        Takes a path or a name found in $PATH. Raises FastsyncError when there is none.
        """
        if program in self._staged:
            return self._staged[program]
        found = shutil.which(program)
        if found is None:
            raise FastsyncError(f"no program {program} to stage in the guest")
        host_path = Path(found).resolve()
        libraries = parse_ldd(run(["ldd", str(host_path)], check=False).stdout)
        name = Path(program).name
        folder = f"{GUEST_HOME}/stage/{len(self._staged)}-{name}"
        wrapper = f"{folder}/{name}"
        self.run(stage_script(host_path, libraries, folder, wrapper))
        self._staged[program] = wrapper
        return wrapper

    def put_in_memory(self, programs: Iterable[str] = (), *, applets: Iterable[str] = ()) -> None:
        """Have scripts call these programs from the guest's memory, and these of busybox.

        From the host's files a program takes as long to start as a short test. Raises
        FastsyncError for what there is not.
        """
        applets = list(applets)
        if unknown := set(applets).difference(run(["busybox", "--list"]).stdout.split()):
            raise FastsyncError(f"busybox has no {', '.join(sorted(unknown))}")
        paths = {Path(program).name: self.stage(program) for program in programs}
        paths |= dict.fromkeys(applets, f"{GUEST_HOME}/busybox")
        links = [f"ln -sfn {path} {GUEST_HOME}/bin/{name}" for name, path in paths.items()]
        self.run(" && ".join(links))

    def kernel_log(self) -> str:
        """The kernel log since the last call."""
        return self.run("dmesg --read-clear").stdout


def first_line(script: str) -> str:
    """The first line of a script, shortened, as its name in messages."""
    line = script.strip().split("\n", 1)[0]
    return line if len(line) <= 80 else line[:77] + "..."


def parse_done(line: str) -> tuple[int, int, int]:
    """Status, bytes of stdout and bytes of stderr from the agent's answer."""
    match = re.fullmatch(r"done (\d+) (\d+) (\d+)", line)
    if match is None:
        raise FastsyncError(f"the guest's agent answered {line!r}")
    return int(match[1]), int(match[2]), int(match[3])


def parse_ldd(text: str) -> list[str]:
    """The files named in the output of ldd, the dynamic loader last; empty for a static program."""
    libraries = re.findall(r"=> (/\S+) \(", text)
    loader = re.findall(r"^\s*(/\S+) \(", text, re.MULTILINE)
    return libraries + loader


def stage_script(program: Path, libraries: Sequence[str], folder: str, wrapper: str) -> str:
    """Bash that copies a program and its libraries to `folder` and writes a wrapper to call.

    The wrapper is a script for the busybox that guest/agent.sh has put into memory.
    """
    quoted = shlex.quote
    if not libraries:
        return f"mkdir -p {folder} && cp -L {quoted(str(program))} {wrapper}"
    loader = f"{folder}/lib/{Path(libraries[-1]).name}"
    binary = f"{folder}/lib/{program.name}"
    call = f'exec {loader} --library-path {folder}/lib --argv0 {wrapper} {quoted(binary)} "$@"'
    return "\n".join(
        [
            f"mkdir -p {folder}/lib || exit",
            f"cp -L {shlex.join([str(program), *libraries])} {folder}/lib/ || exit",
            f"printf '#!%s sh\\n%s\\n' {GUEST_HOME}/busybox {quoted(call)} >{wrapper} || exit",
            f"chmod +x {wrapper}",
        ]
    )
