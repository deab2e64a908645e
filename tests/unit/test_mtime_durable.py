"""kernel/ext4/mtime_durable.c, compiled in userspace, against three exact generations.

The kernel keeps two of them as distances of 31 bits. Here each is a transaction and three stamps.
"""

import ctypes
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.mtime_library import mtime_library

S = 10**9
library = pytest.fixture(scope="module")(mtime_library)
FAR_NS = 2**31 - 1
# KTIME_MAX is what the kernel makes of times from 2262 on.
KTIME_MAX_NS = 2**63 - 1
FIRST_NS = -(2**31) * S

Stamps = tuple[int, int, int]  # atime, mtime, ctime


@dataclass(frozen=True)
class Seen:
    """What the kernel code says of a generation."""

    known: bool
    mtime_ns: int
    ctime_ns: int
    atime_changed: bool
    pending: bool


def seen(library: ctypes.CDLL) -> tuple[Seen, Seen]:
    """What is durable and what is being committed, as the kernel code has it."""
    durable, committing = (ctypes.c_int64 * 5)(), (ctypes.c_int64 * 5)()
    library.look(durable, committing)
    first, second = (
        Seen(bool(out[0]), out[1], out[2], bool(out[3]), bool(out[4]))
        for out in (durable, committing)
    )
    return first, second


def representable(logged: Stamps, stamps: Stamps) -> bool:
    """Whether these can be a distance from what is logged."""
    return all(
        0 <= later - stamp < FAR_NS for later, stamp in zip(logged[1:], stamps[1:], strict=True)
    )


@dataclass
class Generation:
    """Stamps, whether they could be told ever since, and whether atime was the same ever since."""

    tid: int
    stamps: Stamps
    told: bool = True
    same_atime: bool = True

    def count_from(self, logged: Stamps, before: Stamps) -> None:
        """What `logged` does to it, when that takes the place of `before`."""
        self.told &= representable(logged, self.stamps)
        self.same_atime &= logged[0] == before[0]


@dataclass
class Exact:
    """The three generations, as the module comment says them."""

    committed: int = 4
    running: int = 5
    logged: Generation | None = None
    committing: Generation | None = None
    durable: Generation | None = None
    chosen: Generation | None = None
    logged_by_then: int = 0

    def settle(self) -> None:
        if self.committing and self.committing.tid <= self.committed:
            self.durable, self.committing = self.committing, None
        if self.logged and self.logged.tid <= self.committed:
            self.durable = Generation(self.logged.tid, self.logged.stamps)

    def log(self, stamps: Stamps) -> None:
        self.settle()
        if self.logged is None:
            self.logged = Generation(self.running, stamps)
            return
        if self.logged.tid != self.running:
            # Logged by the one before, or earlier: by then it is durable in any case.
            self.committing = Generation(self.running - 1, self.logged.stamps)
        for older in (self.committing, self.durable):
            if older:
                older.count_from(stamps, self.logged.stamps)
        self.logged = Generation(self.running, stamps)


stamp_ns = st.integers(0, 4 * S) | st.sampled_from(
    [0, 2**31 - 2, 2**31 - 1, 2**31, 2**32, 2**32 + 1, 2**33, KTIME_MAX_NS, FIRST_NS]
)
steps = st.one_of(
    st.tuples(st.just("log"), stamp_ns, stamp_ns, stamp_ns),
    st.tuples(st.just("write"), st.integers(0, 900_000_000)),
    st.tuples(st.just("next")),
    st.tuples(st.just("commit")),
    st.tuples(st.just("choose"), st.booleans()),
    st.tuples(st.just("end_sync")),
)


def check(library: ctypes.CDLL, exact: Exact) -> None:
    """What the kernel code knows is exact; what it does not know could not be told."""
    exact.settle()
    for found, truth in zip(seen(library), (exact.durable, exact.committing), strict=True):
        assert found.known == (truth is not None and truth.told)
        if truth and found.known:
            assert (found.mtime_ns, found.ctime_ns) == truth.stamps[1:]
            assert found.atime_changed == (not truth.same_atime)
    assert seen(library)[1].pending == (exact.committing is not None)
    assert not seen(library)[0].pending


@settings(max_examples=1500, deadline=None)
@given(script=st.lists(steps, max_size=30))
def test_against_exact_generations(library: ctypes.CDLL, script: list[tuple[str, int]]) -> None:
    exact = Exact()
    library.reset(exact.committed)
    clock_ns = 10 * S
    for name, *values in script:
        if name in ("log", "write"):
            if name == "write":
                clock_ns += values[0]
            atime = exact.logged.stamps[0] if exact.logged else 0
            stamps = (atime, clock_ns, clock_ns) if name == "write" else (*values,)
            exact.log((stamps[0], stamps[1], stamps[2]))
            library.log_stamps(exact.running, *stamps)
        elif name == "next" and exact.committed == exact.running - 1:
            exact.running += 1  # the one before is being committed from now on
        elif name == "commit" and exact.committed < exact.running:
            exact.committed += 1
            exact.running = max(exact.running, exact.committed + 1)
            library.commit(exact.committed)
        elif name == "choose" and exact.logged:
            exact.settle()
            subject = exact.committing if values[0] else exact.logged
            if subject and subject.told:
                # Of what is being committed atime is not kept, but whether it has changed.
                stamps = (exact.logged.stamps[0], *subject.stamps[1:])
                exact.chosen = Generation(subject.tid, stamps, same_atime=subject.same_atime)
                exact.logged_by_then = exact.logged.tid
                library.choose(values[0])
        elif name == "end_sync" and exact.chosen and exact.logged:
            chosen = exact.chosen
            if exact.logged.tid == exact.logged_by_then:
                exact.durable = Generation(
                    chosen.tid,
                    chosen.stamps,
                    representable(exact.logged.stamps, chosen.stamps),
                    chosen.same_atime and chosen.stamps[0] == exact.logged.stamps[0],
                )
            library.end_sync()
            exact.chosen = None
        check(library, exact)


@pytest.mark.parametrize("behind_ns", [2**31 - 1, 2**31, 2**32, 2**32 + 1, 2**33, -1])
def test_what_is_out_of_range_is_never_young(library: ctypes.CDLL, behind_ns: int) -> None:
    """Least of all as what it would be with the upper bits cut off: the stamps of this moment."""
    now_ns = 10 * S
    library.reset(4)
    library.log_stamps(5, 0, now_ns - behind_ns, now_ns - behind_ns)
    library.commit(5)
    library.log_stamps(6, 0, now_ns, now_ns)
    assert not library.younger(False, now_ns, S)
    assert not seen(library)[0].known


@pytest.mark.parametrize(("behind_ns", "young"), [(0, True), (S - 1, True), (S, False)])
def test_young_is_less_than_an_interval(library: ctypes.CDLL, behind_ns: int, young: bool) -> None:
    now_ns = 10 * S
    library.reset(4)
    library.log_stamps(5, 0, now_ns - behind_ns, now_ns)
    library.commit(5)
    library.log_stamps(6, 0, now_ns, now_ns)
    assert library.younger(False, now_ns, S) == young
    assert library.younger(True, now_ns, S) == young  # they are the same until the next settles
