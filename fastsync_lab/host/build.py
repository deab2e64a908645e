"""Compile a kernel's ext4 and jbd2, with overlay and glue or as they are, and our own modules.

What is built lies in a folder that is named by its digest, so that a run's modules stay what they
were when it began, whatever is built meanwhile. The newest also has a plain name, for users:
build/6.12/ext4.ko.
"""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fastsync_lab.host.chroot import Place, Recipe, place_for
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.glue import (
    FILESYSTEMS,
    assemble,
    check_glue,
    forbid_warnings,
    overlay_files,
    own_sources,
    upstream_patches,
)
from fastsync_lab.host.kernels import (
    KernelTree,
    file_checksum,
    files_digest,
    kbuild_variables,
    load_series,
)
from fastsync_lab.host.paths import build_dir, cache_dir, locked, repo_root
from fastsync_lab.host.progress import Passing, Report, silent
from fastsync_lab.host.shell import Completed, first_errors, follow, run

OURS = "fastsync"  # the pair that is ours
BUILDS_KEPT = 8  # of each kind


@dataclass(frozen=True)
class ModuleSet:
    """A pair of modules that belong together: "fastsync", "stock", or stock that is "mended"."""

    name: str
    jbd2: Path
    ext4: Path


def source_digest(series: str, module: str = OURS) -> str:
    """A hash of the sources of our pair, or of a folder of kernel/ that is a module of its own.

    A result that names another one is of other modules.
    """
    return files_digest(own_sources(series) if module == OURS else overlay_files(module))


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
    """A hash over everything that a build depends on, but for the compiler's version."""
    digest = hashlib.sha256()
    digest.update(f"{tree.debian_version} {tree.headers_dir} {chroot_of(tree)}\n".encode())
    config = [tree.headers_dir / ".config"] if tree.variant else []  # Debian's never changes
    for file in (Path(__file__), Path(__file__).with_name("glue.py"), *config, *files):
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


def publish(system: Kbuild, modules: Sequence[Path], target: Path) -> str:
    """Put modules, without debugging symbols, into `target`, in a folder named by their digest.

    The digest. Each gets its plain name in `target`, too, in one step.
    """
    with tempfile.TemporaryDirectory(prefix="publish-", dir=target) as half:
        stripped = [Path(half) / module.name for module in modules]
        for module, to in zip(modules, stripped, strict=True):
            run(system.place.argv(["strip", "--strip-debug", "-o", str(to), str(module)]))
        digest = files_digest(stripped)
        folder = target / digest
        folder.mkdir(exist_ok=True)
        for module in stripped:
            module.replace(folder / module.name)
            plain = Path(half) / f"{module.name}.plain"
            plain.hardlink_to(folder / module.name)
            plain.replace(target / module.name)
    return digest


def plain_name(module: Path) -> Path:
    """Where a user finds a module that was built last: build/6.12/ext4.ko."""
    return module.parent.parent / module.name


@dataclass(frozen=True)
class Stamp:
    """The file that says of what modules were built, and in which folder they are."""

    path: Path
    names: Sequence[str]

    def find(self, wanted: str) -> list[Path]:
        """The modules that were built of `wanted`; none if they have to be built."""
        text = self.path.read_text() if self.path.is_file() else ""
        made_of, _, digest = text.partition(" ")
        folder = self.path.parent / digest
        modules = [folder / name for name in self.names]
        if made_of != wanted or not digest or not all(module.is_file() for module in modules):
            return []
        folder.touch()
        return modules

    def write(self, wanted: str, digest: str) -> list[Path]:
        """The modules are built. Of older ones of this kind a few stay, for runs under way."""
        self.path.write_text(f"{wanted} {digest}")
        alike = {module.parent for module in self.path.parent.glob(f"*/{self.names[0]}")}
        published = [folder for folder in alike if re.fullmatch(r"[0-9a-f]{16}", folder.name)]
        for folder in sorted(published, key=lambda one: -one.stat().st_mtime)[BUILDS_KEPT:]:
            shutil.rmtree(folder)
        return self.find(wanted)


def build_modules(
    tree: KernelTree,
    *,
    stock: bool = False,
    mended: bool = False,
    fault: Path | None = None,
    report: Report = silent,
) -> ModuleSet:
    """Build jbd2.ko and ext4.ko in build/<series>/ (or build/<series>-stock/).

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
    name = variant or OURS
    inputs = list(patches)
    if not stock:
        inputs += own_sources(tree.series)
    stamp = Stamp(target / "stamp", ("jbd2.ko", "ext4.ko"))
    with locked(workshop / "lock"):
        target.mkdir(parents=True, exist_ok=True)
        wanted = fingerprint(tree, inputs)
        if built := stamp.find(wanted):
            return ModuleSet(name, *built)
        stamp.path.unlink(missing_ok=True)
        system = kbuild(tree, report)
        report(f"building {name} jbd2 and ext4 for {tree.release}")
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
        digest = publish(system, (jbd2 / "jbd2.ko", ext4 / "ext4.ko"), target)
        return ModuleSet(name, *stamp.write(wanted, digest))


def build_flashdev(tree: KernelTree, *, report: Report = silent) -> Path:
    """Build the device model kernel/flashdev/ as flashdev.ko, beside the pair that is ours."""
    return build_own_module("flashdev", tree, report)


def own_modules(tree: KernelTree) -> list[str]:
    """The folders of kernel/ that are modules of their own and that this kernel can have."""
    return ["flashdev", *(["qasio"] if load_series()[tree.series].qasio else [])]


def own_module_variables(tree: KernelTree) -> list[str]:
    """What the modules that are wholly ours want from make."""
    return [f"QASIO_BLOCK={tree.source_dir / 'block'}"]


def build_own_module(name: str, tree: KernelTree, report: Report) -> Path:
    """Build kernel/<name>/, a module that is wholly ours, beside the pair that is ours.

    Raises UsageError for a kernel that it is not for, FastsyncError when its sources are missing
    or do not compile.
    """
    load_series()[tree.series].check_modules([name])
    origin = repo_root() / "kernel" / name
    if not (origin / "Makefile").is_file():
        raise FastsyncError(f"no module {name}: {origin}/Makefile is missing")
    target = products_dir(tree)
    stamp = Stamp(target / f"{name}.stamp", (f"{name}.ko",))
    with locked(target / "lock"):
        wanted = fingerprint(tree, sorted(file for file in origin.glob("*") if file.is_file()))
        if built := stamp.find(wanted):
            return built[0]
        stamp.path.unlink(missing_ok=True)
        system = kbuild(tree, report)
        report(f"building {name} for {tree.release}")
        folder = target / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(origin, folder)
        forbid_warnings(sorted(origin.glob("*.c")), folder)
        log = target / f"{name}.log"
        log.write_text("")
        make_module(system, folder, log, *own_module_variables(tree))
        digest = publish(system, [folder / f"{name}.ko"], target)
        return stamp.write(wanted, digest)[0]
