"""The I/O error sweep: what a request is for, what is compared, what is kept."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.crash.builds import Builds
from fastsync_lab.faults import layout, summary
from fastsync_lab.faults.command import cases_of, result_name
from fastsync_lab.faults.compare import (
    SAME_CALL,
    SAME_SORT,
    UNATTENDED,
    Case,
    Effect,
    Fault,
    Result,
    compare,
)
from fastsync_lab.faults.guest import BEGINS, PROFILE, parse_requests, parse_runs
from fastsync_lab.faults.layout import (
    COMMIT_FLUSH,
    DATA,
    JOURNAL,
    JOURNAL_SUPER,
    METADATA,
    READ,
    RECORD,
    SUPER,
    SYNC_FLUSH,
    Layout,
    Sent,
)
from fastsync_lab.faults.workloads import FIRST_MARK, make_script, workload_names
from fastsync_lab.host.build import ModuleSet
from fastsync_lab.host.errors import FastsyncError, UsageError
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.host.options import MTIME_MODES
from fastsync_lab.host.shell import Completed
from fastsync_lab.machine.device import load_profile
from fastsync_lab.machine.image import RootImage
from fastsync_lab.study.grid import in_markdown

LAYOUT = Layout(frozenset(range(75, 1099)), 75, frozenset({1, 3, 4, 5}))
RECORD_FUA = Sent("WFSM", 688, 8, 9)


@pytest.mark.parametrize(
    ("request_sent", "following", "kind"),
    [
        (Sent("WS", 8792, 8, 9), None, DATA),
        (Sent("WSM", 672, 16, 9), None, JOURNAL),
        (RECORD_FUA, None, RECORD),
        (Sent("WSM", 688, 8, 9), None, RECORD),
        (Sent("FF", 0, 0, 9), RECORD_FUA, COMMIT_FLUSH),
        (Sent("FF", 0, 0, 9), Sent("WSM", 688, 8, 9), SYNC_FLUSH),
        (Sent("FF", 0, 0, 9), None, SYNC_FLUSH),
        (Sent("FF", 0, 0, 9), Sent("RFSM", 688, 8, 9), SYNC_FLUSH),
        (Sent("WFSM", 600, 8, 9), None, JOURNAL_SUPER),
        (Sent("WM", 40, 8, 9), None, METADATA),
        # They may begin within a block.
        (Sent("WM", 44, 4, 9), None, METADATA),
        (Sent("WSM", 692, 8, 9), None, RECORD),
        (Sent("WFSM", 0, 8, 9), None, SUPER),
        (Sent("RM", 40, 8, 9), None, READ),
    ],
)
def test_kind(request_sent: Sent, following: Sent | None, kind: str) -> None:
    assert LAYOUT.kind(request_sent, following) == kind


DUMPE2FS = """\
Group 0: (Blocks 0-32767)
  Primary superblock at 0, Group descriptors at 1-1
  Reserved GDT blocks at 2-4
  Block bitmap at 5 (+5), csum 0x1
  Inode bitmap at 6 (+6), csum 0x2
  Inode table at 8-9 (+8)
"""


def fake_tools(monkeypatch: pytest.MonkeyPatch, blocks: dict[int, str]) -> None:
    """dumpe2fs and debugfs as they answer for the image "fs"; the blocks of inodes."""
    answers: dict[tuple[str, ...], str] = {("/sbin/dumpe2fs", "fs"): DUMPE2FS}
    for ino, text in blocks.items():
        answers["/sbin/debugfs", "-R", f"blocks <{ino}>", "fs"] = text
    monkeypatch.setattr(layout, "run", lambda argv: Completed(0, answers[tuple(argv)], ""))


def test_layout_of_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = {8: "20 21 22 23 \n", 2: "10 \n", 7: "0 3 11 \n", 11: "12 13 \n"}
    fake_tools(monkeypatch, blocks)
    found = layout.read_layout(Path("fs"))
    assert found == Layout(
        frozenset({20, 21, 22, 23}), 20, frozenset({1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13})
    )
    fake_tools(monkeypatch, {**blocks, 8: "20 21 23 24 \n"})
    problem = "^the journal is not in one piece: its requests cannot be told apart$"
    with pytest.raises(FastsyncError, match=problem):
        layout.read_layout(Path("fs"))


TRACE = """\
 crashops-7 [000] .. 1.1: tracing_mark_write: mark 3
 crashops-7 [000] .. 1.2: block_rq_issue: 252,0 WS 4096 () 8792 + 8 none,0,0 [crashops]
 crashops-7 [000] .. 1.3: tracing_mark_write: mark 4
 kworker-9 [000] .. 1.4: block_rq_complete: 252,0 FF () 18446744073709551615 + 0 none,0,0 [-5]
