"""Write our files and glue as a series of patches that `git am` takes: ./fastsync series."""

import email
import email.utils
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fastsync_lab.host.errors import FastsyncError, UsageError
from fastsync_lab.host.glue import apply_glue, check_glue, copy_stock
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.host.paths import build_dir, repo_root
from fastsync_lab.host.shell import last_lines, run

COVER_LETTER = "kernel/glue/cover-letter.txt"  # its first line is the subject
# Nobody's settings, hooks and signatures: the same sources give the same patches.
OWN_GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
FORMAT = ("--zero-commit", "--no-signature", "--numbered", "--cover-letter",
          "--cover-from-description=subject")  # fmt: skip


@dataclass(frozen=True)
class Person:
    """Who a patch is from."""

    name: str
    address: str


@dataclass(frozen=True)
class Changelog:
    """The head of a glue patch: who it is from, when it was made, and its message."""

    author: Person
    date: str
    message: str


def parse_changelog(patch: str) -> Changelog:
    """The head of what `git format-patch` wrote. Raises FastsyncError when it has none."""
    head = email.message_from_string(patch)
    name, address = email.utils.parseaddr(head["From"] or "")
    subject = " ".join((head["Subject"] or "").split()).removeprefix("[PATCH] ")
    if not (name and address and subject and head["Date"]):
        raise FastsyncError("a patch has no From, Subject or Date at its head")
    body = patch.partition("\n\n")[2].partition("\n---\n")[0]
    return Changelog(Person(name, address), head["Date"], f"{subject}\n\n{body}".rstrip() + "\n")


def git_person() -> Person:
    """Who git takes the user for. Raises FastsyncError when its configuration does not say."""
    found = [
        run(["git", "config", "--get", f"user.{key}"], cwd=repo_root(), check=False).stdout.strip()
        for key in ("name", "email")
    ]
    if not all(found):
        raise FastsyncError("--signoff needs user.name and user.email in git's configuration")
    return Person(*found)


def check_output(folder: Path) -> None:
    """Raise UsageError unless a series can be written there without a trace of another."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not an empty folder")


def git(work: Path, *arguments: str, env: dict[str, str] | None = None, text: str = "") -> None:
    """Run git in the repository `work`, whatever repository the caller is in."""
    own = work / ".git"
    here = {"GIT_DIR": own, "GIT_WORK_TREE": work, "GIT_INDEX_FILE": own / "index"}
    places = {name: str(path) for name, path in here.items()}
    done = run(
        ["git", *arguments], cwd=work, env={**OWN_GIT, **places, **(env or {})}, input_text=text,
        check=False,
    )  # fmt: skip
    if done.status != 0:
        raise FastsyncError(f"git {arguments[0]} failed: {last_lines(done.stdout + done.stderr)}")


def commit(work: Path, log: Changelog, person: Person | None) -> None:
    """Commit all of the work tree; `person` takes the place of the changelog's author."""
    who = person or log.author
    env = {"GIT_AUTHOR_DATE": log.date, "GIT_COMMITTER_DATE": log.date}
    for role in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{role}_NAME": who.name, f"GIT_{role}_EMAIL": who.address}
    git(work, "add", "--all", "--force")
    git(work, "commit", "--quiet", "--no-verify", "--file=-", env=env, text=log.message)


def default_output(tree: KernelTree) -> Path:
    """Where the series of a kernel goes, if nobody says where."""
    return build_dir() / f"{tree.series}-patches"


def write_series(tree: KernelTree, output: Path, *, person: Person | None = None) -> list[Path]:
    """Write the cover letter and the patches into `output`, in their order.

    They apply to the kernel's own source. With `person` the patches are from them and signed off by
    them. Raises UsageError when the folder is not empty or the kernel has no glue, FastsyncError
    when glue does not apply.
    """
    check_glue(tree.series)
    check_output(output)
    base = Changelog(Person("fastsync", "fastsync@localhost"), "2000-01-01T00:00:00Z", "base\n")
    with tempfile.TemporaryDirectory(prefix="fastsync-series-") as name:
        work = Path(name)
        git(work, "init", "--quiet", "--initial-branch=series")
        copy_stock(tree, work)
        commit(work, base, None)
        git(work, "tag", "base")
        for patch in apply_glue(tree, work):
            commit(work, parse_changelog(patch.read_text()), person)
        cover = (repo_root() / COVER_LETTER).read_text()
        git(work, "config", "branch.series.description", cover)
        who = person or base.author
        env = {"GIT_COMMITTER_NAME": who.name, "GIT_COMMITTER_EMAIL": who.address}
        signoff = ("--signoff",) if person else ()
        where = f"--output-directory={output.absolute()}"
        git(work, "format-patch", "--quiet", *FORMAT, *signoff, where, "base", env=env)
    return sorted(output.glob("*.patch"))
