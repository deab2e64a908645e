"""config.py, initramfs.py, qemu.py and uml.py: the commands that boot, and the initramfs."""

import lzma
from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.host.errors import UsageError
from fastsync_lab.host.kernels import UML, KernelTree
from fastsync_lab.machine import initramfs
from fastsync_lab.machine.config import Share, VmConfig, parse_share
from fastsync_lab.machine.uml import uml_machine
from tests.unit.machines import RELEASE, argv_of, packed_tree, setting_in, values


@pytest.fixture
def tree(tmp_path: Path) -> KernelTree:
    return packed_tree(tmp_path)


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
    assert initramfs.shares_text(VmConfig(tree, shares=shares)).splitlines()[1:] == [
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


def test_ports_are_sockets_that_qemu_inherits(tree: KernelTree, tmp_path: Path) -> None:
    backends = values(argv_of(VmConfig(tree), tmp_path), "-chardev")[1:]
    assert backends == [f"socket,id=fs{number},fd={10 + number}" for number in range(4)]


def test_uml_takes_all_by_names_in_its_folder(tree: KernelTree, tmp_path: Path) -> None:
    """Whatever the files are called: the kernel cuts its arguments at spaces, commas and colons."""
    shares = (Share(Path("/a, b:c")),)
    config = VmConfig(replace(tree, variant=UML), 512, shares=shares, parameters=("x=1",))
    found = uml_machine(config, setting_in(tmp_path))
    words = found.argv[found.argv.index(str(tree.vmlinuz)) + 1 :]
    assert words[-1] == "x=1"
    assert {"mem=512M", "initrd=initramfs", f"hostfs={tmp_path}/host", "uml_dir=."} < set(words)
    assert {"ubd0r=host/root", "ubd1r=host/modules", "ssl0=fd:10", "ssl3=fd:13"} < set(words)
    names = {
        name: (tmp_path / "host" / name).readlink() for name in ("root", "modules", "out", "share0")
    }
    assert names == {
        "root": tmp_path / "root.erofs",
        "modules": tmp_path / f"modules-{RELEASE}.erofs",
        "out": tmp_path / "a,b",
        "share0": Path("/a, b:c"),
    }


def test_uml_is_in_real_time_and_has_one_processor(tree: KernelTree) -> None:
    uml = replace(tree, variant=UML)
    assert VmConfig(tree).virtual_time and not VmConfig(uml).virtual_time
    assert VmConfig(uml).slowness == 1
    with pytest.raises(UsageError, match="User-Mode Linux has one processor, not 2"):
        VmConfig(uml, cpus=2)


def test_share_is_a_folder_to_read_or_to_write(tmp_path: Path) -> None:
    assert parse_share(str(tmp_path)) == Share(tmp_path)
    assert parse_share(f"{tmp_path}:rw") == Share(tmp_path, writable=True)


@pytest.mark.parametrize("text", ["", ":rw", "/", "/:rw", "/no/such/folder", "/etc/passwd"])
def test_other_shares_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="cannot share"):
        parse_share(text)


def test_modules_are_in_the_order_to_load_them() -> None:
    text = """\
builtin crc64
insmod /a b/kernel/crypto/crc32c-cryptoapi.ko.xz
insmod /a b/kernel/fs/mbcache.ko option=1
install /bin/true
insmod /a b/kernel/fs/ext4/ext4.ko
"""
    names = [path.name for path in initramfs.parse_show_depends(text)]
    assert names == ["crc32c-cryptoapi.ko.xz", "mbcache.ko", "ext4.ko"]
    assert initramfs.parse_show_depends("") == []


def test_compressed_module_is_unpacked(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.ko", tmp_path / "a.ko.xz"
    plain.write_bytes(b"module")
    packed.write_bytes(lzma.compress(b"module"))
    assert initramfs.module_bytes(plain) == initramfs.module_bytes(packed) == b"module"