"""


def test_requests_of_a_trace() -> None:
    assert list(parse_requests(TRACE)) == [
        Sent("WS", 8792, 8, 4),
        Sent("FF", 18446744073709551615, 0, 5),
    ]


def answer_of(log: str, found: str = "[]") -> str:
    """What the guest says of a run."""
    recovered = f'{{"id": "x", "mount": 0, "folders": 0, "log": {found}, "delta": [], "files": []}}'
    return "=== part\n".join(["=== run\n", "", log, f"{recovered}\n", "0\n"])


def test_the_log_of_a_run_is_without_the_recovery_of_the_one_before() -> None:
    before = "[    1.0] EXT4-fs (flash0): recovery complete\n"
    begins, later = f"[    1.1] {BEGINS}\n", "[    1.2] Aborting journal on device flash0-8.\n"
    (ran,) = parse_runs(answer_of(f"{before}{begins}{later}", '["recovery", "complete"]'))
    assert (ran.log, ran.recovery_log) == (later, ("recovery", "complete"))
    (ran,) = parse_runs(answer_of(later))  # so much was logged that the beginning is lost
    assert ran.log == later


def test_answer_that_is_not_whole() -> None:
    with pytest.raises(FastsyncError, match="2 parts"):
        list(parse_runs("=== run\n{}\n=== part\nx\n"))


@pytest.mark.parametrize("name", workload_names())
def test_scripts_arm_the_device_once(name: str) -> None:
    script = make_script(name)
    assert script.text.count(FIRST_MARK) == 1
    assert FIRST_MARK in script.lines[script.prepared - 1]


FINE = Effect((), aborted=False, read_only=False, lost=False, unsound=False)
DOWN = Effect(((1, 5), (3, 5), (4, 5)), aborted=True, read_only=True, lost=False, unsound=False)
LATER = Effect(((3, 5), (4, 5)), aborted=True, read_only=True, lost=False, unsound=False)
CALLS = ("write", "fsync", "sleep", "write", "fsync")


def result(mode: str, *faults: Fault) -> Result:
    case = Case("overwrite", mode, "remount-ro", False)
    return Result(case, CALLS, list(faults), asked=len(faults))


STOCK = result("stock", Fault(1, JOURNAL, 1, DOWN), Fault(2, RECORD, 2, LATER))


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        (Fault(1, JOURNAL, 1, DOWN), SAME_CALL),
        # Another fsync, the same reaction.
        (Fault(1, JOURNAL, 4, Effect(((4, 5),), True, True, False, False)), SAME_SORT),
        # A carried commit while a sync is under way that does not need it.
        (Fault(1, RECORD, 1, LATER), UNATTENDED),
        (Fault(1, JOURNAL, 1, FINE), ""),
        (Fault(1, RECORD, 2, FINE), ""),
        (Fault(1, RECORD, 1, Effect((), True, True, False, False)), ""),
        # Somebody's sync in between was told that all is well.
        (Fault(1, RECORD, 0, LATER), ""),
        (Fault(1, JOURNAL, 1, Effect(DOWN.errors, True, True, True, False)), ""),
        (Fault(1, DATA, 2, LATER), ""),
        # The journal is gone, and a later write and fsync succeed.
        (Fault(1, JOURNAL, 1, Effect(((1, 5),), True, True, False, False)), ""),
    ],
)
def test_rules(fault: Fault, rule: str) -> None:
    (verdict,), differences = compare([STOCK, result("defer", fault)])
    assert verdict.rule == rule
    assert bool(differences) == (rule == "")


def test_off_is_identical_or_different() -> None:
    assert compare([STOCK, result("off", *STOCK.faults)]) == ([], [])
    assert len(compare([STOCK, result("off", STOCK.faults[0])])[1]) == 1
    other = Fault(2, RECORD, 2, DOWN)
    assert len(compare([STOCK, result("off", STOCK.faults[0], other)])[1]) == 1


def test_on_a_dead_device_the_first_request_of_a_call_may_be_another() -> None:
    fault = Fault(1, SYNC_FLUSH, 1, DOWN)
    assert compare([STOCK, result("defer", fault)])[0][0].rule == ""
    stock, ours, worse = (
        Result(Case("overwrite", mode, "remount-ro", True), CALLS, faults)
        for mode, faults in (
            ("stock", [Fault(1, DATA, 1, DOWN)]),
            ("defer", [fault]),
            ("truncate", [Fault(1, SYNC_FLUSH, 1, LATER)]),
        )
    )
    verdicts, differences = compare([stock, ours, worse])
    assert [verdict.rule for verdict in verdicts] == [SAME_CALL, ""]
    assert len(differences) == 1


def test_variants_are_not_mixed() -> None:
    dead = Result(Case("overwrite", "defer", "remount-ro", True), CALLS, [STOCK.faults[0]])
    assert len(compare([STOCK, dead])[1]) == 1


def test_cases() -> None:
    everything = cases_of("all", None, "6.12")
    assert len(set(everything)) == len(everything) == len(workload_names()) * 6 + 3 * 5 * 2
    mapped = cases_of("mmap", None, "6.12")
    on_stock = {case for case in everything if case.mode == "stock"}
    assert len({case for case in mapped if case.mode != "stock"}) == 3 * 4 + 1
    assert {case.workload for case in mapped if case.mode != "stock"} == {"mmap"}
    assert {case for case in mapped if case.workload != "mmap"} < on_stock < set(everything)
    assert on_stock < {case for case in mapped if case.mode == "stock"}
    assert {case.mode for case in cases_of("mmap", None, "6.1")} == {"stock", *MTIME_MODES}
    assert result_name(everything, "6.12") == "6.12"
    assert result_name(cases_of("mmap", ["defer"], "6.12"), "6.12") == "quick-6.12-mmap-defer"
    with pytest.raises(UsageError, match="no workload 'x': allowed are"):
        cases_of("x", None, "6.12")
    with pytest.raises(UsageError, match=r"no mode 'stock' on Linux 6\.12: allowed are"):
        cases_of("all", ["stock"], "6.12")


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builds:
    monkeypatch.setattr(summary, "results_dir", lambda: tmp_path)
    for name in ("jbd2.ko", "ext4.ko"):
        (tmp_path / name).write_text(name)
    tree = KernelTree("6.12", "6.12.1", "6.12.1-1", tmp_path, tmp_path, tmp_path, tmp_path)
    modules = ModuleSet("fastsync", tmp_path / "jbd2.ko", tmp_path / "ext4.ko")
    image = RootImage(tmp_path, tmp_path, "a", {})
    return Builds(tree, modules, modules, tmp_path / "jbd2.ko", image)


def test_interrupted_run_goes_on(builds: Builds, tmp_path: Path) -> None:
    ours = result("defer", *STOCK.faults)
    cases = [STOCK.case, ours.case]
    summary.keeper("x", cases, builds).add(STOCK)
    again = summary.keeper("x", cases, builds)
    assert again.parts == [STOCK]
    again.add(ours)
    kept = json.loads(again.finish().read_text())
    assert kept["complete"] and kept["differences"] == []
    assert summary.load_results(kept) == [STOCK, ours]
    begun = summary.keeper("x", cases, builds)
    (tmp_path / "ext4.ko").write_text("changed")
    begun.add(STOCK)  # which guests had loaded before
    del begun
    assert summary.keeper("x", cases, builds).parts == []
    (tmp_path / "ext4.ko").write_text("ext4.ko")
    assert summary.keeper("x", cases, builds).parts == [STOCK]


@pytest.mark.parametrize("what", ["flashdev", "scripts"])
def test_another_device_or_other_scripts_begin_anew(
    builds: Builds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    summary.keeper("x", [STOCK.case], builds).add(STOCK)
    assert summary.keeper("x", [STOCK.case], builds).parts == [STOCK]
    if what == "scripts":
        monkeypatch.setattr(summary, "sweeper_digest", lambda: "changed")
    else:
        (tmp_path / "other.ko").write_text("other")
        builds = replace(builds, flashdev=tmp_path / "other.ko")
    assert summary.keeper("x", [STOCK.case], builds).parts == []


def test_bugs_are_kept() -> None:
    oops = Effect((), False, False, False, False, bugs=("WARNING: a", "Oops"))
    one = result("defer", Fault(1, JOURNAL, 1, oops), Fault(2, RECORD, 1, FINE))
    kept = json.loads(json.dumps({"cases": [summary.case_json(one)]}))
    assert summary.load_results(kept) == [one]


def test_tables_add_up(builds: Builds) -> None:
    results = [STOCK, result("off", *STOCK.faults), result("defer", Fault(1, RECORD, 2, FINE))]
    cases = [one.case for one in results]
    kept = summary.result_of(cases, results, summary.about(builds))
    text = in_markdown(summary.parts(kept))
    assert "| mode | operations | asked | made | same call |" in text
    assert "| off | 15 | 2 | 2 | 2 | 0 | 0 | 0 | 0 |" in text
    assert "| defer | 10 | 1 | 1 | 0 | 0 | 0 | 0 | 1 |" in text
    assert "a second time" not in text
    assert "| journal block | 1 | 1 | 0 |" in text
    assert summary.sentence(kept) == (
        "I/O errors, on Linux 6.12.1 (modules of this tree): 3 requests were made to fail. "
        "2 had the same effect as on stock. "
        "1 differ."
    )


def test_a_case_that_is_thin_is_named(
    capsys: pytest.CaptureFixture[str], builds: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stock's, too: what ours is compared with."""
    monkeypatch.setenv("COLUMNS", "120")
    ours = replace(result("defer", STOCK.faults[0]), asked=1200)
    results = [replace(STOCK, asked=3), ours]
    said = (
        "Requests that were not made a second time: 1 of the 3 of overwrite-stock-remount-ro-once, "
        "1,199 of the 1,200 of overwrite-defer-remount-ro-once."
    )
    kept = summary.result_of([one.case for one in results], results, summary.about(builds))
    assert [(one["asked"], one["made"]) for one in kept["cases"]] == [(3, 2), (1200, 1)]
    assert summary.load_results(json.loads(json.dumps(kept))) == results
    text = in_markdown(summary.parts(kept))
    assert "| defer | 10 | 1,200 | 1 | 1 | 0 | 0 | 0 | 0 |" in text and said in text
    assert summary.print_results(results) == []
    table, shown = capsys.readouterr().out.split("Requests that")
    assert table.split()[:4] == ["mode", "operations", "asked", "made"]
    assert f"Requests that{shown}" == f"{said}\n"


def test_digest_is_of_all_that_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The scripts and what judges, the explorer's oracle and the kernel's bugs, the device."""
    for name in summary.DECIDING:
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(summary, "__file__", str(tmp_path / "summary.py"))
    seen = [summary.sweeper_digest()]
    assert len(seen[0]) == 16
    (tmp_path / "sweep.py").write_text("changed")
    seen.append(summary.sweeper_digest())
    with monkeypatch.context() as explorer:
        explorer.setattr(summary, "explorer_digest", lambda: "changed")
        seen.append(summary.sweeper_digest())
    profile = load_profile(PROFILE)
    with monkeypatch.context() as words:
        words.setattr(summary, "load_profile", lambda _: replace(profile, description="changed"))
        assert summary.sweeper_digest() == seen[1]
    monkeypatch.setattr(summary, "load_profile", lambda _: replace(profile, flush_ns=1))
    seen.append(summary.sweeper_digest())
    assert len(set(seen)) == 4
