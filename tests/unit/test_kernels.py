"""kernels.py and the table of kernels, without a network."""

import json
import shutil
from pathlib import Path

import pytest

from fastsync_lab.host import fetch, kernels
from fastsync_lab.host.chroot import HERE
from fastsync_lab.host.errors import FastsyncError, UsageError
from fastsync_lab.host.kernels import KernelTree, Offer, Series
from fastsync_lab.host.progress import silent
from fastsync_lab.host.shell import Completed

MADISON = """\
linux-source-6.12 | 6.12.117-1~deb12u1 | http://mirror.example/debian-security bookworm-security/main amd64 Packages
linux-source-6.12 | 6.12.115-2~deb12u1 | http://mirror.example/debian-security bookworm-security/main amd64 Packages
linux-source-6.12 | 6.12.99-1~deb12u1 | http://mirror.example/debian-security bookworm-security/main amd64 Packages
linux-source-6.12 | 6.12.117-1~deb12u1 | http://mirror.example/debian-security bookworm-security/main Sources
"""  # noqa: E501
SERVED = ["6.12.117-1~deb12u1", "6.12.115-2~deb12u1", "6.12.99-1~deb12u1"]
NAMED = """\
linux-headers-6.1.0-56-amd64 | 6.1.192-2 | http://mirror.example/debian-security bookworm-security/main amd64 Packages
linux-headers-6.1.0-55-amd64 | 6.1.192-1 | http://mirror.example/debian-security bookworm-security/main amd64 Packages
"""  # noqa: E501


def apt_says(monkeypatch: pytest.MonkeyPatch, **answers: str) -> list[list[str]]:
    """Answer `apt-cache COMMAND` with the text given for it; returns the list of calls."""
    calls: list[list[str]] = []

    def fake_run(argv: list[str], **_options: object) -> Completed:
        calls.append(argv)
        return Completed(0, answers[argv[1]], "")

    monkeypatch.setattr(kernels, "run", fake_run)
    return calls


def shown(packages: dict[str, str]) -> str:
    """What `apt-cache show` prints of packages with these checksums."""
    stanza = "Package: {}\nSource: linux\nFilename: pool/x.deb\nSHA256: {}\nDescription: x\n\n"
    return "".join(stanza.format(*item) for item in packages.items())


def fake_tree(root: Path) -> KernelTree:
    """A kernel in the cache's layout, without its files."""
    series = kernels.find_series("6.12")
    return kernels.tree_at(root, series, "6.12.117-1~deb12u1", "6.12.117+deb12-amd64")


# --- which kernel


@pytest.mark.parametrize(
    ("kernel", "series"),
    [
        ("6.12", "6.12"),
        ("6.12.113", "6.12"),
        ("6.1", "6.1"),
        ("6.1.192", "6.1"),
        ("7.2", "7.2"),
        ("7.2.12", "7.2"),
    ],
)
def test_series_is_found_by_its_name_and_by_a_version(kernel: str, series: str) -> None:
    assert kernels.find_series(kernel).name == series


@pytest.mark.parametrize("kernel", ["6.13", "6.122", "6.12.", "6.12.x", "7", "", "latest"])
def test_unknown_kernel_is_refused_with_what_is_allowed(kernel: str) -> None:
    with pytest.raises(
        UsageError, match=r"allowed are 6\.12, 6\.12\.N, 7\.2, 7\.2\.N, 6\.1, 6\.1\.N"
    ):
        kernels.find_series(kernel)


@pytest.mark.parametrize(
    ("series", "version", "groups", "release", "packages"),
    [
        (
            "6.12",
            "6.12.117-1~deb12u1",
            {},
            "6.12.117+deb12-amd64",
            {"linux-image-6.12.117+deb12-amd64", "linux-kbuild-6.12.117+deb12"},
        ),
        (
            "7.2",
            "7.2.12-1~bpo13+1",
            {},
            "7.2.12+deb13-amd64",
            {"linux-binary-7.2.12+deb13-amd64", "linux-modules-7.2.12+deb13-amd64"},
        ),
        (
            "6.1",
            "6.1.192-2",
            {"abi": "6.1.0-56"},
            "6.1.0-56-amd64",
            {"linux-image-6.1.0-56-amd64", "linux-headers-6.1.0-56-common", "linux-kbuild-6.1"},
        ),
    ],
)
def test_names_of_release_and_packages(
    series: str, version: str, groups: dict[str, str], release: str, packages: set[str]
) -> None:
    names = kernels.find_series(series).names(version, groups)
    assert names[0] == release
    assert packages <= set(names[1])


def test_version_of_another_pattern_is_refused() -> None:
    with pytest.raises(FastsyncError, match=r"6\.13\.1-1 does not match"):
        kernels.find_series("6.12").names("6.13.1-1", {})


def test_only_7_2_needs_a_chroot() -> None:
    chroots = {name: series.chroot for name, series in kernels.load_series().items()}
    assert chroots["7.2"] is not None
    assert chroots["7.2"].suites == ("trixie", "trixie-backports")
    assert chroots["6.12"] is chroots["6.1"] is None


