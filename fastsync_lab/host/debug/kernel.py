"""Kernels built from the source package of a Debian kernel.

Two look for bugs, as their instruments exclude each other: "kasan" (memory, locks, leaks) and
"kcsan" (data races). "uml" is User-Mode Linux: the same source compiled into a program of the host,
which needs no machine to be modelled. Its own folders may come from a later kernel: all that is not
User-Mode Linux is the same source still. Each is a KernelTree like any other: modules are built
against it and a guest boots it. All of it is in the cache; the note that names a kernel's
configuration is written last, so a build that was interrupted goes on where it stopped and is never
taken for a whole one.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fastsync_lab.host.build import follow_compiler
from fastsync_lab.host.chroot import place_for
from fastsync_lab.host.errors import FastsyncError, check_names
from fastsync_lab.host.fetch import check_source_version, download, fetch_kernel
from fastsync_lab.host.glue import apply_patch, patches_for
from fastsync_lab.host.kernels import (
    UML,
    KernelTree,
    file_checksum,
    folder_name,
    kbuild_variables,
    load_series,
    offer,
    version_key,
)
from fastsync_lab.host.paths import cache_dir, locked
from fastsync_lab.host.progress import Report, silent
from fastsync_lab.host.shell import run


@dataclass(frozen=True)
class Variant:
    """A kernel to build: files of its configuration, the image in its object tree.

    `folders` are those of the source that no other kernel is compiled from.
    """

    configs: tuple[str, ...]
    image: str = "arch/x86/boot/bzImage"
    folders: tuple[str, ...] = ()


DEBUG = ("kasan", "kcsan")
VARIANTS = {
    **{name: Variant(("common", "x86", "debug", name)) for name in DEBUG},
    UML: Variant(("common", UML), image="linux", folders=("arch/um", "arch/x86/um")),
}


# What a kernel says of its build: the same source makes the same kernel, whose results still hold.
SAME_BANNER = (
    "KBUILD_BUILD_TIMESTAMP=1970-01-01",
    "KBUILD_BUILD_USER=fastsync",
    "KBUILD_BUILD_HOST=fastsync",
)


@dataclass(frozen=True)
class Layout:
    """Where a built kernel lies in the cache."""

    root: Path

    @property
    def source(self) -> Path:
        """The source, where it is not Debian's as it is."""
        return self.root / "source"

    @property
    def source_note(self) -> Path:
        """What the source was put together from; there once it is whole."""
        return self.root / "source-from"

    @property
    def build(self) -> Path:
        """The kernel's object tree; modules are built against it."""
        return self.root / "build"

    @property
    def note(self) -> Path:
        """What the kernel was built from; there once it is whole."""
        return self.root / "built-from"


def debug_dir() -> Path:
    """The cache's kernels that were built here."""
    return cache_dir() / "debug"


def check_debug(variant: str) -> None:
    """Raise UsageError for a debug kernel that there is not."""
    check_names("debug kernel", [variant], DEBUG)


def configuration(variant: str, series: str) -> str:
    """What is set in the kernel's configuration; all else is off, unless one of these needs it.

    An option of later kernels has the first one that knows it in its line: "# since 6.8".
    """
    folder = Path(__file__).parent
    configs = VARIANTS[variant].configs
    text = "".join((folder / f"{name}.config").read_text() for name in configs)
    options = re.findall(r"^(CONFIG_.*?)(?: +# since (.+))?$", text, re.MULTILINE)
    known = [line for line, since in options if version_key(since) <= version_key(series)]
    return "".join(f"{line}\n" for line in known)


def unmet(wanted: str, config: str) -> list[str]:
    """The lines of a fragment that a kernel's .config does not have: unknown, or held back."""
    there = set(config.splitlines())
    values = dict(line.split("=", 1) for line in wanted.splitlines())  # of two the last one counts
    return [
        f"{name}={value}"
        for name, value in values.items()
        if (any(line.startswith(f"{name}=") for line in there) if value == "n"
            else f"{name}={value}" not in there)
    ]  # fmt: skip


