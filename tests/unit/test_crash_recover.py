"""The explorer's plans for second cuts, the logs of recoveries, the images that are judged."""

import os
from pathlib import Path

import pytest

from fastsync_lab.crash.log import Event, Write
from fastsync_lab.crash.recording import PAGE, ImageFile, Recording
from fastsync_lab.crash.recover import Again, plan_again, recording_plan, recoveries
from fastsync_lab.crash.states import State, apply_writes, durable_writes
from fastsync_lab.host.errors import FastsyncError
from tests.unit.crash_logs import FLUSHED, fua, make_log, mark, write

NOTHING: frozenset[int] = frozenset()
EVENTS = [
    Event("fua", (Write(1, 1, 512),), NOTHING),
    Event("flush", (Write(2, 1, 1024), Write(2, 2, 1536)), NOTHING),
    Event("end", (Write(5, 1, 2560),), NOTHING),
]
STATES = [
    State("0.none", 0, ()),
    State("1.mask3", 1, EVENTS[1].writes),
    State("2.all", 2, EVENTS[2].writes),
]
LOG = os.urandom(4096)


def recording(folder: Path) -> Recording:
    return Recording(folder, bytes(8 * PAGE), LOG, EVENTS)


# --- plans


def test_recoveries_to_be_logged_have_numbers() -> None:
    assert recording_plan(EVENTS, STATES[:2]) == "r 0\np 1 1 512\nw 2 1 1024\nw 2 2 1536\nr 1\n"


def test_second_cut_is_behind_its_state_with_a_log_behind_the_first(tmp_path: Path) -> None:
    """Each of its states begins from what lasts, as the one that was cut does."""
    inner = [Event("flush", (Write(7, 1, 512),), NOTHING), Event("end", (), NOTHING)]
    states = [State("0.none", 0, ()), State("0.only0", 0, inner[0].writes), State("1.none", 1, ())]
    again = Recording(tmp_path, b"", b"", inner, "1.mask3/")
    text = plan_again(EVENTS, [Again(STATES[1], again, states, 4096)])
    cut = "w 2 1 1024\nw 2 2 1536\n"
    assert text == (
        f"p 1 1 512\n{cut}c 1.mask3/0.none\n"
        f"{cut}w 7 1 4608\nc 1.mask3/0.only0\n{cut}w 7 1 4608\nc 1.mask3/1.none\n"
    )


# --- logs


def test_each_recovery_has_its_own_events() -> None:
    log = make_log(
        write(1, "a"), FLUSHED, fua(2, "b"), FLUSHED, mark(0),
        mark(1),
        write(3, "c"), FLUSHED, mark(2),
    )  # fmt: skip
    found = recoveries(log, 3)
    assert [[event.kind for event in one] for one in found] == [
        ["flush", "fua", "end"], ["end"], ["flush", "end"],
    ]  # fmt: skip
    assert [write.sector for event in found[2] for write in event.writes] == [3]
    assert all(one[-1].writes == () for one in found)


@pytest.mark.parametrize("entries", [(), (mark(0),), (mark(1),), (mark(0), mark(1), mark(2))])
def test_recovery_that_is_missing_is_an_error(entries: tuple[tuple[int, int, bytes], ...]) -> None:
    with pytest.raises(FastsyncError, match="does not have all recoveries"):
        recoveries(make_log(*entries), 2)


# --- images


def test_images_are_those_of_their_states_alone(tmp_path: Path) -> None:
    """What is in the cache of one is not in the next, though they are in one array."""
    for state, image in zip(STATES, recording(tmp_path).images(STATES), strict=True):
        expected = bytearray(8 * PAGE)
        apply_writes(expected, durable_writes(EVENTS, 0, state.event), LOG)
        apply_writes(expected, state.extra, LOG)
        assert image == expected


def test_file_takes_what_differs_wherever_it_is(tmp_path: Path) -> None:
    """Also what another program has written since, and in a part of 1 MiB."""
    path = tmp_path / "image"
    path.write_bytes(b"old")
    size = 515 * PAGE
    file = ImageFile(path, size)
    for place in (0, 300 * PAGE + 5, size - 1):
        data = bytearray(size)
        data[place] = 7
        file.put(data)
        assert path.read_bytes() == data
        with path.open("r+b") as other:
            other.seek(size - 2 * PAGE)
            other.write(b"from e2fsck")