def test_choice_of_versions_is_by_number_and_by_revision() -> None:
    assert kernels.fitting_versions("6.12", "6.12", sorted(SERVED)) == SERVED
    assert kernels.fitting_versions("6.12.99", "6.12", SERVED) == ["6.12.99-1~deb12u1"]
    assert kernels.fitting_versions("6.12.11", "6.12", SERVED) == []
    versions = ["6.12.9-1~deb12u1", "6.12.10-1~deb12u1", "6.12.10-2~deb12u1"]
    assert kernels.fitting_versions("6.12", "6.12", versions)[0] == "6.12.10-2~deb12u1"


# --- what apt offers


def test_served_versions_are_each_there_once_newest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    apt_says(monkeypatch, madison=MADISON)
    assert kernels.served_versions(kernels.find_series("6.12"), HERE) == SERVED
    assert kernels.served_versions(kernels.find_series("6.1"), HERE) == []


def test_madison_of_nothing() -> None:
    assert kernels.parse_madison("N: Unable to locate package linux-source-6.12\n") == []


def test_names_that_the_version_does_not_tell_come_from_a_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = (
        "linux-headers-6.1.0-56-amd64\nlinux-headers-6.1.0-55-amd64\nlinux-headers-6.1.0-56-rt\n"
    )
    calls = apt_says(monkeypatch, pkgnames=names, madison=NAMED)
    series = kernels.find_series("6.1")
    assert kernels.naming_groups(series, "6.1.192-1", HERE) == {"abi": "6.1.0-55"}
    assert calls[0][2:] == ["linux-headers-"]
    assert calls[1][2:] == ["linux-headers-6.1.0-56-amd64", "linux-headers-6.1.0-55-amd64"]
    with pytest.raises(FastsyncError, match=r"no package linux-headers-.* of version 6\.1\.190-1"):
        kernels.naming_groups(series, "6.1.190-1", HERE)


def test_offer_states_the_checksum_of_every_package(monkeypatch: pytest.MonkeyPatch) -> None:
    series = kernels.find_series("6.12")
    names = [*series.names(SERVED[0], {})[1], series.source]
    sums = {name: f"{number:064x}" for number, name in enumerate(names)}
    apt_says(monkeypatch, show=shown(sums))
    found = kernels.offer(series, SERVED[0], HERE)
    assert (found.release, dict(found.packages)) == ("6.12.117+deb12-amd64", sums)
    del sums["linux-kbuild-6.12.117+deb12"]
    apt_says(monkeypatch, show=shown(sums))
    with pytest.raises(
        FastsyncError, match=r"not serve linux-kbuild-6\.12\.117\+deb12 6\.12\.117-1"
    ):
        kernels.offer(series, SERVED[0], HERE)


# --- the cache


