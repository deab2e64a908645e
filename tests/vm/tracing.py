"""What the guest's kernel traces meanwhile, for VM tests: requests, and other events.

Whoever traced in that guest before, by whatever clock. A test fails if an event was lost.
"""

from dataclasses import dataclass

from fastsync_lab.machine.trace import TRACE_SH, Request, lost_events, parse_trace
from fastsync_lab.machine.vm import Vm

TRACING = "/sys/kernel/tracing"
BUFFER_KIB = 8192


@dataclass(frozen=True)
class Traced:
    """A trace as tracefs prints it, and what the commands printed meanwhile."""

    text: str
    printed: str

    @property
    def requests(self) -> tuple[Request, ...]:
        """The requests in the order of their issue."""
        return parse_trace(self.text).requests


def trace_requests(vm: Vm, commands: str, *events: str, before: str = "") -> Traced:
    """Trace the requests that the commands send, and these events, like ext4/NAME, as well.

    `before` are commands whose requests do not count. All in one script: while a guest waits for
    its host, virtual time runs on by hours, and what timers do about `before` has been done.
    """
    start, stop = f"{_START}{_switch(1, events)}", f"{_switch(0, events)}{_STOP}"
    printed = vm.run(f"{before}\n{start}{commands}\n{stop}").stdout
    return Traced(_whole_trace(vm), printed)


def start_tracing(vm: Vm, *events: str) -> None:
    """Trace these events from now on, like ext4/NAME or ext4 for all of them, and no requests."""
    vm.run(f"{_START}{_switch(0, ('block',))}{_switch(1, events)}")


def stop_tracing(vm: Vm, *events: str) -> str:
    """The trace of these events as tracefs prints it."""
    vm.run(f"{TRACE_SH.read_text()}\n{_switch(0, events)}{_STOP}")
    return _whole_trace(vm)


_START = f"{TRACE_SH.read_text()}\nstart_trace mono {BUFFER_KIB} || exit\n"
_STOP = "stop_trace && cat $TRACING/per_cpu/cpu*/stats >$FASTSYNC_OUT/stats\n"


def _switch(value: int, events: tuple[str, ...]) -> str:
    return "".join(f"echo {value} >$TRACING/events/{event}/enable || exit\n" for event in events)


def _whole_trace(vm: Vm) -> str:
    """What stop_trace has left."""
    assert lost_events((vm.out_dir / "stats").read_text()) == 0
    return (vm.out_dir / "trace").read_text()
