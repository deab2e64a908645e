"""What is wrong with a state that the kernel has recovered, and with it as e2fsck recovers it."""

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from mmap import mmap
from pathlib import Path

from fastsync_lab.crash.case import Case
from fastsync_lab.crash.extfs import Image, Tree
from fastsync_lab.crash.guest import built_program
from fastsync_lab.crash.kinds import Kind, split_journal
from fastsync_lab.crash.mariadb import read_table
from fastsync_lab.crash.oracle import Oracle, junk_problems
from fastsync_lab.crash.recording import PAGE, ImageFile, page_of
from fastsync_lab.crash.recover import Found
from fastsync_lab.crash.script import Script
from fastsync_lab.crash.sql import SqlOracle, read_sqlite
from fastsync_lab.crash.trace import Op
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.shell import Completed, run
from fastsync_lab.machine.kernel_log import check_kernel_log

# When the kernel replays fast commits it counts an inode's blocks anew, and not that of its xattrs.
BLOCKS_WRONG = re.compile(r"Inode \d+, i_blocks is \d+, should be \d+\.  Fix\? no")
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
        last_ns = max((op.stop_ns for op in ops), default=0)
        grain_ns = case.kind.grain_ns  # a stamp may be as much earlier as that
        self._last_ns = last_ns if grain_ns == 1 else last_ns // grain_ns * grain_ns - 1
        read = read_sqlite
        if script.flushing:
            read = partial(read_table, client=built_program(script.program))
        self._sql = SqlOracle(script.lines, read) if script.sql else None
        self._files = None if script.sql else Oracle(ops, case.promise)

    def verdict(self, state_image: bytearray, found: Found, returned: frozenset[int]) -> Verdict:
        """Each recovery is held against the promises, and e2fsck's against the kernel's."""
        kernel = [*found.errors]
        kernel += [f"kernel: {line}" for line in check_kernel_log("\n".join(found.log))]
        self._fsck.put(state_image)
        before = {number: bytes(page_of(state_image, number)) for number in found.pages}
        self._fsck.put_pages(found.pages)
        checked = tuple(self._fsck.clean("the kernel"))
        kernel += self._broken_promises("the kernel", found.tree, returned)
        self._fsck.put_pages(before)
        e2fsck = [*self._fsck.repair(), *self._fsck.clean("e2fsck")]
        try:
            by_e2fsck = Image(self._fsck.contents).tree()
        except UNREADABLE as error:
            unreadable = f"after e2fsck the image cannot be read: {error}"
            return Verdict(tuple(kernel), checked, (*e2fsck, unreadable))
        if wrong := differences(found.tree, by_e2fsck, self._last_ns):
            e2fsck += wrong
            e2fsck += self._broken_promises("e2fsck", by_e2fsck, returned)
        return Verdict(tuple(kernel), checked, tuple(e2fsck))

    def _broken_promises(self, whose: str, tree: Tree, returned: frozenset[int]) -> list[str]:
        """Of what e2fsck looked at last, which has these files."""
        problems = junk_problems(tree)
        try:
            if self._files:
                problems += self._files.problems(tree, returned)
            if self._sql and returned:
                problems += self._sql.problems(Image(self._fsck.contents), returned)
        except UNREADABLE as error:
            problems.append(f"the image cannot be read: {error}")
        return [f"after recovery by {whose}: {text}" for text in problems]


def differences(by_kernel: Tree, by_fsck: Tree, last_ns: int) -> list[str]:
    """Where the two recoveries disagree.

    The kernel, but not e2fsck, stamps a file whose truncation it completes: later than `last_ns`.
    """
    problems = [
        f"{path}: there only after recovery by {'e2fsck' if path in by_fsck else 'the kernel'}"
        for path in sorted(by_kernel.keys() ^ by_fsck.keys())
    ]
    for path in sorted(by_kernel.keys() & by_fsck.keys()):
        one, other = vars(by_kernel[path]).copy(), vars(by_fsck[path])
        if min(one["mtime_ns"], one["ctime_ns"]) > last_ns > 0:
            one |= {key: other[key] for key in ("mtime_ns", "ctime_ns")}
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
