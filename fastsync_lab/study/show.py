"""Tables of figures, and how the terminal shows them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastsync_lab.host.age import OLDER
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.options import DEFAULT_INTERVAL_MS
from fastsync_lab.study.contract import Study, Table, required_of
from fastsync_lab.study.grid import Grid, drawn
from fastsync_lab.study.judge import LABELS, Verdict, judge
from fastsync_lab.study.rows import CLASS_METRICS, METRICS, Line, Place, Stat, sweeps
from fastsync_lab.study.store import Result

if TYPE_CHECKING:
    from rich.console import Console

Studies = Mapping[str, Study[Any]]
WIDTH = 124  # of the terminal, at least
EMPTY = "-"


# --- names -------------------------------------------------------------------------------------


def compared_name(study: Study[Any], place: Place) -> str:
    """What is compared with others that are at the same place otherwise."""
    return place.scheduler if study.compared == "scheduler" else place.system


def label(study: Study[Any], place: Place) -> str:
    """The same as a reader knows it; the interval where it is not the default."""
    name = compared_name(study, place)
    name = LABELS.get(name, name)
    ms = place.interval_ms
    return name if ms in (None, DEFAULT_INTERVAL_MS) else f"{name} {ms} ms"


def text_of(line: Line | None, metric: str) -> str:
    """A figure in a table."""
    if line is None or metric not in line.stats:
        return EMPTY
    return line.stats[metric].text(METRICS[metric].factor)


def ratio(line: Line | None, base: Line | None, metric: str) -> Stat | None:
    """A figure over another one; None where there is none."""
    if not line or not base or not {metric} <= line.stats.keys() & base.stats.keys():
        return None
    return line.stats[metric].over(base.stats[metric]) if base.value(metric) else None


def ratio_text(line: Line | None, base: Line | None, metric: str) -> str:
    """The same in a table; of a figure over itself there is no spread."""
    if line is base and line and metric in line.stats:
        return "1"
    found = ratio(line, base, metric)
    return found.text() if found else EMPTY


# --- tables ------------------------------------------------------------------------------------

Group = dict[str, Line]  # by what is compared


def grouped(study: Study[Any], lines: Iterable[Line]) -> dict[tuple[str, str], Group]:
    """Lines beside each other, by device and name."""
    groups: dict[tuple[str, str], Group] = {}
    for line in lines:
        place = line.place
        group = groups.setdefault((place.device, place.name), {})
        group.setdefault(compared_name(study, place), line)
    return groups


def in_groups(lines: Iterable[Line]) -> list[Line]:
    """Lines of one device and name together; a run takes them in the order of their modules."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        groups.setdefault((line.place.device, line.place.name), []).append(line)
    return [line for group in groups.values() for line in group]


def table_lines(table: Table, lines: Iterable[Line]) -> list[Line]:
    """The lines that a table has: those with any of its metrics."""
    return in_groups(x for x in lines if any(metric in x.stats for metric in table.metrics))


def table_grid(study: Study[Any], table: Table, lines: Sequence[Line]) -> Grid | None:
    """A line for each of table_lines(); None where there is none.

    A metric that is 0 everywhere is left out.
    """
    mine = table_lines(table, lines)
    if not mine:
        return None
    first, *rest = table.metrics
    shown = [name for name in rest if any(x.stats.get(name, Stat(0)).median for x in mine)]
    groups = grouped(study, mine)
    over = [name for name in table.over if any(name in group for group in groups.values())]
    texts = []
    for line in mine:
        group = groups[line.place.device, line.place.name]
        texts.append(
            [
                line.place.device,
                line.place.name,
                label(study, line.place),
                text_of(line, first),
                *(ratio_text(line, group.get(name), first) for name in over),
                *(text_of(line, name) for name in shown),
            ]
        )
    bases = [f"÷ {LABELS.get(name, name)}" for name in over]
    head = ["device", "workload", study.compared, METRICS[first].head, *bases]
    return Grid([*head, *(METRICS[name].head for name in shown)], texts, texts=3)


