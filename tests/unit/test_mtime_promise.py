"""What fsync promises of stamps, by kernel/ext4/mtime_*.c in userspace on a journal of chance.

mtime_model.c writes, sets times, commits and syncs in any order, and looks at the medium whenever
an fsync returns.
"""

import ctypes
import errno

import pytest

from tests.unit.mtime_library import mtime_library

RUNS = 20_000
library = pytest.fixture(scope="module")(mtime_library)


class Setting(ctypes.Structure):
    """struct setting of mtime_model.c."""

    _fields_ = [
        *(
            (name, ctypes.c_int)
            for name in (
                "defer",
                "utimensat",
                "late",
                "fast_commit",
                "remount",
                "clock_back",
                "long_ago",
            )
        ),
        ("grain_ns", ctypes.c_long),
        ("first_tid", ctypes.c_uint32),
    ]


class Result(ctypes.Structure):
    """struct result."""

    _fields_ = [(name, ctypes.c_long) for name in ("fsyncs", "commits", "broken", "first_broken")]


def run(library: ctypes.CDLL, **settings: int) -> Result:
    setting = Setting(**{"grain_ns": 1, "first_tid": 7, **settings})
    result = Result()
    library.run_model(ctypes.byref(setting), RUNS, ctypes.byref(result))
    return result


@pytest.mark.parametrize("defer", [0, 1], ids=["truncate", "defer"])
@pytest.mark.parametrize("fast_commit", [0, 1], ids=["ordered", "fast_commit"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"utimensat": 1},
        {"utimensat": 1, "late": 1},
        {"utimensat": 1, "late": 1, "remount": 1},
        {"clock_back": 1},
        {"utimensat": 1, "late": 1, "remount": 1, "clock_back": 1},
        {"long_ago": 1},
        {"utimensat": 1, "late": 1, "remount": 1, "long_ago": 1},
        {"utimensat": 1, "late": 1, "grain_ns": 4_000_000},
        {"utimensat": 1, "grain_ns": 1_000_000_000},
        {"utimensat": 1, "late": 1, "first_tid": 2**32 - 4},
    ],
    ids=lambda settings: ",".join(settings) or "writes alone",
)
def test_no_promise_is_broken(
    library: ctypes.CDLL, defer: int, fast_commit: int, settings: dict[str, int]
) -> None:
    result = run(library, defer=defer, fast_commit=fast_commit, **settings)
    assert result.fsyncs > RUNS
    assert result.broken == 0, f"seed {result.first_broken}"


def test_commits_are_saved(library: ctypes.CDLL) -> None:
    result = run(library, defer=1)
    assert result.commits < result.fsyncs / 3


@pytest.mark.parametrize("own", [True, False], ids=["its own", "another's"])
def test_a_failed_flush_counts_though_the_option_has_gone(library: ctypes.CDLL, own: bool) -> None:
    aborted = ctypes.c_bool()
    assert library.flush_after_remount(own, ctypes.byref(aborted)) == -errno.EIO
    assert aborted.value


@pytest.mark.parametrize("jump", [True, False], ids=["eager_sync", "stock"])
def test_fdatasync_of_a_tid_of_long_ago(library: ctypes.CDLL, jump: bool) -> None:
    """Where tids jump, 2^31 transactions pass soon: such a tid is told from one to come."""
    assert library.waits_for_long_ago(jump) is not jump


def test_a_handle_without_a_transaction_ends_the_record(library: ctypes.CDLL) -> None:
    library.reset(4)
    library.log_stamps(5, 0, 0, 0)
    library.on_record.restype = ctypes.c_bool
    assert library.on_record()
    library.log_aborted()
    assert not library.on_record()
