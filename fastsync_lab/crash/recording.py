"""What a workload has left: the log of its writes, and the image that it starts from."""

import mmap
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fastsync_lab.crash.flight import parse_flights
from fastsync_lab.crash.log import Event, parse_log
from fastsync_lab.crash.states import State, apply_writes, durable_writes

PAGE = 4096
CHUNK_PAGES = 256  # as much as a processor's cache holds


@dataclass(frozen=True)
class Recording:
    """A log, the image that it starts from, and what had returned when.

    Of the recovery of a state, `returned` is what had returned at the first cut.
    """

    folder: Path
    base: bytes
    log: bytes
    events: list[Event]
    prefix: str = ""
    returned: frozenset[int] | None = None

    def acknowledged(self, state: State) -> frozenset[int]:
        """What had returned before the cut."""
        if self.returned is not None:
            return self.returned
        return self.events[state.event].acknowledged

    def images(self, states: Iterable[State]) -> Iterator[bytearray]:
        """What is on the medium, of states in the order of their events.

        It is one array, which changes from state to state: nobody keeps it, nobody writes to it.
        """
        image = bytearray(self.base)
        applied = 0
        for state in states:
            apply_writes(image, durable_writes(self.events, applied, state.event), self.log)
            applied = state.event
            before = [bytes(image[write.start : write.end]) for write in state.extra]
            apply_writes(image, state.extra, self.log)
            yield image
            for write, data in zip(state.extra, before, strict=True):
                image[write.start : write.end] = data


def load_recording(folder: Path) -> Recording:
    """What the guest left in a folder."""
    log = (folder / "log").read_bytes()
    events = parse_log(log, parse_flights((folder / "bios").read_text()))
    return Recording(folder, (folder / "base.img").read_bytes(), log, events)


def page_of(image: bytearray, number: int) -> bytearray:
    """One of its pages."""
    return image[number * PAGE : (number + 1) * PAGE]


class ImageFile:
    """A file that programs of the host read and change, as memory. It is made if it is not there.

    put() writes no page that is there already, for that takes longer than to look.
    """

    def __init__(self, path: Path, size: int) -> None:
        with path.open("a+b") as file:
            file.truncate(size)
            self.contents = mmap.mmap(file.fileno(), size)

    def put(self, data: bytes | bytearray) -> None:
        """This is in the file now."""
        import numpy as np  # to import it takes a tenth of a second; most commands do without

        there, new = (
            np.frombuffer(one, np.uint64).reshape(-1, PAGE // 8) for one in (self.contents, data)
        )
        for start in range(0, len(new), CHUNK_PAGES):
            part = slice(start, start + CHUNK_PAGES)
            differing = there[part] != new[part]
            if differing.any():
                pages = differing.any(axis=1)
                there[part][pages] = new[part][pages]


def memory_dir() -> Path | None:
    """Where images and databases are made and read: in memory, for programs sync what they write.

    None: there is no such place, so where other temporary files are.
    """
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else None


def write_sparse(path: Path, image: bytes | bytearray) -> None:
    """Write a file whose blocks of zeros take no room."""
    empty = bytes(PAGE)
    with path.open("wb") as file:
        file.truncate(len(image))
        for start in range(0, len(image), PAGE):
            if image[start : start + PAGE] != empty:
                file.seek(start)
                file.write(image[start : start + PAGE])
