"""What fastsync xfstests tells: on the terminal, and in docs/reliability.md."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from fastsync_lab.host.build import source_digest
from fastsync_lab.host.options import CONTROL
from fastsync_lab.host.paths import write_json
from fastsync_lab.study import keeper
from fastsync_lab.study.grid import in_markdown
from fastsync_lab.xfstests import summary
from fastsync_lab.xfstests.results import FAIL, NOT_RUN, PASS, Key, Run, Runs, runs_json

PASSED, FAILED = Run(PASS, 3), Run(FAIL, 4, "output")
KEY = Key("6.12.1-1", "aa", "bb", "cc", "dd", "ee")
RUNS: dict[str, Runs] = {
    CONTROL: {"a": [PASSED, PASSED], "b": [Run(NOT_RUN, 1)], "c": [FAILED], "d": [PASSED]},
    "defer": {"a": [FAILED, FAILED], "c": [FAILED]},
}


def test_table_counts_verdicts_and_comparisons() -> None:
    rows = summary.table_rows(RUNS, ["a", "b", "c", "d"])
    assert rows == [
        (CONTROL, "4", "2", "1", "1", "0", "0", "", "0", "", "", "0"),
        ("defer", "3", "0", "2", "1", "0", "0", "2", "0", "0", "1", "1"),
    ]


def test_what_passes_on_stock_only_is_told_and_is_a_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert summary.print_results(RUNS, ["a", "b", "c", "d"])
    told = "defer a: passes on stock only (stock pass, pass; defer fail, fail)"
    assert told in capsys.readouterr().out
    assert not summary.print_results(RUNS, ["b", "c"])
    once = {CONTROL: {"a": [PASSED], "d": [PASSED]}, "defer": {"a": [FAILED]}}
    assert not summary.print_results(once, ["a", "d"])
    told = capsys.readouterr().out
    assert "defer a: not known yet (stock pass; defer fail)" in told and "defer d" not in told
    varies = {CONTROL: {"a": [PASSED] * 5}, "defer": {"a": [*[PASSED] * 4, FAILED]}}
    assert summary.print_results(varies, ["a"])
    assert "defer a: varies on ours only" in capsys.readouterr().out


def result(release: str = "6.12", **keys: Key) -> dict[str, Any]:
    """The runs above as a result file has them; modes without a key of their own have KEY."""
    modes = {
        mode: {"key": asdict(keys.get(mode, KEY)), "tests": runs_json(of)}
        for mode, of in RUNS.items()
    }
    return {"kernel_release": release, "tree_commit": "1234", "modes": modes}


def test_modes_of_several_builds_are_not_taken_for_those_of_the_last_run() -> None:
    kept = result()
    kept["source_sha256"] = source_digest("6.12")
    assert "(ours of this tree)" in in_markdown(summary.parts(kept))
    kept["modes"]["off"] = {"key": asdict(replace(KEY, modules_sha256="bb")), "tests": {}}
    assert "(ours of several builds)" in in_markdown(summary.parts(kept))


def test_document_has_the_tests_that_were_left_open() -> None:
    text = in_markdown(summary.parts(result()))
    assert "- defer, a: passes on stock only (stock pass, pass; defer fail, fail)" in text
    assert "| generic/455 | not known yet | not known yet |" in text
    assert "Left out" not in text


@pytest.mark.parametrize("field", list(Key.__dataclass_fields__))
def test_a_mode_is_held_against_stock_only_where_all_but_the_modules_is_the_same(
    field: str,
) -> None:
    text = in_markdown(summary.parts(result(defer=replace(KEY, **{field: "other"}))))
    compared = field == "modules_sha256"
    assert ("| defer |" in text, "defer, a: passes" in text) == (compared, compared)
    assert ("\n\nLeft out: defer. Their kernel, root image, " in text) != compared
    assert ("modules aa, other (ours" in text, "modules aa (ours" in text) == (
        compared,
        not compared,
    )
    assert ("26 s" in text, "14 s" in text) == (compared, not compared)


def test_each_kernel_has_a_block_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr(summary, "results_dir", lambda: tmp_path)
    monkeypatch.setattr(keeper, "write_block", lambda _path, _name, text: written.append(text))
    summary.write_xfstests()
    assert written == []
    for series in ("7.2", "6.12"):
        write_json(tmp_path / f"xfstests-{series}.json", result(f"{series}.1-uml"))
    summary.write_xfstests()
    (text,) = written
    blocks = [in_markdown(summary.parts(result(f"{series}.1-uml"))) for series in ("6.12", "7.2")]
    assert text == "\n\n".join(blocks)
    assert all(block.startswith("Kernel ") for block in blocks)
