"""./fastsync: help, errors and exit statuses, as a user meets them."""

import os
import shlex
import shutil
import tomllib
from collections.abc import Callable
from contextlib import nullcontext
from itertools import takewhile
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from fastsync_lab.cli import clean, vm
from fastsync_lab.cli import main as cli
from fastsync_lab.host import shell, terminal
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.kernels import load_series
from fastsync_lab.host.paths import build_dir, cache_dir, repo_root, results_dir
from fastsync_lab.machine.device import profile_names
from fastsync_lab.studies import studies

COMMANDS = [
    *("build", "series", "vm", "shell", "run", "list", "calibrate", "crash", "faults", "xfstests"),
    *("report", "clean"),
]
DEAD_S = 600.0  # it takes a second or two; the host may be busy


def fastsync(*arguments: str) -> shell.Completed:
    """Run ./fastsync."""
    return shell.run([str(repo_root() / "fastsync"), *arguments], check=False, timeout_s=DEAD_S)


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help_on_every_level_tells_the_exit_statuses(command: list[str]) -> None:
    result = CliRunner().invoke(cli.app, [*command, "--help"])
    assert result.exit_code == 0
    assert "Usage: " in result.stdout
    assert "Exit status: " in result.stdout


def examples_of(*command: str) -> list[str]:
    """The examples in a command's help."""
    text = CliRunner().invoke(cli.app, [*command, "--help"]).stdout
    lines = text[text.index("Examples:") :].splitlines()[1:]
    return [line.strip() for line in takewhile(str.strip, lines)]


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_every_help_has_examples_and_each_can_be_typed(command: tuple[str, ...]) -> None:
    group = get_command(cli.app)
    examples = examples_of(*command)
    assert examples
    for example in examples:
        program, name, *arguments = shlex.split(example)
        assert program == "./fastsync" and name in (command or COMMANDS)
        one = group.commands[name]  # type: ignore[attr-defined]
        one.make_context(name, arguments)  # raises for what it does not take


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fastsync ru", ["run"]),
        ("fastsync run over", ["overwrite"]),
        ("fastsync run overwrite --kernel 7", ["7.2"]),
        ("fastsync shell --device nvme", ["nvme", "nvme-plp"]),
        ("fastsync crash swap", ["swap-boot"]),
        ("fastsync faults --mode d", ["defer", "defer+eager"]),
    ],
)
def test_the_tab_key_completes_commands_options_and_names(line: str, expected: list[str]) -> None:
    variables = {"_FASTSYNC_COMPLETE": "complete_bash", "COMP_WORDS": line}
    variables["COMP_CWORD"] = str(line.count(" "))
    done = shell.run([str(repo_root() / "fastsync")], env=os.environ | variables, timeout_s=DEAD_S)
    assert done.stdout.split() == expected


def test_help_has_a_short_name() -> None:
    long, short = (CliRunner().invoke(cli.app, ["run", option]) for option in ("--help", "-h"))
    assert (short.exit_code, short.stdout) == (0, long.stdout)


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((repo_root() / "pyproject.toml").read_text())["project"]
    assert fastsync("--version").stdout == f"fastsync {project['version']}\n"


