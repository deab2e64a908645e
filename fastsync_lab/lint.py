"""Check the kernel code: checkpatch --strict, gcc with W=1, and sparse. `make lint` runs it."""

import re
import shutil
import sys
from pathlib import Path

from fastsync_lab.build import (
    FILESYSTEMS,
    KernelTree,
    assemble,
    fetch_kernel,
    glue_patches,
    make_argv,
    overlay_files,
)
from fastsync_lab.errors import FastsyncError
from fastsync_lab.paths import build_dir, repo_root
from fastsync_lab.shell import run


def checkpatch(tree: KernelTree, work: Path) -> list[str]:
    """What checkpatch.pl --strict says about our C files and the glue; its cache goes to `work`."""
    script = tree.source_dir / "scripts" / "checkpatch.pl"
    argv = [
        "perl",
        str(script),
        "--strict",
        "--no-tree",
        "--no-summary",
        "--terse",
        "--color=never",
    ]
    kernel = repo_root() / "kernel"
    sources = sorted(file for file in kernel.rglob("*") if file.suffix in (".c", ".h"))
    patches = glue_patches(tree.series)
    said = []
    # Opt_... is what ext4 calls its options; a sign-off is given when the series is sent.
    glue_options = ["--no-signoff", "--ignore", "CAMELCASE"]
    for options, files in ((["--file"], sources), (glue_options, patches)):
        for file in files:
            done = run([*argv, *options, str(file)], cwd=work, check=False)
            said += done.stdout.splitlines()
            if done.status != 0 and not done.stdout:
                said.append(f"{file}: checkpatch ended with status {done.status}: {done.stderr}")
    return said


def own_complaints(log: str, names: set[str]) -> list[str]:
    """The warnings and errors of a build log that are about files of these names."""
    about = re.compile(r"([^/\s:]+\.[ch]):\d+(?::\d+)?: (?:warning|error)")
    return [line for line in log.splitlines() if (m := about.search(line)) and m[1] in names]


def compile_strictly(tree: KernelTree, folder: Path, sources: list[Path]) -> list[str]:
    """What gcc with W=1 and sparse say about our files, built inside `folder`."""
    objects = [f"{file.stem}.o" for file in sources if file.suffix == ".c"]
    if not objects:
        return []
    done = run([*make_argv(tree, folder), "W=1", "C=2", "CHECK=sparse", *objects], check=False)
    log = done.stdout + done.stderr
    complaints = own_complaints(log, {file.name for file in sources})
    if done.status != 0 and not complaints:
        raise FastsyncError(f"{folder.name} does not compile: {log.strip().splitlines()[-1:]}")
    return complaints


def kernel_complaints(tree: KernelTree) -> list[str]:
    """All complaints about kernel/."""
    work = build_dir() / f"{tree.series}-lint"
    shutil.rmtree(work, ignore_errors=True)
    assemble(tree, work, stock=False)
    flashdev = repo_root() / "kernel" / "flashdev"
    shutil.copytree(flashdev, work / "flashdev")
    said = checkpatch(tree, work)
    for filesystem in FILESYSTEMS:
        said += compile_strictly(tree, work / "fs" / filesystem, overlay_files(filesystem))
    said += compile_strictly(tree, work / "flashdev", sorted(flashdev.glob("*.[ch]")))
    return said


def main() -> int:
    """Print every complaint; 1 when there is one."""
    try:
        complaints = kernel_complaints(fetch_kernel("6.12"))
    except FastsyncError as error:
        complaints = [str(error)]
    print("\n".join(complaints) or "kernel/: checkpatch, W=1 and sparse have nothing to say")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