def beside_grid(study: Study[Any], lines: Sequence[Line]) -> Grid | None:
    """A line for each place, with what is compared beside each other; None without that.

    Raises FastsyncError when one is missing that the kernel has.
    """
    one = study.beside
    if one is None:
        return None
    texts = []
    for (device, name), group in grouped(study, lines).items():
        elsewhere = study.not_on(next(iter(group.values())).place.series)
        if missing := [x for x in one.names if x not in group and x not in elsewhere]:
            raise FastsyncError(f"{study.name}, {device}, {name}: the result lacks {missing[0]}")
        texts.append(
            [
                device,
                name,
                *(text_of(group.get(wanted), one.metric) for wanted in one.names),
                *(ratio_text(group.get(a), group.get(b), one.metric) for a, b in one.ratios),
                *(text_of(group.get(name), metric) for metric, names in one.also for name in names),
            ]
        )
    head = ["device", "workload"]
    names = [LABELS.get(name, name) for name in one.names]
    head += [f"{names[0]}, {METRICS[one.metric].head}", *names[1:]]
    head += [f"{LABELS.get(a, a)} ÷ {LABELS.get(b, b)}" for a, b in one.ratios]
    for metric, of in one.also:
        unit = " KiB/op" if metric in CLASS_METRICS else ""
        head += [f"{METRICS[metric].head}{unit}: {of[0]}", *of[1:]]
    return Grid(head, texts, texts=2)


def sweep_grid(lines: Sequence[Line]) -> Grid:
    """A sweep: KiB and operations a second by interval, a line for each device and mode."""
    series = sweeps(lines)
    intervals = [str(line.place.interval_ms) for line in next(iter(series.values()))]
    ends = {
        (line.place.device, line.place.system): line
        for line in lines
        if line.place.interval_ms is None
    }
    texts = []
    for (device, system), found in series.items():
        shown = (ends[device, "stock"], *found, ends[device, "ideal"])
        cells = [f"{text_of(line, 'ops_per_s')}; {text_of(line, 'kib')}" for line in shown]
        texts.append([device, system, *cells])
    head = ["device", "mode", "stock", *(f"{ms} ms" for ms in intervals), LABELS["ideal"]]
    return Grid(head, texts, texts=2)


# --- a control ---------------------------------------------------------------------------------

# By device and workload, then by file system: a line, and the control that it is held against.
Pairs = dict[tuple[str, str], dict[str, tuple[Line, Line]]]


def pairs_of(study: Study[Any], lines: Sequence[Line]) -> Pairs:
    """The speeds that a requirement holds against another workload's, on every file system."""
    controls = {
        workload: control
        for requirement in study.required
        if requirement.metric == "ops_per_s"
        for control in requirement.over.workloads
        for workload in requirement.where.workloads
    }
    there = {(x.place.device, x.place.workload, x.place.system): x for x in lines}
    found: Pairs = {}
    for line in lines:
        place = line.place
        control = there.get((place.device, controls.get(place.workload, ""), place.system))
        if control is not None:
            found.setdefault((place.device, place.workload), {})[place.system] = (line, control)
    return found


def pairs_grid(found: Pairs) -> Grid:
    """Each file system's rate as a share of its rate beside the control, and stock's own rates."""
    names = [name for name in next(iter(found.values())) if all(name in x for x in found.values())]
    texts = []
    for (device, workload), group in found.items():
        with_it, without = group["stock"]
        texts.append(
            [
                *(device, workload, without.place.workload),
                *(text_of(line, "neighbour_per_s") for line in (with_it, without)),
                *(text_of(line, "ops_per_s") for line in (with_it, without)),
                *(ratio_text(*group[name], "ops_per_s") for name in names),
            ]
        )
    head = ["device", "with", "without", "rounds/s with", "without", "stock, ops/s with", "without"]
    shares = [LABELS.get(name, name) for name in names]
    return Grid([*head, f"with ÷ without: {shares[0]}", *shares[1:]], texts, texts=3)


