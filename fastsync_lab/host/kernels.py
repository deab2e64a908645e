"""Which stock Debian kernels there are: in kernels.toml, at Debian's servers, in the cache.

kernels.toml has a table for each series. fetch.py brings one into the cache.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fastsync_lab.host.chroot import Place, Recipe
from fastsync_lab.host.errors import FastsyncError, UsageError, check_names
from fastsync_lab.host.options import MODES, MTIME_MODES
from fastsync_lab.host.paths import cache_dir
from fastsync_lab.host.shell import run

UML = "uml"  # the variant that is a program of the host
SOURCE_MEMBERS = (
    "Makefile",
    "block/blk-crypto-internal.h",
    "block/blk-mq-debugfs.h",
    "block/blk-mq-sched.h",
    "block/blk-mq.h",
    "block/blk-stat.h",
    "block/blk-wbt.h",
    "block/blk.h",
    "block/elevator.h",
    "fs/ext4",
    "fs/jbd2",
    "scripts/checkpatch.pl",
    "scripts/spelling.txt",
    "scripts/const_structs.checkpatch",
)


@dataclass(frozen=True)
class Series:
    """A [kernel.SERIES] table of kernels.toml."""

    name: str
    source: str
    version: str
    release: str
    packages: tuple[str, ...]
    named_by: str | None = None
    chroot: Recipe | None = None
    qasio: bool = False
    eager_sync: bool = False
    uml_from: str | None = None

    @property
    def modes(self) -> tuple[str, ...]:
        """The modes that its modules have."""
        return MODES if self.eager_sync else MTIME_MODES

    def check_modes(self, names: Iterable[str], *more: str) -> None:
        """Raise UsageError for a name that is none of its modes, nor of `more`."""
        check_names("mode", names, (*self.modes, *more), where=f" on Linux {self.name}")

    def check_modules(self, names: Iterable[str]) -> None:
        """Raise UsageError if one of these folders of kernel/ is not for it: qasio may not be."""
        if "qasio" in names and not self.qasio:
            known = ", ".join(one.name for one in load_series().values() if one.qasio)
            raise UsageError(f"qasio is not for Linux {self.name}, only for {known}")

    def names(self, debian_version: str, more: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
        """The release and the packages that belong to a version of the source package.

        `more` are the groups of `named_by`. Raises FastsyncError when the version does not look
        like one of this series.
        """
        match = re.fullmatch(self.version, debian_version)
        if match is None:
            raise FastsyncError(
                f"{self.source} {debian_version} does not match the pattern {self.version} "
                "of kernels.toml"
            )
        groups = {**match.groupdict(), **more}
        packages = tuple(name.format(**groups) for name in self.packages)
        return self.release.format(**groups), packages


@dataclass(frozen=True)
class Offer:
    """A version of a series that apt can fetch as a whole: each package with its SHA-256."""

    debian_version: str
    release: str
    packages: Mapping[str, str]


@dataclass(frozen=True)
class KernelTree:
    """A stock kernel, its headers and its ext4 and jbd2 sources, unpacked in the cache.

    `variant` is empty, or names the kernel that is built from the same source: UML, a debug kernel.
    """

    series: str
    release: str
    debian_version: str
    vmlinuz: Path
    modules_dir: Path
    headers_dir: Path
    source_dir: Path
    variant: str = ""

    @property
    def identity(self) -> str:
        """The release, and the start of its file's checksum: builds of one source differ."""
        return f"{self.release} {file_checksum(self.vmlinuz)[:16]}"


def kbuild_variables(variant: str) -> tuple[str, ...]:
    """What a kernel's build system is told of a variant's architecture."""
    return ("ARCH=um",) if variant == UML else ()


# --- which kernel ------------------------------------------------------------------------------


def load_series() -> dict[str, Series]:
    """The series of kernels.toml, by name."""
    tables = tomllib.loads(Path(__file__).with_name("kernels.toml").read_text())
    recipes = {
        release: Recipe(release, tuple(table["suites"]), tuple(table["packages"]))
        for release, table in tables["chroot"].items()
    }
    return {name: parse_series(name, table, recipes) for name, table in tables["kernel"].items()}


@cache
def default_series() -> str:
    """The first one."""
    return next(iter(load_series()))


def parse_series(name: str, table: Mapping[str, Any], recipes: Mapping[str, Recipe]) -> Series:
    """The series that a table describes."""
    return Series(
        name=name,
        source=table["source"],
        version=table["version"],
        release=table["release"],
        packages=tuple(table["packages"]),
        named_by=table.get("named_by"),
        chroot=recipes[table["chroot"]] if "chroot" in table else None,
        qasio=table.get("qasio", False),
        eager_sync=table.get("eager_sync", False),
        uml_from=table.get("uml_from"),
    )


def find_series(kernel: str) -> Series:
    """The series that "6.12" or "6.12.113" belongs to; UsageError for any other."""
    known = load_series()
    for series in known.values():
        if kernel == series.name or re.fullmatch(re.escape(series.name) + r"\.\d+", kernel):
            return series
    allowed = ", ".join(f"{name}, {name}.N" for name in known)
    raise UsageError(f"no kernel {kernel!r}: allowed are {allowed}")


def upstream_version(debian_version: str) -> str:
    """The upstream part of a Debian version: "6.12.117" of "6.12.117-1~deb12u1"."""
    return debian_version.split("-", 1)[0]


