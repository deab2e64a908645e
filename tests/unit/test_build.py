"""build.py without a network, a kernel or a compiler."""

import json
import re
from pathlib import Path

import pytest

from fastsync_lab import build
from fastsync_lab.build import KernelTree
from fastsync_lab.errors import FastsyncError, UsageError
from fastsync_lab.shell import Completed

MADISON = """\
linux-source-6.12 | 6.12.117-1~deb12u1 | http://mirror.example/debian-security bookworm-security/main amd64 Packages
linux-source-6.12 | 6.12.115-2~deb12u1 | http://mirror.example/debian-security bookworm-security/main amd64 Packages
linux-source-6.12 | 6.12.99-1~deb12u1 | http://mirror.example/debian-security bookworm-security/main amd64 Packages
linux-source-6.12 | 6.12.117-1~deb12u1 | http://mirror.example/debian-security bookworm-security/main Sources
"""  # noqa: E501
SERVED = ["6.12.117-1~deb12u1", "6.12.115-2~deb12u1", "6.12.99-1~deb12u1"]


def fake_tree(root: Path, version: str = "6.12.117-1~deb12u1") -> KernelTree:
    """A kernel in the cache's layout, with the few files that the overlay needs."""
    tree = build.tree_at(root, build.find_series("6.12"), version)
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


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository in place of this one."""
    root = tmp_path / "repo"
    root.mkdir()
    monkeypatch.setattr(build, "repo_root", lambda: root)
    return root


# --- which kernel


@pytest.mark.parametrize("kernel", ["6.12", "6.12.113"])
def test_series_is_found_by_its_name_and_by_a_version(kernel: str) -> None:
    assert build.find_series(kernel).name == "6.12"


@pytest.mark.parametrize("kernel", ["6.13", "6.1", "6.122", "6.12.", "6.12.x", "", "latest"])
def test_unknown_kernel_is_refused_with_what_is_allowed(kernel: str) -> None:
    with pytest.raises(UsageError, match=r"allowed are 6\.12, 6\.12\.N"):
        build.find_series(kernel)


def test_names_of_release_and_packages() -> None:
    release, packages = build.find_series("6.12").names("6.12.117-1~deb12u1")
    assert release == "6.12.117+deb12-amd64"
    assert packages == (
        "linux-image-6.12.117+deb12-amd64",
        "linux-headers-6.12.117+deb12-amd64",
        "linux-headers-6.12.117+deb12-common",
        "linux-kbuild-6.12.117+deb12",
    )


def test_version_of_another_pattern_is_refused() -> None:
    with pytest.raises(FastsyncError, match=r"6\.13\.1-1 does not match"):
        build.find_series("6.12").names("6.13.1-1")


def test_madison_gives_each_version_once_newest_first() -> None:
    assert build.parse_madison(MADISON) == SERVED


def test_madison_of_nothing() -> None:
    assert build.parse_madison("N: Unable to locate package linux-source-6.12\n") == []


@pytest.mark.parametrize(
    ("kernel", "version"),
    [
        ("6.12", "6.12.117-1~deb12u1"),
        ("6.12.99", "6.12.99-1~deb12u1"),
        ("6.12.11", None),
        ("6.12.118", None),
    ],
)
def test_choice_of_a_version(kernel: str, version: str | None) -> None:
    assert build.choose_version(kernel, "6.12", SERVED) == version


def test_newest_is_by_number_and_by_revision() -> None:
    versions = ["6.12.9-1~deb12u1", "6.12.10-1~deb12u1", "6.12.10-2~deb12u1"]
    assert build.choose_version("6.12", "6.12", versions) == "6.12.10-2~deb12u1"


# --- the cache


def test_cached_kernel_is_used_without_asking_apt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTSYNC_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "served_versions", lambda series: pytest.fail("asked apt"))
    for version in ("6.12.115-2~deb12u1", "6.12.117-1~deb12u1"):
        root = build.kernels_dir() / version.replace("~", "+")
        root.mkdir(parents=True)
        (root / "tree.json").write_text(json.dumps({"debian_version": version}))
    assert build.fetch_kernel("6.12").release == "6.12.117+deb12-amd64"
    assert build.fetch_kernel("6.12.115").release == "6.12.115+deb12-amd64"


def test_half_unpacked_kernel_is_not_taken_for_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTSYNC_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "served_versions", lambda series: SERVED)
    (build.kernels_dir() / "6.12.117-1+deb12u1.half" / "boot").mkdir(parents=True)
    fetched: list[str] = []
    monkeypatch.setattr(
        build, "fetch_version", lambda series, version, report: fetched.append(version)
    )
    build.fetch_kernel("6.12")
    assert fetched == ["6.12.117-1~deb12u1"]


def test_version_that_debian_does_not_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTSYNC_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "served_versions", lambda series: SERVED)
    message = r"no kernel 6\.12\.5: it serves 6\.12\.117-1~deb12u1, 6\.12\.115-2~deb12u1"
    with pytest.raises(UsageError, match=message):
        build.fetch_kernel("6.12.5")


def test_download_replaces_a_damaged_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, name = b"whole package", "linux-x_1_amd64.deb"
    (tmp_path / name).write_bytes(b"half of it")
    reference = tmp_path / "reference"
    reference.write_bytes(good)
    checksum = build.file_checksum(reference)
    monkeypatch.setattr(build, "package_checksum", lambda package, version: checksum)
    calls: list[list[str]] = []

    def fake_run(argv: list[str], **_options: object) -> Completed:
        calls.append(argv)
        if not (tmp_path / name).exists():  # apt leaves a file of the same name as it is
            (tmp_path / name).write_bytes(good)
        return Completed(0, "", "")

    monkeypatch.setattr(build, "run", fake_run)
    assert build.download("linux-x", "1", tmp_path, build.silent).read_bytes() == good
    assert len(calls) == 2
    build.download("linux-x", "1", tmp_path, build.silent)
    assert len(calls) == 2


def test_source_of_another_version_is_refused(tmp_path: Path) -> None:
    tree = fake_tree(tmp_path)
    makefile = tree.source_dir / "Makefile"
    makefile.write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 117\nEXTRAVERSION =\n")
    build.check_source_version(tree)
    makefile.write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 115\nEXTRAVERSION =\n")
    with pytest.raises(FastsyncError, match=r"holds Linux 6\.12\.115, the kernel is 6\.12\.117-1"):
        build.check_source_version(tree)


def test_absolute_paths_of_the_packages_become_relative(tmp_path: Path) -> None:
    tree = fake_tree(tmp_path)
    tree.headers_dir.mkdir(parents=True)
    tree.modules_dir.mkdir(parents=True)
    (tree.headers_dir / "Makefile").write_text("include /usr/src/linux-headers-c/Makefile\n")
    (tree.modules_dir / "build").symlink_to(f"/usr/src/{tree.headers_dir.name}")
    build.make_relocatable(tree)
    assert "/usr/src" not in (tree.headers_dir / "Makefile").read_text()
    assert (tree.modules_dir / "build").resolve() == tree.headers_dir.resolve()


# --- overlay and glue


def test_without_overlay_and_glue_the_sources_are_stock(tmp_path: Path, repo: Path) -> None:
    tree = fake_tree(tmp_path / "tree")
    build.assemble(tree, tmp_path / "out", stock=False)
    for file in tree.source_dir.rglob("*.*"):
        copy = tmp_path / "out" / file.relative_to(tree.source_dir)
        assert copy.read_bytes() == file.read_bytes()


def test_overlay_and_glue_are_added_and_our_files_are_strict(tmp_path: Path, repo: Path) -> None:
    tree = fake_tree(tmp_path / "tree")
    (repo / "kernel" / "ext4").mkdir(parents=True)
    (repo / "kernel" / "ext4" / "mtime.c").write_text("int x;\n")
    glue = repo / "kernel" / "glue" / "6.12"
    glue.mkdir(parents=True)
    (glue / "0002-b.patch").write_text(patch_text("line ten", "line X"))
    (glue / "0001-a.patch").write_text(patch_text("line 10", "line ten"))
    build.assemble(tree, tmp_path / "out", stock=False)
    ext4 = tmp_path / "out" / "fs" / "ext4"
    assert (ext4 / "super.c").read_text().splitlines()[9] == "line X"
    assert (ext4 / "mtime.c").read_text() == "int x;\n"
    assert (ext4 / "Makefile").read_text().endswith("CFLAGS_mtime.o += -Werror\n")


def test_stock_has_neither(tmp_path: Path, repo: Path) -> None:
    tree = fake_tree(tmp_path / "tree")
    (repo / "kernel" / "ext4").mkdir(parents=True)
    (repo / "kernel" / "ext4" / "mtime.c").write_text("int x;\n")
    build.assemble(tree, tmp_path / "out", stock=True)
    assert not (tmp_path / "out" / "fs" / "ext4" / "mtime.c").exists()


def test_overlay_may_not_replace_a_kernel_file(tmp_path: Path, repo: Path) -> None:
    tree = fake_tree(tmp_path / "tree")
    (repo / "kernel" / "ext4").mkdir(parents=True)
    (repo / "kernel" / "ext4" / "super.c").write_text("int x;\n")
    with pytest.raises(FastsyncError, match=r"kernel/ext4/super\.c would replace"):
        build.assemble(tree, tmp_path / "out", stock=False)


def test_glue_that_does_not_apply_names_patch_file_and_hunk(tmp_path: Path, repo: Path) -> None:
    tree = fake_tree(tmp_path / "tree")
    glue = repo / "kernel" / "glue" / "6.12"
    glue.mkdir(parents=True)
    (glue / "0001-a.patch").write_text(patch_text("line 99", "line X"))
    with pytest.raises(FastsyncError) as caught:
        build.assemble(tree, tmp_path / "out", stock=False)
    assert str(caught.value) == (
        "glue/6.12/0001-a.patch does not apply to linux-source 6.12.117-1~deb12u1: "
        "fs/ext4/super.c, hunk 1 (line 7)"
    )


def test_glue_for_a_file_that_is_gone_is_one_clear_line(tmp_path: Path, repo: Path) -> None:
    tree = fake_tree(tmp_path / "tree")
    glue = repo / "kernel" / "glue" / "6.12"
    glue.mkdir(parents=True)
    text = patch_text("line 10", "line X").replace("super.c", "gone.c")
    (glue / "0001-a.patch").write_text(text)
    with pytest.raises(
        FastsyncError, match=r"0001-a\.patch does not .*: fs/ext4/gone\.c is not there"
    ):
        build.assemble(tree, tmp_path / "out", stock=False)


def test_failures_in_the_output_of_patch() -> None:
    output = """\
