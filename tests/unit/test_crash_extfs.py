"""Reading files out of an ext4 image that mkfs.ext4 and debugfs have made."""

import zlib
from pathlib import Path

import pytest

from fastsync_lab.crash.extfs import Image, stamp_ns
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
    assert not tree["lost+found"].is_regular


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
    assert files.contents(file.ino) == data
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


def test_rubbish_is_refused() -> None:
    with pytest.raises(FastsyncError, match="no ext4"):
        Image(bytes(4096))


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
