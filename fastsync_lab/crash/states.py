"""What can be on the medium when power fails.

A device with a volatile cache keeps what a finished flush or FUA write covers. Of the rest it may
keep anything, in units of 512 bytes: some writes and not others, or part of one. dm-log-writes does
not tell which unflushed writes were under way beside a FUA write, so none is assumed there; they
are taken to pieces at the flush that covers them.
"""

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fastsync_lab.crash.log import KERNEL_SECTOR, Event, Write
from fastsync_lab.host.errors import UsageError

FEW_WRITES = 3  # of these all subsets are taken
RANDOM_SUBSETS = 4


@dataclass(frozen=True)
class State:
    """The medium after the first `event` events and `extra`, which are whole writes or parts."""

    id: str
    event: int
    extra: tuple[Write, ...]

    @property
    def is_boundary(self) -> bool:
        """Nothing of what was in the cache is there."""
        return not self.extra

    @property
    def kind(self) -> str:
        """How it came about: none, drop, only, head, ..."""
        return re.sub(r"[\d-].*", "", self.id.partition(".")[2])


def part(write: Write, first: int, end: int) -> Write:
    """Sectors `first` to `end` (exclusive) of a write."""
    return Write(write.sector + first, end - first, write.offset + first * KERNEL_SECTOR)


def chosen(writes: Sequence[Write], keep: Iterable[int]) -> tuple[Write, ...]:
    """The writes of these indexes, in the order in which they completed."""
    return tuple(writes[index] for index in sorted(keep))


def torn_ends(count: int) -> list[int]:
    """Where to tear a write of `count` sectors: after the first, in the middle, before the last."""
    return sorted({1, count // 2, count - 1} & set(range(1, count)))


def variants(event: Event, number: int, rng: random.Random) -> Iterator[State]:
    """The states while event `number` is under way, the boundary first, each image once.

    That all of it is there is the boundary of the next event.
    """
    writes = event.writes
    count = len(writes)
    everything = frozenset(range(count))
    seen = {writes} if writes else set[tuple[Write, ...]]()

    def state(name: str, extra: tuple[Write, ...]) -> Iterator[State]:
        if extra not in seen:
            seen.add(extra)
            yield State(f"{number}.{name}", number, extra)

    yield from state("none", ())
    if event.kind == "end" and count:  # no event follows
        yield State(f"{number}.all", number, writes)
    for index in range(count):
        yield from state(f"drop{index}", chosen(writes, everything - {index}))
        yield from state(f"only{index}", chosen(writes, {index}))
    if count <= FEW_WRITES:
        masks: Iterable[int] = range(1, 1 << count)
    else:
        masks = (rng.getrandbits(count) for _ in range(RANDOM_SUBSETS))
    for first in range(2, count - 1):
        yield from state(f"from{first}", chosen(writes, range(first, count)))
    for mask in masks:
        kept = {index for index in range(count) if mask >> index & 1}
        yield from state(f"mask{mask:x}", chosen(writes, kept))
    for index, write in enumerate(writes):
        before, after = writes[:index], writes[index + 1 :]
        for end in torn_ends(write.count):
            head, tail = part(write, 0, end), part(write, end, write.count)
            yield from state(f"head{index}-{end}", (*before, head, *after))
            yield from state(f"tail{index}-{end}", (*before, tail, *after))
            yield from state(f"onlyhead{index}-{end}", (head,))


def all_states(events: Sequence[Event], *, first: int, seed: int) -> list[State]:
    """Every state that is considered, from event `first` on."""
    rng = random.Random(seed)
    states: list[State] = []
    for number, event in enumerate(events):
        of_event = list(variants(event, number, rng))
        if number >= first:
            states += of_event
    return states


def sample(states: Sequence[State], limit: int, seed: int) -> list[State]:
    """About `limit` of the states, in their order: all boundaries, and others drawn by the seed.

    Each kind of state (dropped, torn, ...) gets an equal share, as far as there are so many.
    """
    rng = random.Random(seed)
    kinds: dict[str, list[State]] = {}
    for state in states:
        kinds.setdefault("" if state.is_boundary else state.kind, []).append(state)
    kept = {state.id for state in kinds.pop("", [])}
    for drawn in kinds.values():
        rng.shuffle(drawn)
    while len(kept) < limit and any(kinds.values()):
        for drawn in kinds.values():
            if drawn and len(kept) < limit:
                kept.add(drawn.pop().id)
    return [state for state in states if state.id in kept]


def find(states: Sequence[State], wanted: str) -> State:
    """The state of that id. Raises UsageError if there is none."""
    for state in states:
        if state.id == wanted:
            return state
    raise UsageError(f"no state {wanted!r}: one is called like 17.none, 17.drop2 or 17.head0-4")


def split_id(text: str) -> tuple[str, str | None]:
    """The id of a state and, after a slash, that of a state of its recovery.

    Raises UsageError for anything else.
    """
    if not re.fullmatch(r"\d+\.[\w-]+(/\d+\.[\w-]+)?", text):
        raise UsageError(f"bad state {text!r}: one is called like 17.drop2, or 17.drop2/3.none")
    first, _, second = text.partition("/")
    return first, second or None


def first_event_after(events: Sequence[Event], mark: int) -> int:
    """The first event that had not ended when the call of that number returned."""
    for number, event in enumerate(events):
        if mark in event.acknowledged:
            return number
    return len(events) - 1


def apply_writes(image: bytearray, writes: Iterable[Write], log: bytes) -> None:
    """Put writes into an image."""
    for write in writes:
        size = write.end - write.start
        image[write.start : write.end] = log[write.offset : write.offset + size]


def durable_writes(events: Sequence[Event], begin: int, end: int) -> Iterator[Write]:
    """The writes of events `begin` to `end` (exclusive)."""
    for event in events[begin:end]:
        yield from event.writes
