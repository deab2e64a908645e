"""chroot.py without making one."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fastsync_lab.host import chroot
from fastsync_lab.host.chroot import HERE, Place, Recipe
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.progress import Passing, silent
from fastsync_lab.host.shell import Completed

RECIPE = Recipe("trixie", ("trixie", "trixie-backports"), ("gcc-14-for-host", "make"))
INDEX_TARGETS = """\
Some Company|Debian|http://mirror.example/other/
Debian|Debian-Security|http://mirror.example/debian-security/
Debian|Debian|http://mirror.example/debian/
Debian|Debian|http://second.example/debian/
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """An empty cache and a pretended mmdebstrap; the commands that were run."""
    calls: list[list[str]] = []

    def fake_run(argv: list[str], **_options: object) -> Completed:
        calls.append(argv)
        if argv[0] == "tar":
            (Path(argv[2]) / "usr").mkdir()
        return Completed(0, INDEX_TARGETS if argv[0] == "apt-get" else "", "")

    def fake_follow(argv: list[str], _look: object) -> int:
        calls.append(argv)
        Path(argv[argv.index("trixie") + 1]).write_text("an archive")
        return 0

    monkeypatch.setenv("FASTSYNC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(chroot, "build_dir", lambda: tmp_path / "build")
    monkeypatch.setattr(chroot, "run", fake_run)
    monkeypatch.setattr(chroot, "follow", fake_follow)
    return calls


def whole(place: Place) -> bool:
    """Whether a place is a chroot with everything in it."""
    return place.root is not None and (place.root / "usr").is_dir()


def test_without_a_recipe_commands_run_here() -> None:
    place = chroot.place_for(None, silent)
    assert place == HERE
    assert place.argv(["make", "x"]) == ["make", "x"]


def test_chroot_is_made_once_and_leaves_nothing_else(made: list[list[str]]) -> None:
    place = chroot.place_for(RECIPE, silent)
    assert whole(place)
    assert place.root is not None
    (argv,) = [argv for argv in made if "mmdebstrap" in argv]
    assert "--include=gcc-14-for-host,make" in argv
    assert argv[-2:] == [
        "deb http://mirror.example/debian/ trixie main",
        "deb http://mirror.example/debian/ trixie-backports main",
    ]
    count = len(made)
    assert chroot.place_for(RECIPE, silent) == place
    assert len(made) == count
    name = place.root.name
    assert name.startswith("trixie-")
    assert {path.name for path in place.root.parent.iterdir()} == {name, f"{name}.lock"}


def packed(system: Path, folder: Path) -> None:
    """Keep one thing of a system."""
    (folder / "image").write_text(str((system / "usr").is_dir()))


def test_what_is_packed_from_a_system_takes_its_place(
    made: list[list[str]], tmp_path: Path
) -> None:
    root = tmp_path / "images" / "x-1.5"
    recipe = dataclasses.replace(RECIPE, leave_out=("/usr/share/doc/*",))
    for _ in range(2):
        chroot.make_once(recipe, root, "an image", silent, packed)
    assert (root / "image").read_text() == "True"
    (argv,) = [argv for argv in made if "mmdebstrap" in argv]
    assert "--dpkgopt=path-exclude=/usr/share/doc/*" in argv
    assert {path.name for path in root.parent.iterdir()} == {"x-1.5", "x-1.5.lock"}


def test_packing_that_fails_leaves_nothing_that_is_taken_for_whole(
    made: list[list[str]], tmp_path: Path
) -> None:
    def fail(system: Path, folder: Path) -> None:
        packed(system, folder)
        raise FastsyncError("no space")

    root = tmp_path / "images" / "x"
    with pytest.raises(FastsyncError, match="no space"):
        chroot.make_once(RECIPE, root, "an image", silent, fail)
    assert not root.exists()
    chroot.make_once(RECIPE, root, "an image", silent, packed)
    assert chroot.made_from(root, RECIPE)


def other_recipe(_root: Path) -> Recipe:
    return dataclasses.replace(RECIPE, packages=("gcc-15",))


def interrupted(root: Path) -> Recipe:
    root.rename(root.with_name(f"{root.name}.half"))
    return RECIPE


def damaged(root: Path) -> Recipe:
    chroot.note_of(root).unlink()
    return RECIPE


@pytest.mark.parametrize("change", [other_recipe, interrupted, damaged])
def test_chroot_is_made_again(made: list[list[str]], change: Callable[[Path], Recipe]) -> None:
    root = chroot.place_for(RECIPE, silent).root
    assert root is not None
    (root / "old").write_text("")
    recipe = change(root)
    place = chroot.place_for(recipe, silent)
    assert whole(place) and place.root is not None
    assert not (place.root / "old").exists()
    assert json.loads(chroot.note_of(place.root).read_text())["packages"] == list(recipe.packages)
    assert len([argv for argv in made if "mmdebstrap" in argv]) == 2


def test_chroot_sees_the_cache_and_build_under_their_own_paths(
    made: list[list[str]], tmp_path: Path
) -> None:
    argv = chroot.place_for(RECIPE, silent).argv(["make", "x"])
    assert argv[0] == "bwrap"
    assert argv[-3:] == ["--", "make", "x"]
    bound = [
        tuple(argv[place + 1 : place + 3]) for place, word in enumerate(argv) if word == "--bind"
    ]
    cache, built = str(tmp_path / "cache" / "fastsync"), str(tmp_path / "build")
    assert bound == [
        (str(chroot.place_for(RECIPE, silent).root), "/"),
        (cache, cache),
        (built, built),
    ]


SAID = """\
I: running apt-get update...
Get:1 http://mirror.example bookworm InRelease [151 kB]
Get:2 http://mirror.example bookworm/main amd64 Packages [8790 kB]
Get:1 http://mirror.example bookworm/main amd64 libc6 amd64 2.36-9 [2757 kB]
Get:2 http://mirror.example bookworm/main amd64 make amd64 4.3-4.1 [396 kB]
Unpacking libc6:amd64 (2.36-9) ...
Setting up libc6:amd64 (2.36-9) ...
"""


def saying(text: str, status: int = 0) -> list[str]:
    """A command that is played."""
    return ["sh", "-c", f"printf %s '{text}' >&2; exit {status}"]


def test_who_waits_for_a_system_sees_package_after_package() -> None:
    told: list[str] = []
    chroot.follow_packages(saying(SAID), "a chroot", told.append)
    assert told == [
        "making a chroot: fetching package 1, libc6",
        "making a chroot: fetching package 2, make",
        "making a chroot: unpacking package 1, libc6:amd64",
        "making a chroot: setting up package 1, libc6:amd64",
    ]
    assert all(isinstance(message, Passing) for message in told)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (f"{SAID}E: Unable to locate package x\nE: apt-get failed\nI: removing tempdir\n",
         "E: Unable to locate package x | E: apt-get failed"),
        ("unshare: no\n", "unshare: no"),
    ],
)  # fmt: skip
def test_a_system_that_cannot_be_made_shows_the_errors(said: str, shown: str) -> None:
    with pytest.raises(FastsyncError) as error:
        chroot.follow_packages(saying(said, 25), "a chroot", silent)
    assert str(error.value) == f"mmdebstrap failed with status 25: {shown}"


