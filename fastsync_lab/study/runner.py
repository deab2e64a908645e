"""Runs studies: builds, boots, measures, and goes on where a run was interrupted.

One guest for each study and device runs all its cells, each on a fresh file system; two guests run
at a time.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastsync_lab.host.build import OURS, build_modules, build_own_module, source_digest
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.fetch import fetch_kernel
from fastsync_lab.host.kernels import find_series
from fastsync_lab.host.paths import claim, write_json
from fastsync_lab.host.progress import Report, Tally
from fastsync_lab.host.shares import share_out
from fastsync_lab.machine.config import VmConfig
from fastsync_lab.machine.image import root_image
from fastsync_lab.machine.kernel_log import check_kernel_log
from fastsync_lab.machine.processor import DEFAULT_MIPS
from fastsync_lab.machine.trace import (
    UNSORTED,
    Layout,
    Trace,
    account,
    check_no_loss,
    parse_layout,
    parse_trace,
)
from fastsync_lab.machine.vm import Vm
from fastsync_lab.study.contract import STOCK, Cell, Output, Script, Study
from fastsync_lab.study.output import counters_of
from fastsync_lab.study.plan import (
    CELL_SH,
    Job,
    Setting,
    bash_of,
    cell_record,
    describe,
    plan,
    sections,
)
from fastsync_lab.study.rows import METRICS, Subjects, Values, check_metrics
from fastsync_lab.study.store import (
    DIGITS,
    FORMAT,
    kept_date,
    kept_runs,
    modules_of,
    partial_path,
    write_result,
)

PARALLEL_GUESTS = 2
SUMMED_UP = ("ops_per_s", "mean_ns", "requests_per_s", "elapsed_s")
BLOCK_LAYOUT = Layout((), rest=UNSORTED)


# --- one run -----------------------------------------------------------------------------------


def layout_of(parts: Mapping[str, str]) -> Layout:
    """Where things lie; all is unsorted on a file system that is not ext4."""
    if "dumpe2fs" not in parts:
        return BLOCK_LAYOUT
    return parse_layout(parts["dumpe2fs"], parts["journal"], parts["folders"])


def with_requests(subjects: Subjects, trace: Trace, layout: Layout) -> dict[str, Values]:
    """The figures of each subject, and what it asked of the device for each operation.

    Raises FastsyncError when the trace lacks the marks of one.
    """
    return {
        subject: {
            **values,
            **account(trace.phase(subject), layout).for_each(values["operations"]),
        }
        for subject, values in subjects.items()
    }


def measure(
    study: Study[Any], cell: Cell[Any], parts: Mapping[str, str], trace: str
) -> dict[str, Any]:
    """A run as a result file has it: its figures by subject, and notes of what was seen.

    Raises FastsyncError when the trace lost events, or the output is not as it has to be.
    """
    subjects = study.read(cell, Output(parts["result"], parts))
    if study.traced:
        check_no_loss(parts["stats"])
        subjects = with_requests(subjects, parse_trace(trace), layout_of(parts))
    for values in subjects.values():
        check_metrics(values)
    return {
        "mounted": parts.get("mounted", "").strip(),
        "counters": counters_of(parts),
        "subjects": {
            subject: {metric: round(value, DIGITS) for metric, value in values.items()}
            for subject, values in subjects.items()
        },
    }


class Guest:
    """A booted guest with the modules, the device and the programs that its study needs."""

    def __init__(self, vm: Vm, job: Job, setting: Setting) -> None:
        self._vm, self._job, self._setting = vm, job, setting
        study = job.study
        self._paths = {p.name: vm.stage(setting.programs[p.name]) for p in study.programs}
        self._cell_sh = vm.stage(CELL_SH)
        for name in study.modules:
            vm.run(f"insmod {vm.stage(setting.modules[name])}")
        vm.run(study.setup)
        flashdev = setting.modules["flashdev"]
        vm.load_device(job.profile, flashdev, capacity_mib=study.capacity_mib)
        vm.kernel_log()  # what the boot left

    def run_cell(self, cell: Cell[Any], run: int) -> dict[str, Any]:
        """Run one cell once. Raises FastsyncError when it fails or the kernel complains."""
        vm, study, runs = self._vm, self._job.study, self._job.runs_of(cell)
        vm.use_filesystem(self._setting.pairs[cell.system.modules])
        script: Script = study.script(cell, self._paths.__getitem__)
        bash = bash_of(self._job, cell, script, self._cell_sh, run=run, runs=runs)
        done = vm.run(bash, timeout_s=study.limit_s)
        log = vm.kernel_log()
        if check_kernel_log(log):
            raise FastsyncError(f"the kernel complained in {cell.name}: {vm.said(log)}")
        return measure(study, cell, sections(done.stdout), take(vm.out_dir / "trace"))


def take(trace: Path) -> str:
    """The text of a trace, which goes; nothing where there is none."""
    if not trace.exists():
        return ""
    text = trace.read_text(errors="replace")
    trace.unlink()
    return text


def summary(run: Mapping[str, Any]) -> str:
    """A run in a few words: a figure of each subject that has one of SUMMED_UP."""
    words = []
    for subject, values in run["subjects"].items():
        metric = next((name for name in SUMMED_UP if name in values), None)
        if metric:
            text = f"{values[metric] * METRICS[metric].factor:,.4g}"
            words.append(f"{subject} {text} {METRICS[metric].head.split(', ')[-1]}".strip())
    return ", ".join(words)


# --- a study on one device ---------------------------------------------------------------------


def run_job(
    job: Job, setting: Setting, stop: threading.Event, report: Report, tally: Tally
) -> Path:
    """Run what is missing of one study on one device; the path of the whole result.

    `stop` is set when another job has failed. Raises FastsyncError when a cell fails, or another
    command is at the same; runs finished before are kept.
    """
    with claim(partial_path(job.name)):
        return _run_job(job, setting, stop, report, tally)


def now() -> str:
    """The time, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _run_job(
    job: Job, setting: Setting, stop: threading.Event, report: Report, tally: Tally
) -> Path:
    environment = describe(job, setting)
    kept = kept_runs(job.name, whole=not job.quick)
    records = [cell_record(job, cell, environment) for cell in job.cells]
    for cell, record in zip(job.cells, records, strict=True):
        record["runs"] = kept.get(record["key"], [])[: job.runs_of(cell)]
    result: dict[str, Any] = {
        "format": FORMAT,
        "study": job.study.name,
        "title": job.study.axes(quick=job.quick).title,
        "device": job.profile.name,
        "complete": False,
        "date": kept_date(job.name, whole=not job.quick) or now(),
        "source_sha256": {name: setting.sources[name] for name in modules_of(environment)},
        "environment": environment,
        "cells": records,
    }
    done = sum(len(record["runs"]) for record in records)
    tally.keep(done)
    if done:
        report(f"{job.name}: {done} of {job.runs} runs are there from an earlier run")
    if done < job.runs:
        config = VmConfig(
            setting.tree,
            memory_mib=job.study.memory_mib,
            mips=job.mips,
            processor=setting.processor,
            root=job.study.image,
        )
        report(f"{job.name}: booting {setting.tree.release}")
        with Vm(config) as vm:
            guest = Guest(vm, job, setting)
            for cell, record in zip(job.cells, records, strict=True):
                while len(record["runs"]) < job.runs_of(cell):
                    if stop.is_set():
                        raise FastsyncError(f"{job.name}: stopped after {done} of {job.runs} runs")
                    run = guest.run_cell(cell, len(record["runs"]))
                    record["runs"].append(run)
                    result["date"] = now()
                    write_json(partial_path(job.name), result)
                    done += 1
                    tally.add(f"{job.name} {done}/{job.runs}: {cell.name}: {summary(run)}")
    return write_result(job.name, result)


