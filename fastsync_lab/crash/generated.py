"""Sequences of operations that are drawn at random, or of which all are tried."""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from fastsync_lab.crash.script import (
    ALLOCATE,
    BLOCK,
    PREALLOCATE,
    PUNCH,
    SYNCS,
    ZERO_RANGE,
    Script,
    attribute_change,
    pause,
    space_change,
    span,
)

TRIPLES = 100


@dataclass
class Folder:
    """What a generated sequence of operations knows of its files: the size of each, by its name."""

    script: Script
    rng: random.Random
    prefix: str
    sizes: dict[str, list[int]] = field(default_factory=dict)  # shared by links
    made: int = 0

    def new_name(self) -> str:
        """A name that was never used."""
        self.made += 1
        return f"{self.prefix}n{self.made}"

    def create(self, size: int) -> str:
        """A new file."""
        path = self.new_name()
        self.script.file(path, size)
        self.sizes[path] = [size]
        return path

    def pick(self) -> str:
        """One of the files."""
        return self.rng.choice(list(self.sizes))

    def write(self, call: str, path: str, offset: int, length: int) -> None:
        """A write of any kind, which may extend the file."""
        self.script.do(call, path, offset, length)
        self.sizes[path][0] = max(self.sizes[path][0], offset + length)

    def rename(self, old: str, new: str) -> None:
        """A rename, maybe over another file."""
        self.script.do("rename", old, new)
        self.sizes[new] = self.sizes.pop(old)

    def link(self, path: str) -> str:
        """Another name for a file."""
        new = self.new_name()
        self.script.do("link", path, new)
        self.sizes[new] = self.sizes[path]
        return new

    def unlink(self, path: str) -> None:
        """Remove a name."""
        self.script.do("unlink", path)
        del self.sizes[path]


def random_step(folder: Folder) -> None:
    """Any operation on any of the files."""
    rng, script = folder.rng, folder.script
    path = folder.pick()
    size = folder.sizes[path]
    call = rng.choice(
        ["write"] * 4 + ["append"] * 2 + ["owrite", "dwrite", "mstore", "space", "space"]
        + ["attribute"] * 3 + ["create", "rename", "replace", "link", "unlink"]
    )  # fmt: skip
    if call in ("write", "owrite"):
        folder.write(call, path, rng.randrange(max(size[0], 1)), rng.choice([300, 4096, 10000]))
    elif call == "append":
        folder.write("write", path, size[0], rng.choice([300, 4096, 10000]))
    elif call == "dwrite":
        folder.write("dwrite", path, size[0] // BLOCK // 2 * BLOCK, BLOCK)
    elif call == "mstore" and size[0] >= BLOCK:
        script.do("mstore", path, *span(rng, size[0] // BLOCK * BLOCK))
    elif call == "space":
        size[0] = space_change(script, rng, path, size[0])
    elif call == "attribute":
        attribute_change(script, rng, path)
    elif call == "rename":
        folder.rename(path, folder.new_name())
    elif call == "link" and len(folder.sizes) < 12:
        folder.link(path)
    elif call == "unlink" and len(folder.sizes) > 3:
        folder.unlink(path)
    elif call == "replace" and folder.sizes[other := folder.pick()] is not size:
        folder.rename(path, other)
    else:
        folder.create(rng.choice([0, 5000]))


def random_operations(rng: random.Random) -> Script:
    """Sixty random operations in the manner of fsstress, half of them followed by a sync."""
    script = Script()
    folder = Folder(script, rng, "")
    for size in (0, 3 * BLOCK, 50000):
        folder.create(size)
    script.begin()
    for _ in range(60):
        random_step(folder)
        pause(script, rng)
        if rng.random() < 0.5:
            call = rng.choice([*SYNCS, *SYNCS, "syncfs", "sync"])
            script.do(call, *([] if call == "sync" else [folder.pick()]))
    return script


Step = Callable[[Folder, str], None]

ALPHABET: Mapping[str, Step] = {
    "overwrite": lambda folder, a: folder.write("write", a, 0, BLOCK),
    "overwrite in part": lambda folder, a: folder.write("write", a, 1000, 3500),
    "append": lambda folder, a: folder.write("write", a, folder.sizes[a][0], 5000),
    "overwrite directly": lambda folder, a: folder.write("dwrite", a, 0, BLOCK),
    "store": lambda folder, a: folder.write("mstore", a, 100, 800),
    "write O_SYNC": lambda folder, a: folder.write("owrite", a, 2000, 1000),
    "shrink": lambda folder, a: _truncate(folder, a, 1500),
    "grow": lambda folder, a: _truncate(folder, a, folder.sizes[a][0] + 9000),
    "punch": lambda folder, a: folder.script.do("falloc", a, PUNCH, 0, BLOCK),
    "zero": lambda folder, a: folder.script.do("falloc", a, ZERO_RANGE | 1, 500, 2000),
    "preallocate": lambda folder, a: folder.script.do("falloc", a, PREALLOCATE, 16384, 16384),
    "allocate": lambda folder, a: _allocate(folder, a),
    "chmod": lambda folder, a: folder.script.do("chmod", a, "0600"),
    "chown": lambda folder, a: folder.script.do("chown", a, 7, 8),
    "setxattr": lambda folder, a: folder.script.do("setxattr", a, "user.k", "precious"),
    "utimens": lambda folder, a: folder.script.do("utimens", a, 1234567890123456789),
    "rename": lambda folder, a: folder.rename(a, folder.new_name()),
    "replace": lambda folder, a: folder.rename(folder.create(2000), a),
    "link": lambda folder, a: _ignore(folder.link(a)),
    "create": lambda folder, a: _ignore(folder.create(3000)),
}


def _ignore(_name: str) -> None:
    """A step has no result."""


def _truncate(folder: Folder, path: str, size: int) -> None:
    folder.script.do("truncate", path, size)
    folder.sizes[path][0] = size


def _allocate(folder: Folder, path: str) -> None:
    size = folder.sizes[path][0]
    folder.script.do("falloc", path, ALLOCATE, size, 6000)
    folder.sizes[path][0] = size + 6000


def sequences(rng: random.Random) -> Iterator[tuple[str, ...]]:
    """All pairs of operations, and some triples."""
    names = list(ALPHABET)
    yield from ((first, second) for first in names for second in names)
    yield from (tuple(rng.choice(names) for _ in range(3)) for _ in range(TRIPLES))


def bounded(rng: random.Random) -> Script:
    """Short sequences, each in a folder of its own that is removed again: op, op, fsync."""
    script = Script()
    script.begin()
    for number, steps in enumerate(sequences(rng)):
        folder = Folder(script, rng, f"s{number}/")
        script.do("mkdir", f"s{number}")
        path = folder.create(2 * BLOCK)
        script.do("sync")
        script.do("sleep", rng.choice([1000, 20000, 120000]))
        for step in steps:
            before = set(folder.sizes)
            ALPHABET[step](folder, path)
            if path not in folder.sizes:  # renamed
                path = next(iter(folder.sizes.keys() - before))
        script.do(rng.choice(["fsync", "fsync", "fdatasync"]), path)
        for name in list(folder.sizes):
            folder.unlink(name)
        script.do("rmdir", f"s{number}")
    return script
