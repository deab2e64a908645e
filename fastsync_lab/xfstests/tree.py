"""A checkout of xfstests that the user names: its tests and groups, and its build.

The folder is only read. What Git knows of it is copied to build/xfstests/, compiled there in a
Debian of the release that guests have, and packed for the guest.
"""

import hashlib
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fastsync_lab.host.chroot import Place, Recipe, as_text, make_once
from fastsync_lab.host.errors import FastsyncError, UsageError
from fastsync_lab.host.kernels import file_checksum
from fastsync_lab.host.paths import build_dir, cache_dir, locked
from fastsync_lab.host.progress import Passing, Report
from fastsync_lab.host.shell import first_errors, follow, run
from fastsync_lab.machine.image import load_recipes

IMAGE = "xfstests"  # the root image of images.toml that has the programs its tests call
INSTALLED = "var/lib/xfstests"  # where it installs itself
SUITES = ("generic", "ext4")
# What compiling it takes; what running it takes is the root image's.
BUILD_PACKAGES = (
    "autoconf",
    "automake",
    "gcc",
    "gettext",
    "libacl1-dev",
    "libaio-dev",
    "libattr1-dev",
    "libc6-dev",
    "libcap-dev",
    "libgdbm-compat-dev",
    "libgdbm-dev",
    "libtool",
    "libtool-bin",
    "liburing-dev",
    "make",
    "pkg-config",
    "uuid-dev",
    "xfslibs-dev",
)
TEST_NAME = re.compile(r"\d{3,4}")
BEGIN = re.compile(r"^_begin_fstest[ \t]+(.*)$", re.MULTILINE)
DEFAULT_GROUP = "quick"
COMPILED = re.compile(r"\s+\[CC\]\s+(\S+)")


@dataclass(frozen=True)
class Tree:
    """A checkout: its folder, the files of it that count, its commit, its digest, its tests.

    `tests` has the groups of each test by its name, like generic/001. `commit` ends in "+" where
    files differ from it, and is "none" without Git.
    """

    folder: Path
    files: tuple[str, ...]
    commit: str
    digest: str
    tests: Mapping[str, frozenset[str]]


def read_tree(folder: Path) -> Tree:
    """The checkout in `folder`. Raises UsageError when that is none of xfstests."""
    folder = folder.absolute()
    if not (folder / "check").is_file() or not (folder / "tests" / "generic").is_dir():
        raise UsageError(
            f"{folder} is no checkout of xfstests: it has no `check` and no tests/generic/"
        )
    files, commit = files_of(folder)
    return Tree(folder, files, commit, digest_of(folder, files), find_tests(folder))


def digest_of(folder: Path, files: Iterable[str]) -> str:
    """A short hash of files in a folder, of their names and what is in them."""
    digest = hashlib.sha256()
    for name in files:
        path = folder / name
        content = str(path.readlink()) if path.is_symlink() else file_checksum(path)
        digest.update(f"{name} {content}\n".encode())
    return digest.hexdigest()[:16]


def files_of(folder: Path) -> tuple[tuple[str, ...], str]:
    """The files of a checkout that Git does not ignore (without Git: all), and its commit."""
    if not (folder / ".git").exists():
        found = (path for path in folder.rglob("*") if path.is_file() or path.is_symlink())
        return tuple(sorted(str(path.relative_to(folder)) for path in found)), "none"
    git = ["git", "-c", "safe.directory=*", "-C", str(folder)]
    commit = run([*git, "rev-parse", "--short=12", "HEAD"]).stdout.strip()
    listed = run([*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]).stdout
    changed = run([*git, "status", "--porcelain"]).stdout.strip()
    names = {name for name in listed.split("\0") if name}
    there = (name for name in names if (folder / name).is_file() or (folder / name).is_symlink())
    return tuple(sorted(there)), commit + ("+" if changed else "")


def find_tests(folder: Path) -> dict[str, frozenset[str]]:
    """The groups of every test for ext4, by its name; a test tells them itself."""
    tests = {}
    for suite in SUITES:
        for path in sorted((folder / "tests" / suite).glob("[0-9]*")):
            if TEST_NAME.fullmatch(path.name):
                tests[f"{suite}/{path.name}"] = parse_groups(path.read_text(errors="replace"))
    return tests


