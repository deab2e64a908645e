"""The experiment's tables: on the terminal, and in docs/qasio-results.md."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from fastsync_lab.figures import kernel_of, load_result
from fastsync_lab.paths import repo_root, results_dir
from fastsync_lab.report import count, markdown
from fastsync_lab.waits.figures import Line, Result, figures_of, judge, lines_of
from fastsync_lab.waits.rows import NAME, Rows, load_rows

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


def table_lines(result: Result) -> list[list[str]]:
    """The table of one device: a line for each call under each scheduler, schedulers together."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in lines_of(result):
        groups.setdefault((line.benchmark, line.call), []).append(line)
    return [
        [
            line.benchmark,
            line.call or "-",
            line.scheduler,
            *(f"{ms:.2f}" for ms in (line.mean_ms, line.p50_ms, line.p99_ms, line.max_ms)),
            f"{line.elapsed_s:.2f}",
            f"{line.writer_mib_s:.1f}",
        ]
        for group in groups.values()
        for line in group
    ]


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
        short = [verdict for verdict in judged if not verdict.passed]
        parts += [
            f"## {title_of(result)}",
            markdown(TABLE_HEAD, table_lines(result), texts=3),
            f"What qasio saw: {waits_line(result)}.",
            "Direct I/O of 4 KiB on the device itself, without anybody who waits for write-back:",
            markdown(MATRIX_HEAD, matrix_lines(result)),
            f"{len(judged) - len(short)} of {len(judged)} required figures are reached.",
        ]
        if short:
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
    """Write docs/qasio-results.md, if there are full results."""
    paths = sorted(results_dir().glob(f"{NAME}-full-*.json"))
    results = [load_result(path) for path in paths if not path.name.endswith(".partial.json")]
    if results:
        text = results_text(results, load_rows(quick=False))
        (repo_root() / "docs" / "qasio-results.md").write_text(text)
