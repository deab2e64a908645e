"""host/debug without a compiler: configuration, whose a data race is, following a build."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.host import build, glue, shell
from fastsync_lab.host.debug import kernel, races
from fastsync_lab.host.errors import FastsyncError, UsageError
from fastsync_lab.host.kernels import UML, KernelTree, load_series
from fastsync_lab.host.progress import silent
from fastsync_lab.machine.config import VmConfig
from fastsync_lab.machine.kernel_log import check_kernel_log
from tests.processes import still_running

LINE = "=" * 66


def report_of(*accesses: tuple[str, ...]) -> str:
    """A report as KCSAN prints it: the functions of each access, innermost first."""
    lines = [LINE, f"BUG: KCSAN: data-race in {' / '.join(stack[0] for stack in accesses)}", ""]
    for number, stack in enumerate(accesses):
        lines.append(
            f"{['write', 'read (marked)'][number]} to 0xffff8880 of 4 bytes by task 7 on cpu 1:"
        )
        lines += [f" {function}+0x12/0x340 [ext4]" for function in stack]
        lines.append("")
    lines += ["value changed: 0x00000000 -> 0x00000001", LINE]
    return "".join(f"[   12.345678] {line}\n" for line in lines)


THEIRS = report_of(
    ("jbd2_journal_file_buffer", "do_get_write_access", "jbd2_journal_get_write_access"),
    ("jbd2_journal_dirty_metadata", "__ext4_handle_dirty_metadata"),
)
# ext4_update_time() is in every stack of a write: that alone says nothing.
BELOW_OURS = report_of(
    ("ext4_do_update_inode", "ext4_mark_iloc_dirty", "ext4_dirty_inode", "ext4_update_time"),
    ("ext4_fsync_journal", "ext4_sync_file"),
)
OURS = report_of(("ext4_mtime_begin_sync", "ext4_sync_file"), ("ext4_do_update_inode", "x"))
CALLED_BY_OURS = report_of(("inode_set_mtime", "ext4_truncate_stamp.isra.0", "x"), ("y", "z"))


@pytest.mark.parametrize("log", [OURS, CALLED_BY_OURS])
def test_data_race_of_ours_is_bad(log: str) -> None:
    (line,) = check_kernel_log(THEIRS + log + BELOW_OURS)
    assert line == log.splitlines()[1]


def test_data_races_of_others_are_not() -> None:
    assert check_kernel_log(THEIRS + BELOW_OURS) == []
    assert len(races.parse_races(THEIRS + OURS + BELOW_OURS)) == 3


def test_race_of_unknown_origin_has_one_access() -> None:
    (race,) = races.parse_races(report_of(("jbd2_carrier_done", "jbd2_carrier_wait")))
    assert race.functions == {"jbd2_carrier_done"} and races.is_ours(race)


def test_a_race_whose_accesses_are_cut_off_counts() -> None:
    assert races.is_ours(races.Race("BUG: KCSAN: data-race in a / b", ()))


def test_who_called_the_caller_does_not_count() -> None:
    (race,) = races.parse_races(report_of(("x", "y", "jbd2_carrier_wait"), ("z",)))
    assert not races.is_ours(race)


def test_a_race_that_is_meant_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    (race,) = races.parse_races(OURS)
    assert races.is_ours(race)
    monkeypatch.setattr(races, "HARMLESS", {race.functions: "it is meant"})
    assert not races.is_ours(race)


def test_other_reports_stay_bad_beside_a_race_of_others() -> None:
    bad = "[    1.0] BUG: KASAN: slab-use-after-free in jbd2_carrier_done+0x1/0x2 [jbd2]"
    assert check_kernel_log(THEIRS + bad + "\n") == [bad]


def test_own_functions_are_those_of_kernel() -> None:
    own = races.own_functions()
    assert {"ext4_mtime_begin_sync", "ext4_truncate_stamp", "jbd2_carrier_wait"} <= own
    assert {"ext4_mtime_needed", "ext4_mtime_committed", "flash_queue_rq"} <= own
    assert not {"if", "ext4_sync_file", "spin_lock", "ext4_mtime_sb"} & own


# --- the configuration


def test_what_a_configuration_lacks_is_named() -> None:
    config = "CONFIG_A=y\nCONFIG_B=m\n# CONFIG_C is not set\nCONFIG_E=y\n"
    assert kernel.unmet("CONFIG_A=y\nCONFIG_D=n\nCONFIG_C=n\n", config) == []
    wanted = "CONFIG_A=m\nCONFIG_B=y\nCONFIG_B=m\nCONFIG_C=y\nCONFIG_E=n\nCONFIG_F=8\n"
    assert kernel.unmet(wanted, config) == [
        "CONFIG_A=m", "CONFIG_C=y", "CONFIG_E=n", "CONFIG_F=8"
    ]  # fmt: skip


@pytest.mark.parametrize("variant", kernel.DEBUG)
def test_variants_have_one_base_and_their_own_instruments(variant: str) -> None:
    text = kernel.configuration(variant, "6.12")
    assert "CONFIG_EXT4_FS=m" in text
    assert f'CONFIG_LOCALVERSION="-{variant}"' in text
    assert (f"CONFIG_{variant.upper()}=y" in text) and text.count("SAN=y") == 2 - (
        variant == "kcsan"
    )


def test_an_option_is_asked_of_the_kernels_that_know_it() -> None:
    option = "CONFIG_BLK_DEV_WRITE_MOUNTED=y\n"
    older, newer = (kernel.configuration("uml", series) for series in ("6.1", "6.12"))
    assert option not in older
    assert option in newer
    assert older == newer.replace(option, "")


def test_unknown_variant_is_refused() -> None:
    with pytest.raises(UsageError, match="no debug kernel 'x': allowed are kasan, kcsan"):
        kernel.check_debug("x")


# --- when it is built


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps that building a kernel takes, in a cache of its own, without a compiler."""
    taken: list[str] = []

    def step(name: str) -> Callable[..., None]:
        def take(*_arguments: object) -> None:
            taken.append(name)

        return take

    monkeypatch.setattr(kernel, "full_source", step("full_source"))
    for name in ("configure", "compile", "install"):
        monkeypatch.setattr(kernel.Build, name, step(name))
    monkeypatch.setattr(kernel, "release_of", lambda _layout: "6.12.1-kasan")
    monkeypatch.setenv("FASTSYNC_CACHE", str(tmp_path / "cache"))
    return taken


