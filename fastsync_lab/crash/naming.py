"""Workloads of names: symlinks, names that are exchanged, files that have no name at first."""

import random
from dataclasses import dataclass, field

from fastsync_lab.crash.script import BLOCK, SYNCS, Script, attribute_change, pause

FAST = 59  # bytes of a symlink's target that its inode has room for
TARGETS = (1, 20, FAST, FAST + 1, 120, 190)
SIZES = (0, 700, 5000, 3 * BLOCK)
FOLDERS = ("d", "e")


def target(number: int, length: int) -> str:
    """What a symlink leads to, nowhere: no two numbers have the same. It may be longer."""
    return str(number).ljust(length, "-")


def folder_of(path: str) -> str:
    """The folder that a path is in."""
    return path.rpartition("/")[0]


@dataclass
class Named:
    """What has a name: files and symlinks in FOLDERS. No two names are of one file."""

    script: Script
    rng: random.Random
    files: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    made: int = 0

    def new_name(self) -> str:
        """A name that was never used, in either folder."""
        self.made += 1
        return f"{self.rng.choice(FOLDERS)}/n{self.made}"

    def file(self) -> str:
        """A new file."""
        path = self.new_name()
        self.script.file(path, self.rng.choice(SIZES))
        self.files.append(path)
        return path

    def symlink(self) -> str:
        """A new symlink, in its inode or with a block."""
        path = self.new_name()
        self.script.do("symlink", target(self.made, self.rng.choice(TARGETS)), path)
        self.links.append(path)
        return path

    def of(self, path: str) -> list[str]:
        """The names of the same kind."""
        return self.files if path in self.files else self.links

    def any_two(self) -> tuple[str, str]:
        """Of either kind."""
        first, second = self.rng.sample([*self.files, *self.links], 2)
        return first, second

    def rename(self, call: str, old: str, new: str) -> None:
        """Over what has the new name, if anything has."""
        self.script.do(call, old, new)
        mine = self.of(old)
        mine.remove(old)
        for names in (self.files, self.links):
            if new in names:
                names.remove(new)
        mine.append(new)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        self.script.do("unlink", path)
        self.of(path).remove(path)

    def exchange(self, first: str, second: str) -> None:
        """Two names change places."""
        self.script.do("exchange", first, second)
        mine, others = self.of(first), self.of(second)
        if mine is not others:
            mine[mine.index(first)], others[others.index(second)] = second, first


def change(named: Named) -> tuple[str, ...]:
    """Some names change; which ones."""
    rng = named.rng
    first, second = named.any_two()
    link = rng.choice(named.links)
    call = rng.choice(
        ["symlink"] * 3 + ["file", "rename", "rename", "replace", "switch"]
        + ["unlink"] * 2 + ["exchange"] * 4
    )  # fmt: skip
    if call == "rename":
        new = named.new_name()
        named.rename(rng.choice(["rename", "renamenew"]), first, new)
        return (first, new)
    if call == "replace" and min(len(named.files), len(named.links)) > 2:
        named.rename("rename", first, second)
        return (first, second)
    if call == "switch":  # as the symlink to a current version is
        new = named.symlink()
        named.rename("rename", new, link)
        return (link,)
    if call == "unlink" and len(named.links) > 2:
        named.unlink(link)
        return (link,)
    if call == "exchange":
        named.exchange(first, second)
        return (first, second)
    return (named.file() if call == "file" else named.symlink(),)


def to_sync(named: Named, touched: tuple[str, ...]) -> list[str]:
    """What may be synced after names have changed: their folders, and the files among them."""
    return [*map(folder_of, touched), *([path for path in touched if path in named.files] * 2)]


def exchange_folders(named: Named) -> list[str]:
    """Two folders, each with something in it, change places, or one and a symlink; what to sync."""
    script, rng = named.script, named.rng
    if rng.random() < 0.7:
        script.do("exchange", "d/p", "e/q")
    else:
        script.do("exchange", "d/p", "top")
        if rng.random() < 0.7:
            script.do("fsync", rng.choice(["d", "top"]))
        script.do("exchange", "top", "d/p")
    if rng.random() < 0.5:
        script.do("write", "d/p/in", 0, 600)
    return ["d", "e", "d/p", "e/q", "d/p/in"]


def names(rng: random.Random) -> Script:
    """Symlinks and files are made, renamed, replaced, removed, exchanged; or two folders are.

    A file or a folder is synced; a symlink cannot be.
    """
    script = Script()
    for path in (*FOLDERS, "d/p", "e/q"):
        script.do("mkdir", path)
    for number, path in enumerate(("d/p", "e/q")):
        script.file(f"{path}/in", 3000)
        script.do("symlink", target(number, FAST + number), f"{path}/to")
    script.do("symlink", "e", "top")
    named = Named(script, rng)
    for _ in range(3):
        named.file()
        named.symlink()
    script.begin()
    for _ in range(44):
        if rng.random() < 0.12:
            synced = exchange_folders(named)
        else:
            if rng.random() < 0.3:
                script.do("write", rng.choice(named.files), 0, rng.choice([700, BLOCK]))
            synced = to_sync(named, change(named))
        pause(script, rng)
        if rng.random() < 0.75:
            script.do("fsync", rng.choice(synced))
    return script


def sync_some(script: Script, rng: random.Random, *paths: str, share: float = 0.6) -> None:
    """Now and then a sync of one of them; a folder by fsync."""
    if rng.random() < share:
        path = rng.choice(paths)
        script.do("fsync" if path in FOLDERS else rng.choice(SYNCS), path)


def tmpfile(rng: random.Random) -> Script:
    """Files of O_TMPFILE, written and synced before they get a name, or after; some get none."""
    script = Script()
    script.do("mkdir", "d")
    script.file("d/old", 3000)
    script.begin()
    names = ["d/old"]
    for number in range(22):
        handle, path = f"@{number}", f"d/n{number}"
        script.do("tmpfile", "d", handle)
        size = rng.choice(SIZES)
        if size:
            script.do(rng.choice(["write", "write", "owrite"]), handle, 0, size)
        more = rng.choice(["attribute", "acl", "", ""])
        if more == "attribute":
            attribute_change(script, rng, handle)
        elif more == "acl":
            script.do("setacl", handle, rng.randrange(8))
        sync_some(script, rng, handle)
        pause(script, rng)
        fate = rng.choice(["link", "linkfd", "link", "linkfd", "twice", "replace", "none"])
        if fate == "none":  # maybe its folder's fsync commits it
            sync_some(script, rng, "d", handle, share=0.4)
        else:
            script.do("linkfd" if fate == "linkfd" else "link", handle, path)
            names.append(path)
            if rng.random() < 0.4:
                script.do("write", rng.choice([handle, path]), rng.choice([0, size]), 900)
            sync_some(script, rng, handle, path, "d", share=0.7)
        if fate == "twice":
            script.do("link", rng.choice([handle, path]), f"{path}-")
            names.append(f"{path}-")
            sync_some(script, rng, handle, f"{path}-", "d")
        elif fate == "replace":  # as it is done with O_TMPFILE, for link() replaces nothing
            names.remove(path)
            script.do("rename", path, rng.choice(names))
            sync_some(script, rng, handle, "d")
        if rng.random() < 0.3 and len(names) > 2:
            script.do("unlink", names.pop(rng.randrange(len(names))))
        if rng.random() < 0.6:
            script.do("close", handle)
    return script
