"""Where apt is asked and the compiler runs: this machine, or a Debian chroot in the cache.

A chroot is for a kernel that this machine's Debian has no packages or no compiler for. mmdebstrap
makes it, bubblewrap enters it, and its files belong to the user: nothing needs root.
"""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fastsync_lab.errors import FastsyncError
from fastsync_lab.paths import build_dir, cache_dir, locked
from fastsync_lab.progress import Report
from fastsync_lab.shell import run

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Recipe:
    """What a chroot is made of: a [chroot.RELEASE] table of kernels.toml."""

    release: str
    suites: tuple[str, ...]
    packages: tuple[str, ...]


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
        sudo = [] if self.root or os.geteuid() == 0 else ["sudo"]
        update = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "update"]
        run([*sudo, *self.argv(update)])


HERE = Place()


def place_for(recipe: Recipe | None, report: Report) -> Place:
    """The place that a recipe describes; a chroot is made unless it is there, whole and up to date.

    Raises FastsyncError when it cannot be made.
    """
    if recipe is None:
        return HERE
    root = cache_dir() / "chroots" / recipe.release
    with locked(root.with_suffix(".lock")):
        if not made_from(root, recipe):
            make(recipe, root, report)
    return Place(root)


def made_from(root: Path, recipe: Recipe) -> bool:
    """Whether a whole chroot of this very recipe is at `root`."""
    note = note_of(root)
    return note.is_file() and note.read_text() == as_text(recipe)


def note_of(root: Path) -> Path:
    """The file that names a chroot's recipe; made last."""
    return root / "fastsync-recipe.json"


def as_text(recipe: Recipe) -> str:
    """A recipe as its chroot keeps it."""
    return json.dumps(asdict(recipe)) + "\n"


def make(recipe: Recipe, root: Path, report: Report) -> None:
    """Make a chroot at `root` in place of whatever is there; called with it locked."""
    report(f"making a Debian {recipe.release} chroot, about a minute")
    note_of(root).unlink(missing_ok=True)
    archive, half = root.with_suffix(".tar"), root.with_suffix(".half")
    archive.unlink(missing_ok=True)
    shutil.rmtree(half, ignore_errors=True)
    mirror = host_mirror()
    # Root's mounts are its own, so that none outlives a mmdebstrap that is killed: it binds the
    # machine's /dev/shm into its folder in /tmp. An ordinary user's are so anyway.
    argv = ["unshare", "--mount"] if os.geteuid() == 0 else []
    argv += ["mmdebstrap", "--quiet", "--variant=minbase"]
    argv += ["--skip=check/signed-by,cleanup/apt/lists"]
    argv += [f"--include={','.join(recipe.packages)}", recipe.release, str(archive)]
    run([*argv, *(f"deb {mirror} {suite} main" for suite in recipe.suites)])
    half.mkdir()
    run(["tar", "-C", str(half), "--no-same-owner", "--exclude=./dev/*", "-xf", str(archive)])
    archive.unlink()
    note_of(half).write_text(as_text(recipe))
    shutil.rmtree(root, ignore_errors=True)
    half.rename(root)


def host_mirror() -> str:
    """The mirror of Debian that this machine's apt uses; FastsyncError if it uses none."""
    argv = ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)"]
    mirror = parse_mirror(run([*argv, "Created-By: Packages"], check=False).stdout)
    if mirror is None:
        raise FastsyncError("apt on this machine has no mirror of Debian: try `make setup`")
    return mirror


def parse_mirror(text: str) -> str | None:
    """The first mirror of Debian proper in the rows "ORIGIN|LABEL|URI" of apt-get indextargets."""
    rows = [line.split("|", 2) for line in text.splitlines()]
    return next((row[2] for row in rows if row[:2] == ["Debian", "Debian"]), None)
