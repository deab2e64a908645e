"""Work for several threads."""

import threading
from collections.abc import Iterator

import pytest

from fastsync_lab.host.shares import share_out

LIMIT_S = 60


def test_each_share_is_taken_once_and_results_are_in_the_order_of_the_takers() -> None:
    together = threading.Barrier(3)  # each has one, and none has all

    def take(some: Iterator[int]) -> list[int]:
        mine = [next(some)]
        together.wait(LIMIT_S)
        return [*mine, *some]

    def named(name: str, some: Iterator[int]) -> tuple[str, list[int]]:
        return name, take(some)

    takers = [lambda some, name=name: named(name, some) for name in "abc"]
    done = share_out(range(20), takers, threading.Event())
    assert [name for name, _ in done] == list("abc")
    assert sorted(share for _, shares in done for share in shares) == list(range(20))


def test_no_more_is_given_out_once_one_fails_and_the_first_failure_is_told() -> None:
    stop, begun = threading.Event(), threading.Event()
    taken: list[int] = []

    def fail(some: Iterator[int]) -> None:
        next(some)
        assert begun.wait(LIMIT_S)
        raise ValueError("the first")

    def work(some: Iterator[int]) -> None:
        for share in some:
            taken.append(share)
            begun.set()
            assert stop.wait(LIMIT_S)
        raise ValueError("because it was stopped")

    with pytest.raises(ValueError, match="the first"):
        share_out(range(20), [fail, work], stop)
    assert len(taken) == 1


def test_where_all_have_ended_nobody_was_stopped() -> None:
    stop = threading.Event()
    assert share_out([1, 2, 3], [sum], stop) == [6]
    assert not stop.is_set()


def test_there_may_be_nothing_to_do() -> None:
    assert share_out([], [], threading.Event()) == []
