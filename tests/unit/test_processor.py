"""The modelled processor: its table, what QEMU is told, and that no two meet in one table."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fastsync_lab.host.errors import UsageError
from fastsync_lab.host.kernels import KernelTree
from fastsync_lab.machine import processor
from fastsync_lab.machine.config import VmConfig
from fastsync_lab.machine.device import load_profile
from fastsync_lab.machine.processor import (
    SPEEDS,
    Processor,
    Table,
    label,
    load_processor,
    untimed_processor,
)
from fastsync_lab.studies import studies
from fastsync_lab.study import chapters, gains, pages
from fastsync_lab.study.figures import figures_of
from fastsync_lab.study.grid import in_markdown
from fastsync_lab.study.plan import Job, cell_record, describe, plan
from fastsync_lab.study.show import verdicts
from fastsync_lab.study.store import Result
from tests.unit.machines import argv_of, packed_tree, values
from tests.unit.settings import make_setting
from tests.unit.study_results import FOUR, cell, four, result, with_ours

OTHER = Processor("other", "another one", "qemu64,+erms,la57=off", ("mitigations=off",))


@pytest.fixture
def tree(tmp_path: Path) -> KernelTree:
    return packed_tree(tmp_path)


# --- the table -----------------------------------------------------------------------------------


def test_every_row_of_the_table_says_what_it_is() -> None:
    rows = [load_processor(name) for name in processor.processor_names()]
    assert load_processor() in rows and untimed_processor() in rows
    assert all(row.says and row.cpu for row in rows)
    assert len({processor.spelled(row.record) for row in rows}) == len(rows)
    with pytest.raises(UsageError, match="no processor 'i486': allowed are "):
        load_processor("i486")


def test_the_flags_that_are_switched() -> None:
    assert OTHER.switched == {"erms": True, "la57": False}
    assert load_processor("max").switched == {}
    assert replace(OTHER, cpu="max,-a,b=on,model=3").switched == {"a": False, "b": True}


def test_qemu_is_told_of_the_processor_and_the_kernel_of_its_parameters(
    tree: KernelTree, tmp_path: Path
) -> None:
    argv = argv_of(VmConfig(tree, processor=OTHER, parameters=("a=1",)), tmp_path)
    assert values(argv, "-cpu") == [OTHER.cpu]
    assert values(argv, "-append")[0].endswith(" mitigations=off a=1")
    own = values(argv_of(VmConfig(tree), tmp_path), "-cpu")
    assert own == [untimed_processor().cpu]


@pytest.mark.parametrize(("mips", "shift"), [(1000, 0), (500, 1), (250, 2), (125, 3)])
def test_a_speed_is_a_shift_of_qemus_clock(
    mips: int, shift: int, tree: KernelTree, tmp_path: Path
) -> None:
    argv = argv_of(VmConfig(tree, mips=mips), tmp_path)
    assert values(argv, "-icount") == [f"shift={shift},sleep=off"]
    assert processor.models_cpu(SPEEDS[mips]).startswith(f"{mips} million instructions")


@pytest.mark.parametrize("mips", [0, 1, 750, 2000])
def test_another_speed_there_is_not(mips: int, tree: KernelTree) -> None:
    with pytest.raises(UsageError, match=f"no {mips} million .* allowed are 1000, 500, 250, 125"):
        VmConfig(tree, mips=mips)


# --- labels --------------------------------------------------------------------------------------


def of(one: Processor, shift: int = 1) -> dict[str, Any]:
    return {"processor": one.record, "icount_shift": shift}


def test_only_what_guests_have_now_has_no_label(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"max": Processor("max", "s", "max"), "now": Processor("now", "s", "max,-x", ("a=1",))}
    monkeypatch.setattr(processor, "_table", lambda: Table(rows, "now", "now"))
    assert label(of(rows["now"])) == ""
    assert label(of(rows["now"], 0)) == "1000 MIPS"
    assert label(of(rows["max"])) == "processor max"
    assert label(of(rows["max"], 2)) == "250 MIPS, processor max"
    assert label(of(OTHER)) == "processor qemu64,+erms,la57=off mitigations=off"
    assert label(of(replace(rows["now"], parameters=()))) == "processor max,-x"


# --- what a figure depends on --------------------------------------------------------------------


def job(mips: int = 500) -> Job:
    return Job(studies()["overwrite"], "6.12", load_profile("ufs"), quick=True, mips=mips)


def test_a_key_depends_on_the_flags_the_parameters_and_the_speed(tmp_path: Path) -> None:
    setting = make_setting(tmp_path)
    some = [
        setting,
        replace(setting, processor=OTHER),
        replace(setting, processor=replace(OTHER, cpu="max")),
        replace(setting, processor=replace(OTHER, parameters=())),
    ]
    jobs = [*((job(), one) for one in some), (job(1000), setting)]
    keys = [cell_record(one, one.cells[0], describe(one, where))["key"] for one, where in jobs]
    assert len(set(keys)) == len(keys) == 5
    renamed = replace(setting, processor=replace(setting.processor, name="x", says="y"))
    assert cell_record(job(), job().cells[0], describe(job(), renamed))["key"] == keys[0]


def test_each_speed_has_result_files_of_its_own() -> None:
    some = [studies()["overwrite"]]
    names = [
        one.name
        for mips in SPEEDS
        for one in plan(some, series="6.12", quick=False, devices=["ufs"], mips=mips)
    ]
    assert names[:2] == ["overwrite-full-6.12-ufs-1000mips", "overwrite-full-6.12-ufs"]
    assert len(set(names)) == len(SPEEDS)


# --- never two in one table ----------------------------------------------------------------------

FAST, OLD = {"icount_shift": 0}, {"processor": OTHER.record}
OLD_LABEL = "processor qemu64,+erms,la57=off mitigations=off"


def overwrites(speeds: tuple[float, float, float, float], **environment: Any) -> Result:
    return result(four(speeds), **environment)


def text_of(results: Sequence[Result]) -> str:
    return in_markdown(pages.page_parts(studies()["overwrite"], results))


def test_a_row_says_which_processor_it_is_of() -> None:
    found = {row.place.processor for row in overwrites((1, 2, 2, 2), **FAST, **OLD).rows}
    assert found == {f"1000 MIPS, {OLD_LABEL}"}
    assert overwrites((1, 2, 2, 2)).mips == 500 and overwrites((1, 2, 2, 2), **FAST).mips == 1000


def test_figures_of_two_processors_are_not_held_against_each_other() -> None:
    stock = result([cell("stock", [100])], **OLD)
    rest = result([cell(name, [300], 1, FOUR[name]) for name in ("ideal", "truncate", "defer")])
    names = {one.what for one in verdicts(studies(), [*stock.lines, *rest.lines])}
    assert names and not any("over stock" in name for name in names)
    together = result(four((100, 300, 300, 300)))
    assert any("over stock" in one.what for one in verdicts(studies(), together.lines))


def test_the_page_has_a_section_for_each_processor_and_the_headline_names_it() -> None:
    results = [
        overwrites((230, 535, 530, 532), **OLD),
        overwrites((250, 600, 590, 595)),
        overwrites((260, 660, 650, 655), **FAST),
    ]
    text = text_of(results)
    order = ["## Linux 6.12\n", "## Linux 6.12, 1000 MIPS\n", f"## Linux 6.12, {OLD_LABEL}\n"]
    assert sorted(order, key=text.index) == order
    own = text[text.index(order[0]) : text.index(order[1])]
    assert "| 250 |" in own and "| 230 |" not in own and "| 260 |" not in own
    head = in_markdown(pages.results_parts(results, studies()))
    machines = ["6.12.1", "6.12.1, 1000 MIPS", f"6.12.1, {OLD_LABEL}"]
    rows = [line for line in head.splitlines() if line.startswith("| 6.12")]
    assert [row.split(" | ")[0].strip("| ") for row in rows] == machines
    assert f"one core ({OLD_LABEL})" in head and "one core (1000 MIPS)" in head


def test_pictures_of_two_processors_have_two_files() -> None:
    study = studies()["overwrite"]
    own, other = (overwrites((230, 535, 530, 532), **env).lines for env in ({}, OLD))
    stems = [{one.stem for one in figures_of(study, lines)} for lines in (own, other)]
    assert stems[0] and not stems[0] & stems[1]
    assert all(OLD_LABEL in one.kernel for one in figures_of(study, other))


def test_the_report_has_the_processor_of_now_first_and_how_to_repeat_each_speed() -> None:
    made = [overwrites((230, 535, 530, 532), **env) for env in (OLD, FAST, {})]
    results = [*made, result(four((1, 2, 2, 2)), kernel="7.2.3", **OLD)]
    ordered = pages.in_order(results, studies())
    html = chapters.section_of(studies()["overwrite"], ordered, studies()).html
    heads = ["7.2.3, processor ", "6.12.1 (", "6.12.1, 1000 MIPS (", "6.12.1, processor "]
    places = [html.index(f"<h3>Linux {head}") for head in heads]
    assert places == sorted(places)
    fast = html[places[2] : places[3]]
    assert "run --full overwrite --kernel 6.12 --mips 1000</code>" in fast
    assert "--device sata-ssd --mips 1000" in fast
    assert "--mips" not in html[places[1] : places[2]]


def test_the_readme_has_the_processor_of_now_alone() -> None:
    there: list[dict[str, Any]] = [OLD, FAST, {"device": "emmc", **OLD}]
    made = [with_ours((10, 20), **env) for env in there]
    assert gains.picture(made) is None
    new = with_ours((12, 24))
    text = in_markdown(gains.gain_parts([*made, new], studies()))
    assert "12.0 → 24.0 (**2.00×**) |" in text and "→" not in text.split("12.0 → 24.0")[1]
    assert OLD_LABEL not in text and "1000 MIPS" not in text
    picture = gains.picture([*made, new])
    assert picture and list(picture.groups) == ["sata-ssd"]
