"""The comparison of a fault's effects, rule by rule and word by word."""

from dataclasses import replace

import pytest

from fastsync_lab.faults import summary
from fastsync_lab.faults.compare import (
    SAME_CALL,
    SAME_SORT,
    SETTLING,
    UNATTENDED,
    Case,
    Effect,
    Fault,
    Reaction,
    Result,
    Stock,
    compare,
    identical,
    reaction,
    sort_of,
)
from fastsync_lab.faults.layout import COMMIT_FLUSH, DATA, JOURNAL, READ, SYNC_FLUSH

FINE = Effect((), aborted=False, read_only=False, lost=False, unsound=False)
DOWN = Effect(((1, 5), (4, 5)), aborted=True, read_only=True, lost=False, unsound=False)
CALLS = ("write", "fsync", "sleep", "write", "fdatasync", "chmod", "fsync")


def result(mode: str, *faults: Fault, dead: bool = False, workload: str = "overwrite") -> Result:
    return Result(Case(workload, mode, "remount-ro", dead), CALLS, list(faults))


def rule(stock: Result, fault: Fault, *, dead: bool = False) -> str:
    return Stock([stock]).judge(result("defer", fault, dead=dead), fault).rule


# --- one reaction -------------------------------------------------------------------------------


def test_what_is_under_way() -> None:
    one = result("defer")
    assert [one.call(op) for op in (0, 6, 7, 8)] == ["write", "fsync", "umount", "umount"]
    assert (one.case.name, one.case.variant) == ("overwrite-defer-remount-ro-once",
                                                 ("remount-ro", False))  # fmt: skip
    assert result("off", dead=True).case.name == "overwrite-off-remount-ro-dead"


def test_calls_of_one_sort() -> None:
    calls = ("fsync", "fdatasync", "msync", "owrite", "odwrite", "write")
    assert [sort_of(call) for call in calls] == [
        "sync", "sync", "sync", "synchronous write", "synchronous write", "write",
    ]  # fmt: skip


NOBODY = Reaction("", 0, at_once=False, missed=3, passed=0, aborted=False, read_only=False,
                  lost=False, unsound=False)  # fmt: skip


@pytest.mark.parametrize(
    ("op", "effect", "wanted"),
    [
        (0, FINE, NOBODY),
        (1, FINE, replace(NOBODY, missed=2)),
        (6, FINE, replace(NOBODY, missed=0)),
        # fsync fails at once, and fdatasync after it; of those between and after, sleep is none.
        (1, DOWN, Reaction("sync", 5, at_once=True, missed=0, passed=3, aborted=True,
                           read_only=True, lost=False, unsound=False)),
        (0, Effect(((4, 30),), False, True, True, False),
         Reaction("sync", 30, at_once=False, missed=1, passed=0, aborted=False, read_only=True,
                  lost=True, unsound=False)),
        (2, Effect(((5, 30),), True, False, False, True),
         Reaction("chmod", 30, at_once=False, missed=1, passed=1, aborted=True, read_only=False,
                  lost=False, unsound=True)),
        (5, Effect(((6, 5),), False, False, False, False),
         replace(NOBODY, by="sync", errno=5, missed=0)),
    ],
)  # fmt: skip
def test_reaction(op: int, effect: Effect, wanted: Reaction) -> None:
    assert reaction(result("defer"), Fault(1, JOURNAL, op, effect)) == wanted


def test_of_several_errors_the_first_call_counts() -> None:
    late_first = Effect(((6, 5), (1, 28)), True, True, False, False)
    how = reaction(result("defer"), Fault(1, JOURNAL, 1, late_first))
    assert (how.by, how.errno, how.at_once) == ("sync", 28, True)


# --- the rules ----------------------------------------------------------------------------------


def test_the_same_call_of_the_same_workload_counts_first() -> None:
    stock = result("stock", Fault(1, JOURNAL, 1, DOWN))
    assert rule(stock, Fault(9, JOURNAL, 1, DOWN)) == SAME_CALL
    assert rule(stock, Fault(9, JOURNAL, 1, FINE)) == ""
    assert rule(stock, Fault(9, DATA, 1, DOWN)) == ""
    elsewhere = result("stock", Fault(1, JOURNAL, 1, DOWN), workload="append")
    assert rule(elsewhere, Fault(9, JOURNAL, 1, DOWN)) == SAME_SORT