def debug_kernel(tree: KernelTree, variant: str, *, report: Report = silent) -> KernelTree:
    """The debug kernel of a variant; built_kernel() for all else.

    Raises UsageError for an unknown variant.
    """
    check_debug(variant)
    return built_kernel(tree, variant, report=report)


def uml_kernel(tree: KernelTree, *, report: Report = silent) -> KernelTree:
    """User-Mode Linux; `vmlinuz` is the program. built_kernel() for all else."""
    return built_kernel(tree, UML, report=report)


def built_kernel(tree: KernelTree, variant: str, *, report: Report = silent) -> KernelTree:
    """The kernel of a variant that has the source of Debian's kernel `tree`.

    It is built if it is not there: a debug kernel has 1,300 files to compile, and 3 GB of disk take
    the source and the objects of both. Raises FastsyncError when the source is not served any more,
    when the kernel does not take the configuration, or does not compile.
    """
    name = folder_name(tree.debian_version)
    layout = Layout(debug_dir() / f"{name}-{variant}")
    wanted = configuration(variant, tree.series)
    changes = variant_changes(tree, variant, report)
    # No chroot: the compiler need not be that of Debian's kernel, of which nothing is used.
    digest = hashlib.sha256(wanted.encode())
    digest.update(changes.key.encode())
    built_from = f"{tree.debian_version} {digest.hexdigest()}\n"
    with locked(layout.root.with_name(f"{layout.root.name}.lock")):
        if not (layout.note.is_file() and layout.note.read_text() == built_from):
            layout.note.unlink(missing_ok=True)
            source = variant_source(changes, layout, report)
            layout.build.mkdir(parents=True, exist_ok=True)
            build = Build(source, layout, variant)
            build.configure(wanted)
            build.compile(f"the {variant} kernel", report)
            build.install()
            layout.note.write_text(built_from)
    return tree_of(tree, variant, layout)


def tree_of(tree: KernelTree, variant: str, layout: Layout) -> KernelTree:
    """The kernel at `layout`, which is whole."""
    release = release_of(layout)
    return replace(
        tree,
        release=release,
        vmlinuz=layout.root / "boot" / f"vmlinuz-{release}",
        modules_dir=layout.root / "lib" / "modules" / release,
        headers_dir=layout.build,
        variant=variant,
    )


def release_of(layout: Layout) -> str:
    """What `uname -r` prints on the kernel."""
    return (layout.build / "include" / "config" / "kernel.release").read_text().strip()


# --- the source --------------------------------------------------------------------------------


def full_source(tree: KernelTree, report: Report) -> Path:
    """The whole source of a kernel, unpacked in the cache."""
    source = debug_dir() / folder_name(tree.debian_version)
    with locked(source.with_name(f"{source.name}.lock")):
        if not source.is_dir():
            unpack_source(tree, source, report)
    return source


