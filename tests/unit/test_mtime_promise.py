"""What fsync promises of stamps, by kernel/ext4/mtime_*.c in userspace on a journal of chance.

mtime_model.c writes, sets times, commits and syncs in any order, and looks at the medium whenever
an fsync returns.
"""

import ctypes
import errno
from pathlib import Path

import pytest

from fastsync_lab.host.paths import repo_root
from tests.unit.mtime_library import load, mtime_library

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


def run(library: ctypes.CDLL, runs: int = RUNS, **settings: int) -> Result:
    setting = Setting(**{"grain_ns": 1, "first_tid": 7, **settings})
    result = Result()
    library.run_model(ctypes.byref(setting), runs, ctypes.byref(result))
    return result


def broken_library(folder: Path, file: str, line: str, fault: str) -> ctypes.CDLL:
    """The model with something else in place of a part of a file of the kernel's."""
    text = (repo_root() / "kernel" / "ext4" / file).read_text()
    assert text.count(line) == 1, f"{file}: {line}"
    (folder / file).write_text(text.replace(line, fault))
    return load(folder)


by_mode = pytest.mark.parametrize("defer", [0, 1], ids=["truncate", "defer"])
by_journal = pytest.mark.parametrize("fast_commit", [0, 1], ids=["ordered", "fast_commit"])


@by_mode
@by_journal
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


# In which file what is replaced by what, and the setting that shows it.
FAULTS = {
    "what is being committed is not looked at": (
        "mtime_sync.c",
        "mi->committing.pending ? &mi->committing : durable",
        "durable",
        {"defer": 1, "utimensat": 1, "late": 1},
    ),
    "what is durable is not looked at": (
        "mtime_sync.c",
        "if (!young)\n\t\treturn EXT4_MTIME_UNDER_WAY;",
        "(void)young;",
        {"defer": 1, "late": 1},
    ),
    "young stamps may wait in truncate": (
        "mtime_sync.c",
        "return same_cmtime && young ?",
        "return young ?",
        {"utimensat": 1},
    ),
    "two intervals": (
        "mtime_sync.c",
        "(policy & EXT4_MTIME_INTERVAL_MS) * NSEC_PER_MSEC",
        "2 * (policy & EXT4_MTIME_INTERVAL_MS) * NSEC_PER_MSEC",
        {"defer": 1},
    ),
    "old tids are compared": (
        "mtime_sync.c",
        "return ext4_mtime_committed(inode, tid) ?",
        "return false ?",
        {"long_ago": 1},
    ),
    "logged once more is the same": (
        "mtime_durable.c",
        "mi->logged.ctime_ns == ctime_ns;",
        "true;",
        {"utimensat": 1, "late": 1},
    ),
    "young by the clock alone": (
        "mtime_durable.c",
        "if (behind->mtime_ns >= age_ns || behind->ctime_ns >= age_ns)",
        "if (false)",
        {"defer": 1, "clock_back": 1},
    ),
    "durable does not move": (
        "mtime_durable.c",
        "ext4_mtime_rebase(&mi->durable, &mi->logged, &stamps);",
        "",
        {},
    ),
    "committing does not move": (
        "mtime_durable.c",
        "ext4_mtime_rebase(&mi->committing, &mi->logged, &stamps);",
        "",
        {},
    ),
    "durable with the transaction behind it": (
        "mtime_durable.c",
        "mi->committing.pending = true;",
        "mi->durable = ext4_mtime_same;",
        {"defer": 1, "late": 1},
    ),
    "a late end has the last word": (
        "mtime_durable.c",
        "if (mi->logged_tid != sync->logged_tid)",
        "if (false)",
        {"defer": 1, "utimensat": 1, "late": 1},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_breaks_a_promise(tmp_path: Path, fault: str) -> None:
    """Some do so in one of thousands of runs."""
    file, line, other, settings = FAULTS[fault]
    library = broken_library(tmp_path, file, line, other)
    assert any(run(library, runs, **settings).broken for runs in (RUNS, 10 * RUNS))


@by_mode
@by_journal
def test_commits_are_saved(
    library: ctypes.CDLL, tmp_path: Path, defer: int, fast_commit: int
) -> None:
    """A third of those that there are while nothing is on record: 37 to 57 %, seen."""
    off_record = broken_library(tmp_path, "mtime_durable.c", "\tmi->logged = stamps;", "")
    with_none = run(off_record, defer=defer, fast_commit=fast_commit)
    assert with_none.broken == 0
    result = run(library, defer=defer, fast_commit=fast_commit)
    assert result.commits / result.fsyncs < with_none.commits / with_none.fsyncs * 2 / 3


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
