"""The log of dm-log-writes, and the states that a volatile cache allows."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastsync_lab.crash.log import (
    DISCARD,
    ENTRY,
    FLUSH,
    FUA,
    MAGIC,
    MARK,
    SUPER,
    Event,
    Write,
    parse_log,
)
from fastsync_lab.crash.states import (
    State,
    all_states,
    apply_writes,
    durable_writes,
    find,
    first_event_after,
    part,
    sample,
    split_id,
    torn_ends,
    variants,
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


NO_LOG = "this is not a log of dm-log-writes"
NO_END = "the log has no end: its device was too small, or is in use"
DISCARDS = "the log has a discard: what it leaves behind is not known"


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


def test_a_write_is_torn_after_its_first_and_before_its_last_sector_and_in_the_middle() -> None:
    assert [torn_ends(count) for count in (1, 2, 3, 4, 8)] == [
        [], [1], [1, 2], [1, 2, 3], [1, 4, 7],
    ]  # fmt: skip
    assert part(Write(100, 8, 4096), 3, 5) == Write(103, 2, 4096 + 3 * SECTOR)


ONE, OTHER = Write(10, 1, 512), Write(20, 2, 1536)
FIRST, SECOND = Write(20, 1, 1536), Write(21, 1, 2048)  # sectors of OTHER


def test_all_that_two_writes_can_leave() -> None:
    """Each image once, by the first name that it gets."""
    wanted = {
        "none": (), "drop0": (OTHER,), "only0": (ONE,), "head1-1": (ONE, FIRST),
        "tail1-1": (ONE, SECOND), "onlyhead1-1": (FIRST,),
    }  # fmt: skip
    event = Event("flush", (ONE, OTHER), frozenset())
    states = list(variants(event, 7, random.Random(1)))
    assert states == [State(f"7.{name}", 7, extra) for name, extra in wanted.items()]
    end = list(variants(replace(event, kind="end"), 7, random.Random(1)))
    assert end == [states[0], State("7.all", 7, (ONE, OTHER)), *states[1:]]
    empty = Event("end", (), frozenset())
    assert list(variants(empty, 7, random.Random(1))) == [State("7.none", 7, ())]


def test_all_that_three_writes_can_leave() -> None:
    writes = tuple(Write(number, 1, 512 * number) for number in range(3))
    rng = random.Random(1)
    states = list(variants(Event("flush", writes, frozenset()), 0, rng))
    assert rng.random() == random.Random(1).random()  # nothing was drawn
    assert [(state.id, [one.sector for one in state.extra]) for state in states] == [
        ("0.none", []), ("0.drop0", [1, 2]), ("0.only0", [0]), ("0.drop1", [0, 2]),
        ("0.only1", [1]), ("0.drop2", [0, 1]), ("0.only2", [2]),
    ]  # fmt: skip


def test_of_many_writes_some_subsets_are_drawn_and_torn_writes_are_among_the_others() -> None:
    writes = tuple(Write(10 * number, 2, 1024 * number) for number in range(5))
    states = list(variants(Event("flush", writes, frozenset()), 3, random.Random(1)))
    drawn = random.Random(1)
    masks = [drawn.getrandbits(5) for _ in range(4)]
    by_id = {state.id.partition(".")[2]: state.extra for state in states}
    assert by_id["from2"] == writes[2:] and by_id["from3"] == writes[3:]
    assert "from1" not in by_id and "from4" not in by_id  # drop0 and only4
    images = {state.extra for state in states}
    for mask in masks:
        assert tuple(one for index, one in enumerate(writes) if mask >> index & 1) in images
    assert all(f"mask{int(name[4:], 16):x}" == name for name in by_id if name.startswith("mask"))
    head, tail = Write(20, 1, 2048), Write(21, 1, 2560)
    assert by_id["head2-1"] == (*writes[:2], head, *writes[3:])
    assert by_id["tail2-1"] == (*writes[:2], tail, *writes[3:])
    assert by_id["onlyhead2-1"] == (head,)


def test_the_kind_of_a_state_is_its_name_without_numbers() -> None:
    ids = ("17.none", "3.drop12", "3.head0-4", "3.onlyhead1-7", "3.from2")
    kinds = ["none", "drop", "head", "onlyhead", "from"]
    assert [State(one, 0, ()).kind for one in ids] == kinds


def test_kinds_have_equal_shares_of_a_sample_as_far_as_there_are_so_many() -> None:
    extra = (ONE,)
    names = [*(f"drop{n}" for n in range(10)), *(f"head{n}-1" for n in range(10)), "all"]
    states = [State("0.none", 0, ()), *(State(f"0.{name}", 0, extra) for name in names)]
    counts = Counter(state.kind for state in sample(states, 10, seed=1))
    assert counts == {"none": 1, "all": 1, "drop": 4, "head": 4}
    assert len(sample(states, 100, seed=1)) == len(states)
    assert [state.id for state in sample(states, 0, seed=1)] == ["0.none"]
    assert sample(states, 10, seed=1) != sample(states, 10, seed=2)
    assert sample(states[1:], 100, seed=1) == states[1:]  # there may be no boundary


def test_sample_takes_from_every_kind() -> None:
    log = make_log(*((0, 8 * number, b"x" * 4096) for number in range(10)), FLUSHED)
    states = all_states(parse_log(log), first=0, seed=1)
    kinds = {state.kind for state in states}
    assert {state.kind for state in sample(states, 20, seed=1)} == kinds


@pytest.mark.parametrize("text", ["", "17", "x.none", "17.none/", "17.a/b"])
def test_bad_ids(text: str) -> None:
    with pytest.raises(UsageError) as error:
        split_id(text)
    says = "one is called like 17.drop2, or 17.drop2/3.none"
    assert str(error.value) == f"bad state {text!r}: {says}"


def test_ids() -> None:
    assert split_id("17.head0-4") == ("17.head0-4", None)
    assert split_id("17.none/3.drop1") == ("17.none", "3.drop1")
    with pytest.raises(UsageError) as error:
        find([State("17.drop1", 17, ())], "17.none")
    says = "one is called like 17.none, 17.drop2 or 17.head0-4"
    assert str(error.value) == f"no state '17.none': {says}"


def test_apply_writes_in_order() -> None:
    log = random.Random(1).randbytes(2048)
    image = bytearray(1024)
    apply_writes(image, [Write(0, 2, 0), Write(1, 1, 1024)], log)
    assert bytes(image) == log[:512] + log[1024:1536]
