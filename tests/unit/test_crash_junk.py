"""Junk in blocks that nobody has written: where it is, and that it is seen in any file."""

from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.crash.case import Case
from fastsync_lab.crash.extfs import Image
from fastsync_lab.crash.judge import Judge
from fastsync_lab.crash.junk import junk, shown, without_sector
from fastsync_lab.crash.kinds import KINDS, make_base
from fastsync_lab.crash.recover import Found
from fastsync_lab.crash.script import Script
from fastsync_lab.crash.trace import sector_contents
from fastsync_lab.host import shell

SECTOR = 512
MIB = 12
WIPED = 64 << 10  # what mkfs clears at the end, of what others may have left there


def test_each_sector_says_which_it_is() -> None:
    three = junk(0xABCDE, 3)
    assert len(three) == 3 * SECTOR
    assert shown(three) == ((0, 0xABCDE), (1, 0xABCDF), (2, 0xABCE0))
    assert len({three[start : start + 16] for start in range(0, len(three), 16)}) == 3


def test_junk_is_seen_between_other_things_and_in_a_part_of_a_sector() -> None:
    mixed = bytes(700) + junk(8, 1)[: 3 * 16] + sector_contents(1, 0) + junk(9, 2)[:-3]
    assert shown(mixed) == ((1, 8), (2, 9), (3, 9), (4, 10))
    assert shown(bytes(500) + junk(8, 1)[:12]) == ()


@pytest.mark.parametrize(
    "contents",
    [b"", bytes(4096), sector_contents(0xFFFFFF, 7), b"~junk~" * 99, b"~junk~00000001 " * 9],
)
def test_all_else_is_no_junk(contents: bytes) -> None:
    assert shown(contents) == ()


def test_problem_without_its_sector_is_the_same_on_other_blocks() -> None:
    assert without_sector("f: bytes 0 to 511 show junk of sector 70, x") == (
        "f: bytes 0 to 511 show junk, x"
    )
    assert without_sector("f: size is 12, not 13") == "f: size is 12, not 13"


def free_blocks(image: Path) -> list[int]:
    """As debugfs lists them, in ranges."""
    said = shell.run(["/sbin/dumpe2fs", str(image)]).stdout
    lines = [line.split(": ", 1)[1] for line in said.splitlines() if "  Free blocks: " in line]
    ranges = [part.split("-") for line in lines for part in line.split(", ") if part]
    return [block for one in ranges for block in range(int(one[0]), int(one[-1]) + 1)]


@pytest.mark.parametrize("name", KINDS)
def test_every_free_block_has_junk_and_says_where_it_is(tmp_path: Path, name: str) -> None:
    """What is not free has none of it, but for what ext4 neither reads nor gives to files."""
    image = tmp_path / "image"
    make_base(image, MIB, kind=KINDS[name], with_junk=True)
    data = image.read_bytes()
    size = Image(data).block_size
    sectors = size // SECTOR
    blocks = free_blocks(image)
    assert len(blocks) * size > 6 << 20
    for block in (one for one in blocks if one * size < (MIB << 20) - WIPED):
        assert data[block * size : (block + 1) * size] == junk(block * sectors, sectors)
    assert shown(data[MIB << 20 :]) == ()  # an external journal
    assert len(data) == (MIB + KINDS[name].journal_mib) << 20
    if not KINDS[name].external:
        assert shell.run(["/sbin/e2fsck", "-fn", str(image)], check=False).status == 0


def test_without_junk_free_blocks_are_zeros(tmp_path: Path) -> None:
    make_base(tmp_path / "image", MIB)
    assert shown((tmp_path / "image").read_bytes()) == ()


def with_file(folder: Path) -> bytearray:
    """An image with a file of a block, a hole and an unwritten block; the second one is stale."""
    image = folder / "base.img"
    make_base(image, MIB, with_junk=True)
    contents = b"".join(b"%04d\n" % number for number in range(1000))
    (folder / "data").write_bytes(contents)
    commands = f"write {folder}/data f\nfallocate f 3 4\nsif f size 20480\n"
    shell.run(["/sbin/debugfs", "-w", "-f", "-", str(image)], input_text=commands)
    data = bytearray(image.read_bytes())
    start = data.index(contents[4096:])
    data[start : start + 4096] = junk(start // SECTOR, 8)
    return data


def test_file_shows_junk_where_its_block_is_stale_alone(tmp_path: Path) -> None:
    """Free blocks with junk lie all around; hole and unwritten block are zeros."""
    data = with_file(tmp_path)
    tree = Image(data).tree()
    first = data.index(b"0000\n0001\n") // SECTOR
    assert {path for path, file in tree.items() if file.junk} == {"f"}
    assert [sector for sector, _ in tree["f"].junk] == list(range(8, 16))
    assert [origin for _, origin in tree["f"].junk] == list(range(first + 8, first + 16))
    assert tree["f"].size == 20480


@pytest.mark.parametrize("script", [Script(["0 sync"], 1), Script(["BEGIN"], 1, sql=True)])
def test_state_with_junk_fails_whatever_its_workload_is(tmp_path: Path, script: Script) -> None:
    """Of the kernel's files and of e2fsck's, also before anything has been promised."""
    data = with_file(tmp_path)
    judge = Judge(Case("append", "defer", "ordered"), script, [], tmp_path)
    stale = Image(data).tree()
    sound = {**stale, "f": replace(stale["f"], junk=())}
    line = "f: bytes 4096 to 4607 show junk of sector "

    def told(by: str, problems: tuple[str, ...]) -> bool:
        return any(text.startswith(f"after recovery by {by}: {line}") for text in problems)

    verdict = judge.verdict(data, Found("x", (), (), stale, {}), frozenset())
    assert told("the kernel", verdict.kernel) and not told("e2fsck", verdict.e2fsck)
    verdict = judge.verdict(data, Found("x", (), (), sound, {}), frozenset())
    assert told("e2fsck", verdict.e2fsck) and not told("the kernel", verdict.kernel)
