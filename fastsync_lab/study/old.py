"""Results of format 1, as the lab wrote them until November 2026.

A runner of its own wrote those of qasio. When all is measured anew, this goes.
"""

from collections.abc import Mapping
from typing import Any

WAITBENCH_NAMES = {"requests_per_s": "requests_per_s", "cpu_ns_per_request": "cpu_ns"}
CLASSES = ("data", "journal", "metadata")


def modern(data: Mapping[str, Any]) -> dict[str, Any]:
    """The same result in today's format, with what its reader takes."""
    old = data["environment"]
    sqlite = [f"SQLite {old['sqlite']}"] if "sqlite" in old else []
    hashes = old.get("modules_sha256") or old["sha256"]
    return {
        "study": data["experiment"],
        "title": data["title"],
        "device": data["device"],
        "environment": {**old, "versions": [old["fio"], *sqlite], "sha256": hashes},
        "cells": [
            waits_cell(cell) if "scheduler" in cell else cell_of(cell, old["mkfs"])
            for cell in data["cells"]
        ],
        "date": data.get("date", ""),
    }


def cell_of(cell: Mapping[str, Any], mkfs: str) -> dict[str, Any]:
    """A cell on one of several variants of ext4."""
    return {
        "workload": cell["workload"],
        "system": cell["variant"],
        "filesystem": {"mkfs": mkfs, "options": cell["mount_options"]},
        "command": cell["command"],
        "interval_ms": cell["interval_ms"],
        "scheduler": "default",
        "runs": [{"subjects": subjects_of(run)} for run in cell["repetitions"]],
    }


def subjects_of(run: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Each phase's figures; the one of fio was called overwrite."""
    beside = {"neighbour_per_s": run["neighbour"]["rounds_per_s"]} if "neighbour" in run else {}
    found = {}
    for phase, values in run["phases"].items():
        blocks, operations = values["blocks"], values["operations"]
        found["" if phase == "overwrite" else phase] = {
            **{name: value for name, value in values.items() if name != "blocks"},
            "kib": sum(blocks["bytes"].values()) / operations / 1024,
            **{f"kib_{name}": blocks["bytes"][name] / operations / 1024 for name in CLASSES},
            "requests": sum(blocks["requests"].values()) / operations,
            **{name: blocks[name] / operations for name in ("flushes", "fua", "reads", "discards")},
            "request_kib": blocks["mean_request_kib"],
            "sequential": blocks["sequential_ratio"],
            "write_us": blocks["mean_write_us"],
            "flush_us": blocks["mean_flush_us"],
            **beside,
        }
    return found


def waits_cell(cell: Mapping[str, Any]) -> dict[str, Any]:
    """A cell under one of several schedulers."""
    workload = cell.get("benchmark") or cell["matrix"]
    system = "raw" if "matrix" in cell else "discard" if workload == "M5" else "stock"
    return {
        "workload": workload,
        "system": system,
        "interval_ms": None,
        "scheduler": cell["scheduler"],
        "runs": [{"subjects": waits_subjects(run)} for run in cell["repetitions"]],
    }


def waits_subjects(run: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The calls of a benchmark and the whole of it, or fio's figures."""
    if "calls" not in run:
        return {"": {new: run[name] for name, new in WAITBENCH_NAMES.items()}}
    calls = {
        name: {metric: value for metric, value in call.items() if metric != "elapsed_ns"}
        for name, call in run["calls"].items()
    }
    whole = {"elapsed_s": run["elapsed_ns"] / 1e9, "writer_mib_s": run["writer_mib_s"]}
    return {**calls, "": whole, **{f"wait: {kind}": row for kind, row in run["waits"].items()}}
