"""When a transaction is cut: kernel/jbd2/burst_short.c in userspace, by a clock of its own."""

import ctypes

import pytest

from tests.unit import shim

MS = 10**6
FLUSH_MS = 2
ENOUGH = 40
FIRST = 64
COMMIT_MS = 5000


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    headers = ["linux/jiffies.h", "linux/ktime.h", "trace/define_trace.h"]
    loaded = shim.load(
        "short_shim", "jbd2", tmp_path_factory.mktemp("short"), "-O2", "-D_JBD2_BURST_H",
        "-D_JBD2_BURST_TRACE_H",         *shim.SANITIZED, headers=headers,
    )  # fmt: skip
    loaded.begin.argtypes = [ctypes.c_ulong, ctypes.c_int64, ctypes.c_uint]
    loaded.pass_ns.argtypes = [ctypes.c_int64]
    loaded.expects.restype = loaded.cuts.restype = ctypes.c_bool
    return loaded


class Journal:
    """A journal, somebody who syncs, and transactions with numbers that rise by themselves."""

    def __init__(self, library: ctypes.CDLL, enough: int = ENOUGH) -> None:
        self.library, self.tid = library, 1
        library.begin(COMMIT_MS, FLUSH_MS * MS, enough)

    def wait(self, ms: float) -> None:
        self.library.pass_ns(int(ms * MS))

    def sync(self) -> None:
        self.library.sync_tid(self.tid)
        self.tid += 1

    def syncs(self, every_ms: float, times: int = 20) -> None:
        for _ in range(times):
            self.wait(every_ms)
            self.sync()

    def cut(self, blocks: int = 1000) -> bool:
        """Somebody stops a handle; what is cut is committed at once."""
        done = bool(self.library.cuts(self.tid, blocks))
        self.tid += done
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


@pytest.mark.parametrize("every_ms", [20, 100, 1000, 4000])
def test_seven_cuts_behind_the_last_sync_and_three_before_the_next(
    journal: Journal, every_ms: int
) -> None:
    journal.syncs(every_ms)
    quarter = every_ms // 4
    assert journal.cuts_in(10 * every_ms) == [quarter * n for n in range(1, 8)]
    assert not journal.library.expects()
    journal.syncs(every_ms)
    assert journal.library.expects()
    assert len(journal.cuts_in(every_ms)) == 3


@pytest.mark.parametrize("every_ms", [1, 8 * FLUSH_MS - 1])
def test_nothing_is_cut_for_who_syncs_all_the_time_but_write_back_is_brief(
    journal: Journal, every_ms: int
) -> None:
    journal.syncs(every_ms)
    assert journal.library.expects()
    assert journal.cuts_in(100) == []


def test_nothing_is_cut_for_who_syncs_seldom(journal: Journal) -> None:
    journal.syncs(COMMIT_MS + 1)
    assert not journal.library.expects()
    assert journal.cuts_in(4 * COMMIT_MS, 10) == []


def test_a_pause_is_forgotten(journal: Journal) -> None:
    """However long: it counts as twice the time between two periodic commits."""
    journal.syncs(100)
    journal.wait(10**9)
    journal.sync()
    assert journal.library.expects()
    journal.syncs(100, 30)
    assert journal.cuts_in(100)[0] in (25, 26)


@pytest.mark.parametrize("syncs", [0, 1])
def test_nothing_is_known_before_somebody_has_synced_twice(journal: Journal, syncs: int) -> None:
    journal.syncs(100, syncs)
    assert not journal.library.expects()
    assert journal.cuts_in(1000) == []


def test_tasks_that_wait_for_one_commit_are_one_sync(journal: Journal) -> None:
    journal.syncs(1000)
    for _ in range(100):
        journal.library.sync_tid(journal.tid - 1)
    assert journal.cuts_in(1000) == [250, 500, 750]


def test_fewer_blocks_are_not_cut(journal: Journal, library: ctypes.CDLL) -> None:
    journal.syncs(100)
    journal.wait(50)
    assert not journal.cut(ENOUGH - 1)
    assert journal.cut(ENOUGH)
    unknown = Journal(library, enough=0)
    unknown.syncs(100)
    unknown.wait(50)
    assert not unknown.cut(FIRST - 1)
    assert unknown.cut(FIRST)


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
