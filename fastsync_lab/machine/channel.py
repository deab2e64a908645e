"""The host's end of the ports of a guest: requests to its agent, and the answers."""

import re
import select
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from fastsync_lab.host.errors import FastsyncError, TimeLimitError
from fastsync_lab.host.limits import Limit
from fastsync_lab.machine.config import CONTROL_PORT

LOOK_EACH_S = 0.5


class Channel:
    """The ports by name. What follows a request goes by files in `mail`, if there is that folder.

    `check` raises FastsyncError when the guest is not there any more; `failure` ends it and makes
    the error that says why.
    """

    def __init__(
        self,
        ports: Mapping[str, socket.socket],
        check: Callable[[], object],
        failure: Callable[[str], FastsyncError],
    ) -> None:
        self.ports = ports
        self.mail: Path | None = None
        self._check = check
        self._failure = failure

    def close(self) -> None:
        """Hang up."""
        for port in self.ports.values():
            port.close()

    def inline(self, name: str, body: bytes) -> bytes:
        """What of a body goes over a port: all, or nothing where it goes by a file of that name."""
        if self.mail is None:
            return body
        (self.mail / name).write_bytes(body)
        return b""

    def send(self, request: str, body: bytes, limit: Limit, what: str) -> None:
        """Ask the agent. Raises FastsyncError when it goes away, TimeLimitError after the limit."""
        self._check()
        left = memoryview(request.encode() + b"\n" + self.inline("body", body))
        try:
            while left:
                port = self._wait(write=True, limit=limit, what=what)
                left = left[port.send(left, socket.MSG_DONTWAIT) :]
        except OSError as error:
            raise self._failure(f"{what}: the guest went away") from error

    def read_line(self, limit: Limit, what: str) -> str:
        """A line of its answer; errors as of send()."""
        line = bytearray()
        while not line.endswith(b"\n"):
            line += self._receive(1, limit, what)
        return line.decode().strip()

    def read_exactly(self, size: int, limit: Limit, what: str) -> bytes:
        """So many bytes of its answer; errors as of send()."""
        data = bytearray()
        while len(data) < size:
            data += self._receive(min(size - len(data), 1 << 20), limit, what)
        return bytes(data)

    def _receive(self, size: int, limit: Limit, what: str) -> bytes:
        """Up to `size` bytes, at least one."""
        data = self._wait(write=False, limit=limit, what=what).recv(size)
        if not data:
            raise self._failure(f"{what}: the guest ended by itself")
        return data

    def _wait(self, *, write: bool, limit: Limit, what: str) -> socket.socket:
        """The agent's port, once something can be read from it or written to it."""
        port = self.ports[CONTROL_PORT]
        ports = [port]
        while not any(
            select.select([] if write else ports, ports if write else [], [], LOOK_EACH_S)
        ):
            self._check()
            if limit.passed():
                failure = self._failure(f"{what}: no answer in time, the guest was killed")
                raise TimeLimitError(str(failure))
        return port


def parse_done(line: str) -> tuple[int, int, int]:
    """Status, bytes of stdout and bytes of stderr from the agent's answer."""
    match = re.fullmatch(r"done (\d+) (\d+) (\d+)", line)
    if match is None:
        raise FastsyncError(f"the guest's agent answered {line!r}")
    return int(match[1]), int(match[2]), int(match[3])
