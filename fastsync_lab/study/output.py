"""What our own benchmarks print: JSON with latencies, nearest rank, of calls or phases."""

import json
from collections.abc import Mapping
from typing import Any

from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.study.contract import Cell, Output
from fastsync_lab.study.rows import Subjects, Values


def counters_of(sections: Mapping[str, str]) -> dict[str, int]:
    """What our ext4 has counted in a run, by name; nothing of other file systems."""
    pairs = (line.split() for line in sections.get("counters", "").splitlines())
    return {name: int(value) for name, value in pairs}


def call_values(call: Any) -> Values:
    """The latencies of a call as our own benchmarks print them.

    Raises KeyError, ValueError or TypeError when it is no such object.
    """
    return {
        "operations": int(call["operations"]),
        **{name: int(call[name]) for name in ("mean_ns", "p50_ns", "p99_ns", "max_ns")},
    }


def phases_of(program: str, text: str) -> Subjects:
    """Operations a second and latencies of each phase, from the JSON of one of our benchmarks.

    Raises FastsyncError when it is no such JSON.
    """
    try:
        phases = json.loads(text)["phases"]
        return {
            name: {
                **call_values(phase),
                "ops_per_s": int(phase["operations"]) * 1e9 / int(phase["elapsed_ns"]),
            }
            for name, phase in phases.items()
        }
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise FastsyncError(f"{program} printed no result: {error!r}") from error


def read_timed(_cell: Cell[Any], output: Output) -> Subjects:
    """Operations a second, from what `timed` of cell.sh prints last: a number and microseconds.

    Raises FastsyncError when it printed no such line, or nothing was done.
    """
    try:
        operations, elapsed_us = map(int, output.result.splitlines()[-1].split())
        return {"": {"operations": operations, "ops_per_s": operations * 1e6 / elapsed_us}}
    except (ValueError, IndexError, ZeroDivisionError) as error:
        raise FastsyncError(f"what was timed printed no result: {error!r}") from error
