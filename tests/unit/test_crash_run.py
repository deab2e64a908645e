"""The explorer's plans, results and reproductions."""

import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from fastsync_lab.crash import command, summary
from fastsync_lab.crash.builds import Builds
from fastsync_lab.crash.case import E2FSCK_CANNOT_REPLAY, Case, Failure, Outcome, Request
from fastsync_lab.crash.explore import CHUNK, chunks
from fastsync_lab.crash.kinds import KINDS
from fastsync_lab.crash.log import Event, Write
from fastsync_lab.crash.recording import write_sparse
from fastsync_lab.crash.recover import parse_found, plan
from fastsync_lab.crash.states import State
from fastsync_lab.crash.workloads import make_script, workload_names
from fastsync_lab.host.build import ModuleSet
from fastsync_lab.host.errors import FastsyncError, UsageError
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine.image import RootImage
from fastsync_lab.study.documents import replace_block
from fastsync_lab.study.grid import in_markdown

CASE = Case("overwrite", "defer", "ordered")
FAILURE = Failure("17.drop2", 9, ("f: mode is 0",), CASE.command("17.drop2"), "build/x.img")


def outcome(case: Case = CASE, *failures: Failure) -> Outcome:
    return Outcome(case, 40, 30, 200, 60, 900, 3, 2, 12.5, list(failures))


def test_plan_applies_each_event_once() -> None:
    events = [
        Event("fua", (Write(1, 1, 100),), frozenset()),
        Event("flush", (Write(2, 1, 200), Write(3, 1, 300)), frozenset()),
    ]
    states = [
        State("0.none", 0, ()),
        State("1.none", 1, ()),
        State("1.only1", 1, (events[1].writes[1],)),
    ]
    assert plan(events, states) == "c 0.none\np 1 1 100\nc 1.none\nw 3 1 300\nc 1.only1\n"


def test_found_pages_are_taken_from_the_delta_in_turn() -> None:
    delta = b"a" * 4096 + b"b" * 4096
    line = {"id": "1.none", "mount": 0, "folders": 0, "log": ["x"], "delta": [7], "files": [
        {"path": "f", "ino": 12, "mode": 33188, "uid": 0, "gid": 0, "links": 1, "size": 600,
         "mtime_ns": 1, "ctime_ns": 2, "xattrs": {}, "errno": 5,
         "sectors": "0000000a0000000b", "junk": [[1, 4095]]}]}  # fmt: skip
    one, position = parse_found(json.dumps(line), delta, 4096)
    assert (one.id, position, one.pages[7][:1]) == ("1.none", 8192, b"b")
    assert one.tree["f"].sectors == (10, 11)
    assert one.tree["f"].junk == ((1, 4095),)
    assert one.errors == ("reading f failed with errno 5",)


def test_mount_options_and_promises() -> None:
    assert CASE.mount_options == "data=ordered,mtime_update=100,mtime_mode=defer"
    assert Case("x", "off", "journal").mount_options == "data=journal"
    assert Case("x", "truncate", "ordered").promise.coarse_ms == 100
    assert CASE.promise.defer_ms == 100
    assert Case("x", "eager", "ordered").mount_options == "data=ordered,eager_sync=100"
    assert Case("x", "eager", "ordered").promise == Case("x", "off", "ordered").promise
    both = Case("x", "defer+eager", "ordered")
    assert both.mount_options == f"{CASE.mount_options},eager_sync=100"
    assert both.promise == CASE.promise


def test_reproduction_is_a_command_of_the_program() -> None:
    words = FAILURE.command.split()
    assert words[:3] == ["./fastsync", "crash", "overwrite"] and words[-2:] == [
        "--state",
        "17.drop2",
    ]
    again = command.request(
        "overwrite", modes=["defer"], journals=["ordered"], states=200, seed=1, interval_ms=100,
        kernel="6.12", state="17.drop2",
    )  # fmt: skip
    assert again.cases == (CASE,)


