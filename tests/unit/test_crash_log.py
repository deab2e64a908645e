"""The log of dm-log-writes, and the states that a volatile cache allows."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastsync_lab.crash.log import DISCARD, ENTRY, FLUSH, FUA, MAGIC, MARK, SUPER, Write, parse_log
from fastsync_lab.crash.states import (
    State,
    all_states,
    apply_writes,
    durable_writes,
    find,
    first_event_after,
    sample,
    split_id,
)
from fastsync_lab.host.errors import FastsyncError, UsageError

SECTOR = 512
Entry = tuple[int, int, bytes]  # flags, sector, data or a mark's text


def entry_bytes(entry: Entry, sector_size: int) -> bytes:
    flags, sector, data = entry
    text = data if flags & MARK else b""
    body = b"" if flags & MARK else data
    scale = sector_size // SECTOR
    head = ENTRY.pack(sector // scale, len(body) // sector_size, flags, len(text)) + text
    return head.ljust(sector_size, b"\0") + body


def make_log(*entries: Entry, sector_size: int = SECTOR, end: bool = True) -> bytes:
    all_entries = [*entries, *([(MARK, 0, b"dm-log-writes-end")] if end else [])]
    head = SUPER.pack(MAGIC, 1, len(all_entries), sector_size).ljust(sector_size, b"\0")
    return head + b"".join(entry_bytes(entry, sector_size) for entry in all_entries)


def write(sector: int, letter: str, count: int = 1) -> Entry:
    return 0, sector, letter.encode() * count * SECTOR


def mark(number: int) -> Entry:
    return MARK, 0, str(number).encode()


FLUSHED: Entry = (FLUSH, 0, b"")


def fua(sector: int, letter: str) -> Entry:
    return FUA, sector, letter.encode() * SECTOR


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
        (bytes(4096), "not a log"),
        (make_log(write(1, "a"), end=False), "no end"),
        (make_log(write(1, "a"))[:1000], "ends in entry"),
        (make_log((DISCARD, 1, b"")), "discard"),
        (make_log((FLUSH, 1, b"x" * SECTOR)), "flush with data"),
    ],
)
def test_bad_logs(log: bytes, says: str) -> None:
    with pytest.raises(FastsyncError, match=says):
        parse_log(log)


def test_first_event_after_a_mark() -> None:
    events = parse_log(make_log(write(1, "a"), FLUSHED, mark(0), write(2, "b"), FLUSHED))
    assert first_event_after(events, 0) == 1


# --- states --------------------------------------------------------------------------------------

groups = st.lists(
    st.tuples(
        st.sampled_from(["flush", "fua"]),
        st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), min_size=1, max_size=6),
    ),
    max_size=6,
)
Groups = list[tuple[str, list[tuple[int, int]]]]


def log_of(description: Groups) -> bytes:
    """Each sector written has contents that no other write has."""
    entries: list[Entry] = []
    serial = 0
    for number, (kind, writes) in enumerate(description):
        for sector, count in writes if kind == "flush" else writes[:1]:
            data = b""
            for _ in range(count):
                serial += 1
                data += serial.to_bytes(8, "little") * (SECTOR // 8)
            entries.append((FUA if kind == "fua" else 0, sector, data))
        if kind == "flush":
            entries.append(FLUSHED)
        entries.append(mark(number))
    return make_log(*entries)


def image_of(log: bytes, state: State) -> bytes:
    events = parse_log(log)
    image = bytearray(64 * SECTOR)
    apply_writes(image, durable_writes(events, 0, state.event), log)
    apply_writes(image, state.extra, log)
    return bytes(image)


def sectors(image: bytes) -> list[bytes]:
    return [image[start : start + SECTOR] for start in range(0, len(image), SECTOR)]


@given(groups)
def test_each_sector_is_durable_or_of_a_write_under_way(description: Groups) -> None:
    """A state never loses what was flushed, and never has what came after its cut."""
    log = log_of(description)
    events = parse_log(log)
    for state in all_states(events, first=0, seed=1):
        boundary = sectors(image_of(log, State("", state.event, ())))
        allowed = [{content} for content in boundary]
        for one in events[state.event].writes:
            for index in range(one.count):
                start = one.offset + index * SECTOR
                allowed[one.sector + index].add(log[start : start + SECTOR])
        for index, content in enumerate(sectors(image_of(log, state))):
            assert content in allowed[index]


@given(groups, st.integers(0, 5))
def test_states_have_one_id_each_and_repeat(description: Groups, seed: int) -> None:
    events = parse_log(log_of(description))
    states = all_states(events, first=0, seed=seed)
    assert len({state.id for state in states}) == len(states)
    assert states == all_states(events, first=0, seed=seed)
    assert all(find(states, state.id) is state for state in states)


@given(groups)
def test_first_event_does_not_change_later_states(description: Groups) -> None:
    """--state finds what an exploration from a later event has named."""
    events = parse_log(log_of(description))
    everything = all_states(events, first=0, seed=1)
    for first in range(len(events)):
        later = all_states(events, first=first, seed=1)
        assert later == [state for state in everything if state.event >= first]


@given(groups, st.integers(0, 60))
def test_sample_keeps_boundaries_and_order(description: Groups, limit: int) -> None:
    states = all_states(parse_log(log_of(description)), first=0, seed=1)
    kept = sample(states, limit, seed=3)
    boundaries = [state for state in states if state.is_boundary]
    assert [state for state in kept if state.is_boundary] == boundaries
    assert kept == sorted(kept, key=states.index)
    assert len(kept) == min(len(states), max(limit, len(boundaries)))
    assert kept == sample(states, limit, seed=3)


def test_every_event_has_a_boundary_and_the_end_is_one() -> None:
    events = parse_log(make_log(write(1, "a"), FLUSHED, fua(2, "b")))
    boundaries = [state.id for state in all_states(events, first=0, seed=1) if state.is_boundary]
    assert boundaries == ["0.none", "1.none", "2.none"]


def test_a_commit_record_is_torn_at_each_kind_of_place() -> None:
    events = parse_log(make_log((FUA, 8, b"x" * 4096)))
    ids = {state.id for state in all_states(events, first=0, seed=1)}
    assert {"0.none", "0.head0-1", "0.head0-4", "0.head0-7", "0.tail0-1"} <= ids


def test_few_writes_have_all_subsets() -> None:
    log = make_log(write(1, "a"), write(2, "b"), write(3, "c"), FLUSHED)
    images = {image_of(log, state) for state in all_states(parse_log(log), first=0, seed=1)}
    assert len(images) == 8


def test_many_writes_are_dropped_and_kept_one_by_one() -> None:
    log = make_log(*(write(number, "a") for number in range(10)), FLUSHED)
    ids = {state.id for state in all_states(parse_log(log), first=0, seed=1)}
    assert {f"0.drop{number}" for number in range(10)} <= ids
    assert {f"0.only{number}" for number in range(10)} <= ids
    assert {f"0.from{number}" for number in range(2, 9)} <= ids


def test_sample_takes_from_every_kind() -> None:
    log = make_log(*((0, 8 * number, b"x" * 4096) for number in range(10)), FLUSHED)
    states = all_states(parse_log(log), first=0, seed=1)
    kinds = {state.kind for state in states}
    assert {state.kind for state in sample(states, 20, seed=1)} == kinds


@pytest.mark.parametrize("text", ["", "17", "x.none", "17.none/", "17.a/b"])
def test_bad_ids(text: str) -> None:
    with pytest.raises(UsageError, match="bad state"):
        split_id(text)


def test_ids() -> None:
    assert split_id("17.head0-4") == ("17.head0-4", None)
    assert split_id("17.none/3.drop1") == ("17.none", "3.drop1")
    with pytest.raises(UsageError, match="no state"):
        find([], "17.none")


def test_apply_writes_in_order() -> None:
    log = random.Random(1).randbytes(2048)
    image = bytearray(1024)
    apply_writes(image, [Write(0, 2, 0), Write(1, 1, 1024)], log)
    assert bytes(image) == log[:512] + log[1024:1536]
