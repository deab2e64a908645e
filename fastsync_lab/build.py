"""Fetch a stock Debian kernel, add overlay and glue to its ext4 and jbd2, compile the modules.

Nothing is installed: packages are unpacked into the cache. A folder gets its final name only when
it is whole, so an interrupted run is taken up where it stopped and never taken for a finished one.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fastsync_lab.errors import FastsyncError, UsageError
from fastsync_lab.paths import build_dir, cache_dir, repo_root
from fastsync_lab.shell import last_lines, run

Report = Callable[[str], None]

FILESYSTEMS = ("jbd2", "ext4")  # in build order: ext4 needs the symbols of jbd2
SOURCE_MEMBERS = (
    "Makefile",
    "fs/ext4",
    "fs/jbd2",
    "scripts/checkpatch.pl",
    "scripts/spelling.txt",
    "scripts/const_structs.checkpatch",
)


@dataclass(frozen=True)
class Series:
    """One table of kernels.toml."""

    name: str
    source: str
    version: str
    release: str
    packages: tuple[str, ...]

    def names(self, debian_version: str) -> tuple[str, tuple[str, ...]]:
        """The release and the packages that belong to a version of the source package.

        Raises FastsyncError when the version does not look like one of this series.
        """
        match = re.fullmatch(self.version, debian_version)
        if match is None:
            raise FastsyncError(
                f"{self.source} {debian_version} does not match the pattern {self.version} "
                "of kernels.toml"
            )
        groups = match.groupdict()
        packages = tuple(name.format(**groups) for name in self.packages)
        return self.release.format(**groups), packages


@dataclass(frozen=True)
class KernelTree:
    """A stock kernel, its headers and its ext4 and jbd2 sources, unpacked in the cache."""

    series: str
    release: str
    debian_version: str
    vmlinuz: Path
    modules_dir: Path
    headers_dir: Path
    source_dir: Path


@dataclass(frozen=True)
class ModuleSet:
    """A pair of modules that belong together: "fastsync" or "stock"."""

    name: str
    jbd2: Path
    ext4: Path


def silent(_message: str) -> None:
    """Report progress to nobody."""


# --- which kernel ------------------------------------------------------------------------------


def load_series() -> dict[str, Series]:
    """The series of kernels.toml, by name."""
    tables = tomllib.loads(Path(__file__).with_name("kernels.toml").read_text())
    return {
        name: Series(
            name, table["source"], table["version"], table["release"], tuple(table["packages"])
        )
        for name, table in tables.items()
    }


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
    """Orders the Debian versions of one series."""
    return tuple(int(number) for number in re.findall(r"\d+", debian_version))


def choose_version(kernel: str, series: str, versions: Sequence[str]) -> str | None:
    """The newest of `versions` that `kernel` ("6.12" or "6.12.113") means, or None."""
    fitting = [v for v in versions if kernel == series or upstream_version(v) == kernel]
    return max(fitting, key=version_key, default=None)


def parse_madison(text: str) -> list[str]:
    """The versions in the output of `apt-cache madison`, newest first, each once."""
    rows = [line.split("|") for line in text.splitlines()]
    versions = {row[1].strip() for row in rows if len(row) >= 3}
    return sorted(versions, key=version_key, reverse=True)


def served_versions(series: Series) -> list[str]:
    """The versions of a series' source package that apt can fetch, newest first."""
    return parse_madison(run(["apt-cache", "madison", series.source], check=False).stdout)


def cached_trees(series: Series) -> dict[str, KernelTree]:
    """The whole kernels of a series in the cache, by Debian version."""
    trees = {}
    for note in sorted(kernels_dir().glob("*/tree.json")):
        version = json.loads(note.read_text())["debian_version"]
        if re.fullmatch(series.version, version):
            trees[version] = tree_at(note.parent, series, version)
    return trees


# --- fetching ----------------------------------------------------------------------------------


def kernels_dir() -> Path:
    """The cache's unpacked kernels."""
    return cache_dir() / "kernels"


