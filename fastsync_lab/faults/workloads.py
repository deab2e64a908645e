"""What is run on a device that fails. Scripts for programs/crashops.c, the same in every mode.

Sleeps are of more than two ticks, so that stock ext4 has a new stamp at each write (its clock may
miss one tick), and several writes fall into one interval. Where a script begins to count, all is on
the medium.
"""

from collections.abc import Callable, Mapping

from fastsync_lab.crash.script import BLOCK, Script

INTERVAL_MS = 150
PAUSE_US = 9000
SETTLED_US = 6_000_000  # eager_sync settles what is five seconds old
PARAMETERS = "/sys/module/flashdev/parameters"
FIRST_MARK = "@FIRST@"  # stands for the first request that fails
NO_COMMIT_S = 300


def _begin(*, cached: bool = True) -> Script:
    """Two files; the device begins to count requests."""
    script = Script()
    script.file("f", 8 * BLOCK)
    script.file("g", 2 * BLOCK)
    script.do("sync")
    if not cached:
        script.do("put", "/proc/sys/vm/drop_caches", 3)
    _pause(script, 3 * INTERVAL_MS * 1000)  # the stamps on the medium are old
    script.do("align", INTERVAL_MS * 1000)
    script.do("put", f"{PARAMETERS}/fail_from", FIRST_MARK)
    script.prepared = len(script.lines)
    return script


def _pause(script: Script, us: int = PAUSE_US) -> None:
    script.do("sleep", us)


def overwrite() -> Script:
    """Overwrite and fsync; the fourth fsync starts a commit in defer, the next two carry it."""
    script = _begin()
    for number, pause_ms in enumerate((40, 40, 45, 9, 9, 9, 20, 9)):
        script.do("write", "f", number % 8 * BLOCK, BLOCK)
        script.do("fdatasync" if number == 6 else "fsync", "f")
        _pause(script, pause_ms * 1000)
    return script


def append() -> Script:
    """Append and fsync; chmod and fsync of another file between."""
    script = _begin()
    for number in range(2):
        script.do("write", "f", (8 + number) * BLOCK, BLOCK)
        script.do("fsync", "f")
        _pause(script)
        script.do("write", "g", 0, BLOCK)
        script.do("chmod", "g", f"06{number}0")
        script.do("fsync", "g")
    return script


def create() -> Script:
    """New files, one that replaces another; what has been logged goes into place behind that."""
    script = _begin()
    for number in range(2):
        script.file(f"n{number}", BLOCK)
        script.do("fsync", f"n{number}")
        _pause(script)
    script.do("rename", "n1", "n0")
    script.do("fsync", "n0")
    _pause(script, SETTLED_US)
    script.do("write", "n0", 0, BLOCK)
    script.do("fsync", "n0")
    return script


def scattered() -> Script:
    """Blocks here and there, again and again; they go into place, and one once more."""
    script = _begin()
    for first in (0, 1):
        for number in range(3):
            script.do("write", "f", (first + 2 * number) * BLOCK, BLOCK)
        script.do("fsync" if first else "fdatasync", "f")
        _pause(script)
    script.do("write", "f", 0, BLOCK)
    script.do("fsync", "f")
    _pause(script, SETTLED_US)
    script.do("write", "f", 0, BLOCK)
    script.do("fsync", "f")
    return script


def attributes() -> Script:
    """Attributes that change between overwrites; parts of blocks, which have to be read."""
    script = _begin(cached=False)
    for number, change in enumerate([("chmod", "f", "0600"), ("setxattr", "f", "user.a", "b")]):
        script.do("write", "f", number * BLOCK + 512, 1024)
        script.do("fsync", "f")
        _pause(script)
        script.do(*change)
        script.do("fsync", "f")
        _pause(script)
    return script


def osync() -> Script:
    """O_SYNC and O_DSYNC overwrites, and an O_SYNC append."""
    script = _begin()
    for number, call in enumerate(["owrite", "owrite", "odwrite", "owrite"]):
        script.do(call, "f", number * BLOCK, BLOCK)
        _pause(script)
    script.do("owrite", "g", 2 * BLOCK, BLOCK)
    return script


def mmap() -> Script:
    """Stores to a mapping, msync and fsync."""
    script = _begin()
    for number, call in enumerate(["fsync", "msync", "fsync"]):
        script.do("mstore", "f", number * BLOCK, BLOCK)
        script.do(call, "f", *([number * BLOCK, BLOCK] if call == "msync" else []))
        _pause(script)
    return script


def direct() -> Script:
    """O_DIRECT overwrites and an append."""
    script = _begin()
    for number in (0, 1, 8, 2):
        script.do("dwrite", "f", number * BLOCK, BLOCK)
        script.do("fsync", "f")
        _pause(script)
    return script


def neighbours() -> Script:
    """A file whose stamps are in the transaction that another one's fsync commits."""
    script = _begin()
    for number in range(2):
        script.do("write", "f", number * BLOCK, BLOCK)
        script.do("write", "g", 0, BLOCK)
        script.do("chmod", "g", f"06{number}0")
        script.do("fsync", "g")
        _pause(script)
        script.do("write", "f", (number + 1) * BLOCK, BLOCK)
        script.do("fsync", "f")
        _pause(script)
    return script


def periodic() -> Script:
    """The commit thread commits by itself (commit=1), and nobody waits; so at the unmount."""
    script = _begin()
    script.do("write", "f", 0, BLOCK)
    script.do("fsync", "f")
    _pause(script)
    script.do("write", "f", BLOCK, BLOCK)
    _pause(script, 2_500_000)
    for number in (2, 3):
        script.do("write", "f", number * BLOCK, BLOCK)
        script.do("fsync", "f")
        _pause(script)
    script.do("write", "f", 4 * BLOCK, BLOCK)
    return script


GENERATORS: Mapping[str, Callable[[], Script]] = {
    "overwrite": overwrite,
    "append": append,
    "create": create,
    "scattered": scattered,
    "attributes": attributes,
    "osync": osync,
    "mmap": mmap,
    "direct": direct,
    "neighbours": neighbours,
    "periodic": periodic,
}


def workload_names() -> list[str]:
    """What make_script takes."""
    return list(GENERATORS)


def make_script(name: str) -> Script:
    """The script of a workload, with FIRST_MARK where the number of the request belongs."""
    return GENERATORS[name]()


def faulty_unmount(name: str) -> bool:
    """Do requests of the unmount fail, too? They are the same everywhere."""
    return name in ("overwrite", "periodic")


def commit_s(name: str) -> int:
    """The commit interval that a workload is mounted with, in seconds."""
    return 1 if name == "periodic" else NO_COMMIT_S