def unpack_source(tree: KernelTree, target: Path, report: Report) -> None:
    """Fetch and unpack the source package of a kernel."""
    series = load_series()[tree.series]
    place = place_for(series.chroot, report)
    checksum = offer(series, tree.debian_version, place).packages[series.source]
    half = target.with_name(f"{target.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    downloads = cache_dir() / "downloads" / f"{folder_name(tree.debian_version)}-source"
    downloads.mkdir(parents=True, exist_ok=True)
    deb = download(series.source, tree.debian_version, checksum, downloads, place, report)
    report(f"unpacking {deb.name}: all of it, 1.7 GB")
    run(["dpkg-deb", "-x", str(deb), str(half / "package")])
    archive = half / "package" / "usr" / "src" / f"{series.source}.tar.xz"
    run(["tar", "-C", str(half), "--use-compress-program=xz -T0", "-xf", str(archive)])
    check_source_version(replace(tree, source_dir=half / series.source))
    (half / series.source).rename(target)
    shutil.rmtree(half)
    shutil.rmtree(downloads)


@dataclass(frozen=True)
class Changes:
    """What a variant has that Debian's source does not: folders of another kernel, then patches."""

    tree: KernelTree  # whose source is changed
    folders: tuple[str, ...]
    donor: KernelTree | None  # whose folders they are
    patches: Sequence[Path]

    @property
    def key(self) -> str:
        """What decides how a source is changed; empty for one that is not."""
        version = self.donor.debian_version if self.donor else ""
        return version + "".join(file_checksum(patch) for patch in self.patches)


def variant_changes(tree: KernelTree, variant: str, report: Report) -> Changes:
    """What patches/ and kernels.toml say of a variant; the other kernel is in the cache then."""
    folders, other = VARIANTS[variant].folders, load_series()[tree.series].uml_from
    donor = fetch_kernel(other, report=report) if folders and other else None
    return Changes(tree, folders, donor, patches_for(variant, tree.series))


def variant_source(changes: Changes, layout: Layout, report: Report) -> Path:
    """What a variant is compiled from; FastsyncError when a patch does not apply.

    A changed source is the variant's own. Its files are those of full_source(), by hard links that
    a patch replaces. What was compiled from another source than this goes.
    """
    base = full_source(changes.tree, report)
    note = layout.source_note
    if (note.read_text() if note.is_file() else "") != changes.key:
        note.unlink(missing_ok=True)
        for folder in (layout.source, layout.build):
            shutil.rmtree(folder, ignore_errors=True)
        if changes.key:
            put_together(changes, base, layout.source, report)
            note.write_text(changes.key)
    return layout.source if changes.key else base


def put_together(changes: Changes, base: Path, source: Path, report: Report) -> None:
    """Make a source out of another one."""
    link_tree(base, source)
    if changes.donor:
        other = full_source(changes.donor, report)
        for name in changes.folders:
            shutil.rmtree(source / name)
            link_tree(other / name, source / name)
    for patch in changes.patches:
        apply_patch(patch, source, changes.donor or changes.tree)


def link_tree(source: Path, target: Path) -> None:
    """A folder with hard links to all files of another."""
    shutil.copytree(source, target, symlinks=True, copy_function=os.link)


# --- the build ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Build:
    """The build of a variant from a source."""

    source: Path
    layout: Layout
    variant: str

    @property
    def image(self) -> Path:
        """What is booted; its name is a target of the kernel's own build system."""
        return self.layout.build / VARIANTS[self.variant].image

    def argv(self, *arguments: str) -> list[str]:
        """The call of the kernel's own build system."""
        argv = ["make", f"-j{os.cpu_count() or 1}", "-C", str(self.source)]
        argv += [f"O={self.layout.build}", *kbuild_variables(self.variant), *SAME_BANNER]
        return [*argv, *arguments]

    def configure(self, wanted: str) -> None:
        """Write .config. Raises FastsyncError that names what the kernel does not take."""
        fragment = self.layout.root / "wanted.config"
        fragment.write_text(wanted)
        run(self.argv(f"KCONFIG_ALLCONFIG={fragment}", "allnoconfig"))
        if missed := unmet(wanted, (self.layout.build / ".config").read_text()):
            raise FastsyncError(
                f"{self.source.name} does not take {', '.join(missed)}: "
                "fastsync_lab/host/debug/*.config ask for what this kernel does not have, or does "
                "not have together"
            )

    def compile(self, what: str, report: Report) -> None:
        """Compile image and modules; what is there already is kept."""
        report(f"building {what}")
        log = self.layout.root / "build.log"
        log.write_text("")
        follow_compiler(self.argv(self.image.name, "modules"), log, what, report)

    def install(self) -> None:
        """Put image and modules where a Debian package has them."""
        root, release = self.layout.root, release_of(self.layout)
        for folder in ("boot", "lib"):
            shutil.rmtree(root / folder, ignore_errors=True)
        (root / "boot").mkdir()
        shutil.copy(self.image, root / "boot" / f"vmlinuz-{release}")
        run(self.argv(f"INSTALL_MOD_PATH={root}", "modules_install"))
