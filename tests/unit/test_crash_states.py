"""The states that a volatile cache allows, and which of them are taken."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastsync_lab.crash.log import FUA, Event, Write, parse_log
from fastsync_lab.crash.states import (
    State,
    all_states,
    apply_writes,
    durable_writes,
    find,
    part,
    sample,
    sample_again,
    split_id,
    torn_ends,
    variants,
)
from fastsync_lab.host.errors import UsageError
from tests.unit.crash_logs import FLUSHED, SECTOR, Entry, fua, make_log, mark, write

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
    assert len(kept) == min(len(states), limit + len(boundaries))
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
    assert all(int(name[4:]) < 32 for name in by_id if name.startswith("mask"))
    head, tail = Write(20, 1, 2048), Write(21, 1, 2560)
    assert by_id["head2-1"] == (*writes[:2], head, *writes[3:])
    assert by_id["tail2-1"] == (*writes[:2], tail, *writes[3:])
    assert by_id["onlyhead2-1"] == (head,)


BURST = Write(100, 5 * 8, 4096)  # descriptor, three blocks, record


def lost_of(extra: tuple[Write, ...], of: Write) -> set[int]:
    """The sectors of a write that a state has not."""
    there = {one for write in extra for one in range(write.sector, write.sector + write.count)}
    assert all(one.offset - of.offset == (one.sector - of.sector) * SECTOR for one in extra)
    return set(range(of.sector, of.sector + of.count)) - there


def test_of_a_burst_any_part_between_its_descriptor_and_its_record_may_be_missing() -> None:
    event = Event("flush", (BURST,), frozenset())
    lost: dict[str, list[set[int]]] = {}
    for seed in range(50):
        for state in variants(event, 0, random.Random(seed)):
            lost.setdefault(state.kind, []).append(lost_of(state.extra, BURST))
    assert all({100, 139}.isdisjoint(of) for kind in ("gap", "hole", "sieve") for of in lost[kind])
    assert len(set.union(*lost["gap"])) > 20
    assert all(len(of) == 1 for of in lost["gap"])
    blocks = [set(range(first, first + 8)) for first in (108, 116, 124)]
    assert all(of in blocks for of in lost["hole"])
    assert len(lost["hole"]) == 2 * 50
    assert {len(of) for of in lost["sieve"]} == {8, 16, 24}  # with 0 it is all there


def test_a_write_of_one_or_two_blocks_has_no_hole_of_a_block() -> None:
    for count, kinds in (
        (2, set()),
        (8, set()),
        (9, {"gap"}),
        (16, {"gap"}),
        (24, {"gap", "hole"}),
    ):
        event = Event("flush", (Write(0, count, 0),), frozenset())
        found = {state.kind for state in variants(event, 0, random.Random(1))}
        assert found & {"gap", "hole", "sieve"} == kinds


def test_what_is_under_way_beside_an_event_may_be_there_without_it() -> None:
    beside = tuple(Write(100 + number, 1, 8192 + 512 * number) for number in range(5))
    event = Event("fua", (ONE,), frozenset(), beside)
    states = [one for one in variants(event, 2, random.Random(1)) if not one.is_boundary]
    assert states[0] == State("2.besides", 2, beside)  # and so lost0
    assert all(one in (ONE, *beside) for state in states for one in state.extra)
    alone = [state.extra for state in states if state.kind == "beside"]
    assert len(set(alone)) == 3
    assert all(len(extra) == 1 and extra[0] in beside for extra in alone)
    drawn = {
        state.extra
        for seed in range(50)
        for state in variants(event, 2, random.Random(seed))
        if state.kind == "both"
    }
    assert any(extra[0] == ONE and len(extra) > 1 for extra in drawn)
    assert any(ONE not in extra and len(extra) > 1 for extra in drawn)
    assert [one.id for one in variants(replace(event, beside=()), 2, random.Random(1))] == [
        "2.none"
    ]


def test_the_kind_of_a_state_is_its_name_without_numbers() -> None:
    ids = ("17.none", "3.drop12", "3.head0-4", "3.onlyhead1-7", "3.from2")
    kinds = ["none", "drop", "head", "onlyhead", "from"]
    assert [State(one, 0, ()).kind for one in ids] == kinds


def test_kinds_have_equal_shares_of_a_sample_as_far_as_there_are_so_many() -> None:
    extra = (ONE,)
    names = [*(f"drop{n}" for n in range(10)), *(f"head{n}-1" for n in range(10)), "all"]
    states = [State("0.none", 0, ()), *(State(f"0.{name}", 0, extra) for name in names)]
    counts = Counter(state.kind for state in sample(states, 10, seed=1))
    assert counts == {"none": 1, "all": 1, "drop": 5, "head": 4}
    assert len(sample(states, 100, seed=1)) == len(states)
    assert [state.id for state in sample(states, 0, seed=1)] == ["0.none"]
    assert sample(states, 10, seed=1) != sample(states, 10, seed=2)
    assert sample(states[1:], 100, seed=1) == states[1:]  # there may be no boundary


def test_events_have_equal_shares_of_a_kind() -> None:
    """One of many writes has many states, and there are few bursts among them."""
    states = [State(f"0.drop{n}", 0, (ONE,)) for n in range(100)]
    states += [State(f"{event}.drop0", event, (ONE,)) for event in range(1, 10)]
    counts = Counter(state.event for state in sample(states, 12, seed=1))
    assert counts == {0: 3, **dict.fromkeys(range(1, 10), 1)}


def test_of_a_recovery_that_is_cut_half_of_the_states_are_boundaries() -> None:
    log = make_log(*(one for n in range(20) for one in (write(n, "a", 8), FLUSHED)))
    states = all_states(parse_log(log), first=0, seed=1)
    kept = sample_again(states, 8, seed=1)
    assert [state.event for state in kept if state.is_boundary] == [0, 5, 10, 15]
    assert len(kept) == 8
    assert sample_again(states[:3], 8, seed=1) == states[:3]
    whole = sample_again(states, 8, seed=1, in_part=False)
    assert len(whole) == 8 and all(state.is_boundary for state in whole)


def test_sample_takes_from_every_kind() -> None:
    log = make_log(*((0, 8 * number, b"x" * 4096) for number in range(10)), FLUSHED)
    states = all_states(parse_log(log), first=0, seed=1)
    kinds = {state.kind for state in states}
    assert {state.kind for state in sample(states, 20, seed=1)} == kinds


@pytest.mark.parametrize(
    "text", ["", "17", "x.none", "17.none/", "17.a/b", "17.a/ours.", "ours.17.a"]
)
def test_bad_ids(text: str) -> None:
    with pytest.raises(UsageError) as error:
        split_id(text)
    says = "one is called like 17.drop2, 17.drop2/3.none or 17.drop2/ours.3.none"
    assert str(error.value) == f"bad state {text!r}: {says}"


def test_ids() -> None:
    assert split_id("17.head0-4") == ("17.head0-4", None)
    assert split_id("17.none/3.drop1") == ("17.none", "3.drop1")
    assert split_id("17.none/ours.3.drop1") == ("17.none", "ours.3.drop1")
    with pytest.raises(UsageError) as error:
        find([State("17.drop1", 17, ())], "17.none")
    says = "one is called like 17.none, 17.drop2 or 17.head0-4"
    assert str(error.value) == f"no state '17.none': {says}"


def test_apply_writes_in_order() -> None:
    log = random.Random(1).randbytes(2048)
    image = bytearray(1024)
    apply_writes(image, [Write(0, 2, 0), Write(1, 1, 1024)], log)
    assert bytes(image) == log[:512] + log[1024:1536]