# --- all of it ---------------------------------------------------------------------------------


def prepare_setting(studies: Sequence[Study[Any]], kernel: str, report: Report) -> Setting:
    """Fetch and build what the guests of these studies need."""
    tree = fetch_kernel(kernel, report=report)
    own = dict.fromkeys(name for study in studies for name in study.modules)
    sources = {name: source_digest(tree.series, name) for name in (OURS, *own)}
    modules = {name: build_own_module(name, tree, report) for name in ("flashdev", *own)}
    programs = {program.name: program for study in studies for program in study.programs}
    pairs = {x.modules for study in studies for x in (*study.full.systems, *study.quick.systems)}
    with ThreadPoolExecutor(PARALLEL_GUESTS) as pool:
        built = list(pool.map(lambda program: program.build(report), programs.values()))
    return Setting(
        tree=tree,
        pairs={x: build_modules(tree, stock=x == STOCK, report=report) for x in sorted(pairs)},
        modules=modules,
        programs=dict(zip(programs, built, strict=True)),
        images={study.image: root_image(study.image, report=report) for study in studies},
        sources=sources,
    )


def run_studies(
    studies: Sequence[Study[Any]],
    *,
    quick: bool,
    kernel: str,
    devices: Sequence[str] | None,
    mips: int = DEFAULT_MIPS,
    report: Report,
) -> list[Path]:
    """Run studies and return their result files, one for each study and device.

    Raises FastsyncError when anything fails; run again, it goes on with what is missing.
    """
    series = find_series(kernel)
    for study in studies:
        series.check_modules(study.modules)
    jobs = plan(studies, series=series.name, quick=quick, devices=devices, mips=mips)
    setting = prepare_setting(studies, kernel, report)
    stop = threading.Event()
    tally = Tally(sum(job.runs for job in jobs), "runs", report)

    def work(some: Iterator[Job]) -> dict[str, Path]:
        return {job.name: run_job(job, setting, stop, report, tally) for job in some}

    done = share_out(jobs, [work] * min(PARALLEL_GUESTS, len(jobs)), stop)
    found = {name: path for paths in done for name, path in paths.items()}
    return [found[job.name] for job in jobs]
