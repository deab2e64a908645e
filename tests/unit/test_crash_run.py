"""The explorer's plans and reproductions."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.crash import command
from fastsync_lab.crash.case import CHUNK, E2FSCK_CANNOT_REPLAY, Case, Request, chunks
from fastsync_lab.crash.kinds import KINDS
from fastsync_lab.crash.log import Event, Write
from fastsync_lab.crash.recording import write_sparse
from fastsync_lab.crash.recover import parse_found, plan
from fastsync_lab.crash.states import State
from fastsync_lab.crash.workloads import make_script, workload_names
from fastsync_lab.host.errors import FastsyncError, UsageError
from fastsync_lab.host.options import CONTROL, MODES, MTIME_MODES
from fastsync_lab.study.documents import replace_block
from tests.unit.crashes import CASE, FAILURE


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
    kernel: str = "6.12",
    states: int = 200,
    seed: int = 1,
) -> Request:
    return command.request(
        workload, modes=modes, journals=journals, states=states, seed=seed, interval_ms=100,
        kernel=kernel, state=state,
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
    assert command.result_name(ask("all", seed=7, states=400), "6.12") == "6.12"
    assert command.result_name(ask("all", states=199), "6.12").startswith("quick-")
    named = ask("all", modes=[*MODES, CONTROL])  # but for further seeds
    assert command.result_name(named, "6.12").startswith("quick-")
    seeds = {(case.mode, case.seed) for case in everything.cases if case.workload == "logged-mix"}
    assert {("eager", seed) for seed in (1, 2, 3, 4)} <= seeds and ("stock", 2) not in seeds


def test_all_is_what_the_kernels_modules_have() -> None:
    here = ask("all", kernel="6.1.192")
    assert {case.mode for case in here.cases} == {*MTIME_MODES, CONTROL}
    assert set(here.cases) < set(ask("all").cases)
    assert command.result_name(here, "6.1") == "6.1"
    assert command.result_name(here, "6.12").startswith("quick-")
    with pytest.raises(
        UsageError, match=r"no mode 'eager' on Linux 6\.1: allowed are off, .*stock$"
    ):
        ask("mmap", modes=["eager"], kernel="6.1")


def test_options_choose_from_the_table() -> None:
    small = ask("all", journals=["small-inodes"]).cases
    assert {case.journal for case in small} == {"small-inodes"}
    assert {case.mode for case in small} == {"truncate", "defer", "eager", "defer+eager"}
    on_stock = ask("all", journals=["small-inodes"], modes=["stock"]).cases
    assert ask("all", journals=["small-inodes"], modes=["stock", "stock"]).cases == on_stock
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
    with pytest.raises(UsageError, match=r"no mode 'x' on Linux 6\.12: allowed are"):
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
