"""The result files of long runs: kept part by part, and written into two documents when whole."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from fastsync_lab.host.age import OLDER, age
from fastsync_lab.host.build import OURS, source_digest
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.paths import claim, repo_root, results_dir, write_json
from fastsync_lab.study.documents import write_block
from fastsync_lab.study.grid import Part as Paragraph
from fastsync_lab.study.grid import in_markdown
from fastsync_lab.study.rows import series_name

FRONT = "README.md"  # says in a sentence what came of a walk
PARTIAL = ".partial.json"  # what is finished of an interrupted run

Part = TypeVar("Part")
Result = Mapping[str, Any]


class Keeper(Generic[Part]):
    """Keeps parts in `path`'s *.partial.json until the run is whole, and takes them up again.

    There is one of a path at a time: another raises FastsyncError. `make` makes a result of parts,
    `load` the parts of a result. Parts are taken up only where all keys of a result that `same`
    names are what they would be now.
    """

    def __init__(
        self,
        path: Path,
        make: Callable[[Sequence[Part]], dict[str, Any]],
        load: Callable[[Mapping[str, Any]], list[Part]],
        same: Sequence[str],
    ) -> None:
        self._path = path
        self._partial = path.with_suffix(PARTIAL)
        self._claim = claim(path)
        self._make = make
        self.parts: list[Part] = self._kept(load, same)

    def _kept(
        self, load: Callable[[Mapping[str, Any]], list[Part]], same: Sequence[str]
    ) -> list[Part]:
        try:
            result = json.loads(self._partial.read_text())
            now = self._make([])
            return load(result) if all(result[key] == now[key] for key in same) else []
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def add(self, part: Part) -> None:
        """A part is finished."""
        self.parts.append(part)
        write_json(self._partial, self._make(self.parts))

    def finish(self) -> Path:
        """All are; where the result lies."""
        write_json(self._path, self._make(self.parts))
        self._partial.unlink(missing_ok=True)
        self._claim.close()
        return self._path


def tables_of(
    results: Sequence[Result], parts: Callable[[Result], list[Paragraph]]
) -> list[Paragraph]:
    """What documents show of some results, one beneath the other."""
    return [part for result in results for part in parts(result)]


def result_files(pattern: str) -> list[Path]:
    """The results of this pattern, by name; none of interrupted runs."""
    paths = sorted(results_dir().glob(f"{pattern}.json"))
    return [path for path in paths if not path.name.endswith(PARTIAL)]


def read_results(paths: Iterable[Path], form: int) -> list[Result]:
    """What is kept in these files, in the order of their names; a file may be missing.

    Raises FastsyncError for a file that is no result of that format.
    """
    return [read_result(path, form) for path in sorted(paths) if path.exists()]


def read_result(path: Path, form: int) -> Result:
    """What is kept in a file.

    Raises FastsyncError when it cannot be read, or is no result of that format.
    """
    try:
        result = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise FastsyncError(f"cannot read the results in {path}: {error}") from error
    if not isinstance(result, dict):
        raise FastsyncError(f"{path} holds no results")
    if (found := result.get("format")) != form:
        raise FastsyncError(
            f"{path} is of another version (format {found}, this one reads {form}); "
            "remove it, or measure it again"
        )
    return result


def write_tables(
    document: Path, name: str, results: Sequence[Result], parts: Callable[[Result], list[Paragraph]]
) -> None:
    """Write what is shown of results, if there are any, into the block `name` of a document.

    Raises FastsyncError when it lacks the marks.
    """
    if results:
        write_block(document, name, in_markdown(tables_of(results, parts)))


def age_of(result: Result, **deciding: str) -> str:
    """Whether the modules of a result are those that this tree makes now, in words.

    And what else decides, if that is older: its digest as it is now, by what it is called.
    """
    modules = age(result.get("source_sha256"), source_digest(series_name(result["kernel_release"])))
    ages = {one: age(result.get(f"{one}_sha256"), now) for one, now in deciding.items()}
    return ", ".join([modules, *(f"{one} {said}" for one, said in ages.items() if said == OLDER)])


def whole_results(kind: str, form: int) -> list[Result]:
    """The results of whole runs with our modules: results/KIND-SERIES.json.

    Raises FastsyncError for a file that is no result of that format.
    """
    paths = [path for path in result_files(f"{kind}-*") if "quick" not in path.name]
    results = read_results(paths, form)
    return [one for one in results if one.get("complete") and one.get("modules") == OURS]


def write_blocks(
    document: str,
    kind: str,
    results: Sequence[Result],
    parts: Callable[[Result], list[Paragraph]],
    sentence: Callable[[Result], str],
) -> None:
    """Write the tables of whole runs into a document, and a sentence into README.md.

    Raises FastsyncError when one of these lacks the marks named `kind`.
    """
    write_tables(repo_root() / document, kind, results, parts)
    if results:
        write_block(repo_root() / FRONT, kind, "\n\n".join(map(sentence, results)))
