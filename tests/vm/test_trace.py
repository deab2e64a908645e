"""Trace events: what a commit was saved by, for whom one waits, how a carried one fares."""

import re
from dataclasses import dataclass

import pytest

from tests.vm import carried
from tests.vm.carried import LOOP, OPTIONS, PATIENT, STARTED
from tests.vm.conftest import IN_TIME
from tests.vm.guestfs import MODES, GuestFs
from tests.vm.tracing import start_tracing, stop_tracing

GROUPS = ("ext4_mtime", carried.EVENTS)
TRUNCATE, DEFER = MODES["truncate"], MODES["defer"]


@dataclass(frozen=True)
class Event:
    """One line of the trace: who, which event, and what it says behind the device."""

    task: str
    name: str
    text: str


def parse_trace(trace: str) -> list[Event]:
    """The events of GROUPS."""
    line = re.compile(r"^ *(?P<task>\S+)-\d+ .*: (?P<name>\w+): dev \d+,\d+ (?P<text>.*)$")
    return [
        Event(**found.groupdict()) for text in trace.splitlines() if (found := line.match(text))
    ]


def traced(fs: GuestFs, *words: str) -> list[Event]:
    """What is traced while fsops does these."""
    start_tracing(fs.vm, *GROUPS)
    fs.ops(*words)
    return parse_trace(stop_tracing(fs.vm, *GROUPS))


def of_ext4(events: list[Event]) -> list[tuple[str, str]]:
    """What fsyncs saved and waited for, without the numbers."""
    return [
        (event.name.removeprefix("ext4_mtime_"), re.sub(r"(ino|tid) \d+ ", "", event.text))
        for event in events
        if event.name.startswith("ext4_mtime")
    ]


def of_jbd2(events: list[Event]) -> list[str]:
    """What became of carried commits, without the numbers."""
    return [
        re.sub(r"tid \d+ | in \d+ us| wanted \d+|\+0x\S+", "", f"{event.name} {event.text}")
        for event in events
        if event.name.startswith("jbd2_carrier")
    ]


def test_an_fsync_whose_stamps_have_not_changed(fs: GuestFs) -> None:
    with fs.mounted(TRUNCATE):
        fs.prepare()
        events = traced(fs, "open", "align:1000", "write", "fsync", "write", "fsync")
    assert of_ext4(events) == [("wait", "datasync 0 for old"), ("saved", "by unchanged")]
    assert all(event.task.endswith("fsops") for event in events)


def test_an_fsync_after_a_read(fs: GuestFs) -> None:
    with fs.mounted(TRUNCATE):
        fs.prepare()
        events = traced(fs, "open", "align:1000", "write", "fsync", "read", "fsync")
    assert of_ext4(events)[-1] == ("saved", "by atime")


@IN_TIME
def test_an_fsync_whose_stamps_may_wait(fs: GuestFs) -> None:
    with fs.mounted(DEFER):
        fs.prepare()
        events = traced(fs, "open", "write", "fsync", "sleep:20", "write", "fsync")
    assert of_ext4(events) == [("wait", "datasync 0 for old"), ("saved", "by young")]


@pytest.mark.parametrize(
    ("words", "datasync"), [(("chmod:601", "fsync"), 0), (("append", "fdatasync"), 1)]
)
def test_an_fsync_that_waits_for_more_than_stamps(
    fs: GuestFs, words: tuple[str, ...], datasync: int
) -> None:
    with fs.mounted(DEFER):
        fs.prepare()
        assert of_ext4(traced(fs, "open", *words)) == [("wait", f"datasync {datasync} for change")]


@IN_TIME
@pytest.mark.short
def test_a_file_synced_all_the_time(fs: GuestFs) -> None:
    """It waits once, for its first stamps are old; then flushes of its own carry its commits."""
    with fs.mounted(OPTIONS):
        fs.prepare()
        events = traced(fs, "open", "sleep:100", *LOOP)
    waits = [what for what in of_ext4(events) if what[0] == "wait"]
    assert waits == [("wait", "datasync 0 for old")]
    carried = [
        "jbd2_carrier_start patience 40 ms",
        "jbd2_carrier_wait blocks flushed",
        "jbd2_carrier_wait record flushed",
    ]
    found = of_jbd2(events)
    assert len(found) >= 6
    assert found == [carried[number % 3] for number in range(len(found))]


@IN_TIME
def test_a_carried_commit_that_no_flush_comes_for(fs: GuestFs) -> None:
    with fs.mounted(OPTIONS):
        fs.prepare()
        events = of_jbd2(traced(fs, "open", *PATIENT, "sleep:100"))
    assert events[0] == "jbd2_carrier_start patience 40 ms"
    assert events[-1].endswith(" alone")


@IN_TIME
def test_a_carried_commit_that_somebody_waits_for(fs: GuestFs) -> None:
    with fs.mounted(DEFER):
        fs.prepare()
        events = traced(fs, *STARTED, "chmod:601", "fsync")
    assert of_ext4(events)[-1] == ("wait", "datasync 0 for change")
    hurries = [event for event in events if event.name == "jbd2_carrier_hurry"]
    assert len(hurries) == 1 and hurries[0].task.endswith("fsops")
    assert re.search(r"by (__)?jbd2_log_(start|wait)_commit\+0x", hurries[0].text)
    assert of_jbd2(events)[-1].endswith(" hurried")


@IN_TIME
def test_an_fsync_that_waits_for_stamps_under_way(fs: GuestFs) -> None:
    """Those on the medium are too old by now, those that are being committed are not."""
    with fs.mounted(DEFER):
        fs.prepare()
        events = traced(fs, *STARTED, "sleep:100", "write", "fsync")
    assert of_ext4(events)[-1] == ("wait", "datasync 0 for under way")
    assert of_jbd2(events)[-1].endswith(" hurried")