def tree_at(root: Path, series: Series, debian_version: str) -> KernelTree:
    """The kernel that is unpacked under `root`."""
    release, _ = series.names(debian_version)
    return KernelTree(
        series=series.name,
        release=release,
        debian_version=debian_version,
        vmlinuz=root / "boot" / f"vmlinuz-{release}",
        modules_dir=root / "lib" / "modules" / release,
        headers_dir=root / "usr" / "src" / f"linux-headers-{release}",
        source_dir=root / series.source,
    )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock for the time of a `with`, so that two builds do not meet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def package_checksum(package: str, version: str) -> str:
    """The SHA-256 that the signed package lists state for a package."""
    argv = ["apt-cache", "show", "--no-all-versions", f"{package}={version}"]
    text = run(argv, check=False).stdout
    match = re.search(r"^SHA256: ([0-9a-f]{64})$", text, re.MULTILINE)
    if match is None:
        raise FastsyncError(
            f"apt does not serve {package} {version}, which belongs to the source package of that "
            "version: try `./fastsync build --refresh`"
        )
    return match[1]


def file_checksum(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def whole_file(folder: Path, name: str, checksum: str) -> Path | None:
    """The file in `folder` that matches the pattern `name`, if it is whole."""
    found = next(iter(folder.glob(name)), None)
    return found if found and file_checksum(found) == checksum else None


def download(package: str, version: str, folder: Path, report: Report) -> Path:
    """Fetch one package into `folder` and return its file; one already there and whole is kept.

    apt resumes a partial file. It leaves a damaged one of the right size as it is: that is removed
    and fetched once more.
    """
    wanted = package_checksum(package, version)
    name = f"{package}_{version.replace(':', '%3a')}_*.deb"
    if found := whole_file(folder, name, wanted):
        return found
    report(f"fetching {package} {version}")
    argv = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", f"{package}={version}"]
    for _ in range(2):
        done = run(argv, cwd=folder, check=False)
        if found := whole_file(folder, name, wanted):
            return found
        if done.status == 0:
            for damaged in folder.glob(name):
                damaged.unlink()
    raise FastsyncError(
        f"cannot fetch {package} {version}: {last_lines(done.stderr, 2) or 'wrong SHA-256'}; "
        "if Debian dropped this version, `./fastsync build --refresh` finds a newer one"
    )


def unpack(debs: Sequence[Path], series: Series, version: str, root: Path, report: Report) -> None:
    """Unpack packages into `root` and keep of the kernel's source what the build needs."""
    for deb in debs:
        report(f"unpacking {deb.name}")
        run(["dpkg-deb", "-x", str(deb), str(root)])
    archive = root / "usr" / "src" / f"{series.source}.tar.xz"
    report(f"unpacking {archive.name}: fs/ext4, fs/jbd2 and checkpatch")
    members = [f"{series.source}/{member}" for member in SOURCE_MEMBERS]
    run(["tar", "-C", str(root), "--use-compress-program=xz -T0", "-xf", str(archive), *members])
    archive.unlink()
    tree = tree_at(root, series, version)
    check_source_version(tree)
    make_relocatable(tree)
    run(["/sbin/depmod", "-b", str(root), tree.release])
    (root / "tree.json").write_text(json.dumps({"debian_version": version}) + "\n")


def check_source_version(tree: KernelTree) -> None:
    """Refuse a kernel whose source package holds another version than its image."""
    makefile = (tree.source_dir / "Makefile").read_text()
    fields = dict(re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL) = (\d+)$", makefile, re.MULTILINE))
    source = ".".join(fields.get(key, "?") for key in ("VERSION", "PATCHLEVEL", "SUBLEVEL"))
    if source != upstream_version(tree.debian_version):
        raise FastsyncError(
            f"the source package holds Linux {source}, the kernel is {tree.debian_version}: "
            "only the very same version is built"
        )


def make_relocatable(tree: KernelTree) -> None:
    """Turn the packages' absolute paths (/usr/src/…) into ones relative to where they lie."""
    makefile = tree.headers_dir / "Makefile"
    here = "$(dir $(realpath $(lastword $(MAKEFILE_LIST))))"
    text = re.sub(r"(?m)^include /usr/src/", f"include {here}../", makefile.read_text())
    makefile.write_text(text)
    for name in ("build", "source"):
        link = tree.modules_dir / name
        if link.is_symlink():
            target = Path("../../../usr/src") / link.readlink().name
            link.unlink()
            link.symlink_to(target)


def refresh_package_lists(report: Report) -> None:
    """Ask apt for what Debian serves now, as root or through sudo."""
    report("updating apt's package lists")
    sudo = [] if os.geteuid() == 0 else ["sudo"]
    run([*sudo, "apt-get", "-q", "update"])


def fetch_kernel(kernel: str, *, refresh: bool = False, report: Report = silent) -> KernelTree:
    """The kernel "6.12" (the newest cached, else the newest that Debian serves) or "6.12.113".

    `refresh` asks apt for a newer one first. Raises UsageError for a kernel that is unknown or not
    served, with the list of those that are.
    """
    series = find_series(kernel)
    with locked(cache_dir() / "lock"):
        cached = cached_trees(series)
        if not refresh and (version := choose_version(kernel, series.name, list(cached))):
            return cached[version]
        if refresh:
            refresh_package_lists(report)
        served = served_versions(series)
        version = choose_version(kernel, series.name, served)
        if version is None:
            offer = ", ".join(served) or "none of this series; try `make setup`"
            raise UsageError(f"Debian serves no kernel {kernel}: it serves {offer}")
        if version in cached:
            return cached[version]
        return fetch_version(series, version, report)


def fetch_version(series: Series, version: str, report: Report) -> KernelTree:
    """Download and unpack one version; called with the cache locked."""
    _, packages = series.names(version)
    name = version.replace("~", "+")  # vng takes no ~ in a path
    downloads = cache_dir() / "downloads" / name
    downloads.mkdir(parents=True, exist_ok=True)
    debs = [download(package, version, downloads, report) for package in (*packages, series.source)]
    root = kernels_dir() / name
    half = kernels_dir() / f"{name}.half"
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    unpack(debs, series, version, half, report)
    half.rename(root)
    shutil.rmtree(downloads)
    return tree_at(root, series, version)


# --- overlay and glue --------------------------------------------------------------------------


def overlay_files(filesystem: str) -> list[Path]:
    """Our new files for fs/<filesystem>."""
    return sorted(p for p in (repo_root() / "kernel" / filesystem).glob("*") if p.is_file())


def glue_patches(series: str) -> list[Path]:
    """The patches that hook our files into the kernel's own, in the order they apply."""
    return sorted((repo_root() / "kernel" / "glue" / series).glob("*.patch"))


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


def assemble(tree: KernelTree, source: Path, *, stock: bool) -> None:
    """Put fs/ext4 and fs/jbd2 under `source`, as Debian has them or with our files and glue."""
    for filesystem in FILESYSTEMS:
        folder = source / "fs" / filesystem
        shutil.copytree(tree.source_dir / "fs" / filesystem, folder)
        if not stock:
            add_overlay(filesystem, folder)
    if not stock:
        for patch in glue_patches(tree.series):
            apply_patch(patch, source, tree)
        for filesystem in FILESYSTEMS:
            forbid_warnings(filesystem, source / "fs" / filesystem)


def add_overlay(filesystem: str, folder: Path) -> None:
    """Copy our new files of a file system beside the kernel's; none may take the place of one."""
    for file in overlay_files(filesystem):
        if (folder / file.name).exists():
            raise FastsyncError(f"kernel/{filesystem}/{file.name} would replace a kernel file")
        shutil.copy(file, folder)


def forbid_warnings(filesystem: str, folder: Path) -> None:
    """Make a compiler's warning about one of our files an error."""
    with (folder / "Makefile").open("a") as makefile:
        for file in overlay_files(filesystem):
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
    digest.update(f"{tree.debian_version} {tree.headers_dir}\n".encode())
    for file in (Path(__file__), *files):
        digest.update(f"{file.parent.name}/{file.name} {file_checksum(file)}\n".encode())
    return digest.hexdigest()


def first_errors(log: str, count: int = 3) -> str:
    """The first lines of a build log that tell why it failed."""
    lines = [line for line in log.splitlines() if re.search(r"error|ERROR|not found|\*\*\*", line)]
    return " | ".join(lines[:count]) or last_lines(log)


def make_argv(tree: KernelTree, folder: Path) -> list[str]:
    """The call of the kernel's build system for a module in `folder`; targets are to be added."""
    no_btf = "CONFIG_DEBUG_INFO_BTF_MODULES="  # type data for BPF would need pahole
    jobs = f"-j{os.cpu_count() or 1}"
    return ["make", jobs, "-C", str(tree.headers_dir), f"M={folder}", no_btf]


def make_module(tree: KernelTree, folder: Path, log: Path, *variables: str) -> None:
    """Build the module in `folder` with the kernel's build system; the output is added to `log`."""
    done = run([*make_argv(tree, folder), *variables, "modules"], check=False)
    text = done.stdout + done.stderr
    with log.open("a") as file:
        file.write(text)
    if done.status != 0:
        raise FastsyncError(f"{folder.name} does not compile (see {log}): {first_errors(text)}")


def publish(module: Path, target: Path) -> None:
    """Put a module, without its debugging symbols, under its final name in one step."""
    half = target.with_suffix(".half")
    run(["strip", "--strip-debug", "-o", str(half), str(module)])
    half.rename(target)


def build_modules(tree: KernelTree, *, stock: bool = False, report: Report = silent) -> ModuleSet:
    """Build jbd2.ko and ext4.ko into build/<series>/ (or build/<series>-stock/).

    Nothing is done when nothing changed since the last time. Raises FastsyncError when glue does
    not apply or the code does not compile; warnings in our own files count as errors.
    """
    target = build_dir() / (f"{tree.series}-stock" if stock else tree.series)
    modules = ModuleSet("stock" if stock else "fastsync", target / "jbd2.ko", target / "ext4.ko")
    inputs: list[Path] = []
    if not stock:
        inputs = [file for name in FILESYSTEMS for file in overlay_files(name)]
        inputs += glue_patches(tree.series)
    stamp = target / "stamp"
    with locked(target / "lock"):
        wanted = fingerprint(tree, inputs)
        whole = modules.jbd2.is_file() and modules.ext4.is_file() and stamp.is_file()
        if whole and stamp.read_text() == wanted:
            return modules
        stamp.unlink(missing_ok=True)
        report(f"building {modules.name} jbd2 and ext4 for {tree.release}")
        source = target / "src"
        version = target / "src.version"
        if version.is_file() and version.read_text() != tree.debian_version:
            shutil.rmtree(source, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix="assemble-", dir=target) as fresh:
            assemble(tree, Path(fresh), stock=stock)
            version.write_text(tree.debian_version)
            sync_sources(Path(fresh), source)
        log = target / "build.log"
        log.write_text("")
        jbd2, ext4 = (source / "fs" / name for name in FILESYSTEMS)
        make_module(tree, jbd2, log, "CONFIG_JBD2=m")
        symbols = f"KBUILD_EXTRA_SYMBOLS={jbd2}/Module.symvers"
        make_module(tree, ext4, log, "CONFIG_EXT4_FS=m", symbols)
        publish(jbd2 / "jbd2.ko", modules.jbd2)
        publish(ext4 / "ext4.ko", modules.ext4)
        stamp.write_text(wanted)
    return modules


def build_flashdev(tree: KernelTree, *, report: Report = silent) -> Path:
    """Build the device model kernel/flashdev/ into build/<series>/flashdev.ko."""
    origin = repo_root() / "kernel" / "flashdev"
    if not (origin / "flashdev.c").is_file():
        raise FastsyncError(f"no device model: {origin}/flashdev.c is missing")
    target = build_dir() / tree.series
    module = target / "flashdev.ko"
    stamp = target / "flashdev.stamp"
    with locked(target / "lock"):
        wanted = fingerprint(tree, sorted(file for file in origin.glob("*") if file.is_file()))
        if module.is_file() and stamp.is_file() and stamp.read_text() == wanted:
            return module
        stamp.unlink(missing_ok=True)
        report(f"building flashdev for {tree.release}")
        folder = target / "flashdev"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(origin, folder)
        log = target / "flashdev.log"
        log.write_text("")
        make_module(tree, folder, log, "KCFLAGS=-Werror")
        publish(folder / "flashdev.ko", module)
        stamp.write_text(wanted)
    return module
