"""Workloads in which other things than syncs change blocks of which the log may have copies."""

import random
from collections.abc import Callable, Mapping
from itertools import count

from fastsync_lab.crash.logged import (
    OTHER,
    PREFIX,
    THRESHOLD,
    commit,
    evict,
    settle,
    start,
    sync,
    write_back,
)
from fastsync_lab.crash.naming import FAST, target
from fastsync_lab.crash.script import (
    ALLOCATE,
    BLOCK,
    PREALLOCATE,
    PUNCH,
    SYNCS,
    ZERO_RANGE,
    Script,
)

FREE_BYTES = 260 * BLOCK  # with fewer, ext4 does not delay allocation


def direct(rng: random.Random) -> Script:
    """O_DIRECT over blocks that were logged; each file once, for it is not logged any more then."""
    script = start({"old": 8})
    for number in range(14):
        path = rng.choice(["old", f"n{number}", f"n{number}"])
        blocks = 8 if path == "old" else rng.randint(1, 4)
        if path == "old":
            for block in (1, 3, 6):
                script.do("write", path, block * BLOCK, BLOCK)
        else:
            script.file(path, blocks * BLOCK)
        script.do(rng.choice(SYNCS), path)
        if rng.random() < 0.3:
            write_back(script, path)
        settle(script, rng)
        script.do("dwrite", path, rng.randrange(blocks) * BLOCK, BLOCK)
        script.do("fdatasync", path)
        if rng.random() < 0.5:
            script.do("write", path, rng.randrange(blocks) * BLOCK, 1000)
            script.do("fsync", path)
        if rng.random() < 0.5:
            evict(script)
        commit(script, number)
    return script


def cut(rng: random.Random) -> Script:
    """Files that are cut back, within a block or between two, and grow again."""
    script = start({})
    for number in range(14):
        path = f"n{number}"
        blocks = rng.randint(1, 4)
        size = blocks * BLOCK - rng.choice([0, 96])
        script.file(path, size)
        script.do(rng.choice(SYNCS), path)
        settle(script, rng)
        if rng.random() < 0.3:
            write_back(script, path)
        size = rng.choice([0, (blocks - 1) * BLOCK, size - 1000, size - 3000])
        script.do("truncate", path, size)
        if rng.random() < 0.3:
            commit(script, number)
        size += rng.choice([500 + number, 2 * BLOCK + number])
        if rng.random() < 0.6:
            script.do("truncate", path, size)
        else:
            script.do("write", path, size - 200, 200)
        if rng.random() < 0.3:
            sync(script, rng, path)
        commit(script, number + 1)
    return script


def reuse(rng: random.Random) -> Script:
    """Files go, and others get their blocks, on a file system that is nearly full."""
    script = Script()
    script.file(OTHER, 0)
    script.file("filler", 0)
    script.do("fill", "filler", FREE_BYTES)
    script.begin()
    small: list[str] = []
    large: list[str] = []
    for number in range(40):
        path = f"s{number}"
        script.file(path, rng.randint(1, 4) * BLOCK)
        script.do(rng.choice(SYNCS), path)
        small.append(path)
        if rng.random() < 0.2:
            script.do("write", path, 0, BLOCK)
            write_back(script, path)
        while len(small) > rng.randrange(3):
            gone = small.pop(rng.randrange(len(small)))
            if rng.random() < 0.3:
                script.do("truncate", gone, 0)
            script.do("unlink", gone)
        if len(large) > rng.randint(0, 4):
            script.do("unlink", large.pop(0))
        if rng.random() < 0.7:
            commit(script, number)
        path = f"l{number}"
        script.file(path, rng.randint(9, 18) * BLOCK)  # in place
        script.do(rng.choice(SYNCS), path)
        large.append(path)
        settle(script, rng, 0.04)
    return script


def remove_links(script: Script, rng: random.Random, links: list[str]) -> None:
    """The oldest symlinks go, or a newer one takes their place."""
    while len(links) > rng.randint(1, 3):
        gone = links.pop(0)
        if rng.random() < 0.5:
            script.do("unlink", gone)
        else:
            script.do("rename", links.pop(), gone)
            links.append(gone)


