"""Add overlay and glue to a stock kernel's ext4 and jbd2, compile the modules."""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastsync_lab.host.chroot import Place, Recipe, place_for
from fastsync_lab.host.errors import FastsyncError, UsageError
from fastsync_lab.host.kernels import (
    KernelTree,
    file_checksum,
    files_digest,
    kbuild_variables,
    load_series,
)
from fastsync_lab.host.paths import build_dir, cache_dir, locked, repo_root
from fastsync_lab.host.progress import Passing, Report, silent
from fastsync_lab.host.shell import Completed, first_errors, follow, last_lines, run

FILESYSTEMS = ("jbd2", "ext4")  # in build order: ext4 needs the symbols of jbd2
OURS = "fastsync"  # the pair that is ours


@dataclass(frozen=True)
class ModuleSet:
    """A pair of modules that belong together: "fastsync", "stock", or stock that is "mended"."""

    name: str
    jbd2: Path
    ext4: Path


# --- overlay and glue --------------------------------------------------------------------------


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


def source_digest(series: str, modules: Sequence[str] = (OURS,)) -> str:
    """A hash of the sources of our pair or others: a result that names another is of other modules.

    `modules` are OURS, and folders of kernel/ that are a module of their own.
    """
    return files_digest(
        file
        for name in modules
        for file in (own_sources(series) if name == OURS else overlay_files(name))
    )


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


def sync_sources(fresh: Path, target: Path) -> None:
    """Make the sources in `target` equal `fresh`; unchanged ones keep their time for make."""
    wanted = {file.relative_to(fresh) for file in fresh.rglob("*") if file.is_file()}
    for name in wanted:
        there = target / name
        data = (fresh / name).read_bytes()
        if not there.is_file() or there.read_bytes() != data:
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_bytes(data)
    for file in list(target.rglob("*")):
        is_source = file.suffix in (".c", ".h") and not file.name.endswith(".mod.c")
        if is_source and file.relative_to(target) not in wanted:
            file.unlink()


# --- compiling ---------------------------------------------------------------------------------


def fingerprint(tree: KernelTree, files: Sequence[Path]) -> str:
    """A hash over everything that a build depends on."""
    digest = hashlib.sha256()
    digest.update(f"{tree.debian_version} {tree.headers_dir} {chroot_of(tree)}\n".encode())
    config = [tree.headers_dir / ".config"] if tree.variant else []  # Debian's never changes
    for file in (Path(__file__), *config, *files):
        digest.update(f"{file.parent.name}/{file.name} {file_checksum(file)}\n".encode())
    return digest.hexdigest()


def follow_compiler(argv: Sequence[str], log: Path, what: str, report: Report) -> str:
    """Run make, add its output to `log`, report how many files are compiled; the output.

    Raises FastsyncError, which quotes the first errors, when it fails.
    """
    count = 0
    lines = []
    with log.open("a") as file:

        def look(line: str) -> None:
            nonlocal count
            file.write(line)
            lines.append(line)
            if compiled := re.match(r"\s+CC\s+(?:\[M\]\s+)?(\S+)", line):
                count += 1
                name = Path(compiled[1]).name
                report(Passing(f"building {what}: {count} files compiled, now {name}"))

        status = follow(argv, look)
    text = "".join(lines)
    if status != 0:
        raise FastsyncError(f"{what} does not compile (see {log}): {first_errors(text)}")
    return text


@dataclass(frozen=True)
class Kbuild:
    """A kernel's build system, the place where it runs, and who hears how far it is."""

    tree: KernelTree
    place: Place
    report: Report = silent

    def argv(self, folder: Path, *arguments: str) -> list[str]:
        """The call of make for a module in `folder` with these variables and targets.

        The module does not depend on where it is built, so that a result names it everywhere.
        """
        no_btf = "CONFIG_DEBUG_INFO_BTF_MODULES="  # type data for BPF would need pahole
        maps = " ".join(f"-ffile-prefix-map={top}/=" for top in (cache_dir(), build_dir()))
        argv = ["make", f"-j{os.cpu_count() or 1}", "-C", str(self.tree.headers_dir)]
        variables = (
            *kbuild_variables(self.tree.variant),
            f"M={folder}",
            no_btf,
            f"KCFLAGS={maps}",
        )
        return self.place.argv([*argv, *variables, *arguments])

    def make(self, folder: Path, *arguments: str) -> Completed:
        """Run make, whatever comes of it."""
        return run(self.argv(folder, *arguments), check=False)


def chroot_of(tree: KernelTree) -> Recipe | None:
    """The chroot that a kernel's modules are built in; a kernel of our own is built without."""
    return None if tree.variant else load_series()[tree.series].chroot


def kbuild(tree: KernelTree, report: Report) -> Kbuild:
    """The build system of a kernel; where that takes a chroot, it is made."""
    return Kbuild(tree, place_for(chroot_of(tree), report), report)


def products_dir(tree: KernelTree, variant: str = "") -> Path:
    """Where what is built for a kernel lies: build/6.12, build/6.12-stock, build/6.12-kasan."""
    return build_dir() / "-".join(filter(None, (tree.series, tree.variant, variant)))


def make_module(system: Kbuild, folder: Path, log: Path, *variables: str) -> None:
    """Build the module in `folder` with the kernel's build system; the output is added to `log`."""
    follow_compiler(system.argv(folder, *variables, "modules"), log, folder.name, system.report)


