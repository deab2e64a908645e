"""What is run before the power fails. A workload is a function from a seed to a script.

Each script begins with files that are synced; states are made of what comes after that.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from fastsync_lab.crash.mariadb import FLUSHING

BLOCK = 4096
DEVICE_MIB = 12
MARIADB_MIB = 24
PUNCH, ZERO_RANGE, ALLOCATE, PREALLOCATE = 0x03, 0x10, 0x00, 0x01
SQLITE_MODES = ("delete", "truncate", "persist", "wal")
THREADS = 3
TRIPLES = 100


@dataclass
class Script:
    """Lines for programs/crashops.c or, if `sql`, for programs/crashsql.c.

    With `flushing`, a key of mariadb.FLUSHING, they are for programs/crashmaria.c. The first
    `prepared` lines have returned, and are synced, before the first crash.
    """

    lines: list[str] = field(default_factory=list)
    prepared: int = 0
    sql: bool = False
    flushing: str = ""
    device_mib: int = DEVICE_MIB

    @property
    def program(self) -> str:
        """What runs it."""
        if self.flushing:
            return "crashmaria"
        return "crashsql" if self.sql else "crashops"

    def do(self, *words: object, thread: int = 0) -> None:
        """Add an operation."""
        self.lines.append(" ".join(str(word) for word in (thread, *words)))

    def begin(self) -> None:
        """Sync what there is; crashes happen from here on."""
        self.do("sync")
        self.prepared = len(self.lines)

    def file(self, path: str, size: int, thread: int = 0) -> None:
        """A new file with contents."""
        self.do("create", path, thread=thread)
        if size:
            self.do("write", path, 0, size, thread=thread)

    @property
    def text(self) -> str:
        """The script as the program reads it."""
        return "".join(f"{line}\n" for line in self.lines)


def pause(script: Script, rng: random.Random, thread: int = 0) -> None:
    """Now and then some time passes, so that timestamps and intervals move on."""
    if rng.random() < 0.5:
        script.do("sleep", rng.choice([1000, 6000, 15000, 40000]), thread=thread)


def span(rng: random.Random, size: int) -> tuple[int, int]:
    """Offset and length of a piece of a file, whole blocks or not."""
    if rng.random() < 0.6:
        first = rng.randrange(size // BLOCK)
        return first * BLOCK, BLOCK * rng.randint(1, min(3, size // BLOCK - first))
    offset = rng.randrange(size - 1)
    return offset, rng.randint(1, min(9000, size - offset))


SYNCS = ("fsync", "fsync", "fsync", "fdatasync")


def sync_now_and_then(script: Script, rng: random.Random, path: str, share: float = 0.7) -> None:
    """An fsync or fdatasync, in that share of the calls."""
    if rng.random() < share:
        script.do(rng.choice(SYNCS), path)


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


def attribute_change(script: Script, rng: random.Random, path: str) -> None:
    """A chmod, chown, xattr or utimensat."""
    call = rng.choice(["chmod"] * 4 + ["chown"] * 2 + ["setxattr"] * 3 + ["utimens"])
    if call == "chmod":
        script.do("chmod", path, f"0{rng.choice([600, 640, 644, 755])}")
    elif call == "chown":
        script.do("chown", path, rng.randint(0, 70000), rng.randint(0, 70000))
    elif call == "setxattr":
        value = f"{rng.getrandbits(32):08x}" * rng.choice([1, 20])
        script.do("setxattr", path, f"user.{rng.choice('ab')}", value)
    else:
        script.do("utimens", path, rng.randint(10**18, 17 * 10**17))


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
    """O_DIRECT writes, some of which make the file larger."""
    script = Script()
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


def space_change(script: Script, rng: random.Random, path: str, size: int) -> int:
    """A fallocate or truncate; the new size."""
    call = rng.choice([PUNCH, PUNCH, ZERO_RANGE, ALLOCATE, PREALLOCATE, None])
    if call is None:
        size = rng.choice([0, 1000, size // 2, size, size + 10000])
        script.do("truncate", path, size)
        return size
    offset = rng.randrange(size + BLOCK)
    offset -= offset % rng.choice([1, BLOCK])
    length = rng.choice([1000, BLOCK, 3 * BLOCK])
    script.do("falloc", path, call, offset, length)
    return max(size, offset + length) if call in (ALLOCATE, ZERO_RANGE) else size


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


# --- random and bounded sequences ----------------------------------------------------------------


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


# --- databases -----------------------------------------------------------------------------------


def sqlite(rng: random.Random, mode: str) -> Script:
    """Transactions on one table; synchronous=EXTRA, so that each survives its COMMIT."""
    script = Script(sql=True)
    script.lines += [
        f"PRAGMA journal_mode={mode}",
        "PRAGMA synchronous=EXTRA",
        "PRAGMA wal_autocheckpoint=12",
        "CREATE TABLE item(id INTEGER PRIMARY KEY, value TEXT)",
    ]
    script.lines.append(f"INSERT INTO item VALUES {_rows(range(20), 'x' * 100)}")
    script.prepared = len(script.lines)
    for number in range(30):
        row = rng.randrange(20)
        script.lines.append(
            rng.choice(
                [
                    f"INSERT INTO item VALUES({100 + number},'{number:0300}')",
                    f"UPDATE item SET value='{number:0150}' WHERE id={row}",
                    f"DELETE FROM item WHERE id={row}",
                    f"UPDATE item SET value=value||'{number}' WHERE id<10",
                ]
            )
        )
    return script


def mariadb(rng: random.Random, limit: int, flushing: str) -> Script:
    """Transactions of one or several statements on a table with an index; it grows and shrinks.

    Each makes some four places to cut: there are an eighth as many as states.
    """
    script = Script(sql=True, flushing=flushing, device_mib=MARIADB_MIB)
    script.lines += [
        "USE crash",
        "CREATE TABLE item(id INTEGER PRIMARY KEY, value VARCHAR(2500))",
        "CREATE INDEX by_value ON item(value)",
        f"INSERT INTO item VALUES {_rows(range(20), 'x' * 100)}",
        "DO SLEEP(1.5)",
    ]
    script.prepared = len(script.lines)
    for number in range(max(6, limit // 8)):
        row = rng.randrange(20)
        script.lines.append(
            rng.choice(
                [
                    f"INSERT INTO item VALUES {_rows([100 + number], f'{number:0300}')}",
                    f"UPDATE item SET value='{number:0150}' WHERE id={row}",
                    f"DELETE FROM item WHERE id={row}",
                    f"UPDATE item SET value='{number:01900}' WHERE id<10",
                    f"BEGIN; DELETE FROM item WHERE id={row}; "
                    f"INSERT INTO item VALUES {_rows([200 + number], f'{number:02000}')}; COMMIT",
                    "BEGIN; DELETE FROM item WHERE id>=1000; INSERT INTO item VALUES "
                    f"{_rows(range(1000, 1040), f'{number:0300}')}; COMMIT",
                ]
            )
        )
        if rng.random() < 0.3:  # the server writes pages
            script.lines.append(f"DO SLEEP({rng.choice([0.02, 0.15, 1.1])})")
    return script


def _rows(ids: Iterable[int], value: str) -> str:
    return ",".join(f"({row},'{value}{row}')" for row in ids)


# --- all of them ---------------------------------------------------------------------------------

Generator = Callable[[random.Random], Script]

GENERATORS: Mapping[str, Generator] = {
    "overwrite": overwrite,
    "append": append,
    "create": create,
    "attributes": attributes,
    "mmap": mmap,
    "direct": direct,
    "punch": punch,
    "threads": threads,
    "random": random_operations,
    "bounded": bounded,
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
    """The script of a workload; that of some grows with the number of states to explore."""
    rng = random.Random(f"{name} {seed}")
    if name in GROWING:
        return GROWING[name](rng, states)
    return GENERATORS[name](rng)
