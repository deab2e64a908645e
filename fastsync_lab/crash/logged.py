"""Workloads that mix what eager_sync logs of files' data with all that else changes their blocks.

In the eager modes they run with a threshold of THRESHOLD pages, so that some syncs are too large.
Copies settle after 5 s, or when there are 64 of them, the log being of 1024 blocks.
"""

import random
from collections.abc import Callable, Mapping
from itertools import count

from fastsync_lab.crash.generated import Folder, random_step
from fastsync_lab.crash.script import (
    ALLOCATE,
    BLOCK,
    PREALLOCATE,
    PUNCH,
    SYNCS,
    ZERO_RANGE,
    Script,
    pause,
    sync_now_and_then,
)

PREFIX = "logged-"
THRESHOLD = 8
OTHER = "other"  # a file whose fsync commits what the others have left
SETTLES_US = 5_300_000
DROP_CACHES = "/proc/sys/vm/drop_caches"


def start(files: Mapping[str, int]) -> Script:
    """Files of so many blocks, all in their places, and the one that commits."""
    script = Script()
    script.file(OTHER, 0)
    for path, blocks in files.items():
        script.file(path, blocks * BLOCK)
    script.begin()
    return script


def settle(script: Script, rng: random.Random, share: float = 0.1) -> None:
    """Now and then, let the time pass after which copies are settled, or nearly."""
    if rng.random() < share:
        script.do("sleep", rng.choice([SETTLES_US, SETTLES_US, SETTLES_US // 2]))


def commit(script: Script, number: int) -> None:
    """Commit the running transaction for the sake of another file."""
    script.do("chmod", OTHER, f"0{600 + number % 8 * 10}")
    script.do("fsync", OTHER)


def sync(script: Script, rng: random.Random, path: str) -> None:
    """Any call that makes a file's data durable."""
    call = rng.choice([*SYNCS, *SYNCS, "fdatasync", "sync", "syncfs"])
    script.do(call, *([] if call == "sync" else [path]))


def write_back(script: Script, path: str) -> None:
    """As the flusher does it."""
    script.do("writeback", path, 0, 0)


def evict(script: Script) -> None:
    """Pages that are clean go, and inodes that have no others."""
    script.do("put", DROP_CACHES, 3)


def append(rng: random.Random) -> Script:
    """Logs of records that do not fill blocks."""
    script = start({})
    sizes = {"log": 0, "book": 0}
    for path in sizes:
        script.file(path, 0)
    script.begin()
    for _ in range(36):
        path = rng.choice(list(sizes))
        length = rng.choice([4120, 4120, 300, 1000, BLOCK, 9000])
        script.do("write", path, sizes[path], length)
        sizes[path] += length
        if rng.random() < 0.2:
            write_back(script, path)
        sync_now_and_then(script, rng, path, share=0.9)
        if rng.random() < 0.2:
            write_back(script, path)
        if rng.random() < 0.1:
            evict(script)
        settle(script, rng)
    return script


def scatter(rng: random.Random) -> Script:
    """Blocks far apart that one sync makes durable; now and then more than are logged."""
    script = start({"f": 64, "g": 64})
    for _ in range(26):
        path = rng.choice(["f", "f", "g"])
        large = rng.random() < 0.25
        blocks = rng.randint(9, 14) if large else rng.randint(2, 5)
        for block in rng.sample(range(0, 64, 3), blocks):
            offset, length = rng.choice([(0, BLOCK), (0, BLOCK), (700, 1000)])
            script.do("write", path, block * BLOCK + offset, length)
        if rng.random() < 0.2:
            write_back(script, path)
        script.do(rng.choice(["fsync", "fdatasync"]), path)
        pause(script, rng)
        settle(script, rng)
    return script


def churn(rng: random.Random) -> Script:
    """Many small syncs in little time: more than the log has room for, and cold data among them."""
    script = start({"cold": 40, "hot": 4, "warm": 8})
    for number in range(150):
        path = rng.choice(["hot"] * 5 + ["warm"])
        first = rng.randrange(2)
        script.do("write", path, first * BLOCK, BLOCK)
        script.do("write", path, (first + 2) * BLOCK, 1000)
        if number % 13 == 0:
            for block in rng.sample(range(0, 40, 2), 3):
                script.do("write", "cold", block * BLOCK, BLOCK)
            script.do("fdatasync", "cold")
        script.do(rng.choice(["fdatasync", "fdatasync", "fsync"]), path)
    return script


def rewrite(rng: random.Random) -> Script:
    """Blocks that are new and synced, written again, and by write-back, before the next sync."""
    script = start({})
    for number in range(12):
        path = f"n{number}"
        blocks = rng.randint(1, 4)
        script.file(path, blocks * BLOCK)
        script.do(rng.choice(SYNCS), path)
        for _ in range(rng.randint(1, 3)):
            settle(script, rng, 0.15)
            script.do("write", path, rng.randrange(blocks) * BLOCK, rng.choice([500, BLOCK]))
            if rng.random() < 0.7:
                write_back(script, path)
            if rng.random() < 0.3:
                evict(script)
            if rng.random() < 0.8:
                sync(script, rng, path)
        commit(script, number)
    return script


def mapped(rng: random.Random) -> Script:
    """Stores to old blocks, new ones and behind the end, through mappings that go or stay."""
    script = start({"f": 8, "kept": 4})
    script.do("mkeep", "kept", 4 * BLOCK)
    size = 8 * BLOCK
    for number in range(22):
        call = rng.choice(["store", "hole", "kept", "kept", "spill", "write"])
        if call == "kept":
            block = rng.randrange(4)
            script.do("kstore", "kept", block * BLOCK, rng.choice([200, BLOCK]))
            if rng.random() < 0.5:
                script.do("kstore", "kept", (block + 2) % 4 * BLOCK, BLOCK)
            script.do(rng.choice(SYNCS), "kept")
        elif call == "store":
            block = rng.randrange(8)
            script.do("mstore", "f", block * BLOCK, BLOCK)
            script.do("msync", "f", block * BLOCK, BLOCK)
        elif call == "hole":
            script.do("truncate", "f", size + 5 * BLOCK)
            script.do("mstore", "f", size + 2 * BLOCK, 2 * BLOCK)
            size += 5 * BLOCK
            script.do(rng.choice(["fsync", "fdatasync"]), "f")
        elif call == "write":
            script.do("write", "f", size - 2 * BLOCK, BLOCK)
            sync_now_and_then(script, rng, "f")
        else:
            path = f"n{number}"
            script.file(path, 1000)
            script.do("mspill", path, 1000, 3000)
            script.do("write", path, 10, 50)
            script.do("fsync", path)
            script.do("truncate", path, 3900 + number)
            commit(script, number)
        settle(script, rng)
    return script


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


FREE_BLOCKS = 260  # with fewer, ext4 does not delay allocation


def reuse(rng: random.Random) -> Script:
    """Files go, and others get their blocks, on a file system that is nearly full."""
    script = Script()
    script.file(OTHER, 0)
    script.file("filler", 0)
    script.do("fill", "filler", FREE_BLOCKS)
    script.begin()
    names: list[str] = []
    for number in range(30):
        path = f"n{number}"
        blocks = rng.choice([1, 2, 4, 7, 12, 16])
        script.file(path, blocks * BLOCK)
        script.do(rng.choice(SYNCS), path)
        names.append(path)
        if rng.random() < 0.3:
            script.do("write", path, 0, BLOCK)
            write_back(script, path)
        while len(names) > 5 or (names and rng.random() < 0.5):
            gone = names.pop(rng.randrange(len(names)))
            if rng.random() < 0.3:
                script.do("truncate", gone, 0)
            script.do("unlink", gone)
        if rng.random() < 0.7:
            commit(script, number)
        settle(script, rng, 0.07)
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


def mix(rng: random.Random) -> Script:
    """All of it, at random."""
    script = Script()
    folder = Folder(script, rng, "")
    for size in (0, 3 * BLOCK, 50000):
        folder.create(size)
    script.begin()
    for _ in range(70):
        path = folder.pick()
        call = rng.choice(["any", "any", "append", "append", "writeback", "evict", "unlink"])
        if call == "append":
            folder.write("write", path, folder.sizes[path][0], rng.choice([300, 4120, 10000]))
        elif call == "writeback":
            write_back(script, path)
        elif call == "evict":
            evict(script)
        elif call == "unlink" and len(folder.sizes) > 3:
            folder.unlink(path)
        else:
            random_step(folder)
        settle(script, rng, 0.07)
        if rng.random() < 0.7:
            sync(script, rng, folder.pick() if path not in folder.sizes else path)
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
FUNCTIONS = (
    *(append, scatter, churn, rewrite, mapped, direct, cut, reuse, replace, race, space, toggle),
    mix,
)
GENERATORS: Mapping[str, Callable[[random.Random], Script]] = {
    f"{PREFIX}{function.__name__}": function for function in FUNCTIONS
}
