"""Missing programs are named before anything is fetched or built."""

import re
import sys
from pathlib import Path

import pytest

from fastsync_lab.host import needs, shell
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.paths import repo_root

DEAD_S = 600.0  # it takes seconds; the host may be busy
GROUPS = (needs.BUILD, needs.SERIES, needs.DEBUG_KERNEL, needs.GUEST, needs.IMAGES, needs.DATABASE)


def test_this_machine_misses_nothing() -> None:
    for group in GROUPS:
        needs.check_programs(group)


def test_every_missing_program_is_named_once() -> None:
    with pytest.raises(FastsyncError) as error:
        needs.check_programs(("sh", "no-such-1"), ("no-such-2", "no-such-1"))
    assert str(error.value) == "missing on this machine: no-such-1, no-such-2; try `make setup`"


@pytest.mark.parametrize(
    ("command", "programs"),
    [
        (["build"], "mmdebstrap"),
        (["build", "--debug"], "bison"),
        (["vm", "--", "true"], "qemu-system-x86_64"),
        (["run", "overwrite"], "mkfs.erofs"),
        (["run", "qasio"], "qemu-system-x86_64"),
        (["crash", "append"], "setpriv"),
        (["crash", "mariadb-fsync"], "mariadbd"),
        (["faults"], "qemu-system-x86_64"),
        (["xfstests", "--tree", "TREE"], "bison"),
        (["calibrate"], "qemu-system-x86_64"),
        (["series"], "git"),
    ],
)
def test_each_command_looks_for_its_own_first(
    command: list[str], programs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the host's programs are there but one."""
    there, tree = tmp_path / "there", tmp_path / "tree"
    there.mkdir()
    for folder in ("/usr/bin", "/usr/sbin"):
        for program in Path(folder).iterdir():
            if program.name != programs and not (there / program.name).exists():
                (there / program.name).symlink_to(program)
    (tree / "tests" / "generic").mkdir(parents=True)
    (tree / "tests" / "generic" / "001").write_text("_begin_fstest quick\n")
    (tree / "check").write_text("")
    script = (
        "from fastsync_lab.cli import build, calibrate, crash, faults, main as cli, series; "
        "from fastsync_lab.cli import study, xfstests; "
        "from fastsync_lab.host import needs; "
        "needs.SYSTEM_FOLDERS = (); "
        "build.fetch_kernel = series.fetch_kernel = None; "
        "crash.command.run = faults.command.run = xfstests.run = None; "
        "study.run_studies = calibrate.calibration.calibrate = None; cli.main()"
    )
    env = {"PATH": str(there), "FASTSYNC_CACHE": str(tmp_path / "cache")}
    words = [str(tree) if word == "TREE" else word for word in command]
    argv = [sys.executable, "-c", script, *words]
    done = shell.run(argv, cwd=repo_root(), env=env, check=False, timeout_s=DEAD_S)
    assert done.stderr == f"fastsync: missing on this machine: {programs}; try `make setup`\n"
    assert (done.status, done.stdout) == (1, "")
    assert not (tmp_path / "cache").exists()


def test_make_setup_installs_what_has_them() -> None:
    """The packages that these programs are in, by the names that Debian gives them."""
    package_of = {
        "apt-cache": "",
        "apt-get": "",
        "dpkg-deb": "",
        "tar": "",
        "unshare": "",
        "prlimit": "",
        "taskset": "",
        "setpriv": "",
        "mkfs.erofs": "erofs-utils",
        "xz": "xz-utils",
        "depmod": "kmod",
        "modprobe": "kmod",
        "strip": "binutils",
        "bwrap": "bubblewrap",
        "qemu-system-x86_64": "qemu-system-x86",
        "mkfs.ext4": "e2fsprogs",
        "dumpe2fs": "e2fsprogs",
        "debugfs": "e2fsprogs",
        "e2fsck": "e2fsprogs",
        "mariadbd": "mariadb-server-core",
    }
    makefile = (repo_root() / "Makefile").read_text()
    match = re.search(r"^APT_PACKAGES := ((?:.*\\\n)*.*)$", makefile, re.M)
    assert match is not None
    installed = {*match[1].replace("\\", " ").split(), ""}
    wanted = {package_of.get(name, name) for group in GROUPS for name in group}
    assert wanted <= installed


@pytest.mark.parametrize("name", ["with blank", "a:b", "a,b", "$x"])
def test_a_folder_that_make_would_split_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needs, "missing", lambda _: [])
    monkeypatch.setenv("FASTSYNC_CACHE", str(tmp_path / name))
    with pytest.raises(FastsyncError, match="nothing can be built in"):
        needs.check_programs(needs.BUILD, needs.GUEST)
    needs.check_programs(needs.IMAGES)
