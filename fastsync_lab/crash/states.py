"""What can be on the medium when power fails.

A device with a volatile cache keeps what a finished flush or FUA write covers. Of the rest it may
keep anything, in units of 512 bytes: some writes and not others, or parts of one. That holds for
what the flush is to cover, and for what was sent while it, or the FUA write, was under way.
"""

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from fastsync_lab.crash.log import KERNEL_SECTOR, Event, Write
from fastsync_lab.host.errors import UsageError

FEW_WRITES = 3  # of these all subsets are taken
RANDOM_SUBSETS = 4
BLOCK_SECTORS = 8
HOLES = 2  # of a write of several blocks
OURS = "ours."  # before the id of a state of a recovery by our modules
BESIDE = 3  # of what is under way beside an event so many are there alone


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


def without(write: Write, gaps: Sequence[tuple[int, int]]) -> tuple[Write, ...]:
    """A write's sectors but for these: first and end (exclusive), in order, none beside another."""
    ends = [0, *(end for _, end in gaps)]
    begins = [*(first for first, _ in gaps), write.count]
    pairs = zip(ends, begins, strict=True)
    return tuple(part(write, begin, end) for begin, end in pairs if begin < end)


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
        yield from state(f"mask{mask}", chosen(writes, kept))
    for index, write in enumerate(writes):
        before, after = writes[:index], writes[index + 1 :]
        for end in torn_ends(write.count):
            head, tail = part(write, 0, end), part(write, end, write.count)
            yield from state(f"head{index}-{end}", (*before, head, *after))
            yield from state(f"tail{index}-{end}", (*before, tail, *after))
            yield from state(f"onlyhead{index}-{end}", (head,))
        for kind, place, pieces in with_holes(write, rng):
            yield from state(f"{kind}{index}-{place}", (*before, *pieces, *after))
    for name, kept_of, beside in under_way(event, rng):
        yield from state(name, (*chosen(writes, kept_of), *chosen(event.beside, beside)))


def with_holes(write: Write, rng: random.Random) -> Iterator[tuple[str, int, tuple[Write, ...]]]:
    """What is left of a write of several blocks whose first and last sectors are there.

    A burst is one write: here its descriptor and its record are on the medium, and not all of what
    is between them. One sector is missing, a block, or each block by the toss of a coin.
    """
    if write.count <= BLOCK_SECTORS:
        return
    sector = rng.randrange(1, write.count - 1)
    yield "gap", sector, without(write, [(sector, sector + 1)])
    inner = range(1, write.count // BLOCK_SECTORS - 1)
    for block in sorted(rng.sample(inner, min(HOLES, len(inner)))):
        yield "hole", block, without(write, [blocks_at(block)])
    if len(inner) > HOLES:
        missing = [block for block in inner if rng.random() < 0.5]
        mask = sum(1 << block for block in missing)
        yield "sieve", mask, without(write, [blocks_at(one) for one in missing])


def blocks_at(number: int) -> tuple[int, int]:
    """The sectors of a block of a write: first and end (exclusive)."""
    return number * BLOCK_SECTORS, (number + 1) * BLOCK_SECTORS


def under_way(event: Event, rng: random.Random) -> Iterator[tuple[str, list[int], list[int]]]:
    """Which of an event's writes and of those beside it are on the medium, by index, with a name.

    All others, and none of its own or all but one; one other alone; or some of both.
    """
    own, others = range(len(event.writes)), range(len(event.beside))
    if not others:
        return
    yield "besides", [], list(others)
    for lost in own:
        yield f"lost{lost}", [index for index in own if index != lost], list(others)
    for index in sorted(rng.sample(others, min(BESIDE, len(others)))):
        yield f"beside{index}", [], [index]
    for _ in range(BESIDE):
        mine, mask = (rng.getrandbits(len(some)) for some in (event.writes, event.beside))
        kept = [index for index in own if mine >> index & 1]
        yield f"both{mine}-{mask}", kept, [one for one in others if mask >> one & 1]


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
    """All boundaries and `limit` of the others, drawn by the seed, in their order.

    Each kind of state (dropped, torn, ...) gets an equal share, as far as there are so many, and
    within a kind each event: those of many writes have many states.
    """
    rng = random.Random(seed)
    kinds: dict[str, dict[int, list[State]]] = {}
    for state in states:
        if not state.is_boundary:
            kinds.setdefault(state.kind, {}).setdefault(state.event, []).append(state)
    drawn = in_turn([in_turn(list(of.values()), rng) for of in kinds.values()])
    kept = {state.id for state in drawn[:limit]}
    return [state for state in states if state.is_boundary or state.id in kept]


def in_turn(groups: Sequence[list[State]], rng: random.Random | None = None) -> list[State]:
    """One state of each group, then a second one of each, and so on; first shuffled by `rng`."""
    if rng:
        groups = [rng.sample(group, len(group)) for group in groups]
        rng.shuffle(groups)
    rounds = zip_longest(*groups)
    return [state for one in rounds for state in one if state is not None]


def sample_again(
    states: Sequence[State], limit: int, seed: int, in_part: bool = True
) -> list[State]:
    """About `limit` of the states of a recovery that is cut in turn, half of them boundaries.

    Without `in_part` all of them are: nothing of what was in the cache is there.
    """
    boundaries = [state for state in states if state.is_boundary]
    if not in_part:
        return spread(boundaries, limit)
    others = sample([state for state in states if not state.is_boundary], limit // 2, seed)
    kept = {state.id for state in (*spread(boundaries, limit // 2), *others)}
    return [state for state in states if state.id in kept]


def spread(states: Sequence[State], count: int) -> list[State]:
    """`count` of the states, evenly from the first to the last."""
    if len(states) <= count:
        return list(states)
    return [states[index * len(states) // count] for index in range(count)]


def find(states: Sequence[State], wanted: str) -> State:
    """The state of that id. Raises UsageError if there is none."""
    for state in states:
        if state.id == wanted:
            return state
    raise UsageError(f"no state {wanted!r}: one is called like 17.none, 17.drop2 or 17.head0-4")


def split_id(text: str) -> tuple[str, str | None]:
    """The id of a state and, after a slash, that of a state of its recovery, with OURS or not.

    Raises UsageError for anything else.
    """
    if not re.fullmatch(rf"\d+\.[\w-]+(/({re.escape(OURS)})?\d+\.[\w-]+)?", text):
        raise UsageError(
            f"bad state {text!r}: one is called like 17.drop2, 17.drop2/3.none or "
            f"17.drop2/{OURS}3.none"
        )
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
