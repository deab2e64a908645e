"""The rounding rule of kernel/ext4/mtime_round.h, compiled in userspace, against big integers."""

import ctypes
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit import shim

NS = 10**9
# ext4 stores 34 bits of seconds from -2**31 on: 1901-12-13 to 2446-05-10.
EXT4_FIRST_S = -(2**31)
EXT4_LAST_S = 2**34 - 2**31 - 1

Round = Callable[[int, int], int]


@pytest.fixture(scope="module")
def round_ns(tmp_path_factory: pytest.TempPathFactory) -> Round:
    """The kernel's function as f(ns since the epoch, interval in ms) -> ns since the epoch."""
    folder = tmp_path_factory.mktemp("round")
    function = shim.load("mtime_round_shim", "ext4", folder, *shim.SANITIZED).round_time

    def rounded(time_ns: int, interval_ms: int) -> int:
        sec, nsec = (ctypes.c_int64(part) for part in divmod(time_ns, NS))
        function(ctypes.byref(sec), ctypes.byref(nsec), ctypes.c_uint32(interval_ms))
        assert 0 <= nsec.value < NS, "not a normalized timespec64"
        return sec.value * NS + nsec.value

    return rounded


def test_published_example(round_ns: Round) -> None:
    """Son et al., SAC'17, section 4.2: 100 ms and ...989,999,960 give ...900,000,000."""
    assert round_ns(989_999_960, 100) == 900_000_000
    assert round_ns(1_480_000_000 * NS + 989_999_960, 100) == 1_480_000_000 * NS + 900_000_000


@pytest.mark.parametrize(
    ("time_ns", "interval_ms", "expected_ns"),
    [
        (0, 100, 0),
        (99_999_999, 100, 0),
        (100_000_000, 100, 100_000_000),
        (-1, 100, -100_000_000),
        (-1, 1, -1_000_000),
        (-1, 1000, -NS),
        (-NS, 1000, -NS),
        (-100_000_000, 100, -100_000_000),
        # 300 ms does not divide a second: the interval that holds 1.0 s began at 0.9 s.
        (1 * NS, 300, 900_000_000),
        (1 * NS, 7, 994_000_000),
        (-1 * NS, 300, -1_200_000_000),
        (EXT4_FIRST_S * NS, 1000, EXT4_FIRST_S * NS),
        (EXT4_LAST_S * NS + NS - 1, 1000, EXT4_LAST_S * NS),
    ],
)
def test_edges(round_ns: Round, time_ns: int, interval_ms: int, expected_ns: int) -> None:
    assert round_ns(time_ns, interval_ms) == expected_ns


times_ns = st.integers(EXT4_FIRST_S * NS, EXT4_LAST_S * NS + NS - 1)
near_epoch_ns = st.integers(-3 * NS, 3 * NS)
intervals_ms = st.integers(1, 1000)


@settings(max_examples=2000, deadline=None)
@given(time_ns=times_ns | near_epoch_ns, interval_ms=intervals_ms)
def test_against_big_integers(round_ns: Round, time_ns: int, interval_ms: int) -> None:
    interval_ns = interval_ms * 10**6
    assert round_ns(time_ns, interval_ms) == time_ns - time_ns % interval_ns


@settings(max_examples=500, deadline=None)
@given(time_ns=times_ns, later_ns=st.integers(0, 2 * NS), interval_ms=intervals_ms)
def test_follows_the_clock(round_ns: Round, time_ns: int, later_ns: int, interval_ms: int) -> None:
    start = round_ns(time_ns, interval_ms)
    assert start == round_ns(start, interval_ms), "the start of an interval lies in it"
    assert start <= round_ns(time_ns + later_ns, interval_ms), "never back as time goes on"