def test_command_names_what_is_not_as_by_itself() -> None:
    assert CASE.command("0.none") == (
        "./fastsync crash overwrite --mode defer --journal ordered --seed 1 --state 0.none"
    )
    assert Case("mmap", "off", "quota", 20, 3, 4).command("1.none") == (
        "./fastsync crash mmap --mode off --journal quota --seed 3 --interval 20 --delays 4 "
        "--state 1.none"
    )


def test_script_is_of_workload_seed_and_states() -> None:
    for states in (20, 200):
        for case in (Case("mariadb-direct", "defer", "ordered", seed=2), CASE):
            script = Request((case,), states).script(case)
            assert script == make_script(case.workload, case.seed, states)


def test_delays_are_of_the_case() -> None:
    slow = replace(CASE, delays=7)
    assert slow.name == f"{CASE.name}-delays-7"
    assert "--delays 7 --state 3.none" in slow.command("3.none")
    everything = command.request(
        "all", modes=None, journals=None, states=10, seed=1, interval_ms=100, delays=7,
        kernel="6.12", state=None,
    )  # fmt: skip
    assert {case.delays for case in everything.cases} == {7}
    assert command.result_name(everything, "6.12").startswith("quick-")


def ask(
    workload: str,
    *,
    modes: list[str] | None = None,
    journals: list[str] | None = None,
    state: str | None = None,
) -> Request:
    return command.request(
        workload, modes=modes, journals=journals, states=10, seed=1, interval_ms=100,
        kernel="6.12", state=state,
    )  # fmt: skip


def test_all_is_the_table() -> None:
    everything = ask("all")
    assert len(set(everything.cases)) == len(everything.cases)
    assert {case.workload for case in everything.cases} == set(workload_names())
    assert {case.journal for case in everything.cases} == set(KINDS)
    fast = {case.workload for case in everything.cases if case.journal in E2FSCK_CANNOT_REPLAY}
    on_stock = {case for case in everything.cases if case.mode == "stock"}
    assert {replace(case, mode="stock") for case in everything.cases if case.journal in
            E2FSCK_CANNOT_REPLAY} <= on_stock and "mmap" in fast  # fmt: skip
    assert command.result_name(everything, "6.12") == "6.12"
    assert command.result_name(ask("mmap"), "6.12").startswith("quick-6.12-mmap-defer-ordered")
    fewer = replace(everything, cases=everything.cases[1:])
    assert command.result_name(fewer, "6.12").startswith("quick-")


def test_options_choose_from_the_table() -> None:
    small = ask("all", journals=["small-inodes"]).cases
    assert {case.journal for case in small} == {"small-inodes"}
    assert {case.mode for case in small} == {"truncate", "defer", "eager"}
    on_stock = ask("all", journals=["small-inodes"], modes=["stock"]).cases
    assert {case.workload for case in on_stock} == {case.workload for case in small}
    assert {case.mode for case in on_stock} == {"stock"}


def test_a_workload_alone_is_on_a_kind_that_takes_it() -> None:
    assert ask("inline").cases == (Case("inline", "defer", "inline_data"),)
    assert ask("bounded").cases == (Case("bounded", "defer", "ordered"),)


def test_no_guest_gets_many_large_cases() -> None:
    small = [Case("mmap", "defer", "ordered", seed=seed) for seed in range(CHUNK + 1)]
    large = [Case("bounded", "defer", "ordered", seed=seed) for seed in range(2)]
    taken = chunks([*large, *small], 1)
    assert [len(some) for some in taken] == [1, 1, CHUNK, 1]
    assert [case for some in taken for case in some] == [*large, *small]
    assert [len(some) for some in chunks(small[:3], 2)] == [2, 1]


def test_unknown_names() -> None:
    with pytest.raises(UsageError, match="no workload 'x': allowed are"):
        ask("x")
    with pytest.raises(UsageError, match="no mode 'x': allowed are"):
        ask("mmap", modes=["x"])
    with pytest.raises(UsageError, match="no machine 'x': allowed are uml, qemu"):
        command.request(
            "mmap", modes=None, journals=None, states=10, seed=1, interval_ms=100,
            kernel="6.12", state=None, recover_in="x",
        )  # fmt: skip
    with pytest.raises(UsageError, match="no journal 'x': allowed are"):
        ask("mmap", journals=["x"])


