"""Workloads for what eager_sync logs of files' data: small syncs of all sorts, and write-back.

In the eager modes they run with a threshold of THRESHOLD pages, so that some syncs are too large.
Copies settle after 5 s, or when there are 64 of them, the log being of 1024 blocks.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

from fastsync_lab.crash.generated import Folder, random_step
from fastsync_lab.crash.script import (
    BLOCK,
    PREALLOCATE,
    SYNCS,
    Script,
    pause,
    sync_now_and_then,
)

PREFIX = "logged-"
THRESHOLD = 8
OTHER = "other"  # a file whose fsync commits what the others have left
SETTLES_US = 5_300_000
DROP_CACHES = "/proc/sys/vm/drop_caches"


def start(files: Mapping[str, int], *moves: str) -> Script:
    """Files of so many blocks, all in their places, and the one that commits.

    `moves`: see Script, besides that data are logged.
    """
    script = Script(moves=("data_blocks", *moves))
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
    call = rng.choice([*SYNCS, "fdatasync", "sync", "syncfs"])
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


def ahead(rng: random.Random) -> Script:
    """Logs that are open while they grow; others get what they have not used, or preallocate it."""
    script = start({}, "blocks_ahead")
    sizes = {"log": 0, "book": 0}
    for path in sizes:
        script.do("create", path)
        script.do("hold", path)
    script.begin()
    for number in range(44):
        path = rng.choice(list(sizes))
        call = rng.choice(
            ["append"] * 7 + ["close", "truncate", "longer", "longer", "preallocate", "other"]
        )
        if call == "close":
            script.do("close", path)
        elif call == "truncate":
            sizes[path] = rng.choice([0, sizes[path] // 2])
            script.do("truncate", path, sizes[path])
        elif call == "longer":
            sizes[path] += rng.choice([1000, 3 * BLOCK])
            script.do("truncate", path, sizes[path])
            sync_now_and_then(script, rng, path)
        elif call == "preallocate":
            offset = (sizes[path] // BLOCK + rng.choice([0, 1, 20])) * BLOCK
            script.do("falloc", path, PREALLOCATE, offset, rng.choice([1, 5, 60]) * BLOCK)
        if call in ("close", "other"):  # who may get what was not used
            script.file(f"n{number}", rng.choice([1, 20]) * BLOCK)
            script.do(rng.choice(SYNCS), f"n{number}")
        for _ in range(rng.randint(1, 4)):
            # Whole blocks: an append that ends in the block it begins in is no growth for them.
            whole = BLOCK - sizes[path] % BLOCK
            length = rng.choice([whole, whole, whole, whole, 4120, 300, 9000])
            script.do("write", path, sizes[path], length)
            sizes[path] += length
            if rng.random() < 0.15:
                write_back(script, path)
            sync_now_and_then(script, rng, path, share=0.9)
        if call == "close":
            script.do("hold", path)
        if rng.random() < 0.1:
            evict(script)
        settle(script, rng)
    return script


def write_and_sync(
    script: Script, rng: random.Random, path: str, blocks: Iterable[int], *, written_back: float
) -> None:
    """Write these blocks, or a part of each, and sync them; so often write-back comes before."""
    for block in blocks:
        offset, length = rng.choice([(0, BLOCK), (0, BLOCK), (700, 1000)])
        script.do("write", path, block * BLOCK + offset, length)
    if rng.random() < written_back:
        write_back(script, path)
    script.do(rng.choice(["fsync", "fdatasync"]), path)
    pause(script, rng)
    settle(script, rng)


def scatter(rng: random.Random) -> Script:
    """Blocks far apart that one sync makes durable; now and then more than are logged."""
    script = start({"f": 64, "g": 64})
    for number in range(26):
        path = rng.choice(["f", "f", "g"])
        if number % 7 == 0:  # of these blocks the log has copies
            path = f"n{number}"
            script.do("create", path)
            for first in range(0, 40, THRESHOLD):
                script.do("write", path, first * BLOCK, THRESHOLD * BLOCK)
                script.do("fdatasync", path)
        elif number % 7 < 4:
            path = f"n{number // 7 * 7}"
        large = rng.random() < 0.25
        blocks = rng.randint(9, 14) if large else rng.randint(2, 5)
        write_and_sync(script, rng, path, rng.sample(range(0, 40, 2), blocks), written_back=0.2)
    return script


def holes(rng: random.Random) -> Script:
    """A few blocks by each sync in holes of files that do not grow."""
    script = start({"f": 2, "g": 2})
    for path in ("f", "g"):
        script.do("truncate", path, 48 * BLOCK)
        script.do("fsync", path)
    for _ in range(30):
        path = rng.choice(["f", "f", "g"])
        blocks = rng.sample(range(2, 48), rng.randint(1, 4))
        write_and_sync(script, rng, path, blocks, written_back=0.1)
    return script


def churn(rng: random.Random) -> Script:
    """Many small syncs in little time, and cold data among them. The log goes round twice."""
    script = start({}, "settlings_filling")
    for path, size in {"hot": 4, "warm": 8, "cold": 24}.items():
        script.do("create", path)
        for first in range(0, size, THRESHOLD):
            script.do("write", path, first * BLOCK, min(size - first, THRESHOLD) * BLOCK)
            script.do("fdatasync", path)
    for number in range(450):
        path = rng.choice(["hot"] * 5 + ["warm"])
        first = rng.randrange(2)
        script.do("write", path, first * BLOCK, BLOCK)
        script.do("write", path, (first + 2) * BLOCK, 1000)
        if number % 13 == 0:
            for block in rng.sample(range(0, 24, 2), 3):
                script.do("write", "cold", block * BLOCK, BLOCK)
            script.do("fdatasync", "cold")
        script.do(rng.choice(["fdatasync", "fdatasync", "fsync"]), path)
    return script


def new_blocks(script: Script, path: str, first: int, count: int = 60) -> None:
    """Blocks that are logged, fewer than are settled at once, and their metadata in its place."""
    for block in range(first, first + count, THRESHOLD):
        length = min(THRESHOLD, first + count - block)
        script.do("write", path, block * BLOCK, length * BLOCK)
        script.do("fsync", path)
    script.do("sync")  # writes all in place, and settles nothing


def scattered_syncs(script: Script, path: str, places: Sequence[int]) -> None:
    """Overwrite blocks that do not adjoin, some by each fdatasync."""
    for first in range(0, len(places), THRESHOLD):
        for block in places[first : first + THRESHOLD]:
            script.do("write", path, block * BLOCK, BLOCK)
        script.do("fdatasync", path)


def still(rng: random.Random) -> Script:
    """Blocks of which the log has copies, and nothing but fdatasync: with lazy stamps, data alone.

    So settling has no metadata to write behind the data, which it would wait for, too.
    """
    script = start({"f": 1})
    for number in range(4):
        new_blocks(script, "f", 1 + number * 60)
        places = [1 + number * 60 + block for block in range(0, 60, 2)]
        rng.shuffle(places)
        scattered_syncs(script, "f", places)
        script.do("sleep", SETTLES_US)
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
    script = start({"f": 8})
    script.file("kept", 4 * BLOCK)
    script.do("fsync", "kept")
    script.do("mkeep", "kept", 4 * BLOCK)
    for block in (0, 2, 0, 2, 2):
        script.do("kstore", "kept", block * BLOCK, BLOCK)
        script.do("fsync", "kept")
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
            size_of_it = 2 * BLOCK + 1000
            script.file(path, size_of_it)
            script.do("fsync", path)
            script.do("mspill", path, size_of_it, 3000)
            script.do("write", path, 10, 50)
            script.do("fsync", path)
            script.do("truncate", path, size_of_it + 2500 + number)
            commit(script, number)
        settle(script, rng)
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


FUNCTIONS = (append, ahead, scatter, holes, churn, still, rewrite, mapped, mix)
GENERATORS: Mapping[str, Callable[[random.Random], Script]] = {
    f"{PREFIX}{function.__name__}": function for function in FUNCTIONS
}
