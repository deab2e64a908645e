"""Eager syncing's rules beside the kernel's code: kernel/ext4/eager_log.c, docs/eager.md.

eager_model/ is two files of a page, two blocks, jbd2's log and a device with a volatile cache. Each
search takes every interleaving of the steps that a budget allows, and cuts power in each state.
"""

import pytest

from tests.unit.eager_library import UNLIMITED, Model, eager_model

model = pytest.fixture(scope="module")(eager_model)

# All of them are searched to their end.
BUDGETS = [
    {"writes": 2, "flusher": UNLIMITED, "fsyncs": 2, "second_file": 1},
    {"writes": 2, "flusher": 1, "fsyncs": 2, "settles": 1},
    {"writes": 2, "fsyncs": 1, "syncfs": 1, "settles": 1},
    {"writes": 2, "fsyncs": 1, "truncates": 1, "settles": 1, "second_file": 1},
    {"writes": 2, "flusher": 1, "fsyncs": 1, "truncates": 1},
    {"writes": 3, "fsyncs": 1, "truncates": 2, "second_file": 1},
    {"writes": 2, "fsyncs": 1, "cuts": 1, "settles": 1},
    {"writes": 2, "flusher": 1, "fsyncs": 1, "cuts": 1, "second_file": 1},
    {"writes": 2, "flusher": 1, "fsyncs": 2, "directs": 1, "evicts": 1},
    {"writes": 2, "flusher": 1, "fsyncs": 1, "directs": 1, "second_file": 1},
    {"writes": 2, "flusher": 1, "fsyncs": 1, "zeroes": 1, "second_file": 1},
    {"writes": 2, "flusher": 1, "fsyncs": 1, "shrinks": 1, "second_file": 1},
    {"writes": 2, "flusher": 2, "fsyncs": 1, "moves": 1, "second_file": 1},
    {"writes": 2, "flusher": 1, "fsyncs": 1, "evicts": 1, "freezes": 1, "second_file": 1},
    {"writes": 2, "fsyncs": 1, "freezes": 1, "settles": 2},
    {"writes": 2, "flusher": 1, "fsyncs": 1, "evicts": 1, "settles": 1},
]
LONG_BUDGETS = [
    {"writes": 2, "flusher": 1, "fsyncs": 2, "directs": 1, "second_file": 1},
    {"writes": 3, "flusher": UNLIMITED, "fsyncs": 3, "settles": 1},
    {"writes": 3, "flusher": 1, "fsyncs": 2, "settles": 2},
    {"writes": 3, "flusher": UNLIMITED, "fsyncs": 2, "second_file": 1},
    {"writes": 2, "flusher": 2, "fsyncs": 2, "moves": 1, "second_file": 1},
    {"writes": 2, "flusher": 1, "fsyncs": 1, "truncates": 1, "syncfs": 1, "second_file": 1},
    {"writes": 2, "flusher": 1, "fsyncs": 1, "truncates": 1, "settles": 1, "second_file": 1},
    {"writes": 2, "flusher": 1, "fsyncs": 1, "syncfs": 1, "settles": 1, "second_file": 1},
    {"writes": 2, "flusher": 1, "fsyncs": 2, "evicts": 1, "settles": 1, "second_file": 1},
    {"writes": 2, "flusher": 1, "fsyncs": 1, "directs": 1, "settles": 1, "second_file": 1},
    {"writes": 2, "flusher": 1, "fsyncs": 1, "zeroes": 1, "shrinks": 1, "truncates": 1},
    {"writes": 2, "flusher": 1, "fsyncs": 2, "evicts": 1, "settles": 1},
    {"writes": 2, "fsyncs": 2, "freezes": 1, "settles": 1, "second_file": 1},
    {"writes": 2, "fsyncs": 1, "syncfs": 1, "freezes": 1, "settles": 1},
    {"writes": 2, "flusher": 1, "fsyncs": 1, "evicts": 1, "freezes": 1, "settles": 1},
    {"writes": 2, "flusher": 1, "fsyncs": 3, "truncates": 1},
    {"writes": 2, "flusher": 1, "fsyncs": 1, "evicts": 1, "syncfs": 1, "settles": 1},
    {"writes": 2, "flusher": 1, "fsyncs": 2, "evicts": 2, "directs": 1, "settles": 1},
]