BUILD = ["full_source", "configure", "compile", "install"]


def test_whole_kernel_is_not_built_again(tmp_path: Path, steps: list[str]) -> None:
    debian = KernelTree("6.12", "6.12.1", "6.12.1-1", tmp_path, tmp_path, tmp_path, tmp_path)
    kasan = kernel.debug_kernel(debian, "kasan")
    assert steps == BUILD
    assert (kasan.release, kasan.variant) == ("6.12.1-kasan", "kasan")
    assert kasan.source_dir == debian.source_dir and kasan.headers_dir != debian.headers_dir
    assert kernel.debug_kernel(debian, "kasan") == kasan
    assert steps == BUILD
    assert kernel.debug_kernel(debian, "kcsan").headers_dir != kasan.headers_dir
    assert steps == BUILD * 2


def test_half_a_kernel_is_not_taken_for_a_whole_one(
    tmp_path: Path, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    debian = KernelTree("6.12", "6.12.1", "6.12.1-1", tmp_path, tmp_path, tmp_path, tmp_path)
    kernel.debug_kernel(debian, "kasan")
    monkeypatch.setattr(kernel, "configuration", lambda variant, _series: f"CONFIG_{variant}=y\n")

    def fail(*_arguments: object) -> None:
        raise FastsyncError("no")

    with monkeypatch.context() as broken:
        broken.setattr(kernel.Build, "install", fail)
        for _ in range(2):
            with pytest.raises(FastsyncError):
                kernel.debug_kernel(debian, "kasan")
    assert steps == BUILD + BUILD[:-1] * 2, "the configuration is another one"
    kernel.debug_kernel(debian, "kasan")
    assert steps == BUILD + BUILD[:-1] * 2 + BUILD


def test_configuration_that_is_not_taken_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = kernel.Layout(tmp_path)
    layout.build.mkdir()

    def allnoconfig(argv: list[str]) -> None:
        assert argv[-1] == "allnoconfig" and f"O={layout.build}" in argv
        (layout.build / ".config").write_text("CONFIG_A=y\n")

    monkeypatch.setattr(kernel, "run", allnoconfig)
    kasan = kernel.Build(tmp_path, layout, "kasan")
    kasan.configure("CONFIG_A=y\n")
    with pytest.raises(FastsyncError, match="does not take CONFIG_B=y: fastsync_lab/host/debug"):
        kasan.configure("CONFIG_A=y\nCONFIG_B=y\n")


def test_user_mode_linux_is_another_architecture(tmp_path: Path) -> None:
    uml = kernel.Build(tmp_path, kernel.Layout(tmp_path), "uml")
    assert "ARCH=um" in uml.argv("modules") and uml.image == tmp_path / "build" / "linux"
    kasan = kernel.Build(tmp_path, kernel.Layout(tmp_path), "kasan")
    assert "ARCH=um" not in kasan.argv("modules")


# --- a source with changes


@pytest.fixture
def changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> kernel.Changes:
    """A 6.12 that takes arch/um from 7.2, and a patch that fits the two together."""
    monkeypatch.setenv("FASTSYNC_CACHE", str(tmp_path / "cache"))
    paths = (tmp_path, tmp_path, tmp_path, tmp_path)
    trees = [KernelTree(name, f"{name}.1", f"{name}.1-1", *paths) for name in ("6.12", "7.2")]
    for tree in trees:
        source = kernel.debug_dir() / tree.debian_version
        (source / "arch/um").mkdir(parents=True)
        (source / "fs").mkdir()
        (source / f"arch/um/{tree.series}.c").write_text("um\n")
        (source / "arch/um/main.c").write_text(f"um\n{tree.series}\n")
        (source / "fs/ext4.c").write_text(f"ext4\n{tree.series}\n")
    patch = tmp_path / "p.patch"
    patch.write_text(
        "--- a/arch/um/main.c\n+++ b/arch/um/main.c\n@@ -1,2 +1,2 @@\n um\n-7.2\n+both\n"
    )
    return kernel.Changes(trees[0], ("arch/um",), trees[1], [patch])


def test_folders_of_another_kernel_replace_those_that_there_are(
    changes: kernel.Changes, tmp_path: Path
) -> None:
    layout = kernel.Layout(tmp_path / "uml")
    source = kernel.variant_source(changes, layout, silent)
    names = {path.relative_to(source).as_posix() for path in source.rglob("*.c")}
    assert names == {"arch/um/7.2.c", "arch/um/main.c", "fs/ext4.c"}
    assert (source / "fs/ext4.c").read_text() == "ext4\n6.12\n"
    assert (source / "arch/um/main.c").read_text() == "um\nboth\n"
    for version in ("6.12", "7.2"):
        whole = kernel.debug_dir() / f"{version}.1-1"
        assert (whole / "arch/um/main.c").read_text() == f"um\n{version}\n", "others build from it"


def test_a_source_is_made_anew_only_when_its_changes_are_others(
    changes: kernel.Changes, tmp_path: Path
) -> None:
    layout = kernel.Layout(tmp_path / "uml")
    source = kernel.variant_source(changes, layout, silent)
    layout.build.mkdir()
    (layout.build / "main.o").write_text("")
    assert kernel.variant_source(changes, layout, silent) == source
    assert (layout.build / "main.o").is_file()

    patch = changes.patches[0]
    good = patch.read_text()
    patch.write_text(good.replace("-7.2", "-7.3"))
    for _ in range(2):
        with pytest.raises(FastsyncError, match=r"p\.patch does not apply to linux-source 7\.2"):
            kernel.variant_source(changes, layout, silent)
    assert not layout.build.exists(), "it was compiled from another source"
    patch.write_text(good.replace("+both", "+all"))
    assert (kernel.variant_source(changes, layout, silent) / "arch/um/main.c").read_text() == (
        "um\nall\n"
    )


def test_a_source_without_changes_is_that_of_all(changes: kernel.Changes, tmp_path: Path) -> None:
    layout = kernel.Layout(tmp_path / "uml")
    kernel.variant_source(changes, layout, silent)
    layout.build.mkdir()
    none = replace(changes, donor=None, patches=[])
    assert kernel.variant_source(none, layout, silent) == kernel.debug_dir() / "6.12.1-1"
    assert not layout.build.exists() and not layout.source.exists()
    layout.build.mkdir()
    kernel.variant_source(none, layout, silent)
    assert layout.build.exists()


def test_another_donor_or_another_patch_is_another_kernel(changes: kernel.Changes) -> None:
    assert changes.donor is not None
    donor = replace(changes.donor, debian_version="7.2.2-1")
    patch = changes.patches[0]
    keys = {changes.key, replace(changes, donor=donor).key, replace(changes, donor=None).key}
    patch.write_text(patch.read_text() + "\n")
    assert len({*keys, changes.key}) == 4
    assert replace(changes, donor=None, patches=[]).key == ""


def test_only_user_mode_linux_takes_folders_of_another_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(series: str, report: object) -> KernelTree:
        return KernelTree(series, "r", f"{series}.1-1", tmp_path, tmp_path, tmp_path, tmp_path)

    monkeypatch.setattr(kernel, "fetch_kernel", fetch)
    found = kernel.variant_changes(fetch("6.12", None), UML, silent)
    assert found.donor == fetch("7.2", None) and found.patches
    for series, variant in (("6.12", "kasan"), ("7.2", UML)):
        assert kernel.variant_changes(fetch(series, None), variant, silent).key == ""


@pytest.mark.parametrize("series", load_series())
def test_patches_of_user_mode_linux_leave_all_else_alone(series: str) -> None:
    """What is tested in it is the kernel's own ext4, on the kernel's own block layer and memory."""
    folders = tuple(f"{name}/" for name in kernel.VARIANTS[UML].folders)
    for patch in glue.patches_for(UML, series):
        touched = re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.MULTILINE)
        assert touched and all(name.startswith(folders) for name in touched), patch


