"""What is made of mutmut's answers, without running it."""

from pathlib import Path

import pytest

from fastsync_lab.host import mutants, shell
from fastsync_lab.host.mutants import Change, Outcome

RESULTS = """\
    fastsync_lab.required.x_within__mutmut_1: killed
    fastsync_lab.required.xǁVerdictǁdescribe__mutmut_2: survived
    fastsync_lab.crash.oracle.x_begun__mutmut_3: timeout
    fastsync_lab.crash.oracle.x_begun__mutmut_4: no tests
"""
DIFF = """\
# fastsync_lab.required.x_within__mutmut_1: survived
--- fastsync_lab/required.py
+++ fastsync_lab/required.py
@@ -1,4 +1,4 @@
 def within(figure: float) -> bool:
-    return least <= figure
+    return least < figure
"""
REQUIRED, ORACLE = "fastsync_lab/required.py", "fastsync_lab/crash/oracle.py"
CHANGE = Change(REQUIRED, "return least <= figure", "return least < figure")


def test_what_became_of_each_mutant() -> None:
    results = mutants.parse_results(RESULTS)
    assert len(results) == 4
    assert mutants.outcomes_of(results, [ORACLE, REQUIRED]) == [
        Outcome(ORACLE, 2, 1),
        Outcome(REQUIRED, 2, 1),
    ]


def test_a_change_is_told_by_its_lines() -> None:
    assert mutants.parse_change("fastsync_lab.required.x_within__mutmut_1", DIFF) == CHANGE


def test_reasons_are_found_by_the_change() -> None:
    text = (
        f'[[survivor]]\nmodule = "{REQUIRED}"\nold = "{CHANGE.old}"\nnew = "{CHANGE.new}"\n'
        'why = "the same"\n'
    )
    assert mutants.load_reasons(text) == {CHANGE: "the same"}
    assert mutants.load_reasons("") == {}


@pytest.mark.parametrize(
    ("killed", "reasons", "found"),
    [
        (90, {CHANGE: "why"}, []),
        (89, {CHANGE: "why"}, [f"{REQUIRED}: only 89 of 100 mutants are killed"]),
        (
            90,
            {},
            [f"{REQUIRED}: nobody explains `return least < figure` in place of "
             "`return least <= figure`"],
        ),
        (
            90,
            {CHANGE: "why", Change(ORACLE, "a", "b"): "old"},
            [f"{ORACLE}: tests/mutants.toml explains `b`, which no longer survives"],
        ),
    ],
)  # fmt: skip
def test_what_is_not_as_it_has_to_be(
    killed: int, reasons: dict[Change, str], found: list[str]
) -> None:
    assert mutants.problems([Outcome(REQUIRED, 100, killed)], [CHANGE], reasons) == found


def test_a_module_that_was_not_tried_is_a_problem() -> None:
    assert mutants.problems([Outcome(REQUIRED, 0, 0)], [], {}) != []


def test_the_document_has_the_numbers_and_the_reasons() -> None:
    outcomes = [Outcome(REQUIRED, 100, 95), Outcome(ORACLE, 300, 300)]
    text = mutants.document(outcomes, [CHANGE], {CHANGE: "of a NaN alone"})
    assert f"| {REQUIRED} | 100 | 95 | 95.0% |" in text
    assert "| all | 400 | 395 | 98.8% |" in text
    line = "`return least < figure` in place of `return least <= figure`: of a NaN alone"
    assert f"- {REQUIRED}: {line}\n" in text
    assert "not explained" in mutants.document(outcomes, [CHANGE], {})
    assert mutants.document(outcomes, [], {}).endswith("## Those that survive\n\nNone.\n")


def test_the_copy_is_brought_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origin, target = tmp_path / "origin", tmp_path / "copy"
    (origin / "a").mkdir(parents=True)
    for name in ("a/same", "a/changed", "gone"):
        (origin / name).write_text(name)
    shell.run(["git", "init", "-q"], cwd=origin)
    shell.run(["git", "add", "."], cwd=origin)
    monkeypatch.setattr(mutants, "repo_root", lambda: origin)
    mutants.copy_tree(target)
    before = (target / "a" / "same").stat().st_mtime_ns
    (origin / "a" / "changed").write_text("new")
    (origin / "gone").unlink()
    mutants.copy_tree(target)
    assert (target / "a" / "same").stat().st_mtime_ns == before
    assert (target / "a" / "changed").read_text() == "new"
    assert not (target / "gone").exists()
