"""Does a test notice each small change of the code that judges results? `make mutants`.

mutmut makes the changes, one at a time, and runs the unit tests that reach the changed function
([tool.mutmut] in pyproject.toml says of which modules, with which tests). It works in a copy of the
tree, build/mutants/, and goes on where it was interrupted. Of a function that has not changed, a
mutant that was killed is not tried again, even if the test has changed: `make clean` forgets that.
One that no test notices has to be explained in tests/mutants.toml. docs/mutants.md is written from
both, with a digest of each module, and one of the tests with which the copy began. `./fastsync
report` says there what has changed since.
"""

import re
import shutil
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastsync_lab.host.age import OF_THIS_TREE, OLDER, age
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.interrupt import guarded
from fastsync_lab.host.kernels import file_checksum, files_digest
from fastsync_lab.host.paths import build_dir, repo_root, write_whole
from fastsync_lab.host.shell import follow, run

LEAST_KILLED = 0.9
MEMORY_KIB = 4 << 20  # of a run: a mutant that never ends may fill a list
NOTICED = ("killed", "timeout", "segfault", "caught by type check")
DOCUMENT = "docs/mutants.md"
TESTS = "the tests"  # all of them, in the document
SELECTION = "pytest_add_cli_args_test_selection"
BEGAN_WITH = "tests.sha256"  # in the copy: the tests that its oldest results may be of
HEAD = f"""# Mutants: does a test notice a change of what judges results?

Written by `make mutants`. [mutmut](https://mutmut.readthedocs.io) changes the modules below in one
place at a time (a comparison, a constant, an argument, a condition, a word of a message) and runs
the unit tests. A mutant is killed when a test fails. At least {LEAST_KILLED:.0%} have to be, and
each that survives has its reason here. The tool changes nothing outside of functions, and no
properties. Tests stand in for that: each word of the kernel log's pattern has one, bars have a
second list in `tests/unit/test_study_bars.py`, and the property that says whether a bar is reached
only calls a function.
"""


@dataclass(frozen=True)
class Change:
    """A mutant that survived, by what it changed: lines without their indentation."""

    module: str
    old: str
    new: str


@dataclass(frozen=True)
class Outcome:
    """How many mutants a module had, and how many a test noticed."""

    module: str
    mutants: int
    killed: int


def parse_results(text: str) -> dict[str, str]:
    """What became of each mutant, from `mutmut results --all true`."""
    return dict(re.findall(r"^\s+(\S+): (.+)$", text, re.M))


def module_of(mutant: str) -> str:
    """The file that a mutant's name is of: "fastsync_lab.crash.oracle.x_name__mutmut_1"."""
    return mutant.rpartition(".")[0].replace(".", "/") + ".py"


def parse_change(mutant: str, diff: str) -> Change:
    """What a mutant changes, from `mutmut show`."""
    lines = [line for line in diff.splitlines() if not line.startswith(("---", "+++"))]
    old, new = (
        " ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+"
    )
    return Change(module_of(mutant), old, new)


def outcomes_of(results: Mapping[str, str], modules: Sequence[str]) -> list[Outcome]:
    """The numbers of each module, in their order."""
    all_of = Counter(module_of(mutant) for mutant in results)
    killed = Counter(module_of(mutant) for mutant, what in results.items() if what in NOTICED)
    return [Outcome(module, all_of[module], killed[module]) for module in modules]


def load_reasons(text: str) -> dict[Change, str]:
    """Why mutants may survive: [[survivor]] tables with module, old, new and why."""
    return {
        Change(row["module"], row["old"], row["new"]): row["why"]
        for row in tomllib.loads(text).get("survivor", [])
    }


def problems(
    outcomes: Sequence[Outcome], survivors: Sequence[Change], reasons: Mapping[Change, str]
) -> list[str]:
    """What is not as it has to be."""
    found = [
        f"{one.module}: only {one.killed} of {one.mutants} mutants are killed"
        for one in outcomes
        if one.killed < LEAST_KILLED * one.mutants or not one.mutants
    ]
    found += [
        f"{one.module}: nobody explains `{one.new}` in place of `{one.old}`"
        for one in survivors
        if one not in reasons
    ]
    return found + [
        f"{one.module}: tests/mutants.toml explains `{one.new}`, which no longer survives"
        for one in reasons
        if one not in survivors
    ]


