"""The results of xfstests: a table on the terminal, a block in docs/xfstests.md."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastsync_lab.host.options import CONTROL, MODES
from fastsync_lab.host.paths import repo_root
from fastsync_lab.study.grid import Grid, Part, print_parts
from fastsync_lab.study.keeper import (
    Result,
    age_of,
    read_results,
    result_files,
    write_tables,
)
from fastsync_lab.xfstests.results import (
    BETTER,
    DIED,
    FAIL,
    FLAKY,
    FORMAT,
    HUNG,
    NOT_RUN,
    OF_MODE,
    OPEN,
    OTHER,
    PASS,
    SAME,
    VARIES,
    WORSE,
    Run,
    Runs,
    compare,
    runs_of,
    verdict_of,
)

DOCUMENT, BLOCK = "docs/xfstests.md", "xfstests"
VERDICTS = (PASS, FAIL, NOT_RUN, HUNG, DIED)
COMPARISONS = (SAME, FLAKY, VARIES, WORSE, BETTER, OTHER, OPEN)  # each test has one
FAILURES = (VARIES, WORSE, OTHER)
COLUMNS = ("tests", *VERDICTS, *COMPARISONS)
# What a partial run of before had left open.
ASKED_FOR = tuple(f"generic/{number}" for number in ("040", "041", "388", "455", "475", "482"))


def comparisons(runs: Mapping[str, Runs], mode: str, tests: Iterable[str]) -> dict[str, str]:
    """What a mode has in each test, against stock."""
    return {test: compare(runs[CONTROL].get(test, []), runs[mode].get(test, [])) for test in tests}


def table_rows(runs: Mapping[str, Runs], tests: Sequence[str]) -> list[tuple[str, ...]]:
    """A row a mode: how many tests have which verdict, and which comparison with stock."""
    rows = []
    for mode in (CONTROL, *MODES):
        if mode not in runs:
            continue
        known = [test for test in tests if verdict_on(runs, mode, test) != OPEN]
        verdicts = Counter(verdict_on(runs, mode, test) for test in known)
        against = Counter(comparisons(runs, mode, tests).values())
        cells = [str(len(known)), *(str(verdicts[name]) for name in VERDICTS)]
        if mode == CONTROL:
            own = {FLAKY: str(verdicts[FLAKY]), OPEN: str(len(tests) - len(known))}
            cells += [own.get(name, "") for name in COMPARISONS]
        else:
            cells += [str(against[name]) for name in COMPARISONS]
        rows.append((mode, *cells))
    return rows


def differences(runs: Mapping[str, Runs], tests: Iterable[str]) -> list[tuple[str, str, str]]:
    """(mode, test, what) of every test that was run on both and is not as on stock."""
    tests = list(tests)
    return [
        (mode, test, what)
        for mode in runs
        if mode != CONTROL
        for test, what in comparisons(runs, mode, tests).items()
        if what != SAME and runs[mode].get(test) and runs[CONTROL].get(test)
    ]


def print_results(runs: Mapping[str, Runs], tests: Sequence[str]) -> bool:
    """A line a mode, then each difference; whether one of them is a failure of ours."""
    print_parts([Grid(["mode", *COLUMNS], table_rows(runs, tests), texts=1)])
    found = differences(runs, tests)
    for mode, test, what in found:
        print(f"{mode} {test}: {what} ({history(runs, mode, test)})")
    return any(what in FAILURES for _, _, what in found)


def history(runs: Mapping[str, Runs], mode: str, test: str) -> str:
    """The verdicts of both sides' runs and why a test failed, in words."""
    sides = ((CONTROL, runs[CONTROL].get(test, [])), (mode, runs[mode].get(test, [])))
    return "; ".join(f"{name} {', '.join(map(in_words, of))}" for name, of in sides)


def in_words(run: Run) -> str:
    """A run: its verdict, and why."""
    return f"{run.verdict} [{run.why}]" if run.why else run.verdict


# --- the document ------------------------------------------------------------------------------


def setting_of(data: Mapping[str, Any]) -> dict[str, str]:
    """All that decides a mode's verdicts but for the mode: what it has to share with stock."""
    return {name: value for name, value in data["key"].items() if name not in OF_MODE}


def comparable(modes: Mapping[str, Any]) -> dict[str, Any]:
    """The modes of a result that were run in the setting of stock."""
    stock = setting_of(modes[CONTROL])
    return {mode: data for mode, data in modes.items() if setting_of(data) == stock}


def left_out(modes: Mapping[str, Any]) -> list[Part]:
    """A line that names the modes that are not comparable, if there are any."""
    names = [mode for mode in MODES if mode in modes.keys() - comparable(modes).keys()]
    if not names:
        return []
    return [
        f"Left out: {', '.join(names)}. Their kernel, root image, device, checkout, scripts or "
        "machine was not stock's."
    ]


def ages(result: Result, modes: Mapping[str, Any]) -> str:
    """Whether this tree makes the modules of the modes that are ours, in words; of each by itself.

    Empty if none is.
    """
    found = {
        mode: age_of({**result, "source_sha256": data.get("source_sha256")})
        for mode, data in modes.items()
        if mode != CONTROL
    }
    if len(set(found.values())) == 1:
        found = {"ours": next(iter(found.values()))}
    text = ", ".join(f"{name} {age}" for name, age in found.items())
    return f" ({text})" if text else ""


def parts(result: Result) -> list[Part]:
    """What documents show of a kernel: the counts, the differences, the tests asked for."""
    modes = comparable(result["modes"])
    runs = {mode: runs_of(data) for mode, data in modes.items()}
    tests = sorted({test for of_mode in runs.values() for test in of_mode})
    seconds = sum(one.seconds for of in runs.values() for all_of in of.values() for one in all_of)
    modules = ", ".join(sorted({data["key"]["modules_sha256"] for data in modes.values()}))
    found = [
        f"- {mode}, {test}: {what} ({history(runs, mode, test)})"
        for mode, test, what in differences(runs, tests)
    ]
    return [
        f"Kernel {result['kernel_release']}, modules {modules}{ages(result, modes)}, xfstests "
        f"{result['tree_commit']}, {seconds:,} s of tests by the host's clock.",
        *left_out(result["modes"]),
        Grid(["mode", *COLUMNS], table_rows(runs, tests), texts=1),
        "\n".join(found) or "No test that ran on both differs.",
        asked_for(runs),
    ]


def verdict_on(runs: Mapping[str, Runs], mode: str, test: str) -> str:
    """The verdict of a test; what does not apply on stock does not apply on ours."""
    own = verdict_of(runs[mode].get(test, []))
    on_stock = verdict_of(runs[CONTROL].get(test, []))
    return NOT_RUN if (own, on_stock) == (OPEN, NOT_RUN) else own


def asked_for(runs: Mapping[str, Runs]) -> Grid:
    """A table of the tests in ASKED_FOR, a column a mode."""
    modes = [mode for mode in (CONTROL, *MODES) if mode in runs]
    rows = [(test, *(verdict_of(runs[mode].get(test, [])) for mode in modes)) for test in ASKED_FOR]
    return Grid(["test", *modes], rows, texts=1 + len(modes))


def load() -> list[Result]:
    """What the last runs left, one for each kernel series."""
    return read_results(result_files("xfstests-*"), FORMAT)


def write_xfstests() -> None:
    """Write results/xfstests-SERIES.json into docs/xfstests.md.

    Raises FastsyncError when the document lacks the marks.
    """
    write_tables(repo_root() / DOCUMENT, BLOCK, load(), parts)
