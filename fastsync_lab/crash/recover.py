"""Recovering crash states in a guest: in User-Mode Linux, or in the machine that recorded them.

The states of a run are put together in the guest, from the image that it started from and its log.
They are on a loop device on a file in the guest's memory. A recovery that is cut in turn is logged
by dm-log-writes between the two; many are, one after the other, with a mark behind each.
"""

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastsync_lab.crash.extfs import File, Tree
from fastsync_lab.crash.guest import (
    LOG_NAME,
    MEMORY,
    Parts,
    built_program,
    create_log,
    keep_log,
    make_room,
)
from fastsync_lab.crash.kinds import Kind
from fastsync_lab.crash.log import Event, Write, parse_log
from fastsync_lab.crash.recording import PAGE, Recording
from fastsync_lab.crash.states import State, durable_writes
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.machine.vm import Vm

CHECK_TIMEOUT_S = 600


@dataclass(frozen=True)
class Found:
    """What the kernel made of a state: what failed, its messages, files, changed pages."""

    id: str
    errors: tuple[str, ...]
    log: tuple[str, ...]
    tree: Tree
    pages: dict[int, bytes]  # 4 KiB each, by number


def failed(call: str) -> str:
    """How a problem begins that says that a call failed in the guest."""
    return f"{call} failed with errno"


def parse_found(line: str, delta: bytes, position: int) -> tuple[Found, int]:
    """A line of crashcheck, whose pages begin at `position` of `delta`; where the next begin."""
    data = json.loads(line)
    pages = {}
    for number in data["delta"]:
        pages[number] = delta[position : position + PAGE]
        position += PAGE
    tree = {file["path"]: _file(file) for file in data["files"]}
    calls = {"mount": data["mount"], "reading folders": data["folders"]}
    calls |= {f"reading {file['path']}": file["errno"] for file in data["files"]}
    errors = tuple(f"{failed(call)} {errno}" for call, errno in calls.items() if errno)
    return Found(data["id"], errors, tuple(data["log"]), tree, pages), position


def _file(data: dict[str, Any]) -> File:
    text = data.get("sectors", "")
    numbers = {
        key: int(data[key])
        for key in ("ino", "mode", "uid", "gid", "links", "size", "mtime_ns", "ctime_ns")
    }
    return File(
        **numbers,
        xattrs=data["xattrs"],
        sectors=struct.unpack(f">{len(text) // 8}I", bytes.fromhex(text)),
        target=data.get("target", ""),
        junk=tuple((sector, origin) for sector, origin in data.get("junk", ())),
    )


# --- plans -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Again:
    """A state whose recovery was cut again: what that wrote, and the states that it may leave.

    `log_at`: where in the guest the log of the recovery begins, in bytes, behind those before it.
    """

    state: State
    recording: Recording
    states: Sequence[State]
    log_at: int


def plan(events: Sequence[Event], states: Sequence[State]) -> str:
    """What programs/crashcheck.c is to do; the states in the order of their events."""
    lines = [[*_writes("w", state.extra), f"c {state.id}"] for state in states]
    return _plan(events, states, lines)


def recording_plan(events: Sequence[Event], states: Sequence[State]) -> str:
    """The same where the recoveries of the states are logged; each has its number in the log."""
    lines = [[*_writes("w", state.extra), f"r {number}"] for number, state in enumerate(states)]
    return _plan(events, states, lines)


def plan_again(events: Sequence[Event], cut: Sequence[Again]) -> str:
    """The same for the states of second cuts."""
    lines = [[line for state in one.states for line in _again(one, state)] for one in cut]
    return _plan(events, [one.state for one in cut], lines)


def _again(one: Again, inner: State) -> Iterator[str]:
    yield from _writes("w", one.state.extra)
    yield from _writes("w", durable_writes(one.recording.events, 0, inner.event), one.log_at)
    yield from _writes("w", inner.extra, one.log_at)
    yield f"c {one.recording.prefix}{inner.id}"


def _plan(events: Sequence[Event], states: Sequence[State], lines: Iterable[list[str]]) -> str:
    """The lines of each state, behind what is durable by then."""
    text: list[str] = []
    applied = 0
    for state, own in zip(states, lines, strict=True):
        text += _writes("p", durable_writes(events, applied, state.event))
        applied = state.event
        text += own
    return "".join(f"{line}\n" for line in text)


