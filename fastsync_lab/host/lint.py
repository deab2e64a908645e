"""Check the kernel code: checkpatch --strict, gcc with W=1, and sparse. `make lint` runs it."""

import re
import shutil
import sys
from pathlib import Path

from fastsync_lab.host.build import Kbuild, kbuild, own_module_variables, own_modules
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.fetch import fetch_kernel
from fastsync_lab.host.glue import FILESYSTEMS, assemble, glue_patches, overlay_files
from fastsync_lab.host.interrupt import guarded
from fastsync_lab.host.kernels import KernelTree, load_series, version_key
from fastsync_lab.host.paths import build_dir, repo_root
from fastsync_lab.host.progress import silent
from fastsync_lab.host.shell import last_lines, run

# Runs sparse whatever the kernel says: the script by which 7.2 tests it is in no headers package.
# Debian's sparse does not know the first of these, and takes the second for no constant.
SPARSE = (
    "KBUILD_CHECKSRC=2",
    "CHECK=sparse -D__typeof_unqual__=__typeof__ '-D__builtin_strlen(s)=(sizeof(s)-1)'",
)


def checkpatch(tree: KernelTree) -> list[str]:
    """What a kernel's checkpatch.pl --strict says about our C files and all patches."""
    work = build_dir() / "lint"  # for the script's own cache
    work.mkdir(parents=True, exist_ok=True)
    script = tree.source_dir / "scripts" / "checkpatch.pl"
    argv = ["perl", str(script), "--strict", "--no-tree", "--no-summary", "--terse"]
    said = []
    folders = (repo_root() / "kernel", repo_root() / "patches" / "upstream")
    for file in sorted(file for folder in folders for file in folder.rglob("*")):
        if file.suffix not in (".c", ".h", ".patch"):
            continue
        done = run([*argv, "--color=never", *checkpatch_options(file)], cwd=work, check=False)
        said += done.stdout.splitlines()
        if done.status != 0 and not done.stdout:
            said.append(f"{file}: checkpatch ended with status {done.status}: {done.stderr}")
    return said


def checkpatch_options(file: Path) -> list[str]:
    """How checkpatch is to look at a file of kernel/ or patches/upstream/."""
    if file.is_relative_to(repo_root() / "patches"):  # Git's history is not here
        return ["--ignore", "UNKNOWN_COMMIT_ID", str(file)]
    if file.suffix == ".patch":
        # Opt_... is what ext4 calls its options; a sign-off is given when the series is sent.
        return ["--no-signoff", "--ignore", "CAMELCASE", str(file)]
    if file.stem.endswith("compat"):  # the one place where code may ask for the kernel's version
        return ["--ignore", "LINUX_VERSION_CODE,CONSTANT_COMPARISON", "--file", str(file)]
    if file.stem.endswith("_trace"):  # laid out as the kernel's own
        return ["--ignore", "OPEN_ENDED_LINE,PARENTHESIS_ALIGNMENT", "--file", str(file)]
    return ["--file", str(file)]


def own_complaints(log: str, names: set[str]) -> list[str]:
    """The warnings and errors of a build log that are about files of these names."""
    about = re.compile(r"([^/\s:]+\.[ch]):\d+(?::\d+)?: (?:warning|error)")
    return [line for line in log.splitlines() if (m := about.search(line)) and m[1] in names]


def compile_strictly(system: Kbuild, folder: Path, sources: list[Path]) -> list[str]:
    """What gcc with W=1 and sparse say about our files, built inside `folder`."""
    objects = [f"{file.stem}.o" for file in sources if file.suffix == ".c"]
    if not objects:
        return []
    done = system.make(folder, "W=1", *SPARSE, *own_module_variables(system.tree), *objects)
    log = done.stdout + done.stderr
    complaints = own_complaints(log, {file.name for file in sources})
    errors = [line for line in log.splitlines() if ": error: " in line]  # sparse's status is 0
    if not complaints and (errors or done.status != 0):
        why = errors[0] if errors else last_lines(log, 1)
        raise FastsyncError(f"{system.tree.series}: cannot check {folder.name}: {why}")
    return complaints


def hooked(folder: Path, sources: list[Path]) -> list[Path]:
    """Those that a kernel has a use for: headers, and what the glue has put into the Makefile."""
    objects = set((folder / "Makefile").read_text().split())
    return [file for file in sources if file.suffix == ".h" or f"{file.stem}.o" in objects]


def compile_for(tree: KernelTree) -> list[str]:
    """What the compiler and sparse say about kernel/, built for one kernel."""
    work = build_dir() / f"{tree.series}-lint"
    shutil.rmtree(work, ignore_errors=True)
    assemble(tree, work, stock=False)
    system = kbuild(tree, silent)
    said = []
    for name in own_modules(tree):
        origin = repo_root() / "kernel" / name
        shutil.copytree(origin, work / name)
        said += compile_strictly(system, work / name, sorted(origin.glob("*.[ch]")))
    for filesystem in FILESYSTEMS:
        folder = work / "fs" / filesystem
        said += compile_strictly(system, folder, hooked(folder, overlay_files(filesystem)))
    return [f"{tree.series}: {line}" for line in said]


def kernel_complaints() -> list[str]:
    """All complaints: of checkpatch once, of the compilers for every series with glue."""
    trees = [fetch_kernel(name) for name in load_series() if glue_patches(name)]
    # Newer checkpatches ask for what older kernels do not have.
    oldest = min(trees, key=lambda tree: version_key(tree.debian_version))
    return [*checkpatch(oldest), *(line for tree in trees for line in compile_for(tree))]


def main() -> None:
    """Print every complaint; status 1 when there is one."""
    try:
        complaints = kernel_complaints()
    except FastsyncError as error:
        complaints = [str(error)]
    print(
        "\n".join(complaints)
        or "kernel/, patches/upstream/: checkpatch, W=1 and sparse have nothing to say"
    )
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    guarded(main)
