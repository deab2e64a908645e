"""The faults in tests/planted: each is looked for by some VM test."""

import ast
from pathlib import Path

from tests.vm.planted import FAULTS, SEEDS, STATES


def words(file: Path) -> set[str]:
    """The strings of a module."""
    constants = [
        one for one in ast.walk(ast.parse(file.read_text())) if isinstance(one, ast.Constant)
    ]
    return {one.value for one in constants if isinstance(one.value, str)}


def test_every_fault_is_looked_for() -> None:
    faults = {path.stem for path in FAULTS.glob("*.patch")}
    named = set().union(*map(words, Path(FAULTS.parent, "vm").glob("test_*.py")))
    assert faults and faults <= named, sorted(faults - named)
    assert {*SEEDS, *STATES} <= faults