def test_another_call_of_the_sort_counts_with_the_same_reaction() -> None:
    last = Effect(((6, 5),), True, True, False, False)
    stock = result("stock", Fault(1, JOURNAL, 6, last))
    first = Effect(((4, 5), (5, 5), (6, 5)), True, True, False, False)
    assert rule(stock, Fault(9, JOURNAL, 4, first)) == SAME_SORT
    assert rule(stock, Fault(9, JOURNAL, 4, replace(first, lost=True))) == ""
    assert rule(stock, Fault(9, JOURNAL, 5, last)) == ""  # chmod is of another sort


def test_of_a_dead_device_the_kind_of_the_first_request_does_not_matter() -> None:
    stock = result("stock", Fault(1, DATA, 1, DOWN), dead=True)
    assert rule(stock, Fault(9, JOURNAL, 1, DOWN), dead=True) == SAME_CALL
    sort = result("stock", Fault(1, DATA, 1, DOWN), dead=True, workload="append")
    assert rule(sort, Fault(9, JOURNAL, 1, DOWN), dead=True) == SAME_SORT
    assert rule(result("stock", Fault(1, DATA, 1, DOWN)), Fault(9, JOURNAL, 1, DOWN)) == ""


def test_dead_and_once_are_not_mixed_up() -> None:
    """A kind of request that is called as a dead device's mark says nothing of one."""
    stock = Stock([result("stock", Fault(1, "any", 1, DOWN))])
    fault = Fault(9, JOURNAL, 1, DOWN)
    assert stock.judge(result("defer", fault), fault).rule == ""


SETTLED = Effect(((3, 5), (4, 5), (5, 5), (6, 5)), True, True, False, False)


@pytest.mark.parametrize(
    ("mode", "fault", "wanted"),
    [
        ("eager", Fault(9, DATA, 2, SETTLED), SETTLING),
        ("defer+eager", Fault(9, SYNC_FLUSH, 7, replace(SETTLED, errors=())), SETTLING),
        ("defer", Fault(9, DATA, 2, SETTLED), ""),
        ("eager", Fault(9, DATA, 1, SETTLED), ""),  # a sync was under way
        ("eager", Fault(9, READ, 2, SETTLED), ""),
        ("eager", Fault(9, DATA, 2, replace(SETTLED, aborted=False)), ""),
        ("eager", Fault(9, DATA, 2, replace(SETTLED, lost=True)), ""),
        ("eager", Fault(9, DATA, 2, replace(SETTLED, unsound=True)), ""),
        ("eager", Fault(9, DATA, 2, replace(SETTLED, bugs=("Oops",))), ""),
        ("eager", Fault(9, DATA, 2, replace(SETTLED, errors=((5, 5), (6, 5)))), ""),  # fdatasync
        ("eager", Fault(9, DATA, 2, replace(SETTLED, errors=((3, 5),))), ""),
    ],
)
def test_a_settling_that_fails_aborts_the_journal(mode: str, fault: Fault, wanted: str) -> None:
    """Stock has none. The log stays for recovery, and nobody is told otherwise."""
    stock = Stock([result("stock", Fault(1, JOURNAL, 1, DOWN))])
    verdict = stock.judge(result(mode, fault), fault)
    assert verdict.rule == wanted


def test_the_readme_counts_a_settling_apart() -> None:
    results = [
        result("stock", Fault(1, JOURNAL, 1, DOWN)),
        result("eager", Fault(1, JOURNAL, 1, DOWN), Fault(9, DATA, 2, SETTLED)),
    ]
    kept = {
        "kernel_release": "6.12.1",
        "sweeper_sha256": summary.sweeper_digest(),
        "differences": [],
        "cases": [summary.case_json(one) for one in results],
    }
    what = (
        "2 requests were made to fail. 1 had the same effect as on stock. "
        "1 are requests that stock does not make: each aborts the journal. 0 differ."
    )
    head, old = (
        "I/O errors, on Linux 6.12.1 (modules older than this tree's",
        "older than this tree's",
    )
    assert summary.sentence(kept) == f"{head}): {what}"
    assert summary.sentence({**kept, "sweeper_sha256": "a"}) == f"{head}, sweeper {old}): {what}"


LAST = Effect(((6, 5),), True, True, False, False)
WARNED, OOPSED = (replace(LAST, bugs=bugs) for bugs in (("WARNING: a",), ("WARNING: a", "Oops")))


