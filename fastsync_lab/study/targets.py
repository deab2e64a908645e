"""The targets of all studies as a table, for the document that says how figures are measured."""

from collections.abc import Mapping
from typing import Any

from fastsync_lab.study.contract import Study
from fastsync_lab.study.grid import Grid
from fastsync_lab.study.judge import LABELS, Requirement, bars_text

HEAD = ("study", "of", "figure", "where", "required")
EVERYWHERE = "everywhere"
OWN = "its own"  # who is meant where a figure is held against another of the same file system


def names_of(names: tuple[str, ...]) -> str:
    """The names on an axis as a reader knows them; a place without a subject has none."""
    return ", ".join(LABELS.get(name, name) for name in names if name)


def place_of(requirement: Requirement) -> str:
    """Where a target holds: workloads and subjects, devices, kernels, how much the base must be."""
    where = requirement.where
    said = [names_of(where.workloads), names_of(where.subjects), names_of(where.schedulers)]
    said += [f"on {names_of(where.devices)}"] if where.devices else []
    said += [f"Linux {names_of(where.kernels)}"] if where.kernels else []
    if requirement.base_least:
        said.append(f"where {requirement.over} has at least {requirement.base_least:g}")
    return "; ".join(filter(None, said)) or EVERYWHERE


def targets_grid(studies: Mapping[str, Study[Any]]) -> Grid:
    """A row for each target, in the order of the studies."""
    lines = [
        [
            f"`{name}`",
            names_of(one.where.systems) or "all",
            one.figure(OWN),
            place_of(one),
            bars_text(one.least, one.most),
        ]
        for name, study in studies.items()
        for one in study.required
    ]
    return Grid(HEAD, lines, texts=len(HEAD))
