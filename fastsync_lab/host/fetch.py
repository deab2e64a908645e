"""How a stock Debian kernel gets into the cache.

Nothing is installed: packages are unpacked into the cache. A folder gets its final name only when
it is whole, so an interrupted run is taken up where it stopped and never taken for a finished one.
"""

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from fastsync_lab.host.chroot import Place, place_for
from fastsync_lab.host.errors import FastsyncError, UsageError
from fastsync_lab.host.kernels import (
    SOURCE_MEMBERS,
    KernelTree,
    Offer,
    Series,
    cached_trees,
    file_checksum,
    find_series,
    fitting_versions,
    folder_name,
    kernels_dir,
    note_tree,
    offer,
    served_versions,
    tree_at,
    upstream_version,
)
from fastsync_lab.host.paths import cache_dir, locked
from fastsync_lab.host.progress import MB, Passing, Report, silent
from fastsync_lab.host.shell import last_lines, run


def whole_file(folder: Path, name: str, checksum: str) -> Path | None:
    """The file in `folder` that matches the pattern `name`, if it is whole."""
    found = next(iter(folder.glob(name)), None)
    return found if found and file_checksum(found) == checksum else None


def sizer(package: str, folder: Path, report: Report) -> Callable[[], None]:
    """Reports how much of a package has come into `folder`."""

    def look() -> None:
        size = 0
        for file in folder.glob(f"**/{package}_*"):  # apt's own folder, partial/, among them
            with suppress(FileNotFoundError):  # apt has renamed it: the next look sees it
                size += file.stat().st_size
        report(Passing(f"fetching {package}: {size / MB:.0f} MB"))

    return look


def download(
    package: str, version: str, checksum: str, folder: Path, place: Place, report: Report
) -> Path:
    """Fetch one package into `folder` and return its file; one already there and whole is kept.

    apt resumes a partial file. It leaves a damaged one of the right size as it is: that is removed
    and fetched once more.
    """
    name = f"{package}_{version.replace(':', '%3a')}_*.deb"
    if found := whole_file(folder, name, checksum):
        return found
    report(f"fetching {package} {version}")
    argv = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", f"{package}={version}"]
    for _ in range(2):
        done = run(place.argv(argv), cwd=folder, check=False, look=sizer(package, folder, report))
        if found := whole_file(folder, name, checksum):
            return found
        if done.status == 0:
            for damaged in folder.glob(name):
                damaged.unlink()
    raise FastsyncError(
        f"cannot fetch {package} {version}: {last_lines(done.stderr, 2) or 'wrong SHA-256'}; "
        "if Debian dropped this version, `./fastsync build --refresh` finds a newer one"
    )


def unpack(debs: Sequence[Path], tree: KernelTree, root: Path, report: Report) -> None:
    """Unpack the packages of `tree` into `root`; of the kernel's source, what the build needs."""
    for deb in debs:
        report(f"unpacking {deb.name}")
        run(["dpkg-deb", "-x", str(deb), str(root)])
    source = tree.source_dir.name
    archive = root / "usr" / "src" / f"{source}.tar.xz"
    report(f"unpacking {archive.name}: fs/ext4, fs/jbd2, headers of block/ and checkpatch")
    members = [f"{source}/{member}" for member in SOURCE_MEMBERS]
    run(["tar", "-C", str(root), "--use-compress-program=xz -T0", "-xf", str(archive), *members])
    archive.unlink()
    check_source_version(tree)
    unmerge_usr(tree, root)
    make_relocatable(tree)
    run(["/sbin/depmod", "-b", str(root), tree.release])
    note_tree(root, tree)


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


def unmerge_usr(tree: KernelTree, root: Path) -> None:
    """Move what newer packages keep in /usr/lib/modules to where older ones have it."""
    merged = root / "usr" / "lib" / "modules"
    if merged.is_dir():
        (root / "lib").mkdir(exist_ok=True)
        merged.rename(root / "lib" / "modules")
    image = tree.modules_dir / "vmlinuz"
    if image.is_file():
        tree.vmlinuz.parent.mkdir(exist_ok=True)
        image.rename(tree.vmlinuz)


def make_relocatable(tree: KernelTree) -> None:
    """Turn the packages' absolute paths (/usr/src/…) into ones relative to where they lie."""
    makefile = tree.headers_dir / "Makefile"
    here = "$(dir $(realpath $(lastword $(MAKEFILE_LIST))))"
    text = re.sub(r"(?m)^include /usr/src/", f"include {here}../", makefile.read_text())
    text = re.sub(r"(?m)^KBUILD_OUTPUT=/usr/src/", f"KBUILD_OUTPUT := {here}../", text)
    makefile.write_text(text)
    for name in ("build", "source"):
        link = tree.modules_dir / name
        if link.is_symlink():
            target = Path("../../../usr/src") / link.readlink().name
            link.unlink()
            link.symlink_to(target)


def fetch_kernel(kernel: str, *, refresh: bool = False, report: Report = silent) -> KernelTree:
    """The kernel "6.12" (the newest cached, else the newest that Debian serves) or "6.12.113".

    `refresh` asks apt for a newer one first. Raises UsageError for a kernel that is unknown or not
    served, with the list of those that are.
    """
    series = find_series(kernel)
    with locked(cache_dir() / "lock"):
        cached = cached_trees(series)
        if not refresh and (fitting := fitting_versions(kernel, series.name, list(cached))):
            return cached[fitting[0]]
        place = place_for(series.chroot, report)
        if refresh:
            place.refresh_package_lists(report)
        served = served_versions(series, place)
        fitting = fitting_versions(kernel, series.name, served)
        if not fitting:
            said = ", ".join(served) or "none of this series; try `make setup`"
            raise UsageError(f"Debian serves no kernel {kernel}: it serves {said}")
        return fetch_newest(series, fitting, cached, place, report)


def fetch_newest(
    series: Series,
    versions: Sequence[str],
    cached: Mapping[str, KernelTree],
    place: Place,
    report: Report,
) -> KernelTree:
    """The first of `versions` that is cached or that apt serves as a whole; FastsyncError if none.

    Called with the cache locked.
    """
    problems = []
    for version in versions:
        if version in cached:
            return cached[version]
        try:
            found = offer(series, version, place)
        except FastsyncError as error:
            problems.append(error)
            report(f"passing over {version}: {error}")
            continue
        return fetch_version(series, found, place, report)
    raise problems[0]


def fetch_version(series: Series, found: Offer, place: Place, report: Report) -> KernelTree:
    """Download and unpack one version; called with the cache locked."""
    version = found.debian_version
    name = folder_name(version)
    downloads = cache_dir() / "downloads" / name
    downloads.mkdir(parents=True, exist_ok=True)
    debs = [
        download(package, version, checksum, downloads, place, report)
        for package, checksum in found.packages.items()
    ]
    root, half = kernels_dir() / name, kernels_dir() / f"{name}.half"
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    unpack(debs, tree_at(half, series, version, found.release), half, report)
    shutil.rmtree(root, ignore_errors=True)
    half.rename(root)
    shutil.rmtree(downloads)
    return tree_at(root, series, version, found.release)
