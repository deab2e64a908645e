"""Read the files out of an ext4 image: enough of the format for what the explorer makes.

Extents, blocks of blocks, inline data, linear and indexed folders, extended attributes in the inode
and in a block, blocks and inodes of any size, bigalloc. No encryption, no large xattr inodes.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from mmap import mmap

from fastsync_lab.crash.junk import shown
from fastsync_lab.host.errors import FastsyncError

ROOT_INO = 2
MAGIC = 0xEF53
FEATURE_64BIT = 0x80
EXTENT_MAGIC = 0xF30A
EXTENTS_FLAG = 0x80000
INLINE_DATA_FLAG = 0x10000000
INLINE_DATA = "system.data"  # the attribute that has what is not in i_block
SMALL_INODE = 128  # has no stamps but whole seconds, and no attributes
UNWRITTEN = 32768  # a longer extent is unwritten
XATTR_MAGIC = 0xEA020000
ACL, ACL_INDEX = "system.posix_acl_access", 2  # its name is its index alone
ACL_IDS = (0x02, 0x08)  # entries that have an id: of a user, of a group
NO_ID = 0xFFFFFFFF
XATTR_PREFIXES = {1: "user.", 4: "trusted.", 6: "security.", 7: "system."}
FORMAT_MASK, DIRECTORY, REGULAR, SYMLINK = 0o170000, 0o040000, 0o100000, 0o120000
SECTOR = 512
MAX_SIZE = 1 << 28
NS_PER_S = 10**9


@dataclass(frozen=True)
class File:
    """A file as a name leads to it; `mode` includes the type, times are ns since the epoch.

    `sectors` has the CRC-32 of each 512 bytes of a regular file, the last of what is left; `junk`
    which of these show junk, and of which sector of the device.
    """

    ino: int
    mode: int
    uid: int
    gid: int
    links: int
    size: int
    mtime_ns: int
    ctime_ns: int
    xattrs: dict[str, str] = field(default_factory=dict, hash=False)  # values in hexadecimal
    sectors: tuple[int, ...] = ()
    target: str = ""
    junk: tuple[tuple[int, int], ...] = ()


Tree = dict[str, File]  # by path, without a leading slash


def checksums(data: bytes) -> tuple[int, ...]:
    """The CRC-32 of each 512 bytes."""
    return tuple(zlib.crc32(data[start : start + SECTOR]) for start in range(0, len(data), SECTOR))


def stamp_ns(seconds: int, extra: int) -> int:
    """A timestamp of an inode: 34 bits of seconds, 30 of nanoseconds."""
    return (seconds + ((extra & 3) << 32)) * NS_PER_S + (extra >> 2)


class Image:
    """An ext4 file system in memory. Raises FastsyncError when it makes no sense."""

    def __init__(self, data: bytes | bytearray | mmap) -> None:
        self._data = data
        base = 1024
        if struct.unpack_from("<H", data, base + 56)[0] != MAGIC:
            raise FastsyncError("no ext4 in this image")
        (log_block,) = struct.unpack_from("<I", data, base + 24)
        self.block_size = 1024 << log_block
        (self._first_block,) = struct.unpack_from("<I", data, base + 20)
        (self._inodes_per_group,) = struct.unpack_from("<I", data, base + 40)
        (self._inode_size,) = struct.unpack_from("<H", data, base + 88)
        (incompat,) = struct.unpack_from("<I", data, base + 96)
        (desc_size,) = struct.unpack_from("<H", data, base + 254)
        self._desc_size = desc_size if incompat & FEATURE_64BIT else 32

    def tree(self) -> Tree:
        """All files but the root folder."""
        return {path: self._file(ino) for path, ino in self.paths()}

    def paths(self) -> Iterator[tuple[str, int]]:
        """Where they are, with their inodes; a folder before what is in it."""
        return self._walk(ROOT_INO, "", set())

    def kind(self, ino: int) -> int:
        """What a file is: DIRECTORY, REGULAR or another of these bits of its mode."""
        (mode,) = struct.unpack_from("<H", self._inode(ino))
        return int(mode) & FORMAT_MASK

    def contents(self, ino: int) -> bytes:
        """What a regular file holds."""
        inode = self._inode(ino)
        size = _size(inode)
        if size > MAX_SIZE:
            raise FastsyncError(f"inode {ino} has {size} bytes")
        if _flags(inode) & INLINE_DATA_FLAG:
            return b"".join(self._inline(inode))[:size]
        data = bytearray(-(-size // self.block_size) * self.block_size)
        mapped = self._extents if _flags(inode) & EXTENTS_FLAG else self._indirect
        for logical, physical, count in mapped(inode):
            start = logical * self.block_size
            data[start : start + count * self.block_size] = self._blocks(physical, count)
        return bytes(data[:size])

    def _walk(self, folder: int, prefix: str, seen: set[str]) -> Iterator[tuple[str, int]]:
        for name, ino in self._names(folder):
            path = prefix + name
            if path in seen or path.count("/") > 64:
                raise FastsyncError(f"{path} is there twice")
            seen.add(path)
            yield path, ino
            if self.kind(ino) == DIRECTORY:
                yield from self._walk(ino, path + "/", seen)

    def _names(self, folder: int) -> Iterator[tuple[str, int]]:
        inode = self._inode(folder)
        if _flags(inode) & INLINE_DATA_FLAG:
            first, rest = self._inline(inode)
            pieces = [first[4:], rest]  # behind the number of the folder above
        else:
            data = self.contents(folder)
            step = self.block_size
            pieces = [data[start : start + step] for start in range(0, len(data), step)]
        for piece in pieces:
            yield from _entries(piece, folder)

    def _inline(self, inode: bytes) -> tuple[bytes, bytes]:
        """What is in i_block, and what is in the attribute."""
        value = dict(self._all_xattrs(inode)).get(INLINE_DATA, "")
        return inode[40:100], bytes.fromhex(value)

    def _file(self, ino: int) -> File:
        inode = self._inode(ino)
        mode, uid_low = struct.unpack_from("<HH", inode, 0)
        gid_low, links = struct.unpack_from("<HH", inode, 24)
        uid_high, gid_high = struct.unpack_from("<HH", inode, 120)
        _, ctime, mtime = struct.unpack_from("<iii", inode, 8)
        ctime_extra = mtime_extra = 0
        if len(inode) > SMALL_INODE:
            ctime_extra, mtime_extra = struct.unpack_from("<II", inode, 132)
        kind = mode & FORMAT_MASK
        contents = self.contents(ino) if kind == REGULAR else b""
        return File(
            ino=ino,
            mode=mode,
            uid=uid_low | uid_high << 16,
            gid=gid_low | gid_high << 16,
            links=links,
            size=_size(inode),
            mtime_ns=stamp_ns(mtime, mtime_extra),
            ctime_ns=stamp_ns(ctime, ctime_extra),
            xattrs=dict(self._xattrs(inode)),
            sectors=checksums(contents),
            target=self._target(ino, inode) if kind == SYMLINK else "",
            junk=shown(contents),
        )

    def _target(self, ino: int, inode: bytes) -> str:
        size = _size(inode)
        text = inode[40 : 40 + size] if size < 60 else self.contents(ino)
        return text.decode(errors="replace")

    def _inode(self, ino: int) -> bytes:
        group, index = divmod(ino - 1, self._inodes_per_group)
        position = (self._first_block + 1) * self.block_size + group * self._desc_size
        (table,) = struct.unpack_from("<I", self._data, position + 8)
        if self._desc_size >= 64:
            table |= struct.unpack_from("<I", self._data, position + 40)[0] << 32
        start = table * self.block_size + index * self._inode_size
        inode = bytes(self._data[start : start + self._inode_size])
        if ino < 1 or len(inode) < self._inode_size:
            raise FastsyncError(f"inode {ino} is outside the image")
        return inode

    def _blocks(self, first: int, count: int) -> bytes:
        start = first * self.block_size
        data = bytes(self._data[start : start + count * self.block_size])
        if len(data) != count * self.block_size:
            raise FastsyncError(f"block {first} is outside the image")
        return data

    def _extents(self, inode: bytes) -> Iterator[tuple[int, int, int]]:
        """Logical block, physical block and count of what is written."""
        yield from self._extent_node(inode[40:100])

    def _extent_node(self, node: bytes) -> Iterator[tuple[int, int, int]]:
        magic, entries, _, depth = struct.unpack_from("<HHHH", node)
        if magic != EXTENT_MAGIC or depth > 5:
            raise FastsyncError("a bad extent tree")
        for entry in range(entries):
            position = 12 + 12 * entry
            if depth:
                low, high = struct.unpack_from("<IH", node, position + 4)
                yield from self._extent_node(self._blocks(low | high << 32, 1))
            else:
                logical, count, high, low = struct.unpack_from("<IHHI", node, position)
                if count <= UNWRITTEN:
                    yield logical, low | high << 32, count

    def _indirect(self, inode: bytes) -> Iterator[tuple[int, int, int]]:
        """The same of an inode that has twelve blocks, then blocks of blocks of 1 to 3 levels."""
        numbers = struct.unpack_from("<15I", inode, 40)
        levels = (*(0 for _ in range(12)), 1, 2, 3)
        logical = 0
        last = -(-_size(inode) // self.block_size)
        for number, level in zip(numbers, levels, strict=True):
            yield from self._below(number, level, logical, last)
            logical += (self.block_size // 4) ** level

    def _below(
        self, number: int, level: int, logical: int, last: int
    ) -> Iterator[tuple[int, int, int]]:
        """What is below a block of blocks that begins at `logical`, up to the block `last`."""
        if not number or logical >= last:
            return
        if level == 0:
            yield logical, number, 1
            return
        step = (self.block_size // 4) ** (level - 1)
        for place, below in enumerate(struct.iter_unpack("<I", self._blocks(number, 1))):
            yield from self._below(below[0], level - 1, logical + place * step, last)

    def _xattrs(self, inode: bytes) -> Iterator[tuple[str, str]]:
        """Those that a user sees."""
        yield from (pair for pair in self._all_xattrs(inode) if pair[0] != INLINE_DATA)

    def _all_xattrs(self, inode: bytes) -> Iterator[tuple[str, str]]:
        if len(inode) > SMALL_INODE:
            start = SMALL_INODE + struct.unpack_from("<H", inode, SMALL_INODE)[0]
            if len(inode) >= start + 4 and _magic(inode, start) == XATTR_MAGIC:
                yield from _xattr_entries(inode, start + 4, start + 4)
        block = struct.unpack_from("<I", inode, 104)[0]
        block |= struct.unpack_from("<H", inode, 118)[0] << 32
        if block:
            yield from _xattr_entries(self._blocks(block, 1), 32, 0)


def _entries(piece: bytes, folder: int) -> Iterator[tuple[str, int]]:
    """The names in a block of a folder, or in a part of one that is inline."""
    position = 0
    while position < len(piece):
        ino, length, name_length = struct.unpack_from("<IHB", piece, position)
        if length < 8 or position + length > len(piece):
            raise FastsyncError(f"folder {folder} has a bad entry")
        name = piece[position + 8 : position + 8 + name_length].decode(errors="replace")
        if ino and name not in (".", ".."):
            yield name, ino
        position += length


def _flags(inode: bytes) -> int:
    (flags,) = struct.unpack_from("<I", inode, 32)
    return int(flags)


def _magic(data: bytes, position: int) -> int:
    (magic,) = struct.unpack_from("<I", data, position)
    return int(magic)


def _size(inode: bytes) -> int:
    (low,) = struct.unpack_from("<I", inode, 4)
    (high,) = struct.unpack_from("<I", inode, 108)
    return int(low | high << 32)


def _xattr_entries(data: bytes, first: int, values: int) -> Iterator[tuple[str, str]]:
    position = first
    while struct.unpack_from("<I", data, position)[0]:
        name_length, index, offset = struct.unpack_from("<BBH", data, position)
        (size,) = struct.unpack_from("<I", data, position + 8)
        name = data[position + 16 : position + 16 + name_length].decode(errors="replace")
        value = data[values + offset : values + offset + size]
        if index == ACL_INDEX:
            yield ACL, _acl(value).hex()
        else:
            yield XATTR_PREFIXES.get(index, f"{index}.") + name, value.hex()
        position += 16 + -(-name_length // 4) * 4


def acl(entries: Iterable[tuple[int, int, int]]) -> bytes:
    """An ACL as getxattr(2) gives it, of tags, permissions and ids."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *one) for one in entries)


def _acl(value: bytes) -> bytes:
    """The same of one as ext4 keeps it: few entries have an id there."""
    entries = []
    position = 4
    while position < len(value):
        tag, permissions = struct.unpack_from("<HH", value, position)
        position += 4
        number = NO_ID
        if tag in ACL_IDS:
            (number,) = struct.unpack_from("<I", value, position)
            position += 4
        entries.append((tag, permissions, number))
    return acl(entries)
