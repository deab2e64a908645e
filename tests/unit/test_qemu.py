"""qemu.py: the command that boots, and the initramfs."""

import lzma
from pathlib import Path

import pytest

from fastsync_lab import qemu
from fastsync_lab.errors import UsageError
from fastsync_lab.image import RootImage
from fastsync_lab.kernels import KernelTree
from fastsync_lab.qemu import Share, VmConfig

RELEASE = "6.12.1+deb12-amd64"


@pytest.fixture
def tree(tmp_path: Path) -> KernelTree:
    """A kernel that is not there, with its modules packed."""
    (tmp_path / f"modules-{RELEASE}.erofs").write_bytes(bytes(2 << 20))
    modules = tmp_path / "lib" / "modules" / RELEASE
    names = ("6.12", RELEASE, "6.12.1-1~deb12u1")
    return KernelTree(*names, tmp_path / "vmlinuz", modules, tmp_path, tmp_path)


def argv_of(config: VmConfig, folder: Path) -> list[str]:
    (folder / "root.erofs").write_bytes(bytes(4 << 20))
    image = RootImage(folder / "root.erofs", folder / "busybox", "", {})
    console = folder / "console.log"
    return qemu.qemu_command(config, image, out_dir=folder / "a,b", folder=folder, console=console)


def values(argv: list[str], option: str) -> list[str]:
    return [argv[place + 1] for place, word in enumerate(argv) if word == option]


def test_virtual_time_has_icount_and_real_time_has_not(tree: KernelTree, tmp_path: Path) -> None:
    assert values(argv_of(VmConfig(tree), tmp_path), "-icount") == ["shift=1,sleep=off"]
    two = argv_of(VmConfig(tree, cpus=2, real_time=True), tmp_path)
    assert "-icount" not in two
    assert values(two, "-smp") == ["2"]


def test_images_are_memory_that_the_guest_only_reads(tree: KernelTree, tmp_path: Path) -> None:
    argv = argv_of(VmConfig(tree, memory_mib=512), tmp_path)
    backends = [word for word in values(argv, "-object") if "memory-backend-file" in word]
    assert [f"size={size << 20}," in word for size, word in zip((4, 2), backends, strict=True)]
    assert all("readonly=on" in word and "share=on" in word for word in backends)
    (memory,) = values(argv, "-m")
    assert memory.startswith("512M,maxmem=")


def test_nothing_of_the_host_is_shared_but_what_is_asked_for(
    tree: KernelTree, tmp_path: Path
) -> None:
    assert len(values(argv_of(VmConfig(tree), tmp_path), "-fsdev")) == 1
    shares = (Share(Path("/a")), Share(Path("/b"), writable=True))
    out, read, write = values(argv_of(VmConfig(tree, shares=shares), tmp_path), "-fsdev")
    assert f"path={tmp_path}/a,,b," in out
    assert "readonly=on" not in out
    assert "path=/a," in read and read.endswith(",readonly=on")
    assert "path=/b," in write and "readonly" not in write
    assert qemu.shares_text(VmConfig(tree, shares=shares)).splitlines()[1:] == [
        "share0 ro /a",
        "share1 rw /b",
    ]


def test_kernel_parameters_are_added(tree: KernelTree, tmp_path: Path) -> None:
    (line,) = values(argv_of(VmConfig(tree, parameters=("a=1", "b")), tmp_path), "-append")
    assert line.endswith(" a=1 b")


@pytest.mark.parametrize("word", ["", "a b", "a\n", "ö"])
def test_what_is_no_kernel_parameter_is_refused(tree: KernelTree, word: str) -> None:
    with pytest.raises(UsageError, match="not one kernel parameter"):
        VmConfig(tree, parameters=(word,))


def test_more_processors_take_real_time(tree: KernelTree) -> None:
    with pytest.raises(UsageError, match="2 processors take real time"):
        VmConfig(tree, cpus=2)


def test_share_is_a_folder_to_read_or_to_write(tmp_path: Path) -> None:
    assert qemu.parse_share(str(tmp_path)) == Share(tmp_path)
    assert qemu.parse_share(f"{tmp_path}:rw") == Share(tmp_path, writable=True)


@pytest.mark.parametrize("text", ["", ":rw", "/", "/:rw", "/no/such/folder", "/etc/passwd"])
def test_other_shares_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="cannot share"):
        qemu.parse_share(text)


def test_modules_are_in_the_order_to_load_them() -> None:
    text = """\
builtin crc64
insmod /a b/kernel/crypto/crc32c-cryptoapi.ko.xz
insmod /a b/kernel/fs/mbcache.ko option=1
install /bin/true
insmod /a b/kernel/fs/ext4/ext4.ko
"""
    names = [path.name for path in qemu.parse_show_depends(text)]
    assert names == ["crc32c-cryptoapi.ko.xz", "mbcache.ko", "ext4.ko"]
    assert qemu.parse_show_depends("") == []


def test_compressed_module_is_unpacked(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.ko", tmp_path / "a.ko.xz"
    plain.write_bytes(b"module")
    packed.write_bytes(lzma.compress(b"module"))
    assert qemu.module_bytes(plain) == qemu.module_bytes(packed) == b"module"
