"""The command line: ./fastsync."""

import shutil
import sys
import tomllib
from pathlib import Path
from typing import Annotated

import typer

from fastsync_lab.cli.calibrate import calibrate
from fastsync_lab.cli.options import (
    DEFAULT_KERNEL,
    EXIT_CODES,
    KernelOption,
    StockOption,
    check_kernel,
    shown,
    starting,
    told,
)
from fastsync_lab.cli.report import write_report
from fastsync_lab.cli.series import series
from fastsync_lab.cli.study import list_all, run
from fastsync_lab.cli.vm import SHELL_STATUS, VM_STATUS, shell, vm
from fastsync_lab.cli.xfstests import xfstests
from fastsync_lab.crash import command as crash_command
from fastsync_lab.crash.kinds import KINDS
from fastsync_lab.crash.summary import print_outcomes
from fastsync_lab.crash.workloads import workload_names
from fastsync_lab.faults import command as faults_command
from fastsync_lab.faults.summary import print_results
from fastsync_lab.faults.workloads import workload_names as faulty_workload_names
from fastsync_lab.host import needs
from fastsync_lab.host.build import (
    build_modules,
    build_own_module,
    own_modules,
)
from fastsync_lab.host.debug.kernel import DEBUG
from fastsync_lab.host.debug.kernel import debug_kernel as build_debug_kernel
from fastsync_lab.host.errors import FastsyncError, UsageError, check_names
from fastsync_lab.host.fetch import fetch_kernel
from fastsync_lab.host.kernels import UML, KernelTree
from fastsync_lab.host.options import CONTROL, DEFAULT_INTERVAL_MS, MODES
from fastsync_lab.host.paths import CACHED, build_dir, cache_dir, repo_root
from fastsync_lab.host.progress import Report, progress
from fastsync_lab.studies import studies

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


@app.command(epilog=told("build", "build --kernel 7.2 --stock", "build --refresh"))
def build(
    kernel: KernelOption = DEFAULT_KERNEL,
    stock: StockOption = False,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Ask apt for a newer kernel first (root or sudo).")
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug",
            help=f"Build kernels that look for bugs ({', '.join(DEBUG)}) from the same source, "
            "and the modules for them: 1,300 files to compile for each, 3 GB.",
        ),
    ] = False,
) -> None:
    """Fetch a stock Debian kernel into the cache and build jbd2.ko and ext4.ko for it.

    So are the lab's device model and, where it can be had, the I/O scheduler qasio. The result is
    build/SERIES/ (build/SERIES-stock/ with --stock, build/SERIES-kasan/ and build/SERIES-kcsan/
    with --debug). Nothing is installed.
    """
    check_kernel(kernel, stock=stock)
    needs.check_programs(needs.BUILD, needs.DEBUG_KERNEL if debug else ())
    with progress() as report:
        tree = fetch_kernel(kernel, refresh=refresh, report=report)
        trees = (
            [build_debug_kernel(tree, name, report=report) for name in DEBUG] if debug else [tree]
        )
        built = [(file, tree) for tree in trees for file in products(tree, stock, report)]
    for file, tree in built:
        print(f"{shown(file)}  for {tree.release}")


def products(tree: KernelTree, stock: bool, report: Report) -> list[Path]:
    """Build all modules for a kernel."""
    modules = build_modules(tree, stock=stock, report=report)
    own = [] if stock else [build_own_module(name, tree, report) for name in own_modules(tree)]
    return [modules.jbd2, modules.ext4, *own]


app.command(epilog=told("series", "series --kernel 7.2 --signoff --output /tmp/patches"))(series)


app.command(
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
    epilog=told(
        "shell", "shell --device sata-ssd --kernel 7.2", "shell --stock", status=SHELL_STATUS
    )
)(shell)


app.command(
    epilog=told(
        "run overwrite",
        "run overwrite sqlite --device ufs --plot /tmp/ufs.png",
        "run --full files --kernel 7.2 --json /tmp/rows.json",
    )
)(run)
app.command("list", epilog=told("list"))(list_all)
app.command(epilog=told("calibrate", "calibrate --processor max --processor words --mips 1000"))(
    calibrate
)


