"""What is said of a recovered state: by e2fsck, by the promises, by the other recovery."""

from dataclasses import replace

from fastsync_lab.crash.extfs import File
from fastsync_lab.crash.judge import Verdict, differences

START = 10**18
FILE = File(12, 0o100644, 0, 0, 1, 1, START, START, {}, (7,))


def test_recoveries_must_agree_but_for_stamps_of_recovery() -> None:
    one = FILE
    assert differences({"f": one}, {"f": one}, START) == []
    assert differences({"f": one}, {}, START) != []
    assert differences({"f": replace(one, uid=1)}, {"f": one}, START) != []
    later = replace(one, mtime_ns=START + 9, ctime_ns=START + 9)
    assert differences({"f": later}, {"f": one}, START) == []
    assert differences({"f": one}, {"f": later}, START) != []


def test_wrong_numbers_of_blocks_are_told_from_all_else() -> None:
    blocks = (
        "after recovery by the kernel, e2fsck -fn: Inode 13, i_blocks is 32, should be 40.  Fix? no"
    )
    warning = (
        "after recovery by the kernel, e2fsck -fn: x: *** WARNING: Filesystem still has errors ***"
    )
    assert Verdict((), (blocks, warning), ()).blocks_wrong
    assert not Verdict((), (), ()).blocks_wrong
    assert not Verdict((), (warning,), ()).blocks_wrong
    assert not Verdict((), (blocks, "Inode 14 has illegal blocks"), ()).blocks_wrong
