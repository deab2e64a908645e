"""streams.py: each byte of a process's streams arrives on the other side, and so does the end."""

import socket
import sys
import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from fastsync_lab.host import shell
from fastsync_lab.machine.streams import pump_out, write_all

# A process that connects its streams and plays the guest: what comes in goes out on both.
ECHO = """
import socket
from fastsync_lab.machine.streams import attach
pairs = [socket.socketpair() for _ in range(3)]
with attach(*(here for here, _ in pairs)):
    received = bytearray()
    pieces = pairs[0][1].makefile("rb")
    while length := int(pieces.readline()):
        received += pieces.read(length)
        pairs[0][1].sendall(b"x")
    pairs[1][1].sendall(received)
    pairs[2][1].sendall(received[::-1])
"""


@settings(max_examples=5)
@given(st.text(max_size=200_000).map(lambda text: text.replace("\r", "")))
def test_attached_streams_pass_every_byte_and_the_end(text: str) -> None:
    data = text.encode(errors="replace").decode()
    done = shell.run([sys.executable, "-c", ECHO], input_text=data, timeout_s=60)
    assert done.stdout == data
    assert done.stderr == data.encode()[::-1].decode(errors="replace")


def pumped(data: bytes, sink_fd: int) -> None:
    """Pump what stands in a socket to a file descriptor."""
    source, guest = socket.socketpair()
    finished = threading.Event()
    with source, guest:
        thread = threading.Thread(target=pump_out, args=(source, sink_fd, finished))
        thread.start()
        guest.sendall(data)
        finished.set()
        thread.join(timeout=30)
        assert not thread.is_alive()


def test_what_is_left_when_the_guest_is_done_is_still_written() -> None:
    data = bytes(range(256)) * 300
    here, there = socket.socketpair()
    with here, there:
        pumped(data, here.fileno())
        here.shutdown(socket.SHUT_WR)
        received = b""
        while part := there.recv(65536):
            received += part
    assert received == data


def test_a_reader_that_went_away_does_not_hold_up_the_guest() -> None:
    here, there = socket.socketpair()
    with here:
        there.close()
        pumped(b"x" * 500_000, here.fileno())


def test_write_all_goes_on_after_a_short_write() -> None:
    here, there = socket.socketpair()
    data = b"y" * 3_000_000
    received = bytearray()

    def read() -> None:
        while part := there.recv(1000):
            received.extend(part)

    with here, there:
        thread = threading.Thread(target=read)
        thread.start()
        write_all(here.fileno(), data)
        here.shutdown(socket.SHUT_WR)
        thread.join(timeout=60)
    assert bytes(received) == data