def test_a_state_is_of_one_case() -> None:
    with pytest.raises(UsageError, match="one workload"):
        ask("all", state="1.none")
    with pytest.raises(UsageError, match="bad state"):
        ask("mmap", state="x")


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


def test_outcomes_on_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    head = (
        "workload   mode   journal  operations  cuts  states  cut again  failures  seconds",
        "overwrite  defer  ordered          40    30     200         60         0       12",
    )
    summary.print_outcomes([outcome()])
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [*head]
    failed = outcome(Case("mmap", "off", "quota"), FAILURE)
    summary.print_outcomes([outcome(), failed])
    shown = capsys.readouterr().out
    assert shown.endswith("\n")
    assert [line.rstrip() for line in shown.splitlines()] == [
        *head,
        "mmap       off    quota            40    30     200         60         1       12",
        "together                           80    60     400        120         1       25",
        *summary.failure_lines(failed),
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
    return Builds(tree, modules, modules, tmp_path, image)


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


def test_another_machine_or_its_modules_begin_anew(builds: Builds, tmp_path: Path) -> None:
    """What recovers decides a result, too."""
    request = Request((CASE,), 200)
    kernel = tmp_path / "linux"
    kernel.write_text("linux")
    uml = replace(builds.tree, release="6.12.1-uml", vmlinuz=kernel, variant="uml")
    (tmp_path / "other.ko").write_text("other")
    other = replace(builds.stock, ext4=tmp_path / "other.ko")
    in_uml = replace(builds, recovery=(uml, builds.stock))
    summary.keeper("x", request, in_uml).add(outcome())
    assert summary.keeper("x", request, in_uml).parts == [outcome()]
    for changed in (builds, replace(builds, recovery=(uml, other))):
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
    before = summary.explorer_digest()
    assert len(before) == 16
    for shown in (code / "table.py", code / "summary.py", programs / "cpubench.c"):
        shown.write_text("changed")
        assert summary.explorer_digest() == before
    seen = {before}
    for deciding in (code / "oracle.py", programs / "crashops.c"):
        deciding.write_text("changed")
        seen.add(summary.explorer_digest())
    (code / "oracle.py").rename(code / "other.py")
    assert len(seen | {summary.explorer_digest()}) == 4


def test_results_go_into_the_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    monkeypatch.setattr(summary, "write_blocks", lambda *arguments: written.append(arguments))
    summary.write_crash()
    assert written == [("crash", summary.parts, summary.sentence)]


def test_a_result_says_what_it_is_of(builds: Builds) -> None:
    result = summary.result_of(Request((CASE,)), [outcome()], builds)
    assert result["modules"] == "fastsync"
    assert datetime.fromisoformat(result["date"]).utcoffset() == timedelta(0)


def test_the_whole_block(builds: Builds) -> None:
    other = replace(FAILURE, problems=("f: size is 0",))
    outcomes = [
        outcome(),
        outcome(Case("append", "off", "ordered", seed=2), FAILURE),
        outcome(Case("append", "off", "1k-blocks"), FAILURE, other),
        outcome(Case("append", "stock", "1k-blocks"), FAILURE),
    ]
    result = summary.result_of(Request(tuple(one.case for one in outcomes)), outcomes, builds)
    result["date"] = "2026-11-25T05:22:06+00:00"
    assert (
        in_markdown(summary.parts(result))
        == f"""\
Kernel 6.12.1, modules {result["modules_sha256"]}, seed 1, 2, 2026-11-25; modes defer, off.

| workload | operations | cuts | states | cut again | failures | seconds |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
| overwrite | 40 | 30 | 200 | 60 | 0 | 12 |
| append | 80 | 60 | 400 | 120 | 2 | 25 |
| together | 120 | 90 | 600 | 180 | 2 | 38 |

| kind | workloads | operations | cuts | states | cut again | failures | seconds |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| ordered | 2 | 80 | 60 | 400 | 120 | 1 | 25 |
| 1k-blocks | 1 | 40 | 30 | 200 | 60 | 1 | 12 |

| 1k-blocks | workloads | states | failures | not on stock |
| --- | ---: | ---: | ---: | ---: |
| off | 1 | 260 | 2 | 1 |
| stock | 1 | 260 | 1 | 0 |"""
    )
    assert summary.sentence(result) == (
        "Linux 6.12.1: 3 cases (a workload in a mode on a kind of file system), 120 operations, "
        "power cut at 90 places, 780 states recovered and judged: 2 failures, and 1 that stock has "
        "in the same place."
    )


def test_markdown_adds_up(builds: Builds) -> None:
    outcomes = [outcome(), outcome(Case("overwrite", "off", "ordered"), FAILURE)]
    request = Request(tuple(one.case for one in outcomes))
    text = in_markdown(summary.parts(summary.result_of(request, outcomes, builds)))
    assert "| overwrite | 80 | 60 | 400 | 120 | 1 | 25 |" in text
    assert "modes defer, off" in text and "fast_commit" not in text
    assert "| ordered | 1 | 80 | 60 | 400 | 120 | 1 | 25 |" in text


def test_what_stock_makes_of_fast_commits_stands_beside_ours(builds: Builds) -> None:
    modes = ("defer", "stock", "off")
    outcomes = [outcome(Case("mmap", mode, "fast_commit")) for mode in modes]
    request = Request(tuple(one.case for one in outcomes))
    text = in_markdown(summary.parts(summary.result_of(request, outcomes, builds)))
    assert "| mmap | 40 | 30 | 200 | 60 | 0 | 12 |" in text
    assert all(f"| {mode} | 1 | 260 | 0 | 0 | 2 | 3 |" in text for mode in modes)


def test_another_kind_stands_beside_stock_with_the_workloads_that_both_ran(builds: Builds) -> None:
    cases = [("mmap", "defer"), ("mmap", "stock"), ("append", "defer")]
    outcomes = [outcome(Case(name, mode, "1k-blocks"), FAILURE) for name, mode in cases]
    request = Request(tuple(one.case for one in outcomes))
    text = in_markdown(summary.parts(summary.result_of(request, outcomes, builds)))
    assert "| 1k-blocks | workloads | states | failures | not on stock |\n" in text
    assert all(f"| {mode} | 1 | 260 | 1 | 0 |" in text for mode in ("defer", "stock"))


def test_the_sentence_names_what_it_does_not_count(builds: Builds) -> None:
    off, stock = (Case("mmap", mode, "fast_commit") for mode in ("off", "stock"))
    outcomes = [outcome(CASE, FAILURE), outcome(stock, FAILURE)]
    request = Request((CASE, off, stock))
    text = summary.sentence(summary.result_of(request, outcomes, builds))
    assert text.endswith(" 260 states recovered and judged: 1 failures.")
    other = replace(FAILURE, problems=("f: size is 0",))
    outcomes.append(outcome(off, FAILURE, other, other))
    assert summary.sentence(summary.result_of(request, outcomes, builds)) == (
        f"{text} Not counted are the 1 cases of mode off with fast_commit, where ext4 is left as "
        "it is: of their 260 states 3 fail, 2 of them where stock's own recordings do not."
    )
    outcomes.append(outcome(Case("mmap", "eager", "fast_commit")))
    text = summary.sentence(summary.result_of(request, outcomes, builds))
    assert "the 2 cases of mode off with fast_commit, eager with fast_commit, where" in text


def test_block_is_replaced() -> None:
    text = "a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n"
    assert replace_block(text, "x", "new").split() == [
        "a", "<!--", "x:begin", "-->", "new", "<!--", "x:end", "-->", "b",
    ]  # fmt: skip
    with pytest.raises(FastsyncError, match="lacks"):
        replace_block("a", "x", "new")


def test_sparse_image(tmp_path: Path) -> None:
    data = bytes(8192) + b"x" * 4096 + bytes(4096)
    write_sparse(tmp_path / "image", data)
    assert (tmp_path / "image").read_bytes() == data
