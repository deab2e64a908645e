"""Every child process of the lab starts here."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.interrupt import STOP, signal_group

GRACE_S = 0.4  # for a child to remove what it has half made, once it is told to end
# LANG as well: the kernel's Makefile unsets LC_ALL.
ENGLISH = {"LC_ALL": "C.UTF-8", "LANG": "C.UTF-8", "LANGUAGE": ""}
LOOK_EACH_S = 0.5

Stream = int | IO[bytes] | None


@dataclass(frozen=True)
class Completed:
    """A finished command; stdout and stderr as text, bytes that are not UTF-8 replaced."""

    status: int
    stdout: str
    stderr: str


def last_lines(text: str, count: int = 5) -> str:
    """The last non-empty lines of a command's output, joined for an error message."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-count:])


def first_errors(log: str, count: int = 3) -> str:
    """The first lines of a build log that tell why it failed."""
    pattern = re.compile(r"(?!  [A-Z]).*(error|ERROR|not found|\*\*\*)")  # no "  CC      error.o"
    lines = [line for line in log.splitlines() if pattern.match(line)]
    return " | ".join(lines[:count]) or last_lines(log)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that spawn() started, and everything it started: first SIGTERM, then SIGKILL.

    A compiler and mmdebstrap remove their temporary files at the first.
    """
    signal_group(process, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
    with suppress(ProcessLookupError, PermissionError):  # what outlives the first of the group
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):  # a process of root's, which sudo started
        process.wait(GRACE_S)


def spawn(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = subprocess.DEVNULL,
    stderr: Stream = subprocess.DEVNULL,
    pass_fds: Collection[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a long-lived command in a process group of its own; `env` is added to the environment.

    Its messages are in English, for what reads them. It inherits `pass_fds`. Raises FastsyncError
    when the program is not there, Interrupted when a signal has come.
    """
    try:
        return STOP.start(
            lambda: subprocess.Popen(
                list(argv),
                cwd=cwd,
                env={**os.environ, **ENGLISH, **(env or {})},
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=pass_fds,
                start_new_session=True,
            )
        )
    except (FileNotFoundError, PermissionError) as error:
        raise FastsyncError(f"cannot run {argv[0]}: {error.strerror}; try `make setup`") from error


def run(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    input_text: str | None = None,
    timeout_s: float | None = None,
    check: bool = True,
    look: Callable[[], None] | None = None,
) -> Completed:
    """Run a command to its end and return what it printed; `env` is added to the environment.

    `look` is called twice a second meanwhile. Raises FastsyncError when the program is not there,
    when it takes longer than `timeout_s` seconds (the whole process group is killed), and, with
    `check`, when its status is not 0.
    """
    process = spawn(
        argv,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL if input_text is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        out, err = _communicate(process, input_text, timeout_s, look)
    except subprocess.TimeoutExpired as error:
        kill_group(process)
        raise FastsyncError(f"{argv[0]} took longer than {timeout_s} s and was killed") from error
    except BaseException:
        kill_group(process)
        raise
    STOP.check()  # else the child's end would look like its own failure
    done = Completed(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
    if check and done.status != 0:
        detail = last_lines(done.stderr) or last_lines(done.stdout) or "no output"
        raise FastsyncError(f"{argv[0]} failed with status {done.status}: {detail}")
    return done


def _communicate(
    process: subprocess.Popen[bytes],
    input_text: str | None,
    timeout_s: float | None,
    look: Callable[[], None] | None,
) -> tuple[bytes, bytes]:
    """stdout and stderr of a process; TimeoutExpired after `timeout_s` seconds."""
    data = None if input_text is None else input_text.encode()
    if look is None:
        return process.communicate(data, timeout=timeout_s)
    end = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        look()
        try:
            return process.communicate(data, timeout=LOOK_EACH_S)
        except subprocess.TimeoutExpired:
            data = None  # it goes on with what it has
            if end is not None and time.monotonic() > end:
                raise


def follow(argv: Sequence[str], look: Callable[[str], None]) -> int:
    """Run a command to its end, show `look` each line of stdout and stderr; the status.

    Raises FastsyncError when the program is not there.
    """
    process = spawn(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            look(line.decode(errors="replace"))
        status = process.wait()
    except BaseException:
        kill_group(process)
        raise
    STOP.check()
    return status
