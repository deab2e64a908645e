"""build.py without a kernel or a compiler."""

import dataclasses
import os
import re
import shutil
from pathlib import Path

import pytest

from fastsync_lab.host import build, shell
from fastsync_lab.host import glue as overlay
from fastsync_lab.host.chroot import HERE
from fastsync_lab.host.errors import FastsyncError, UsageError
from fastsync_lab.host.kernels import find_series, load_series, tree_at
from fastsync_lab.host.progress import silent
from tests.unit.small_kernel import COMPILING, fake_tree, patch_text


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository in place of this one."""
    root = tmp_path / "repo"
    root.mkdir()
    monkeypatch.setattr(overlay, "repo_root", lambda: root)
    return root


# --- overlay and glue


def test_without_overlay_and_glue_the_sources_are_stock(tmp_path: Path, repo: Path) -> None:
    tree = fake_tree(tmp_path / "tree")
    overlay.assemble(tree, tmp_path / "out", stock=False)
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
    (glue / "0001-a.patch").write_text(patch_text("line 10", "line ten") + COMPILING)
    overlay.assemble(tree, tmp_path / "out", stock=False)
    ext4 = tmp_path / "out" / "fs" / "ext4"
    assert (ext4 / "super.c").read_text().splitlines()[9] == "line X"
    assert (ext4 / "mtime.c").read_text() == "int x;\n"
    assert (ext4 / "Makefile").read_text().endswith("CFLAGS_mtime.o += -Werror\n")


def test_series_without_glue_is_only_there_as_stock(tmp_path: Path, repo: Path) -> None:
    message = r"kernel/glue/6\.12 has no patches: .* only the stock modules \(--stock\)"
    with pytest.raises(UsageError, match=message):
        build.build_modules(fake_tree(tmp_path / "tree"))
    assert list(repo.iterdir()) == []


def test_stock_has_neither(tmp_path: Path, repo: Path) -> None:
    tree = fake_tree(tmp_path / "tree")
    (repo / "kernel" / "ext4").mkdir(parents=True)
    (repo / "kernel" / "ext4" / "mtime.c").write_text("int x;\n")
    overlay.assemble(tree, tmp_path / "out", stock=True)
    assert not (tmp_path / "out" / "fs" / "ext4" / "mtime.c").exists()


def test_overlay_may_not_replace_a_kernel_file(tmp_path: Path, repo: Path) -> None:
    tree = fake_tree(tmp_path / "tree")
    (repo / "kernel" / "ext4").mkdir(parents=True)
    (repo / "kernel" / "ext4" / "super.c").write_text("int x;\n")
    glue = repo / "kernel" / "glue" / "6.12"
    glue.mkdir(parents=True)
    (glue / "0001-a.patch").write_text(COMPILING)
    with pytest.raises(FastsyncError, match=r"kernel/ext4/super\.c would replace"):
        overlay.assemble(tree, tmp_path / "out", stock=False)


def test_our_files_come_with_the_patch_that_compiles_them(tmp_path: Path, repo: Path) -> None:
    tree = fake_tree(tmp_path / "tree")
    (repo / "kernel" / "ext4").mkdir(parents=True)
    (repo / "kernel" / "ext4" / "mtime.c").write_text("int x;\n")
    glue = repo / "kernel" / "glue" / "6.12"
    glue.mkdir(parents=True)
    (glue / "0001-a.patch").write_text(patch_text("line 10", "line X"))
    out = tmp_path / "out"
    with pytest.raises(FastsyncError, match=r"no patch in kernel/glue/6\.12 compiles kernel/ext4$"):
        overlay.assemble(tree, tmp_path / "without", stock=False)
    (glue / "0002-b.patch").write_text(COMPILING)
    overlay.copy_stock(tree, out)
    seen = {
        patch.name: (out / "fs" / "ext4" / "mtime.c").exists()
        for patch in overlay.apply_glue(tree, out)
    }
    assert seen == {"0001-a.patch": False, "0002-b.patch": True}


def test_glue_that_does_not_apply_names_patch_file_and_hunk(tmp_path: Path, repo: Path) -> None:
    tree = fake_tree(tmp_path / "tree")
    glue = repo / "kernel" / "glue" / "6.12"
    glue.mkdir(parents=True)
    (glue / "0001-a.patch").write_text(patch_text("line 99", "line X"))
    with pytest.raises(FastsyncError) as caught:
        overlay.assemble(tree, tmp_path / "out", stock=False)
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
        overlay.assemble(tree, tmp_path / "out", stock=False)


def test_failures_in_the_output_of_patch() -> None:
    output = """\