def version_key(debian_version: str) -> tuple[int, ...]:
    """Orders series, and the Debian versions of one."""
    return tuple(int(number) for number in re.findall(r"\d+", debian_version))


def fitting_versions(kernel: str, series: str, versions: Sequence[str]) -> list[str]:
    """Those of `versions` that `kernel` ("6.12" or "6.12.113") means, newest first."""
    fitting = [v for v in versions if kernel == series or upstream_version(v) == kernel]
    return sorted(fitting, key=version_key, reverse=True)


# --- what apt offers ---------------------------------------------------------------------------


def parse_madison(text: str) -> list[tuple[str, str]]:
    """The package and the version of each row that `apt-cache madison` prints."""
    rows = [[field.strip() for field in line.split("|")] for line in text.splitlines()]
    return [(row[0], row[1]) for row in rows if len(row) >= 3]


def madison(packages: Sequence[str], place: Place) -> list[tuple[str, str]]:
    """The versions of packages that apt can fetch, as rows of package and version."""
    return parse_madison(run(place.argv(["apt-cache", "madison", *packages]), check=False).stdout)


def served_versions(series: Series, place: Place) -> list[str]:
    """The versions of a series' source package that apt can fetch, newest first."""
    versions = {version for _, version in madison([series.source], place)}
    fitting = [version for version in versions if re.fullmatch(series.version, version)]
    return sorted(fitting, key=version_key, reverse=True)


def naming_groups(series: Series, debian_version: str, place: Place) -> dict[str, str]:
    """The groups of `named_by`, from the package of that name that has the source's version.

    Raises FastsyncError when there is none.
    """
    if series.named_by is None:
        return {}
    prefix = re.split(r"[^\w-]", series.named_by, maxsplit=1)[0]
    names = run(place.argv(["apt-cache", "pkgnames", prefix]), check=False).stdout.split()
    fitting = [name for name in names if re.fullmatch(series.named_by, name)]
    for package, version in madison(fitting, place) if fitting else []:
        match = re.fullmatch(series.named_by, package)
        if match and version == debian_version:
            return match.groupdict()
    raise FastsyncError(f"apt serves no package {series.named_by} of version {debian_version}")


def parse_checksums(text: str) -> dict[str, str]:
    """The SHA-256 of each package in the output of `apt-cache show`."""
    stanzas = re.finditer(r"^Package: (\S+)\n(?:.+\n)*?SHA256: ([0-9a-f]{64})$", text, re.M)
    return {match[1]: match[2] for match in stanzas}


def offer(series: Series, debian_version: str, place: Place) -> Offer:
    """What to fetch for a version, with the SHA-256 that the signed package lists state.

    Raises FastsyncError when apt does not serve all of it.
    """
    groups = naming_groups(series, debian_version, place)
    release, packages = series.names(debian_version, groups)
    wanted = [*packages, series.source]
    argv = ["apt-cache", "show", *(f"{name}={debian_version}" for name in wanted)]
    checksums = parse_checksums(run(place.argv(argv), check=False).stdout)
    if missing := [name for name in wanted if name not in checksums]:
        raise FastsyncError(
            f"apt does not serve {', '.join(missing)} {debian_version}, which belongs to the "
            "source package of that version: try `./fastsync build --refresh`"
        )
    return Offer(debian_version, release, {name: checksums[name] for name in wanted})


# --- the cache ---------------------------------------------------------------------------------


def kernels_dir() -> Path:
    """The cache's unpacked kernels."""
    return cache_dir() / "kernels"


def folder_name(debian_version: str) -> str:
    """What a version's folder is called: without ~, so that no shell expands it."""
    return debian_version.replace("~", "+")


def tree_at(root: Path, series: Series, debian_version: str, release: str) -> KernelTree:
    """The kernel that is unpacked under `root`."""
    return KernelTree(
        series=series.name,
        release=release,
        debian_version=debian_version,
        vmlinuz=root / "boot" / f"vmlinuz-{release}",
        modules_dir=root / "lib" / "modules" / release,
        headers_dir=root / "usr" / "src" / f"linux-headers-{release}",
        source_dir=root / series.source,
    )


def cached_trees(series: Series) -> dict[str, KernelTree]:
    """The whole kernels of a series in the cache, by Debian version.

    One that was unpacked when less of the source was wanted is not whole.
    """
    trees = {}
    for file in sorted(kernels_dir().glob("*/tree.json")):
        note = json.loads(file.read_text())
        version = note["debian_version"]
        whole = file.parent.name == folder_name(version)  # else it was interrupted
        if whole and note.get("series") == series.name:
            tree = tree_at(file.parent, series, version, note["release"])
            if all((tree.source_dir / member).exists() for member in SOURCE_MEMBERS):
                trees[version] = tree
    return trees


def note_tree(root: Path, tree: KernelTree) -> None:
    """Note beside an unpacked kernel what it is, so that to find it again takes no apt."""
    note = {key: getattr(tree, key) for key in ("series", "debian_version", "release")}
    (root / "tree.json").write_text(json.dumps(note) + "\n")


def files_digest(files: Iterable[Path]) -> str:
    """A short hash of files, of their names and what is in them, in this order."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name} {file_checksum(file)}\n".encode())
    return digest.hexdigest()[:16]


def file_checksum(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
