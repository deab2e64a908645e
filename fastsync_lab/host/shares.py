"""Work for several threads: each takes a share, and another when it is done with that one."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

S = TypeVar("S")
R = TypeVar("R")


def share_out(
    shares: Sequence[S],
    takers: Sequence[Callable[[Iterator[S]], R]],
    stop: threading.Event,
) -> list[R]:
    """What the takers return, in their order; each runs in a thread and iterates over its shares.

    When one of them raises, or this thread is interrupted, `stop` is set, no more shares are given
    out, and it is raised again once all have ended. Takers that work long look at `stop` as well.
    """
    left = deque(shares)

    def given() -> Iterator[S]:
        while not stop.is_set():
            try:
                yield left.popleft()  # two threads never get the same one
            except IndexError:
                return

    with ThreadPoolExecutor(len(takers) or 1) as pool:
        futures = [pool.submit(taker, given()) for taker in takers]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            stop.set()
            raise
    return [future.result() for future in futures]
