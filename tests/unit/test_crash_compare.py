"""Failures of the explorer that stock has, too, and those that are ours."""

from dataclasses import replace

from fastsync_lab.crash.case import Case, Failure, Outcome
from fastsync_lab.crash.compare import compared_with_stock
from fastsync_lab.crash.junk import junk
from fastsync_lab.crash.oracle import junk_problems
from fastsync_lab.crash.summary import failure_lines
from tests.unit.crashes import file


def outcome(case: Case, *failures: Failure) -> Outcome:
    return Outcome(case, states=200, second_states=60, failures=list(failures))


def test_a_failure_that_stock_has_is_not_ours() -> None:
    here, elsewhere = (Failure("9.none", 1, (problem,), "again", "image") for problem in "ab")
    both = Failure("8.none", 1, ("a", "c"), "again", "image")
    ours = outcome(Case("mmap", "defer", "fast_commit"), here, elsewhere, both)
    stock = outcome(Case("mmap", "stock", "fast_commit"), here)
    other = outcome(Case("append", "stock", "fast_commit"), elsewhere)
    found = compared_with_stock([ours, stock, other])
    assert [failure.on_stock for failure in found[0].failures] == [True, False, False]
    assert found[0].own_failures == [elsewhere, both]
    assert failure_lines(found[0])[0].startswith("FAILED: 2 of 260")
    assert failure_lines(found[1])[0].startswith("as on stock: 1 of 260")
    (alone,) = compared_with_stock([ours])
    assert alone.own_failures == ours.failures


def test_what_does_not_mount_on_stock_either_names_no_workload() -> None:
    unmountable = ("mount failed with errno 74", "names: missing: ['f']")
    torn = Failure("3.head0-1", 1, unmountable, "again", "image")
    other_error = replace(torn, problems=("mount failed with errno 5",))
    ours = outcome(Case("direct", "defer", "1k-blocks"), torn, other_error)
    elsewhere = outcome(Case("direct", "defer", "bigalloc"), torn)
    stock = outcome(Case("mmap", "stock", "1k-blocks"), replace(torn, problems=unmountable[:1]))
    found = compared_with_stock([ours, elsewhere, stock])
    assert [failure.on_stock for failure in found[0].failures] == [True, False]
    assert [failure.on_stock for failure in found[1].failures] == [False]


def test_junk_is_as_on_stock_whichever_sector_it_is_of() -> None:
    def showing(name: str, sector: int) -> Failure:
        (problem,) = junk_problems({name: file(12, junk(sector, 1))})
        return Failure("9.none", 1, (problem,), "again", "image")

    ours = outcome(Case("mmap", "defer", "fast_commit"), showing("f", 70), showing("g", 7))
    stock = outcome(Case("mmap", "stock", "fast_commit"), showing("f", 80))
    found = compared_with_stock([ours, stock])
    assert [failure.on_stock for failure in found[0].failures] == [True, False]


def test_where_e2fsck_gives_up_on_stock_too_its_word_does_not_count() -> None:
    gave_up = "e2fsck -fy ended with 1: Journal transaction {} was corrupt, replay was aborted."
    disagree = "log: the kernel and e2fsck disagree: size {} and 61440"
    name = "s94: there only after recovery by e2fsck"
    lost = "after recovery by e2fsck: log: size is 0"

    def failure(number: int, *more: str) -> Failure:
        problems = (gave_up.format(number), disagree.format(number), *more)
        return Failure("55.head0-4", 1, problems, "again", "image")

    alone = replace(failure(1), problems=(disagree.format(1),))
    both = (failure(211, name), failure(212, lost))
    ours = outcome(Case("append", "defer", "crashed"), *both, alone)
    elsewhere = outcome(Case("append", "defer", "ordered"), failure(211))
    stock = outcome(Case("random", "stock", "crashed"), failure(7))
    found = compared_with_stock([ours, elsewhere, stock])
    assert [failure.on_stock for failure in found[0].failures] == [True, False, False]
    assert [failure.on_stock for failure in found[1].failures] == [False]
