"""image.py without mmdebstrap: recipes, names, what is packed."""

from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.host import shell
from fastsync_lab.host.errors import FastsyncError, UsageError
from fastsync_lab.host.kernels import KernelTree, file_checksum
from fastsync_lab.machine import image
from fastsync_lab.machine.image import RootImage

STATUS = """\
Package: fio
Status: install ok installed
Version: 3.33-3

Package: mariadb-server-core
Architecture: amd64
Version: 1:10.11.19-0+deb12u1
"""
BASE = {"release": "r", "suites": ["r"], "packages": ["a"], "leave_out": ["/x/*"]}


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A very small Debian system."""
    root = tmp_path / "system"
    for folder in ("bin", "etc", "var/lib/dpkg", "var/log", "var/cache/apt"):
        (root / folder).mkdir(parents=True)
    (root / "bin" / "busybox").write_text("busybox")
    (root / "etc" / "hostname").write_text("this machine")
    (root / "var" / "log" / "dpkg.log").write_text("today")
    (root / "var" / "lib" / "dpkg" / "status").write_text(STATUS)
    return root


def pack(system: Path, folder: Path) -> Path:
    folder.mkdir()
    image.pack_root(system, folder)
    return folder / "root.erofs"


def test_every_recipe_has_what_boots() -> None:
    for recipe in image.load_recipes().values():
        assert {"busybox-static", "kmod", "mount"} <= set(recipe.packages)


def test_recipe_on_a_base_has_its_packages_and_more() -> None:
    recipes = image.parse_recipes({"one": BASE, "two": {"base": "one", "packages": ["b"]}})
    assert recipes["two"] == replace(recipes["one"], packages=("a", "b"))
    assert recipes["one"].leave_out == ("/x/*",)


def test_base_that_is_not_above_is_named() -> None:
    with pytest.raises(FastsyncError, match="two is based on one"):
        image.parse_recipes({"two": {"base": "one", "packages": []}, "one": BASE})


def test_unknown_image_is_refused_before_anything_is_made() -> None:
    with pytest.raises(UsageError, match="no root image 'x': allowed are default"):
        image.root_image("x")


def test_name_says_what_an_image_was_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = image.load_recipes()["default"]
    folder = image.image_folder("default", recipe)
    assert folder == image.image_folder("default", recipe)
    other = replace(recipe, packages=(*recipe.packages, "gcc"))
    assert image.image_folder("default", other) != folder
    monkeypatch.setattr(image, "NOT_PACKED", ())
    assert image.image_folder("default", recipe) != folder


def test_image_does_not_depend_on_when_and_where_it_is_packed(system: Path, tmp_path: Path) -> None:
    first = pack(system, tmp_path / "1")
    (system / "etc" / "hostname").write_text("another machine")
    (system / "var" / "log" / "dpkg.log").write_text("tomorrow")
    second = pack(system, tmp_path / "2")
    assert first.read_bytes() == second.read_bytes()
    (system / "etc" / "more").write_text("")
    assert pack(system, tmp_path / "3").read_bytes() != first.read_bytes()


def test_beside_an_image_stands_what_is_known_of_it(
    system: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        image,
        "make_once",
        lambda _recipe, folder, *_: folder.parent.mkdir() or pack(system, folder),
    )
    monkeypatch.setattr(image, "cache_dir", lambda: tmp_path)
    made = image.root_image()
    assert made.digest == file_checksum(made.path)
    assert made.path.stat().st_size % image.ALIGNMENT == 0
    assert made.busybox.read_text() == "busybox"
    assert (made.version("fio"), made.version("mariadb-server-core")) == ("3.33", "10.11.19")


def test_version_is_upstreams() -> None:
    versions = {"a": "1:2.3-4", "b": "5", "c": "2-1-0ubuntu"}
    one = RootImage(Path(), Path(), "", versions)
    assert [one.version(name) for name in versions] == ["2.3", "5", "2-1"]


def test_modules_are_packed_once_and_never_by_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = tmp_path / "lib" / "modules" / "6.12.1"
    modules.mkdir(parents=True)
    (modules / "modules.dep").write_text("")
    tree = KernelTree("6.12", "6.12.1", "v", tmp_path / "vmlinuz", modules, tmp_path, tmp_path)

    def fail(_folder: Path, packed: Path) -> None:
        packed.write_text("half")
        raise FastsyncError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(image, "pack", fail)
        with pytest.raises(FastsyncError, match="no space"):
            image.modules_image(tree)
    packed = image.modules_image(tree)
    assert packed.stat().st_size == image.ALIGNMENT
    assert "modules.dep" in shell.run(["dump.erofs", "--ls", "--path=/", str(packed)]).stdout
    monkeypatch.setattr(image, "pack", fail)
    assert image.modules_image(tree) == packed