# --- what is said ------------------------------------------------------------------------------


def verdicts(studies: Studies, lines: Iterable[Line]) -> list[Verdict]:
    """Every target that these lines can show."""
    return judge(required_of(studies), lines)


def reached(found: Sequence[Verdict]) -> str:
    """How many targets are met."""
    return f"{sum(verdict.passed for verdict in found)} of {len(found)} targets"


def unstable(lines: Iterable[Line]) -> list[str]:
    """What no two runs agree about: figures of speed whose spread is large."""
    return [
        f"not stable: {one.place.device}, {one.place.name}, {one.place.system}: "
        f"{one.stats['ops_per_s'].text()} ops/s"
        for one in lines
        if "ops_per_s" in one.stats and not one.stats["ops_per_s"].stable
    ]


def environments(results: Iterable[Result]) -> list[str]:
    """Where figures come from, a line for each kernel and modelled processor."""
    places: dict[tuple[str, str, str], dict[str, None]] = {}
    for result in results:
        of = result.environment
        other = f" ({result.processor})" if result.processor else ""
        place = (of["kernel_release"], of["debian_version"], of["models_cpu"] + other)
        said = (*of["versions"], *of.get("tools", ()))  # old results name none
        places.setdefault(place, {}).update(dict.fromkeys(said))
    return [
        f"Linux {release} ({version}), virtual time, {cpu}; {', '.join(versions)}."
        if versions
        else f"Linux {release} ({version}), virtual time, {cpu}."
        for (release, version, cpu), versions in places.items()
    ]


def older_modules(results: Sequence[Result]) -> list[str]:
    """Which figures are of older modules than this tree's, in a sentence; none where none is."""
    old = [result for result in results if result.is_old]
    if old == list(results):
        return [f"All of it with modules {OLDER}."] if old else []
    named = []
    for study in dict.fromkeys(result.study for result in old):
        mine = [result for result in results if result.study == study]
        devices = [result.device for result in mine if result.is_old]
        named.append(study if len(devices) == len(mine) else f"{study} ({', '.join(devices)})")
    return [f"With modules {OLDER}: {', '.join(named)}."] if named else []


# --- the terminal ------------------------------------------------------------------------------


def of_one_device(grid: Grid) -> Grid:
    """A table without the device; a name that stands above is left out."""
    names = ["", *(name for _, name, *_ in grid.lines)]
    lines = [
        ["" if name == above else name, *rest]
        for above, (_, name, *rest) in zip(names, grid.lines, strict=False)
    ]
    return Grid(grid.head[1:], lines, grid.texts - 1)


def print_results(
    results: Sequence[Result], studies: Studies, *, console: "Console | None" = None
) -> None:
    """Print every figure beside those that it is compared with, then the verdicts."""
    from rich.console import Console

    out = console or Console()
    if out.width < WIDTH:
        out = Console(file=out.file, width=WIDTH)
    lines = [line for result in results for line in result.lines]
    for result in results:
        study = studies[result.study]
        title = f"{study.name}, {result.device}, {result.machine}: {result.title}"
        out.print(title, style="bold underline", highlight=False)
        for table in study.tables:
            if grid := table_grid(study, table, result.lines):
                out.print(drawn(of_one_device(grid)), highlight=False)
        for remark in study.remarks(result.lines):
            out.print(remark, highlight=False)
        out.print()
    if any("kib" in line.stats for line in lines):
        out.print(
            "data, journal, metadata (KiB) and flushes are for each operation; p50, p99: time of a "
            "sync call (SQLite: of a transaction).",
            style="dim",
            highlight=False,
        )
    for environment in environments(results):
        out.print(environment, style="dim", highlight=False)
    for line in unstable(lines):
        out.print(line, style="yellow", highlight=False)
    found = verdicts(studies, lines)
    if found:
        out.print(f"{reached(found)} are met.", highlight=False)
    for verdict in found:
        if not verdict.passed:
            out.print(str(verdict), style="yellow", highlight=False)