# --- what is built for it


def test_products_of_a_debug_kernel_have_a_folder_of_their_own(tmp_path: Path) -> None:
    paths = (tmp_path, tmp_path, tmp_path, tmp_path)
    debian = KernelTree("7.2", "7.2.1", "7.2.1-1", *paths)
    kasan = KernelTree("7.2", "7.2.1-kasan", "7.2.1-1", *paths, "kasan")
    assert build.products_dir(debian, "stock").name == "7.2-stock"
    assert build.products_dir(kasan, "stock").name == "7.2-kasan-stock"
    assert build.chroot_of(debian) is not None
    assert build.chroot_of(kasan) is None
    (tmp_path / ".config").write_text("CONFIG_A=y\n")
    before = build.fingerprint(kasan, [])
    (tmp_path / ".config").write_text("CONFIG_A=m\n")
    assert build.fingerprint(kasan, []) != before


def test_time_limits_are_longer_on_a_debug_kernel(tmp_path: Path) -> None:
    paths = (tmp_path, tmp_path, tmp_path, tmp_path)
    assert VmConfig(KernelTree("6.12", "r", "v", *paths)).slowness == 1
    assert VmConfig(KernelTree("6.12", "r", "v", *paths, "kcsan")).slowness > 1


# --- following a build


def test_follow_shows_every_line_and_returns_the_status() -> None:
    lines: list[str] = []
    assert shell.follow(["sh", "-c", "echo a; echo b >&2; exit 3"], lines.append) == 3
    assert sorted(lines) == ["a\n", "b\n"]


def test_follow_ends_the_command_when_it_is_interrupted() -> None:
    lines: list[str] = []

    def stop(line: str) -> None:
        lines.append(line)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shell.follow(["sh", "-c", "sleep 300 & echo $$ $!; wait"], stop)
    (said,) = lines
    assert still_running(*map(int, said.split())) == []


def test_follow_of_a_program_that_is_not_there() -> None:
    with pytest.raises(FastsyncError, match="cannot run no-such-program"):
        shell.follow(["no-such-program"], lambda _line: None)