patching file fs/ext4/super.c
Hunk #1 succeeded at 12 (offset 2 lines).
Hunk #2 FAILED at 123.
1 out of 2 hunks FAILED
patching file fs/ext4/fsync.c
Hunk #3 FAILED at 7 (different line endings).
"""
    assert overlay.parse_patch_failures(output) == [
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
    tree = fake_tree(tmp_path / "a")
    first = build.fingerprint(tree, [file])
    assert build.fingerprint(tree, [file]) == first
    assert build.fingerprint(fake_tree(tmp_path / "a2"), [file]) != first
    other = dataclasses.replace(tree, debian_version="6.12.115-2~deb12u1")
    assert build.fingerprint(other, [file]) != first
    in_chroot = dataclasses.replace(tree, series="7.2")
    assert build.fingerprint(in_chroot, [file]) != first
    assert build.fingerprint(tree, []) != first
    file.write_text("b")
    assert build.fingerprint(tree, [file]) != first


def built(folder: Path, stamp: build.Stamp, wanted: str, text: str) -> list[Path]:
    """What is there after a build of `wanted` that has left modules of this text."""
    modules = [folder / "src" / name for name in stamp.names]
    for module in modules:
        module.parent.mkdir(exist_ok=True)
        module.write_text(text)
    system = build.Kbuild(fake_tree(folder / wanted), HERE)
    return stamp.write(wanted, build.publish(system, modules, folder))


def test_what_a_run_began_with_stays_when_something_else_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "run", lambda argv: shutil.copy(argv[-1], argv[-2]))
    stamp = build.Stamp(tmp_path / "stamp", ("jbd2.ko", "ext4.ko"))
    assert stamp.find("a") == []
    first = built(tmp_path, stamp, "a", "old")
    assert stamp.find("a") == first and stamp.find("b") == []
    second = built(tmp_path, stamp, "b", "new")
    assert stamp.find("b") == second and stamp.find("a") == []
    assert {file.read_text() for file in first} == {"old"}
    assert {file.read_text() for file in second} == {"new"}
    plain = [build.plain_name(file) for file in second]
    assert plain == [tmp_path / "jbd2.ko", tmp_path / "ext4.ko"]
    assert {file.read_text() for file in plain} == {"new"}
    second[0].unlink()
    assert stamp.find("b") == [], "it is built again"


def test_a_few_older_builds_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "run", lambda argv: shutil.copy(argv[-1], argv[-2]))
    stamp = build.Stamp(tmp_path / "qasio.stamp", ("qasio.ko",))
    other = built(tmp_path, build.Stamp(tmp_path / "stamp", ("jbd2.ko",)), "other", "x")
    for number in range(build.BUILDS_KEPT + 3):
        found = built(tmp_path, stamp, str(number), str(number))
        os.utime(found[0].parent, (number, number))
    shutil.rmtree(tmp_path / "src")
    kept = sorted(int(file.read_text()) for file in tmp_path.glob("*/qasio.ko"))
    assert kept == list(range(3, build.BUILDS_KEPT + 3))
    assert other[0].is_file()


def test_first_errors_of_a_build_log() -> None:
    log = "  CC [M] error.o\nx.c:1:2: error: no such thing\nmake[1]: *** [x.o] Error 1\nmore\n"
    assert shell.first_errors(log) == "x.c:1:2: error: no such thing | make[1]: *** [x.o] Error 1"


@pytest.mark.parametrize("series", load_series())
def test_glue_of_this_tree_is_well_formed(series: str) -> None:
    for patch in overlay.glue_patches(series):
        touched = re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.MULTILINE)
        assert touched, patch
        assert all(name.startswith(("fs/ext4/", "fs/jbd2/")) for name in touched), patch


def test_a_kernel_that_qasio_is_not_for_is_refused(tmp_path: Path) -> None:
    tree = tree_at(tmp_path, find_series("6.1"), "6.1.192-2", "6.1.0-56-amd64")
    assert build.own_modules(tree) == ["flashdev"]
    with pytest.raises(UsageError, match=r"^qasio is not for Linux 6\.1, only for 6\.12, 7\.2$"):
        build.build_own_module("qasio", tree, silent)
