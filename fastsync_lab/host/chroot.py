"""Debian systems in the cache, made by mmdebstrap: chroots, and what root images are packed from.

A chroot is for a kernel that this machine's Debian has no packages or no compiler for: apt is asked
and the compiler runs there. bubblewrap enters it, and its files belong to the user: nothing needs
root. image.py packs such a system into the root of the guests.
"""

import hashlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.paths import build_dir, cache_dir, locked
from fastsync_lab.host.progress import Passing, Report
from fastsync_lab.host.shell import follow, last_lines, run

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
# The day that /etc/shadow says passwords were set: the same packages make the same system.
SAME_DAY = "SOURCE_DATE_EPOCH=1700000000"
# What apt and dpkg say of a package that they work on.
WORK = {
    "fetching": re.compile(r"Get:\d+ \S+ \S+ \S+ ([a-z0-9]\S*)"),
    "unpacking": re.compile(r"Unpacking (\S+)"),
    "setting up": re.compile(r"Setting up (\S+)"),
}


@dataclass(frozen=True)
class Recipe:
    """What a system is made of: [chroot.RELEASE] of kernels.toml, or a table of images.toml.

    `leave_out` are patterns of files that no package brings.
    """

    release: str
    suites: tuple[str, ...]
    packages: tuple[str, ...]
    leave_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """Where commands of a kernel series run: in the chroot at `root`, or without one right here."""

    root: Path | None = None

    def argv(self, command: Sequence[str]) -> list[str]:
        """The call that runs `command` there; the cache and build/ have the same paths there."""
        if self.root is None:
            return list(command)
        argv = ["bwrap", "--die-with-parent", "--bind", str(self.root), "/"]
        argv += ["--dev", "/dev", "--proc", "/proc", "--setenv", "PATH", PATH]
        argv += ["--ro-bind", "/etc/resolv.conf", "/etc/resolv.conf"]
        for folder in (cache_dir(), build_dir()):
            folder.mkdir(parents=True, exist_ok=True)
            argv += ["--bind", str(folder), str(folder)]
        return [*argv, "--", *command]

    def refresh_package_lists(self, report: Report) -> None:
        """Ask apt for what Debian serves now; on this machine as root or through sudo."""
        report("updating apt's package lists")
        sudo = [] if self.root or os.geteuid() == 0 else ["sudo", "--non-interactive"]
        update = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "update"]
        run([*sudo, *self.argv(update)])


HERE = Place()


def place_for(recipe: Recipe | None, report: Report) -> Place:
    """The place that a recipe describes; a chroot is made unless it is there, whole and up to date.

    Raises FastsyncError when it cannot be made.
    """
    if recipe is None:
        return HERE
    digest = hashlib.sha256(as_text(recipe).encode()).hexdigest()[:16]
    root = cache_dir() / "chroots" / f"{recipe.release}-{digest}"
    make_once(recipe, root, f"a Debian {recipe.release} chroot", report)
    return Place(root)


Pack = Callable[[Path, Path], None]


def make_once(
    recipe: Recipe, root: Path, what: str, report: Report, pack: Pack | None = None
) -> None:
    """Make the folder `root` of a recipe, unless it is there, whole and of this very recipe.

    It holds the system; with `pack`, what pack(system, folder) puts into a folder.
    Raises FastsyncError when it cannot be made.
    """
    with locked(root.with_name(f"{root.name}.lock")):
        if not made_from(root, recipe):
            report(f"making {what}, a minute or a few")
            make(recipe, root, what, report, pack)


def made_from(root: Path, recipe: Recipe) -> bool:
    """Whether a whole chroot of this very recipe is at `root`."""
    note = note_of(root)
    return note.is_file() and note.read_text() == as_text(recipe)


def note_of(root: Path) -> Path:
    """The file that names a chroot's recipe; made last."""
    return root / "fastsync-recipe.json"


def as_text(recipe: Recipe) -> str:
    """A recipe as what was made from it keeps it; what is empty is not mentioned."""
    return json.dumps({key: value for key, value in asdict(recipe).items() if value}) + "\n"


def make(recipe: Recipe, root: Path, what: str, report: Report, pack: Pack | None = None) -> None:
    """Make `root` in place of whatever is there; called with it locked."""
    note_of(root).unlink(missing_ok=True)
    archive, half = root.with_name(f"{root.name}.tar"), root.with_name(f"{root.name}.half")
    system = root.with_name(f"{root.name}.system") if pack else half
    archive.unlink(missing_ok=True)
    for folder in (half, system):
        shutil.rmtree(folder, ignore_errors=True)
    # Root's mounts are its own, so that none outlives a mmdebstrap that is killed: it binds the
    # machine's /dev/shm into its folder in /tmp. An ordinary user's are so anyway.
    argv = ["unshare", "--mount"] if os.geteuid() == 0 else []
    argv += ["env", SAME_DAY, "mmdebstrap", "--verbose", "--variant=minbase"]
    argv += ["--skip=check/signed-by,cleanup/apt/lists"]
    argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in recipe.leave_out]
    argv += [f"--include={','.join(recipe.packages)}", recipe.release, str(archive)]
    argv += [f"deb {host_mirror(suite)} {suite} main" for suite in recipe.suites]
    follow_packages(argv, what, report)
    system.mkdir()
    run(["tar", "-C", str(system), "--no-same-owner", "--exclude=./dev/*", "-xf", str(archive)])
    archive.unlink()
    if pack:
        half.mkdir()
        pack(system, half)
        shutil.rmtree(system)
    note_of(half).write_text(as_text(recipe))
    shutil.rmtree(root, ignore_errors=True)
    half.rename(root)


def follow_packages(argv: Sequence[str], what: str, report: Report) -> None:
    """Run mmdebstrap, report which package it works on.

    Raises FastsyncError, which quotes the errors of it and of apt, when it fails.
    """
    lines: list[str] = []
    counts: Counter[str] = Counter()

    def look(line: str) -> None:
        lines.append(line)
        for work, pattern in WORK.items():
            if match := pattern.match(line):
                counts[work] += 1
                report(Passing(f"making {what}: {work} package {counts[work]}, {match[1]}"))

    status = follow(argv, look)
    if status != 0:
        errors = "".join(line for line in lines if line.startswith("E: "))
        raise FastsyncError(
            f"mmdebstrap failed with status {status}: {last_lines(errors or ''.join(lines))}"
        )


def host_mirror(suite: str) -> str:
    """The mirror that this machine's apt uses for a suite; FastsyncError if it uses none."""
    label = "Debian-Security" if suite.endswith("-security") else "Debian"
    argv = ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)"]
    mirror = parse_mirror(run([*argv, "Created-By: Packages"], check=False).stdout, label)
    if mirror is None:
        raise FastsyncError(f"apt on this machine has no mirror of {label}: try `make setup`")
    return mirror


def parse_mirror(text: str, label: str = "Debian") -> str | None:
    """The first of Debian's mirrors with a label in the rows "ORIGIN|LABEL|URI" of apt-get."""
    rows = [line.split("|", 2) for line in text.splitlines()]
    return next((row[2] for row in rows if row[:2] == ["Debian", label]), None)