def unpack_sources(tree: KernelTree) -> None:
    """All that is wanted of a kernel's source, empty."""
    for member in kernels.SOURCE_MEMBERS:
        path = tree.source_dir / member
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_cached_kernel_is_used_without_asking_apt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTSYNC_CACHE", str(tmp_path))
    monkeypatch.setattr(fetch, "place_for", lambda *_: pytest.fail("wanted apt"))
    for version, series, release in [
        ("6.12.115-2~deb12u1", "6.12", "6.12.115+deb12-amd64"),
        ("6.12.117-1~deb12u1", "6.12", "6.12.117+deb12-amd64"),
        ("6.1.192-2", "6.1", "6.1.0-56-amd64"),
    ]:
        root = kernels.kernels_dir() / kernels.folder_name(version)
        root.mkdir(parents=True)
        tree = kernels.tree_at(root, kernels.find_series(series), version, release)
        unpack_sources(tree)
        kernels.note_tree(root, tree)
        assert json.loads((root / "tree.json").read_text())["release"] == release
    shutil.copytree(root, root.with_name(f"{root.name}.half"))  # of an interrupted run
    found = kernels.cached_trees(kernels.find_series("6.1")).values()
    assert [".half" in str(tree.vmlinuz) for tree in found] == [False]
    assert fetch.fetch_kernel("6.12").release == "6.12.117+deb12-amd64"
    assert fetch.fetch_kernel("6.12.115").release == "6.12.115+deb12-amd64"
    assert fetch.fetch_kernel("6.1").release == "6.1.0-56-amd64"
    assert fetch.fetch_kernel("6.1.192").vmlinuz.name == "vmlinuz-6.1.0-56-amd64"


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An empty cache, and apt serves SERVED; the versions that were fetched."""
    versions: list[str] = []

    def fake_fetch(series: Series, found: Offer, *_: object) -> KernelTree:
        versions.append(found.debian_version)
        return fake_tree(tmp_path)

    monkeypatch.setenv("FASTSYNC_CACHE", str(tmp_path))
    monkeypatch.setattr(fetch, "served_versions", lambda *_: SERVED)
    monkeypatch.setattr(fetch, "offer", lambda series, version, place: Offer(version, "r", {}))
    monkeypatch.setattr(fetch, "fetch_version", fake_fetch)
    return versions


def test_half_unpacked_kernel_is_not_taken_for_whole(fetched: list[str]) -> None:
    (kernels.kernels_dir() / "6.12.117-1+deb12u1.half" / "boot").mkdir(parents=True)
    fetch.fetch_kernel("6.12")
    assert fetched == ["6.12.117-1~deb12u1"]


def test_kernel_with_too_few_sources_is_not_taken_for_whole(fetched: list[str]) -> None:
    version = "6.12.117-1~deb12u1"
    root = kernels.kernels_dir() / kernels.folder_name(version)
    tree = kernels.tree_at(root, kernels.find_series("6.12"), version, "6.12.117+deb12-amd64")
    unpack_sources(tree)
    kernels.note_tree(root, tree)
    assert fetch.fetch_kernel("6.12") == tree
    (tree.source_dir / "block" / "elevator.h").unlink()
    fetch.fetch_kernel("6.12")
    assert fetched == [version]


def test_version_that_debian_does_not_serve(fetched: list[str]) -> None:
    message = r"no kernel 6\.12\.5: it serves 6\.12\.117-1~deb12u1, 6\.12\.115-2~deb12u1"
    with pytest.raises(UsageError, match=message):
        fetch.fetch_kernel("6.12.5")
    assert fetched == []


def test_version_that_is_not_whole_is_passed_over(
    fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fake_offer(_series: Series, version: str, _place: object) -> Offer:
        if version == SERVED[0]:
            raise FastsyncError(f"no image of {version}")
        return Offer(version, "r", {})

    monkeypatch.setattr(fetch, "offer", fake_offer)
    said: list[str] = []
    fetch.fetch_kernel("6.12", report=said.append)
    assert fetched == ["6.12.115-2~deb12u1"]
    assert said == ["passing over 6.12.117-1~deb12u1: no image of 6.12.117-1~deb12u1"]
    with pytest.raises(FastsyncError, match=r"^no image of 6\.12\.117"):
        fetch.fetch_kernel("6.12.117")


# --- fetching


def test_download_replaces_a_damaged_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, name = b"whole package", "linux-x_1_amd64.deb"
    (tmp_path / name).write_bytes(b"half of it")
    reference = tmp_path / "reference"
    reference.write_bytes(good)
    checksum = kernels.file_checksum(reference)
    calls: list[list[str]] = []

    def fake_run(argv: list[str], **_options: object) -> Completed:
        calls.append(argv)
        if not (tmp_path / name).exists():  # apt leaves a file of the same name as it is
            (tmp_path / name).write_bytes(good)
        return Completed(0, "", "")

    monkeypatch.setattr(fetch, "run", fake_run)
    arguments = ("linux-x", "1", checksum, tmp_path, HERE, silent)
    assert fetch.download(*arguments).read_bytes() == good
    assert len(calls) == 2
    fetch.download(*arguments)
    assert len(calls) == 2


def test_source_of_another_version_is_refused(tmp_path: Path) -> None:
    tree = fake_tree(tmp_path)
    tree.source_dir.mkdir()
    makefile = tree.source_dir / "Makefile"
    makefile.write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 117\nEXTRAVERSION =\n")
    fetch.check_source_version(tree)
    makefile.write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 115\nEXTRAVERSION =\n")
    with pytest.raises(FastsyncError, match=r"holds Linux 6\.12\.115, the kernel is 6\.12\.117-1"):
        fetch.check_source_version(tree)


def test_absolute_paths_of_the_packages_become_relative(tmp_path: Path) -> None:
    tree = fake_tree(tmp_path)
    tree.headers_dir.mkdir(parents=True)
    tree.modules_dir.mkdir(parents=True)
    (tree.headers_dir / "Makefile").write_text(
        f"KBUILD_OUTPUT=/usr/src/{tree.headers_dir.name}\n"
        "include /usr/src/linux-headers-c/Makefile\n"
    )
    (tree.modules_dir / "build").symlink_to(f"/usr/src/{tree.headers_dir.name}")
    fetch.make_relocatable(tree)
    assert "/usr/src" not in (tree.headers_dir / "Makefile").read_text()
    assert (tree.modules_dir / "build").resolve() == tree.headers_dir.resolve()


def test_merged_usr_is_laid_out_like_the_others(tmp_path: Path) -> None:
    tree = fake_tree(tmp_path)
    modules = tmp_path / "usr" / "lib" / "modules" / tree.release
    modules.mkdir(parents=True)
    (modules / "vmlinuz").write_text("kernel")
    (modules / "modules.order").write_text("")
    for _ in range(2):
        fetch.unmerge_usr(tree, tmp_path)
        assert tree.vmlinuz.read_text() == "kernel"
        assert [file.name for file in tree.modules_dir.iterdir()] == ["modules.order"]
