"""What is made of mutmut's answers, without running it."""

import re
from pathlib import Path

import pytest

from fastsync_lab.host import mutants, shell
from fastsync_lab.host.mutants import Change, Outcome
from fastsync_lab.host.paths import repo_root

RESULTS = """\
    fastsync_lab.study.judge.x_within__mutmut_1: killed
    fastsync_lab.study.judge.xǁVerdictǁdescribe__mutmut_2: survived
    fastsync_lab.crash.oracle.x_begun__mutmut_3: timeout
    fastsync_lab.crash.oracle.x_begun__mutmut_4: no tests
"""
DIFF = """\
# fastsync_lab.study.judge.x_within__mutmut_1: survived
--- fastsync_lab/study/judge.py
+++ fastsync_lab/study/judge.py
@@ -1,4 +1,4 @@
 def within(figure: float) -> bool:
-    return least <= figure
+    return least < figure
"""
JUDGE, ORACLE = "fastsync_lab/study/judge.py", "fastsync_lab/crash/oracle.py"
CONFIG = f"[tool.mutmut]\nonly_mutate = {{}}\n{mutants.SELECTION} = {{}}\n"
FRESH = "The modules are of this tree. The tests are of this tree."
CHANGE = Change(JUDGE, "return least <= figure", "return least < figure")


def test_what_became_of_each_mutant() -> None:
    results = mutants.parse_results(RESULTS)
    assert len(results) == 4
    assert mutants.outcomes_of(results, [ORACLE, JUDGE]) == [
        Outcome(ORACLE, 2, 1),
        Outcome(JUDGE, 2, 1),
    ]
    assert mutants.missed_in(results) == [
        "fastsync_lab.study.judge.xǁVerdictǁdescribe__mutmut_2",
        "fastsync_lab.crash.oracle.x_begun__mutmut_4",
    ]


def test_a_change_is_told_by_its_lines() -> None:
    assert mutants.parse_change("fastsync_lab.study.judge.x_within__mutmut_1", DIFF) == CHANGE


def test_reasons_are_found_by_the_change() -> None:
    text = (
        f'[[survivor]]\nmodule = "{JUDGE}"\nold = "{CHANGE.old}"\nnew = "{CHANGE.new}"\n'
        'why = "the same"\n'
    )
    assert mutants.load_reasons(text) == {CHANGE: "the same"}
    assert mutants.load_reasons("") == {}


