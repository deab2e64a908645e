"""Documents say which of a study's figures are of older modules than this tree's."""

from dataclasses import replace
from pathlib import Path

import pytest

from fastsync_lab.host import glue
from fastsync_lab.host.age import age
from fastsync_lab.host.build import source_digest
from fastsync_lab.studies import studies
from fastsync_lab.study import chapters, gains, pages
from fastsync_lab.study.grid import in_markdown
from fastsync_lab.study.show import older_modules
from fastsync_lab.study.store import Result, modules_of, parse_result
from tests.unit.study_results import data, neighbour, overwrite, result, with_ours

ALL_OLD = "All of it with modules older than this tree's."


def old(result: Result) -> Result:
    """The same, from before results named the sources of their modules."""
    return replace(result, sources={})


def test_the_words() -> None:
    assert age("1", "1") == "of this tree"
    assert age("2", "1") == age(None, "1") == age("", "1") == "older than this tree's"


def test_a_result_is_of_the_modules_that_it_loaded() -> None:
    pair, stock = (f"{name}/{file}.ko" for name, file in (("fastsync", "ext4"), ("stock", "jbd2")))
    files = dict.fromkeys([stock, pair, "fastsync/jbd2.ko", "flashdev.ko", "filebench"], "")
    assert modules_of({"sha256": files}) == ["fastsync"]
    assert modules_of({"sha256": {stock: "", "flashdev.ko": "", "qasio.ko": ""}}) == ["qasio"]
    assert modules_of({"sha256": {stock: ""}}) == []


def test_the_digest_is_of_the_sources_of_these_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ext4/a.c", "jbd2/b.c", "glue/6.12/c.patch", "glue/7.2/d.patch", "qasio/e.c"):
        (tmp_path / "kernel" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "kernel" / name).write_text("before")
    monkeypatch.setattr(glue, "repo_root", lambda: tmp_path)
    asked = ("fastsync", "qasio")

    def digests() -> dict[str, str]:
        return {name: source_digest("6.12", name) for name in asked}

    before = digests()
    assert len(set(before.values())) == 2
    assert source_digest("6.12") == before["fastsync"] != source_digest("7.2")
    for file, changed in {
        "ext4/a.c": {"fastsync"},
        "glue/6.12/c.patch": {"fastsync"},
        "glue/7.2/d.patch": set(),
        "qasio/e.c": {"qasio"},
    }.items():
        was = digests()
        (tmp_path / "kernel" / file).write_text("after")
        now = digests()
        assert {name for name in asked if was[name] != now[name]} == changed


def test_older_modules_are_named_in_one_sentence() -> None:
    fast, slow = parse_result(overwrite()), parse_result(overwrite(device="ufs"))
    beside = neighbour("6.12.1", 500)
    assert not fast.is_old and old(fast).is_old
    assert replace(fast, sources={"fastsync": source_digest("7.2")}).is_old
    assert older_modules([]) == older_modules([fast, slow, beside]) == []
    assert older_modules([old(fast), old(beside)]) == [ALL_OLD]
    assert older_modules([old(fast), old(slow), beside]) == [
        "With modules older than this tree's: overwrite."
    ]
    assert older_modules([old(beside), fast, old(slow)]) == [
        "With modules older than this tree's: neighbour, overwrite (ufs)."
    ]


def test_every_document_says_it() -> None:
    known, now = studies(), parse_result(overwrite())
    for results, count in (([now], 0), ([old(now)], 1)):
        text = in_markdown(pages.results_parts(results, known))
        assert text.count(ALL_OLD) == count
        page = in_markdown(pages.page_parts(known["overwrite"], results))
        assert page.count(ALL_OLD) == count
        assert ("targets are met. " + ALL_OLD + " Not measured yet" in text) is bool(count)
        assert ("older than" in chapters.on_kernel(known["overwrite"], results, known)) is (
            bool(count)
        )
        seven = old(with_ours((1, 2), kernel="7.2.3"))  # which the README does not show
        readme = in_markdown(gains.gain_parts([*results, seven], known))
        assert readme.count(ALL_OLD) == readme.count("older") == bool(count)


def test_a_result_file_names_the_sources() -> None:
    kept = data([])
    now = {"fastsync": source_digest("6.12")}
    assert kept.pop("source_sha256") == result([]).sources == now
    assert parse_result(kept).sources == parse_result({**kept, "source_sha256": "1"}).sources == {}