# Each fault with the smallest budget that shows it.
PLANTED: list[tuple[str, dict[str, int]]] = [
    ("TAIL_IGNORES_FLOOR", {"writes": 2, "fsyncs": 2, "second_file": 1}),
    ("SETTLE_DROPS_BOTH_FLOORS", {"writes": 2, "fsyncs": 2, "settles": 1}),
    ("SETTLE_SKIPS_PLACES", {"writes": 1, "fsyncs": 1, "settles": 1}),
    ("SETTLE_DOES_NOT_WAIT", {"writes": 1, "fsyncs": 1, "settles": 1}),
    ("SETTLE_SKIPS_FLUSH", {"writes": 1, "fsyncs": 1, "settles": 1}),
    ("SETTLE_SKIPS_COMMIT", {"writes": 1, "fsyncs": 1, "truncates": 1, "settles": 1}),
    ("SETTLE_FORGETS_EARLY", {"writes": 2, "flusher": 1, "fsyncs": 2, "settles": 1}),
    ("SETTLE_FORGETS_NEWER", {"writes": 2, "flusher": 1, "fsyncs": 2, "settles": 1}),
    ("SETTLE_UNLISTS_NEWER", {"writes": 2, "fsyncs": 2, "settles": 2}),
    ("COPIED_TAKEN_LATE", {"writes": 2, "fsyncs": 2, "settles": 2}),
    ("SETTLE_JOINED_LATE", {"writes": 2, "fsyncs": 1, "syncfs": 1, "settles": 1}),
    ("WRITEBACK_CLEANS", {"writes": 2, "flusher": 1, "fsyncs": 2}),
    ("KEPT_BY_RUNNING", {"writes": 2, "fsyncs": 1, "syncfs": 1, "settles": 1}),
    ("KEPT_GOES_BACK", {"writes": 2, "fsyncs": 1, "syncfs": 1, "settles": 1}),
    ("SYNCFS_SKIPS_SETTLE", {"writes": 2, "fsyncs": 1, "syncfs": 1}),
    ("FREEZE_SKIPS_SECOND_PASS", {"writes": 2, "fsyncs": 1, "freezes": 1}),
    ("SECOND_PASS_IF_UNSETTLED", {"writes": 2, "fsyncs": 1, "freezes": 1, "settles": 2}),
    ("PLACED_NOT_SETTLED", {"writes": 2, "fsyncs": 2}),
    ("OVERWRITE_NOT_LOOKED", {"writes": 2, "fsyncs": 2}),
    ("LOOK_WITHOUT_MUTEX", {"writes": 2, "fsyncs": 3}),
    ("WINDOW_LOST", {"writes": 2, "fsyncs": 2}),
    ("WINDOW_NOT_GIVEN_BACK", {"writes": 2, "fsyncs": 2}),
    ("LOGGED_STAYS", {"writes": 2, "fsyncs": 2}),
    ("MUTEX_DROPPED_EARLY", {"writes": 1, "fsyncs": 2}),
    ("UNLOCKED_BEFORE_WAIT", {"writes": 2, "flusher": 1, "fsyncs": 3, "truncates": 1}),
    ("REDIRTIED_NOT_WAITED", {"writes": 2, "flusher": 1, "fsyncs": 1}),
    ("ALLOCATED_WITHOUT_COPY", {"writes": 1, "fsyncs": 1}),
    ("FIRST_SYNC_SKIPS_SETTLE", {"writes": 2, "flusher": 1, "fsyncs": 2, "evicts": 1}),
    ("GONE_FORGOTTEN", {"writes": 2, "flusher": 1, "fsyncs": 2, "evicts": 1}),
    ("EVICTED_NOT_IN_PLACE", {"writes": 1, "fsyncs": 1, "evicts": 1, "settles": 1}),
    ("FREE_WITHOUT_REVOKE", {"writes": 2, "fsyncs": 2, "truncates": 1, "second_file": 1}),
    ("REVOKE_LATER", {"writes": 2, "fsyncs": 2, "truncates": 1, "second_file": 1}),
    ("REUSED_BEFORE_COMMIT", {"writes": 2, "fsyncs": 2, "truncates": 1, "second_file": 1}),
    ("DIRECT_WITHOUT_HOLD", {"writes": 1, "fsyncs": 2, "directs": 1}),
    ("ZERO_WITHOUT_HOLD", {"writes": 2, "flusher": 1, "fsyncs": 1, "zeroes": 1}),
    ("SHRINK_WITHOUT_HOLD", {"writes": 1, "fsyncs": 1, "shrinks": 1}),
    ("CUT_WITHOUT_HOLD", {"writes": 1, "fsyncs": 1, "cuts": 1, "settles": 1}),
    ("CUT_NOT_IN_PLACE", {"writes": 1, "fsyncs": 1, "cuts": 1, "settles": 1}),
    ("MOVE_WITHOUT_HOLD", {"writes": 2, "flusher": 2, "fsyncs": 1, "moves": 1, "second_file": 1}),
    ("HOLD_SKIPS_MUTEX", {"writes": 2, "flusher": 1, "fsyncs": 2, "directs": 1}),
    ("HOLD_STILL_LOGS", {"writes": 2, "fsyncs": 3, "directs": 1}),
]

