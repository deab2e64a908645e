"""The house: which room may know of which, and how large one may be."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastsync_lab.host.paths import repo_root

PACKAGE = "fastsync_lab"
# A folder imports those to its left, and itself.
FLOORS = ("host", "machine", "study", "studies", "crash", "faults", "xfstests", "cli")
ENTRY = "__main__"  # the way in, above all of them
# Their modules are a study each, and the docstring of crash is of the explorer's digest.
BY_THEMSELVES = ("studies", "crash")
MOST_LINES = 400
MOST_LINES_OF_C = 500
MOST_LINES_OF_README = 120
C_FOLDERS = ("kernel", "fastsync_lab", "tests")
LONG_C = {
    "fastsync_lab/host/programs/crashcheck.c": "one walk over the states, from image to verdict",
    "tests/vm/fsops.c": "all words that one process says to one file, a few lines for each",
}


def python_files(*folders: str) -> list[Path]:
    return [file for folder in folders for file in sorted((repo_root() / folder).rglob("*.py"))]


def module_name(file: Path) -> str:
    parts = file.relative_to(repo_root()).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(file): file for file in python_files(PACKAGE)}


def imports(text: str, modules: frozenset[str]) -> set[str]:
    """The modules of the package that a text imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (whole & modules) or {node.module}
            assert node.level == 0, "imports name the package"
    return {name for name in found if name.split(".")[0] == PACKAGE}


def graph() -> dict[str, set[str]]:
    modules = frozenset(FILES)
    return {name: imports(file.read_text(), modules) for name, file in FILES.items()}


def floor(module: str) -> int:
    """How far up a module stands."""
    parts = module.split(".")
    if len(parts) == 1 or parts[1] == ENTRY:
        return len(FLOORS)
    return FLOORS.index(parts[1])


def upwards(found: dict[str, set[str]]) -> list[str]:
    """The imports that run up."""
    return [
        f"{name} imports {other}"
        for name, others in found.items()
        for other in sorted(others)
        if floor(other) > floor(name)
    ]


def circles(found: dict[str, set[str]]) -> Iterator[list[str]]:
    """The circles that a walk from each module meets."""
    done: set[str] = set()

    def walk(name: str, way: list[str]) -> Iterator[list[str]]:
        if name in way:
            yield [*way[way.index(name) :], name]
        elif name not in done:
            for other in sorted(found.get(name, ())):
                yield from walk(other, [*way, name])
            done.add(name)

    for name in found:
        yield from walk(name, [])


def test_every_module_stands_on_a_floor() -> None:
    assert len(FILES) > 100
    folders = {name.split(".")[1] for name in FILES if "." in name}
    assert folders == {*FLOORS, ENTRY}


def test_no_import_runs_upwards() -> None:
    assert upwards(graph()) == []


def test_no_imports_run_in_a_circle() -> None:
    assert list(circles(graph())) == []


@pytest.mark.parametrize(
    "file", python_files(PACKAGE, "tests"), ids=lambda file: str(file.relative_to(repo_root()))
)
def test_no_module_is_too_long(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= MOST_LINES


def test_no_c_file_is_too_long() -> None:
    files = [file for folder in C_FOLDERS for file in (repo_root() / folder).rglob("*.[ch]")]
    lines = {str(one.relative_to(repo_root())): one.read_text().count("\n") for one in files}
    assert len(files) > 50
    assert {name for name, count in lines.items() if count > MOST_LINES_OF_C} == set(LONG_C)


def test_the_front_door_is_short() -> None:
    assert len((repo_root() / "README.md").read_text().splitlines()) <= MOST_LINES_OF_README


# --- that these look -----------------------------------------------------------------------------


def test_an_import_is_seen_wherever_it_stands() -> None:
    modules = frozenset({"fastsync_lab.host", "fastsync_lab.host.shell", "fastsync_lab.cli.main"})
    text = (
        "import os, fastsync_lab.cli.main\n"
        "def f():\n    from fastsync_lab.host import shell\n"
        "if TYPE_CHECKING:\n    from fastsync_lab.host.shell import run\n"
    )
    assert imports(text, modules) == {"fastsync_lab.cli.main", "fastsync_lab.host.shell"}


def test_what_runs_up_or_in_a_circle_is_found() -> None:
    shell, vm, judge = (f"fastsync_lab.{x}" for x in ("host.shell", "machine.vm", "study.judge"))
    assert upwards({shell: {vm}, vm: {shell}}) == [f"{shell} imports {vm}"]
    assert list(circles({shell: {vm}, vm: {judge}, judge: {vm}})) == [[vm, judge, vm]]
    assert list(circles({judge: {vm, shell}, vm: {shell}})) == []


@pytest.mark.parametrize("folder", [name for name in FLOORS if name not in BY_THEMSELVES])
def test_a_package_says_what_its_modules_are(folder: str) -> None:
    """The lines of its docstring begin with their names, one or several."""
    text = ast.get_docstring(ast.parse(FILES[f"{PACKAGE}.{folder}"].read_text())) or ""
    heads = re.findall(r"^([a-z_]+(?:, [a-z_]+)*)(?:  |$)", text, re.MULTILINE)
    named = [name for head in heads for name in head.split(", ")]
    there = [file.stem for file in (repo_root() / PACKAGE / folder).glob("[!_]*.py")]
    rooms = [path.name for path in (repo_root() / PACKAGE / folder).glob("[!_]*/")]
    assert sorted(set(named) - set(rooms)) == sorted(there)
    assert len(named) == len(set(named))


def test_no_test_borrows_from_another() -> None:
    """What two need is in a module that has no tests."""
    borrowing = re.compile(r"^from tests\.\w+\.test_\w+ import", re.MULTILINE)
    assert [file for file in python_files("tests") if borrowing.search(file.read_text())] == []