@app.command(
    epilog=told(
        "crash overwrite --mode defer",
        "crash random --mode stock --mode defer --journal 1k-blocks --seed 7",
        "crash all --states 400",
        status="Exit status: 0 nothing lost that stock keeps, 1 something was, or failure, "
        "2 bad usage.",
    )
)
def crash(
    workload: Annotated[
        str,
        typer.Argument(
            help=f"all, or one of {', '.join(workload_names())}.",
            autocompletion=starting(["all", *workload_names()]),
        ),
    ],
    mode: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODE",
            help="off, truncate, defer, eager, defer+eager, or stock (the kernel's own modules); "
            "may be repeated "
            "(default: defer; with `all`: those of the table).",
            autocompletion=starting([*MODES, CONTROL]),
        ),
    ] = None,
    journal: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help=f"A kind of file system: {', '.join(KINDS)}; may be repeated (default: ordered; "
            "with `all`: each, with the workloads of the table).",
            autocompletion=starting(KINDS),
        ),
    ] = None,
    states: Annotated[
        int,
        typer.Option(
            metavar="COUNT", help="How many crash states of each; boundaries are all taken.", min=1
        ),
    ] = 200,
    seed: Annotated[
        int, typer.Option(metavar="NUMBER", help="Another one: other operations, other states.")
    ] = 1,
    interval: Annotated[
        int, typer.Option(metavar="MS", help="mtime_update, in ms.", min=1, max=1000)
    ] = DEFAULT_INTERVAL_MS,
    state: Annotated[
        str | None,
        typer.Option(metavar="STATE", help="Look at this state alone, of what was recorded last."),
    ] = None,
    delays: Annotated[
        int,
        typer.Option(
            metavar="SEED",
            help="Modules that delay what they do with what they have chosen, drawn by this seed; "
            "0: ours as they are.",
            min=0,
        ),
    ] = 0,
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT", help="How many guests at a time (default: one a processor).", min=1
        ),
    ] = None,
    recover_in: Annotated[
        str,
        typer.Option(
            metavar="MACHINE",
            help="Where states are recovered: uml (User-Mode Linux, of the same source) or qemu "
            "(where they are recorded, ten times as slow).",
        ),
    ] = UML,
    kernel: KernelOption = DEFAULT_KERNEL,
) -> None:
    """Cut the power everywhere: record WORKLOAD, recover what may be left, check every promise.

    Each write, flush and FUA write is logged. At each flush, and between, the states that a
    volatile cache allows are recovered by the stock kernel and by e2fsck, which have to agree; what
    a returned fsync has promised must be there. docs/reliability.md has the details.
    """
    check_kernel(kernel, stock=False)
    asked = crash_command.request(
        workload,
        modes=mode,
        journals=journal,
        states=states,
        seed=seed,
        interval_ms=interval,
        delays=delays,
        kernel=kernel,
        state=state,
        recover_in=recover_in,
    )
    built = needs.DEBUG_KERNEL if recover_in == UML else ()
    needs.check_programs(needs.BUILD, needs.GUEST, needs.IMAGES, built)
    if any(asked.script(case).flushing for case in asked.cases):
        needs.check_programs(needs.DATABASE)
    with progress() as report:
        outcomes = crash_command.run(asked, report=report, jobs=jobs)
    print_outcomes(outcomes)
    if any(outcome.own_failures for outcome in outcomes):
        raise typer.Exit(1)


@app.command(
    epilog=told(
        "faults",
        "faults overwrite --mode defer",
        status="Exit status: 0 as on stock, 1 something was different, or failure, 2 bad usage.",
    )
)
def faults(
    workload: Annotated[
        str,
        typer.Argument(
            help=f"all, or one of {', '.join(faulty_workload_names())}.",
            autocompletion=starting([faults_command.ALL, *faulty_workload_names()]),
        ),
    ] = faults_command.ALL,
    mode: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODE",
            help="off, truncate, defer, eager or defer+eager; may be repeated (default: all that "
            "the kernel's modules have).",
            autocompletion=starting(MODES),
        ),
    ] = None,
    kernel: KernelOption = DEFAULT_KERNEL,
) -> None:
    """Fail each request of WORKLOAD, and compare what comes of it with the stock modules.

    Once, and as a device that stays dead; with errors=remount-ro and with errors=continue. The same
    error has to reach the same call, the file system to become read-only where stock's does, and
    what had been promised before to be there after recovery. docs/reliability.md has the details.
    """
    check_kernel(kernel, stock=False)
    cases = faults_command.cases_of(workload, mode, kernel)
    needs.check_programs(needs.BUILD, needs.GUEST, needs.IMAGES)
    with progress() as report:
        results = faults_command.run(cases, kernel, report=report)
    if print_results(results):
        raise typer.Exit(1)


app.command(
    epilog=told(
        "xfstests --tree ~/xfstests",
        "xfstests --tree ~/xfstests generic/001 ext4/quick --mode defer",
        status="Exit status: 0 nothing that passes on stock fails here, 1 something does, or "
        "failure, 2 bad usage.",
    )
)(xfstests)


@app.command(epilog=told("report"))
def report() -> None:
    """Write the documents' figures, their plots and one HTML page from what is in results/.

    These are README.md's, those of docs/, results/gains.png, results/plots/; and
    build/report.html, which has everything: all plots, tables that can be sorted, and how each
    row is measured again.
    """
    with progress() as report:
        written = write_report(studies(), report)
    print(shown(written))


@app.command(epilog=told("clean", "clean --cache"))
def clean(
    cache: Annotated[
        bool,
        typer.Option("--cache", help="Remove the cache of kernels, chroots and images as well."),
    ] = False,
) -> None:
    """Remove what was built (build/)."""
    found = [build_dir()] if build_dir().exists() else []
    if cache:
        found += [path for name in CACHED for path in sorted(cache_dir().glob(name))]
    for path in found:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        print(f"removed {shown(path)}")


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
    except typer.TyperException as error:
        print(f"fastsync: {usage_error(error)}", file=sys.stderr)
        sys.exit(2)
    sys.exit(status)


def usage_error(error: typer.TyperException) -> str:
    """What typer says of bad usage in one line, and who knows better."""
    said = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{said}: see `{context.command_path} -h`" if context else said
