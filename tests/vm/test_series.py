"""What applies to the source package of the kernel: ./fastsync series, and the planted faults."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastsync_lab.host import shell
from fastsync_lab.host.build import (
    FILESYSTEMS,
    assemble,
    copy_stock,
    forbid_warnings,
    kbuild,
    make_module,
    overlay_files,
)
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.host.paths import build_dir, repo_root
from fastsync_lab.host.progress import silent
from fastsync_lab.host.series import write_series

PLANTED = [repo_root() / "tests/delays.patch", *(repo_root() / "tests/faults").rglob("*.patch")]


def sources(folder: Path) -> dict[str, bytes]:
    """Every file below a folder's fs/, by its path."""
    return {str(file): (folder / file).read_bytes() for file in relative_files(folder)}


def relative_files(folder: Path) -> list[Path]:
    return sorted(f.relative_to(folder) for f in (folder / "fs").rglob("*") if f.is_file())


@pytest.fixture
def workshop() -> Iterator[Path]:
    """A folder that chroots see too; of this machine's they have the cache and build/ alone."""
    build_dir().mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="series-", dir=build_dir()) as folder:
        yield Path(folder)


@pytest.mark.short
def test_it_applies_compiles_and_is_what_is_built(
    tree: KernelTree, workshop: Path, tmp_path: Path
) -> None:
    patches = write_series(tree, workshop / "patches")
    target = workshop / "target"
    copy_stock(tree, target)
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x"]
    shell.run([*git, "init", "--quiet"], cwd=target)
    shell.run([*git, "add", "."], cwd=target)
    shell.run([*git, "commit", "--quiet", "-m", "stock"], cwd=target)
    shell.run([*git, "am", "--quiet", "--empty=drop", *map(str, patches)], cwd=target)
    assert shell.run([*git, "log", "--oneline"], cwd=target).stdout.count("\n") == len(patches)

    for filesystem in FILESYSTEMS:
        forbid_warnings(overlay_files(filesystem), target / "fs" / filesystem)
    assemble(tree, workshop / "built", stock=False)
    assert sources(target) == sources(workshop / "built")

    system, log = kbuild(tree, silent), tmp_path / "log"
    jbd2, ext4 = (target / "fs" / name for name in FILESYSTEMS)
    make_module(system, jbd2, log, "CONFIG_JBD2=m")
    symbols = f"KBUILD_EXTRA_SYMBOLS={jbd2}/Module.symvers"
    make_module(system, ext4, log, "CONFIG_EXT4_FS=m", symbols)
    assert (jbd2 / "jbd2.ko").is_file() and (ext4 / "ext4.ko").is_file()


@pytest.mark.short
@pytest.mark.parametrize("patch", PLANTED, ids=lambda patch: patch.stem)
def test_a_planted_fault_applies(
    tree: KernelTree, tmp_path: Path, patch: Path, request: pytest.FixtureRequest
) -> None:
    if patch.stem.startswith(("burst-", "eager-")):
        request.getfixturevalue("bursts")
    assemble(tree, tmp_path, stock=False, patches=[patch])  # raises
