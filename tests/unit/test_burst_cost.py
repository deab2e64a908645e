"""Up to how many blocks a burst is worth its writes: kernel/jbd2/burst_cost.c in userspace."""

import ctypes

import pytest

from tests.unit import shim

US = 1000
UNKNOWN = 2**32 - 1
LEAST = 8


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    loaded = shim.load_burst(tmp_path_factory.mktemp("cost"))
    loaded.jbd2_burst_learn.argtypes = [
        ctypes.c_void_p, ctypes.c_ulong, ctypes.c_int64, ctypes.c_int64
    ]  # fmt: skip
    loaded.jbd2_burst_not_worth.argtypes = [ctypes.c_void_p]
    loaded.jbd2_burst_worth.argtypes = [ctypes.c_void_p]
    loaded.jbd2_burst_worth.restype = ctypes.c_uint32
    loaded.enough.restype = ctypes.c_uint32
    return loaded


@pytest.fixture
def worth(library: ctypes.CDLL) -> "Worth":
    library.forget()
    return Worth(library)


class Worth:
    """What a journal thinks, and what it is taught."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library

    def learn(self, blocks: int, block_us: float, flush_us: float, times: int = 1) -> None:
        for _ in range(times):
            write_ns = int(blocks * block_us * US)
            self.library.jbd2_burst_learn(None, blocks, write_ns, int(flush_us * US))

    @property
    def blocks(self) -> int:
        return int(self.library.jbd2_burst_worth(None))

    @property
    def enough(self) -> int:
        return int(self.library.enough())


def test_nothing_is_known_before_a_burst_is_large_enough(worth: Worth) -> None:
    assert worth.blocks == UNKNOWN
    worth.learn(LEAST - 1, 75, 3600, times=100)
    assert worth.blocks == UNKNOWN
    worth.learn(LEAST, 75, 3600)
    assert worth.blocks == 19


@pytest.mark.parametrize(
    ("block_us", "flush_us", "expected"),
    [(75, 3600, 38), (20, 1620, 64), (10, 1030, 82), (27, 300, 32), (100, 0, 32)],
)
def test_blocks_that_take_most_of_a_flush_are_enough_but_some_always_are(
    worth: Worth, block_us: float, flush_us: float, expected: int
) -> None:
    assert worth.enough == 0
    worth.learn(20, block_us, flush_us, times=3)
    assert worth.enough == expected


@pytest.mark.parametrize(
    ("block_us", "flush_us", "expected"),
    [(75, 3600, 19), (27, 300, 4), (20, 1620, 32), (10, 1030, 41), (100, 0, 1)],
)
def test_a_flush_over_two_and_a_half_blocks(
    worth: Worth, block_us: float, flush_us: float, expected: int
) -> None:
    worth.learn(20, block_us, flush_us, times=3)
    assert worth.blocks == expected


def test_a_burst_that_has_waited_counts_little(worth: Worth) -> None:
    worth.learn(20, 20, 1620, times=50)
    worth.learn(20, 60, 1620)
    assert worth.blocks == 28
    worth.learn(20, 20, 1620, times=3)
    assert worth.blocks == 31


@pytest.mark.parametrize("before", [0, 50])
def test_a_sync_that_is_never_logged_finds_out(worth: Worth, before: int) -> None:
    """All syncs have 20 pages, and a burst, perhaps the first, takes a hundred times as long."""
    worth.learn(26, 20, 1620, times=before)
    worth.learn(26, 2000, 1620)
    assert worth.blocks < 20
    in_place = 0
    for _ in range(200):
        if worth.blocks < 20:
            worth.library.jbd2_burst_not_worth(None)
            in_place += 1
        else:
            worth.learn(26, 20, 1620)
    assert 28 <= worth.blocks <= 32 and 10 < in_place < 150


def test_few_of_many_large_syncs_are_logged(worth: Worth) -> None:
    """An eMMC, and syncs of 80 pages."""
    worth.learn(86, 75, 3600)
    logged = 0
    for _ in range(1000):
        if worth.blocks < 80:
            worth.library.jbd2_burst_not_worth(None)
        else:
            worth.learn(86, 75, 3600)
            logged += 1
    assert 10 <= logged <= 17


def test_a_device_that_has_become_slower(worth: Worth) -> None:
    worth.learn(20, 20, 1620, times=50)
    worth.learn(20, 20, 16200, times=40)
    assert 300 < worth.blocks <= 324
    worth.learn(20, 200, 16200, times=100)
    assert 32 <= worth.blocks <= 34


@pytest.mark.parametrize(("write_ns", "flush_ns"), [(0, 10**9), (-(10**9), -(10**9)), (10**12, 1)])
def test_absurd_times_do_no_harm(worth: Worth, write_ns: int, flush_ns: int) -> None:
    worth.library.jbd2_burst_learn(None, 20, write_ns, flush_ns)
    assert 1 <= worth.blocks < 2**31
    worth.learn(20, 20, 1620, times=200)
    assert 30 <= worth.blocks <= 33
