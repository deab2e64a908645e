"""What a request is for, told by its kind and by where on the device it goes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.shell import run

SECTORS_PER_BLOCK = 8
READ = "read"
DATA = "file data"
JOURNAL = "journal block"
RECORD = "commit record"
JOURNAL_SUPER = "journal superblock"
METADATA = "metadata in place"
SUPER = "superblock"
COMMIT_FLUSH = "flush of a commit"
SYNC_FLUSH = "flush of a sync"
KINDS = (DATA, JOURNAL, COMMIT_FLUSH, RECORD, SYNC_FLUSH, METADATA, JOURNAL_SUPER, SUPER, READ)


@dataclass(frozen=True)
class Sent:
    """A request as the kernel's trace has it: `flags` like "WFS"; sectors of 512 bytes."""

    flags: str
    sector: int
    sectors: int
    mark: int  # operations that had returned


@dataclass(frozen=True)
class Layout:
    """Where the blocks of a fresh file system are that belong to no file."""

    journal: frozenset[int]
    journal_super: int
    metadata: frozenset[int]

    def kind(self, request: Sent, following: Sent | None) -> str:
        """What it is for; `following` is the next request, which shows what a flush is for."""
        block = request.sector // SECTORS_PER_BLOCK
        if request.flags.startswith("R"):
            return READ
        if request.flags.startswith("FF"):
            fua = following is not None and "F" in following.flags and self._is_record(following)
            return COMMIT_FLUSH if fua else SYNC_FLUSH
        if self._is_record(request):
            return RECORD
        if block in self.journal:
            return JOURNAL_SUPER if block == self.journal_super else JOURNAL
        if block == 0:
            return SUPER
        return METADATA if block in self.metadata else DATA

    def _is_record(self, request: Sent) -> bool:
        """A block of its own in the journal: what comes before it is sent as one request."""
        block = request.sector // SECTORS_PER_BLOCK
        alone = request.sectors == SECTORS_PER_BLOCK and not request.flags.startswith("R")
        return alone and block in self.journal and block != self.journal_super


def read_layout(image: Path) -> Layout:
    """The layout of a file system that was just made. Raises FastsyncError when it is not clear."""
    text = run(["/sbin/dumpe2fs", str(image)]).stdout
    metadata = set()
    patterns = r"(?:bitmap|table|descriptors|GDT blocks|superblock) at (\d+)(?:-(\d+))?"
    for first, last in re.findall(patterns, text):
        metadata |= set(range(int(first), int(last or first) + 1))
    journal = _blocks_of(image, 8)
    for ino in (2, 7, 11):  # the root folder, room for descriptors, lost+found
        metadata |= set(_blocks_of(image, ino))
    if len(journal) != journal[-1] - journal[0] + 1:
        raise FastsyncError("the journal is not in one piece: its requests cannot be told apart")
    return Layout(frozenset(journal), journal[0], frozenset(metadata - {0}))


def _blocks_of(image: Path, ino: int) -> Sequence[int]:
    """The blocks of an inode, in their order there."""
    return [
        int(word)
        for word in run(["/sbin/debugfs", "-R", f"blocks <{ino}>", str(image)]).stdout.split()
        if int(word)
    ]
