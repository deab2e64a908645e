"""Workloads that change where a file has its blocks: moved, exchanged, shifted, in the inode."""

import random

from fastsync_lab.crash.script import (
    BLOCK,
    COLLAPSE,
    INSERT,
    SYNCS,
    Script,
    attribute_change,
    pause,
    sync_now_and_then,
)

PIECES = 32  # more than an inode has room for: they are in blocks of their own
INTERVAL_US = 100_000
SHIFT = 2 * BLOCK  # whole clusters of a bigalloc, too
SMALL = (1, 20, 60, 61, 100, 130)  # bytes that an inode has room for, or has not


def pieces(script: Script, path: str) -> None:
    """A file of that many extents: every second block is a hole."""
    script.do("create", path)
    for number in range(PIECES):
        script.do("write", path, 2 * number * BLOCK, BLOCK)


def young(script: Script, path: str, offset: int) -> None:
    """A synced write at the start of an interval: the stamps of the next ones may wait."""
    script.do("sleep", INTERVAL_US)
    script.do("align", INTERVAL_US // 1000)
    script.do("write", path, offset, BLOCK)
    script.do("fsync", path)


def move_ext(rng: random.Random) -> Script:
    """As e4defrag does it: blocks move to those of a donor, then they are written and synced."""
    script = Script()
    rounds = 10
    pieces(script, "f")
    script.file("few", 4 * BLOCK)
    for number in range(rounds):
        script.do("create", f"donor{number}")
        script.do("falloc", f"donor{number}", 0, 0, 2 * PIECES * BLOCK)
    script.begin()
    for number in range(rounds):
        path = "few" if number % 5 == 4 else "f"
        donor = f"donor{number}"
        block = rng.randrange(4) if path == "few" else 2 * rng.randrange(PIECES)
        young(script, path, block * BLOCK)
        script.do("moveext", path, donor, block * BLOCK, BLOCK)
        call = ("fsync", "fdatasync", "donor", "fsync")[number % 4]
        if call == "donor":
            script.do("fsync", donor)
            script.do("write", donor, block * BLOCK, BLOCK)
            script.do("fsync", donor)
        script.do("write", path, block * BLOCK, BLOCK)
        script.do("fsync" if call == "donor" else call, path)
        pause(script, rng)
    return script


def swap_boot(rng: random.Random) -> Script:
    """A file exchanges its contents with the boot loader's inode, and is written to after that.

    The extents are few: those outside the inode keep the checksum of the inode that they were of,
    on stock, too, and e2fsck finds that.
    """
    script = Script()
    script.file("f", 3 * BLOCK)
    script.file("g", 5 * BLOCK)
    script.begin()
    sizes = {"f": 3 * BLOCK, "g": 5 * BLOCK, "": 0}
    for _ in range(10):
        path = rng.choice("fg")
        if sizes[path] >= BLOCK and rng.random() < 0.6:
            young(script, path, 0)
        script.do("swapboot", path)
        sizes[path], sizes[""] = sizes[""], sizes[path]
        if rng.random() < 0.7:
            length = rng.choice([1000, BLOCK])
            script.do("write", path, 0, length)
            sizes[path] = max(sizes[path], length)
        script.do(rng.choice(SYNCS), path)
        pause(script, rng)
    return script


def shift(rng: random.Random) -> Script:
    """Ranges are taken out of files, or holes come in: FALLOC_FL_COLLAPSE_RANGE, INSERT_RANGE."""
    script = Script()
    pieces(script, "f")
    script.file("few", 8 * BLOCK)
    sizes = {"f": 2 * PIECES * BLOCK - BLOCK, "few": 8 * BLOCK}
    script.begin()
    for _ in range(18):
        path = rng.choice(["f", "few"])
        if rng.random() < 0.5:
            young(script, path, 0)
        first = rng.randrange(sizes[path] // SHIFT - 1)
        grows = sizes[path] < 4 * SHIFT or rng.random() < 0.5
        script.do("falloc", path, INSERT if grows else COLLAPSE, first * SHIFT, SHIFT)
        sizes[path] += SHIFT if grows else -SHIFT
        if rng.random() < 0.7:
            script.do("write", path, first * SHIFT + rng.choice([0, 100]), 3000)
        pause(script, rng)
        sync_now_and_then(script, rng, path, share=0.9)
    return script


def inline(rng: random.Random) -> Script:
    """Files that an inode has room for, that grow out of it and are cut back, or made anew."""
    script = Script()
    script.do("mkdir", "d")
    names = ["a", "b", "d/c"]
    for name in names:
        script.file(name, 40)
    script.begin()
    for number in range(36):
        path = rng.choice(names)
        call = rng.choice(["write", "write", "grow", "cut", "attribute", "new"])
        if call == "write":
            offset = rng.choice([0, 0, 7])
            script.do(rng.choice(["write", "owrite"]), path, offset, rng.choice(SMALL))
        elif call == "grow":
            script.do("write", path, rng.choice([0, 50]), rng.choice([300, 3000, 6000]))
        elif call == "cut":
            script.do("truncate", path, rng.choice([0, 1, 30, 60, 100]))
        elif call == "attribute":
            attribute_change(script, rng, path)
        else:  # in the inode again
            names.remove(path)
            script.do("unlink", path)
            path = f"d/n{number}"
            names.append(path)
            script.file(path, rng.choice(SMALL))
        pause(script, rng)
        sync_now_and_then(script, rng, path, share=0.8)
    return script
