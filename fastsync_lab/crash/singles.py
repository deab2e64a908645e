"""A workload that makes one change at a time and syncs it at once: nothing else makes it last."""

import random
from collections.abc import Callable, Mapping

from fastsync_lab.crash.script import (
    ALLOCATE,
    BLOCK,
    COLLAPSE,
    INSERT,
    PREALLOCATE,
    PUNCH,
    ZERO_RANGE,
    Script,
)

DATA, HOLE, UNWRITTEN, BEHIND, END = (number * BLOCK for number in (0, 4, 8, 12, 16))

Change = Callable[[Script, str], None]


def write(call: str, offset: int, length: int = BLOCK) -> Change:
    """A write of any kind."""
    return lambda script, path: script.do(call, path, offset, length)


def space(mode: int, offset: int, length: int = 2 * BLOCK) -> Change:
    """A fallocate(2)."""
    return lambda script, path: script.do("falloc", path, mode, offset, length)


def call(*words: object) -> Change:
    """A call with the path first."""
    return lambda script, path: script.do(words[0], path, *words[1:])


CHANGES: Mapping[str, Change] = {
    "overwrite": write("write", DATA),
    "overwrite directly": write("dwrite", DATA),
    "fill a hole": write("write", HOLE),
    "fill a hole in part": write("write", HOLE + 100, 700),
    "fill a hole directly": write("dwrite", HOLE),
    "store to a hole": write("mstore", HOLE),
    "fill a hole by AIO": write("adwrite", HOLE),
    "use unwritten blocks": write("write", UNWRITTEN),
    "use unwritten blocks directly": write("dwrite", UNWRITTEN),
    "use unwritten blocks by a ring": write("rwrite", UNWRITTEN),
    "grow into unwritten blocks": write("write", BEHIND),
    "grow into unwritten blocks directly": write("dwrite", BEHIND),
    "grow": write("write", END, 3000),
    "punch": space(PUNCH, DATA),
    "punch in part": space(PUNCH, DATA + 1000, BLOCK),
    "zero": space(ZERO_RANGE, DATA),
    "zero in part": space(ZERO_RANGE, DATA + 1000, BLOCK),
    "zero a hole": space(ZERO_RANGE, HOLE),
    "zero behind the end": space(ZERO_RANGE, END),
    "allocate a hole": space(ALLOCATE, HOLE),
    "allocate behind the end": space(ALLOCATE, END),
    "preallocate": space(PREALLOCATE, END),
    "take out": space(COLLAPSE, DATA),
    "take in": space(INSERT, DATA),
    "cut": call("truncate", 1500),
    "lengthen": call("truncate", END + 100),
    "chmod": call("chmod", "0600"),
    "chown": call("chown", 7, 8),
    "setxattr": call("setxattr", "user.k", "precious"),
    "setxattr of many bytes": call("setxattr", "user.k", "precious" * 20),
    "utimens": call("utimens", 1234567890123456789),
}
SYNCS = ("fdatasync", "fsync")


def lay_out(script: Script, path: str) -> None:
    """A file with data, a hole, unwritten blocks, and unwritten blocks behind its end."""
    script.file(path, DATA + 4 * BLOCK)
    script.do("falloc", path, ALLOCATE, UNWRITTEN, BEHIND - UNWRITTEN)
    script.do("falloc", path, PREALLOCATE, BEHIND, END - BEHIND)


def one_by_one(rng: random.Random) -> Script:
    """Each kind of change of a file, each with a sync of its own, in any order; and new files."""
    script = Script()
    steps = [(name, sync) for name in [*CHANGES, "create"] for sync in SYNCS]
    rng.shuffle(steps)
    for number, (name, _) in enumerate(steps):
        if name in CHANGES:
            lay_out(script, f"f{number}")
    script.begin()
    for number, (name, sync) in enumerate(steps):
        path = f"f{number}"
        if name in CHANGES:
            CHANGES[name](script, path)
        else:
            script.do("create", path)
        script.do(sync, path)
    return script
