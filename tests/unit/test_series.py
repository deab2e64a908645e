"""series.py on a kernel of a few lines."""

import re
from pathlib import Path

import pytest

from fastsync_lab.host import glue as overlay
from fastsync_lab.host import series, shell
from fastsync_lab.host.errors import FastsyncError, UsageError
from fastsync_lab.host.series import Changelog, Person
from tests.unit.small_kernel import COMPILING, fake_tree, patch_text

HEAD = """\
From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: A Person <a@example.org>
Date: Sat, 21 Nov 2026 12:19:18 +0000
Subject: [PATCH] ext4: a subject that is so long that it was
 folded

Why.

And how.
---
 fs/ext4/super.c | 2 +-
"""
AUTHOR = Person("A Person", "a@example.org")
SENDER = Person("S Ender", "s@example.org")


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one file of our own, two patches and a cover letter."""
    root = tmp_path / "repo"
    for module in (overlay, series):
        monkeypatch.setattr(module, "repo_root", lambda: root)
    (root / "kernel" / "ext4").mkdir(parents=True)
    (root / "kernel" / "ext4" / "mtime.c").write_text("int x;\n")
    glue = root / "kernel" / "glue" / "6.12"
    glue.mkdir(parents=True)
    (glue / "0001-a.patch").write_text(f"{HEAD}\n{patch_text('line 10', 'line X')}")
    (glue / "0002-b.patch").write_text(f"{HEAD}\n{COMPILING}")
    (root / series.COVER_LETTER).write_text("ext4: all of it\n\nIt is good.\n")
    return root


def test_a_changelog_is_read_whole() -> None:
    message = "ext4: a subject that is so long that it was folded\n\nWhy.\n\nAnd how.\n"
    found = series.parse_changelog(HEAD)
    assert found == Changelog(AUTHOR, "Sat, 21 Nov 2026 12:19:18 +0000", message)


@pytest.mark.parametrize("name", ["From: ", "Date: ", "Subject: "])
def test_a_patch_without_a_head_is_an_error(name: str) -> None:
    with pytest.raises(FastsyncError, match="has no From, Subject or Date"):
        series.parse_changelog(HEAD.replace(f"\n{name}", "\nX-"))


def test_glue_becomes_a_series_that_git_takes(tmp_path: Path, repo: Path) -> None:
    tree = fake_tree(tmp_path / "tree")
    cover, *patches = series.write_series(tree, tmp_path / "out")
    assert "Subject: [PATCH 0/2] ext4: all of it\n\nIt is good.\n" in cover.read_text()
    assert [file.name[:4] for file in (cover, *patches)] == ["0000", "0001", "0002"]
    first, second = (file.read_text() for file in patches)
    assert "\nFrom: A Person <a@example.org>\n" in first
    assert "\nSubject: [PATCH 1/2] ext4: a subject " in first
    assert "+line X\n" in first and "mtime.c" not in first
    assert "+int x;\n" in second and "+ext4-y += mtime.o\n" in second
    assert "Signed-off-by" not in first + second

    target = tmp_path / "target"
    overlay.copy_stock(tree, target)
    who = ["-c", "user.name=x", "-c", "user.email=x@x"]
    shell.run(["git", "init", "--quiet"], cwd=target)
    shell.run(["git", "add", "."], cwd=target)
    shell.run(["git", *who, "commit", "--quiet", "-m", "stock"], cwd=target)
    shell.run(
        ["git", *who, "am", "--quiet", "--empty=drop", *map(str, (cover, *patches))], cwd=target
    )
    assert (target / "fs" / "ext4" / "mtime.c").read_text() == "int x;\n"
    assert (target / "fs" / "ext4" / "super.c").read_text().splitlines()[9] == "line X"


def test_the_same_sources_give_the_same_patches(
    tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever git is told by the user's settings, or by a hook that runs this."""
    tree = fake_tree(tmp_path / "tree")
    before = [file.read_text() for file in series.write_series(tree, tmp_path / "a")[1:]]
    settings = tmp_path / "gitconfig"
    settings.write_text("[format]\nsignOff = true\nsubjectPrefix = X\n[commit]\ngpgSign = true\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("GIT_DIR", "/no/such")
    assert [file.read_text() for file in series.write_series(tree, tmp_path / "b")[1:]] == before


def test_who_sends_it_signs_it_off(tmp_path: Path, repo: Path) -> None:
    for file in series.write_series(fake_tree(tmp_path / "tree"), tmp_path / "out", person=SENDER):
        text = file.read_text()
        assert "\nFrom: S Ender <s@example.org>\n" in text
        signed = re.findall(r"^Signed-off-by: (.*)$", text, re.M)
        assert signed == ([] if file.name.startswith("0000") else ["S Ender <s@example.org>"])


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path, repo: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("")
    with pytest.raises(UsageError, match="out is not an empty folder"):
        series.write_series(fake_tree(tmp_path / "tree"), tmp_path / "out")
    with pytest.raises(UsageError, match="mine is not an empty folder"):
        series.check_output(tmp_path / "out" / "mine")
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["mine"]


def test_glue_that_does_not_apply_writes_nothing(tmp_path: Path, repo: Path) -> None:
    glue = repo / "kernel" / "glue" / "6.12" / "0002-b.patch"
    glue.write_text(f"{HEAD}\n{patch_text('line 99', 'line X')}")
    with pytest.raises(FastsyncError, match=r"0002-b\.patch does not apply"):
        series.write_series(fake_tree(tmp_path / "tree"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_signing_off_takes_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repo: Path
) -> None:
    settings = tmp_path / "gitconfig"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    settings.write_text("[user]\nname = S Ender\n")
    with pytest.raises(FastsyncError, match=r"needs user\.name and user\.email"):
        series.git_person()
    settings.write_text("[user]\nname = S Ender\nemail = s@example.org\n")
    assert series.git_person() == SENDER