@pytest.mark.parametrize(
    ("killed", "reasons", "found"),
    [
        (90, {CHANGE: "why"}, []),
        (89, {CHANGE: "why"}, [f"{JUDGE}: only 89 of 100 mutants are killed"]),
        (
            90,
            {},
            [f"{JUDGE}: nobody explains `return least < figure` in place of "
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
    assert mutants.problems([Outcome(JUDGE, 100, killed)], [CHANGE], reasons) == found


def test_a_module_that_was_not_tried_is_a_problem() -> None:
    assert mutants.problems([Outcome(JUDGE, 0, 0)], [], {}) != []


def test_the_document_has_the_numbers_and_the_reasons() -> None:
    outcomes = [Outcome(JUDGE, 100, 95), Outcome(ORACLE, 300, 300)]
    digests = {JUDGE: "0a1b", ORACLE: "2c3d", mutants.TESTS: "4e5f"}
    text = mutants.document(outcomes, [CHANGE], {CHANGE: "of a NaN alone"}, digests)
    assert f"| {JUDGE} | 100 | 95 | 95.0% | 0a1b |" in text
    assert "| all | 400 | 395 | 98.8% |  |" in text
    assert "| the tests |  |  |  | 4e5f |" in text
    assert "\nThe modules are of this tree. The tests are of this tree.\n" in text
    line = "`return least < figure` in place of `return least <= figure`: of a NaN alone"
    assert f"- {JUDGE}: {line}\n" in text
    assert "not explained" in mutants.document(outcomes, [CHANGE], {}, digests)
    whole = mutants.document(outcomes, [], {}, digests)
    assert whole.endswith("## Those that survive\n\nNone.\n")


def test_the_document_says_what_has_changed_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_judge, test_oracle = "tests/unit/test_judge.py", "tests/unit/test_oracle.py"
    for name in (JUDGE, ORACLE, test_judge, test_oracle):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "pyproject.toml").write_text(CONFIG.format([JUDGE], [test_judge, test_oracle]))
    (tmp_path / "docs").mkdir()
    path = tmp_path / mutants.DOCUMENT
    digests = mutants.digests_of(tmp_path, [JUDGE, ORACLE])
    digests[mutants.TESTS] = mutants.tests_digest(tmp_path)
    assert all(re.fullmatch("[0-9a-f]{12}", digest) for digest in digests.values())
    written = mutants.document(
        [Outcome(JUDGE, 100, 95), Outcome(ORACLE, 3, 3)], [CHANGE], {}, digests
    )
    path.write_text(written)
    monkeypatch.setattr(mutants, "repo_root", lambda: tmp_path)

    def said() -> str:
        mutants.write_age()
        text = path.read_text()
        line = next(line for line in text.splitlines() if line.startswith("The modules are "))
        assert text == written.replace(FRESH, line)
        return line

    assert said() == FRESH
    (tmp_path / JUDGE).write_text("changed")
    (tmp_path / test_judge).write_text("changed")
    assert said() == (
        f"The modules are of this tree, but for some older than this tree's: {JUDGE}. "
        "The tests are older than this tree's."
    )
    (tmp_path / ORACLE).unlink()
    (tmp_path / test_judge).write_text(test_judge)
    assert said() == "The modules are older than this tree's. The tests are of this tree."
    (tmp_path / test_oracle).unlink()
    assert said().endswith(" The tests are older than this tree's.")


def test_a_document_without_a_digest_of_the_tests_is_of_older_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutants, "repo_root", lambda: tmp_path)
    (tmp_path / "pyproject.toml").write_text(CONFIG.format([], ["tests/a.py"]))
    (tmp_path / "docs").mkdir()
    path = tmp_path / mutants.DOCUMENT
    digests = {JUDGE: "", mutants.TESTS: mutants.began_with(tmp_path)}
    for line in ("The modules are of this tree.", FRESH):
        path.write_text(f"{line}\n\n{mutants.document([], [], {}, digests)}")
        mutants.write_age()
        assert path.read_text().startswith(
            "The modules are of this tree. The tests are older than this tree's.\n"
        )


def test_what_is_configured_explained_and_told_is_there() -> None:
    project = mutants.config_of(repo_root())
    modules = project["only_mutate"]
    for name in (*modules, *project["pytest_add_cli_args_test_selection"], *project["also_copy"]):
        assert (repo_root() / name).exists(), name
    reasons = mutants.load_reasons((repo_root() / "tests" / "mutants.toml").read_text())
    assert {one.module for one in reasons} <= set(modules)
    told = (repo_root() / mutants.DOCUMENT).read_text()
    assert [name for name, _ in mutants.ROW.findall(told) if name != mutants.TESTS] == modules
    assert len(mutants.AGE.findall(told)) == 1  # `./fastsync report` keeps it up to date
    assert all((repo_root() / name).exists() for name in re.findall(r"`(tests/\S+\.py)`", told))


def test_the_copy_is_brought_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origin, target = tmp_path / "origin", tmp_path / "copy"
    (origin / "a").mkdir(parents=True)
    for name in ("a/same", "a/changed", "gone"):
        (origin / name).write_text(name)
    (origin / "pyproject.toml").write_text(CONFIG.format(["x", "y"], ["a/changed"]))
    shell.run(["git", "init", "-q"], cwd=origin)
    shell.run(["git", "add", "."], cwd=origin)
    monkeypatch.setattr(mutants, "repo_root", lambda: origin)
    mutants.copy_tree(target)
    (target / "mutants").mkdir()  # what mutmut keeps
    before, tests = (target / "a" / "same").stat().st_mtime_ns, mutants.tests_digest(origin)
    assert mutants.began_with(target) == tests
    (origin / "a" / "changed").write_text("new")
    (origin / "gone").unlink()
    (origin / "pyproject.toml").write_text(CONFIG.format(["y"], ["a/changed"]))
    mutants.copy_tree(target)
    assert (target / "a" / "same").stat().st_mtime_ns == before
    assert (target / "a" / "changed").read_text() == "new"
    assert not (target / "gone").exists()
    assert (target / "mutants").exists() and mutants.began_with(target) == tests
    (origin / "pyproject.toml").write_text(CONFIG.format(["y", "z"], ["a/changed"]))
    mutants.copy_tree(target)
    assert (target / "a" / "same").read_text() == "a/same"
    assert not (target / "mutants").exists()
    assert mutants.began_with(target) == mutants.tests_digest(origin) != tests