def without_name(script: Script, rng: random.Random, number: int) -> list[str]:
    """A synced file of O_TMPFILE; the names that it then gets, one or none."""
    path, handle = f"n{number}", f"@{number}"
    script.do("tmpfile", "d", handle)
    script.do("write", handle, 0, rng.choice([700, BLOCK, 4120, 3 * BLOCK]))
    script.do(rng.choice(SYNCS), handle)
    named = rng.random() < 0.6
    if named:
        script.do(rng.choice(["link", "linkfd"]), handle, path)
        script.do(*rng.choice([("fsync", handle), ("fdatasync", path), ("fsync", "d")]))
    script.do("close", handle)
    return [path] if named else []


def exchange(script: Script, rng: random.Random, files: list[str]) -> None:
    """Two files are written, exchange their names, and one is written again and synced."""
    first, second = rng.sample(files, 2)
    for path in (first, second):
        script.do("write", path, 0, rng.choice([700, BLOCK]))
        script.do(rng.choice(SYNCS), path)
    script.do("exchange", first, second)
    if rng.random() < 0.6:
        script.do("write", first, 0, BLOCK)
    script.do("fsync", rng.choice([first, second]))


def names(rng: random.Random) -> Script:
    """Long symlinks go, and files that had no name, and others get their blocks; see `reuse`.

    Files exchange their names between syncs.
    """
    script = Script(moves=("data_blocks",))
    script.file(OTHER, 0)
    script.do("mkdir", "d")
    script.file("filler", 0)
    script.do("fill", "filler", FREE_BYTES)
    files, links = ["a", "b"], ["l"]
    for path in files:
        script.file(path, 2 * BLOCK)
    script.do("symlink", target(0, FAST + 1), "l")
    script.begin()
    for number in range(12):
        links.append(f"l{number}")
        script.do("symlink", target(number, rng.choice([FAST + 1, 180])), links[-1])
        if rng.random() < 0.6:
            commit(script, number)
        remove_links(script, rng, links)
        files += without_name(script, rng, number)
        if rng.random() < 0.5:
            exchange(script, rng, files)
        large = f"w{number}"
        script.file(large, rng.randint(9, 18) * BLOCK)  # in place
        script.do(rng.choice(SYNCS), large)
        script.do("unlink", large if rng.random() < 0.5 or len(files) < 4 else files.pop(0))
        settle(script, rng)
    return script


def replace(rng: random.Random) -> Script:
    """Files and folders that are written, synced and renamed over others."""
    script = start({"kept": 2})
    names = count()
    for number in range(10):
        path = f"n{next(names)}"
        script.file(path, rng.choice([700, 5000, 12000]))
        script.do(rng.choice(SYNCS), path)
        settle(script, rng)
        script.do("rename", path, "kept")
        if rng.random() < 0.5:
            script.do("write", "kept", 0, 600)
            script.do(rng.choice(SYNCS), "kept")
        if rng.random() < 0.5:
            folder, empty = f"d{next(names)}", f"d{next(names)}"
            script.do("mkdir", folder)
            script.do("mkdir", empty)
            script.file(f"{folder}/in", 4120)
            script.do("fsync", f"{folder}/in")
            script.do("rename", folder, empty)
            script.do("fsync", rng.choice([empty, f"{empty}/in"]))
            script.do("write", f"{empty}/in", 4120, 4120)
            script.do("fdatasync", f"{empty}/in")
        commit(script, number)
    return script


def race(rng: random.Random) -> Script:
    """One thread has the log settled, the others sync, cut and remove files meanwhile."""
    script = start({})
    for number in range(8):
        script.file(f"wide{number}", 45 * BLOCK)
        script.do("create", f"own{number}")
    script.begin()
    for number in range(8):
        wide, own = f"wide{number}", f"own{number}"
        script.do("write", own, 0, 3 * BLOCK)
        for first in range(0, 45, 21):
            for block in range(first, first + 21, 3):
                script.do("write", wide, block * BLOCK, BLOCK)
            script.do("fdatasync", wide)
        script.do("fsync", own)
        script.do("falloc", wide, ZERO_RANGE, 0, BLOCK, thread=1)
        script.do("sleep", rng.choice([500, 2000, 4000, 6000, 8000, 10000, 13000]), thread=2)
        script.do(*rng.choice([("unlink", own), ("truncate", own, 0), ("truncate", own, BLOCK)]),
                  thread=2)  # fmt: skip
        script.do("write", OTHER, number * BLOCK, BLOCK, thread=3)
        script.do("fsync", OTHER, thread=3)
        script.do("sleep", 1000)
        commit(script, number)
    return script


