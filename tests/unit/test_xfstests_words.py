"""What fastsync xfstests tells: on the terminal, and in docs/xfstests.md."""

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
from fastsync_lab.xfstests.results import NOT_RUN, OF_MODE, OPEN, Key, Run, Runs, runs_json
from tests.unit.suites import BY_LOG, FAILED, KEY, PASSED

RUNS: dict[str, Runs] = {
    CONTROL: {"a": [PASSED, PASSED], "b": [Run(NOT_RUN, 1)], "c": [FAILED], "d": [PASSED]},
    "defer": {"a": [FAILED, FAILED], "c": [FAILED]},
}


def test_table_counts_verdicts_and_comparisons() -> None:
    rows = summary.table_rows(RUNS, ["a", "b", "c", "d"])
    assert rows == [
        (CONTROL, "4", "2", "1", "1", "0", "0", "", "0", "", "", "", "", "0"),
        ("defer", "3", "0", "2", "1", "0", "0", "2", "0", "0", "1", "0", "0", "1"),
    ]


def test_each_test_of_a_mode_of_ours_is_in_one_of_the_columns_of_comparison() -> None:
    runs: dict[str, Runs] = {
        CONTROL: {"a": [FAILED] * 2, "b": [FAILED] * 2, "c": [FAILED, PASSED]},
        "defer": {"a": [PASSED] * 2, "b": [BY_LOG] * 2, "c": [PASSED]},
    }
    _, row = summary.table_rows(runs, ["a", "b", "c", "d"])
    assert row[-7:] == ("0", "1", "0", "0", "1", "1", "1")
    assert summary.COLUMNS[-3:] == ("passes on ours only", "otherwise than on stock", OPEN)


def test_what_passes_on_stock_only_is_told_and_is_a_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert summary.print_results(RUNS, ["a", "b", "c", "d"])
    told = "defer a: passes on stock only (stock pass, pass; defer fail [output], fail [output])"
    assert told in capsys.readouterr().out
    assert not summary.print_results(RUNS, ["b", "c"])
    once = {CONTROL: {"a": [PASSED], "d": [PASSED]}, "defer": {"a": [FAILED]}}
    assert not summary.print_results(once, ["a", "d"])
    told = capsys.readouterr().out
    assert "defer a: not known yet (stock pass; defer fail [output])" in told
    assert "defer d" not in told
    varies = {CONTROL: {"a": [PASSED] * 5}, "defer": {"a": [*[PASSED] * 4, FAILED]}}
    assert summary.print_results(varies, ["a"])
    assert "defer a: varies on ours only" in capsys.readouterr().out
    graver = {CONTROL: {"a": [FAILED] * 2}, "defer": {"a": [BY_LOG] * 2}}
    assert summary.print_results(graver, ["a"])
    told = "defer a: otherwise than on stock (stock fail [output], fail [output]; defer fail ["
    assert f"{told}output, kernel log], fail [" in capsys.readouterr().out


def result(release: str = "6.12", **keys: Key) -> dict[str, Any]:
    """The runs above as a result file has them; modes without a key of their own have KEY."""
    modes = {
        mode: {"key": asdict(keys.get(mode, KEY)), "tests": runs_json(of)}
        for mode, of in RUNS.items()
    }
    return {"kernel_release": release, "tree_commit": "1234", "modes": modes}


def test_each_mode_has_the_age_of_its_own_modules() -> None:
    kept = result()
    assert "modules aa (ours older than this tree's), xf" in in_markdown(summary.parts(kept))
    kept["modes"]["defer"]["source_sha256"] = source_digest("6.12")
    assert "modules aa (ours of this tree), xf" in in_markdown(summary.parts(kept))
    kept["modes"]["off"] = {"key": asdict(replace(KEY, modules_sha256="bb")), "tests": {}}
    text = in_markdown(summary.parts(kept))
    assert "modules aa, bb (defer of this tree, off older than this tree's), xfstests" in text
    kept["modes"] = {CONTROL: kept["modes"][CONTROL]}
    assert "modules aa, xfstests 1234, " in in_markdown(summary.parts(kept))


def test_a_result_from_before_modes_named_their_sources_is_old() -> None:
    kept = result()
    kept["source_sha256"] = source_digest("6.12")
    for data in kept["modes"].values():
        data["key"] = {name: data["key"][name] for name in ("kernel", "modules_sha256", "machine")}
    text = in_markdown(summary.parts(kept))
    assert "(ours older than this tree's)" in text and "| defer |" in text
    kept["modes"][CONTROL]["key"] = asdict(KEY)
    assert "Left out: defer." in in_markdown(summary.parts(kept))


def test_document_has_the_tests_that_were_left_open() -> None:
    text = in_markdown(summary.parts(result()))
    told = "- defer, a: passes on stock only (stock pass, pass; defer fail [output], fail [output])"
    assert told in text
    assert "| generic/455 | not known yet | not known yet |" in text
    assert "Left out" not in text


@pytest.mark.parametrize("field", list(Key.__dataclass_fields__))
def test_a_mode_is_held_against_stock_only_where_all_but_the_mode_is_the_same(
    field: str,
) -> None:
    text = in_markdown(summary.parts(result(defer=replace(KEY, **{field: "other"}))))
    compared = field in OF_MODE
    assert ("| defer |" in text, "defer, a: passes" in text) == (compared, compared)
    assert ("\n\nLeft out: defer. Their kernel, root image, " in text) != compared
    seconds = ", 26 s of tests by the host's clock" if compared else ", 14 s of tests by the "
    modules = {"modules_sha256": "aa, other (ours ", "options": "aa (ours "}.get(field, "aa, xf")
    assert f"modules {modules}" in text and seconds in text


def test_each_kernel_has_a_block_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr(keeper, "results_dir", lambda: tmp_path)
    monkeypatch.setattr(keeper, "write_block", lambda _path, _name, text: written.append(text))
    summary.write_xfstests()
    assert written == []
    for series in ("7.2", "6.12"):
        kept = {"format": 1, **result(f"{series}.1-uml")}
        write_json(tmp_path / f"xfstests-{series}.json", kept)
    summary.write_xfstests()
    (text,) = written
    blocks = [in_markdown(summary.parts(result(f"{series}.1-uml"))) for series in ("6.12", "7.2")]
    assert text == "\n\n".join(blocks)
    assert all(block.startswith("Kernel ") for block in blocks)
