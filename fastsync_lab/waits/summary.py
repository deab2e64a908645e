"""The experiment's tables: on the terminal, in docs/qasio-results.md and in the README."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from fastsync_lab.documents import replace_block
from fastsync_lab.figures import kernel_of, load_result
from fastsync_lab.paths import repo_root, results_dir, write_whole
from fastsync_lab.report import count, markdown, reached
from fastsync_lab.waits.figures import Line, Result, figures_of, judge, lines_of, schedulers_of
from fastsync_lab.waits.rows import NAME, OTHERS, Rows, load_rows

BASE = "mq-deadline"
TABLE_HEAD = (
    "benchmark",
    "call",
    "scheduler",
    "mean, ms",
    "p50",
    "p99",
    "max",
    "all rounds, s",
    "writer, MiB/s",
)

INTRO = """\
# Results of the experiment qasio

<!-- Written by `./fastsync report` from results/qasio-full-*.json. -->

File system calls beside a bulk buffered writer, by I/O scheduler. [qasio.md](qasio.md) says what
the benchmarks are and how to repeat this."""


README_HEAD = (
    "device",
    "benchmark",
    "call",
    "no writer",
    BASE,
    "least of all others",
    NAME,
    "writer",
)
README_LEAST_MS = 1.0  # what takes less under the base hardly waits


def by_call(result: Result) -> dict[tuple[str, str], list[Line]]:
    """All lines of a result, by benchmark and call."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in lines_of(result):
        groups.setdefault((line.benchmark, line.call), []).append(line)
    return groups


def table_lines(result: Result) -> list[list[str]]:
    """The table of one device: a line for each call under each scheduler, schedulers together."""
    return [
        [
            line.benchmark,
            line.call or "-",
            line.scheduler,
            *(f"{ms:.2f}" for ms in (line.mean_ms, line.p50_ms, line.p99_ms, line.max_ms)),
            f"{line.elapsed_s:.2f}",
            f"{line.writer_mib_s:.1f}",
        ]
        for group in by_call(result).values()
        for line in group
    ]


def readme_lines(result: Result, rows: Rows) -> list[list[str]]:
    """The README's table: p99 and max of the calls that wait under the base.

    The last column is what the writer gets under qasio, over what it gets under the base.
    """
    others = schedulers_of(OTHERS, rows)
    lines = []
    for (benchmark, call), group in by_call(result).items():
        of = {line.scheduler: line for line in group}
        if not {"no writer", BASE, NAME} <= of.keys() or of[BASE].p99_ms < README_LEAST_MS:
            continue
        beside = [line for line in group if line.scheduler in others]
        pairs = [
            *((of[name].p99_ms, of[name].max_ms) for name in ("no writer", BASE)),
            (min(line.p99_ms for line in beside), min(line.max_ms for line in beside)),
            (of[NAME].p99_ms, of[NAME].max_ms),
        ]
        lines.append(
            [
                result["device"],
                benchmark,
                call,
                *(f"{p99:.1f} / {most:.1f}" for p99, most in pairs),
                f"{of[NAME].writer_mib_s / of[BASE].writer_mib_s:.2f}",
            ]
        )
    return lines


def readme_text(results: Sequence[Result], rows: Rows) -> str:
    """The README's block."""
    return "\n\n".join(
        [
            f"p99 / max in ms, and what the writer gets, over what it gets under {BASE}:",
            markdown(
                README_HEAD,
                [line for result in results for line in readme_lines(result, rows)],
                texts=3,
            ),
            f"{reached(judge(rows, results))} are reached. "
            "All figures: [docs/qasio-results.md](docs/qasio-results.md).",
        ]
    )


MATRIX_HEAD = ("pattern", "scheduler", "requests/s", "CPU, us a request")


def matrix_lines(result: Result) -> list[list[str]]:
    """The table of the matrix on one device."""
    speed, cpu = figures_of(result, "speed"), figures_of(result, "cpu")
    return [
        [one.name, one.scheduler, f"{one.value:,.0f}", f"{other.value / 1e3:.2f}"]
        for one, other in zip(speed, cpu, strict=True)
    ]


def waits_line(result: Result) -> str:
    """What qasio saw and did in all of its cells of a result, by type of wait."""
    total: dict[str, dict[str, int]] = {}
    for cell in result["cells"]:
        if cell["scheduler"] == NAME and "benchmark" in cell:
            for kind, counters in cell["repetitions"][0]["waits"].items():
                for name, value in counters.items():
                    row = total.setdefault(kind, {})
                    row[name] = row.get(name, 0) + value
    return "; ".join(
        f"{kind}: {row['waits']} waits, {row['boosted']} boosted in the queue, {row['late']} at "
        f"insertion, {row['handle']} by the holder of a journal handle, {row['commit']} by a commit"
        for kind, row in total.items()
    )


def title_of(result: Result) -> str:
    """Kernel, device and how many runs a figure is the median of."""
    runs = min(len(cell["repetitions"]) for cell in result["cells"])
    return f"Linux {kernel_of(result)}, {result['device']} ({count(runs, 'run')} each)"


def results_text(results: Sequence[Result], rows: Rows) -> str:
    """docs/qasio-results.md."""
    parts = [INTRO]
    for result in results:
        judged = judge(rows, [result])
        parts += [
            f"## {title_of(result)}",
            markdown(TABLE_HEAD, table_lines(result), texts=3),
            f"What qasio saw: {waits_line(result)}.",
            "Direct I/O of 4 KiB on the device itself, without anybody who waits for write-back:",
            markdown(MATRIX_HEAD, matrix_lines(result)),
            f"{reached(judged)} are reached.",
        ]
        if short := [verdict for verdict in judged if not verdict.passed]:
            parts.append("\n".join(f"- {verdict}" for verdict in short))
    return "\n\n".join(parts) + "\n"


def print_aligned(lines: Sequence[Sequence[str]]) -> None:
    """Print a table; a head alone is none."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines if len(lines) > 1 else []:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)))


def print_waits(paths: Iterable[Path]) -> None:
    """Print every figure and the verdicts. Raises FastsyncError on a bad file."""
    results = [load_result(path) for path in paths]
    rows = load_rows(quick=False)
    for result in results:
        print(title_of(result))
        print_aligned([list(TABLE_HEAD), *table_lines(result)])
        print_aligned([list(MATRIX_HEAD), *matrix_lines(result)])
        print(f"Seen: {waits_line(result)}.")
        for verdict in judge(rows, [result]):
            print(verdict)


def write_waits() -> None:
    """Write docs/qasio-results.md and the README's block, if there are full results.

    Raises FastsyncError when the README lacks the block's marks.
    """
    paths = sorted(results_dir().glob(f"{NAME}-full-*.json"))
    results = [load_result(path) for path in paths if not path.name.endswith(".partial.json")]
    if not results:
        return
    rows = load_rows(quick=False)
    readme = repo_root() / "README.md"
    text = replace_block(readme.read_text(), NAME, readme_text(results, rows))
    write_whole(repo_root() / "docs" / "qasio-results.md", results_text(results, rows))
    write_whole(readme, text)