patching file fs/ext4/super.c
Hunk #1 succeeded at 12 (offset 2 lines).
Hunk #2 FAILED at 123.
1 out of 2 hunks FAILED
patching file fs/ext4/fsync.c
Hunk #3 FAILED at 7 (different line endings).
"""
    assert build.parse_patch_failures(output) == [
        "fs/ext4/super.c, hunk 2 (line 123)",
        "fs/ext4/fsync.c, hunk 3 (line 7)",
    ]


def test_sync_keeps_unchanged_files_and_drops_what_is_gone(tmp_path: Path) -> None:
    fresh, target = tmp_path / "fresh", tmp_path / "target"
    for folder in (fresh, target):
        folder.mkdir()
        (folder / "same.c").write_text("same")
        (folder / "changed.c").write_text(folder.name)
    (target / "gone.c").write_text("gone")
    for product in ("same.o", "ext4.mod.c"):
        (target / product).write_text("kept")
    before = (target / "same.c").stat().st_mtime_ns
    build.sync_sources(fresh, target)
    assert (target / "same.c").stat().st_mtime_ns == before
    assert (target / "changed.c").read_text() == "fresh"
    assert not (target / "gone.c").exists()
    assert (target / "same.o").exists()
    assert (target / "ext4.mod.c").exists()


# --- compiling


def test_fingerprint_changes_with_every_input(tmp_path: Path) -> None:
    file = tmp_path / "mtime.c"
    file.write_text("a")
    tree = build.tree_at(tmp_path, build.find_series("6.12"), "6.12.117-1~deb12u1")
    other = build.tree_at(tmp_path, build.find_series("6.12"), "6.12.115-2~deb12u1")
    first = build.fingerprint(tree, [file])
    assert build.fingerprint(tree, [file]) == first
    assert build.fingerprint(other, [file]) != first
    assert build.fingerprint(tree, []) != first
    file.write_text("b")
    assert build.fingerprint(tree, [file]) != first


def test_first_errors_of_a_build_log() -> None:
    log = "  CC [M] x.o\nx.c:1:2: error: no such thing\nmake[1]: *** [x.o] Error 1\nmore\n"
    assert build.first_errors(log) == "x.c:1:2: error: no such thing | make[1]: *** [x.o] Error 1"


def test_glue_of_this_tree_is_well_formed() -> None:
    for patch in build.glue_patches("6.12"):
        touched = re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.MULTILINE)
        assert touched, patch
        assert all(name.startswith(("fs/ext4/", "fs/jbd2/")) for name in touched), patch
