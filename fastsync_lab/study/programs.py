"""What is compiled for the guest of a study, from fastsync_lab/host/programs/."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastsync_lab.host.paths import build_dir
from fastsync_lab.host.progress import Report
from fastsync_lab.host.workload import (
    SQLITE_VERSION,
    SYNC_CALLS,
    compile_changed,
    fetch_sqlite,
    library_command,
    plain_command,
    sqlbench_command,
)
from fastsync_lab.study.contract import Cell, Paths, Program


def compiled(name: str, command: Sequence[str], report: Report) -> Path:
    """Compile what has changed; the program. Raises FastsyncError when the compiler fails."""
    output = built(name)
    output.parent.mkdir(parents=True, exist_ok=True)
    compile_changed(output, command, report)
    return output


def built(name: str) -> Path:
    """Where a program lies."""
    return build_dir() / "programs" / name


def plain(name: str) -> Program:
    """A program that is one file, static."""
    return Program(name, lambda report: compiled(name, plain_command(name, built(name)), report))


def library(name: str) -> Program:
    """A library for LD_PRELOAD, NAME.so, that is one file."""
    file = f"{name}.so"
    return Program(file, lambda report: compiled(file, library_command(name, built(file)), report))


def sqlbench(sync_call: str) -> Program:
    """sqlbench with SQLite in it, calling `sync_call`."""
    name = f"sqlbench-{sync_call}"

    def build(report: Report) -> Path:
        return compiled(
            name, sqlbench_command(sync_call, fetch_sqlite(report), built(name)), report
        )

    return Program(name, build, f"SQLite {SQLITE_VERSION}")


def preload(cell: Cell[Any], paths: Paths) -> str:
    """Bash that gives programs the cell's sync call where they know fsync() alone."""
    if cell.system.sync_call == "fsync":
        return ":"
    return f"local -x LD_PRELOAD={paths(DATASYNC.name)}"


SQLBENCHES = tuple(sqlbench(call) for call in SYNC_CALLS)
STATWRITE = library("statwrite")
NEIGHBOUR = plain("neighbour")
WAITBENCH = plain("waitbench")
FILEBENCH = plain("filebench")
BESIDE = plain("beside")
MOBILEBENCH = plain("mobilebench")
DATASYNC = library("datasync")