def _writes(verb: str, writes: Iterable[Write], shift: int = 0) -> Iterator[str]:
    return (f"{verb} {write.sector} {write.count} {write.offset + shift}" for write in writes)


def recoveries(log: bytes, count: int) -> list[list[Event]]:
    """The events of each recovery that recording_plan() has logged.

    Each ends with a flush, and then all is on the medium. Raises FastsyncError when one is missing.
    """
    events = parse_log(log)
    if events[-1].acknowledged != set(range(count)):
        raise FastsyncError("the log does not have all recoveries: its device was too small")
    found: list[list[Event]] = [[] for _ in range(count + 1)]
    for event in events:
        found[len(event.acknowledged)].append(event)
    return [[*own, Event("end", (), frozenset())] for own in found[:count]]


# --- the guest ---------------------------------------------------------------------------------


class Recoverer:
    """The booted machine in which states are recovered; `vm.out_dir` has the runs' folders."""

    def __init__(self, vm: Vm) -> None:
        self.vm = vm
        self._check = vm.stage(built_program("crashcheck"))
        make_room(vm)
        vm.run(f"modprobe loop; : >{MEMORY}/image && losetup /dev/loop0 {MEMORY}/image")

    def recover(
        self, folder: Path, plan_text: str, kind: Kind, options: Sequence[str] = ()
    ) -> list[Found]:
        """Let the kernel that is loaded recover the states of a plan, from base.img and log.

        `options`: what it mounts with.
        """
        parts = Parts("/dev/loop0", "loop0", kind)
        here = f"$FASTSYNC_OUT/{folder.name}"
        command = self._command(folder, parts, f"{MEMORY}/delta", options)
        self._run(
            folder,
            plan_text,
            parts.create()
            + f"{command} >{MEMORY}/found || exit\n"
            + parts.remove()
            + f"cp {MEMORY}/delta {MEMORY}/found {here}/\n",
        )
        delta = (folder / "delta").read_bytes()
        position = 0
        found = []
        for line in (folder / "found").read_text().splitlines():
            one, position = parse_found(line, delta, position)
            found.append(one)
        return found

    def log_recoveries(
        self, folder: Path, plan_text: str, kind: Kind, options: Sequence[str] = ()
    ) -> bytes:
        """Log what the kernel writes to recover each state of a recording_plan().

        For recover() that log stands behind the one of `folder` from then on. `options`: what it
        mounts with.
        """
        parts = Parts(f"/dev/mapper/{LOG_NAME}", "loop0", kind)
        self._run(
            folder,
            plan_text,
            create_log("/dev/loop0")
            + parts.create()
            + f"{self._command(folder, parts, '/dev/null', options)} {LOG_NAME} || exit\n"
            + parts.remove()
            + keep_log(f"{MEMORY}/second")
            + f"cat {MEMORY}/second >>{MEMORY}/{folder.name}/log || exit\n"
            f"cp {MEMORY}/second $FASTSYNC_OUT/{folder.name}/second\n",
        )
        return (folder / "second").read_bytes()

    def forget(self, folder: Path) -> None:
        """Free the memory that a run's image and log take."""
        self.vm.run(f"rm -rf {MEMORY}/{folder.name}")

    def _command(self, folder: Path, parts: Parts, delta: str, options: Sequence[str]) -> str:
        """The call of crashcheck, which mounts with these options."""
        mine = f"{MEMORY}/{folder.name}"
        return (
            f"MOUNT_OPTIONS='{','.join(options)}' "
            f"{self._check} {mine}/base.img {mine}/log $FASTSYNC_OUT/{folder.name}/plan "
            f"{MEMORY}/image {parts.devices} /mnt {delta}"
        )

    def _run(self, folder: Path, plan_text: str, script: str) -> None:
        """Run bash that carries out a plan, on a loop device as large as the run's."""
        (folder / "plan").write_text(plan_text)
        here, mine = f"$FASTSYNC_OUT/{folder.name}", f"{MEMORY}/{folder.name}"
        self.vm.run(
            f"if [ ! -d {mine} ]; then\n"
            f"  mkdir {mine} && cp {here}/base.img {here}/log {mine}/ || exit\nfi\n"
            f"truncate -r {mine}/base.img {MEMORY}/image && losetup -c /dev/loop0 || exit\n"
            + script,
            timeout_s=CHECK_TIMEOUT_S,
        )
