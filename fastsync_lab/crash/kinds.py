"""Kinds of file systems that the explorer makes: the journal's, the inodes', the blocks', ...

The base image of a kind with an external journal has the file system first, the journal behind it.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fastsync_lab.crash.junk import junk
from fastsync_lab.crash.trace import SECTOR
from fastsync_lab.host.shell import run

JOURNAL_MIB = 4
EXTERNAL_MIB = 5  # jbd2 wants 1,024 blocks behind the superblocks
# e2fsck 1.47.0 replays nothing once the last block of the fast-commit area has been used: it takes
# the journal's superblock for corrupt. So the area is larger than what a run needs.
FAST_COMMIT_KIB = 1024
UUID = "fa575c00-0000-4000-8000-000000000000"
JOURNAL_UUID = "fa575c00-0000-4000-8000-000000000001"
BLOCK = 4096
JBD2_USERS = 0x40  # in the journal's superblock: how many file systems there are, then which
JBD2_USER_LIST = 0x100
NS_PER_S = 10**9


@dataclass(frozen=True)
class Kind:
    """More arguments for mkfs.ext4, what is mounted with beside the mode, the step of stamps.

    `crashed`: the power has failed before, in the same mode, with a log full of its commits.
    """

    mkfs: tuple[str, ...] = ()
    journal: str = f"size={JOURNAL_MIB}"  # mkfs.ext4 -J; "": none inside
    data: str = "ordered"
    mount: tuple[str, ...] = ()
    grain_ns: int = 1
    crashed: bool = False

    @property
    def external(self) -> bool:
        """The journal is on a device of its own."""
        return not self.journal

    @property
    def journal_mib(self) -> int:
        """How much of the base image is behind the file system."""
        return EXTERNAL_MIB if self.external else 0


KINDS: Mapping[str, Kind] = {
    "ordered": Kind(),
    "journal": Kind(data="journal"),
    "fast_commit": Kind(
        mkfs=("-O", "fast_commit"),
        journal=f"size={JOURNAL_MIB},fast_commit_size={FAST_COMMIT_KIB}",
    ),
    "lazytime": Kind(mount=("lazytime",)),
    "i_version": Kind(mount=("i_version",)),
    "dioread_lock": Kind(mount=("dioread_lock",)),
    "nodelalloc": Kind(mount=("dioread_lock", "nodelalloc")),
    "1k-blocks": Kind(mkfs=("-b", "1024")),
    "bigalloc": Kind(mkfs=("-O", "bigalloc", "-C", "8192")),
    "quota": Kind(mkfs=("-O", "quota")),
    "small-inodes": Kind(mkfs=("-I", "128"), grain_ns=NS_PER_S),
    "inline_data": Kind(mkfs=("-O", "inline_data")),
    "indirect": Kind(mkfs=("-O", "^extents,^64bit")),
    "crashed": Kind(crashed=True),
    "external": Kind(mkfs=("-O", "^has_journal"), journal=""),
}


def make_base(
    path: Path,
    size_mib: int,
    *,
    kind: Kind = KINDS["ordered"],
    extended: str = "",
    with_junk: bool = False,
) -> None:
    """An empty ext4, with the default features of the host's mkfs.ext4 and a small journal.

    `extended` are more options for mkfs.ext4 -E, each behind a comma. `with_junk`: free blocks have
    junk instead of zeros; mkfs does not touch them.
    """
    if with_junk:
        path.write_bytes(junk(0, (size_mib << 20) // SECTOR))
    else:
        _empty(path, size_mib)
    journal = ["-J", kind.journal] if kind.journal else []
    extended = f"lazy_itable_init=0,lazy_journal_init=0,nodiscard,hash_seed={UUID}{extended}"
    argv = ["/sbin/mkfs.ext4", "-q", "-F", "-b", str(BLOCK), *journal, *kind.mkfs]
    run([*argv, "-N", "1024", "-U", UUID, "-E", extended, str(path)])
    if kind.external:
        _add_journal(path)


def split_journal(
    image: bytes | bytearray, kind: Kind
) -> tuple[bytes | bytearray, bytes | bytearray]:
    """The file system and what is behind it: an external journal, or nothing."""
    if not kind.external:
        return image, b""
    end = len(image) - (kind.journal_mib << 20)
    return image[:end], image[end:]


def _empty(path: Path, size_mib: int) -> None:
    with path.open("wb") as file:
        file.truncate(size_mib << 20)


def _add_journal(path: Path) -> None:
    """Put a journal behind the file system and make the two known to each other.

    mke2fs does that for block devices alone.
    """
    journal = path.with_suffix(".journal")
    _empty(journal, EXTERNAL_MIB)
    argv = ["/sbin/mke2fs", "-q", "-F", "-O", "journal_dev", "-b", str(BLOCK)]
    run([*argv, "-U", JOURNAL_UUID, str(journal)])
    data = bytearray(journal.read_bytes())
    struct.pack_into(">I", data, BLOCK + JBD2_USERS, 1)
    user = bytes.fromhex(UUID.replace("-", ""))
    data[BLOCK + JBD2_USER_LIST : BLOCK + JBD2_USER_LIST + len(user)] = user
    commands = f"feature has_journal\nssv journal_uuid {JOURNAL_UUID}\nssv journal_inum 0\n"
    run(["/sbin/debugfs", "-w", "-f", "-", str(path)], input_text=commands)
    with path.open("ab") as file:
        file.write(data)
    journal.unlink()
