"""Reading files out of an ext4 image that mkfs.ext4 and debugfs have made."""

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fastsync_lab.crash import extfs
from fastsync_lab.crash.extfs import (
    DIRECTORY,
    FORMAT_MASK,
    XATTR_MAGIC,
    Image,
    _entries,
    _size,
    _xattr_entries,
    stamp_ns,
)
from fastsync_lab.crash.kinds import EXTERNAL_MIB, KINDS, Kind, make_base, split_journal
from fastsync_lab.host import shell
from fastsync_lab.host.errors import FastsyncError


def made(image: Path, commands: str) -> Image:
    """The image after these commands of debugfs."""
    shell.run(["/sbin/debugfs", "-w", "-f", "-", str(image)], input_text=commands)
    return Image(image.read_bytes())


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image"
    make_base(path, 12)
    return path


def test_fresh_image(image: Path) -> None:
    tree = Image(image.read_bytes()).tree()
    assert list(tree) == ["lost+found"]
    assert tree["lost+found"].mode & FORMAT_MASK == DIRECTORY
    assert tree["lost+found"].sectors == ()


def test_files(image: Path, tmp_path: Path) -> None:
    data = b"".join(bytes([number % 251]) * 700 for number in range(100))
    (tmp_path / "data").write_bytes(data)
    files = made(
        image,
        f"mkdir d\nwrite {tmp_path}/data d/f\nsymlink d/short target\nsymlink d/long {'x' * 100}\n"
        "sif d/f mode 0100640\nsif d/f uid 70000\nsif d/f gid 5\n"
        "sif d/f mtime 20200102030405\nsif d/f mtime_extra 0x1d6f3454\n"
        f"ea_set d/f user.small one\nea_set d/f user.large {'y' * 1000}\n",
    )
    tree = files.tree()
    assert set(tree) == {"lost+found", "d", "d/f", "d/short", "d/long"}
    file = tree["d/f"]
    assert files.contents(file.ino) == data and file.target == ""
    assert (file.size, file.mode, file.uid, file.gid) == (len(data), 0o100640, 70000, 5)
    assert file.mtime_ns == 1577934245 * 10**9 + (0x1D6F3454 >> 2)
    assert file.sectors[0] == zlib.crc32(data[:512])
    assert file.sectors[-1] == zlib.crc32(data[len(data) // 512 * 512 :])
    assert file.xattrs == {"user.small": b"one".hex(), "user.large": (b"y" * 1000).hex()}
    assert (tree["d/short"].target, tree["d/long"].target) == ("target", "x" * 100)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_file_system(tmp_path: Path, name: str) -> None:
    """Files that an inode has room for, and has not; a folder that it has no room for."""
    kind = KINDS[name]
    contents = {"tiny": b"x" * 20, "small": b"abc" * 30, "large": bytes(range(256)) * 100}
    for file, data in contents.items():
        (tmp_path / file).write_bytes(data)
    make_base(tmp_path / "image", 12, kind=kind)
    files = made(
        tmp_path / "image",
        "mkdir d\nmkdir few\nsymlink few/x y\n"
        + "".join(f"write {tmp_path}/{file} d/{file}\n" for file in contents)
        + "".join(f"symlink d/{number:030} x\n" for number in range(8))
        + "ea_set d/tiny user.k v\nsif d/tiny mtime 20200102030405\n",
    )
    tree = files.tree()
    assert len(tree) == 3 + 1 + len(contents) + 8 and "few/x" in tree
    for file, data in contents.items():
        assert files.contents(tree[f"d/{file}"].ino) == data
    assert tree["d/tiny"].xattrs == {"user.k": b"v".hex()}
    assert tree["d/tiny"].mtime_ns // 10**9 == 1577934245


def test_inline_data_is_where_it_is_said_to_be(tmp_path: Path) -> None:
    """Else the test above would test nothing of it."""
    make_base(tmp_path / "image", 12, kind=KINDS["inline_data"])
    (tmp_path / "small").write_bytes(b"abc" * 30)
    made(tmp_path / "image", f"write {tmp_path}/small f\n")
    said = shell.run(["/sbin/debugfs", "-R", "stat f", str(tmp_path / "image")]).stdout
    assert "Size of inline data: 90" in said


def test_external_journal_is_known_to_both(tmp_path: Path) -> None:
    image = tmp_path / "image"
    make_base(image, 12, kind=KINDS["external"])
    parts = split_journal(image.read_bytes(), KINDS["external"])
    assert [len(part) for part in parts] == [12 << 20, EXTERNAL_MIB << 20]
    for name, part in zip(("fs", "journal"), parts, strict=True):
        (tmp_path / name).write_bytes(part)
    argv = ["/sbin/e2fsck", "-fn", "-j", str(tmp_path / "journal"), str(tmp_path / "fs")]
    assert shell.run(argv, check=False).status == 0
    (tmp_path / "journal").write_bytes(bytes(EXTERNAL_MIB << 20))
    assert shell.run(argv, check=False).status != 0


def test_holes_and_many_extents(image: Path, tmp_path: Path) -> None:
    """A file with a tree of extents, every second block a hole."""
    blocks = 40
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as file:
        for number in range(0, blocks, 2):
            file.seek(number * 4096)
            file.write(bytes([number + 1]) * 4096)
        file.truncate(blocks * 4096)
    files = made(image, f"write {sparse} f\n")
    assert files.contents(files.tree()["f"].ino) == sparse.read_bytes()


def test_large_folder_is_read_in_full(image: Path) -> None:
    commands = "mkdir d\n" + "".join(f"symlink d/{number:0200} x\n" for number in range(60))
    assert len(made(image, commands).tree()) == 62


def refused(call: Callable[[], object]) -> str:
    """What is said of an image that makes no sense."""
    with pytest.raises(FastsyncError) as error:
        call()
    return str(error.value)


def test_rubbish_is_refused() -> None:
    assert refused(lambda: Image(bytes(4096))) == "no ext4 in this image"


def test_what_makes_no_sense_is_refused(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").write_bytes(b"x" * 9000)
    start = image.read_bytes()

    def after(commands: str) -> Image:
        image.write_bytes(start)
        return made(image, f"write {tmp_path}/data f\nmkdir d\n{commands}")

    whole = after("")
    ino = whole.tree()["f"].ino
    assert whole.contents(ino) == b"x" * 9000
    monkeypatch.setattr(extfs, "MAX_SIZE", 40000)
    assert len(after("sif f size 40000\n").contents(ino)) == 40000
    assert refused(after("sif f size 40001\n").tree) == f"inode {ino} has 40001 bytes"
    assert refused(after("sif f block[0] 0\n").tree) == "a bad extent tree"
    twice = after("symlink d/name1 x\nsymlink d/name2 x\n")
    twice = Image(bytes(twice._data).replace(b"name2", b"name1"))
    assert refused(twice.tree) == "d/name1 is there twice"
    assert refused(after("link d d/x\n").tree) == f"d{'/x' * 65} is there twice"
    assert refused(lambda: whole.contents(0)) == "inode 0 is outside the image"
    (_, first, _), *_ = whole._extents(whole._inode(ino))
    cut = Image(bytes(whole._data)[: (first + 2) * 4096])
    assert refused(lambda: cut.contents(ino)) == f"block {first} is outside the image"


def test_an_extent_has_16_more_bits_and_may_be_unwritten() -> None:
    entries = [(0, 3, 0, 100), (5, 32768, 2, 200), (9, 32769, 0, 300)]
    head = struct.pack("<HHHHI", 0xF30A, len(entries), 4, 0, 0)
    node = head + b"".join(struct.pack("<IHHI", *entry) for entry in entries)
    image = object.__new__(Image)
    assert list(image._extent_node(node)) == [(0, 100, 3), (5, 200 | 2 << 32, 32768)]
    for bad in (b"\0\0" + node[2:], node[:6] + b"\6\0" + node[8:]):
        assert refused(partial(next, image._extent_node(bad))) == "a bad extent tree"
    image.block_size = 1024
    image._data = node.ljust(1024, b"\0")

    def index(block: int) -> bytes:
        """A node of the fifth level, the highest, with a node of the lowest below it."""
        numbers = struct.pack("<IIHH", 0, block & 0xFFFFFFFF, block >> 32, 0)
        return struct.pack("<HHHHI", 0xF30A, 1, 4, 5, 0) + numbers

    assert list(image._extent_node(index(0))) == list(image._extent_node(node))
    for block in (1, 3 | 100 << 32, 0xF0000000 | 0x8001 << 32):
        said = refused(partial(next, image._extent_node(index(block))))
        assert said == f"block {block} is outside the image"


def test_what_is_below_a_block_of_blocks() -> None:
    """Of four numbers. A hole has none, and what is behind the end of the file is not read."""
    image = object.__new__(Image)
    image.block_size = 16
    high = 0xFFFFFFF0
    numbers = ((0, 0, 0, 0), (7, 0, high, 9), (1, 0, 1, 1))
    image._data = b"".join(struct.pack("<4I", *four) for four in numbers)
    assert list(image._below(0, 0, 5, 10)) == list(image._below(0, 2, 5, 10)) == []
    assert list(image._below(3, 0, 10, 10)) == []
    assert list(image._below(3, 0, 9, 10)) == [(9, 3, 1)]
    assert list(image._below(1, 1, 20, 23)) == [(20, 7, 1), (22, high, 1)]
    assert list(image._below(2, 2, 40, 49)) == [(40, 7, 1), (42, high, 1), (43, 9, 1), (48, 7, 1)]
    inode = struct.pack("<II", 0, 15 * 16 + 1).ljust(40, b"\0")
    inode += struct.pack("<15I", high, *range(21, 32), 1, 0, 0).ljust(100, b"\0")
    direct = [(number, 20 + number, 1) for number in range(1, 12)]
    assert list(image._indirect(inode)) == [
        (0, high, 1), *direct, (12, 7, 1), (14, high, 1), (15, 9, 1),
    ]  # fmt: skip


def test_entries_of_a_folder() -> None:
    def entry(ino: int, length: int, name: bytes) -> bytes:
        return (struct.pack("<IHB", ino, length, len(name)) + b"\1" + name).ljust(length, b"\0")

    piece = entry(2, 12, b".") + entry(2, 12, b"..") + entry(0, 12, b"gone") + entry(7, 8, b"")
    assert list(_entries(piece + entry(300, 20, b"a\xff"), 2)) == [("", 7), ("a\ufffd", 300)]
    for bad in (entry(5, 12, b"a")[:11], struct.pack("<IHB", 5, 7, 0) + b"\1"):
        assert refused(partial(next, _entries(bad, 9))) == "folder 9 has a bad entry"


def test_large_numbers_of_a_superblock_and_of_a_size() -> None:
    fields = {20: 0x80000001, 40: 0x80000003, 96: 0x80, 56: 0xEF53, 88: 0x8005, 254: 0x8006}
    data = bytearray(2048)
    for place, number in fields.items():
        struct.pack_into("<I" if place in (20, 40) else "<H", data, 1024 + place, number)
    image = Image(data)
    assert (image.block_size, image._first_block) == (1024, 0x80000001)
    assert (image._inodes_per_group, image._inode_size) == (0x80000003, 0x8005)
    assert image._desc_size == 0x8006
    inode = (bytes(4) + struct.pack("<I", 0x80000001)).ljust(108, b"\1")
    assert _size(inode + struct.pack("<I", 0x90000002)) == 0x80000001 | 0x90000002 << 32


class Far(bytes):
    """Data of which any slice can be read: it says where it began."""

    def __getitem__(self, key: Any) -> Any:
        return key.start.to_bytes(16, "little", signed=True).ljust(key.stop - key.start, b"\0")


@pytest.mark.parametrize(("size", "table"), [(32, 0x80000001), (64, 0x80000001 | 0x90000002 << 32)])
def test_where_an_inode_is(size: int, table: int) -> None:
    """Group 1 of four inodes each; the numbers of its descriptor are in two halves."""
    descriptor = struct.pack("<III", 5, 5, 0x80000001).ljust(40, b"\5")
    image = object.__new__(Image)
    image._data = Far(b"\7" * (1024 + size) + descriptor + struct.pack("<I", 0x90000002))
    image.block_size, image._first_block, image._inodes_per_group = 1024, 0, 4
    image._inode_size, image._desc_size = 128, size
    start = int.from_bytes(image._inode(7)[:16], "little", signed=True)
    assert start == table * 1024 + 2 * 128
    assert len(image._inode(1)) == 128


def test_where_extended_attributes_are(monkeypatch: pytest.MonkeyPatch) -> None:
    image, asked = object.__new__(Image), list[tuple[int, int]]()
    pair = struct.pack("<BBHIII", 1, 1, 60, 0, 1, 0) + b"n\0\0\0"

    def blocks(first: int, count: int) -> bytes:
        asked.append((first, count))
        return bytes(32) + pair + bytes(8) + b"v"

    def inode(extra: int) -> bytes:
        """With numbers of a block of attributes, and `extra` bytes of other numbers behind 128."""
        head = bytes(104) + struct.pack("<I", 0x80000001) + bytes(10) + struct.pack("<H", 0x9002)
        return head.ljust(128, b"\0") + struct.pack("<H", extra).ljust(128, b"\0")

    monkeypatch.setattr(image, "_blocks", blocks)
    for extra in (32, 126, 200, 0x8000):  # without attributes; at the end; behind it
        assert list(image._all_xattrs(inode(extra))) == [("user.n", b"v".hex())]
        assert asked.pop() == (0x80000001 | 0x9002 << 32, 1)
    own = inode(32)[:160] + struct.pack("<I", XATTR_MAGIC) + pair + bytes(40) + b"w"
    assert list(image._all_xattrs(own.ljust(256, b"\0"))) == [
        ("user.n", b"w".hex()), ("user.n", b"v".hex()),
    ]  # fmt: skip


def test_entries_of_extended_attributes() -> None:
    """Each has its value at an offset from where values are counted, and a name that is padded."""

    def entry(index: int, name: bytes, offset: int, size: int) -> bytes:
        head = struct.pack("<BBHIII", len(name), index, offset, 7, size, 0xFFFFFFFF)
        return head + name.ljust(-(-len(name) // 4) * 4, b"\0")

    entries = entry(1, b"four", 90, 3) + entry(200, b"a\xff", 94, 2) + entry(7, b"seven77", 90, 0)
    data = (b"?" * 8 + entries + bytes(4)).ljust(110, b"!") + b"onetwo"
    assert list(_xattr_entries(data, 8, 20)) == [
        ("user.four", b"one".hex()), ("200.a\ufffd", b"wo".hex()), ("system.seven77", ""),
    ]  # fmt: skip


def test_a_bad_folder_is_named(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, folders = extfs._entries, list[int]()

    def entries(piece: bytes, folder: int) -> Iterator[tuple[str, int]]:
        folders.append(folder)
        return read(piece, folder)

    monkeypatch.setattr(extfs, "_entries", entries)
    Image(image.read_bytes()).tree()
    assert set(folders) == {2, 11}


def test_inline_data_without_an_attribute() -> None:
    inode = bytes(40) + bytes(range(60)) + bytes(156)
    assert object.__new__(Image)._inline(inode) == (bytes(range(60)), b"")


def test_a_target_that_is_no_text(image: Path) -> None:
    made(image, f"symlink short targ@t\nsymlink long {'l' * 70}@\n")
    data = image.read_bytes()
    for text in (b"targ@t", b"ll@"):
        assert data.count(text) == 1
        data = data.replace(text, text.replace(b"@", b"\xff"))
    tree = Image(data).tree()
    assert (tree["short"].target, tree["long"].target) == ("targ\ufffdt", "l" * 70 + "\ufffd")


def test_every_number_of_an_inode(image: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"")
    files = made(
        image,
        f"write {tmp_path}/data f\nsif f links_count 40000\n"
        "sif f uid 3000000000\nsif f gid 3000040000\n"
        "sif f mtime 20200102030405\nsif f mtime_extra 0x1d6f3454\n"
        "sif f ctime 20210102030405\nsif f ctime_extra 0x2d6f3455\n"
        f"symlink short {'s' * 59}\nsymlink long {'l' * 60}\n"
        "ea_set f user.a 12\nea_set f trusted.bc 345\nea_set f security.def 6\n"
        f"ea_set f user.large {'y' * 300}\nea_set f trusted.larger {'z' * 301}\n",
    )
    tree = files.tree()
    file = tree["f"]
    assert (file.uid, file.gid, file.links, file.size) == (
        3000000000, 3000040000, 40000, 0,
    )  # fmt: skip
    assert file.mtime_ns == 1577934245 * 10**9 + (0x1D6F3454 >> 2)
    assert file.ctime_ns == (1609556645 + (1 << 32)) * 10**9 + (0x2D6F3455 >> 2)
    early = files._inode(file.ino)
    early = early[:12] + struct.pack("<ii", -1, -2) + early[20:132]
    early += struct.pack("<II", 999999998 << 2, 999999999 << 2) + files._inode(file.ino)[140:]
    data = bytes(files._data).replace(files._inode(file.ino), early)
    before = Image(data).tree()["f"]  # the year 1969
    assert (before.ctime_ns, before.mtime_ns) == (-2, -(10**9) - 1)
    assert file.sectors == () and file.target == ""
    assert (tree["short"].target, tree["long"].target) == ("s" * 59, "l" * 60)
    assert tree["short"].xattrs == {}
    assert file.xattrs == {
        name: value.encode().hex()
        for name, value in {
            "user.a": "12", "trusted.bc": "345", "security.def": "6",
            "user.large": "y" * 300, "trusted.larger": "z" * 301,
        }.items()
    }  # fmt: skip


@pytest.mark.parametrize("bits", ["64bit", "^64bit"])
def test_inodes_of_another_group(bits: str, tmp_path: Path) -> None:
    """Blocks of 1 KiB make two groups."""
    make_base(tmp_path / "image", 12, kind=Kind(mkfs=("-b", "1024", "-O", bits)))
    lines = [f"symlink {number:04} x{number}\n" for number in range(520)]
    files = made(tmp_path / "image", "".join(lines))
    tree = files.tree()
    assert max(file.ino for file in tree.values()) > files._inodes_per_group + 2
    assert [tree[f"{number:04}"].target for number in range(520)] == [
        f"x{number}" for number in range(520)
    ]


def test_blocks_that_are_allocated_and_not_written_are_zeros(image: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"x" * 4096)
    files = made(image, f"write {tmp_path}/data f\nfallocate f 0 3\nsif f size 16384\n")
    assert files.contents(files.tree()["f"].ino) == b"x" * 4096 + bytes(3 * 4096)


def test_stamps_before_and_after_32_bits() -> None:
    assert stamp_ns(-1, 0) == -(10**9)
    assert stamp_ns(-(1 << 31), 1 | 7 << 2) == (1 << 31) * 10**9 + 7


def test_blocks_of_blocks_of_every_level(tmp_path: Path) -> None:
    """On 1 KiB blocks 12 + 256 blocks take two levels, 65,536 more the third."""
    data = bytearray(b"front" * 300_000)
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as file:
        file.write(data)
        file.seek((12 + 256 + 65536 + 700) * 1024)
        file.write(b"behind")
    make_base(tmp_path / "image", 12, kind=Kind(mkfs=("-b", "1024", "-O", "^extents,^64bit")))
    files = made(tmp_path / "image", f"write {sparse} f\n")
    contents = files.contents(files.tree()["f"].ino)
    assert contents == sparse.read_bytes()