def vanish(rng: random.Random) -> Script:
    """Data alone in the log, as of `still`, of files that go while it settles."""
    waits = [200, 500, 900, 1300, 1700, 2500]  # us, until it has begun to write
    script = start({"f": 1})
    for number, wait in enumerate(waits):
        own = f"own{number}"
        for first in range(0, 56, THRESHOLD):
            script.do("write", "f", (1 + number * 60 + first) * BLOCK, THRESHOLD * BLOCK)
            script.do("fsync", "f")
        script.file(own, 8 * BLOCK)
        script.do("fsync", own)
        script.file(f"more{number}", BLOCK)
        script.do("fsync", f"more{number}")
        script.do("sync")  # writes all in place, and settles nothing
        for block in range(1, 56, 2):
            script.do("write", "f", (number * 60 + block) * BLOCK, BLOCK)
        for block in (0, 2):
            script.do("write", own, block * BLOCK, BLOCK)
        script.do("fdatasync", own, thread=1)  # too many copies: they settle
        script.do("sleep", wait + rng.randrange(100), thread=2)
        script.do(*rng.choice([("unlink", own), ("truncate", own, 0)]), thread=2)
        script.do("sleep", 40_000)
    return script


def space(rng: random.Random) -> Script:
    """Blocks that are allocated between write and sync, zeroed, punched or moved under copies."""
    script = start({"old": 16})
    for number in range(14):
        path = rng.choice(["old", f"n{number}", f"n{number}"])
        if path == "old":
            for block in rng.sample(range(16), 2):
                script.do("write", path, block * BLOCK, BLOCK)
        else:
            script.file(path, 0)
            script.do("write", path, rng.randint(0, 3) * BLOCK, rng.choice([BLOCK, 3 * BLOCK]))
        before = rng.random() < 0.5
        if before:
            sync(script, rng, path)
        mode = rng.choice([ALLOCATE, ALLOCATE, PREALLOCATE, ZERO_RANGE | 1, PUNCH])
        offset = rng.choice([0, BLOCK, 500])
        script.do("falloc", path, mode, offset, rng.choice([3, 6, 12]) * BLOCK)
        script.do("write", path, rng.randint(0, 3) * BLOCK, rng.choice([900, BLOCK]))
        if rng.random() < 0.3:
            write_back(script, path)
        if rng.random() < 0.8 or not before:
            sync(script, rng, path)
        settle(script, rng)
        commit(script, number)
    return script


def toggle(rng: random.Random) -> Script:
    """The option goes and comes back between writes and syncs."""
    script = start({"old": 8})
    script.file("log", 0)
    script.begin()
    size = 0
    for number in range(24):
        if rng.random() < 0.5:
            script.do("write", "log", size, 4120)
            size += 4120
            path = "log"
        else:
            path = "old"
            for block in rng.sample(range(8), 2):
                script.do("write", path, block * BLOCK, BLOCK)
        if rng.random() < 0.4:
            options = ("un_eager_sync", "eager_sync", f"eager_sync={THRESHOLD}", "eager_sync=1")
            script.do("remount", rng.choice(options))
        sync(script, rng, path)
        if rng.random() < 0.3:
            write_back(script, path)
        settle(script, rng)
        if rng.random() < 0.3:
            commit(script, number)
    return script


# Of an option that stock does not know.
TOGGLING = f"{PREFIX}{toggle.__name__}"
FUNCTIONS = (direct, cut, reuse, names, replace, race, vanish, space, toggle)
GENERATORS: Mapping[str, Callable[[random.Random], Script]] = {
    f"{PREFIX}{function.__name__}": function for function in FUNCTIONS
}