@pytest.mark.parametrize(
    ("there", "here", "errors"),
    [
        (6, 6, ((6, 5),)),  # the same call
        (6, 4, ((4, 5), (5, 5), (6, 5))),  # another of the sort
        (2, 3, ((6, 5),)),  # nobody waited
    ],
)
def test_a_bug_that_stock_has_not_logged_is_a_difference(
    there: int, here: int, errors: tuple[tuple[int, int], ...]
) -> None:
    """Whatever the calls returned. That stock has logged more is none."""
    found = {
        (one, other): rule(
            result("stock", Fault(1, JOURNAL, there, replace(LAST, bugs=one))),
            Fault(9, JOURNAL, here, replace(LAST, errors=errors, bugs=other)),
        )
        for one in (LAST.bugs, WARNED.bugs, OOPSED.bugs)
        for other in (LAST.bugs, WARNED.bugs, OOPSED.bugs)
    }
    assert {key: bool(one) for key, one in found.items()} == {
        key: set(key[0]) >= set(key[1]) for key in found
    }


def test_bugs_of_two_runs_on_stock_are_not_put_together() -> None:
    stock = result("stock", Fault(1, JOURNAL, 6, WARNED),
                   Fault(2, JOURNAL, 6, replace(LAST, bugs=("Oops",))))  # fmt: skip
    assert rule(stock, Fault(9, JOURNAL, 6, OOPSED)) == ""
    assert rule(stock, Fault(9, JOURNAL, 6, WARNED)) == SAME_CALL


def test_the_flush_of_a_commit_may_be_that_of_a_sync() -> None:
    stock = result("stock", Fault(1, COMMIT_FLUSH, 6, LAST))
    first = Effect(((4, 5), (5, 5), (6, 5)), True, True, False, False)
    assert rule(stock, Fault(9, SYNC_FLUSH, 4, first)) == SAME_SORT
    sync = result("stock", Fault(1, SYNC_FLUSH, 6, LAST))
    assert rule(sync, Fault(9, COMMIT_FLUSH, 4, first)) == ""


@pytest.mark.parametrize(
    ("there", "here", "wanted"),
    [
        (JOURNAL, JOURNAL, UNATTENDED),
        (COMMIT_FLUSH, COMMIT_FLUSH, UNATTENDED),
        (COMMIT_FLUSH, SYNC_FLUSH, UNATTENDED),
        (SYNC_FLUSH, COMMIT_FLUSH, UNATTENDED),
        (JOURNAL, COMMIT_FLUSH, ""),
        (DATA, DATA, ""),
        (READ, READ, ""),
    ],
)
def test_what_nobody_waited_for(there: str, here: str, wanted: str) -> None:
    """On stock while the workload slept, or at the unmount; here while a chmod was under way."""
    effect = Effect(((6, 5),), True, True, False, False)
    stock = result("stock", Fault(1, there, 2, effect))
    assert rule(stock, Fault(9, here, 3, effect)) == wanted


def test_unmounting_is_something_that_nobody_waits_for() -> None:
    stock = result("stock", Fault(1, JOURNAL, 7, FINE))
    assert rule(stock, Fault(9, JOURNAL, 6, FINE)) == UNATTENDED
    attended = result("stock", Fault(1, JOURNAL, 5, FINE))
    assert rule(attended, Fault(9, JOURNAL, 6, FINE)) == ""


def test_a_verdict_has_what_was_seen_and_all_that_stock_did_there() -> None:
    other = replace(LAST, lost=True)
    stock = Stock([
        result("stock", Fault(1, JOURNAL, 6, LAST), Fault(2, JOURNAL, 6, other),
               Fault(3, JOURNAL, 2, LAST), Fault(4, DATA, 6, FINE))
    ])  # fmt: skip
    ours = result("defer", Fault(9, JOURNAL, 4, FINE))
    verdict = stock.judge(ours, ours.faults[0])
    assert (verdict.case, verdict.fault, verdict.call) == (ours.case, ours.faults[0], "fdatasync")
    assert (verdict.rule, verdict.reaction) == ("", reaction(ours, ours.faults[0]))
    at_sync = [reaction(result("stock"), Fault(1, JOURNAL, 6, one)) for one in (LAST, other)]
    asleep = reaction(result("stock"), Fault(1, JOURNAL, 2, LAST))
    assert set(verdict.stock) == {*at_sync, asleep}
    assert list(verdict.stock) == sorted(verdict.stock, key=repr)


# --- all of it ----------------------------------------------------------------------------------


