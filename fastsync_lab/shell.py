"""Every child process of the lab starts here."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fastsync_lab.errors import FastsyncError

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
    """Kill a process that spawn() started, and everything it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def spawn(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = subprocess.DEVNULL,
    stderr: Stream = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start a long-lived command in a process group of its own; `env` is added to the environment.

    Raises FastsyncError when the program is not there.
    """
    try:
        return subprocess.Popen(
            list(argv),
            cwd=cwd,
            env={**os.environ, **env} if env else None,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
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
) -> Completed:
    """Run a command to its end and return what it printed; `env` is added to the environment.

    Raises FastsyncError when the program is not there, when it takes longer than `timeout_s`
    seconds (the whole process group is killed), and, with `check`, when its status is not 0.
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
        out, err = process.communicate(
            None if input_text is None else input_text.encode(), timeout=timeout_s
        )
    except subprocess.TimeoutExpired as error:
        kill_group(process)
        raise FastsyncError(f"{argv[0]} took longer than {timeout_s} s and was killed") from error
    except BaseException:
        kill_group(process)
        raise
    done = Completed(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
    if check and done.status != 0:
        detail = last_lines(done.stderr) or last_lines(done.stdout) or "no output"
        raise FastsyncError(f"{argv[0]} failed with status {done.status}: {detail}")
    return done


def follow(argv: Sequence[str], look: Callable[[str], None]) -> int:
    """Run a command to its end, show `look` each line of stdout and stderr; the status.

    Raises FastsyncError when the program is not there.
    """
    process = spawn(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            look(line.decode(errors="replace"))
        return process.wait()
    except BaseException:
        kill_group(process)
        raise
