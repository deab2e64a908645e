"""What is wrong with a state that the kernel has recovered, and with it as e2fsck recovers it."""

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from mmap import mmap
from pathlib import Path
from types import MappingProxyType

from fastsync_lab.crash.case import Case
from fastsync_lab.crash.extfs import File, Image, Tree
from fastsync_lab.crash.guest import built_program
from fastsync_lab.crash.kinds import Kind, split_journal
from fastsync_lab.crash.mariadb import reader
from fastsync_lab.crash.oracle import Oracle, junk_problems
from fastsync_lab.crash.recording import PAGE, ImageFile, page_of
from fastsync_lab.crash.recover import Found
from fastsync_lab.crash.script import Script
from fastsync_lab.crash.sql import SQLITE, SqlOracle
from fastsync_lab.crash.trace import Op
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.shell import Completed, run
from fastsync_lab.machine.kernel_log import check_kernel_log

# When the kernel replays fast commits it counts an inode's blocks anew, and not that of its xattrs.
BLOCKS_WRONG = re.compile(r"Inode \d+, i_blocks is \d+, should be \d+\.  Fix\? no")
TRUNCATED = re.compile(r"Truncating orphaned inode (\d+)")
MUCH_LATER_S = 4102444800  # the year 2100
UNREADABLE = (FastsyncError, ValueError, IndexError, struct.error)
# What e2fsck -fy says of a sound file system whose journal it has replayed.
QUIET_FSCK = (
    "recovering journal",
    "Pass ",
    "Clearing orphaned inode",
    "Truncating orphaned inode",
    "Setting free ",
    "Free blocks count wrong",
    "Free inodes count wrong",
    "FILE SYSTEM WAS MODIFIED",
    "files (",
    "Fix? yes",
    "could be shorter.  Optimize? yes",
    "could be narrower.  Optimize? yes",
)


# Files as they were before a recovery completed their truncation, by inode.
Completions = Mapping[int, File]
NOTHING_COMPLETED: Completions = MappingProxyType({})


@dataclass(frozen=True)
class Verdict:
    """What is wrong after the kernel has recovered a state, and after e2fsck has.

    `checked` is what e2fsck says of the kernel's work.
    """

    kernel: tuple[str, ...]
    checked: tuple[str, ...]
    e2fsck: tuple[str, ...]

    @property
    def blocks_wrong(self) -> bool:
        """Whether e2fsck says nothing but that numbers of blocks are wrong."""
        said = [line for line in self.checked if "still has errors" not in line]
        return bool(said) and all(BLOCKS_WRONG.search(line) for line in said)


class Judge:
    """Says what is wrong with a recovered state."""

    def __init__(self, case: Case, script: Script, ops: list[Op], work: Path) -> None:
        self._fsck = E2fsck(work, case.kind)
        how = reader(built_program(script.program)) if script.flushing else SQLITE
        self._sql = SqlOracle(script.lines, how) if script.sql else None
        self._files = None if script.sql else Oracle(ops, case.promise)

    def completed_in(self, state_image: bytes) -> Completions:
        """The files whose truncation a recovery of a state has to complete.

        There are none if e2fsck leaves nothing that can be read: such a state has failed before.
        """
        self._fsck.put(state_image)
        self._fsck.repair()
        inodes = self._fsck.truncated
        try:
            tree = Image(self._fsck.contents).tree() if inodes else {}
        except UNREADABLE:
            return {}
        return {file.ino: file for file in tree.values() if file.ino in inodes}

    def verdict(
        self,
        state_image: bytearray,
        found: Found,
        returned: frozenset[int],
        completed: Completions = NOTHING_COMPLETED,
    ) -> Verdict:
        """Each recovery is held against the promises, and e2fsck's against the kernel's.

        `completed`: of the state whose recovery was cut, if this is what that left.
        """
        kernel = [*found.errors]
        kernel += [f"kernel: {line}" for line in check_kernel_log("\n".join(found.log))]
        self._fsck.put(state_image)
        before = {number: bytes(page_of(state_image, number)) for number in found.pages}
        self._fsck.put_pages(found.pages)
        checked = tuple(self._fsck.clean("the kernel"))
        kernel += self._broken_promises_to_databases("the kernel", returned)
        self._fsck.put_pages(before)
        e2fsck = [*self._fsck.repair(), *self._fsck.clean("e2fsck")]
        by_kernel = found.tree
        try:
            by_e2fsck = Image(self._fsck.contents).tree()
            by_kernel = without_completion(by_kernel, by_e2fsck, self._fsck.truncated)
            if wrong := differences(by_kernel, by_e2fsck):
                e2fsck += wrong
                by_e2fsck = before_completion(by_e2fsck, completed)
                e2fsck += self._broken_promises("e2fsck", by_e2fsck, returned)
                e2fsck += self._broken_promises_to_databases("e2fsck", returned)
        except UNREADABLE as error:
            e2fsck.append(f"after e2fsck the image cannot be read: {error}")
        by_kernel = before_completion(by_kernel, completed)
        kernel += self._broken_promises("the kernel", by_kernel, returned)
        return Verdict(tuple(kernel), checked, tuple(e2fsck))

    def _broken_promises(self, whose: str, tree: Tree, returned: frozenset[int]) -> list[str]:
        problems = junk_problems(tree)
        if self._files:
            problems += _readable(partial(self._files.problems, tree, returned))
        return _after(whose, problems)

    def _broken_promises_to_databases(self, whose: str, returned: frozenset[int]) -> list[str]:
        """Of what e2fsck looked at last."""
        sql = self._sql
        if not sql or not returned:
            return []
        return _after(whose, _readable(lambda: sql.problems(Image(self._fsck.contents), returned)))


