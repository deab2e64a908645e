"""What the program that runs a workload is given to read, and pieces that workloads have in common.

A script begins with files that are synced; states are made of what comes after that.
"""

import random
from dataclasses import dataclass, field

BLOCK = 4096
DEVICE_MIB = 12
PUNCH, ZERO_RANGE, ALLOCATE, PREALLOCATE = 0x03, 0x10, 0x00, 0x01
COLLAPSE, INSERT = 0x08, 0x20


@dataclass
class Script:
    """Lines for programs/crashops.c or, if `sql`, for programs/crashsql.c.

    With `flushing`, a key of mariadb.FLUSHING, they are for programs/crashmaria.c. The first
    `prepared` lines have returned, and are synced, before the first crash. With eager_sync, `moves`
    are the counters of eager_stats without which it does not do what it is for.
    """

    lines: list[str] = field(default_factory=list)
    prepared: int = 0
    sql: bool = False
    flushing: str = ""
    device_mib: int = DEVICE_MIB
    moves: tuple[str, ...] = ()

    @property
    def program(self) -> str:
        """What runs it."""
        if self.flushing:
            return "crashmaria"
        return "crashsql" if self.sql else "crashops"

    def do(self, *words: object, thread: int = 0) -> None:
        """Add an operation."""
        self.lines.append(" ".join(str(word) for word in (thread, *words)))

    def begin(self) -> None:
        """Sync what there is; crashes happen from here on."""
        self.do("sync")
        self.prepared = len(self.lines)

    def file(self, path: str, size: int, thread: int = 0) -> None:
        """A new file with contents."""
        self.do("create", path, thread=thread)
        if size:
            self.do("write", path, 0, size, thread=thread)

    @property
    def text(self) -> str:
        """The script as the program reads it."""
        return "".join(f"{line}\n" for line in self.lines)


def pause(script: Script, rng: random.Random, thread: int = 0) -> None:
    """Now and then some time passes, so that timestamps and intervals move on."""
    if rng.random() < 0.5:
        script.do("sleep", rng.choice([1000, 6000, 15000, 40000]), thread=thread)


def span(rng: random.Random, size: int) -> tuple[int, int]:
    """Offset and length of a piece of a file, whole blocks or not."""
    if rng.random() < 0.6:
        first = rng.randrange(size // BLOCK)
        return first * BLOCK, BLOCK * rng.randint(1, min(3, size // BLOCK - first))
    offset = rng.randrange(size - 1)
    return offset, rng.randint(1, min(9000, size - offset))


SYNCS = ("fsync", "fsync", "fsync", "fdatasync")


def sync_now_and_then(script: Script, rng: random.Random, path: str, share: float = 0.7) -> None:
    """An fsync or fdatasync, in that share of the calls."""
    if rng.random() < share:
        script.do(rng.choice(SYNCS), path)


def attribute_change(script: Script, rng: random.Random, path: str) -> None:
    """A chmod, chown, xattr or utimensat."""
    call = rng.choice(["chmod"] * 4 + ["chown"] * 2 + ["setxattr"] * 3 + ["utimens"])
    if call == "chmod":
        script.do("chmod", path, f"0{rng.choice([600, 640, 644, 755])}")
    elif call == "chown":
        script.do("chown", path, rng.randint(0, 70000), rng.randint(0, 70000))
    elif call == "setxattr":
        value = f"{rng.getrandbits(32):08x}" * rng.choice([1, 20])
        script.do("setxattr", path, f"user.{rng.choice('ab')}", value)
    else:
        script.do("utimens", path, rng.randint(10**18, 17 * 10**17))


def space_change(script: Script, rng: random.Random, path: str, size: int) -> int:
    """A fallocate or truncate; the new size."""
    call = rng.choice([PUNCH, PUNCH, ZERO_RANGE, ALLOCATE, PREALLOCATE, None])
    if call is None:
        size = rng.choice([0, 1000, size // 2, size, size + 10000])
        script.do("truncate", path, size)
        return size
    offset = rng.randrange(size + BLOCK)
    offset -= offset % rng.choice([1, BLOCK])
    length = rng.choice([1000, BLOCK, 3 * BLOCK])
    script.do("falloc", path, call, offset, length)
    return max(size, offset + length) if call in (ALLOCATE, ZERO_RANGE) else size
