"""When a transaction is cut: kernel/jbd2/burst_short.c in userspace, by a clock of its own."""

import ctypes

import pytest

from tests.unit import shim

MS = 10**6
FLUSH_MS, BLOCK_MS, ENOUGH = 2.0, 0.04, 40
LEAST_MS = 45  # eight times two flushes and enough blocks take 44.8 ms
MAX_MS = 5000


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    loaded = shim.load_burst(tmp_path_factory.mktemp("short"))
    loaded.begin.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    loaded.pass_ns.argtypes = [ctypes.c_int64]
    loaded.set_flush_ns.argtypes = [ctypes.c_int64]
    for name in ("expects", "cuts", "is_cut"):
        getattr(loaded, name).restype = ctypes.c_bool
    return loaded


class Journal:
    """A journal, and somebody who syncs: each sync names a transaction of its own."""

    def __init__(self, library: ctypes.CDLL, *, enough: int = ENOUGH) -> None:
        self.library, self.tid = library, 1
        library.begin(int(FLUSH_MS * MS), int(BLOCK_MS * MS), enough)

    def wait(self, ms: float) -> None:
        self.library.pass_ns(int(ms * MS))

    def sync(self) -> None:
        self.library.sync_tid(self.tid)
        self.tid += 1

    def syncs(self, every_ms: float, times: int = 20) -> None:
        for _ in range(times):
            self.wait(every_ms)
            self.sync()

    def cut(self, blocks: int = 1000, handles: int = 1) -> bool:
        """Somebody stops a handle; what is cut is committed at once."""
        done = bool(self.library.cuts(self.tid, blocks, handles))
        if done:
            self.library.end_commit(self.tid)
            self.tid += 1
        return done

    def cuts_in(self, ms: int, every_ms: int = 1) -> list[int]:
        """When something is cut while handles are stopped all the time."""
        times = []
        for now in range(0, ms, every_ms):
            if self.cut():
                times.append(now)
            self.wait(every_ms)
        return times


@pytest.fixture
def journal(library: ctypes.CDLL) -> Journal:
    return Journal(library)


@pytest.mark.parametrize("every_ms", [48, 100, 1000, 4000])
def test_seven_cuts_behind_the_last_sync_and_three_before_the_next(
    journal: Journal, every_ms: int
) -> None:
    journal.syncs(every_ms)
    quarter = every_ms // 4
    assert journal.cuts_in(10 * every_ms) == [quarter * n for n in range(1, 8)]
    journal.syncs(every_ms)
    assert len(journal.cuts_in(every_ms)) == 3


@pytest.mark.parametrize("every_ms", [1, LEAST_MS - 1])
def test_nothing_is_cut_for_who_syncs_all_the_time(journal: Journal, every_ms: int) -> None:
    journal.syncs(every_ms)
    assert journal.cuts_in(200) == []
    journal.syncs(LEAST_MS, 2)
    assert journal.cuts_in(200) != []


@pytest.mark.parametrize("size", [2, 6])
def test_a_group_of_syncs_is_one(journal: Journal, size: int) -> None:
    for _ in range(10):
        journal.syncs(5, size)
        journal.wait(1000)
    journal.syncs(5, size)
    assert len(journal.cuts_in(1000)) == 3


@pytest.mark.parametrize("every_ms", [20, 30, LEAST_MS - 1])
def test_who_syncs_all_the_time_after_a_while_of_less_is_not_cut(
    journal: Journal, every_ms: int
) -> None:
    journal.syncs(100)
    journal.syncs(every_ms, 6)
    for _ in range(100):
        assert journal.cuts_in(every_ms) == []
        journal.sync()


def test_nothing_is_cut_where_flushes_have_become_slow(journal: Journal) -> None:
    journal.syncs(50)
    journal.library.set_flush_ns(10 * MS)
    journal.sync()
    assert journal.cuts_in(100) == []


def test_who_waits_for_no_commit_does_not_count(journal: Journal) -> None:
    """A database that overwrites under mtime_update: what a cut commits is no news to it."""
    journal.syncs(1000)
    cuts = 0
    for _ in range(10_000):
        cuts += journal.cut()
        journal.library.sync_tid(journal.tid - 1)
        journal.wait(1)
    assert cuts == 7


def test_nothing_is_cut_for_who_syncs_seldom(journal: Journal) -> None:
    journal.syncs(MAX_MS)
    assert journal.cuts_in(4 * MAX_MS, 10) == []


def test_a_pause_is_forgotten(journal: Journal) -> None:
    journal.syncs(100)
    journal.wait(10**9)
    journal.syncs(100, 30)
    assert journal.cuts_in(100)[0] in (25, 26)


@pytest.mark.parametrize("syncs", [0, 1])
def test_nothing_is_known_before_somebody_has_synced_twice(journal: Journal, syncs: int) -> None:
    journal.syncs(100, syncs)
    assert journal.cuts_in(1000) == []


def test_nothing_is_known_before_a_burst_has_told(library: ctypes.CDLL) -> None:
    unknown = Journal(library, enough=0)
    unknown.syncs(100)
    assert unknown.cuts_in(1000) == []


def test_write_back_is_brief_for_a_while_after_each_sync(journal: Journal) -> None:
    assert not journal.library.expects()
    journal.sync()
    assert journal.library.expects()
    journal.wait(MAX_MS - 1)
    assert journal.library.expects()
    journal.wait(1)
    assert not journal.library.expects()


def test_tasks_that_wait_for_one_commit_are_one_sync(journal: Journal) -> None:
    """Also if those of the next come between them."""
    journal.syncs(1000)
    for turn in range(100):
        journal.library.sync_tid(journal.tid - 2 + turn % 2)
        journal.wait(1)
    assert journal.cuts_in(900) == [150, 400, 650]


def test_numbers_begin_anew(journal: Journal) -> None:
    journal.tid = 2**32 - 10
    journal.library.end_commit(journal.tid - 1)
    journal.library.sync_tid(journal.tid)
    for n in range(20):
        journal.wait(100)
        journal.library.sync_tid((journal.tid + 1 + n) % 2**32)
    journal.tid = 100
    assert len(journal.cuts_in(1000)) == 7


def test_fewer_blocks_are_not_cut(journal: Journal) -> None:
    journal.syncs(100)
    journal.wait(50)
    assert not journal.cut(ENOUGH - 1)
    assert journal.cut(ENOUGH)


def test_only_the_last_handle_that_is_open_cuts(journal: Journal) -> None:
    journal.syncs(100)
    journal.wait(50)
    assert not journal.cut(handles=2)
    assert journal.cut(handles=1)
    assert journal.library.is_cut(journal.tid - 1)
    assert not journal.library.is_cut(journal.tid)


def test_what_is_committed_soon_is_left_alone(journal: Journal) -> None:
    journal.syncs(100)
    journal.wait(50)
    journal.library.log_data(journal.tid)
    assert not journal.cut()
    journal.tid += 1
    journal.library.ask(journal.tid)
    assert not journal.cut()
    journal.tid += 1
    journal.library.commit(True)
    assert not journal.cut()
    journal.library.commit(False)
    assert journal.cut()
