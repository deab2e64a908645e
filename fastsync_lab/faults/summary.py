"""The results of the sweep: a JSON file, a table on the terminal, blocks in two documents."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastsync_lab.crash.builds import Builds, deciding
from fastsync_lab.crash.summary import explorer_digest
from fastsync_lab.faults.compare import (
    RULES,
    SAME_CALL,
    SETTLING,
    Case,
    Effect,
    Fault,
    Result,
    Verdict,
    compare,
)
from fastsync_lab.faults.guest import DEVICE_MIB, PROFILE
from fastsync_lab.faults.layout import KINDS
from fastsync_lab.host.kernels import files_digest
from fastsync_lab.host.options import CONTROL, MODES
from fastsync_lab.host.paths import results_dir
from fastsync_lab.machine.device import load_profile
from fastsync_lab.study.grid import Grid, Part, print_parts
from fastsync_lab.study.keeper import Keeper, age_of, whole_results, write_blocks

DOCUMENT, BLOCK = "docs/io-errors.md", "faults"
FORMAT = 3
# Of this folder: what is done and seen, not how it is compared and shown.
DECIDING = ("guest.py", "layout.py", "sweep.py", "workloads.py")


def keeper(name: str, cases: Sequence[Case], builds: Builds) -> Keeper[Result]:
    """Keeps the cases of a run of that name."""
    of_run = about(builds)
    return Keeper(
        results_dir() / f"faults-{name}.json",
        lambda results: result_of(cases, results, of_run),
        lambda result: [one for one in load_results(result) if one.case in cases],
        deciding(of_run),
    )


def about(builds: Builds) -> dict[str, Any]:
    """What holds for all of a run, as it is when the run begins."""
    return {
        "format": FORMAT,
        **builds.record,
        "sweeper_sha256": sweeper_digest(),
    }


def sweeper_digest() -> str:
    """A hash of the scripts, of what runs them and says what came of it, and of the device."""
    here = Path(__file__).parent
    own = files_digest(here / name for name in DECIDING)
    device = load_profile(PROFILE).module_parameters(DEVICE_MIB)
    decides = " ".join([own, explorer_digest(), *device])
    return hashlib.sha256(decides.encode()).hexdigest()[:16]


def result_of(
    cases: Sequence[Case], results: Sequence[Result], of_run: Mapping[str, Any]
) -> dict[str, Any]:
    """A run as JSON; `complete` once every case is there."""
    return {
        **of_run,
        "complete": {result.case for result in results} == set(cases),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "differences": compare(results)[1],
        "cases": [case_json(result) for result in results],
    }


def case_json(result: Result) -> dict[str, Any]:
    """A case: each effect once, and a line for each fault ("first op effect kind")."""
    effects = list(dict.fromkeys(fault.effect for fault in result.faults))
    return {
        "case": asdict(result.case),
        "calls": " ".join(result.calls),
        "seconds": result.seconds,
        "asked": result.asked,
        "made": result.made,
        "effects": [_effect_json(effect) for effect in effects],
        "faults": [
            f"{fault.first} {fault.op} {effects.index(fault.effect)} {fault.kind}"
            for fault in result.faults
        ],
    }


def _effect_json(effect: Effect) -> dict[str, Any]:
    errors = " ".join(f"{op}:{error}" for op, error in effect.errors)
    return {**asdict(effect), "errors": errors}


def load_results(result: Mapping[str, Any]) -> list[Result]:
    """The cases of a result."""
    return [_load_case(data) for data in result["cases"]]


def _load_case(data: Mapping[str, Any]) -> Result:
    effects = [_load_effect(one) for one in data["effects"]]
    faults = []
    for line in data["faults"]:
        first, op, effect, kind = line.split(" ", 3)
        faults.append(Fault(int(first), kind, int(op), effects[int(effect)]))
    calls = tuple(data["calls"].split())
    return Result(Case(**data["case"]), calls, faults, data["seconds"], data["asked"])


def _load_effect(data: Mapping[str, Any]) -> Effect:
    pairs = [word.split(":") for word in data["errors"].split()]
    errors = tuple((int(op), int(error)) for op, error in pairs)
    return Effect(**{**data, "errors": errors, "bugs": tuple(data["bugs"])})


# The requests that were to fail; those of them that were made again, and failed.
COLUMNS = ("operations", "asked", "made", *RULES, "different")


def table_rows(
    results: Sequence[Result], verdicts: Sequence[Verdict], differences: Sequence[str]
) -> list[tuple[str, ...]]:
    """A row a mode: what was done, and how many faults led to what stock ext4 does."""
    rows = []
    for mode in MODES:
        mine = [result for result in results if result.case.mode == mode]
        made = sum(result.made for result in mine)
        rules = Counter(one.rule for one in verdicts if one.case.mode == mode)
        different = rules[""]
        if mode == "off":  # request by request, without a verdict
            different = len(differences) - sum(not one.rule for one in verdicts)
            rules[SAME_CALL] = made - different
        operations = sum(len(result.calls) * (result.made + 1) for result in mine)
        asked = sum(result.asked for result in mine)
        counts = (asked, made, *(rules[rule] for rule in RULES), different)
        if mine:
            numbers = [f"{count:,}" for count in counts]
            rows.append((mode, f"{operations:,}", *numbers))
    return rows


def not_made(results: Iterable[Result]) -> str:
    """The cases some of whose requests were not made a second time, stock's among them; or ""."""
    thin = [
        f"{result.asked - result.made:,} of the {result.asked:,} of {result.case.name}"
        for result in results
        if result.made < result.asked
    ]
    return f"Requests that were not made a second time: {', '.join(thin)}." if thin else ""


