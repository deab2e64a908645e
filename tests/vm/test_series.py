"""What applies to the source package of the kernel: ./fastsync series, and the planted faults."""

from pathlib import Path

import pytest

from fastsync_lab.crash.builds import delays_patch
from fastsync_lab.host import shell
from fastsync_lab.host.glue import FILESYSTEMS, assemble, copy_stock, forbid_warnings, overlay_files
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.host.series import write_series
from tests.vm.planted import FAULTS

PLANTED = [delays_patch(), *FAULTS.rglob("*.patch")]


def sources(folder: Path) -> dict[str, bytes]:
    """Every file below a folder's fs/, by its path."""
    return {str(file): (folder / file).read_bytes() for file in relative_files(folder)}


def relative_files(folder: Path) -> list[Path]:
    return sorted(f.relative_to(folder) for f in (folder / "fs").rglob("*") if f.is_file())


@pytest.mark.short
def test_it_applies_and_makes_what_is_compiled(tree: KernelTree, tmp_path: Path) -> None:
    """That is what assemble() makes. Where it is compiled faulty modules are, too, by turns."""
    patches = write_series(tree, tmp_path / "patches")
    target = tmp_path / "target"
    copy_stock(tree, target)
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x"]
    shell.run([*git, "init", "--quiet"], cwd=target)
    shell.run([*git, "add", "."], cwd=target)
    shell.run([*git, "commit", "--quiet", "-m", "stock"], cwd=target)
    shell.run([*git, "am", "--quiet", "--empty=drop", *map(str, patches)], cwd=target)
    assert shell.run([*git, "log", "--oneline"], cwd=target).stdout.count("\n") == len(patches)

    for filesystem in FILESYSTEMS:
        forbid_warnings(overlay_files(filesystem), target / "fs" / filesystem)
    built = tmp_path / "built"
    assemble(tree, built, stock=False)
    assert sources(target) == sources(built)


@pytest.mark.short
@pytest.mark.parametrize("patch", PLANTED, ids=lambda patch: patch.stem)
def test_a_planted_fault_applies(
    tree: KernelTree, tmp_path: Path, patch: Path, request: pytest.FixtureRequest
) -> None:
    if patch.stem.startswith(("burst-", "eager-")):
        request.getfixturevalue("bursts")
    assemble(tree, tmp_path, stock=False, patches=[patch])  # raises
