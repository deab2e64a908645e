"""What a workload has left: the log of its writes, and the image that it starts from."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fastsync_lab.crash.log import Event, parse_log
from fastsync_lab.crash.states import State, apply_writes, durable_writes

PAGE = 4096


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
        """What is on the medium, of states in the order of their events."""
        durable = bytearray(self.base)
        applied = 0
        for state in states:
            apply_writes(durable, durable_writes(self.events, applied, state.event), self.log)
            applied = state.event
            image = bytearray(durable)
            apply_writes(image, state.extra, self.log)
            yield image


def load_recording(folder: Path) -> Recording:
    """What the guest left in a folder."""
    log = (folder / "log").read_bytes()
    return Recording(folder, (folder / "base.img").read_bytes(), log, parse_log(log))


def write_sparse(path: Path, image: bytes | bytearray) -> None:
    """Write a file whose blocks of zeros take no room."""
    empty = bytes(PAGE)
    with path.open("wb") as file:
        file.truncate(len(image))
        for start in range(0, len(image), PAGE):
            if image[start : start + PAGE] != empty:
                file.seek(start)
                file.write(image[start : start + PAGE])