def _readable(problems: Callable[[], list[str]]) -> list[str]:
    try:
        return problems()
    except UNREADABLE as error:
        return [f"the image cannot be read: {error}"]


def _after(whose: str, problems: list[str]) -> list[str]:
    return [f"after recovery by {whose}: {text}" for text in problems]


def without_completion(by_kernel: Tree, by_fsck: Tree, truncated: frozenset[int]) -> Tree:
    """What the kernel recovered, but for the stamps of files whose truncation it has completed.

    `truncated`: their inodes. The kernel stamps them with the time of the recovery, e2fsck does
    not.
    """
    return {
        path: replace(file, mtime_ns=other.mtime_ns, ctime_ns=other.ctime_ns)
        if file.ino in truncated and (other := by_fsck.get(path))
        else file
        for path, file in by_kernel.items()
    }


def before_completion(tree: Tree, completed: Completions) -> Tree:
    """The same of a second recovery, for the first one had completed these, and stamped them.

    It stamps mtime and ctime alike, later than anything before the power failed.
    """

    def as_before(file: File) -> File:
        old = completed.get(file.ino)
        stamped = old and file.mtime_ns == file.ctime_ns > max(old.mtime_ns, old.ctime_ns)
        if old is None or not stamped:
            return file
        return replace(file, mtime_ns=old.mtime_ns, ctime_ns=old.ctime_ns)

    return {path: as_before(file) for path, file in tree.items()}


def differences(by_kernel: Tree, by_fsck: Tree) -> list[str]:
    """Where the two recoveries disagree."""
    problems = [
        f"{path}: there only after recovery by {'e2fsck' if path in by_fsck else 'the kernel'}"
        for path in sorted(by_kernel.keys() ^ by_fsck.keys())
    ]
    for path in sorted(by_kernel.keys() & by_fsck.keys()):
        one, other = vars(by_kernel[path]), vars(by_fsck[path])
        wrong = [key for key in one if one[key] != other[key]]
        if wrong:
            what = ", ".join(f"{key} {one[key]} and {other[key]}"[:120] for key in wrong)
            problems.append(f"{path}: the kernel and e2fsck disagree: {what}")
    return problems


class E2fsck:
    """e2fsck on an image, and on the external journal that a kind has, in the folder `work`."""

    def __init__(self, work: Path, kind: Kind) -> None:
        self._paths = [work / "image", *([work / "journal"] if kind.external else [])]
        self._kind = kind
        self._files: list[ImageFile] = []
        self.truncated: frozenset[int] = frozenset()  # inodes, when it repaired last

    @property
    def contents(self) -> mmap:
        """The file system as it is now."""
        return self._files[0].contents

    def put(self, image: bytes | bytearray) -> None:
        """This is the image now."""
        parts = split_journal(image, self._kind)[: len(self._paths)]
        if not self._files:
            sizes = map(len, parts)
            self._files = [ImageFile(*one) for one in zip(self._paths, sizes, strict=True)]
        for file, part in zip(self._files, parts, strict=True):
            file.put(part)

    def put_pages(self, pages: Mapping[int, bytes]) -> None:
        """These pages of it are so now."""
        end = len(self.contents)
        for number, data in pages.items():
            inside = number * PAGE < end
            file, start = (self._files[0], 0) if inside else (self._files[1], end)
            position = number * PAGE - start
            file.contents[position : position + PAGE] = data

    def clean(self, whose: str) -> list[str]:
        """What it complains of after `whose` recovery."""
        done = self._run("-fn")
        if done.status == 0:
            return []
        said = _complaints(done.stdout) or [f"status {done.status}"]
        return [f"after recovery by {whose}, e2fsck -fn: {line}" for line in said]

    def repair(self) -> list[str]:
        """Have it replay the journal; what it then finds that a sound file system has not."""
        done = self._run("-fy")
        self.truncated = frozenset(map(int, TRUNCATED.findall(done.stdout)))
        complaint = " | ".join(_complaints(done.stdout)[:3])
        if done.status > 1 or complaint:
            return [f"e2fsck -fy ended with {done.status}: {complaint or done.stdout[-300:]}"]
        return []

    def _run(self, options: str) -> Completed:
        """The guest's clock may be ahead of ours, so e2fsck gets a later one."""
        env = {"E2FSCK_TIME": str(MUCH_LATER_S), "LC_ALL": "C.UTF-8"}
        image, *others = map(str, self._paths)
        journal = ["-j", *others] if others else []
        argv = ["/sbin/e2fsck", options, *journal, image]
        return run(argv, env=env, check=False, timeout_s=1800)


def _complaints(output: str) -> list[str]:
    """What e2fsck says that it does not say of a sound file system."""
    lines = [line.strip() for line in output.splitlines()]
    return [line for line in lines if line and not any(quiet in line for quiet in QUIET_FSCK)]