def document(
    outcomes: Sequence[Outcome],
    survivors: Sequence[Change],
    reasons: Mapping[Change, str],
    digests: Mapping[str, str],
) -> str:
    """docs/mutants.md, of modules and TESTS with these digests."""
    every = Outcome(
        "all", sum(one.mutants for one in outcomes), sum(one.killed for one in outcomes)
    )
    lines = [HEAD, age_line(digests, digests), ""]
    lines += [
        "| module | mutants | killed | share | SHA-256 |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for one in (*outcomes, every):
        share = f"{one.killed / one.mutants:.1%}" if one.mutants else "–"
        digest = digests.get(one.module, "")
        lines.append(f"| {one.module} | {one.mutants} | {one.killed} | {share} | {digest} |")
    lines += [f"| {TESTS} |  |  |  | {digests[TESTS]} |"]
    lines += ["", "## Those that survive", ""]
    for survivor in survivors:
        why = reasons.get(survivor, "not explained")
        lines.append(f"- {survivor.module}: `{survivor.new}` in place of `{survivor.old}`: {why}")
    return "\n".join(lines if survivors else [*lines, "None."]) + "\n"


# --- the age of the figures ----------------------------------------------------------------------

ROW = re.compile(rf"^\| (\S+\.py|{TESTS}) \|.* ([0-9a-f]+) \|$", re.M)
AGE = re.compile(r"^The modules are .*$", re.M)


def digests_of(tree: Path, modules: Iterable[str]) -> dict[str, str]:
    """What the document has of each module; "" where there is none any more."""
    return {
        module: file_checksum(tree / module)[:12] if (tree / module).is_file() else ""
        for module in modules
    }


def tests_digest(tree: Path) -> str:
    """What the document has of the tests: a hash of all that are selected and there."""
    files = [tree / name for name in config_of(tree)[SELECTION]]
    return files_digest(file for file in files if file.is_file())[:12]


def age_line(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What has changed since the document was written; what it does not have is older."""
    modules = [name for name in now if name != TESTS]
    old = [module for module in modules if then.get(module) != now[module]]
    said = OF_THIS_TREE
    if old:
        some = f"{OF_THIS_TREE}, but for some {OLDER}: {', '.join(old)}"
        said = OLDER if len(old) == len(modules) else some
    return f"The modules are {said}. The tests are {age(then.get(TESTS), now[TESTS])}."


def with_age(text: str, tree: Path) -> str:
    """The document, saying what of it is older than a tree."""
    then = dict(ROW.findall(text))
    modules = digests_of(tree, (name for name in then if name != TESTS))
    return AGE.sub(age_line(then, {**modules, TESTS: tests_digest(tree)}), text, count=1)


def write_age() -> None:
    """Bring that line of the document up to date."""
    path = repo_root() / DOCUMENT
    write_whole(path, with_age(path.read_text(), repo_root()))


# --- running -------------------------------------------------------------------------------------


def config_of(tree: Path) -> dict[str, Any]:
    """What mutmut is told about a tree."""
    config: dict[str, Any] = tomllib.loads((tree / "pyproject.toml").read_text())["tool"]["mutmut"]
    return config


def copy_tree(target: Path) -> None:
    """Bring the copy up to date; what has not changed keeps its time, and so its results.

    mutmut does not see that a module has come to the list: then the copy is a new one.
    """
    if (target / "pyproject.toml").is_file():
        known = config_of(target)["only_mutate"]
        if set(config_of(repo_root())["only_mutate"]) - set(known):
            shutil.rmtree(target)
    if not target.exists():
        write_whole(target / BEGAN_WITH, tests_digest(repo_root()))
    names = run(["git", "ls-files", "-co", "--exclude-standard"], cwd=repo_root()).stdout
    for name in names.splitlines():
        origin, copy = repo_root() / name, target / name
        if not origin.is_file():
            copy.unlink(missing_ok=True)
        elif not copy.is_file() or copy.read_bytes() != origin.read_bytes():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(origin, copy)


def began_with(tree: Path) -> str:
    """The digest of the tests when the copy was new; "" of one that is older than this."""
    note = tree / BEGAN_WITH
    return note.read_text() if note.is_file() else ""


def mutmut(tree: Path, *arguments: str) -> str:
    """What mutmut says about the copy."""
    return run([sys.executable, "-m", "mutmut", *arguments], cwd=tree).stdout


def run_mutants(tree: Path, mutants: Sequence[str] = ()) -> None:
    """Run mutmut with one process, its output passed on: what is missing, or these mutants again.

    Raises FastsyncError when it fails.
    """
    limited = f"ulimit -v {MEMORY_KIB} && exec"
    script = f'cd "$1" && shift && {limited} "$0" -m mutmut run --max-children 1 "$@"'
    argv = ["sh", "-c", script, sys.executable, str(tree), *mutants]
    if follow(argv, lambda line: print(line, end="", flush=True)) != 0:
        raise FastsyncError("mutmut failed")


def results_of(tree: Path) -> dict[str, str]:
    """What has become of each mutant."""
    return parse_results(mutmut(tree, "results", "--all", "true"))


def missed_in(results: Mapping[str, str]) -> list[str]:
    """The mutants that no test noticed."""
    return [mutant for mutant, what in results.items() if what not in NOTICED]


def main() -> None:
    """Run what is missing, write the document; status 1 if something is not as it has to be."""
    tree = build_dir() / "mutants"
    copy_tree(tree)
    try:
        before = missed_in(results_of(tree))
        run_mutants(tree)
        results = results_of(tree)
        if again := [mutant for mutant in before if mutant in missed_in(results)]:
            run_mutants(tree, again)  # a test of them may have come since they survived
            results = results_of(tree)
        survivors = sorted(
            {parse_change(mutant, mutmut(tree, "show", mutant)) for mutant in missed_in(results)},
            key=lambda change: (change.module, change.old, change.new),
        )
    except FastsyncError as error:
        sys.exit(f"fastsync: {error}")
    modules = config_of(tree)["only_mutate"]
    outcomes = outcomes_of(results, modules)
    reasons = load_reasons((repo_root() / "tests" / "mutants.toml").read_text())
    digests = {**digests_of(tree, modules), TESTS: began_with(tree)}
    text = document(outcomes, survivors, reasons, digests)
    write_whole(repo_root() / DOCUMENT, with_age(text, repo_root()))
    found = problems(outcomes, survivors, reasons)
    print("\n".join(found) or f"all as it has to be: {DOCUMENT}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    guarded(main)