# What an op's budget is called.
BUDGET_OF = {
    "write": "writes",
    "flusher sends": "flusher",
    "fsync begins": "fsyncs",
    "sync begins": "syncfs",
    "freeze begins": "freezes",
    "truncate or unlink: size and orphan": "truncates",
    "truncate begins": "cuts",
    "O_DIRECT write begins": "directs",
    "zero range begins": "zeroes",
    "shrink inside the block and grow begin": "shrinks",
    "MOVE_EXT begins": "moves",
    "evict and read again": "evicts",
}


def in_words(budget: dict[str, int]) -> str:
    return ",".join(f"{name}={number}" for name, number in budget.items())


def all_is_kept(model: Model, budget: dict[str, int], bits: int) -> None:
    found = model.search(bits=bits, **budget)
    print(f"{found.states} states, {found.steps} steps")
    assert not found.story
    assert found.complete
    assert found.stuck == 0
    never = [op for op, name in BUDGET_OF.items() if name in budget and not found.taken[op]]
    assert not never


@pytest.mark.parametrize("budget", BUDGETS, ids=in_words)
def test_all_that_was_promised_is_kept(model: Model, budget: dict[str, int]) -> None:
    all_is_kept(model, budget, 20)


@pytest.mark.long
@pytest.mark.parametrize("budget", LONG_BUDGETS, ids=in_words)
def test_all_that_was_promised_is_kept_for_longer(model: Model, budget: dict[str, int]) -> None:
    all_is_kept(model, budget, 25)


def test_walks_by_chance_keep_what_was_promised(model: Model) -> None:
    found = model.walk(seed=1, walks=6_000, steps=300)
    assert not found.story
    assert all(found.taken.values())


@pytest.mark.parametrize(("fault", "budget"), PLANTED, ids=[fault for fault, _ in PLANTED])
def test_a_rule_that_is_switched_off_is_missed(
    model: Model, fault: str, budget: dict[str, int]
) -> None:
    found = model.search(fault, **budget)
    print(f"{found.states} states, {found.steps} steps; {found.length} steps to\n{found.story}")
    assert found.story
    assert found.complete


@pytest.mark.long
@pytest.mark.parametrize("budget", [budget for _, budget in PLANTED], ids=in_words)
def test_it_is_the_fault_that_is_missed(model: Model, budget: dict[str, int]) -> None:
    all_is_kept(model, budget, 25)


def test_every_fault_of_the_model_is_planted(model: Model) -> None:
    assert [fault for fault, _ in PLANTED] == model.faults