def parse_groups(text: str) -> frozenset[str]:
    """The groups that a test says it is in."""
    match = BEGIN.search(text)
    return frozenset(match[1].split("#")[0].split()) if match else frozenset()


def select(tests: Mapping[str, frozenset[str]], words: Sequence[str]) -> list[str]:
    """The tests that words mean, in their order, each once.

    A word is a test (generic/001), a group (quick) or a group of one suite (ext4/quick); without
    words it is the group quick. Raises UsageError for any other word.
    """
    chosen: dict[str, None] = {}
    groups = sorted({group for of_one in tests.values() for group in of_one})
    for word in words or (DEFAULT_GROUP,):
        suite, _, group = word.rpartition("/")
        found = [word] if word in tests else members(tests, suite, group)
        if not found:
            raise UsageError(
                f"no test or group {word!r}: allowed are tests like {next(iter(tests), '?')}, "
                f"groups, and groups of a suite like ext4/quick; groups are {', '.join(groups)}"
            )
        chosen |= dict.fromkeys(found)
    return list(chosen)


def members(tests: Mapping[str, frozenset[str]], suite: str, group: str) -> list[str]:
    """The tests of a group; of all suites if `suite` is empty."""
    return [
        name
        for name, groups in tests.items()
        if group in groups and suite in ("", name.split("/")[0])
    ]


# --- building ----------------------------------------------------------------------------------


def recipe() -> Recipe:
    """The Debian that it is compiled in: the release of the root image that it runs in."""
    return replace(load_recipes()[IMAGE], packages=BUILD_PACKAGES)


def recipe_digest() -> str:
    """A short hash of the recipe."""
    return hashlib.sha256(as_text(recipe()).encode()).hexdigest()[:16]


def archive_of(tree: Tree) -> Path:
    """What is installed of a checkout, in a folder named by all that goes into it."""
    return build_dir() / "xfstests" / f"{tree.digest}-{recipe_digest()}" / "installed.tar"


def build_tree(tree: Tree, report: Report) -> Path:
    """Compile a copy of the checkout; the archive of what it installs, to unpack at the root.

    Raises FastsyncError with the compiler's first complaints, or when the checkout has changed.
    """
    archive = archive_of(tree)
    folder = archive.parent
    root = cache_dir() / "chroots" / "xfstests"
    with locked(root.with_name("xfstests-build.lock")):
        if not archive.is_file():
            make_once(recipe(), root, "a Debian to compile xfstests in", report)
            report("compiling xfstests, a few minutes")
            copy_files(tree, folder / "source")
            shutil.rmtree(root / INSTALLED, ignore_errors=True)
            compile_copy(Place(root), folder, report)
            half = archive.with_suffix(".half")
            owner = ["--owner=0", "--group=0"]
            run(["tar", "-C", str(root), *owner, "-cf", str(half), INSTALLED])
            half.rename(archive)
            shutil.rmtree(folder / "source")
    return archive


def compile_copy(place: Place, folder: Path, report: Report) -> None:
    """Compile what is in `folder`/source, and install it in the Debian where it is compiled."""
    script = f"cd {shlex.quote(str(folder / 'source'))} && make -j2 && make install"
    lines: list[str] = []
    count = 0
    log = folder / "build.log"
    with log.open("w") as file:

        def look(line: str) -> None:
            nonlocal count
            file.write(line)
            lines.append(line)
            if compiled := COMPILED.match(line):
                count += 1
                report(Passing(f"compiling xfstests: program {count}, {compiled[1]}"))
            elif line.startswith("checking "):
                report(Passing(f"compiling xfstests: configure is {line.strip()}"))

        status = follow(place.argv(["sh", "-c", script]), look)
    if status != 0:
        why = first_errors("".join(lines))
        raise FastsyncError(f"xfstests does not compile: {why} (all of it: {log})")


def copy_files(tree: Tree, target: Path) -> None:
    """Copy the files of a checkout into a fresh folder.

    Raises FastsyncError when they are not what they were when the checkout was read.
    """
    shutil.rmtree(target, ignore_errors=True)
    try:
        for name in tree.files:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree.folder / name, target / name, follow_symlinks=False)
        same = digest_of(target, tree.files) == tree.digest
    except FileNotFoundError:
        same = False
    if not same:
        raise FastsyncError(f"{tree.folder} has changed since it was read: try again")
