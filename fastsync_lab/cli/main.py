"""The command line: ./fastsync."""

import sys
import tomllib
from typing import Annotated

import typer

from fastsync_lab.cli.build import build
from fastsync_lab.cli.calibrate import calibrate
from fastsync_lab.cli.clean import clean
from fastsync_lab.cli.crash import crash
from fastsync_lab.cli.faults import faults
from fastsync_lab.cli.options import EXIT_CODES, told
from fastsync_lab.cli.report import report
from fastsync_lab.cli.series import series
from fastsync_lab.cli.study import list_all, run
from fastsync_lab.cli.vm import SHELL_STATUS, VM_STATUS, shell, vm
from fastsync_lab.cli.xfstests import xfstests
from fastsync_lab.host.errors import FastsyncError, UsageError, check_names
from fastsync_lab.host.interrupt import STOP
from fastsync_lab.host.paths import repo_root

app = typer.Typer(
    name="fastsync",
    help="Cheaper fsync() on ext4: build the modules, boot and measure them.",
    epilog=told(
        "vm --device sata-ssd -- fio --version",
        "shell --device sata-ssd",
        "run overwrite sqlite",
        "list",
        status=f"{EXIT_CODES} `vm` and `shell` end with the status of what they ran.",
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def say_version(asked: bool) -> None:
    """Print the version and end."""
    if asked:
        project = tomllib.loads((repo_root() / "pyproject.toml").read_text())["project"]
        print(f"fastsync {project['version']}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=say_version, is_eager=True, help="Say the version."),
    ] = False,
) -> None:
    """Take the options that belong to no command."""


app.command(
    short_help="Build the modules for a Debian kernel.",
    epilog=told("build", "build --kernel 7.2 --stock", "build --refresh"),
)(build)
app.command(
    short_help="Write the change as patches for a kernel tree.",
    epilog=told("series", "series --kernel 7.2 --signoff --output /tmp/patches"),
)(series)
app.command(
    short_help="Run a command in the virtual machine.",
    epilog=told(
        "vm -- uname -a",
        "vm --device ufs -- sh -c 'mkfs.ext4 -q $FASTSYNC_DEV && mount $FASTSYNC_DEV /mnt'",
        "vm --share /srv/suite --share /tmp/results:rw -- sh -c 'cd /srv/suite && ./check'",
        "vm --real-time --processors 2 -- nproc",
        status=VM_STATUS,
    ),
    context_settings={"allow_interspersed_args": False},
)(vm)
app.command(
    short_help="Open a shell in the virtual machine.",
    epilog=told(
        "shell", "shell --device sata-ssd --kernel 7.2", "shell --stock", status=SHELL_STATUS
    ),
)(shell)
app.command(
    short_help="Run studies.",
    epilog=told(
        "run overwrite",
        "run overwrite sqlite --device ufs --plot /tmp/ufs.png",
        "run --full files --kernel 7.2 --json /tmp/rows.json",
    ),
)(run)
app.command(
    "list", short_help="List studies, kernels, devices and file systems.", epilog=told("list")
)(list_all)
app.command(
    short_help="Compare the guest's processor with the host's.",
    epilog=told("calibrate", "calibrate --processor max --processor words --mips 1000"),
)(calibrate)
app.command(
    short_help="Test power cuts.",
    epilog=told(
        "crash overwrite --mode defer",
        "crash random --mode stock --mode defer --journal 1k-blocks --seed 7",
        "crash all --states 400",
        status="Exit status: 0 nothing lost that stock keeps, 1 something was, or failure, "
        "2 bad usage.",
    ),
)(crash)
app.command(
    short_help="Test I/O errors.",
    epilog=told(
        "faults",
        "faults overwrite --mode defer",
        status="Exit status: 0 as on stock, 1 something was different, or failure, 2 bad usage.",
    ),
)(faults)
app.command(
    short_help="Run xfstests on stock and on ours.",
    epilog=told(
        "xfstests --tree ~/xfstests",
        "xfstests --tree ~/xfstests generic/001 ext4/quick --mode defer",
        status="Exit status: 0 as on stock, 1 something passes on stock only, varies or fails "
        "otherwise, or failure, 2 bad usage.",
    ),
)(xfstests)
app.command(short_help="Write the figures into the documents.", epilog=told("report"))(report)
app.command(short_help="Remove what was built.", epilog=told("clean", "clean --cache"))(clean)


def check_command(arguments: list[str]) -> None:
    """Raise UsageError when the first argument is a command that there is not."""
    commands = [
        command.name or command.callback.__name__
        for command in app.registered_commands
        if command.callback
    ]
    if arguments and not arguments[0].startswith("-"):
        check_names("command", arguments[:1], commands)


def main() -> None:
    """Run the command line; an error a user can mend is one line on stderr."""
    arguments = sys.argv[1:] or ["--help"]
    try:
        check_command(arguments)
        status: int | None = app(arguments, prog_name=app.info.name, standalone_mode=False)
    except FastsyncError as error:
        print(f"fastsync: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except OSError as error:
        STOP.check()  # a signal has a line of its own
        print(f"fastsync: {refused(error)}", file=sys.stderr)
        sys.exit(1)
    except typer.TyperException as error:
        print(f"fastsync: {usage_error(error)}", file=sys.stderr)
        sys.exit(2)
    sys.exit(status)


def refused(error: OSError) -> str:
    """What the system has refused in one line: to which file, if it says so, and why."""
    why = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {why}" if error.filename else why


def usage_error(error: typer.TyperException) -> str:
    """What typer says of bad usage in one line, and who knows better."""
    said = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{said}: see `{context.command_path} -h`" if context else said
