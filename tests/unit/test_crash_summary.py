"""The explorer's results: what is kept, what the terminal and the documents show."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fastsync_lab.crash import summary
from fastsync_lab.crash.builds import Builds, Recovery
from fastsync_lab.crash.case import Case, Failure, Outcome, Request
from fastsync_lab.host.build import ModuleSet
from fastsync_lab.host.errors import FastsyncError
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine.image import RootImage
from fastsync_lab.study.grid import in_markdown
from tests.unit.crashes import CASE, FAILURE


def outcome(case: Case = CASE, *failures: Failure) -> Outcome:
    return Outcome(case, 40, 30, 200, 60, 20, 900, 3, 2, 12.5, list(failures))


def test_shortest_failure_is_shown() -> None:
    later = Failure("20.none", 12, ("x",), "command", "image")
    lines = summary.failure_lines(outcome(CASE, later, FAILURE))
    assert lines[0].startswith("FAILED: 2 of 260 states")
    assert f"  again: {FAILURE.command}" in lines
    assert summary.failure_lines(outcome()) == []


def test_five_problems_of_a_failure_are_shown() -> None:
    many = replace(FAILURE, problems=tuple(f"problem {number}" for number in range(7)))
    assert summary.failure_lines(outcome(CASE, many)) == [
        "FAILED: 1 of 260 states of overwrite-defer-ordered-100-1; "
        "the first after 9 calls that returned:",
        *(f"    problem {number}" for number in range(5)),
        f"  again: {FAILURE.command}",
        "  image: build/x.img",
    ]


def test_a_failure_of_a_recording_has_no_image() -> None:
    lines = summary.failure_lines(outcome(CASE, replace(FAILURE, state="", image="")))
    assert lines[-1] == f"  again: {FAILURE.command}"


def words_of(text: str) -> list[str]:
    """Lines without what stands between their words."""
    return [" ".join(line.split()) for line in text.splitlines()]


def test_outcomes_on_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    head = (
        "workload mode journal operations cuts states cut again by ours not on stock seconds",
        "overwrite defer ordered 40 30 200 60 20 0 12",
    )
    summary.print_outcomes([outcome()])
    assert words_of(capsys.readouterr().out) == [*head]
    failed = outcome(Case("mmap", "off", "quota"), FAILURE)
    summary.print_outcomes([outcome(), failed])
    shown = capsys.readouterr().out
    assert shown.endswith("\n")
    assert words_of(shown) == [
        *head,
        "mmap off quota 40 30 200 60 20 1 12",
        "together 80 60 400 120 40 1 25",
        *words_of("\n".join(summary.failure_lines(failed))),
    ]


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builds:
    monkeypatch.setattr(summary, "results_dir", lambda: tmp_path)
    for name in ("jbd2.ko", "ext4.ko"):
        (tmp_path / name).write_text(name)
    modules = ModuleSet("fastsync", tmp_path / "jbd2.ko", tmp_path / "ext4.ko")
    kernel = tmp_path / "vmlinuz"
    kernel.write_text("kernel")
    tree = KernelTree("6.12", "6.12.1", "6.12.1-1", kernel, tmp_path, tmp_path, tmp_path)
    image = RootImage(tmp_path, tmp_path, "a", {})
    return Builds(tree, modules, modules, tmp_path / "jbd2.ko", image)


def result_of(request: Request, outcomes: Sequence[Outcome], builds: Builds) -> dict[str, Any]:
    return summary.result_of(request, outcomes, summary.about(request, builds))


def test_interrupted_run_goes_on(builds: Builds, tmp_path: Path) -> None:
    other = Case("append", "defer", "ordered")
    stock = replace(CASE, mode="stock")
    request = Request((CASE, other, stock), 200)
    summary.keeper("x", request, builds).add(outcome(CASE, FAILURE))
    partial = json.loads((tmp_path / "crash-x.partial.json").read_text())
    assert partial["complete"] is False
    again = summary.keeper("x", request, builds)
    assert again.parts == [outcome(CASE, FAILURE)]
    again.add(outcome(other))
    again.add(outcome(stock, FAILURE))
    result = json.loads(again.finish().read_text())
    assert [case["case"]["mode"] for case in result["cases"]] == ["defer", "defer", "stock"]
    assert [one["on_stock"] for case in result["cases"] for one in case["failures"]] == [True, True]
    assert result["complete"]
    assert not (tmp_path / "crash-x.partial.json").exists()


def test_other_modules_or_another_root_begin_anew(builds: Builds, tmp_path: Path) -> None:
    request = Request((CASE,), 200)
    summary.keeper("x", request, builds).add(outcome())
    other_root = replace(builds, image=replace(builds.image, digest="b"))
    assert summary.keeper("x", request, other_root).parts == []
    assert summary.keeper("x", request, builds).parts == [outcome()]
    (tmp_path / "ext4.ko").write_text("changed")
    assert summary.keeper("x", request, builds).parts == []


def test_modules_are_those_of_the_beginning(builds: Builds, tmp_path: Path) -> None:
    """Guests have loaded them; somebody may build others meanwhile."""
    request = Request((CASE,), 200)
    begun = summary.keeper("x", request, builds)
    before = summary.about(request, builds)
    (tmp_path / "ext4.ko").write_text("changed")
    begun.add(outcome())
    kept = json.loads((tmp_path / "crash-x.partial.json").read_text())
    assert kept["modules_sha256"] == before["modules_sha256"]
    del begun
    assert summary.keeper("x", request, builds).parts == []


def test_one_run_at_a_time_writes_a_result(builds: Builds) -> None:
    request = Request((CASE,), 200)
    begun = summary.keeper("x", request, builds)
    with pytest.raises(FastsyncError, match=r"another run is writing crash-x\.json"):
        summary.keeper("x", request, builds)
    summary.keeper("y", request, builds)
    begun.finish()
    summary.keeper("x", request, builds)


def test_another_machine_or_its_modules_begin_anew(builds: Builds, tmp_path: Path) -> None:
    """What recovers decides a result, too."""
    request = Request((CASE,), 200)
    kernel = tmp_path / "linux"
    kernel.write_text("linux")
    uml = replace(builds.tree, release="6.12.1-uml", vmlinuz=kernel, variant="uml")
    (tmp_path / "other.ko").write_text("other")
    other = replace(builds.stock, ext4=tmp_path / "other.ko")
    in_uml = replace(builds, recovery=Recovery(uml, builds.stock, builds.subject))
    summary.keeper("x", request, in_uml).add(outcome())
    assert summary.keeper("x", request, in_uml).parts == [outcome()]
    recoveries = [Recovery(uml, other, builds.subject), Recovery(uml, builds.stock, other)]
    for changed in (builds, *(replace(builds, recovery=one) for one in recoveries)):
        assert summary.keeper("x", request, changed).parts == []
    kernel.write_text("another linux")
    assert summary.keeper("x", request, in_uml).parts == []


def test_other_judges_begin_anew(builds: Builds, monkeypatch: pytest.MonkeyPatch) -> None:
    request = Request((CASE,), 200)
    summary.keeper("x", request, builds).add(outcome())
    assert summary.keeper("x", request, builds).parts == [outcome()]
    monkeypatch.setattr(summary, "explorer_digest", lambda: "changed")
    assert summary.keeper("x", request, builds).parts == []


def test_digest_is_of_what_runs_and_judges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, programs = tmp_path / "code", tmp_path / "programs"
    for folder in (code, programs):
        folder.mkdir()
    for file in ("oracle.py", "summary.py", "table.py"):
        (code / file).write_text(file)
    for file in ("crashops.c", "cpubench.c"):
        (programs / file).write_text(file)
    monkeypatch.setattr(summary, "__file__", str(code / "summary.py"))
    monkeypatch.setattr(summary, "programs_source", lambda: programs)
    monkeypatch.setattr(summary, "ALSO_DECIDING", ("also.py",))
    (tmp_path / "also.py").write_text("also")
    before = summary.explorer_digest()
    assert len(before) == 16
    for shown in (code / "table.py", code / "summary.py", programs / "cpubench.c"):
        shown.write_text("changed")
        assert summary.explorer_digest() == before
    seen = {before}
    for deciding in (code / "oracle.py", programs / "crashops.c", tmp_path / "also.py"):
        deciding.write_text("changed")
        seen.add(summary.explorer_digest())
    (code / "oracle.py").rename(code / "other.py")
    assert len(seen | {summary.explorer_digest()}) == 5


def test_results_go_into_the_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    monkeypatch.setattr(summary, "write_blocks", lambda *arguments: written.append(arguments))
    monkeypatch.setattr(summary, "load", list)
    summary.write_crash()
    assert written == [(summary.DOCUMENT, "crash", [], summary.parts, summary.sentence)]


def test_a_result_says_what_it_is_of(builds: Builds) -> None:
    result = result_of(Request((CASE,)), [outcome()], builds)
    assert result["modules"] == "fastsync"
    assert datetime.fromisoformat(result["date"]).utcoffset() == timedelta(0)


def test_a_result_of_an_older_explorer_says_so(builds: Builds) -> None:
    result = result_of(Request((CASE,)), [outcome()], builds)
    assert "(modules of this tree): " in summary.sentence(result)
    older = {**result, "explorer_sha256": "older"}
    said = "of this tree, explorer older than this tree's)"
    assert f"(modules {said}: " in summary.sentence(older)
    assert f"({said}, seed 1" in in_markdown(summary.parts(older))


def test_the_whole_block(builds: Builds) -> None:
    other = replace(FAILURE, problems=("f: size is 0",))
    outcomes = [
        outcome(),
        outcome(Case("append", "off", "ordered", seed=2), FAILURE),
        outcome(Case("append", "off", "1k-blocks"), FAILURE, other),
        outcome(Case("append", "stock", "1k-blocks"), FAILURE),
    ]
    result = result_of(Request(tuple(one.case for one in outcomes)), outcomes, builds)
    result["date"] = "2026-11-25T05:22:06+00:00"
    rest = "seed 1, 2, 2026-11-25; modes defer, off"
    assert (
        in_markdown(summary.parts(result))
        == f"""\
