"""What is run before the power fails. A workload is a function from a seed to a script."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from fastsync_lab.crash import logged, logged_blocks
from fastsync_lab.crash.calls import aio, io_uring, remount
from fastsync_lab.crash.databases import SQLITE_MODES, mariadb, sqlite
from fastsync_lab.crash.generated import bounded, random_operations
from fastsync_lab.crash.layouts import inline, move_ext, shift, swap_boot
from fastsync_lab.crash.mariadb import FLUSHING
from fastsync_lab.crash.naming import names, tmpfile
from fastsync_lab.crash.script import (
    BLOCK,
    SYNCS,
    Script,
    attribute_change,
    pause,
    space_change,
    span,
    sync_now_and_then,
)
from fastsync_lab.crash.singles import one_by_one

THREADS = 3


def overwrite(rng: random.Random) -> Script:
    """write and fsync within a file; some writes are O_SYNC or O_DSYNC."""
    script = Script()
    script.file("f", 64 * 1024)
    script.begin()
    for _ in range(40):
        call = rng.choice(["write", "write", "write", "owrite", "odwrite"])
        script.do(call, "f", *span(rng, 64 * 1024))
        pause(script, rng)
        if call == "write":
            sync_now_and_then(script, rng, "f", share=0.8)
    return script


def append(rng: random.Random) -> Script:
    """Two files that grow, as logs do."""
    script = Script()
    sizes = {"log": 0, "other": 5000}
    for path, size in sizes.items():
        script.file(path, size)
    script.begin()
    for _ in range(32):
        path = rng.choice(list(sizes))
        length = rng.choice([100, 512, 3000, 4096, 9000])
        script.do(rng.choice(["write", "write", "write", "owrite"]), path, sizes[path], length)
        sizes[path] += length
        pause(script, rng)
        sync_now_and_then(script, rng, path)
    return script


def create(rng: random.Random) -> Script:
    """Files that are created, renamed, linked and removed; the file or its folder is synced."""
    script = Script()
    script.do("mkdir", "d")
    script.file("d/first", 3000)
    script.begin()
    names = ["d/first"]
    for number in range(24):
        new = f"d/n{number}"
        call = rng.choice(["create", "create", "rename", "replace", "link", "unlink", "symlink"])
        if call == "create" or len(names) < 2:
            script.file(new, rng.choice([0, 700, 6000]))
            names.append(new)
        elif call == "rename":
            script.do("rename", names.pop(rng.randrange(len(names))), new)
            names.append(new)
        elif call == "replace":  # as an editor saves
            script.file(new, 5000)
            script.do("fsync", new)
            script.do("rename", new, names[0])
        elif call == "link":
            script.do("link", rng.choice(names), new)
            names.append(new)
        elif call == "unlink":
            path = names.pop(rng.randrange(1, len(names)))
            if rng.random() < 0.5:
                script.do("hold", path)  # an orphan
            script.do("unlink", path)
        else:
            script.do("symlink", "first", f"d/s{number}")
        pause(script, rng)
        if rng.random() < 0.7:
            script.do("fsync", rng.choice([names[-1], names[-1], "d"]))
    return script


def alike(rng: random.Random) -> Script:
    """The same inodes change, and one of them is synced; now and then all is committed.

    So fast commits have the same form, and one that is torn lies over an older one of that form.
    """
    script = Script()
    paths = [f"f{number}" for number in range(6)]
    for path in paths:
        script.file(path, 700)
    script.begin()
    for number in range(20):
        for path in paths:
            script.do("chmod", path, f"0{600 + number % 8 * 10}")
        pause(script, rng)
        script.do("fsync", rng.choice(paths))
        if rng.random() < 0.8:
            script.do("sync")
    return script


def attributes(rng: random.Random) -> Script:
    """Attributes that change between the writes of files that are synced all the time.

    One at a time, so that none is committed for another's sake.
    """
    script = Script()
    paths = ["f", "g"]
    for path in paths:
        script.file(path, 4 * BLOCK)
    script.begin()
    for _ in range(40):
        path = rng.choice(paths)
        if rng.random() < 0.6:
            script.do("write", path, *span(rng, 4 * BLOCK))
        if rng.random() < 0.3:
            pause(script, rng)
        if rng.random() < 0.7:
            attribute_change(script, rng, path)
        script.do(rng.choice(SYNCS), path)
    return script


def mmap(rng: random.Random) -> Script:
    """Stores to a mapping, msync and fsync."""
    script = Script()
    size = 16 * BLOCK
    script.file("f", size)
    script.begin()
    for _ in range(30):
        offset, length = span(rng, size)
        script.do("mstore", "f", offset, length)
        pause(script, rng)
        if rng.random() < 0.5:
            script.do("msync", "f", offset, length)
        else:
            sync_now_and_then(script, rng, "f")
    return script


def direct(rng: random.Random) -> Script:
    """O_DIRECT writes, some of which make the file larger: their commits have barriers."""
    script = Script(moves=("barriers",))
    blocks = 8
    script.file("f", blocks * BLOCK)
    script.begin()
    for _ in range(32):
        first = rng.randint(0, blocks)
        count = rng.randint(1, 3)
        script.do("dwrite", "f", first * BLOCK, count * BLOCK)
        blocks = max(blocks, first + count)
        pause(script, rng)
        sync_now_and_then(script, rng, "f")
    return script


def punch(rng: random.Random) -> Script:
    """Holes, zeroed ranges, preallocation and truncation, with writes between them."""
    script = Script()
    size = 16 * BLOCK
    script.file("f", size)
    script.begin()
    for _ in range(26):
        size = space_change(script, rng, "f", size)
        if size and rng.random() < 0.6:
            offset = rng.randrange(size)
            script.do("write", "f", offset, 3000)
            size = max(size, offset + 3000)
        pause(script, rng)
        sync_now_and_then(script, rng, "f")
    return script


def threads(rng: random.Random) -> Script:
    """Threads that write to blocks of their own in a shared file, and to files of their own."""
    script = Script()
    script.file("shared", THREADS * 4 * BLOCK)
    for thread in range(1, THREADS + 1):
        script.do("mkdir", f"t{thread}")
        script.file(f"t{thread}/own", 4 * BLOCK)
    script.begin()
    for number in range(16):
        for thread in range(1, THREADS + 1):
            _thread_step(script, rng, thread, number)
    return script


def _thread_step(script: Script, rng: random.Random, thread: int, number: int) -> None:
    own = f"t{thread}/own"
    call = rng.choice(["shared", "shared", "own", "own", "create", "chmod"])
    if call == "shared":
        block = (thread - 1) * 4 + rng.randrange(4)
        script.do("write", "shared", block * BLOCK, BLOCK, thread=thread)
        script.do(rng.choice(SYNCS), "shared", thread=thread)
    elif call == "own":
        script.do("write", own, *span(rng, 4 * BLOCK), thread=thread)
        script.do(rng.choice(SYNCS), own, thread=thread)
    elif call == "create":
        path = f"t{thread}/n{number}"
        script.file(path, 3000, thread=thread)
        script.do("fsync", path, thread=thread)
    else:
        script.do("chmod", own, rng.choice(["0600", "0640"]), thread=thread)
        script.do("fsync", own, thread=thread)
    pause(script, rng, thread)


# --- all of them ---------------------------------------------------------------------------------

Generator = Callable[[random.Random], Script]

GENERATORS: Mapping[str, Generator] = {
    "overwrite": overwrite,
    "append": append,
    "alike": alike,
    "create": create,
    "attributes": attributes,
    "mmap": mmap,
    "direct": direct,
    "punch": punch,
    "threads": threads,
    "random": random_operations,
    "bounded": bounded,
    "one-by-one": one_by_one,
    "move-ext": move_ext,
    "swap-boot": swap_boot,
    "shift": shift,
    "inline": inline,
    "aio": aio,
    "io-uring": io_uring,
    "remount": remount,
    "names": names,
    "tmpfile": tmpfile,
    **logged.GENERATORS,
    **logged_blocks.GENERATORS,
    **{f"sqlite-{mode}": partial(sqlite, mode=mode) for mode in SQLITE_MODES},
}
# Those that are longer the more states are to be explored.
GROWING: Mapping[str, Callable[[random.Random, int], Script]] = {
    **{f"mariadb-{name}": partial(mariadb, flushing=name) for name in FLUSHING},
}


def workload_names() -> list[str]:
    """What make_script takes."""
    return [*GENERATORS, *GROWING]


def make_script(name: str, seed: int, states: int) -> Script:
    """The script of a workload; that of some grows with the number of states to explore.

    If it names nothing else that has to move, there must be bursts.
    """
    rng = random.Random(f"{name} {seed}")
    script = GROWING[name](rng, states) if name in GROWING else GENERATORS[name](rng)
    return replace(script, moves=script.moves or ("bursts",))