def test_mounts_of_root_end_with_mmdebstrap(
    made: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    chroot.place_for(RECIPE, silent)
    (argv,) = [argv for argv in made if "mmdebstrap" in argv]
    assert argv[:2] == ["unshare", "--mount"]
    assert argv[argv.index("env") + 2] == "mmdebstrap"


def test_mirror_is_the_first_of_debian_itself() -> None:
    assert chroot.parse_mirror(INDEX_TARGETS) == "http://mirror.example/debian/"


def test_mirror_of_a_security_suite_is_another(made: list[list[str]]) -> None:
    assert chroot.host_mirror("bookworm-updates") == "http://mirror.example/debian/"
    assert chroot.host_mirror("bookworm-security") == "http://mirror.example/debian-security/"


def test_machine_without_a_mirror_of_debian(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chroot, "run", lambda *_, **__: Completed(0, "", ""))
    with pytest.raises(FastsyncError, match="no mirror of Debian"):
        chroot.host_mirror("bookworm")


def test_only_the_package_lists_of_this_machine_are_roots(
    made: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    place = chroot.place_for(RECIPE, silent)
    place.refresh_package_lists(silent)
    assert not [argv for argv in made if "sudo" in argv]
    HERE.refresh_package_lists(silent)
    assert made[-1][:3] == ["sudo", "--non-interactive", "apt-get"]
    monkeypatch.setattr("os.geteuid", lambda: 0)
    HERE.refresh_package_lists(silent)
    assert made[-1][0] == "apt-get"
