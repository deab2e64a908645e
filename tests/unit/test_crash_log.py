"""The log of dm-log-writes, and the states that a volatile cache allows."""

import pytest

from fastsync_lab.crash.log import (
    DISCARD,
    ENTRY,
    FLUSH,
    MAGIC,
    MARK,
    SUPER,
    parse_log,
)
from fastsync_lab.crash.states import (
    first_event_after,
)
from fastsync_lab.host.errors import FastsyncError
from tests.unit.crash_logs import FLUSHED, SECTOR, entry_bytes, fua, make_log, mark, write

NO_LOG = "this is not a log of dm-log-writes"
NO_END = "the log has no end: its device was too small, or is in use"
DISCARDS = "the log has a discard: what it leaves behind is not known"


def test_events_are_flushes_and_fua_writes() -> None:
    log = make_log(mark(0), write(1, "a"), write(2, "b"), FLUSHED, mark(1), fua(3, "c"))
    flush, single, end = parse_log(log)
    assert (flush.kind, [w.sector for w in flush.writes]) == ("flush", [1, 2])
    assert flush.acknowledged == {0}
    assert single.kind == "fua" and single.acknowledged == {0, 1}
    assert (end.kind, end.writes) == ("end", ())


def test_fua_goes_ahead_of_what_is_unflushed() -> None:
    """dm-log-writes puts it so; the write is the end's, for nothing has flushed it."""
    fua_event, end = parse_log(make_log(fua(3, "c"), write(1, "a")))
    assert fua_event.kind == "fua" and [w.sector for w in end.writes] == [1]


def test_flush_without_writes_is_no_event() -> None:
    assert [event.kind for event in parse_log(make_log(FLUSHED, FLUSHED))] == ["end"]


@pytest.mark.parametrize("sector_size", [512, 4096])
def test_data_are_found_at_any_sector_size(sector_size: int) -> None:
    log = make_log(mark(0), (0, 8, b"x" * 4096), FLUSHED, sector_size=sector_size)
    (one,) = parse_log(log)[0].writes
    assert (one.sector, one.count) == (8, 8)
    assert log[one.offset : one.offset + 4096] == b"x" * 4096


@pytest.mark.parametrize(
    ("log", "says"),
    [
        (bytes(4096), NO_LOG),
        (SUPER.pack(MAGIC, 2, 0, SECTOR).ljust(SECTOR, b"\0"), NO_LOG),
        (SUPER.pack(MAGIC + 1, 1, 0, SECTOR).ljust(SECTOR, b"\0"), NO_LOG),
        (SUPER.pack(MAGIC, 1, 0, SECTOR - 1).ljust(SECTOR, b"\0"), NO_LOG),
        (make_log(end=False), NO_END),
        (make_log(write(1, "a"), end=False), NO_END),
        (make_log(write(1, "a"))[:1000], "the log ends in entry 0 of 2"),
        (make_log(write(1, "a"))[: 3 * SECTOR - 1], "the log ends in entry 0 of 2"),
        (make_log(write(1, "a"))[: 3 * SECTOR], "the log ends in entry 1 of 2"),
        (make_log((DISCARD, 1, b"")), DISCARDS),
        (make_log((DISCARD, 1, b""))[: 2 * SECTOR], "the log ends in entry 1 of 2"),
        (make_log((FLUSH, 1, b"x" * SECTOR)),
         "the log has a flush with data, which the kernel splits"),
    ],
)  # fmt: skip
def test_bad_logs(log: bytes, says: str) -> None:
    with pytest.raises(FastsyncError) as error:
        parse_log(log)
    assert str(error.value) == says


def test_a_discard_has_no_data_in_the_log() -> None:
    head = SUPER.pack(MAGIC, 1, 2, SECTOR).ljust(SECTOR, b"\0")
    discard = ENTRY.pack(8, 4, DISCARD, 0).ljust(SECTOR, b"\0")
    with pytest.raises(FastsyncError) as error:
        parse_log(head + discard + entry_bytes((MARK, 0, b"dm-log-writes-end"), SECTOR))
    assert str(error.value) == DISCARDS


def test_marks_that_are_no_number_acknowledge_nothing() -> None:
    log = make_log((MARK, 0, b"x1"), mark(3), write(1, "a"), FLUSHED, (MARK, 0, b""), mark(20))
    assert [event.acknowledged for event in parse_log(log)] == [{3}, {3, 20}]


def test_what_was_flushed_is_not_flushed_again() -> None:
    events = parse_log(make_log(write(1, "a"), FLUSHED, write(2, "b"), FLUSHED, write(3, "c")))
    found = [(event.kind, [one.sector for one in event.writes]) for event in events]
    assert found == [("flush", [1]), ("flush", [2]), ("end", [3])]


def test_first_event_after_a_mark() -> None:
    log = make_log(write(1, "a"), FLUSHED, mark(0), write(2, "b"), FLUSHED, fua(3, "c"))
    events = parse_log(log)
    assert first_event_after(events, 0) == 1
    assert first_event_after(events, 7) == len(events) - 1 == 3  # it did not return


# --- states --------------------------------------------------------------------------------------
