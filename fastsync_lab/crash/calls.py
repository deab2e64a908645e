"""Workloads that write and sync by other calls, or under mount options that change."""

import random

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
from fastsync_lab.host.options import mode_options

BLOCKS = 8
RING_SYNCS = ("rfsync", "rfsync", "rfdatasync", "fsync", "fsync", "fdatasync")
AIO_SYNCS = ("afsync", "afsync", "afdatasync", "fsync", "fsync", "fdatasync")


def _asynchronous(
    rng: random.Random, writes: tuple[str, str], linked: tuple[str, ...], syncs: tuple[str, ...]
) -> Script:
    """Writes, buffered and O_DIRECT, some of which make the file larger."""
    script = Script()
    blocks = BLOCKS
    script.file("f", blocks * BLOCK)
    script.begin()
    for _ in range(32):
        call = rng.choice([*writes, *writes, *linked])
        if "d" in call[:3]:
            first, count = rng.randint(0, blocks), rng.randint(1, 3)
            offset, length = first * BLOCK, count * BLOCK
        else:
            offset, length = span(rng, blocks * BLOCK)
            offset += rng.choice([0, 0, 3000])
        script.do(call, "f", offset, length)
        blocks = max(blocks, (offset + length) // BLOCK)
        pause(script, rng)
        if call not in linked and rng.random() < 0.8:
            script.do(rng.choice(syncs), "f")
    return script


def aio(rng: random.Random) -> Script:
    """io_submit(2): writes, and fsync both by it and by the call."""
    return _asynchronous(rng, ("awrite", "adwrite"), (), AIO_SYNCS)


def io_uring(rng: random.Random) -> Script:
    """io_uring_enter(2): writes, some linked to an fsync, and fsync both by it and by the call."""
    return _asynchronous(rng, ("rwrite", "rdwrite"), ("rswrite", "rsdwrite"), RING_SYNCS)


POLICIES = (
    "un_mtime_update",
    *(",".join(mode_options(mode, ms)) for mode in ("truncate", "defer") for ms in (20, 100, 500)),
)


def remount(rng: random.Random) -> Script:
    """The options change between write and fsync, and between two of either."""
    script = Script()
    paths = ["f", "g"]
    sizes = dict.fromkeys(paths, 6 * BLOCK)
    for path in paths:
        script.file(path, sizes[path])
    script.begin()
    for _ in range(40):
        path = rng.choice(paths)
        if rng.random() < 0.4:
            script.do("remount", rng.choice(POLICIES))
        call = rng.choice(["write", "write", "write", "owrite", "dwrite", "attribute", "space"])
        if call == "attribute":
            attribute_change(script, rng, path)
        elif call == "space":
            sizes[path] = space_change(script, rng, path, sizes[path])
        elif call == "dwrite":
            script.do(call, path, 0, BLOCK)
            sizes[path] = max(sizes[path], BLOCK)
        else:
            offset, length = span(rng, 6 * BLOCK)
            script.do(call, path, offset, length)
            sizes[path] = max(sizes[path], offset + length)
        pause(script, rng)
        if rng.random() < 0.3:
            script.do("remount", rng.choice(POLICIES))
        sync_now_and_then(script, rng, path, share=0.8)
        if rng.random() < 0.2:
            script.do(rng.choice(SYNCS), rng.choice(paths))
    return script