Kernel 6.12.1, modules {result["modules_sha256"]} (of this tree), {rest}.

| workload | operations | cuts | states | cut again | by ours | not on stock | seconds |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| overwrite | 40 | 30 | 200 | 60 | 20 | 0 | 12 |
| append | 80 | 60 | 400 | 120 | 40 | 2 | 25 |
| together | 120 | 90 | 600 | 180 | 60 | 2 | 38 |

| kind | workloads | operations | cuts | states | cut again | by ours | not on stock | seconds |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| ordered | 2 | 80 | 60 | 400 | 120 | 40 | 1 | 25 |
| 1k-blocks | 1 | 40 | 30 | 200 | 60 | 20 | 1 | 12 |

| 1k-blocks | workloads | states | failures | not on stock |
| --- | ---: | ---: | ---: | ---: |
| off | 1 | 260 | 2 | 1 |
| stock | 1 | 260 | 1 | 0 |"""
    )
    assert summary.sentence(result) == (
        "Power cuts, on Linux 6.12.1 (modules of this tree): 780 states were recovered and "
        "checked, after 90 cuts in 120 operations. 2 fail a check that stock ext4 passes in the "
        "same workload (docs/power-cuts.md says which). 1 fail as on stock."
    )


def test_markdown_adds_up(builds: Builds) -> None:
    outcomes = [outcome(), outcome(Case("overwrite", "off", "ordered"), FAILURE)]
    request = Request(tuple(one.case for one in outcomes))
    text = in_markdown(summary.parts(result_of(request, outcomes, builds)))
    assert "| overwrite | 80 | 60 | 400 | 120 | 40 | 1 | 25 |" in text
    assert "modes defer, off" in text and "fast_commit" not in text
    assert "| ordered | 1 | 80 | 60 | 400 | 120 | 40 | 1 | 25 |" in text


def test_what_stock_makes_of_fast_commits_stands_beside_ours(builds: Builds) -> None:
    modes = ("defer", "stock", "off")
    outcomes = [outcome(Case("mmap", mode, "fast_commit")) for mode in modes]
    request = Request(tuple(one.case for one in outcomes))
    text = in_markdown(summary.parts(result_of(request, outcomes, builds)))
    assert "| mmap | 40 | 30 | 200 | 60 | 20 | 0 | 12 |" in text
    assert all(f"| {mode} | 1 | 260 | 0 | 0 | 2 | 3 |" in text for mode in modes)


def test_another_kind_stands_beside_stock_with_the_workloads_that_both_ran(builds: Builds) -> None:
    cases = [("mmap", "defer"), ("mmap", "stock"), ("append", "defer")]
    outcomes = [outcome(Case(name, mode, "1k-blocks"), FAILURE) for name, mode in cases]
    request = Request(tuple(one.case for one in outcomes))
    text = in_markdown(summary.parts(result_of(request, outcomes, builds)))
    assert "| 1k-blocks | workloads | states | failures | not on stock |\n" in text
    assert all(f"| {mode} | 1 | 260 | 1 | 0 |" in text for mode in ("defer", "stock"))


def test_the_sentence_of_a_run_without_a_failure_names_no_document(builds: Builds) -> None:
    text = summary.sentence(result_of(Request((CASE,)), [outcome(CASE)], builds))
    assert text.endswith(" 0 fail a check that stock ext4 passes in the same workload.")


def test_the_sentence_names_what_it_does_not_count(builds: Builds) -> None:
    off, stock = (Case("mmap", mode, "fast_commit") for mode in ("off", "stock"))
    outcomes = [outcome(CASE, FAILURE), outcome(stock, FAILURE)]
    request = Request((CASE, off, stock))
    text = summary.sentence(result_of(request, outcomes, builds))
    assert ": 260 states" in text and "passes in the same workload (docs/power-cuts.md says" in text
    other = replace(FAILURE, problems=("f: size is 0",))
    outcomes.append(outcome(off, FAILURE, other, other))
    assert summary.sentence(result_of(request, outcomes, builds)) == (
        f"{text} Not counted, because there stock code decides what is durable: off with "
        "fast_commit, with 3 of 260 states that fail, 2 of them with our modules alone."
    )
    assert "with eager_sync" not in text
    outcomes.append(outcome(Case("mmap", "eager", "fast_commit")))
    text = summary.sentence(result_of(request, outcomes, builds))
    outcomes.append(outcome(Case("mmap", "defer+eager", "ordered")))
    assert ": 520 states (260 of them with eager_sync)" in summary.sentence(
        result_of(request, outcomes, builds)
    )
    assert ": off with fast_commit, eager with fast_commit, with 3 of 520 states" in text