def publish(system: Kbuild, module: Path, target: Path) -> None:
    """Put a module, without its debugging symbols, under its final name in one step."""
    half = target.with_suffix(".half")
    run(system.place.argv(["strip", "--strip-debug", "-o", str(half), str(module)]))
    half.rename(target)


def build_modules(
    tree: KernelTree,
    *,
    stock: bool = False,
    mended: bool = False,
    fault: Path | None = None,
    report: Report = silent,
) -> ModuleSet:
    """Build jbd2.ko and ext4.ko into build/<series>/ (or build/<series>-stock/).

    `mended` is stock with upstream_patches(), in build/<series>-mended/.
    `fault` is a patch that breaks ours on purpose; these go into build/<series>-fault-<name>/.
    Either differs in some lines from stock or from ours, and is compiled where that is.
    What is built for a debug kernel has its name after the series.
    Nothing is done when nothing changed since the last time. Raises UsageError when there is no
    glue, FastsyncError when glue does not apply or the code does not compile; warnings in our own
    files count as errors.
    """
    stock = stock or mended
    if not stock:
        check_glue(tree.series)
    variant, patches = "stock" if stock else "", list[Path]()
    if mended:
        variant, patches = "mended", upstream_patches(tree.series)
    elif fault:
        variant, patches = f"fault-{fault.stem}", [fault]
    target = products_dir(tree, variant)
    workshop = products_dir(tree, "stock" if stock else "")
    modules = ModuleSet(variant or OURS, target / "jbd2.ko", target / "ext4.ko")
    inputs = list(patches)
    if not stock:
        inputs += own_sources(tree.series)
    stamp = target / "stamp"
    with locked(workshop / "lock"):
        target.mkdir(parents=True, exist_ok=True)
        wanted = fingerprint(tree, inputs)
        whole = modules.jbd2.is_file() and modules.ext4.is_file() and stamp.is_file()
        if whole and stamp.read_text() == wanted:
            return modules
        stamp.unlink(missing_ok=True)
        system = kbuild(tree, report)
        report(f"building {modules.name} jbd2 and ext4 for {tree.release}")
        source = workshop / "src"
        version = workshop / "src.version"
        if version.is_file() and version.read_text() != tree.debian_version:
            shutil.rmtree(source, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix="assemble-", dir=workshop) as fresh:
            assemble(tree, Path(fresh), stock=stock, patches=patches)
            version.write_text(tree.debian_version)
            sync_sources(Path(fresh), source)
        log = target / "build.log"
        log.write_text("")
        jbd2, ext4 = (source / "fs" / name for name in FILESYSTEMS)
        make_module(system, jbd2, log, "CONFIG_JBD2=m")
        symbols = f"KBUILD_EXTRA_SYMBOLS={jbd2}/Module.symvers"
        make_module(system, ext4, log, "CONFIG_EXT4_FS=m", symbols)
        publish(system, jbd2 / "jbd2.ko", modules.jbd2)
        publish(system, ext4 / "ext4.ko", modules.ext4)
        stamp.write_text(wanted)
    return modules


def build_flashdev(tree: KernelTree, *, report: Report = silent) -> Path:
    """Build the device model kernel/flashdev/ as flashdev.ko, beside the pair that is ours."""
    return build_own_module("flashdev", tree, report)


def build_qasio(tree: KernelTree, *, report: Report = silent) -> Path:
    """Build the I/O scheduler kernel/qasio/ as qasio.ko, beside it.

    Raises UsageError for a kernel that it is not for.
    """
    load_series()[tree.series].check_qasio()
    return build_own_module("qasio", tree, report)


def own_modules(tree: KernelTree) -> list[str]:
    """The folders of kernel/ that are modules of their own and that this kernel can have."""
    return ["flashdev", *(["qasio"] if load_series()[tree.series].qasio else [])]


def own_module_variables(tree: KernelTree) -> list[str]:
    """What the modules that are wholly ours want from make."""
    return [f"QASIO_BLOCK={tree.source_dir / 'block'}"]


def build_own_module(name: str, tree: KernelTree, report: Report) -> Path:
    """Build kernel/<name>/, a module that is wholly ours, beside the pair that is ours.

    Raises FastsyncError when its sources are missing or do not compile.
    """
    origin = repo_root() / "kernel" / name
    if not (origin / "Makefile").is_file():
        raise FastsyncError(f"no module {name}: {origin}/Makefile is missing")
    target = products_dir(tree)
    module = target / f"{name}.ko"
    stamp = target / f"{name}.stamp"
    with locked(target / "lock"):
        wanted = fingerprint(tree, sorted(file for file in origin.glob("*") if file.is_file()))
        if module.is_file() and stamp.is_file() and stamp.read_text() == wanted:
            return module
        stamp.unlink(missing_ok=True)
        system = kbuild(tree, report)
        report(f"building {name} for {tree.release}")
        folder = target / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(origin, folder)
        forbid_warnings(sorted(origin.glob("*.c")), folder)
        log = target / f"{name}.log"
        log.write_text("")
        make_module(system, folder, log, *own_module_variables(tree))
        publish(system, folder / f"{name}.ko", module)
        stamp.write_text(wanted)
    return module
