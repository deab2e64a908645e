"""Overlay and glue: our files and patches on a stock kernel's ext4 and jbd2."""

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from fastsync_lab.host.errors import FastsyncError, UsageError
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.host.paths import repo_root
from fastsync_lab.host.shell import last_lines, run

FILESYSTEMS = ("jbd2", "ext4")  # in build order: ext4 needs the symbols of jbd2


def overlay_files(filesystem: str) -> list[Path]:
    """Our new files for fs/<filesystem>."""
    return sorted(p for p in (repo_root() / "kernel" / filesystem).glob("*") if p.is_file())


def glue_patches(series: str) -> list[Path]:
    """The patches that hook our files into the kernel's own, in the order they apply."""
    return sorted((repo_root() / "kernel" / "glue" / series).glob("*.patch"))


def own_sources(series: str) -> list[Path]:
    """What makes jbd2 and ext4 ours: new files and patches."""
    files = [file for name in FILESYSTEMS for file in overlay_files(name)]
    return [*files, *glue_patches(series)]


def check_glue(series: str) -> None:
    """Raise UsageError for a series that can only be built as it is, for want of glue."""
    if not glue_patches(series):
        raise UsageError(
            f"kernel/glue/{series} has no patches: of this kernel there are only the stock modules "
            "(--stock)"
        )


def parse_patch_failures(output: str) -> list[str]:
    """What failed, from the output of patch(1): the file, the hunk's number and its line."""
    failures = []
    file = "?"
    for line in output.splitlines():
        if match := re.match(r"(?:patching file '?|\|\+\+\+ [^/]*/)([^'\s]+)", line):
            file = match[1]
        elif match := re.match(r"Hunk #(\d+) (?:FAILED|ignored) at (\d+)", line):
            failures.append(f"{file}, hunk {match[1]} (line {match[2]})")
        elif line.startswith("No file to patch"):
            failures.append(f"{file} is not there")
    return failures


def apply_patch(patch: Path, source: Path, tree: KernelTree) -> None:
    """Apply a glue patch to the sources; FastsyncError names the patch, file and hunk that fail."""
    argv = ["patch", "-p1", "--fuzz=0", "--forward", "--batch", "--no-backup-if-mismatch"]
    done = run([*argv, "--reject-file=-", "-i", str(patch)], cwd=source, check=False)
    if done.status == 0:
        return
    what = "; ".join(parse_patch_failures(done.stdout))
    raise FastsyncError(
        f"{patch.parent.parent.name}/{patch.parent.name}/{patch.name} does not apply to "
        f"linux-source {tree.debian_version}: {what or last_lines(done.stdout + done.stderr, 2)}"
    )


def patches_for(purpose: str, series: str) -> list[Path]:
    """The patches in patches/<purpose>/ for a series, in the order they apply; perhaps none."""
    return sorted((repo_root() / "patches" / purpose / series).glob("*.patch"))


def upstream_patches(series: str) -> list[Path]:
    """What we mend of the stock modules."""
    return patches_for("upstream", series)


def assemble(tree: KernelTree, source: Path, *, stock: bool, patches: Sequence[Path] = ()) -> None:
    """Put fs/ext4 and fs/jbd2 under `source`, as Debian has them or with our files and glue.

    `patches` come on top: a fault that a test has to find, or mends of stock.
    """
    copy_stock(tree, source)
    if not stock:
        for _ in apply_glue(tree, source):
            pass
    for patch in patches:
        apply_patch(patch, source, tree)
    if not stock:
        for filesystem in FILESYSTEMS:
            forbid_warnings(overlay_files(filesystem), source / "fs" / filesystem)


def copy_stock(tree: KernelTree, source: Path) -> None:
    """Put fs/ext4 and fs/jbd2 under `source` as Debian has them."""
    for filesystem in FILESYSTEMS:
        shutil.copytree(tree.source_dir / "fs" / filesystem, source / "fs" / filesystem)


def apply_glue(tree: KernelTree, source: Path) -> Iterator[Path]:
    """Add our files and glue to the stock sources under `source`; each patch, once it is applied.

    Our files for a file system come with the patch that first changes its Makefile, so what a
    Makefile names is there. Raises FastsyncError when something does not fit.
    """
    left = [name for name in FILESYSTEMS if overlay_files(name)]
    for patch in glue_patches(tree.series):
        text = patch.read_text()
        for filesystem in [name for name in left if f"\n+++ b/fs/{name}/Makefile\n" in text]:
            add_overlay(filesystem, source / "fs" / filesystem)
            left.remove(filesystem)
        apply_patch(patch, source, tree)
        yield patch
    if left:
        raise FastsyncError(f"no patch in kernel/glue/{tree.series} compiles kernel/{left[0]}")


def add_overlay(filesystem: str, folder: Path) -> None:
    """Copy our new files of a file system beside the kernel's; none may take the place of one."""
    for file in overlay_files(filesystem):
        if (folder / file.name).exists():
            raise FastsyncError(f"kernel/{filesystem}/{file.name} would replace a kernel file")
        shutil.copy(file, folder)


def forbid_warnings(files: Sequence[Path], folder: Path) -> None:
    """Make a compiler's warning about one of our files, which is built in `folder`, an error."""
    with (folder / "Makefile").open("a") as makefile:
        for file in files:
            if file.suffix == ".c":
                makefile.write(f"CFLAGS_{file.stem}.o += -Werror\n")
