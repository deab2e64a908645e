"""A kernel of a few lines, and patches of it."""

from pathlib import Path

from fastsync_lab.host.kernels import KernelTree, find_series, tree_at


def fake_tree(root: Path) -> KernelTree:
    """A kernel in the cache's layout, with the few files that the overlay needs."""
    tree = tree_at(root, find_series("6.12"), "6.12.117-1~deb12u1", "6.12.117+deb12-amd64")
    for name in ("ext4", "jbd2"):
        folder = tree.source_dir / "fs" / name
        folder.mkdir(parents=True)
        (folder / "Makefile").write_text(f"obj-m += {name}.o\n")
        lines = [f"line {number}\n" for number in range(1, 31)]
        (folder / "super.c").write_text("".join(lines))
    return tree


def patch_text(old: str, new: str) -> str:
    """A patch with one hunk that replaces line 10 of fs/ext4/super.c."""
    before = "".join(f" line {number}\n" for number in (7, 8, 9))
    after = "".join(f" line {number}\n" for number in (11, 12, 13))
    head = "--- a/fs/ext4/super.c\n+++ b/fs/ext4/super.c\n@@ -7,7 +7,7 @@\n"
    return f"{head}{before}-{old}\n+{new}\n{after}"


COMPILING = """\
--- a/fs/ext4/Makefile
+++ b/fs/ext4/Makefile
@@ -1 +1,2 @@
 obj-m += ext4.o
+ext4-y += mtime.o
"""
