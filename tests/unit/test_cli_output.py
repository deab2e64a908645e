"""What the system refuses to ./fastsync: one line, status 1, and before anything is run."""

import errno
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fastsync_lab.cli import main as cli
from fastsync_lab.cli import study, vm
from fastsync_lab.cli.output import check_writable, output_file
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.interrupt import Interrupted, Stop


@pytest.fixture
def refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither kernels nor studies: who comes so far has begun."""

    def begun(*_: object, **__: object) -> None:
        raise AssertionError("it has begun")

    monkeypatch.setattr(vm, "fetch_kernel", begun)
    monkeypatch.setattr(study, "run_studies", begun)


@pytest.mark.usefixtures("refuses")
@pytest.mark.parametrize(
    ("arguments", "folder"),
    [
        (["vm", "--out", "/proc/nope", "--", "true"], "/proc/nope"),
        (["run", "overwrite", "--json", "/proc/nope/rows.json"], "/proc/nope"),
        (["run", "overwrite", "--plot", "/proc/plot.png"], "/proc"),
        (["run", "overwrite", "--json", f"{__file__}/rows.json"], __file__),
        (["run", "overwrite", "--json", "/dev/null"], "/dev/null"),
    ],
)
def test_where_nothing_can_be_written_nothing_is_begun(arguments: list[str], folder: str) -> None:
    done = CliRunner().invoke(cli.app, arguments)
    assert isinstance(done.exception, FastsyncError)
    assert re.match(f"cannot write (into )?{re.escape(folder)}: ", str(done.exception))


def test_a_folder_that_can_be_written_to_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, tmp_path / "a" / "b", Path(), Path("a")):
        check_writable(folder)
    assert list(tmp_path.iterdir()) == []


def test_a_link_leads_to_the_file_that_is_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert output_file(tmp_path / "link") == tmp_path / "file"
    (tmp_path / "file").touch()
    assert output_file(tmp_path / "link") == output_file(tmp_path / "file") == tmp_path / "file"


def fail_with(error: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first thing that a command does is to meet this."""

    def fail(_arguments: list[str]) -> None:
        raise error

    monkeypatch.setattr(cli, "check_command", fail)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied", "/a/b"), "/a/b: Permission denied"),
        (OSError("odd"), "odd"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_what_the_system_refuses_is_one_line(
    error: OSError, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(error, monkeypatch)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code, capsys.readouterr().err) == (1, f"fastsync: {said}\n")


def test_what_a_signal_has_led_to_has_no_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stop = Stop()
    stop._set.set()
    monkeypatch.setattr(cli, "STOP", stop)
    fail_with(OSError(errno.EBADF, "Bad file descriptor"), monkeypatch)
    with pytest.raises(Interrupted):
        cli.main()
    assert capsys.readouterr().err == ""