def modes_of(results: Sequence[Result]) -> list[str]:
    """The modes that were run."""
    run = {result.case.mode for result in results}
    return [mode for mode in (CONTROL, *MODES) if mode in run]


def kind_rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """A row a kind of request: how many of them failed in each mode."""
    counts = Counter(
        (fault.kind, result.case.mode) for result in results for fault in result.faults
    )
    modes = modes_of(results)
    return [
        (kind, *(f"{counts[kind, mode]:,}" for mode in modes))
        for kind in KINDS
        if any(counts[kind, mode] for mode in modes)
    ]


def print_results(results: Sequence[Result]) -> list[str]:
    """A line a mode, and what was different, which is returned as well."""
    verdicts, differences = compare(results)
    rows = table_rows(results, verdicts, differences)
    print_parts([Grid(["mode", *COLUMNS], rows, texts=1)])
    for line in filter(None, [not_made(results), *differences]):
        print(line)
    return differences


def parts(result: Mapping[str, Any]) -> list[Part]:
    """What documents show: what failed, and what came of it."""
    results = load_results(result)
    thin = not_made(results)
    return [
        f"Kernel {result['kernel_release']}, modules {result['modules_sha256']} "
        f"({_age(result)}), {result['date'][:10]}, {sum(one.seconds for one in results):,.0f} s.",
        Grid(["mode", *COLUMNS], table_rows(results, *compare(results)), texts=1),
        *([thin] if thin else []),
        Grid(["requests that failed", *modes_of(results)], kind_rows(results), texts=1),
    ]


def sentence(result: Mapping[str, Any]) -> str:
    """The README's line on a kernel."""
    results = load_results(result)
    made = sum(one.made for one in results if one.case.mode != CONTROL)
    verdicts, differences = compare(results)
    own = sum(verdict.rule == SETTLING for verdict in verdicts)
    others = len(differences)
    as_on_stock = made - own - others
    settling = f" {own:,} are requests that stock does not make: each aborts the journal."
    return (
        f"I/O errors, on Linux {result['kernel_release']} (modules {_age(result)}): {made:,} "
        f"requests were made to fail. {as_on_stock:,} had the same effect as on "
        f"stock.{settling * bool(own)} {others:,} differ."
    )


def _age(result: Mapping[str, Any]) -> str:
    """Whether modules and sweeper are those of this tree, in words."""
    return age_of(result, sweeper=sweeper_digest())


def load() -> list[Mapping[str, Any]]:
    """The results of whole runs, one for each kernel series."""
    return whole_results("faults", FORMAT)


def write_faults() -> None:
    """Write results/faults-SERIES.json into docs/io-errors.md, and a sentence into README.md."""
    write_blocks(DOCUMENT, BLOCK, load(), parts, sentence)