def test_list_has_a_line_for_each_of_what_there_is() -> None:
    lines = fastsync("list").stdout.splitlines()
    names = [line.split()[0] for line in lines]
    for name in (
        *studies(),
        *profile_names(),
        *load_series(),
        "stock",
        "defer",
        "xfs",
        "btrfs",
        "max",
    ):
        assert names.count(name) >= 1
    assert all(len(line.split()) > 1 or line.endswith(":") for line in lines)
    assert any("f2fs not durable" in line for line in lines)
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["bild"],
            f"no command 'bild': allowed are {', '.join(COMMANDS)}",
        ),
        (["build", "--kernel", "6.13"], "no kernel '6.13': allowed are 6.12, 6.12.N"),
        (["series", "--kernel", "x"], "no kernel 'x': allowed are 6.12, 6.12.N"),
        (["series", "--output", "/proc"], "/proc is not an empty folder"),
        (["vm", "--kernel", "x", "--", "true"], "no kernel 'x': allowed are 6.12, 6.12.N"),
        (["vm", "--device", "x", "--", "true"], "no device profile 'x': allowed are emmc, "),
        (
            ["vm", "--debug-kernel", "x", "--", "true"],
            "no debug kernel 'x': allowed are kasan, kcsan",
        ),
        (["vm", "--devices", "2", "--", "true"], "--devices needs --device PROFILE"),
        (["vm", "--root", "x", "--", "true"], "no root image 'x': allowed are default"),
        (["vm", "--share", "/no/such", "--", "true"], "cannot share '/no/such': there is no such"),
        (["vm", "--processors", "2", "--", "true"], "2 processors take real time: virtual time"),
        (["vm", "--parameter", "a b", "--", "true"], "'a b' is not one kernel parameter"),
        (["shell"], "`shell` needs a terminal; for a command there is `vm -- COMMAND`"),
        (["shell", "--device", "x"], "no device profile 'x': allowed are emmc, "),
        (["run", "overwrite", "--mips", "750"], "no 750 million instructions a second: allowed"),
        (["calibrate", "--processor", "x"], "no processor 'x': allowed are max, "),
        (["run", "x"], "no study 'x': allowed are overwrite, fstat, sqlite, "),
        (["xfstests", "--tree", "/"], "/ is no checkout of xfstests: it has no `check` and no "),
        (
            ["xfstests", "--tree", "/", "--mode", "x"],
            "no mode 'x' on Linux 6.12: allowed are off, ",
        ),
        (["faults", "x"], "no workload 'x': allowed are all, overwrite, "),
        (["faults", "--mode", "x"], "no mode 'x' on Linux 6.12: allowed are off, truncate, "),
        (["run", "beside", "--kernel", "6.1"], "qasio is not for Linux 6.1, only for 6.12, 7.2"),
        (["run", "overwrite", "--device", "x"], "no device profile 'x': allowed are emmc, "),
    ],
)
def test_unknown_names_are_one_line_with_what_is_allowed(
    arguments: list[str], message: str
) -> None:
    done = fastsync(*arguments)
    assert done.status == 2
    assert done.stderr.startswith(f"fastsync: {message}")
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["build", "--nonsense"],
        ["vm"],
        ["run"],
        ["vm", "--memory", "100", "--", "true"],
        ["vm", "--processors", "0", "--", "true"],
        ["vm", "--device-mib", "99999999", "--", "true"],
        ["vm", "--out", __file__, "--", "true"],
        ["run", "overwrite", "--json", "/"],
        ["run", "overwrite", "--plot", "/"],
        ["vm", "--time-limit", "0", "--", "true"],
    ],
)
def test_bad_usage_is_one_line_and_status_2(arguments: list[str]) -> None:
    done = fastsync(*arguments)
    assert (done.status, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("fastsync: ") and line.endswith(f"see `fastsync {arguments[0]} -h`")


OF_A_GUEST = ["--device", "ufs", "--devices", "2", "--share", "/tmp", "--share", "/var:rw"]


@pytest.mark.parametrize(
    ("arguments", "ran"),
    [
        (["vm", *OF_A_GUEST, "--time-limit", "9", "ls", "-l"], (["ls", "-l"], {"timeout_s": 9.0})),
        (["vm", *OF_A_GUEST, "true"], (["true"], {"timeout_s": inf})),
        (["shell", *OF_A_GUEST], (["pty", "bash"], {})),
    ],
)
def test_the_options_of_a_guest_reach_it(
    arguments: list[str], ran: tuple[list[str], dict[str, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []

    def run_attached(command: list[str], **limits: float) -> int:
        found.append((command, limits))
        return 7

    def booted(asked: vm.Asked) -> Any:
        found.append(asked)
        return nullcontext(SimpleNamespace(run_attached=run_attached, complaint=lambda: ""))

    monkeypatch.setattr(vm, "booted", booted)
    monkeypatch.setattr(terminal, "is_there", lambda: True)
    monkeypatch.setattr(terminal, "raw", nullcontext)
    monkeypatch.setattr(terminal, "on_terminal", lambda command: ["pty", *command])
    assert CliRunner().invoke(cli.app, arguments).exit_code == 7
    assert found == [vm.Asked(device="ufs", devices=2, share=["/tmp", "/var:rw"]), ran]


def guest_gone() -> str:
    raise FastsyncError("no answer in time, the guest was killed")


@pytest.mark.parametrize(
    ("status", "complaint", "said"),
    [
        (7, lambda: "the kernel said: BUG", "fastsync: the kernel said: BUG\n"),
        (7, lambda: "", ""),
        (0, lambda: "the kernel said: BUG", ""),
        (7, guest_gone, "fastsync: no answer in time, the guest was killed\n"),
    ],
)
def test_a_command_that_fails_is_followed_by_what_the_kernel_said(
    status: int,
    complaint: Callable[[], str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guest = SimpleNamespace(run_attached=lambda *_, **__: status, complaint=complaint)
    monkeypatch.setattr(vm, "booted", lambda _asked: nullcontext(guest))
    done = CliRunner().invoke(cli.app, ["vm", "false"])
    assert (done.exit_code, done.stderr) == (status, said)


def test_a_shell_has_the_options_of_vm_but_for_its_time_limit() -> None:
    of_vm, of_shell = (
        {one.name: one.default for one in get_command(cli.app).commands[name].params}  # type: ignore[attr-defined]
        for name in ("vm", "shell")
    )
    assert of_vm == {**of_shell, "command": None, "time_limit": inf}
    assert {name: of_shell[name] for name in vars(vm.Asked())} == vars(vm.Asked())


def test_options_after_the_command_belong_to_the_guest() -> None:
    done = fastsync("vm", "--device", "x", "ls", "--device", "y", "--help")
    assert done.stderr.startswith("fastsync: no device profile 'x'")


def test_without_a_venv_there_is_one_clear_line(tmp_path: Path) -> None:
    script = shutil.copy(repo_root() / "fastsync", tmp_path)
    done = shell.run([str(script), "--help"], check=False)
    assert done.status == 1
    assert done.stderr == "fastsync: run `make setup` first\n"


def test_fastsync_runs_from_any_folder_and_by_a_link(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(repo_root() / "fastsync")
    done = shell.run([str(link), "--help"], cwd=tmp_path)
    assert done.stdout.startswith("Usage: fastsync ")


def test_clean_removes_build_and_only_on_request_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, cache = tmp_path / "build", tmp_path / "cache"
    monkeypatch.setattr(clean, "build_dir", lambda: built)
    monkeypatch.setattr(clean, "cache_dir", lambda: cache)
    for folder in (built, cache):
        folder.mkdir()
    assert CliRunner().invoke(cli.app, ["clean"]).exit_code == 0
    assert (built.exists(), cache.exists()) == (False, True)
    said = CliRunner().invoke(cli.app, ["clean", "--cache"])
    assert said.exit_code == 0 and said.stdout.count("removed ") == 1
    assert not cache.exists()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"FASTSYNC_CACHE": "/a"}, "/a/fastsync"),
        ({"FASTSYNC_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a/fastsync"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/fastsync"),
        ({"HOME": "/h"}, "/h/.cache/fastsync"),
    ],
)
def test_cache_folder(
    variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FASTSYNC_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_dir() == Path(expected)


def test_folders_lie_in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTSYNC_RESULTS", "/elsewhere")
    assert results_dir() == Path("/elsewhere")
    monkeypatch.delenv("FASTSYNC_RESULTS")
    assert build_dir() == repo_root() / "build"
    assert results_dir() == repo_root() / "results"
    assert os.access(repo_root() / "fastsync", os.X_OK)
