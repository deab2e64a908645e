"""A completion is not missed by a dispatch that has just found nothing that may go.

kernel/qasio/dispatch.c on two processors that see each other's stores late: qasio_wake_model.c.
"""

import ctypes
from itertools import count

import pytest

from tests.unit import shim

HEADERS = (
    *(f"linux/{name}.h" for name in ("blk-mq", "hrtimer", "jiffies", "ktime", "sizes", "blkdev")),
    *("elevator.h", "blk.h", "blk-mq.h", "blk-mq-sched.h"),
)
SIDES = ("dispatch", "completion")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("qasio")
    loaded = shim.load("qasio_wake_model", "qasio", folder, "-O1", *shim.SANITIZED, headers=HEADERS)
    loaded.stalls.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_bool, ctypes.c_bool]
    return loaded


def stalls(library: ctypes.CDLL, first: int, *, barriers: tuple[bool, bool]) -> list[bool]:
    """Whether it stalls, by the access of the first side at which the other one runs."""
    found = list[bool]()
    for steps in count():
        result = library.stalls(first, steps, *barriers)
        if result < 0:
            return found
        found.append(bool(result))
    raise AssertionError


@pytest.mark.parametrize("first", range(2), ids=SIDES)
def test_with_both_barriers_the_request_goes(library: ctypes.CDLL, first: int) -> None:
    found = stalls(library, first, barriers=(True, True))
    assert len(found) >= 3
    assert not any(found)


@pytest.mark.parametrize("left_out", range(2), ids=SIDES)
def test_without_one_of_them_it_may_stay(library: ctypes.CDLL, left_out: int) -> None:
    """So the model sees what the barriers are for."""
    barriers = (left_out != 0, left_out != 1)
    assert any(stalls(library, left_out, barriers=barriers))
