"""Small scripts for the explorer: each comes to what one test leaves out, and to little else."""

from fastsync_lab.crash.logged import commit, evict, start, write_back
from fastsync_lab.crash.script import ALLOCATE, BLOCK, COLLAPSE, ZERO_RANGE, Script

ROUNDS = 6


def evicted() -> Script:
    """Files of which the log has copies are read again, written and synced, in the same blocks."""
    script = start({})
    for number in range(ROUNDS):
        path = f"n{number}"
        script.file(path, 2 * BLOCK)
        script.do("fsync", path)
        script.do("sync")
        evict(script)
        script.do("write", path, 0, BLOCK)
        script.do("fdatasync", path)
        commit(script, number)
    return script


# --- what marks a transaction --------------------------------------------------------------------


def cut_and_grown_in_a_block() -> Script:
    """The rest of a block is zeroed in place; another file's fsync commits the sizes."""
    script = start({f"n{number}": 2 for number in range(ROUNDS)})
    for number in range(ROUNDS):
        script.do("truncate", f"n{number}", 1000)
        script.do("truncate", f"n{number}", 3000 + number)
        commit(script, number)
    return script


def written_and_shifted() -> Script:
    """What is written in place is elsewhere in its file when another file's fsync commits that."""
    script = start({f"n{number}": 8 for number in range(ROUNDS)})
    for number in range(ROUNDS):
        path = f"n{number}"
        script.do("write", path, 5 * BLOCK, BLOCK)
        script.do("falloc", path, COLLAPSE, 0, BLOCK)
        commit(script, number)
    return script


def converted_behind_a_burst() -> Script:
    """Unwritten blocks are written directly and synced; a flush ended before that."""
    script = start({})
    for number in range(ROUNDS):
        script.do("create", f"n{number}")
        script.do("falloc", f"n{number}", ALLOCATE, 0, 8 * BLOCK)
    script.begin()
    for number in range(ROUNDS):
        commit(script, number)
        script.do("dwrite", f"n{number}", 0, 8 * BLOCK)
        script.do("fdatasync", f"n{number}")
    return script


# --- who changes blocks of which the log has copies ----------------------------------------------


def shifted(mode: int) -> Script:
    """What is newer than the log has it is put in place by fallocate(), and lies elsewhere then."""
    script = start({})
    for number in range(ROUNDS):
        path = f"n{number}"
        script.file(path, 8 * BLOCK)
        script.do("fsync", path)
        script.do("write", path, 5 * BLOCK, BLOCK)
        script.do("falloc", path, mode, 2 * BLOCK, 2 * BLOCK)
        script.do("fsync", path)
        commit(script, number)
    return script


def zeroed_by_a_neighbour() -> Script:
    """Blocks that have copies become unwritten; write-back of one of them zeroes the others."""
    script = start({})
    for number in range(ROUNDS):
        path = f"n{number}"
        script.file(path, 8 * BLOCK)
        script.do("fsync", path)
        script.do("falloc", path, ZERO_RANGE, 0, 8 * BLOCK)
        script.do("write", path, 3 * BLOCK, BLOCK)
        write_back(script, path)
        script.do("fsync", path)
        commit(script, number)
    return script


def moved() -> Script:
    """A donor gets blocks that have copies, and is written to directly."""
    script = start({})
    for number in range(ROUNDS):
        script.do("create", f"donor{number}")
        script.do("falloc", f"donor{number}", 0, 0, 8 * BLOCK)
    script.begin()
    for number in range(ROUNDS):
        path, donor = f"n{number}", f"donor{number}"
        script.file(path, 4 * BLOCK)
        script.do("fsync", path)
        script.do("sync")  # else its pages are busy
        script.do("moveext", path, donor, 0, 2 * BLOCK)
        script.do("fsync", path)  # else its old blocks still count
        script.do("dwrite", donor, 0, BLOCK)
        script.do("fdatasync", donor)
        commit(script, number)
    return script


def swapped() -> Script:
    """By way of the boot loader's inode, a file gets the blocks of another, which have copies."""
    script = start({f"g{number}": 3 for number in range(ROUNDS)})
    for number in range(ROUNDS):
        first, second = f"f{number}", f"g{number}"
        script.file(first, 3 * BLOCK)
        script.do("fsync", first)
        script.do("swapboot", first)
        script.do("swapboot", second)
        commit(script, number)
        script.do("write", second, 0, BLOCK)
        script.do("fdatasync", second)
        commit(script, number + 1)
    return script
