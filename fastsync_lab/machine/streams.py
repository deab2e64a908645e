"""Connect this process's stdin, stdout and stderr to sockets."""

import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


def pump_in(source_fd: int, sink: socket.socket, inline: Callable[[bytes], bytes]) -> None:
    """Copy a file descriptor to a socket in pieces, each behind its length; one of 0 is the end.

    The other side says when it has one. `inline` is what of a piece goes over the socket. A serial
    line has neither an end that the guest could see nor room.
    """
    with suppress(OSError):
        while data := os.read(source_fd, 65536):
            sink.sendall(b"%d\n" % len(data) + inline(data))
            if not sink.recv(1):
                return
    with suppress(OSError):
        sink.sendall(b"0\n")


def write_all(sink_fd: int, data: bytes) -> None:
    """Write all of `data` to a file descriptor."""
    view = memoryview(data)
    while view:
        view = view[os.write(sink_fd, view) :]


def pump_out(source: socket.socket, sink_fd: int, finished: threading.Event) -> None:
    """Copy a socket to a file descriptor until `finished` is set and nothing is left.

    When nobody reads `sink_fd` any more, what comes is thrown away, so that the guest goes on.
    """
    open_sink = True
    while True:
        last_round = finished.is_set()
        if not select.select([source], [], [], 0.0 if last_round else 0.05)[0]:
            if last_round:
                return
            continue
        data = source.recv(65536)
        if not data:
            return
        if open_sink:
            try:
                write_all(sink_fd, data)
            except OSError:
                open_sink = False


@contextmanager
def attach(
    stdin: socket.socket,
    stdout: socket.socket,
    stderr: socket.socket,
    inline: Callable[[bytes], bytes] = bytes,
) -> Iterator[None]:
    """Connect fd 0, 1 and 2 to three sockets for the time of a `with`; `inline` as of pump_in().

    What the sockets hold when the block ends is still written. The end of fd 0 is passed on as the
    end of `stdin`; the reader of fd 0 is left behind, for it cannot be woken.
    """
    finished = threading.Event()
    threading.Thread(target=pump_in, args=(0, stdin, inline), daemon=True).start()
    writers = [
        threading.Thread(target=pump_out, args=(source, fd, finished), daemon=True)
        for source, fd in ((stdout, 1), (stderr, 2))
    ]
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        finished.set()
        for writer in writers:
            writer.join()