def test_off_is_compared_request_by_request() -> None:
    stock = result("stock", Fault(1, JOURNAL, 1, DOWN), Fault(2, JOURNAL, 7, FINE))
    assert identical(result("off", *stock.faults), stock) == []
    name = "overwrite-off-remount-ro-once"
    assert identical(result("off", Fault(1, DATA, 1, FINE)), stock) == [
        f"{name}: request 1 (file data, fsync): {FINE}; stock: journal block, fsync: {DOWN}",
        f"{name}: 1 requests, stock has 2",
    ]


def test_with_the_options_off_a_bug_of_ours_is_a_difference() -> None:
    calm, warned = (
        {mode: result(mode, Fault(1, JOURNAL, 6, effect)) for mode in ("stock", "off")}
        for effect in (LAST, WARNED)
    )
    assert identical(calm["off"], warned["stock"]) == []
    assert identical(warned["off"], warned["stock"]) == []
    (told,) = identical(warned["off"], calm["stock"])
    assert "bugs=('WARNING: a',)); stock: " in told


def test_a_loss_that_stock_has_and_ours_has_not_is_no_difference() -> None:
    kept, lost = (
        {mode: result(mode, Fault(1, JOURNAL, 6, effect)) for mode in ("stock", "off", "defer")}
        for effect in (replace(LAST, lost=False), replace(LAST, lost=True))
    )
    assert identical(kept["off"], lost["stock"]) == []
    assert identical(lost["off"], lost["stock"]) == []
    (told,) = identical(lost["off"], kept["stock"])
    assert "lost=True" in told
    assert compare([lost["stock"], kept["defer"]])[1] == []
    assert len(compare([kept["stock"], lost["defer"]])[1]) == 1


def test_every_difference_of_every_case_is_told() -> None:
    stock = result("stock", Fault(1, JOURNAL, 1, DOWN))
    append = result("stock", Fault(1, JOURNAL, 1, DOWN), workload="append")
    verdicts, told = compare([
        stock, append, result("off"), result("off", workload="append"),
        result("off", workload="alone"),
        result("defer", Fault(1, JOURNAL, 1, DOWN), Fault(2, JOURNAL, 1, FINE)),
        result("truncate", Fault(1, JOURNAL, 1, DOWN), dead=True),
    ])  # fmt: skip
    assert [(v.case.mode, v.fault.first, v.rule) for v in verdicts] == [
        ("defer", 1, SAME_CALL), ("defer", 2, ""), ("truncate", 1, ""),
    ]  # fmt: skip
    seen = "sync failed with errno 5 at once, 3 calls succeeded after that, journal aborted, "
    assert told == [
        "overwrite-off-remount-ro-once: 0 requests, stock has 1",
        "append-off-remount-ro-once: 0 requests, stock has 1",
        "overwrite-defer-remount-ro-once: request 2 (journal block) failed in operation 1 (fsync): "
        f"no call failed. Stock: {seen}read-only",
        "overwrite-truncate-remount-ro-dead: request 1 (journal block) failed in operation 1 "
        f"(fsync): {seen}read-only. Stock: no such request",
    ]


@pytest.mark.parametrize(
    ("effect", "words"),
    [
        (Effect(((4, 30),), False, False, True, False),
         "sync failed with errno 30 later, 1 syncs passed over, promised data lost"),
        (Effect((), False, False, False, True), "no call failed, unsound"),
        (Effect((), False, True, False, False), "no call failed, read-only"),
        (Effect((), False, False, False, False, ("WARNING: a", "Oops")),
         "no call failed, the kernel logged 'WARNING: a', the kernel logged 'Oops'"),
    ],
)  # fmt: skip
def test_a_reaction_in_words(effect: Effect, words: str) -> None:
    _, (told,) = compare([result("defer", Fault(1, JOURNAL, 0, effect))])
    assert told.endswith(f"(write): {words}. Stock: no such request")


def test_what_stock_did_is_told_one_after_the_other() -> None:
    stock = result("stock", Fault(1, JOURNAL, 1, DOWN), Fault(2, JOURNAL, 1, LAST))
    _, (told,) = compare([stock, result("defer", Fault(1, JOURNAL, 1, FINE))])
    assert told.endswith(
        ". Stock: sync failed with errno 5 later, 1 syncs passed over, journal aborted, read-only; "
        "sync failed with errno 5 at once, 3 calls succeeded after that, journal aborted, read-only"
    )
